//! Loss x skew x reordering on two legs. Which packets come by which leg, and when, is drawn from a seed; a model computes
//! from the definition alone what must be whole and what every counter must say; the result is compared with a table that
//! is kept.
//!
//! A packet is in time when it comes no later than the window after the first packet of the next frame. Where nothing has
//! come of that, its beginning is reckoned from later frames by their timestamps.
//!
//! Rows of few frames run with the other tests. `GDMEDIA_TABLE=all` runs those of 10 000 frames too (in a release build),
//! `GDMEDIA_TABLE=write` writes the table anew.

#![allow(clippy::needless_range_loop)] // Legs, frames and packets are numbers here.

use crate::Dice;
use crate::support::format;
use gdmedia::depacketise::{Config, Depacketiser, Packet};
use gdmedia::format::WireFormat;
use gdmedia::merge::Class;
use gdmedia::packetise::{Cut, Packetiser, Style};
use gdmedia::plan::{Fate, Plan, Step};
use gdmedia::sdp::{Depth, Ratio, Sampling, Scan};
use gdmedia::time::{Tai, VIDEO_CLOCK, frame_nanos, frame_ticks};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write;
use std::path::Path;

const RATE: Ratio = Ratio { num: 60000, den: 1001 };
const PACKETS: usize = 128;
const LONG: usize = 10_000;
const SHORT: usize = 30;
/// Nothing of the first and last frames is lost or reordered: whether they are whole is a matter of joining and leaving.
const SPARED: usize = 2;
const LOST: u64 = u64::MAX;
const BEGIN: u64 = 1_700_000_000_000_000_000;

#[derive(Clone, Copy, Debug)]
enum Loss {
    Ppm(u64),
    Bursts,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    frames: usize,
    class: Class,
    skew_us: u64,
    depth: u64,
    loss: Loss,
    seed: u64,
}

fn rows(frames: usize) -> Vec<Row> {
    let a = [0, 100, 1_000, 9_000, 10_000, 12_000].map(|us| (Class::A, us));
    let others = [(Class::B, 40_000), (Class::C, 140_000), (Class::C, 449_000), (Class::D, 100)];
    let mut rows = vec![];
    for (class, skew_us) in a.into_iter().chain(others) {
        for depth in [0, 8, 200] {
            for loss in [Loss::Ppm(0), Loss::Ppm(1), Loss::Ppm(100), Loss::Ppm(10_000), Loss::Bursts] {
                rows.push(Row { frames, class, skew_us, depth, loss, seed: rows.len() as u64 + 1 });
            }
        }
    }
    rows
}

/// 128 rows of one packet each.
fn wire() -> (WireFormat, Cut) {
    (format(Sampling::YCbCr422, Depth::D8, 64, PACKETS as u32, Scan::Progressive), Cut::Full { udp: 156, segments: 1 })
}

/// When each packet came by each leg; [`LOST`] when it did not.
fn arrivals(row: &Row) -> [Vec<u64>; 2] {
    let mut dice = Dice(row.seed);
    let period = frame_nanos(RATE);
    let step = period * 9 / 10 / PACKETS as u64;
    let sent = |n: usize| BEGIN + (n / PACKETS) as u64 * period + (n % PACKETS) as u64 * step;
    let count = row.frames * PACKETS;
    let between = SPARED * PACKETS..count - SPARED * PACKETS;
    [0, row.skew_us * 1_000].map(|skew| {
        let mut burst = 0;
        (0..count)
            .map(|n| {
                let lost = match row.loss {
                    Loss::Ppm(ppm) => dice.ppm(ppm),
                    Loss::Bursts if burst > 0 => {
                        burst -= 1;
                        true
                    }
                    Loss::Bursts => {
                        burst = if dice.below(4_000) == 0 { 999 } else { 0 };
                        burst > 0
                    }
                };
                if lost && between.contains(&n) {
                    return LOST;
                }
                let late = if row.depth > 0 && dice.below(10) == 0 && between.contains(&n) {
                    dice.below(row.depth) + 1
                } else {
                    0
                };
                sent(n) + skew + late * step
            })
            .collect()
    })
}

/// What is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcome {
    sent: u64,
    /// received, lost, used, redundant, late, reordered.
    legs: [[u64; 6]; 2],
    lost: u64,
    late: u64,
    complete: u64,
    incomplete: u64,
    /// Frames that came out, by number: whole or not.
    frames: Vec<(usize, bool)>,
}

