//! A ring that a program of the same process fills: for tests, benchmarks, and packets that come from elsewhere.

use super::{Caps, Receiver, RxError};
use crate::error::Result;
use crate::mem::Space;
use crate::ring::{Lease, Slot, SplitRing};
use crate::sdp::Leg;
use crate::stats::RxCounters;
use crate::time::Tai;

/// Fills one area of the ring: writes packets, names their slots. `false` when there is nothing now, an error when
/// nothing will come any more.
pub type Fill<M> =
    Box<dyn FnMut(&mut SplitRing<M>, usize, &mut Vec<Slot>) -> std::result::Result<bool, RxError> + Send>;

/// A ring of areas, one for each lease, used one after the other.
pub struct Memory<M: Space> {
    ring: SplitRing<M>,
    fill: Fill<M>,
    /// Slots of each area; none while its lease is out.
    areas: Vec<Option<Vec<Slot>>>,
    next: usize,
    clock: Option<fn() -> Tai>,
    caps: Caps,
    counters: RxCounters,
}

/// Token of a lease without packets.
const NONE: u32 = u32::MAX;

impl<M: Space> Memory<M> {
    /// `areas` leases of at most `batch` packets can be out at once. `clock` is what arrivals are stamped with.
    pub fn new(ring: SplitRing<M>, areas: usize, batch: usize, clock: Option<fn() -> Tai>, fill: Fill<M>) -> Self {
        let caps = Caps { backend: "memory", batch, live: clock.is_some(), ..Caps::default() };
        let areas = (0..areas).map(|_| Some(Vec::with_capacity(batch))).collect();
        Memory { ring, fill, areas, next: 0, clock, caps, counters: RxCounters::default() }
    }
}

impl<M: Space> Receiver for Memory<M> {
    type Mem = M;

    fn ring(&self) -> &SplitRing<M> {
        &self.ring
    }

    fn poll(&mut self) -> std::result::Result<Lease, RxError> {
        let Some(mut slots) = self.areas.get_mut(self.next).and_then(Option::take) else {
            self.counters.starved += 1;
            return Ok(Lease::new(Vec::new(), NONE));
        };
        slots.clear();
        match (self.fill)(&mut self.ring, self.next, &mut slots) {
            Ok(true) if !slots.is_empty() => {}
            nothing => {
                self.areas[self.next] = Some(slots);
                return nothing.map(|_| Lease::new(Vec::new(), NONE));
            }
        }
        self.counters.calls += 1;
        self.counters.datagrams += slots.len() as u64;
        self.counters.octets += slots.iter().map(|s| u64::from(s.octets)).sum::<u64>();
        let lease = Lease::new(slots, self.next as u32);
        self.next = (self.next + 1) % self.areas.len();
        Ok(lease)
    }

    fn release(&mut self, lease: Lease) {
        if let Some(area) = self.areas.get_mut(lease.token as usize) {
            *area = Some(lease.slots);
        }
    }
    fn caps(&self) -> &Caps {
        &self.caps
    }
    fn join(&mut self, _leg: u8, _what: &Leg) -> Result<()> {
        Ok(())
    }
    fn counters(&self) -> RxCounters {
        self.counters
    }
    fn now(&self) -> Option<Tai> {
        self.clock.map(|clock| clock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{Host, Region};

    #[test]
    fn an_area_is_filled_again_only_after_its_lease_came_back() {
        let mut packets = 0u8;
        let slot = |area: usize| Slot {
            head_at: (area * 100) as u32,
            body_at: 0,
            head: 20,
            octets: 20,
            wire_octets: 20,
            leg: 0,
            arrival: Tai(0),
        };
        let fill: Fill<Host> = Box::new(move |ring, area, slots| {
            packets += 1;
            match packets {
                4 => Ok(false),
                6.. => Err(RxError::End),
                n => {
                    ring.head_plane_mut().as_mut_slice()[area * 100] = n;
                    slots.push(slot(area));
                    Ok(true)
                }
            }
        });
        let mut memory = Memory::new(SplitRing::whole(Region::host(300).unwrap()), 2, 4, None, fill);
        let [a, b] = [0, 1].map(|_| memory.poll().unwrap());
        assert!(memory.poll().unwrap().is_empty(), "both areas are out");
        assert_eq!(memory.counters().starved, 1);
        assert_eq!([&a, &b].map(|lease| memory.ring().head(&lease.slots()[0])[0]), [1, 2]);
        memory.release(a);
        let c = memory.poll().unwrap();
        assert_eq!(memory.ring().head(&c.slots()[0])[0], 3);
        memory.release(b);
        assert!(memory.poll().unwrap().is_empty(), "nothing now");
        let d = memory.poll().unwrap();
        assert_eq!(memory.ring().head(&d.slots()[0])[0], 5);
        memory.release(c);
        assert!(matches!(memory.poll(), Err(RxError::End)));
        memory.release(d);
        assert_eq!((memory.counters().datagrams, memory.counters().octets), (4, 80));
    }
}
