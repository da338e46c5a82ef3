//! Rings that a NIC overwrites in time: what tells afterwards that slots still held what they held.
//!
//! Such a ring knows no leases. The NIC goes round it and writes over slots whose packets are still being read; nobody is
//! told. So whoever reads remembers what a slot held before ([`Laps::mark`]), reads, and asks afterwards
//! ([`Laps::holds`]). Both look at the RTP header, at two places:
//!
//! - the slot itself;
//! - the slot [`Geometry::margin`] before it. The NIC comes by there first. It may write a packet's payload before its
//!   header, or make the two visible in another order, so that the slot's own header alone would tell too late.
//!
//! Whoever is a whole round behind meets the packets of the next one in the slots that it is told of, and where it overtakes
//! the NIC there are headers whose payload has not come yet. So a [`Reader`] looks back at a slot that it took before.
//!
//! What is no lap: a place whose packet never came (it keeps what an earlier round left there), the copy that comes by a
//! second leg and is written over the first (the same octets), and, where slots go by sequence number, a packet that comes
//! later than those after it. A sender that starts anew with earlier timestamps makes one margin of packets look
//! overwritten.
#![allow(unsafe_code)]

use super::{Slot, SplitRing};
use crate::error::{Error, Kind, Result};
use crate::mem::{CpuAccess, Region, Space};
use crate::sync::fence;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

/// How the slots of a ring follow one another that is overwritten in time. Slot `n` has its RTP header at octet
/// `n * head` of the head plane, and what is cut from it at octet `n * body` of the body plane. The head plane is zeroed
/// before the first packet comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Slots after which the NIC begins anew.
    pub slots: u32,
    /// Rings of so many slots that lie one behind the other in the planes: one for each leg, except where slots go by
    /// sequence number and legs share one.
    pub rings: u32,
    /// Octets from slot to slot in the head plane, 12 at least.
    pub head: u32,
    /// Octets from slot to slot in the body plane; 0 where there is none.
    pub body: u32,
    /// A packet counts as overwritten as soon as the NIC is so many slots before it: more than it writes at a time, and
    /// than it tells later of. Less than `slots`.
    pub margin: u32,
    /// Packet `n` lies in slot `n mod slots`, not where the next free one is.
    pub in_sequence: bool,
}

/// What the first octets of a slot say, as far as it differs from packet to packet and not from leg to leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    timestamp: u32,
    sequence: u16,
    /// The high half of the sequence number in ST 2110-20, anything in other essences.
    extended: u16,
}

impl Header {
    /// Memory that was never written.
    const NONE: Header = Header { timestamp: 0, sequence: 0, extended: 0 };
    /// The sequence number, extended as in ST 2110-20.
    const fn number(self) -> u32 {
        (self.extended as u32) << 16 | self.sequence as u32
    }
    /// It is of a later packet than the other.
    const fn is_after(self, other: Header) -> bool {
        match self.timestamp.wrapping_sub(other.timestamp) as i32 {
            0 => (self.sequence.wrapping_sub(other.sequence) as i16) > 0,
            ticks => ticks > 0,
        }
    }
}

/// The memory of head planes.
trait Plane {
    /// Two octets, the first of which is `octet`, as a number.
    ///
    /// # Safety
    /// Both lie in the plane.
    unsafe fn two(&self, octet: usize) -> u16;
}

/// Memory that a card writes while it is read.
struct Shared {
    start: NonNull<u8>,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the memory lives as long as `_owner`, and is only read, in a way that bears others writing to it.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Plane for Shared {
    #[inline]
    unsafe fn two(&self, octet: usize) -> u16 {
        // SAFETY: inside of the plane, as promised; others may write there meanwhile, so the read is volatile.
        u16::from_be_bytes(unsafe { self.start.as_ptr().add(octet).cast::<[u8; 2]>().read_volatile() })
    }
}

/// The headers of a ring that is overwritten in time; see [`super::SplitRing::overwritten_in_time`].
pub struct Laps(Watch<Shared>);

/// The same for memory of any kind, all slots of which lie in it.
struct Watch<P> {
    plane: P,
    geometry: Geometry,
}

impl std::fmt::Debug for Laps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Laps({:?})", self.0.geometry)
    }
}