/// From the definition.
fn model(row: &Row, legs: &[Vec<u64>; 2]) -> Outcome {
    let window = row.class.window(0).as_nanos() as u64;
    let mut out = Outcome { sent: (row.frames * PACKETS) as u64, ..Outcome::default() };
    let began: Vec<u64> = (0..row.frames)
        .map(|f| legs.iter().flat_map(|leg| &leg[f * PACKETS..(f + 1) * PACKETS]).copied().min().unwrap())
        .collect();
    // When the next frame began; where nothing has come of it, by the timestamps of those that have begun.
    let ticks = |f: usize| frame_ticks(f as u64, RATE, VIDEO_CLOCK);
    let is_in_time = |f: usize, at: u64| {
        let mut later = (f + 1..row.frames.min(f + 64)).filter(|m| began[*m] < at);
        later.all(|m| {
            let missing = (ticks(m) - ticks(f)).saturating_sub(ticks(1) + 2);
            at <= began[m] - missing * 100_000 / 9 + window
        })
    };
    let mut highest: [Option<(u64, usize)>; 2] = [None; 2];
    for f in 0..row.frames {
        let (mut whole, mut any) = (true, false);
        for n in f * PACKETS..(f + 1) * PACKETS {
            let came = [legs[0][n], legs[1][n]];
            let in_time = came.map(|at| at != LOST && is_in_time(f, at));
            for leg in 0..2 {
                let [received, lost, used, redundant, late, _] = &mut out.legs[leg];
                // The first leg is asked first.
                let first = if leg == 0 { came[0] <= came[1] } else { came[1] < came[0] };
                match (came[leg], in_time[leg]) {
                    (LOST, _) => *lost += 1,
                    (_, false) => (*lost, *late) = (*lost + 1, *late + 1),
                    (_, true) if first => (*received, *used) = (*received + 1, *used + 1),
                    (_, true) => (*received, *redundant) = (*received + 1, *redundant + 1),
                }
            }
            let brought = in_time[0] || in_time[1];
            out.lost += u64::from(!brought);
            out.late += u64::from(!brought && came != [LOST; 2]);
            (whole, any) = (whole && brought, any || brought);
        }
        if any {
            out.frames.push((f, whole));
            *(if whole { &mut out.complete } else { &mut out.incomplete }) += 1;
        }
    }
    // Reordered: in time, and behind one with a higher number by the same leg.
    for leg in 0..2 {
        let mut order: Vec<(u64, usize)> =
            legs[leg].iter().enumerate().filter(|(_, at)| **at != LOST).map(|(n, at)| (*at, n)).collect();
        order.sort_unstable();
        for (at, n) in order {
            let behind = highest[leg].is_some_and(|(_, high)| n < high);
            out.legs[leg][5] += u64::from(behind && is_in_time(n / PACKETS, at));
            if !behind {
                highest[leg] = Some((at, n));
            }
        }
    }
    out
}

/// Without which leg was first.
fn without_order([received, lost, _, _, late, reordered]: [u64; 6]) -> [u64; 6] {
    [received, lost, 0, 0, late, reordered]
}

/// Closes of a plan.
fn closes(plan: &Plan, timestamps: &[u32], out: &mut Outcome) {
    for step in &plan.steps {
        let Step::Close(_, end) = step else { continue };
        let frame = timestamps.iter().position(|t| *t == end.timestamp).expect("a frame that was sent");
        assert_ne!(end.fate, Fate::Acquiring, "frame {frame}");
        out.frames.push((frame, end.fate == Fate::Complete));
        *(if end.fate == Fate::Complete { &mut out.complete } else { &mut out.incomplete }) += 1;
    }
}

