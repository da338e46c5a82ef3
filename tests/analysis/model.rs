//! CINST and VRX against a model that shares nothing with the library: every drain and every read is an event on a time
//! line of exact fractions, and the buckets are filled and emptied one by one.
//!
//! A million packets of each sender are compared when `GDMEDIA_MODEL_PACKETS` says so (`cargo test --release`); else
//! some frames.

use gdmedia::sdp::{Ratio, Scan};
use gdmedia::time::Tai;
use gdmedia::timing::buckets::{Cinst, Method, Reads};
use gdmedia::timing::schedule::{Pacing, Schedule};

/// A raster as the standard's table has it.
#[derive(Clone, Copy)]
struct Raster {
    num: u64,
    den: u64,
    height: u32,
    scan: Scan,
    /// Packets of a frame, and of its first field.
    packets: u64,
    second: Option<u64>,
    /// RACTIVE and TRODEFAULT as fractions of these lines.
    lines: u64,
    active: u64,
    before: u64,
}

const P5994: Raster = Raster {
    num: 60000,
    den: 1001,
    height: 1080,
    scan: Scan::Progressive,
    packets: 4320,
    second: None,
    lines: 1125,
    active: 1080,
    before: 43,
};
const I50: Raster = Raster {
    num: 25,
    den: 1,
    height: 1080,
    scan: Scan::Interlaced,
    packets: 4116,
    second: Some(2058),
    lines: 1125,
    active: 1080,
    before: 22,
};
const P720: Raster = Raster {
    num: 50,
    den: 1,
    height: 720,
    scan: Scan::Progressive,
    packets: 1920,
    second: None,
    lines: 1125,
    active: 1080,
    // 28/750 of 1125 lines.
    before: 42,
};

/// An instant or a time in parts of a nanosecond: `1 / (22 * num * packets * lines)`.
type Exact = i128;

impl Raster {
    fn parts(&self) -> Exact {
        22 * Exact::from(self.num) * Exact::from(self.packets) * Exact::from(self.lines)
    }
    fn frame(&self) -> Exact {
        1_000_000_000 * Exact::from(self.den) * 22 * Exact::from(self.packets) * Exact::from(self.lines)
    }
    fn drain(&self) -> Exact {
        // TFRAME / NPACKETS / 1.1
        self.frame() * 10 / 11 / Exact::from(self.packets)
    }
    /// TPR of packet `j` of frame `n`.
    fn read(&self, pacing: Pacing, n: u64, j: u64) -> Exact {
        let frame = self.frame();
        let tvd = frame * Exact::from(n) + frame * Exact::from(self.before) / Exact::from(self.lines);
        let linear = frame / Exact::from(self.packets);
        let gapped = frame / Exact::from(self.packets) * Exact::from(self.active) / Exact::from(self.lines);
        match (pacing, self.second) {
            (Pacing::Linear, _) => tvd + linear * Exact::from(j),
            (_, Some(second)) if j >= second => {
                tvd + frame / 2 + frame / Exact::from(self.lines) / 2 + gapped * Exact::from(j - second)
            }
            _ => tvd + gapped * Exact::from(j),
        }
    }
    fn schedule(&self) -> Schedule {
        let rate = Ratio { num: self.num as u32, den: self.den as u32 };
        let second = self.second.map(|s| s as u32);
        Schedule::new(rate, self.height, self.scan, Pacing::Linear, self.packets as u32, second, None).unwrap()
    }
}

/// A packet of the model: frame since the epoch, index in it, arrival.
#[derive(Clone, Copy)]
struct Sent {
    frame: u64,
    index: u64,
    at: Tai,
}

/// How a sender strays from its schedule.
#[derive(Clone, Copy, Debug)]
enum Way {
    Gapped,
    Linear,
    /// Sends up to 16 packets at once, at the time of the first of them.
    Wide,
    Late(i64),
    Early(i64),
    Bursty(u64),
    /// Every packet moved by up to this much, by a fixed sequence of numbers.
    Jitter(u64),
}