impl Laps {
    pub(super) fn new<H: CpuAccess>(head: &Region<H>, body: Option<usize>, geometry: Geometry) -> Result<Self> {
        let Geometry { slots, rings, head: stride, body: body_stride, margin, .. } = geometry;
        let all = u64::from(slots) * u64::from(rings);
        let fits = |stride: u32, len: usize| all.checked_mul(stride.into()).is_some_and(|octets| octets <= len as u64);
        // Places are 32 bits, as in a slot.
        let sound =
            slots > 0 && rings > 0 && margin > 0 && margin < slots && stride >= 12 && u32::try_from(all).is_ok();
        if !sound || !fits(stride, head.len()) || !fits(body_stride, body.unwrap_or(0)) {
            let body = body.unwrap_or(0);
            let what = format!("planes of {} and {body} octets have no slots as in {geometry:?}", head.len());
            return Err(Error::new(Kind::Internal, what).cure("please report this"));
        }
        let plane = Shared { start: NonNull::from(head.as_slice()).cast(), _owner: head.owner() };
        Ok(Laps(Watch { plane, geometry }))
    }

    /// How its slots follow one another.
    pub const fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    /// The number of a slot; none when it lies outside.
    #[inline]
    pub fn place(&self, slot: &Slot) -> Option<u32> {
        let Geometry { slots, rings, head, .. } = self.0.geometry;
        let place = slot.head_at / head;
        (place < slots * rings).then_some(place)
    }

    #[inline]
    fn header(&self, place: u32) -> Header {
        self.0.header(place)
    }

    /// Remembers what a slot holds that was just taken, before anything is read of it. One that does not lie in the ring
    /// counts as overwritten.
    #[inline]
    pub fn mark(&self, slot: &Slot) -> Mark {
        self.place(slot).map_or(Mark::OUTSIDE, |place| self.mark_at(place))
    }

    #[inline]
    fn mark_at(&self, place: u32) -> Mark {
        self.0.mark_at(place)
    }

    /// Does the slot still hold what it held, with the NIC a margin away from it? Ask after reading.
    pub fn holds(&self, mark: &Mark) -> bool {
        self.0.holds(mark)
    }
}

impl<P: Plane> Watch<P> {
    /// The slot by which the NIC comes a margin before it comes by this one.
    const fn before(&self, place: u32) -> u32 {
        let Geometry { slots, margin, .. } = self.geometry;
        let ring = place / slots * slots;
        ring + (place - ring + slots - margin) % slots
    }

    #[inline]
    fn header(&self, place: u32) -> Header {
        let at = place as usize * self.geometry.head as usize;
        // SAFETY: `place` is below the number of slots, all of which lie in the plane, and have 12 octets at least, or 14
        // where the last two are read.
        let [sequence, high, low, extended] = unsafe {
            let two = |octet: usize| self.plane.two(at + octet);
            [two(2), two(4), two(6), if self.geometry.head >= 14 { two(12) } else { 0 }]
        };
        Header { timestamp: u32::from(high) << 16 | u32::from(low), sequence, extended }
    }

    #[inline]
    fn mark_at(&self, place: u32) -> Mark {
        let own = self.header(place);
        let before = self.header(self.before(place));
        // A later packet than the slot's: the NIC has been there again.
        let late = before.is_after(own) && before != Header::NONE;
        // The reads of the packet come after this.
        fence(Acquire);
        Mark { place, own, before, late }
    }

    #[inline]
    fn holds(&self, mark: &Mark) -> bool {
        if mark.late {
            return false;
        }
        // What was read of the slot was read before this.
        fence(Acquire);
        if self.header(mark.place) != mark.own {
            return false;
        }
        let before = self.header(self.before(mark.place));
        before == mark.before || self.came_late(before, mark.own)
    }

    /// The packet of the slot a margin before, which the ones after it had overtaken.
    const fn came_late(&self, before: Header, own: Header) -> bool {
        let expected = own.sequence.wrapping_sub(self.geometry.margin as u16);
        self.geometry.in_sequence && before.sequence == expected && !before.is_after(own)
    }
}

/// Takes slots in the order in which the receiver tells of them, and sees when packets of a later round lie there already.
#[derive(Debug)]
pub struct Reader {
    laps: Arc<Laps>,
    /// Of each ring from which something was taken since it had nothing more.
    behind: Vec<Option<Behind>>,
}

