//! Sizes of slots, and where they lie. Pure.

use super::options::{CUTS, Cut, Options};
use crate::error::{Error, Kind, Result};

/// Headers before a UDP payload at most: Ethernet with a tag, IPv4 with 40 octets of options, UDP.
const HEADERS: u32 = 18 + 60 + 8;
/// Slots take every frame of an interface with the usual MTU, whatever the SDP allows: a frame that is longer than its slot
/// costs more than itself.
const USUAL: u32 = 1536;
/// What planes and slots are aligned to.
const LINE: u32 = 64;
/// Octets behind a cut to which the CPU may copy what was cut off too early.
pub const SPILL: u16 = 96;
/// What dma-bufs and registrations are multiples of.
pub const PAGE: usize = 64 << 10;

/// How packets lie in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Octets of a frame in its slot of the head plane, at most.
    pub head: u16,
    /// Octets of it in the body plane, at most; 0: frames are not cut.
    pub body: u16,
    /// Octets from slot to slot.
    pub head_stride: u32,
    /// The same in the body plane.
    pub body_stride: u32,
    /// Slots of a leg.
    pub slots: u32,
    /// Legs, whose slots follow one another.
    pub legs: u32,
}

impl Shape {
    /// For a memory that asks for a cut by itself (`cut`), and one that the CPU reaches behind it (`spills`).
    ///
    /// # Errors
    /// Packets are too large, or the ring is.
    pub fn new(options: &Options, legs: usize, cut: bool) -> Result<Self> {
        let frame = (u32::from(options.max_octets) + HEADERS).max(USUAL).next_multiple_of(LINE);
        let head = match options.cut {
            Cut::None => None,
            Cut::Auto => cut.then_some(*CUTS.end()),
            Cut::At(octets) => Some(octets),
        };
        let too_much =
            |what: String| Error::new(Kind::Unavailable, what).cure("use a shorter ring (--verbs hold=…, capacity=…)");
        let short = |n: u32| u16::try_from(n).map_err(|_| too_much(format!("frames of {n} octets are too long")));
        let (head, body) = match head {
            Some(head) => (head, short(frame)? - head),
            None => (short(frame)?, 0),
        };
        let room = if body == 0 { 0 } else { u32::from(SPILL) };
        let head_stride = (u32::from(head) + room).next_multiple_of(LINE);
        let body_stride = u32::from(body).next_multiple_of(LINE);
        let slots = options.packets().max(1);
        let all = slots.saturating_mul(legs.max(1));
        let fits = |stride: u32| all.saturating_mul(stride as usize).saturating_add(2 * PAGE) <= u32::MAX as usize;
        if !fits(head_stride) || !fits(body_stride) {
            return Err(too_much(format!("a ring of {all} packets of {frame} octets exceeds 4 GiB")));
        }
        Ok(Shape { head, body, head_stride, body_stride, slots: slots as u32, legs: legs as u32 })
    }
    /// Octets of the two planes.
    pub fn planes(&self) -> [usize; 2] {
        let all = self.slots as usize * self.legs as usize;
        let plane = |stride: u32| (all * stride as usize + crate::ring::SLACK).next_multiple_of(PAGE);
        [plane(self.head_stride), plane(self.body_stride)]
    }
    /// Frames are cut in two.
    pub const fn is_cut(&self) -> bool {
        self.body > 0
    }
    /// Where a slot begins in the head plane.
    #[inline]
    pub const fn head_at(&self, slot: u32) -> usize {
        slot as usize * self.head_stride as usize
    }
    /// Where it begins in the body plane.
    #[inline]
    pub const fn body_at(&self, slot: u32) -> usize {
        slot as usize * self.body_stride as usize
    }
    /// The slot that holds this octet of the head plane, and its leg.
    #[inline]
    pub const fn slot(&self, head_at: u32) -> (u32, usize) {
        let slot = head_at / self.head_stride;
        (slot, (slot / self.slots) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_take_the_frames_that_the_sdp_allows_and_those_of_the_usual_mtu() {
        let options = Options { capacity: Some(1000), ..Options::default() };
        let whole = Shape::new(&options, 1, false).unwrap();
        assert_eq!((whole.head, whole.body, whole.head_stride, whole.is_cut()), (1600, 0, 1600, false));
        let cut = Shape::new(&options, 2, true).unwrap();
        assert_eq!((cut.head, cut.body, cut.head_stride, cut.body_stride), (96, 1504, 192, 1536));
        // 1452 octets behind 86 of headers are 1538, in whole lines 1600. The second leg's slots follow those of the first one.
        assert_eq!((cut.slot(1999 * 192 + 42), cut.slot(999 * 192)), ((1999, 1), (999, 0)));
        assert!(cut.planes().iter().all(|octets| octets.is_multiple_of(PAGE)));
        assert!(cut.planes()[1] >= 2000 * 1536 + crate::ring::SLACK);
        let large = Options { max_octets: 8952, cut: Cut::At(74), ..options };
        let large = Shape::new(&large, 1, false).unwrap();
        assert_eq!((large.head, large.head_stride), (74, 192));
        assert!(u32::from(large.head) + u32::from(large.body) >= 8952 + HEADERS);
    }

    #[test]
    fn rings_beyond_what_slots_can_name_are_refused() {
        let options = Options { capacity: Some(1 << 18), max_octets: 8952, ..Options::default() };
        assert!(Shape::new(&options, 2, false).unwrap_err().to_string().contains("exceeds 4 GiB"));
        let options = Options { max_octets: u16::MAX, ..Options::default() };
        assert!(Shape::new(&options, 1, false).unwrap_err().to_string().contains("too long"));
    }
}
