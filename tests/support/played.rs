//! Pipelines of a test, stepped by hand, and the frames that come out of them.
#![allow(dead_code)]

use crate::support::{RATE, Sent};
use gdmedia::depacketise::{Config, Depacketiser};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FramePool};
use gdmedia::kernel::{Colour, Conversion, CpuKernel, Kernel};
use gdmedia::mem::{Host, Region, Space};
use gdmedia::pipeline::{Incomplete, Pipeline, Progress};
use gdmedia::plan::Missing;
use gdmedia::ring::{SLACK, Slot, SplitRing};
use gdmedia::rx::{Memory, Receiver, RxError};
use gdmedia::sdp::{Colorimetry, Range, Tcs};
use gdmedia::stats::{FrameCounters, PacketCounters, RxCounters};
use gdmedia::time::Tai;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };

/// A frame as it came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub number: u64,
    pub complete: bool,
    pub torn: bool,
    pub missing: Vec<Missing>,
    pub octets: Vec<u8>,
}

/// Whatever steps and has counted.
pub struct Played<R: Receiver, K: Kernel<R::Mem, F>, F: Space = Host> {
    pub pipeline: Pipeline<R, F, K>,
    pub shown: Arc<Mutex<Vec<Shown>>>,
}

pub fn conversion(wire: WireFormat) -> Conversion {
    Conversion { layout: Layout::new(wire, Output::Wire).unwrap(), colour: COLOUR }
}

/// Frames are not closed by time: a test may be held up.
pub fn depacketiser(wire: WireFormat) -> Depacketiser {
    Depacketiser::video(Config { idle: Duration::from_secs(3600), ..Config::new(wire, 96, Some(RATE)) })
}

pub fn show(frame: &Frame<Host>) -> Shown {
    let meta = frame.meta();
    let rows = frame.layout().planes.iter().enumerate().flat_map(|(p, plane)| (0..plane.rows).map(move |row| (p, row)));
    Shown {
        number: meta.number,
        complete: meta.complete,
        torn: meta.torn,
        missing: meta.missing.clone(),
        octets: rows.flat_map(|(plane, row)| frame.row(plane, row).to_vec()).collect(),
    }
}

impl<R: Receiver, K: Kernel<R::Mem, Host>> Played<R, K> {
    pub fn new(receiver: R, wire: WireFormat, kernel: K) -> Self {
        let shown = Arc::new(Mutex::new(Vec::new()));
        let into = shown.clone();
        let deliver = Box::new(move |frame: Frame<Host>, _| into.lock().unwrap().push(show(&frame)));
        let pool = FramePool::host(conversion(wire).layout, 8).unwrap();
        let pipeline = Pipeline::new(receiver, depacketiser(wire), kernel, pool, Incomplete::Show, None, deliver);
        Played { pipeline, shown }
    }
}

impl<R: Receiver, K: Kernel<R::Mem, F>, F: Space> Played<R, K, F> {
    /// Until nothing is there.
    pub fn step(&mut self) {
        loop {
            match self.pipeline.step() {
                Ok(Progress::Busy) => {}
                Ok(Progress::Idle) | Err(RxError::End) => return,
                Err(RxError::Failed(error) | RxError::Gone(error)) => panic!("{error}"),
            }
        }
    }
    pub fn finish(mut self) -> Outcome {
        let mut remarks = Vec::new();
        self.pipeline.finish(&mut remarks).unwrap();
        let (packets, frames) = (self.pipeline.depacketiser().counters(), self.pipeline.frames());
        let rx = self.pipeline.rx();
        // Frames of a GPU have all come back then.
        drop(self.pipeline);
        let shown = std::mem::take(&mut *self.shown.lock().unwrap());
        Outcome { packets, frames, rx, shown, remarks }
    }
}

pub struct Outcome {
    pub packets: PacketCounters,
    pub frames: FrameCounters,
    pub rx: RxCounters,
    pub shown: Vec<Shown>,
    pub remarks: Vec<String>,
}

impl Outcome {
    /// The same frames, octet for octet, and the same counts of them.
    pub fn has_frames_of(&self, expected: &Outcome, what: &str) {
        assert_eq!(self.frames, expected.frames, "{what}");
        assert_eq!(self.shown.len(), expected.shown.len(), "{what}");
        for (got, expected) in self.shown.iter().zip(&expected.shown) {
            let of = |shown: &Shown| (shown.number, shown.complete, shown.missing.clone());
            assert_eq!(of(got), of(expected), "{what}");
            let wrong = got.octets.iter().zip(&expected.octets).position(|(a, b)| a != b);
            assert_eq!((wrong, got.octets.len()), (None, expected.octets.len()), "{what} frame {}", got.number);
        }
    }
}

/// On the CPU.
pub fn play<R: Receiver<Mem = Host>>(receiver: R, wire: WireFormat) -> Played<R, CpuKernel> {
    Played::new(receiver, wire, CpuKernel::new(conversion(wire), None))
}

/// The same packets by a ring of ordinary memory: what sockets make of them.
pub fn reference(sent: &[Sent], wire: WireFormat) -> Outcome {
    const STRIDE: usize = 1600;
    const BATCH: usize = 32;
    let mut left = Vec::from(sent).into_iter().peekable();
    let fill = move |ring: &mut SplitRing<Host>, area: usize, slots: &mut Vec<Slot>| {
        if left.peek().is_none() {
            return Err(RxError::End);
        }
        let memory = ring.head_plane_mut().as_mut_slice();
        for (n, packet) in left.by_ref().take(BATCH).enumerate() {
            let at = (area * BATCH + n) * STRIDE;
            memory[at..at + packet.present].copy_from_slice(&packet.octets[..packet.present]);
            let octets = packet.present as u16;
            let (head_at, arrival) = (at as u32, now());
            slots.push(Slot { head_at, body_at: 0, head: octets, octets, wire_octets: octets, leg: 0, arrival });
        }
        Ok(true)
    };
    let ring = SplitRing::whole(Region::host(4 * BATCH * STRIDE + SLACK).unwrap());
    let memory: Memory<Host> = Memory::new(ring, 4, BATCH, None, Box::new(fill));
    let mut played = play(memory, wire);
    played.step();
    played.finish()
}

pub fn now() -> Tai {
    let utc = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Tai(utc.as_nanos() as u64 + 37_000_000_000)
}

/// Splitmix: the same seed, the same packets.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
    pub fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }
}
