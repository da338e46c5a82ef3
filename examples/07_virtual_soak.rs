//! Months in a minute: packets of two legs through the whole pipeline in virtual time, with faults by a plan; at the end
//! every counter is what a model says that it must be.
//!
//!     cargo run --release --example 07_virtual_soak -- [PACKETS] [SEED]
//!
//! The sender, the two paths and the model are here and know nothing of the receiver; what they share with it is the plan of
//! faults (docs/faults.md). No path delays a packet longer than the window of class A, so that the model needs no clock: a
//! packet came by a leg, or it did not.

use gdmedia::depacketise::{Config, Depacketiser};
use gdmedia::error::{Error, Kind};
use gdmedia::fault::{Due, FaultPlan, Faults, Held, Hold};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FramePool};
use gdmedia::kernel::{Colour, Conversion, CpuKernel};
use gdmedia::mem::{Host, Region};
use gdmedia::merge::Class;
use gdmedia::pipeline::{Incomplete, Pipeline};
use gdmedia::ring::{Slot, SplitRing};
use gdmedia::rx::{Memory, RxError};
use gdmedia::sdp::{Colorimetry, Depth, Range, Ratio, Sampling, Scan, Tcs};
use gdmedia::time::{MediaClock, Tai, VIDEO_CLOCK, frame_nanos, frame_ticks};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A row a packet, so that a lost packet is a row of the loss map.
const WIDTH: u32 = 80;
const ROWS: u64 = 20;
const ROW: usize = 200;
const PACKET: usize = 20 + ROW;
const RATE: Ratio = Ratio { num: 240, den: 1 };
/// The sender starts anew after so many frames, with another SSRC, sequence number and timestamp.
const RESTART: u64 = 5_000;
/// Packets at both ends of what a sender sends between two starts that no fault meets: a receiver cannot know of packets
/// before the first or after the last one that it saw.
const EDGE: u64 = 64;
/// Numbers that the model remembers: more than are ever on their way.
const REMEMBERED: u64 = 1 << 12;
/// Leases, packets of each, and octets of each packet's slot.
const AREAS: usize = 4;
const BATCH: usize = 64;
const STRIDE: usize = 256;

/// Loss one by one and in bursts, copies, a leg that lies behind and jitters, one that is overtaken, and both dead in turn.
const PLAN: &str = r#"
[[loss]]
chance = "1/1000"
[[loss]]
chance = "1/50000"
burst = 100
[[kill]]
leg = 0
from = "20s"
until = "21s"
repeat = "60s"
[[kill]]
leg = 1
from = "40s"
until = "43s"
repeat = "70s"
[[duplicate]]
chance = "1/500"
[[delay]]
leg = 1
by = "3ms"
jitter = "400us"
[[reorder]]
leg = 0
chance = "1/50"
depth = 8
"#;

static NOW: AtomicU64 = AtomicU64::new(0);

/// A packet that was sent, by its number since the beginning.
#[derive(Clone, Copy, Debug)]
struct Sent {
    number: u64,
    restarts: u64,
}

/// What a leg has brought, and what the model expects of its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Leg {
    datagrams: u64,
    received: u64,
    lost: u64,
    duplicate: u64,
    reordered: u64,
    used: u64,
    redundant: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Expected {
    legs: [Leg; 2],
    received: u64,
    lost: u64,
    complete: u64,
    incomplete: u64,
    missing_octets: u64,
    restarts: u64,
}

/// The sender, both paths, and the model.
struct Network {
    faults: Faults,
    held: Held<Sent>,
    /// What has come and was not handed over.
    come: VecDeque<(u8, u64, Sent)>,
    next: Sent,
    end: u64,
    clock: u64,
    /// Of each of the newest numbers: a bit for each leg that has brought it.
    bits: Vec<u8>,
    /// Numbers below this have been counted.
    counted: u64,
    /// Of each leg: the highest number so far.
    highest: [u64; 2],
    expected: Expected,
    noise: Vec<u8>,
    frames: u64,
    last_frame: Option<u64>,
}