/// What was taken before.
#[derive(Clone, Debug)]
struct Behind {
    /// What a slot held that was taken a margin of slots ago, and one that was taken later.
    far: (u32, Header),
    near: (u32, Header),
    /// Slots that were taken after the nearer one.
    since: u32,
    /// Number of the newest packet that was believed; where every slot is told of, of the one that should have been there.
    reach: u32,
}

impl Reader {
    /// One who has taken nothing yet.
    pub fn new(laps: Arc<Laps>) -> Self {
        let behind = vec![None; laps.geometry().rings as usize];
        Reader { laps, behind }
    }

    /// The ring that it reads.
    pub const fn laps(&self) -> &Arc<Laps> {
        &self.laps
    }

    /// [`Laps::mark`], but that a packet counts as overwritten, too, that is half a ring later than what was told of, when
    /// the NIC has come round to slots that were taken before: it may not be there yet whole.
    #[inline]
    pub fn take(&mut self, slot: &Slot) -> Mark {
        let Some(place) = self.laps.place(slot) else { return Mark::OUTSIDE };
        let mut mark = self.laps.mark_at(place);
        let Geometry { slots, margin, in_sequence, .. } = *self.laps.geometry();
        let Some(behind) = self.behind.get_mut((place / slots) as usize) else { return mark };
        let (this, number) = ((place, mark.own), mark.own.number());
        let behind = behind.get_or_insert(Behind { far: this, near: this, since: 0, reach: number });
        let came_round = [behind.far, behind.near].iter().any(|(place, was)| self.laps.header(*place) != *was);
        if !in_sequence {
            behind.reach = behind.reach.wrapping_add(1);
        }
        let ahead = i64::from(number.wrapping_sub(behind.reach) as i32);
        if came_round && ahead > i64::from(slots / 2) {
            mark.late = true;
        } else if ahead > 0 || ahead < -i64::from(margin) {
            behind.reach = number;
        }
        behind.since += 1;
        if !came_round && behind.since >= margin {
            behind.far = std::mem::replace(&mut behind.near, this);
            behind.since = 0;
        }
        mark
    }

    /// There is nothing more to be taken: the reader has caught up with the NIC.
    pub fn caught_up(&mut self) {
        self.behind.fill(None);
    }
}

impl<M: Space> SplitRing<M> {
    /// The same ring for another reader; none where it is not overwritten in time.
    pub(crate) fn again(&self) -> Option<Self> {
        let laps = self.laps.clone()?;
        // SAFETY: nothing is written by way of a ring that is overwritten in time (`overwritten_in_time`).
        let (head, body) = unsafe { (self.head.again(), self.body.as_ref().map(|body| body.again())) };
        Some(SplitRing { head, body, laps: Some(laps) })
    }
}

/// What a slot held when its packet was taken.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    place: u32,
    own: Header,
    before: Header,
    /// It may have been overwritten even then.
    late: bool,
}

impl Mark {
    const OUTSIDE: Mark = Mark { place: 0, own: Header::NONE, before: Header::NONE, late: true };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Host;
    use crate::time::Tai;

    const HEAD: u32 = 20;

    /// A NIC that writes headers of packets: where it likes, behind the back of whoever reads.
    struct Nic {
        start: *mut u8,
        geometry: Geometry,
    }

    impl Nic {
        fn ring(slots: u32, rings: u32, margin: u32, in_sequence: bool) -> (Nic, Arc<Laps>) {
            let mut head = Region::<Host>::host((slots * rings * HEAD) as usize).unwrap();
            let geometry = Geometry { slots, rings, head: HEAD, body: 0, margin, in_sequence };
            let start = head.as_mut_ptr();
            let ring: SplitRing<Host> = SplitRing::whole(head).overwritten_in_time(geometry).unwrap();
            (Nic { start, geometry }, ring.laps().unwrap().clone())
        }
        /// Packet `n` of a stream with so many packets a frame, written in slot `place`.
        fn write(&self, place: u32, n: u32) -> Slot {
            let mut header = [0; 20];
            header[2..4].copy_from_slice(&(n as u16).to_be_bytes());
            header[4..8].copy_from_slice(&(n / 10 * 3003).to_be_bytes());
            header[12..14].copy_from_slice(&((n >> 16) as u16).to_be_bytes());
            let at = place * HEAD;
            // SAFETY: inside of the region, which the laps keep; nobody holds a reference to it.
            unsafe { self.start.add(at as usize).copy_from_nonoverlapping(header.as_ptr(), header.len()) };
            let octets = HEAD as u16;
            Slot { head_at: at, body_at: 0, head: octets, octets, wire_octets: octets, leg: 0, arrival: Tai(0) }
        }
        fn next(&self, n: u32) -> Slot {
            self.write(n % self.geometry.slots, n)
        }
    }

