//! What the first packets of a flow say that its description leaves open: packets a frame, frame rate, scan.

use super::Packet;
use crate::sdp::{Ratio, Scan};
use crate::time::VIDEO_CLOCK;

/// Frame rates of the field.
const RATES: [(u32, u32); 13] = [
    (24000, 1001),
    (24, 1),
    (25, 1),
    (30000, 1001),
    (30, 1),
    (48, 1),
    (50, 1),
    (60000, 1001),
    (60, 1),
    (96, 1),
    (100, 1),
    (120_000, 1001),
    (120, 1),
];

/// The rate whose period at 90 kHz the steps of timestamps fit: `floor` and `floor + 1` of 90000 / rate.
pub fn rate_of_steps(least: u32, most: u32) -> Option<Ratio> {
    let fits = |(num, den): (u32, u32)| {
        let (clock, num, den) = (u64::from(VIDEO_CLOCK), u64::from(num), u64::from(den));
        let (floor, rest) = (clock * den / num, clock * den % num);
        let ceiling = floor + u64::from(rest > 0);
        (floor..=ceiling).contains(&u64::from(least)) && (floor..=ceiling).contains(&u64::from(most))
    };
    RATES.iter().copied().find(|r| fits(*r)).map(|(num, den)| Ratio { num, den })
}

/// A run of packets of one frame, field or segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// RTP timestamp.
    pub timestamp: u32,
    /// Second field or segment.
    pub second: bool,
    /// From its first to its last sequence number: those that were lost between them count.
    pub packets: u32,
}

/// The runs of packets that came in order of their numbers, which may have gaps; the first and the last may not be whole.
pub fn runs(packets: impl Iterator<Item = (Packet, i64)>) -> Vec<Run> {
    let mut out: Vec<Run> = Vec::new();
    let mut first = 0;
    let mut last = None;
    for (p, number) in packets {
        if last.is_some_and(|last| number <= last) {
            continue;
        }
        last = Some(number);
        match out.last_mut() {
            Some(run) if (run.timestamp, run.second) == (p.timestamp, p.second) => {
                run.packets = u32::try_from(number - first + 1).unwrap_or(u32::MAX);
            }
            _ => {
                first = number;
                out.push(Run { timestamp: p.timestamp, second: p.second, packets: 1 });
            }
        }
    }
    out
}

/// What has been learned of a flow of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learned {
    /// Frames a second, as the timestamps have it; fields count as frames where nothing says that they are fields.
    pub rate: Option<Ratio>,
    /// How the picture is scanned.
    pub scan: Scan,
    /// Packets of a frame, both fields together.
    pub packets: u32,
    /// Of these, in the first field or segment; `None` for progressive ones.
    pub second: Option<u32>,
    /// The first run is as long as it should be: it is whole.
    pub first_whole: bool,
}

/// Packets of a frame at most: 15 times those of 4320p in packets of 1200 octets.
const MAX_PACKETS: u32 = 1 << 20;

/// Runs that say enough: one whole frame and the beginning of another, wherever reception began.
pub const ENOUGH: usize = 4;

/// Learns from runs; `None` when there is no whole frame among them. `scan` is what the description says.
pub fn learn(runs: &[Run], scan: Option<Scan>) -> Option<Learned> {
    let whole = runs.get(1..runs.len().saturating_sub(1)).filter(|w| !w.is_empty()).unwrap_or(runs);
    let fields = match scan {
        Some(scan) => scan != Scan::Progressive,
        None => runs.iter().any(|r| r.second),
    };
    // A damaged sequence number makes a run of millions.
    let counts = |second: Option<bool>| {
        let runs = whole.iter().filter(move |r| second.is_none_or(|s| r.second == s));
        runs.map(|r| r.packets).filter(|n| *n <= MAX_PACKETS).max()
    };
    let most = |second: bool| counts(Some(second));
    let (packets, second) = if fields {
        // One field may stand for the other where only one is whole.
        let (first, second) = (most(false).or(most(true))?, most(true).or(most(false))?);
        (first.checked_add(second)?, Some(first))
    } else {
        (counts(None)?, None)
    };
    let mut steps = runs.windows(2).filter_map(|pair| match pair {
        [a, b] => Some(b.timestamp.wrapping_sub(a.timestamp)).filter(|s| *s > 0),
        _ => None,
    });
    let first_step = steps.next();
    let (least, most) =
        steps.fold((first_step, first_step), |(least, most), s| (least.min(Some(s)), most.max(Some(s))));
    let segments = fields && runs.windows(2).any(|pair| matches!(pair, [a, b] if a.timestamp == b.timestamp));
    let scan = scan.unwrap_or(match (fields, segments) {
        (false, _) => Scan::Progressive,
        (true, false) => Scan::Interlaced,
        (true, true) => Scan::Psf,
    });
    let mut rate = least.zip(most).and_then(|(least, most)| rate_of_steps(least, most));
    if scan == Scan::Interlaced {
        rate = rate.and_then(halved);
    }
    let expected = |r: &Run| match second {
        Some(first) if r.second => packets - first,
        Some(first) => first,
        None => packets,
    };
    let first_whole = runs.len() > 1 && runs.first().is_some_and(|r| r.packets == expected(r));
    Some(Learned { rate, scan, packets, second, first_whole })
}

/// Half of a rate: of frames, where it is one of fields.
pub fn halved(rate: Ratio) -> Option<Ratio> {
    if rate.num.is_multiple_of(2) { Ratio::new(rate.num / 2, rate.den) } else { Ratio::new(rate.num, rate.den * 2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_by_their_steps() {
        let rate = |a, b| rate_of_steps(a, b).map(|r| (r.num, r.den));
        assert_eq!(rate(1501, 1502), Some((60000, 1001)));
        assert_eq!(rate(1500, 1500), Some((60, 1)));
        assert_eq!(rate(1800, 1800), Some((50, 1)));
        assert_eq!(rate(3003, 3003), Some((30000, 1001)));
        assert_eq!(rate(3753, 3754), Some((24000, 1001)));
        assert_eq!(rate(750, 751), Some((120_000, 1001)));
        assert_eq!(rate(1500, 1502), None);
        assert_eq!(rate(48, 48), None);
    }

    #[test]
    fn fields_and_segments() {
        let run = |timestamp, second, packets| Run { timestamp, second, packets };
        let fields = [run(0, true, 100), run(1501, false, 2160), run(3003, true, 2161), run(4504, false, 5)];
        let learned = learn(&fields, None).unwrap();
        assert_eq!((learned.scan, learned.packets, learned.second), (Scan::Interlaced, 4321, Some(2160)));
        assert_eq!((learned.rate, learned.first_whole), (Ratio::new(30000, 1001), false));
        let segments = [run(0, false, 7), run(0, true, 7), run(3600, false, 7), run(3600, true, 3)];
        let learned = learn(&segments, None).unwrap();
        assert_eq!((learned.scan, learned.packets, learned.first_whole), (Scan::Psf, 14, true));
        assert_eq!(learned.rate, Ratio::new(25, 1));
        let frames = [run(0, false, 10), run(1800, false, 432), run(3600, false, 432)];
        let learned = learn(&frames, None).unwrap();
        assert_eq!((learned.scan, learned.packets, learned.rate), (Scan::Progressive, 432, Ratio::new(50, 1)));
        assert_eq!(learn(&[], None), None);
    }
}