fn mix(value: u64) -> u64 {
    let mixed = (value ^ value >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// SSRC, sequence number and timestamp that a sender begins with.
fn begins(restarts: u64) -> (u32, u32, u32) {
    let random = mix(restarts + 1);
    (random as u32, (random >> 32) as u32, mix(random) as u32)
}

impl Network {
    fn new(plan: &FaultPlan, packets: u64) -> Self {
        // Both legs bring a packet; whole frames are sent.
        let end = (packets / 2).div_ceil(ROWS).max(2) * ROWS;
        Network {
            faults: Faults::new(plan),
            held: Held::default(),
            come: VecDeque::new(),
            next: Sent { number: 0, restarts: 0 },
            end,
            clock: 1_700_000_000_000_000_000,
            bits: vec![0; REMEMBERED as usize],
            counted: 0,
            highest: [0; 2],
            expected: Expected::default(),
            noise: (0..65_536 + ROW as u64).map(|n| mix(n) as u8).collect(),
            frames: 0,
            last_frame: None,
        }
    }

    /// The sender sends its next packet by both paths.
    fn send(&mut self) {
        let sent = self.next;
        let of_start = sent.number % (RESTART * ROWS);
        let safe = !(EDGE..RESTART * ROWS - EDGE).contains(&of_start) || sent.number + EDGE >= self.end;
        let sequence = begins(sent.restarts).1.wrapping_add(sent.number as u32) as u16;
        for leg in 0..2u8 {
            let fate = self.faults.decide(leg, Tai(self.clock), PACKET as u16, sequence);
            if safe && fate.copies().count() == 0 {
                self.come(leg, self.clock, sent);
            }
            for hold in fate.copies() {
                match hold {
                    _ if safe => self.come(leg, self.clock, sent),
                    Hold::No => self.come(leg, self.clock, sent),
                    Hold::Packets(n) => drop(self.held.push(leg, Due::Packet(fate.index + u64::from(n)), sent)),
                    Hold::Time(ns) => drop(self.held.push(leg, Due::Time(Tai(self.clock + ns)), sent)),
                }
            }
            while let Some(late) = self.held.due_behind(leg, fate.index) {
                self.come(leg, self.clock, late);
            }
        }
        self.next.number += 1;
        self.next.restarts = self.next.number / (RESTART * ROWS);
        // The packets of a frame are sent in nine tenths of its time.
        let frame = frame_nanos(RATE);
        let (frames, row) = (self.next.number / ROWS, self.next.number % ROWS);
        self.clock = 1_700_000_000_000_000_000 + frames * frame + row * frame * 9 / 10 / ROWS;
        while let Some((leg, at, late)) = self.held.due_at(Tai(self.clock)) {
            self.come(leg, at.0, late);
        }
        self.count(self.next.number.saturating_sub(REMEMBERED / 2));
    }

    /// A packet comes by a leg.
    fn come(&mut self, leg: u8, at: u64, sent: Sent) {
        self.come.push_back((leg, at, sent));
        let (bit, before) = (1 << leg, self.bits[(sent.number % REMEMBERED) as usize]);
        let of = &mut self.expected.legs[usize::from(leg)];
        of.datagrams += 1;
        if before & bit != 0 {
            of.duplicate += 1;
            return;
        }
        of.received += 1;
        of.used += u64::from(before == 0);
        of.redundant += u64::from(before != 0);
        let highest = &mut self.highest[usize::from(leg)];
        of.reordered += u64::from(sent.number < *highest);
        *highest = sent.number.max(*highest);
        self.bits[(sent.number % REMEMBERED) as usize] |= bit;
    }

    /// Nothing more comes of numbers below `end`.
    fn count(&mut self, end: u64) {
        while self.counted + ROWS <= end {
            let mut missing = 0;
            for number in self.counted..self.counted + ROWS {
                let bits = std::mem::take(&mut self.bits[(number % REMEMBERED) as usize]);
                for leg in 0..2 {
                    self.expected.legs[leg].lost += u64::from(bits & 1 << leg == 0);
                }
                missing += u64::from(bits == 0);
            }
            self.expected.received += ROWS - missing;
            self.expected.lost += missing;
            // Of a frame that lost everything nothing is known but its numbers.
            if missing == 0 {
                self.expected.complete += 1;
            } else if missing < ROWS {
                self.expected.incomplete += 1;
                self.expected.missing_octets += missing * ROW as u64;
            }
            self.counted += ROWS;
        }
    }

    /// Writes what has come into an area of the ring.
    fn fill(&mut self, ring: &mut SplitRing<Host>, area: usize, slots: &mut Vec<Slot>) -> Result<bool, RxError> {
        while self.come.len() < BATCH && self.next.number < self.end {
            self.send();
        }
        if self.next.number >= self.end {
            while let Some((leg, sent)) = self.held.pop() {
                self.clock += 1000;
                self.come(leg, self.clock, sent);
            }
        }
        for (n, (leg, at, sent)) in self.come.drain(..BATCH.min(self.come.len())).enumerate() {
            let place = (area * BATCH + n) * STRIDE;
            write(&mut ring.head_plane_mut().as_mut_slice()[place..place + PACKET], sent, &self.noise);
            let octets = PACKET as u16;
            let (head_at, arrival) = (place as u32, Tai(at));
            slots.push(Slot { head_at, body_at: 0, head: octets, octets, wire_octets: octets, leg, arrival });
            NOW.fetch_max(at, Relaxed);
        }
        if slots.is_empty() { Err(RxError::End) } else { Ok(true) }
    }

    /// A frame has come out: its octets are those of the picture that its timestamp names, but where its loss map says so.
    fn look(&mut self, frame: &Frame) {
        self.frames += 1;
        let meta = frame.meta();
        let number = (self.last_frame.map_or(0, |last| last + 1)..)
            .take(1_000)
            .find(|n| timestamp(*n) == meta.timestamp)
            .unwrap_or_else(|| panic!("a frame that was not sent, or not in its order: {meta:?}"));
        self.last_frame = Some(number);
        for row in 0..ROWS {
            let picture = picture(number, row, &self.noise);
            let is_missing = meta.missing.iter().any(|run| u64::from(run.row) == row);
            assert!(is_missing || frame.row(0, row as usize) == picture, "row {row} of frame {number}: {meta:?}");
        }
    }
}

/// RTP timestamp of a frame.
fn timestamp(frame: u64) -> u32 {
    let since_epoch = 1_700_000_000 * u64::from(RATE.num) + frame;
    (frame_ticks(since_epoch, RATE, VIDEO_CLOCK) as u32).wrapping_add(begins(frame / RESTART).2)
}

/// A row of a picture: no two of them are alike.
fn picture(frame: u64, row: u64, noise: &[u8]) -> &[u8] {
    let at = (mix(frame * ROWS + row) % 65_536) as usize;
    &noise[at..at + ROW]
}

/// RTP header (RFC 3550 5.1), payload header with one segment (ST 2110-20 6.1.4 and 6.2.1), a row of samples.
fn write(packet: &mut [u8], sent: Sent, noise: &[u8]) {
    let (ssrc, first, _) = begins(sent.restarts);
    let (frame, row) = (sent.number / ROWS, sent.number % ROWS);
    let [e0, e1, s0, s1] = first.wrapping_add(sent.number as u32).to_be_bytes();
    packet[..4].copy_from_slice(&[0x80, 96 | if row + 1 == ROWS { 0x80 } else { 0 }, s0, s1]);
    packet[4..8].copy_from_slice(&timestamp(frame).to_be_bytes());
    packet[8..12].copy_from_slice(&ssrc.to_be_bytes());
    packet[12..20].copy_from_slice(&[e0, e1, 0, ROW as u8, 0, row as u8, 0, 0]);
    packet[20..].copy_from_slice(picture(frame, row, noise));
}

fn lock(network: &Mutex<Network>) -> MutexGuard<'_, Network> {
    network.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resident memory in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Complains where a counter is not what it must be.
fn compare<T: PartialEq + Debug>(what: &str, is: T, must_be: T) -> bool {
    if is != must_be {
        eprintln!("{what}: is {is:?}, must be {must_be:?}");
    }
    is == must_be
}

fn main() -> Result<ExitCode, Error> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>().ok());
    let packets = arguments.next().flatten().unwrap_or(1_000_000);
    let seed = arguments.next().flatten().unwrap_or(7);
    let plan = FaultPlan { seed, ..FaultPlan::from_toml("plan", PLAN)? };

    let none = || Error::new(Kind::Internal, "the example's picture is none");
    let wire =
        WireFormat::new(Sampling::YCbCr422, Depth::D10, WIDTH, ROWS as u32, Scan::Progressive).ok_or_else(none)?;
    let layout = Layout::new(wire, Output::Wire).map_err(|_| none())?;
    let config = Config::new(wire, 96, Some(RATE)).with_legs(2, Class::A)?;
    let pool = FramePool::host(layout.clone(), config.open_frames() + 2)?;
    let colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
    let kernel = CpuKernel::new(Conversion { layout, colour }, None);

    let network = Arc::new(Mutex::new(Network::new(&plan, packets)));
    let (theirs, looks) = (network.clone(), network.clone());
    let ring = SplitRing::whole(Region::host(AREAS * BATCH * STRIDE)?);
    let fill = Box::new(move |ring: &mut SplitRing<Host>, area: usize, slots: &mut Vec<Slot>| {
        lock(&theirs).fill(ring, area, slots)
    });
    let memory = Memory::new(ring, AREAS, BATCH, Some(|| Tai(NOW.load(Relaxed))), fill);
    let deliver = Box::new(move |frame: Frame, _| lock(&looks).look(&frame));
    let depacketiser = Depacketiser::video(config);
    let clock = Some(MediaClock::VIDEO);
    let mut pipeline = Pipeline::new(memory, depacketiser, kernel, pool, Incomplete::Conceal, clock, deliver);

    let begun = Instant::now();
    let marks = [1, 50, 100].map(|percent| packets * percent / 100);
    let mut memory = Vec::new();
    loop {
        match pipeline.step() {
            Ok(_) => {}
            Err(RxError::End) => break,
            Err(RxError::Failed(error) | RxError::Gone(error)) => return Err(error),
        }
        if memory.len() < 2 && pipeline.rx().datagrams >= marks[memory.len()] {
            memory.push(resident());
        }
    }
    pipeline.finish(&mut Vec::new())?;
    memory.push(resident());
    let took = begun.elapsed().as_secs_f64();

    let mut network = lock(&network);
    let end = network.end;
    network.count(end);
    network.expected.restarts = (end - 1) / (RESTART * ROWS);
    let must_be = network.expected;
    let (counts, frames, rx) = (pipeline.depacketiser().counters(), pipeline.frames(), pipeline.rx());
    let is = |leg: gdmedia::stats::LegCounters| Leg {
        datagrams: leg.datagrams,
        received: leg.received,
        lost: leg.lost,
        duplicate: leg.duplicate,
        reordered: leg.reordered,
        used: leg.used,
        redundant: leg.redundant,
    };
    let mut right = true;
    for (number, (leg, must_be)) in pipeline.depacketiser().legs().into_iter().zip(must_be.legs).enumerate() {
        right &= compare(&format!("leg {number}"), is(leg), must_be);
        right &= compare(&format!("leg {number}, late and foreign"), (leg.late, leg.foreign), (0, 0));
    }
    let sum = |of: fn(&Leg) -> u64| must_be.legs.iter().map(of).sum::<u64>();
    right &= compare("datagrams", rx.datagrams, sum(|leg| leg.datagrams));
    right &= compare("starved, dropped by the kernel", (rx.starved, rx.kernel_dropped), (0, 0));
    right &= compare("received and lost", (counts.received, counts.lost), (must_be.received, must_be.lost));
    right &= compare("copies", counts.duplicate, sum(|leg| leg.duplicate));
    right &= compare("late", counts.late, 0);
    right &= compare("rejected", counts.rejected.total(), 0);
    right &= compare("restarts", counts.restarts, must_be.restarts);
    let closed = (must_be.complete, must_be.incomplete);
    right &= compare("frames complete and incomplete", (frames.complete, frames.incomplete), closed);
    right &= compare("octets missing", frames.missing_octets, must_be.missing_octets);
    right &=
        compare("frames acquiring, dropped, withheld", [frames.acquiring, frames.dropped, frames.withheld], [0; 3]);
    right &= compare("frames delivered", network.frames, must_be.complete + must_be.incomplete);
    let flat = memory.last() <= memory.first().map(|first| first + 1024).as_ref();
    right &= compare("memory is flat", flat, true);

    println!(
        "{} packets by two legs in {took:.1} s ({:.0} ns each), {:.0} s of stream, {} restarts: {} lost by leg 0, {} by leg 1, {} by \
         both; {} frames complete, {} incomplete; {memory:?} KiB resident at 1, 50 and 100 %; {}",
        rx.datagrams,
        took * 1e9 / rx.datagrams as f64,
        end as f64 / ROWS as f64 / f64::from(RATE.num),
        must_be.restarts,
        must_be.legs[0].lost,
        must_be.legs[1].lost,
        must_be.lost,
        must_be.complete,
        must_be.incomplete,
        if right { "every counter as it must be" } else { "WRONG" }
    );
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
