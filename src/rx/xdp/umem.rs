//! The memory that packets are received into, cut into frames: who has which is known here.

use crate::error::Result;
use crate::mem::{Host, Region};

/// The kernel leaves so much before a packet (`XDP_PACKET_HEADROOM`), in zero copy and in copy mode.
pub const HEADROOM: u32 = 256;

/// Frames that belong to nobody: neither the kernel has them nor a lease.
pub struct Frames {
    start: usize,
    octets: u64,
    shift: u32,
    count: u32,
    /// The last one is used next: it may still be in the cache.
    free: Vec<u32>,
    /// Frames that queues may ask for, all together.
    promised: u32,
}

/// The octets of a frame that packets of `octets` need; none when no frame is so large.
pub fn chunk_for(octets: u32) -> Option<u32> {
    [2048, 4096].into_iter().find(|chunk| octets + HEADROOM <= *chunk)
}

impl Frames {
    /// New memory for `count` frames of `chunk` octets (2048 or 4096), and who has them.
    ///
    /// # Errors
    /// There is not so much memory.
    pub fn new(count: u32, chunk: u32) -> Result<(Self, Region<Host>)> {
        let octets = u64::from(count) * u64::from(chunk);
        let region = Region::host(octets as usize)?;
        let free = (0..count).rev().collect();
        let start = region.as_ptr() as usize;
        Ok((Frames { start, octets, shift: chunk.trailing_zeros(), count, free, promised: 0 }, region))
    }
    /// Where they begin.
    pub const fn start(&self) -> usize {
        self.start
    }
    /// Octets of all.
    pub const fn octets(&self) -> u64 {
        self.octets
    }
    /// Octets of one.
    pub const fn chunk(&self) -> u32 {
        1 << self.shift
    }
    /// How many there are.
    pub const fn count(&self) -> u32 {
        self.count
    }
    /// How many are free.
    pub fn free(&self) -> usize {
        self.free.len()
    }
    /// Lets a queue have `wanted` frames more, or as many as are not promised to others.
    pub fn promise(&mut self, wanted: u32) -> u32 {
        let more = wanted.min(self.count - self.promised);
        self.promised += more;
        more
    }
    /// A free one, by its address: octets from the beginning.
    #[inline]
    pub fn take(&mut self) -> Option<u64> {
        self.free.pop().map(|frame| u64::from(frame) << self.shift)
    }
    /// Gives back the frame that `address` lies in. Of an address beyond the memory nothing is kept.
    #[inline]
    pub fn give(&mut self, address: u64) {
        let frame = address >> self.shift;
        if frame < u64::from(self.count) {
            self.free.push(frame as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rx::xdp::socket::{Descriptor, mock};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn packets_of_an_ordinary_mtu_fit_the_small_frame_and_jumbo_ones_none() {
        assert_eq!(chunk_for(1518), Some(2048));
        assert_eq!(chunk_for(2048 - 256), Some(2048));
        assert_eq!(chunk_for(2048 - 255), Some(4096));
        assert_eq!(chunk_for(9018), None);
    }

    #[test]
    fn any_address_inside_gives_back_its_frame() {
        let (mut frames, region) = Frames::new(4, 2048).unwrap();
        assert_eq!((frames.start(), frames.octets()), (region.as_ptr() as usize, 8192));
        let taken: Vec<u64> = std::iter::from_fn(|| frames.take()).collect();
        assert_eq!(taken, [0, 2048, 4096, 6144]);
        frames.give(4096 + 300);
        frames.give(8192);
        assert_eq!((frames.promise(3), frames.promise(3), frames.promise(3)), (3, 1, 0));
        assert_eq!((frames.free(), frames.take(), frames.take()), (1, Some(4096), None));
    }

    /// What may happen to a queue.
    #[derive(Clone, Debug)]
    enum Event {
        /// So many packets come.
        Come(u32),
        Refill,
        /// Takes so many into a lease.
        Receive(usize),
        /// The oldest lease goes back.
        Release,
        Depth(u32),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            (0u32..40).prop_map(Event::Come),
            Just(Event::Refill),
            (0usize..40).prop_map(Event::Receive),
            Just(Event::Release),
            (0u32..40).prop_map(Event::Depth),
        ]
    }

    proptest! {
        /// Against a kernel that fills frames and drops what finds none: packets come in order, each once, in a frame that
        /// nobody else has, and no frame is lost; rings wrap and run empty on the way.
        #[test]
        fn no_frame_is_in_two_places(bits in 0u32..5, count in 1u32..40, start in prop_oneof![Just(0), (u32::MAX - 60)..=u32::MAX],
                                     events in proptest::collection::vec(event(), 0..300)) {
            let (mut rings, mut kernel) = mock::rings(1 << bits, start);
            let (mut frames, _region) = Frames::new(count, 2048).unwrap();
            let (mut leases, mut coming, mut number) = (VecDeque::new(), VecDeque::new(), 0u32);
            for event in events {
                match event {
                    Event::Come(n) => for _ in 0..n {
                        // A kernel reads a frame only when there is room to hand it back.
                        let mut room = kernel.received.room();
                        let address = if room.left() > 0 { kernel.fill.take(1).next() } else { None };
                        if let Some(address) = address {
                            let put = room.put(Descriptor { addr: address + 256, len: number, options: 0 });
                            prop_assert!(put);
                            coming.push_back(number);
                        }
                        number += 1;
                    },
                    Event::Refill => rings.refill(&mut frames),
                    Event::Depth(depth) => rings.set_depth(depth),
                    Event::Receive(most) => {
                        let mut lease = Vec::new();
                        let n = rings.receive(most, |d| lease.push((d.addr, d.len)));
                        prop_assert_eq!((n, lease.len()), (lease.len(), most.min(coming.len())));
                        for (_, got) in &lease {
                            prop_assert_eq!(Some(*got), coming.pop_front());
                        }
                        leases.push_back(lease);
                    }
                    Event::Release => for (address, _) in leases.pop_front().unwrap_or_default() {
                        frames.give(address);
                    },
                }
            }
            // Everything back: each frame is there once.
            let mut all: Vec<u64> = std::iter::from_fn(|| frames.take()).collect();
            rings.receive(usize::MAX, |d| all.push(d.addr & !2047));
            all.extend(kernel.fill.take(u32::MAX));
            all.extend(leases.into_iter().flatten().map(|(address, _)| address & !2047));
            all.sort_unstable();
            prop_assert_eq!(all, (0..u64::from(count)).map(|frame| frame * 2048).collect::<Vec<_>>());
        }
    }
}
