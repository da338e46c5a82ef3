//! Flows that are probably legs of one (ST 2022-7): the same packets came by both. Without an SDP nothing else says so.

use super::track::Analysed;
use crate::time::Tai;
use crate::timing::Packet;
use crate::timing::measure::Stat;

/// Packets of a flow that are remembered at most.
const KEPT: usize = 512;
/// Packets that both flows have, at least, to be taken for copies of each other.
const ENOUGH: usize = 8;

/// Packets of a flow, chosen by what stands in their RTP headers: copies of a packet are chosen in each flow or in none.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// A packet is chosen when so many of the lowest bits of its key are zero.
    bits: u32,
    kept: Vec<(u64, Tai)>,
}

impl Samples {
    /// A packet.
    #[inline]
    pub(super) fn add(&mut self, p: &Packet, payload_type: u8) {
        let key = key(p, payload_type);
        if key.trailing_zeros() < self.bits {
            return;
        }
        self.kept.push((key, p.arrival));
        while self.kept.len() > KEPT {
            self.bits += 1;
            let bits = self.bits;
            self.kept.retain(|(key, _)| key.trailing_zeros() >= bits);
            // Copies of one packet alone, again and again: the first ones say enough.
            if bits >= 63 {
                self.kept.truncate(KEPT);
            }
        }
    }
}

/// What copies have in common, scattered over all bits.
fn key(p: &Packet, payload_type: u8) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let high = u64::from(p.ssrc) << 32 | u64::from(p.timestamp);
    let low = u64::from(p.sequence) << 16 | u64::from(payload_type) << 8 | u64::from(p.marker);
    let mixed = (high ^ (high >> 29)).wrapping_mul(ODD) ^ low.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 32)).wrapping_mul(ODD) ^ mixed >> 17
}

/// Two flows that are probably legs of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Their numbers.
    pub flows: (usize, usize),
    /// Packets that were compared, and that both have.
    pub compared: (usize, usize),
    /// How many nanoseconds the second lies behind the first.
    pub skew: Stat,
}

/// The pairs among flows that nothing describes.
pub(super) fn find(flows: &[Analysed]) -> Vec<Pair> {
    let mut out = Vec::new();
    let sampled = |n: usize| Some((n, flows.get(n)?.samples.as_ref().filter(|s| !s.kept.is_empty())?));
    for (n, a) in (0..flows.len()).filter_map(sampled) {
        // Each is told once, as a copy of the first one that it is a copy of.
        let taken = |m: usize| out.iter().any(|p: &Pair| p.flows.1 == m);
        if taken(n) {
            continue;
        }
        let others: Vec<Pair> = (n + 1..flows.len())
            .filter(|m| !taken(*m))
            .filter_map(sampled)
            .filter_map(|(m, b)| pair((n, a), (m, b)))
            .collect();
        out.extend(others);
    }
    out
}

fn pair((n, a): (usize, &Samples), (m, b): (usize, &Samples)) -> Option<Pair> {
    let bits = a.bits.max(b.bits);
    let chosen = |s: &Samples| {
        let mut all: Vec<(u64, Tai)> = s.kept.iter().copied().filter(|(key, _)| key.trailing_zeros() >= bits).collect();
        all.sort_unstable();
        // The first arrival of each counts.
        all.dedup_by_key(|(key, _)| *key);
        all
    };
    let (a, b) = (chosen(a), chosen(b));
    let mut skew = Stat::default();
    let mut same = 0;
    for (key, at) in &a {
        if let Ok(place) = b.binary_search_by_key(key, |(key, _)| *key)
            && let Some((_, other)) = b.get(place)
        {
            same += 1;
            skew.add(other.since(*at));
        }
    }
    let compared = a.len().min(b.len());
    (same >= ENOUGH && same * 2 > compared).then_some(Pair { flows: (n, m), compared: (compared, same), skew })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::Options;
    use crate::time::MediaClock;
    use crate::timing::flow::Subject;
    use crate::timing::{Flow, Rules, Source};

    fn packet(n: u32, ssrc: u32, at: u64) -> Packet {
        let (sequence, timestamp) = (n as u16, n / 100 * 1501);
        let marker = n % 100 == 99;
        Packet {
            arrival: Tai(at),
            timestamp,
            sequence,
            extended: None,
            ssrc,
            marker,
            second: false,
            leg: 0,
            ancillary: None,
        }
    }

    fn flow(packets: impl Iterator<Item = Packet>) -> Analysed {
        let mut samples = Samples::default();
        packets.for_each(|p| samples.add(&p, 96));
        assert!(samples.kept.len() <= KEPT);
        let Options { source, .. } = Options::default();
        let timing = Flow::new(Subject::Other, MediaClock::VIDEO, 1, source, Rules::default());
        assert_eq!(Source::default(), source);
        Analysed { described: None, timing, legs: Vec::new(), samples: Some(samples) }
    }

    #[test]
    fn copies_are_found_whatever_is_lost_and_others_are_not() {
        let all =
            |ssrc, later: u64| (0..200_000u32).map(move |n| packet(n, ssrc, 1_000_000 + u64::from(n) * 4000 + later));
        let flows = [
            flow(all(7, 0)),
            flow(all(8, 0)),
            // 150 us behind; begins later and lacks every third.
            flow(all(7, 150_000).skip(1000).filter(|p| p.sequence % 3 != 0)),
            flow(all(8, 0).map(|p| Packet { timestamp: p.timestamp + 1, ..p })),
            // A third leg.
            flow(all(7, 0)),
        ];
        let found = find(&flows);
        assert_eq!(found.iter().map(|p| p.flows).collect::<Vec<_>>(), [(0, 2), (0, 4)], "{found:?}");
        let (compared, same) = found[0].compared;
        assert!(same > compared / 2 && compared > 100, "{found:?}");
        assert_eq!((found[0].skew.min, found[0].skew.max), (150_000, 150_000));
    }

    #[test]
    fn a_flow_with_one_packet_again_and_again_is_bounded() {
        let one = flow((0..10_000u64).map(|n| packet(5, 7, n)));
        assert_eq!(find(&[one.clone(), one]), []);
    }
}
