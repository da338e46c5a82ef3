//! Frames that are windows of the ring: where a network card puts packets of equal size in the order of their numbers, and
//! the layout is that of the wire, the ring holds every frame already, in one piece, or in two where it begins anew.
//!
//! [`Windows`] goes around the kernel that would copy the octets. It remembers where they were to go. When the frame closes,
//! and nothing is missing, and octet `n` of it lies `n` octets behind the first one throughout, the frame is a window; else
//! the kernel copies it after all: with packets missing, of another size, or with payload before the cut.

use super::{Conversion, Kernel, KernelError, Ticket};
use crate::format::{Layout, Output};
use crate::frame::{Frame, FrameBuf, Window};
use crate::mem::{ReadAs, Space};
use crate::plan::{Missing, Placement};
use crate::ring::{Laps, Slot, SplitRing};
use crate::sdp::Scan;
use std::sync::Arc;

/// A ring holds so many frames at least, or none is a window: one that is filled, one that is read, and four that wait.
const FRAMES: u64 = 6;

/// Why frames of this layout cannot be windows of a ring; none when they can. `wanted` says why their consumers want memory of
/// the frames' own.
pub fn why_not<R: Space>(layout: &Layout, ring: &SplitRing<R>, wanted: Result<(), &str>) -> Option<String> {
    let Some(laps) = ring.laps() else { return Some("its memory is used again when packets are given back".into()) };
    let geometry = laps.geometry();
    let (row, frame) = (layout.wire.row_octets(), u64::from(layout.wire.frame_octets()));
    if layout.output != Output::Wire {
        return Some(format!("the layout {} is not that of the wire", layout.output.word()));
    }
    if let Err(why) = wanted {
        return Some(why.to_owned());
    }
    if layout.wire.scan != Scan::Progressive {
        return Some("rows of two fields lie apart in it".into());
    }
    if !geometry.in_sequence || geometry.rings > 1 {
        return Some("packets lie in it as they arrived".into());
    }
    if geometry.body == 0 {
        return Some("headers lie among the payload".into());
    }
    if !row.is_multiple_of(geometry.body) {
        return Some(format!("payloads of {} octets do not fill rows of {row}", geometry.body));
    }
    let octets = u64::from(geometry.slots) * u64::from(geometry.body);
    (octets < FRAMES * frame)
        .then(|| format!("it holds {:.2} frames, and {FRAMES} are needed", octets as f64 / frame as f64))
}

/// A kernel whose frames are windows of the ring where they can be.
pub struct Windows<K, R: Space> {
    inner: K,
    seen: Option<Seen<R>>,
    text: Option<String>,
}

/// The ring, and what is known of frames in it.
struct Seen<R: Space> {
    ring: SplitRing<R>,
    laps: Arc<Laps>,
    /// Octets of the body plane after which the ring begins anew.
    end: u64,
    /// Frames that are filled, and those that closed as windows.
    records: Vec<Record>,
    spare: Vec<Record>,
    /// Of the inner kernel's last work.
    last: Ticket,
}

/// What was to be placed in a frame.
#[derive(Default)]
struct Record {
    /// The frame's memory, which names it.
    frame: usize,
    slots: Vec<Slot>,
    placements: Vec<Placement>,
    /// Where octet 0 of the frame lies in the body plane, when all others lie where they should.
    origin: Option<u64>,
}

impl<K, R: Space> Windows<K, R> {
    /// Around a kernel for frames of `conversion`'s layout from `ring`, if that can be ([`why_not`]).
    pub fn new(inner: K, conversion: &Conversion, ring: &SplitRing<R>, wanted: Result<(), &str>) -> Self {
        let why_not = why_not(&conversion.layout, ring, wanted);
        let Some((ring, laps)) = ring.again().zip(ring.laps().cloned()) else { return Self::off(inner) };
        let geometry = laps.geometry();
        let end = u64::from(geometry.slots) * u64::from(geometry.body);
        let text = why_not.as_ref().map_or_else(
            || "frames are windows of the ring, without a copy".into(),
            |why| format!("copied from the ring: {why}"),
        );
        let seen = why_not.is_none().then(|| Seen {
            ring,
            laps,
            end,
            records: Vec::with_capacity(8),
            spare: Vec::new(),
            last: Ticket::default(),
        });
        Windows { inner, seen, text: Some(text) }
    }
    /// Only the kernel.
    pub const fn off(inner: K) -> Self {
        Windows { inner, seen: None, text: None }
    }
    /// The kernel that copies.
    pub const fn inner(&self) -> &K {
        &self.inner
    }
}

impl<R: Space> Seen<R> {
    fn record(&mut self, frame: usize) -> &mut Record {
        let found = self.records.iter().position(|record| record.frame == frame);
        let index = found.unwrap_or_else(|| {
            self.records.push(Record { frame, ..self.spare.pop().unwrap_or_default() });
            self.records.len() - 1
        });
        &mut self.records[index]
    }
    /// The record of a frame that is to be copied or is not wanted.
    fn take(&mut self, frame: usize) -> Option<Record> {
        let index = self.records.iter().position(|record| record.frame == frame)?;
        Some(self.records.swap_remove(index))
    }
    fn reuse(&mut self, mut record: Record) {
        record.slots.clear();
        record.placements.clear();
        self.spare.push(record);
    }