fn sender(raster: &Raster, way: Way, packets: usize) -> Vec<Sent> {
    let begin = 1_700_000_037 * raster.num / raster.den;
    let parts = raster.parts();
    let ns = |exact: Exact| Tai(u64::try_from(exact / parts).unwrap());
    let mut state = 1u64;
    let mut out: Vec<Sent> = Vec::with_capacity(packets);
    'all: for frame in begin.. {
        for index in 0..raster.packets {
            if out.len() == packets {
                break 'all;
            }
            let gapped = ns(raster.read(Pacing::Gapped, frame, index));
            let linear = ns(raster.read(Pacing::Linear, frame, index));
            let at = match way {
                Way::Gapped => gapped,
                Way::Linear => linear,
                Way::Wide => {
                    Tai(ns(raster.read(Pacing::Linear, frame, index - index % 16)).0 - 2_000_000 + index % 16 * 120)
                }
                Way::Late(by) | Way::Early(by) => Tai(gapped.0.wrapping_add_signed(by)),
                Way::Bursty(run) => ns(raster.read(Pacing::Gapped, frame, index - index % run)),
                Way::Jitter(most) => {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    Tai(gapped.0 - 3_000 + (state >> 33) % most)
                }
            };
            // A wire keeps packets in order.
            let at = at.max(out.last().map_or(Tai(0), |p| p.at));
            out.push(Sent { frame, index, at });
        }
    }
    out
}

/// The bucket of 6.6.1, emptied drain by drain.
fn model_cinst(raster: &Raster, sent: &[Sent]) -> Vec<i64> {
    let (parts, drain) = (raster.parts(), raster.drain());
    let first = Exact::from(sent[0].at.0) * parts;
    // The first drain instant after the first packet came.
    let mut next = (first / drain + 1) * drain;
    let mut level = 0;
    let fill = |p: &Sent| {
        let now = Exact::from(p.at.0) * parts;
        while next <= now {
            level = (level - 1).max(0);
            next += drain;
        }
        level += 1;
        level
    };
    sent.iter().map(fill).collect()
}

/// The buffer of 6.6.2: packets that have come, less reads that have passed, of this frame and earlier ones.
fn model_vrx(raster: &Raster, pacing: Pacing, sent: &[Sent]) -> Vec<i64> {
    let parts = raster.parts();
    let mut out = Vec::with_capacity(sent.len());
    let due: Vec<Exact> = sent.iter().map(|p| raster.read(pacing, p.frame, p.index)).collect();
    // Reads of the packets sent, in order; reads of later frames do not count against earlier packets.
    for (n, p) in sent.iter().enumerate() {
        let now = Exact::from(p.at.0) * parts;
        // Back over those that still wait, then on over reads of this frame that are due for packets still to come.
        let mut level = 0;
        for read in due[..=n].iter().rev() {
            if *read < now {
                break;
            }
            level += 1;
        }
        if level == 0 {
            // Its own read has passed: and how many behind it.
            for index in p.index + 1..raster.packets {
                if raster.read(pacing, p.frame, index) >= now {
                    break;
                }
                level -= 1;
            }
        }
        out.push(level);
    }
    out
}

fn packets() -> usize {
    std::env::var("GDMEDIA_MODEL_PACKETS").ok().and_then(|v| v.parse().ok()).unwrap_or(9_000)
}

#[test]
fn buckets_agree_with_the_model_packet_by_packet() {
    let ways = [
        Way::Gapped,
        Way::Linear,
        Way::Wide,
        Way::Late(50_000),
        Way::Early(-30_000),
        Way::Bursty(7),
        Way::Bursty(64),
        Way::Jitter(2_900),
        Way::Jitter(40_000),
    ];
    for (raster, name) in [(P5994, "1080p59.94"), (I50, "1080i50 BPM"), (P720, "720p50")] {
        let schedule = raster.schedule();
        for way in ways {
            let sent = sender(&raster, way, packets());
            let mut cinst = Cinst::new(&schedule, Method::Standard);
            for (n, (p, wanted)) in sent.iter().zip(model_cinst(&raster, &sent)).enumerate() {
                assert_eq!(cinst.add(p.at), wanted, "{name} {way:?}: CINST of packet {n}");
            }
            let reads = Reads::new(schedule, Method::Standard, None);
            for pacing in [Pacing::Gapped, Pacing::Linear] {
                let model = model_vrx(&raster, pacing, &sent);
                // The model's first frame lacks what was sent before it.
                for (n, (p, wanted)) in sent.iter().zip(model).enumerate().skip(raster.packets as usize) {
                    let frame = reads.frame(p.frame as i64);
                    let level = reads.level(&frame, pacing, p.index as u32, p.at);
                    assert_eq!(
                        level,
                        wanted,
                        "{name} {way:?}: VRX {pacing:?} of packet {n}, {p:?}",
                        p = (p.frame, p.index, p.at)
                    );
                }
            }
        }
    }
}
