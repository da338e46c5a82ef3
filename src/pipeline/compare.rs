//! Compares what legs bring, for people who look for a fault of the sender: the copies of a packet have the same RTP header
//! and payload (ST 2022-7:2019 clause 6). Whichever came first is used, whatever the others say.

use crate::mem::{CpuAccess, Space};
use crate::ring::{Slot, SplitRing};
use crate::stats::{LegComparison, LegDifference};
use crate::wire::rtp;
use std::hash::Hasher;

/// Numbers that are remembered, at least and at most.
const NUMBERS: std::ops::RangeInclusive<u32> = 1 << 12..=1 << 21;

/// First copies of packets, by number.
pub(super) struct Comparison {
    payload_type: u8,
    /// A power of two of them; a number has one place.
    seen: Vec<Option<Seen>>,
    counts: LegComparison,
}

/// What the first copy of a packet was.
#[derive(Clone, Copy)]
struct Seen {
    number: u32,
    timestamp: u32,
    digest: u64,
    leg: u8,
}

/// A comparison at work on a kind of memory.
pub(super) struct Compare<M: Space> {
    pub comparison: Comparison,
    look: fn(&mut Comparison, &SplitRing<M>, &[Slot]),
}

impl<M: CpuAccess> Compare<M> {
    pub fn new(comparison: Comparison) -> Self {
        Compare { comparison, look: Comparison::look::<M> }
    }
}

impl<M: Space> Compare<M> {
    pub fn look(&mut self, ring: &SplitRing<M>, slots: &[Slot]) {
        (self.look)(&mut self.comparison, ring, slots);
    }
}

impl Comparison {
    /// Of the packets of a payload type; remembers so many numbers.
    pub fn new(payload_type: u8, numbers: u32) -> Self {
        let numbers = numbers.clamp(*NUMBERS.start(), *NUMBERS.end()).next_power_of_two();
        Comparison { payload_type, seen: vec![None; numbers as usize], counts: LegComparison::default() }
    }
    pub const fn counts(&self) -> LegComparison {
        self.counts
    }

    fn look<M: CpuAccess>(&mut self, ring: &SplitRing<M>, slots: &[Slot]) {
        for slot in slots {
            let head = ring.head(slot);
            let Ok(header) = rtp::parse(head, slot.wire_octets.into()) else { continue };
            let start = usize::from(header.payload.start);
            // Octets that a capture or a slot has cut off cannot be compared.
            let whole = slot.octets == slot.wire_octets && header.payload_type == self.payload_type;
            let (Some(octets), Some(high), true) =
                (ring.octets(slot, 0, slot.octets), head.get(start..start + 2), whole)
            else {
                continue;
            };
            let number = u32::from(u16::from_be_bytes([high[0], high[1]])) << 16 | u32::from(header.sequence);
            let mut digest = std::hash::DefaultHasher::new();
            digest.write(octets.first.get(..octets.first_len).unwrap_or_default());
            digest.write(octets.rest.get(..octets.rest_len).unwrap_or_default());
            let this = Seen { number, timestamp: header.timestamp, digest: digest.finish(), leg: slot.leg };
            self.see(this, slot);
        }
    }

    fn see(&mut self, this: Seen, slot: &Slot) {
        let mask = self.seen.len() - 1;
        let Some(place) = self.seen.get_mut(this.number as usize & mask) else { return };
        match place {
            Some(first) if (first.number, first.timestamp) == (this.number, this.timestamp) => {
                if first.leg == this.leg {
                    return;
                }
                self.counts.compared += 1;
                if first.digest != this.digest {
                    self.counts.different += 1;
                    self.counts.first.get_or_insert(LegDifference {
                        at: slot.arrival,
                        leg: this.leg,
                        first_leg: first.leg,
                        sequence: this.number,
                        timestamp: this.timestamp,
                    });
                }
            }
            place => *place = Some(this),
        }
    }
}