    /// Where octet 0 of a frame lies when these octets are where they should be.
    fn origin(&self, slot: &Slot, placement: &Placement) -> Option<u64> {
        let (src, end) = (placement.src, placement.src.checked_add(placement.len)?);
        if src < slot.head || end > slot.octets {
            return None;
        }
        let at = u64::from(slot.body_at) + u64::from(src - slot.head);
        if at + u64::from(placement.len) > self.end {
            return None;
        }
        Some((at + self.end - u64::from(placement.dst) % self.end) % self.end)
    }
}

fn name<F: Space>(frame: &mut FrameBuf<F>) -> usize {
    frame.region_mut().as_ptr() as usize
}

impl<K, R: Space> Windows<K, R> {
    /// Does what was put off, for a frame that cannot be a window.
    fn copy<F: Space>(&mut self, frame: &mut FrameBuf<F>) -> Result<(), KernelError>
    where
        K: Kernel<R, F>,
    {
        let Some(seen) = &mut self.seen else { return Ok(()) };
        let Some(record) = seen.take(name(frame)) else { return Ok(()) };
        let applied = self.inner.apply(&seen.ring, &record.slots, &record.placements, frame);
        seen.reuse(record);
        seen.last = applied?;
        Ok(())
    }
}

impl<R: ReadAs<F>, F: Space, K: Kernel<R, F>> Kernel<R, F> for Windows<K, R> {
    fn apply(
        &mut self,
        ring: &SplitRing<R>,
        slots: &[Slot],
        placements: &[Placement],
        frame: &mut FrameBuf<F>,
    ) -> Result<Ticket, KernelError> {
        let Some(seen) = &mut self.seen else { return self.inner.apply(ring, slots, placements, frame) };
        let name = name(frame);
        let mut last = None;
        for placement in placements {
            // Such a placement is nobody's.
            let Some(slot) = slots.get(placement.slot as usize) else { continue };
            let origin = seen.origin(slot, placement);
            let mark = (last != Some(placement.slot)).then(|| seen.laps.mark(slot));
            let record = seen.record(name);
            if record.placements.is_empty() {
                record.origin = origin;
            } else if record.origin != origin {
                record.origin = None;
            }
            if let Some(mark) = mark {
                record.slots.push(*slot);
                frame.marks_mut().push(mark);
                last = Some(placement.slot);
            }
            record.placements.push(Placement { slot: record.slots.len() as u32 - 1, ..*placement });
        }
        // Nothing was begun.
        Ok(seen.last)
    }

    fn add_ring(&mut self, ring: &SplitRing<R>) -> Result<(), KernelError> {
        if self.seen.take().is_some() {
            self.text = Some("copied from the rings: frames come from several receivers".into());
        }
        self.inner.add_ring(ring)
    }

    fn close(&mut self, frame: &mut FrameBuf<F>, whole: bool, last: Ticket) -> Result<Ticket, KernelError> {
        let Some(seen) = &mut self.seen else { return self.inner.close(frame, whole, last) };
        if whole && seen.record(name(frame)).origin.is_some() {
            return Ok(seen.last);
        }
        self.copy(frame)?;
        let last = self.seen.as_ref().map_or(last, |seen| seen.last);
        self.inner.close(frame, whole, last)
    }

    fn reads_at_close(&self) -> bool {
        self.seen.is_some()
    }

    fn conceal(
        &mut self,
        frame: &mut FrameBuf<F>,
        missing: &[Missing],
        previous: Option<&Frame<F>>,
    ) -> Result<(), KernelError> {
        self.inner.conceal(frame, missing, previous.filter(|previous| previous.intact()))
    }

    fn paint(&mut self, frame: &mut FrameBuf<F>, missing: &[Missing]) -> Result<(), KernelError> {
        self.inner.paint(frame, missing)
    }

    fn finish(&mut self, mut frame: FrameBuf<F>) -> Result<(Frame<F>, Ticket), KernelError> {
        if let Some(seen) = &mut self.seen
            && let Some(record) = seen.take(name(&mut frame))
        {
            let origin = record.origin;
            seen.reuse(record);
            if let Some((origin, plane)) = origin.zip(seen.ring.body_plane()) {
                let window = Window::new(plane.view(), seen.laps.clone(), origin as usize, seen.end as usize);
                // No work of the kernel comes before who reads it.
                self.inner.end_writes()?;
                return Ok((frame.seal_as(window), seen.last));
            }
        }
        self.inner.finish(frame)
    }

    fn discard(&mut self, mut frame: FrameBuf<F>) {
        if let Some(seen) = &mut self.seen
            && let Some(record) = seen.take(name(&mut frame))
        {
            seen.reuse(record);
        }
        self.inner.discard(frame);
    }

    fn flush(&mut self) -> Result<(), KernelError> {
        self.inner.flush()
    }

    fn done(&mut self, ticket: Ticket) -> Result<bool, KernelError> {
        self.inner.done(ticket)
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn describe(&self) -> String {
        match &self.text {
            Some(text) => format!("{}; {text}", self.inner.describe()),
            None => self.inner.describe(),
        }
    }
}