    #[test]
    fn a_packet_holds_until_the_nic_is_a_margin_before_it() {
        for first in [0, 3, 500, 65_530] {
            let (nic, laps) = Nic::ring(64, 1, 8, false);
            (first..first + 70).for_each(|n| {
                nic.next(n);
            });
            let mark = laps.mark(&nic.next(first + 70));
            // The NIC goes round: 64 slots on is the slot itself, 8 before that the margin.
            for n in first + 71..first + 70 + 64 - 8 {
                nic.next(n);
                assert!(laps.holds(&mark), "{n}");
            }
            nic.next(first + 70 + 64 - 8);
            assert!(!laps.holds(&mark), "first packet {first}");
        }
    }

    #[test]
    fn the_first_packets_of_a_ring_are_watched_at_its_end() {
        let (nic, laps) = Nic::ring(64, 1, 8, false);
        let mark = laps.mark(&nic.next(0));
        (1..56).for_each(|n| {
            nic.next(n);
        });
        assert!(laps.holds(&mark));
        nic.next(56);
        assert!(!laps.holds(&mark), "the end of the ring comes before its beginning");
    }

    #[test]
    fn a_missing_packet_at_the_margin_leaves_the_slot_itself_to_tell() {
        let (nic, laps) = Nic::ring(64, 1, 8, true);
        (0..70).for_each(|n| {
            nic.next(n);
        });
        // Packet 62 is missing, and so is the one of the next round in its place.
        let mark = laps.mark(&nic.next(70));
        (71..134).filter(|n| *n != 126).for_each(|n| {
            nic.next(n);
        });
        assert!(laps.holds(&mark));
        nic.next(134);
        assert!(!laps.holds(&mark));
    }

    #[test]
    fn in_sequence_a_late_packet_and_old_content_are_no_lap() {
        let (nic, laps) = Nic::ring(64, 1, 8, true);
        (0..92).for_each(|n| {
            nic.next(n);
        });
        // Packet 92 has not come: its place holds packet 28.
        (93..100).for_each(|n| {
            nic.next(n);
        });
        let mark = laps.mark(&nic.next(100));
        assert!(laps.holds(&mark));
        nic.next(92);
        assert!(laps.holds(&mark), "overtaken");
        nic.next(156);
        assert!(!laps.holds(&mark), "64 later");
    }

    #[test]
    fn a_round_of_65536_packets_is_told_by_time() {
        let (nic, laps) = Nic::ring(65_536, 1, 8, true);
        let mark = laps.mark(&nic.next(100));
        let late = laps.mark(&nic.next(93));
        assert!(laps.holds(&mark) && laps.holds(&late));
        nic.next(92);
        assert!(laps.holds(&mark), "overtaken");
        nic.next(65_536 + 92);
        assert!(!laps.holds(&mark), "the same 16 bits of sequence, another round");
    }

    #[test]
    fn copies_by_a_second_leg_are_no_lap() {
        let (nic, laps) = Nic::ring(64, 1, 8, true);
        let marks: Vec<_> = (0..40).map(|n| laps.mark(&nic.next(n))).collect();
        (0..40).for_each(|n| {
            nic.next(n);
        });
        assert!(marks.iter().all(|mark| laps.holds(mark)));
    }

    #[test]
    fn a_reader_that_comes_after_the_nic_has_come_round_is_late() {
        let (nic, laps) = Nic::ring(64, 1, 8, false);
        let slots: Vec<_> = (0..64).map(|n| nic.next(n)).collect();
        (64..84).for_each(|n| {
            nic.next(n);
        });
        // Slots 0 to 19 hold packets of the next round; of slots 20 to 27 the NIC is less than a margin away.
        let holds: Vec<_> = slots.iter().map(|slot| laps.mark(slot)).map(|mark| laps.holds(&mark)).collect();
        let expected: Vec<_> = (0..64).map(|n| !(20..28).contains(&n)).collect();
        assert_eq!(holds, expected);
    }

