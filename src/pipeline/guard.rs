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
use crate::ring::{Laps, Lease, Mark, Reader, Slot};
use std::collections::VecDeque;
use std::sync::Arc;

/// A lease whose kernel work may still be running.
pub(super) struct Held {
    /// The receiver that it goes back to.
    pub from: usize,
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
    /// The receiver whose ring it is.
    from: usize,
}

/// Polls in vain after which the reader has caught up with the ring.
const VAIN: u32 = 16;

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
    /// Packets that the latter came by, until they are counted.
    overwritten: u64,
    /// Its octets may still be those of the ring, to be read again.
    pub in_ring: bool,
    serial: Serial,
    /// When it is done, everything has been read.
    ticket: Ticket,
}

/// A ring that is overwritten in time.
#[derive(Debug)]
struct Ring {
    reader: Reader,
    /// Polls that brought nothing.
    vain: u32,
}

/// Checks what was read.
#[derive(Debug)]
pub(super) struct Guard<F: Space> {
    /// By receiver; none where its ring is not overwritten in time.
    rings: Vec<Option<Ring>>,
    row_octets: u32,
    /// The lease that is being executed.
    current: Read,
    /// Its ring is overwritten in time.
    current_counts: bool,
    /// Of each open frame: its number, and its octets that were overwritten.
    open: Vec<(Serial, Vec<Missing>)>,
    opened: Serial,
    closing: VecDeque<Closing<F>>,
    /// Slots are read when frames close: leases that were given back before.
    kept: Option<VecDeque<Read>>,
    /// Packets that were overwritten too soon.
    overwritten: u64,
    // Memory to be used again.
    reads: Vec<Read>,
    runs: Vec<Vec<Missing>>,
}

