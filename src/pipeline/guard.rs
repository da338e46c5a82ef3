//! Frames of rings that are overwritten in time: they wait until what was read for them has been checked.
//!
//! What each slot of a lease held is remembered when it is taken, and checked when the kernel has read it, which a GPU may
//! have long after the frame closed. So such a frame is queued at its close, and delivered when everything that it was made
//! of has been checked. Which octets of it were overwritten is known from the placements, and its loss map names them: it
//! is mended or withheld like a frame that lacks packets.

use crate::format::WireFormat;
use crate::frame::FrameBuf;
use crate::kernel::Ticket;
use crate::mem::Space;
use crate::plan::{FrameEnd, FrameId, MAX_OPEN, Missing, Placement};
use crate::ring::{Laps, Lease, Mark, Slot};
use std::collections::VecDeque;
use std::sync::Arc;

/// A lease whose kernel work may still be running.
pub(super) struct Held {
    pub lease: Lease,
    pub ticket: Ticket,
    /// Of rings that are overwritten in time.
    pub read: Option<Read>,
}

/// What was read of a lease: what its slots held, and where their octets went.
#[derive(Debug, Default)]
pub(super) struct Read {
    marks: Vec<Mark>,
    placed: Vec<(Serial, Placement)>,
}

/// Counts frames as they open, from 1.
type Serial = u64;

/// A frame that has closed.
#[derive(Debug)]
pub(super) struct Closing<F: Space> {
    pub number: u64,
    pub frame: Option<FrameBuf<F>>,
    pub end: FrameEnd,
    /// What never came, and, when it has been checked, what was overwritten.
    pub missing: Vec<Missing>,
    /// The latter, until then.
    torn: Vec<Missing>,
    pub is_torn: bool,
    serial: Serial,
    /// When it is done, everything has been read.
    ticket: Ticket,
}

/// Checks what was read.
#[derive(Debug)]
pub(super) struct Guard<F: Space> {
    laps: Arc<Laps>,
    row_octets: u32,
    /// The lease that is being executed.
    current: Read,
    /// Of each open frame: its number, and its octets that were overwritten.
    open: [(Serial, Vec<Missing>); MAX_OPEN],
    opened: Serial,
    closing: VecDeque<Closing<F>>,
    /// Packets that were overwritten too soon.
    overwritten: u64,
    // Memory to be used again.
    reads: Vec<Read>,
    runs: Vec<Vec<Missing>>,
}