    #[test]
    fn packets_of_later_rounds_are_not_believed() {
        // The reader is held up at packet 100, and the NIC goes one to three rounds further.
        for (in_sequence, last) in
            [false, true].into_iter().flat_map(|order| [183, 215, 227, 260, 300].map(|n| (order, n)))
        {
            let (nic, laps) = Nic::ring(64, 1, 8, in_sequence);
            let mut reader = Reader::new(laps.clone());
            (0..100).for_each(|n| assert!(laps.holds(&reader.take(&nic.next(n))), "{n}"));
            let told: Vec<_> = (100..=last).map(|n| nic.next(n)).collect();
            let holds: Vec<_> = told.iter().map(|slot| reader.take(slot)).map(|mark| laps.holds(&mark)).collect();
            // What is there is what was told of when the NIC is less than a round ahead, and less a margin.
            let there = |n| n + 64 - 8 > last;
            let wrong = (100..=last).find(|n| holds[(n - 100) as usize] && !there(*n));
            assert_eq!(wrong, None, "in sequence {in_sequence}, up to {last}");
            if !in_sequence || last == 183 {
                assert!((100..=last).all(|n| holds[(n - 100) as usize] == there(n)), "up to {last}: {holds:?}");
            }
            reader.caught_up();
            assert!((last + 1..last + 200).all(|n| laps.holds(&reader.take(&nic.next(n)))));
        }
    }

    #[test]
    fn packets_that_were_lost_before_the_ring_are_no_lap() {
        let (nic, laps) = Nic::ring(64, 1, 8, false);
        let mut reader = Reader::new(laps.clone());
        (0..100).for_each(|n| assert!(laps.holds(&reader.take(&nic.next(n)))));
        (100..200).for_each(|n| assert!(laps.holds(&reader.take(&nic.write(n % 64, n + 70_000))), "{n}"));
    }

    #[test]
    fn a_leg_that_is_a_round_late_does_not_spoil_the_other() {
        let (nic, laps) = Nic::ring(64, 2, 8, false);
        let mut reader = Reader::new(laps.clone());
        // One leg is 40 packets behind the other, and its ring comes round while the other is read in time.
        let (one, other) = (|n: u32| nic.write(n % 64, n), |n: u32| nic.write(64 + n % 64, n - 40));
        (40..200).for_each(|n| assert!([one(n), other(n)].iter().all(|slot| laps.holds(&reader.take(slot))), "{n}"));
        let told: Vec<_> = (200..284).map(other).collect();
        for (n, slot) in (200..284).zip(&told) {
            assert_eq!(laps.holds(&reader.take(slot)), n + 64 - 8 >= 284, "{n}");
            assert!(laps.holds(&reader.take(&one(n))), "{n}");
        }
    }

    #[test]
    fn packets_that_come_twice_do_not_blind_the_reader() {
        let (nic, laps) = Nic::ring(64, 1, 8, false);
        let mut reader = Reader::new(laps.clone());
        // One packet in seven is there twice.
        let write = |slot: u32| nic.write(slot % 64, slot / 8 * 7 + (slot % 8).min(6));
        let mut next = 0;
        for in_time in 300..330 {
            let held_up = next + in_time;
            (next..held_up).for_each(|slot| assert!(laps.holds(&reader.take(&write(slot))), "{slot}"));
            next = held_up + 84;
            let told: Vec<_> = (held_up..next).map(write).collect();
            for (n, slot) in told.iter().enumerate() {
                assert_eq!(laps.holds(&reader.take(slot)), n + 64 - 8 >= 84, "held up at {held_up}, {n} later");
            }
            reader.caught_up();
        }
    }

    #[test]
    fn a_sender_that_begins_anew_is_believed_when_the_reader_has_caught_up() {
        let (nic, laps) = Nic::ring(64, 1, 8, false);
        let mut reader = Reader::new(laps);
        (0..64).for_each(|place| assert!(!reader.take(&nic.write(place, 500_000 + place)).late));
        // Its numbers and timestamps are others now.
        for n in 0..64 {
            assert_eq!(reader.take(&nic.next(n)).late, n < 8, "{n}");
        }
        reader.caught_up();
        assert!((64..400).all(|n| !reader.take(&nic.next(n)).late));
    }