impl<F: Space> Guard<F> {
    /// `laps`: of each receiver's ring, where it is overwritten in time. `at_close`: a lease that is given back has not been read yet, see [`crate::kernel::Kernel::reads_at_close`].
    pub fn new(laps: impl Iterator<Item = Option<Arc<Laps>>>, wire: &WireFormat, at_close: bool) -> Self {
        let ring = |laps| Ring { reader: Reader::new(laps), vain: 0 };
        Guard {
            rings: laps.map(|laps| laps.map(ring)).collect(),
            row_octets: wire.row_octets(),
            current: Read::default(),
            current_counts: false,
            open: (0..MAX_OPEN).map(|_| Default::default()).collect(),
            opened: 0,
            closing: VecDeque::with_capacity(MAX_OPEN),
            kept: at_close.then(VecDeque::new),
            overwritten: 0,
            reads: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// Who has read so far, for others to go on; by receiver.
    pub fn into_readers(self) -> Vec<Option<Reader>> {
        self.rings.into_iter().map(|ring| ring.map(|ring| ring.reader)).collect()
    }
    /// Goes on where others have read.
    pub fn resume(&mut self, readers: Vec<Option<Reader>>) {
        for (ring, reader) in self.rings.iter_mut().zip(readers) {
            if let Some((ring, reader)) = ring.as_mut().zip(reader) {
                ring.reader = reader;
            }
        }
    }

    /// A poll brought nothing. One such poll says little, cards have them while packets wait; some together say that none does.
    pub fn in_vain(&mut self, from: usize) {
        let Some(Some(ring)) = self.rings.get_mut(from) else { return };
        ring.vain += 1;
        if ring.vain >= VAIN {
            ring.vain = 0;
            ring.reader.caught_up();
        }
    }
    /// A lease was taken, and nothing has been read of it.
    pub fn take(&mut self, from: usize, slots: &[Slot]) {
        let ring = self.rings.get_mut(from).and_then(Option::as_mut);
        self.current_counts = ring.is_some();
        if let Some(ring) = ring {
            self.current.from = from;
            self.current.marks.extend(slots.iter().map(|slot| ring.reader.take(slot)));
        }
    }
    /// The same lease has been executed: what was read of it; none where its slots stay as they are.
    pub fn taken(&mut self) -> Option<Read> {
        self.current_counts.then(|| std::mem::replace(&mut self.current, self.reads.pop().unwrap_or_default()))
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
        if !self.current_counts {
            return;
        }
        let Some(&(serial, _)) = self.open.get(usize::from(id.0)) else { return };
        self.current.placed.extend(placements.iter().map(|placement| (serial, *placement)));
    }
    /// It is not wanted.
    pub fn give_up(&mut self, id: FrameId) {
        if let Some((serial, torn)) = self.open.get_mut(usize::from(id.0)) {
            *serial = 0;
            torn.clear();
        }
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
        self.closing.push_back(Closing {
            number,
            frame,
            end: end.clone(),
            missing: runs,
            torn,
            is_torn: false,
            overwritten: 0,
            in_ring: self.kept.is_some(),
            serial,
            ticket,
        });
    }

    /// The oldest lease has been read, unless slots are read at the close: looks whether it still held what it held.
    pub fn check(&mut self, read: Read) {
        if let Some(kept) = &mut self.kept {
            kept.push_back(read);
            self.forget();
            return;
        }
        let Some(Some(ring)) = self.rings.get(read.from) else { return self.reuse(read) };
        for placed in read.placed.chunk_by(|a, b| a.0 == b.0) {
            // Nowhere, when the frame was given up, or has been checked and delivered.
            let serial = placed[0].0;
            let open = self.open.iter_mut().find(|open| open.0 == serial).map(|open| &mut open.1);
            let torn = open.or_else(|| self.closing.iter_mut().find(|c| c.serial == serial).map(|c| &mut c.torn));
            if let Some(torn) = torn {
                self.overwritten += tear(ring.reader.laps(), self.row_octets, &read.marks, placed, torn);
            }
        }
        self.reuse(read);
    }

    fn reuse(&mut self, mut read: Read) {
        read.marks.clear();
        read.placed.clear();
        self.reads.push(read);
    }

    /// When the oldest frame that closed has been read.
    pub fn next_ticket(&self) -> Option<Ticket> {
        Some(self.closing.front()?.ticket)
    }
    /// The oldest frame that closed, which has been read. `held` are the leases that have not been checked. It goes on with
    /// [`Guard::read_again`] or [`Guard::settle`].
    pub fn next_checked<'a>(&mut self, held: impl Iterator<Item = &'a Read>) -> Option<Closing<F>> {
        let mut closing = self.closing.pop_front()?;
        let (rings, row_octets, serial) = (&self.rings, self.row_octets, closing.serial);
        let mut check = |read: &Read| {
            let Some(Some(ring)) = rings.get(read.from) else { return };
            let laps = ring.reader.laps();
            for placed in read.placed.chunk_by(|a, b| a.0 == b.0).filter(|placed| placed[0].0 == serial) {
                closing.overwritten += tear(laps, row_octets, &read.marks, placed, &mut closing.torn);
            }
        };
        self.kept.iter().flatten().for_each(&mut check);
        held.for_each(check);
        closing.is_torn = !closing.torn.is_empty();
        Some(closing)
    }
    /// Octets of it are read from the ring once more, and only when `ticket` is done it is known which of them held.
    pub fn read_again(&mut self, mut closing: Closing<F>, ticket: Ticket) {
        closing.torn.clear();
        (closing.overwritten, closing.in_ring, closing.ticket) = (0, false, ticket);
        self.closing.push_front(closing);
    }
    /// Nothing more is read for it: its loss map has what was overwritten, and that is counted.
    pub fn settle(&mut self, closing: &mut Closing<F>) {
        self.overwritten += closing.overwritten;
        self.forget();
        if closing.is_torn {
            closing.missing.append(&mut closing.torn);
            join(&mut closing.missing);
        }
    }
    /// What was kept for frames that are gone.
    fn forget(&mut self) {
        let opened = self.open.iter().map(|open| open.0).filter(|serial| *serial > 0);
        let oldest = opened.chain(self.closing.iter().map(|c| c.serial)).min().unwrap_or(Serial::MAX);
        let gone = |read: &Read| read.placed.iter().all(|(serial, _)| *serial < oldest);
        while let Some(read) =
            self.kept.as_mut().and_then(|kept| if gone(kept.front()?) { kept.pop_front() } else { None })
        {
            self.reuse(read);
        }
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
    use crate::mem::{Host, Region};
    use crate::plan::Fate;
    use crate::ring::{Geometry, SplitRing};
    use crate::time::Tai;
    use gdmedia_sdp::{Depth, Sampling, Scan};

    #[test]
    fn leases_are_kept_until_the_frames_that_read_them_are_gone() {
        let geometry = Geometry { slots: 64, rings: 1, head: 20, body: 0, margin: 4, in_sequence: true };
        let ring = SplitRing::<Host>::whole(Region::host(64 * 20).unwrap()).overwritten_in_time(geometry).unwrap();
        let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, 16, 4, Scan::Progressive).unwrap();
        let mut guard = Guard::<Host>::new([ring.laps().cloned()].into_iter(), &wire, true);
        let kept = |guard: &Guard<Host>| guard.kept.as_ref().unwrap().len();
        let [unwanted, wanted] = [0, 1].map(FrameId);
        let lease = |guard: &mut Guard<Host>, frames: &[FrameId]| {
            guard.take(0, &[]);
            frames.iter().for_each(|id| guard.place(*id, &[Placement { slot: 0, dst: 0, src: 20, len: 5 }]));
            let read = guard.taken().unwrap();
            guard.check(read);
        };
        lease(&mut guard, &[]);
        assert_eq!(kept(&guard), 0, "no frame reads it");
        guard.open(unwanted);
        guard.open(wanted);
        lease(&mut guard, &[unwanted]);
        lease(&mut guard, &[unwanted, wanted]);
        assert_eq!(kept(&guard), 2);
        guard.give_up(unwanted);
        lease(&mut guard, &[wanted]);
        assert_eq!(kept(&guard), 2, "the first is gone");
        let end = FrameEnd {
            fate: Fate::Complete,
            timestamp: 0,
            second_timestamp: None,
            first_arrival: Tai(0),
            last_arrival: Tai(0),
            packets: 3,
            missing: 0..0,
        };
        guard.close(wanted, (0, None), &end, &[], Ticket(7));
        assert_eq!((guard.next_ticket(), kept(&guard)), (Some(Ticket(7)), 2));
        let closing = guard.next_checked(std::iter::empty()).unwrap();
        guard.read_again(closing, Ticket(9));
        assert_eq!((guard.next_ticket(), kept(&guard)), (Some(Ticket(9)), 2), "it is read once more");
        let mut closing = guard.next_checked(std::iter::empty()).unwrap();
        guard.settle(&mut closing);
        assert_eq!(kept(&guard), 0);
    }

    #[test]
    fn runs_of_a_loss_map_are_joined_in_order() {
        let run = |(row, octet, len)| Missing { row, octet, len };
        let mut runs: Vec<_> =
            [(3, 0, 10), (1, 50, 5), (1, 20, 30), (1, 100, 5), (3, 15, 5), (2, 0, 4)].map(run).into();
        join(&mut runs);
        assert_eq!(runs, [(1, 20, 35), (1, 100, 5), (2, 0, 4), (3, 0, 10), (3, 15, 5)].map(run));
    }
}
