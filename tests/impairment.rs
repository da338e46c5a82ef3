//! A network that loses, copies and delays packets, from a seed: loss maps name exactly the octets that were removed,
//! `sent = received + lost`, and every octet that is not missing is the one that was sent.

mod support;

use gdmedia::format::WireFormat;
use gdmedia::packetise::{Cut, Style};
use gdmedia::plan::{Fate, Missing};
use gdmedia::sdp::{Depth, Sampling, Scan};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use support::*;

/// Places by which a packet comes late at most.
const DEPTH: usize = 32;

/// A generator of numbers (64-bit, multiplicative), so that a seed says everything.
struct Seeded(u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    /// True once in `n` times.
    fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

struct Impaired {
    arrived: Vec<Sent>,
    lost: BTreeSet<usize>,
    copies: u64,
}

fn impair(sent: &[Sent], seed: &mut Seeded, loss: usize, copy: usize, delay: usize) -> Impaired {
    let mut out: Vec<(usize, usize)> = vec![];
    let mut lost = BTreeSet::new();
    let mut copies = 0;
    for n in 0..sent.len() {
        if seed.once_in(loss) {
            lost.insert(n);
            continue;
        }
        let late = |seed: &mut Seeded| if seed.once_in(delay) { n + seed.below(DEPTH + 1) } else { n };
        out.push((late(seed), n));
        if seed.once_in(copy) {
            out.push((late(seed), n));
            copies += 1;
        }
    }
    out.sort_by_key(|(place, _)| *place);
    Impaired { arrived: out.into_iter().map(|(_, n)| sent[n].clone()).collect(), lost, copies }
}

/// The runs of a frame's wire rows that these packets held, merged.
fn runs(format: WireFormat, lost: &[&Sent]) -> Vec<Missing> {
    let row = format.row_octets();
    let mut octets = vec![false; format.frame_octets() as usize];
    for s in lost.iter().flat_map(|p| &p.sources) {
        octets[s.at as usize..][..usize::from(s.len)].fill(true);
    }
    let mut out: Vec<Missing> = vec![];
    for (at, _) in octets.iter().enumerate().filter(|(_, lost)| **lost) {
        let (r, octet) = (at as u32 / row, at as u32 % row);
        match out.last_mut() {
            Some(m) if m.row == r && m.octet + m.len == octet => m.len += 1,
            _ => out.push(Missing { row: r, octet, len: 1 }),
        }
    }
    out
}

fn run(seed: u64, format: WireFormat, cut: Cut, first: u32, offset: u32, short: bool) {
    let seed = &mut Seeded(seed);
    let mut style = Style::new(cut);
    style.short_sequence = short;
    let mut sender = Sender::new(format, style, first);
    sender.offset = offset;
    let sent = sender.frames(9);
    let [loss, copy, delay] = [[5, 20, 1000][seed.below(3)], [3, 50][seed.below(2)], [2, 10, 1000][seed.below(3)]];
    let Impaired { arrived, lost, copies } = impair(&sent, seed, loss, copy, delay);
    let mut r = Receiver::new(format);
    r.batch = 1 + seed.below(40);
    r.feed(&arrived);
    let c = r.finish();

    // What the receiver can know of: from the first packet that came to the last.
    let seen: BTreeSet<usize> = (0..sent.len()).filter(|n| !lost.contains(n)).collect();
    let span = match (seen.first(), seen.last()) {
        (Some(a), Some(b)) => b - a + 1,
        _ => 0,
    };
    assert_eq!(c.received, seen.len() as u64, "{c:?}");
    assert_eq!(c.received + c.lost, span as u64, "{c:?}");
    assert_eq!((c.duplicate, c.late, c.restarts, c.rejected.total()), (copies, 0, 0, 0), "{c:?}");

    // One frame for each of which something came, in order, with exactly its loss.
    let mut frames: BTreeMap<usize, Vec<&Sent>> = seen.iter().map(|n| (sent[*n].frame, vec![])).collect();
    for n in &lost {
        if let Some(list) = frames.get_mut(&sent[*n].frame) {
            list.push(&sent[*n]);
        }
    }
    assert_eq!(r.out.len(), frames.len());
    for (out, (n, lost)) in r.out.iter().zip(frames) {
        assert_eq!(out.end.timestamp, sender.timestamps(n)[0]);
        assert_eq!(out.missing, runs(format, &lost));
        assert_eq!(out.end.fate == Fate::Complete, lost.is_empty());
        check(out, &picture(format, n), format);
    }
}

fn any_format() -> impl Strategy<Value = (WireFormat, Cut)> {
    // Frames of at least 32 packets: reordering then reaches over one boundary, or two.
    let list = [
        format(Sampling::YCbCr422, Depth::D10, 64, 36, Scan::Progressive),
        format(Sampling::YCbCr422, Depth::D10, 64, 36, Scan::Interlaced),
        format(Sampling::YCbCr422, Depth::D12, 44, 41, Scan::Psf),
        format(Sampling::Rgb, Depth::D10, 37, 35, Scan::Progressive),
        format(Sampling::YCbCr420, Depth::D8, 30, 70, Scan::Progressive),
        format(Sampling::Key, Depth::D10, 50, 40, Scan::Interlaced),
    ];
    let cuts =
        [EVEN, Cut::Full { udp: 120, segments: 1 }, Cut::Full { udp: 150, segments: 2 }, Cut::Bpm { fill: true }];
    (0..list.len(), 0..cuts.len()).prop_filter_map("no such packing, or frames of few packets", move |(f, c)| {
        let packets = gdmedia::packetise::Packetiser::new(list[f], Style::new(cuts[c]), 0)?.packets_per_frame();
        (packets >= DEPTH as u32).then_some((list[f], cuts[c]))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn loss_is_located_and_counted(
        seed: u64,
        (format, cut) in any_format(),
        first in prop_oneof![Just(0u32), any::<u32>(), (u32::MAX - 300..=u32::MAX), 65_300u32..65_600],
        offset in prop_oneof![Just(0u32), any::<u32>()],
        short: bool,
    ) {
        run(seed, format, cut, first, offset, short);
    }
}

#[test]
fn known_seeds() {
    for scan in [Scan::Progressive, Scan::Interlaced, Scan::Psf] {
        let format = format(Sampling::YCbCr422, Depth::D10, 64, 36, scan);
        for seed in 0..40 {
            run(seed, format, EVEN, 65_400, 0, seed % 2 == 0);
        }
    }
}