/// Through the depacketiser. `batch` packets of one leg after as many of the other.
fn run(row: &Row, legs: &[Vec<u64>; 2], batch: usize) -> Outcome {
    let (wire, cut) = wire();
    let config = Config::new(wire, 96, Some(RATE)).with_legs(2, row.class).unwrap();
    let mut depacketiser = Depacketiser::video(config);
    let mut packetiser = Packetiser::new(wire, Style::new(cut), 0xffff_f000).unwrap();
    let timestamps: Vec<u32> = (0..row.frames as u64).map(|n| frame_ticks(n, RATE, VIDEO_CLOCK) as u32).collect();
    let heads: Vec<[u8; 20]> = timestamps
        .iter()
        .flat_map(|t| packetiser.frame(*t, *t).map(|built| built.header().try_into().unwrap()).collect::<Vec<_>>())
        .collect();
    assert_eq!(heads.len(), row.frames * PACKETS);
    let mut coming: BinaryHeap<Reverse<(u64, u8, usize)>> = BinaryHeap::new();
    let mut out = Outcome { sent: heads.len() as u64, ..Outcome::default() };
    let (mut next, mut waiting) = (0, [vec![], vec![]]);
    let reach = (row.depth + 1) as usize;
    let mut push = |packets: &mut Vec<(u64, usize)>, leg: usize, out: &mut Outcome| {
        let plan = depacketiser.push(packets.drain(..).map(|(at, n)| Packet {
            slot: 0,
            head: &heads[n],
            octets: 148,
            wire_octets: 148,
            arrival: Tai(at),
            leg: leg as u8,
        }));
        closes(plan, &timestamps, out);
    };
    let patience = row.class.window(0).as_nanos() as u64 / 2;
    loop {
        // Packets come later than they were sent: all that may come before the next one are there.
        while next < heads.len() + reach
            && coming.peek().is_none_or(|Reverse((at, ..))| {
                next >= heads.len() || *at >= BEGIN + (next / PACKETS) as u64 * frame_nanos(RATE)
            })
        {
            for _ in 0..PACKETS {
                for leg in 0..2 {
                    if let Some(at) = legs[leg].get(next).filter(|at| **at != LOST) {
                        coming.push(Reverse((*at, leg as u8, next)));
                    }
                }
                next += 1;
            }
        }
        let popped = coming.pop();
        // No packet waits to be looked at for longer than half the window.
        let oldest = waiting.iter().flatten().map(|(at, _)| *at).min();
        let overdue = popped.zip(oldest).is_some_and(|(Reverse((at, ..)), oldest)| at - oldest > patience);
        if overdue {
            (0..2).for_each(|leg| push(&mut waiting[leg], leg, &mut out));
        }
        if let Some(Reverse((at, leg, n))) = popped {
            waiting[usize::from(leg)].push((at, n));
        }
        for leg in 0..2 {
            if waiting[leg].len() >= batch || popped.is_none() {
                push(&mut waiting[leg], leg, &mut out);
            }
        }
        if popped.is_none() {
            break;
        }
    }
    depacketiser.check_invariants();
    closes(depacketiser.finish(), &timestamps, &mut out);
    depacketiser.check_invariants();
    let c = depacketiser.counters();
    assert_eq!((c.received + c.lost, c.restarts, c.duplicate, c.rejected.total()), (out.sent, 0, 0, 0), "{c:?}");
    (out.lost, out.late) = (c.lost, c.late);
    for (leg, l) in depacketiser.legs().iter().enumerate() {
        assert_eq!((l.received + l.lost, l.used + l.redundant), (out.sent, l.received), "{l:?}");
        assert_eq!((l.duplicate, l.foreign, l.restarts), (0, 0, 0), "{l:?}");
        out.legs[leg] = [l.received, l.lost, l.used, l.redundant, l.late, l.reordered];
    }
    out
}

/// Says the first frame that differs, not all of them.
fn agree(got: &Outcome, expected: &Outcome, row: &Row) {
    let differ = got.frames.iter().zip(&expected.frames).find(|(got, expected)| got != expected);
    assert_eq!(differ, None, "frames that came out, and should have, of {row:?}");
    let counters = |of: &Outcome| Outcome { frames: vec![], ..of.clone() };
    assert_eq!(counters(got), counters(expected), "{row:?}");
    assert_eq!(got.frames.len(), expected.frames.len(), "{row:?}");
}

fn line(row: &Row, out: &Outcome) -> String {
    let loss = match row.loss {
        Loss::Ppm(ppm) => format!("{:.0e}", ppm as f64 / 1e6),
        Loss::Bursts => "bursts".into(),
    };
    let Row { frames, class, skew_us, depth, seed, .. } = row;
    let mut text = format!("{frames:>6} {seed:>4}  {class:<8} {skew_us:>7} {depth:>4} {loss:>7}  {:>8}", out.sent);
    for [received, lost, used, redundant, late, reordered] in out.legs {
        let _ = write!(text, "  {received:>8} {lost:>6} {used:>8} {redundant:>8} {late:>6} {reordered:>7}");
    }
    let _ = write!(text, "  {:>6} {:>6}  {:>6} {:>6}", out.lost, out.late, out.complete, out.incomplete);
    text
}

const HEAD: &str = "\
# Two legs in virtual time, 128 packets a frame at 60000/1001: what a seed gives. See tests/redundancy/table.rs.
# skew in microseconds, reorder depth in packets; of each leg: received, lost, used, redundant, late, reordered;
# after the merge: lost, late; frames complete, incomplete
";

#[test]
fn frames_are_whole_whenever_a_leg_had_them_in_time() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redundancy/table.txt");
    let wanted = std::env::var("GDMEDIA_TABLE").unwrap_or_default();
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let mut text = HEAD.to_owned();
    let mut rows = rows(SHORT);
    if wanted == "all" || wanted == "write" {
        rows.extend(self::rows(LONG));
    }
    for row in &rows {
        let legs = arrivals(row);
        let expected = model(row, &legs);
        let got = run(row, &legs, 1);
        agree(&got, &expected, row);
        if row.frames == SHORT {
            // As sockets bring them: batches, leg after leg. Then it is another leg that is first.
            let batched = Outcome { legs: [0, 1].map(|leg| without_order(expected.legs[leg])), ..expected };
            let mut got = run(row, &legs, [2, 7, 30][row.seed as usize % 3]);
            got.legs = got.legs.map(without_order);
            agree(&got, &batched, row);
        }
        let line = line(row, &got);
        if wanted != "write" && wanted != "short" {
            assert!(kept.lines().any(|kept| kept == line), "not in the table that is kept:\n{line}");
        }
        text.push_str(&line);
        text.push('\n');
    }
    if wanted == "write" || wanted == "short" {
        std::fs::write(path, text).unwrap();
    }
}
