//! From placements to pieces: where octets lie in a ring, checked, as the GPU is told. And which parts of the ring they
//! are, for copies. Pure.

use super::abi::Piece;
use crate::kernel::cpu::Place;
use crate::plan::Placement;
use crate::ring::Slot;

/// Sizes of a ring's planes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planes {
    /// Octets of the head plane.
    pub head: u32,
    /// Octets of the body plane; 0 where there is none.
    pub body: u32,
}

/// The piece of a placement; `None` when it does not lie in its packet, its ring or its frame.
#[inline]
pub fn piece(slot: &Slot, placement: &Placement, planes: Planes, place: &mut Place) -> Option<Piece> {
    place.locate(placement)?;
    let (src, len, head) = (u32::from(placement.src), u32::from(placement.len), u32::from(slot.head));
    let end = src + len;
    if end > u32::from(slot.octets) {
        return None;
    }
    let first = end.min(head).saturating_sub(src);
    let (mut at, mut rest) = (0, 0);
    if first > 0 {
        at = slot.head_at.checked_add(src)?;
        if at.checked_add(first)? > planes.head {
            return None;
        }
    }
    if first < len {
        rest = slot.body_at.checked_add(src.max(head) - head)?;
        if rest.checked_add(len - first)? > planes.body {
            return None;
        }
    }
    Some(Piece { src: at, dst: placement.dst, rest, len: placement.len, first: first as u16 })
}

/// Parts of a plane, `start .. end`, that hold what a batch needs.
#[derive(Debug, Default)]
pub struct Parts {
    parts: Vec<(u32, u32)>,
    octets: u64,
}

/// Parts that lie so near are copied as one: what lies between costs less than another copy.
const NEAR: u32 = 8 << 10;

impl Parts {
    /// With room for so many, so that adding does not allocate.
    pub fn with_capacity(parts: usize) -> Self {
        Parts { parts: Vec::with_capacity(parts), octets: 0 }
    }
    /// Adds `start .. end`.
    #[inline]
    pub fn add(&mut self, start: u32, end: u32) {
        self.octets += u64::from(end - start);
        match self.parts.last_mut() {
            Some((from, to)) if start >= *from && start <= to.saturating_add(NEAR) => *to = (*to).max(end),
            _ => self.parts.push((start, end)),
        }
    }
    /// Brings them into order and joins what is near.
    pub fn join(&mut self) -> &[(u32, u32)] {
        self.parts.sort_unstable();
        self.parts.dedup_by(|next, part| {
            let near = next.0 <= part.1.saturating_add(NEAR);
            if near {
                part.1 = part.1.max(next.1);
            }
            near
        });
        &self.parts
    }
    /// Octets that were added.
    pub const fn octets(&self) -> u64 {
        self.octets
    }
    /// Forgets all, keeps the memory.
    pub fn clear(&mut self) {
        self.parts.clear();
        self.octets = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::WireFormat;
    use crate::time::Tai;
    use gdmedia_sdp::{Depth, Sampling, Scan};

    fn place() -> Place {
        Place::new(&WireFormat::new(Sampling::YCbCr422, Depth::D10, 96, 4, Scan::Progressive).unwrap())
    }

    fn slot(head: u16, octets: u16) -> Slot {
        Slot { head_at: 1000, body_at: 5000, head, octets, wire_octets: octets, leg: 0, arrival: Tai(0) }
    }

    #[test]
    fn octets_are_found_in_both_planes() {
        let planes = Planes { head: 4000, body: 6000 };
        let placement = Placement { slot: 0, dst: 240, src: 20, len: 40 };
        let piece = |head| piece(&slot(head, 60), &placement, planes, &mut place());
        let all = Piece { src: 1020, dst: 240, rest: 0, len: 40, first: 40 };
        assert_eq!(piece(60), Some(all));
        assert_eq!(piece(20), Some(Piece { src: 0, rest: 5000, first: 0, ..all }));
        // Cut before the payload: it begins a little into the body plane.
        assert_eq!(piece(12), Some(Piece { src: 0, rest: 5008, first: 0, ..all }));
        // Inside of the second pgroup.
        assert_eq!(piece(27), Some(Piece { rest: 5000, first: 7, ..all }));
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let piece = |slot: Slot, placement: Placement, head, body| {
            piece(&slot, &placement, Planes { head, body }, &mut place())
        };
        let whole = slot(60, 60);
        let good = Placement { slot: 0, dst: 240, src: 20, len: 40 };
        assert!(piece(whole, good, 1060, 0).is_some());
        assert!(piece(whole, good, 1059, 0).is_none(), "behind the head plane");
        assert!(piece(slot(30, 60), good, 4000, 5030).is_some());
        assert!(piece(slot(30, 60), good, 4000, 5029).is_none(), "behind the body plane");
        assert!(piece(slot(30, 60), good, 4000, 0).is_none(), "no body plane");
        assert!(piece(whole, Placement { src: 25, ..good }, 4000, 0).is_none(), "behind the packet");
        assert!(piece(whole, Placement { dst: 960, ..good }, 4000, 0).is_none(), "behind the frame");
        assert!(piece(whole, Placement { dst: 201, ..good }, 4000, 0).is_none(), "no pgroup");
        assert!(piece(Slot { head_at: u32::MAX - 10, ..whole }, good, u32::MAX, 0).is_none(), "wraps");
        assert!(piece(Slot { body_at: u32::MAX - 10, ..slot(20, 60) }, good, 4000, u32::MAX).is_none(), "wraps");
    }

    #[test]
    fn near_parts_become_one() {
        let mut parts = Parts::default();
        for cell in [3u32, 2, 1, 7] {
            let start = cell * 67_008;
            for packet in 0..53 {
                parts.add(start + packet * 1220 + 20, start + packet * 1220 + 1220);
            }
        }
        assert_eq!(parts.octets(), 4 * 53 * 1200);
        let end = |cell: u32| cell * 67_008 + 53 * 1220;
        // Cells follow one another with less than 8 KiB between their packets.
        assert_eq!(parts.join(), [(67_028, end(3)), (7 * 67_008 + 20, end(7))]);
        parts.clear();
        assert_eq!((parts.join().len(), parts.octets()), (0, 0));
    }

    #[test]
    fn a_part_that_lies_before_the_last_one_is_kept_apart_until_they_are_joined() {
        let mut parts = Parts::default();
        parts.add(100_000, 101_000);
        parts.add(50_000, 51_000);
        parts.add(95_000, 96_000);
        assert_eq!(parts.join(), [(50_000, 51_000), (95_000, 101_000)]);
    }
}