impl<F: Space> Guard<F> {
    pub fn new(laps: Arc<Laps>, wire: &WireFormat) -> Self {
        Guard {
            laps,
            row_octets: wire.row_octets(),
            current: Read::default(),
            open: Default::default(),
            opened: 0,
            closing: VecDeque::with_capacity(MAX_OPEN),
            overwritten: 0,
            reads: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// A lease was taken, and nothing has been read of it.
    pub fn take(&mut self, slots: &[Slot]) {
        self.current.marks.extend(slots.iter().map(|slot| self.laps.mark(slot)));
    }
    /// The same lease has been executed: what was read of it.
    pub fn taken(&mut self) -> Read {
        std::mem::replace(&mut self.current, self.reads.pop().unwrap_or_default())
    }

    /// A frame was opened.
    pub fn open(&mut self, id: FrameId) {
        self.opened += 1;
        if let Some((serial, torn)) = self.open.get_mut(usize::from(id.0)) {
            *serial = self.opened;
            torn.clear();
        }
    }
    /// Octets of the lease went into it.
    pub fn place(&mut self, id: FrameId, placements: &[Placement]) {
        let Some(&(serial, _)) = self.open.get(usize::from(id.0)) else { return };
        self.current.placed.extend(placements.iter().map(|placement| (serial, *placement)));
    }
    /// It was closed, and has been read when `ticket` is done.
    pub fn close(
        &mut self,
        id: FrameId,
        (number, frame): (u64, Option<FrameBuf<F>>),
        end: &FrameEnd,
        missing: &[Missing],
        ticket: Ticket,
    ) {
        let empty = self.runs.pop().unwrap_or_default();
        let open = self.open.get_mut(usize::from(id.0)).map(|open| std::mem::replace(open, (0, empty)));
        let (serial, torn) = open.unwrap_or_default();
        let mut runs = self.runs.pop().unwrap_or_default();
        runs.extend_from_slice(missing);
        let end = end.clone();
        self.closing.push_back(Closing { number, frame, end, missing: runs, torn, is_torn: false, serial, ticket });
    }

    /// The oldest lease has been read: looks whether it still held what it held.
    pub fn check(&mut self, mut read: Read) {
        for placed in read.placed.chunk_by(|a, b| a.0 == b.0) {
            // Nowhere, when the frame was given up, or has been checked and delivered.
            let serial = placed[0].0;
            let open = self.open.iter_mut().find(|open| open.0 == serial).map(|open| &mut open.1);
            let torn = open.or_else(|| self.closing.iter_mut().find(|c| c.serial == serial).map(|c| &mut c.torn));
            if let Some(torn) = torn {
                self.overwritten += tear(&self.laps, self.row_octets, &read.marks, placed, torn);
            }
        }
        read.marks.clear();
        read.placed.clear();
        self.reads.push(read);
    }

    /// When the oldest frame that closed has been read.
    pub fn next_ticket(&self) -> Option<Ticket> {
        Some(self.closing.front()?.ticket)
    }
    /// The oldest frame that closed, which has been read. `held` are the leases that have not been checked.
    pub fn next_checked<'a>(&mut self, held: impl Iterator<Item = &'a Read>) -> Option<Closing<F>> {
        let mut closing = self.closing.pop_front()?;
        for read in held {
            for placed in read.placed.chunk_by(|a, b| a.0 == b.0).filter(|placed| placed[0].0 == closing.serial) {
                self.overwritten += tear(&self.laps, self.row_octets, &read.marks, placed, &mut closing.torn);
            }
        }
        closing.is_torn = !closing.torn.is_empty();
        if closing.is_torn {
            closing.missing.append(&mut closing.torn);
            join(&mut closing.missing);
        }
        Some(closing)
    }
    /// The oldest frame that closed, checked or not.
    pub fn next(&mut self) -> Option<Closing<F>> {
        self.closing.pop_front()
    }
    /// Packets that were overwritten before they were read for good.
    pub const fn overwritten(&self) -> u64 {
        self.overwritten
    }
    /// Frames wait.
    pub fn is_waiting(&self) -> bool {
        !self.closing.is_empty()
    }
    /// What is left of a frame that was delivered.
    pub fn recycle(&mut self, closing: Closing<F>) {
        self.runs.extend([closing.missing, closing.torn].map(|mut runs| {
            runs.clear();
            runs
        }));
    }
}

/// Adds to `torn` the octets of packets that were overwritten; gives the number of these.
fn tear(laps: &Laps, row_octets: u32, marks: &[Mark], placed: &[(Serial, Placement)], torn: &mut Vec<Missing>) -> u64 {
    let mut count = 0;
    for of_slot in placed.chunk_by(|a, b| a.1.slot == b.1.slot) {
        // Every placement has a slot of the lease, or was refused.
        let Some(mark) = marks.get(of_slot[0].1.slot as usize) else { continue };
        if !laps.holds(mark) {
            count += 1;
            torn.extend(of_slot.iter().map(|(_, p)| Missing {
                row: p.dst / row_octets,
                octet: p.dst % row_octets,
                len: p.len.into(),
            }));
        }
    }
    count
}

/// In order, and adjacent runs as one.
fn join(runs: &mut Vec<Missing>) {
    runs.sort_unstable_by_key(|run| (run.row, run.octet));
    runs.dedup_by(|next, run| {
        let adjacent = next.row == run.row && next.octet <= run.octet + run.len;
        if adjacent {
            run.len = run.len.max(next.octet + next.len - run.octet);
        }
        adjacent
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_loss_map_are_joined_in_order() {
        let run = |(row, octet, len)| Missing { row, octet, len };
        let mut runs: Vec<_> =
            [(3, 0, 10), (1, 50, 5), (1, 20, 30), (1, 100, 5), (3, 15, 5), (2, 0, 4)].map(run).into();
        join(&mut runs);
        assert_eq!(runs, [(1, 20, 35), (1, 100, 5), (2, 0, 4), (3, 0, 10), (3, 15, 5)].map(run));
    }
}
