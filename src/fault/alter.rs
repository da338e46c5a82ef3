//! Other octets: what a restarted sender would have sent, and what a bad memory would have made of it.

use super::decide::{Dice, Fate, Faults, mix};
use super::{Part, What};
use crate::wire::{rtp, srd};
use std::ops::Range;

/// What was done to octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Altered {
    /// Octets were corrupted; not so where the packet has not the part.
    pub corrupted: bool,
    /// It has the SSRC, sequence number and timestamp of a restarted sender.
    pub renewed: bool,
}

impl Faults {
    /// Does to a packet of `leg`, from the RTP header on, what was decided. It is a copy that nobody else owns.
    pub fn alter(&self, fate: &Fate, leg: u8, octets: &mut [u8]) -> Altered {
        let renewed = fate.generation > 0 && self.renew(fate.generation, octets);
        // Parts are those of the packet before any of it is corrupted.
        let parts = Parts::of(octets);
        let mut corrupted = false;
        for (_, armed) in self.rules.iter().enumerate().filter(|(n, _)| fate.corrupt >> n & 1 != 0) {
            let What::Corrupt { part, octets: count, at } = armed.rule.what else { continue };
            let dice = Dice { seed: self.seed, salt: armed.salt, leg, index: fate.index };
            let Some(part) = octets.get_mut(parts.range(part)) else { continue };
            let count = usize::from(count).min(part.len());
            let first = at.map_or_else(|| dice.below(2, (part.len() - count) as u32 + 1) as usize, usize::from);
            for (n, octet) in part.iter_mut().skip(first).take(count).enumerate() {
                // Never 0, so that the octet is another one.
                *octet ^= 1 + dice.below(16 + n as u64 % 200, 255) as u8;
                corrupted = true;
            }
        }
        Altered { corrupted, renewed }
    }

    /// SSRC, sequence number and timestamp after so many restarts.
    fn renew(&self, generation: u64, octets: &mut [u8]) -> bool {
        let random = |what: u64| mix(self.seed ^ mix(generation ^ mix(what)));
        let (first, second) = (random(1), random(2));
        let (ssrc, sequence, ticks) = (first as u32, (first >> 32) as u32, second as u32);
        let Some((header, rest)) = octets.split_first_chunk_mut::<{ rtp::HEADER }>() else { return false };
        let [_, _, s0, s1, t0, t1, t2, t3, own @ ..] = header;
        let (number, stamp) = ([*s0, *s1], [*t0, *t1, *t2, *t3]);
        let high = rest.first_chunk_mut::<2>().filter(|_| self.extended);
        let [h0, h1] = high.as_deref().copied().unwrap_or_default();
        let [h0, h1, l0, l1] = u32::from_be_bytes([h0, h1, number[0], number[1]]).wrapping_add(sequence).to_be_bytes();
        (*s0, *s1) = (l0, l1);
        if let Some(high) = high {
            *high = [h0, h1];
        }
        [*t0, *t1, *t2, *t3] = u32::from_be_bytes(stamp).wrapping_add(ticks).to_be_bytes();
        *own = ssrc.to_be_bytes();
        true
    }
}

/// Where the parts of a packet end.
struct Parts {
    rtp: usize,
    srd: usize,
    end: usize,
}

impl Parts {
    fn of(octets: &[u8]) -> Self {
        let end = octets.len();
        let rtp = rtp::parse(octets, end).map_or(rtp::HEADER.min(end), |h| usize::from(h.payload.start));
        // C, the top bit of a header's offset, says that another one follows.
        let more = |n: usize| octets.get(rtp + srd::header_octets(n) - 2).is_some_and(|o| o & 0x80 != 0);
        let count = (1..srd::MAX).find(|n| !more(*n)).unwrap_or(srd::MAX);
        Parts { rtp, srd: (rtp + srd::header_octets(count)).min(end), end }
    }
    fn range(&self, part: Part) -> Range<usize> {
        match part {
            Part::Rtp => 0..self.rtp,
            Part::Srd => self.rtp..self.srd,
            Part::Samples => self.srd..self.end,
            Part::Any => 0..self.end,
        }
    }
}