    #[test]
    fn legs_with_rings_of_their_own_do_not_overtake_each_other() {
        let (nic, laps) = Nic::ring(64, 2, 8, false);
        let mark = laps.mark(&nic.write(64, 0));
        (0..64).for_each(|n| {
            nic.write(n, n);
        });
        assert!(laps.holds(&mark), "the other leg's ring");
        nic.write(64 + 56, 56);
        assert!(!laps.holds(&mark));
    }

    #[test]
    fn a_geometry_that_does_not_fit_is_an_error() {
        let good = Geometry { slots: 10, rings: 2, head: 20, body: 100, margin: 3, in_sequence: false };
        let ring = |geometry| {
            let [head, body] = [400, 2000].map(|len| Region::<Host>::host(len).unwrap());
            SplitRing::<Host>::split(head, body).overwritten_in_time(geometry).map(drop)
        };
        assert!(ring(good).is_ok());
        for bad in [
            Geometry { slots: 11, ..good },
            Geometry { rings: 3, ..good },
            Geometry { head: 21, ..good },
            Geometry { head: 11, ..good },
            Geometry { body: 101, ..good },
            Geometry { margin: 10, ..good },
            Geometry { margin: 0, ..good },
            Geometry { slots: 0, ..good },
            Geometry { rings: 0, ..good },
            Geometry { slots: u32::MAX, ..good },
        ] {
            assert!(ring(bad).is_err(), "{bad:?}");
        }
        // A slot elsewhere is never right.
        let (_nic, laps) = Nic::ring(8, 1, 2, false);
        let slot =
            Slot { head_at: 8 * HEAD, body_at: 0, head: 20, octets: 20, wire_octets: 20, leg: 0, arrival: Tai(0) };
        let mark = laps.mark(&slot);
        assert!(!laps.holds(&mark));
    }
}

/// `make loom`: a card that goes on writing while a slot is read, with every order in which memory may show that.
#[cfg(all(test, gdmedia_loom))]
mod models {
    use super::*;
    use loom::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed, Ordering::Release};

    const SLOTS: usize = 3;

    /// Heads of 14 octets, and a payload of one word each. A head lies in one cache line, which the card writes at once; it is
    /// read in parts all the same.
    struct Memory {
        heads: [AtomicU64; SLOTS],
        payloads: [AtomicU16; SLOTS],
    }

    /// Sequence number and timestamp of packet `n`: a frame has one packet.
    const fn head(n: u16) -> u64 {
        (n as u64) << 48 | (n as u64) << 16
    }

    impl Plane for std::sync::Arc<Memory> {
        unsafe fn two(&self, octet: usize) -> u16 {
            let shift = [48, 32, 16, 0][[2, 4, 6, 12].iter().position(|at| *at == octet % 14).unwrap()];
            (self.heads[octet / 14].load(Relaxed) >> shift) as u16
        }
    }

    impl Memory {
        /// Packets 1 and 2, and 3 in the first slot.
        fn new() -> std::sync::Arc<Self> {
            let heads = [3, 1, 2].map(|n| AtomicU64::new(head(n)));
            std::sync::Arc::new(Memory { heads, payloads: [3, 1, 2].map(AtomicU16::new) })
        }
        /// The card writes a packet, payload first, and nothing of the next one before all of it.
        fn write(&self, n: u16) {
            let slot = usize::from(n) % SLOTS;
            self.payloads[slot].store(n, Relaxed);
            self.heads[slot].store(head(n), Relaxed);
            fence(Release);
        }
    }

    #[test]
    fn loom_what_holds_was_not_overwritten_while_it_was_read() {
        loom::model(|| {
            let memory = Memory::new();
            let geometry = Geometry { slots: SLOTS as u32, rings: 1, head: 14, body: 0, margin: 1, in_sequence: false };
            let watch = Watch { plane: memory.clone(), geometry };
            let card = loom::thread::spawn({
                let memory = memory.clone();
                move || [5, 6].into_iter().for_each(|n| memory.write(n))
            });
            let mark = watch.mark_at(0);
            let payload = memory.payloads[0].load(Relaxed);
            // Whoever is told of packet 3 and finds packet 6 is a round behind: that is for a `Reader` to see.
            let is_behind = mark.own.sequence == 6;
            assert!(is_behind || payload == 3 || !watch.holds(&mark), "{mark:?}");
            card.join().unwrap();
            assert!(is_behind || !watch.holds(&mark), "it is gone: {mark:?}");
        });
    }
}
