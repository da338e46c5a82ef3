//! Cards of the stand-in, and pipelines behind them.

use crate::library::{self, Control, Ways};
use crate::support::{RATE, Sent};
use gdmedia::depacketise::{Config, Depacketiser};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FramePool};
use gdmedia::kernel::{Colour, Conversion, CpuKernel, Kernel};
use gdmedia::mem::{Host, Region};
use gdmedia::pipeline::{Incomplete, Pipeline, Progress};
use gdmedia::plan::Missing;
use gdmedia::ring::{SLACK, Slot, SplitRing};
use gdmedia::rx::verbs::{Cut, Options};
use gdmedia::rx::{Memory, Receiver, RxError, Verbs};
use gdmedia::sdp::{Colorimetry, Leg, Range, SourceFilter, Tcs};
use gdmedia::stats::{FrameCounters, PacketCounters, RxCounters};
use gdmedia::time::Tai;
use gdmedia::wire::net::Route;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
pub const PORT: u16 = 5004;

/// A card behind the loopback interface, to which frames are brought by hand. They go to an address of its own.
pub struct Card {
    pub name: String,
    pub ip: Ipv4Addr,
    pub control: Control,
    sysfs: tempfile::TempDir,
}

impl Card {
    pub fn new() -> Self {
        Self::with(Ways::default())
    }
    pub fn with(ways: Ways) -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let [a, b] = number.to_be_bytes();
        let (name, sysfs) = (format!("mlx5_{number}"), tempfile::tempdir().unwrap());
        // The loopback interface has no address on the Ethernet.
        let ways = Ways { flags: ways.flags | library::ANY_MAC, ..ways };
        let control = Control::add(&name, None, "lo", sysfs.path(), ways);
        Card { name, ip: Ipv4Addr::new(127, 0x60 | a, b, 1), control, sysfs }
    }
    pub fn leg(&self) -> Leg {
        Leg { destination: self.ip.into(), port: PORT, sources: SourceFilter::Any, ttl: None, mid: None }
    }
    pub fn options(&self, cut: Cut, capacity: usize) -> Options {
        Options {
            interfaces: vec!["lo".into()],
            cut,
            capacity: Some(capacity),
            library: Some(library::path().into()),
            sysfs: self.sysfs.path().into(),
            ..Options::default()
        }
    }
    /// A receiver that has joined one leg.
    pub fn receiver(&self, options: &Options) -> Verbs<Host> {
        let mut receiver = Verbs::open(options, &[self.leg()], &()).unwrap();
        receiver.join(0, &self.leg()).unwrap();
        receiver
    }
    pub fn route(&self) -> Route {
        Route::new(SocketAddr::from(([127, 9, 9, 9], 5000)), SocketAddr::new(self.ip.into(), PORT)).unwrap()
    }
    /// A packet arrives; whether it was written somewhere.
    pub fn deliver_one(&self, octets: &[u8], stamp: u64) -> bool {
        self.bring(&frame(&self.route(), octets), stamp)
    }
    /// A frame arrives.
    pub fn bring(&self, frame: &[u8], stamp: u64) -> bool {
        let before = self.control.counts().delivered;
        self.control.inject(frame, stamp);
        self.control.counts().delivered > before
    }
    /// Packets arrive.
    pub fn deliver(&self, sent: &[Sent]) {
        for packet in sent {
            self.control.inject(&frame(&self.route(), &packet.octets[..packet.present]), 0);
        }
    }
}

pub fn frame(route: &Route, octets: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    route.emit(octets, &mut frame).unwrap();
    frame
}

/// All octets of a packet, from both planes.
pub fn octets<R: Receiver<Mem = Host> + ?Sized>(receiver: &R, slot: &Slot) -> Vec<u8> {
    let octets = receiver.ring().octets(slot, 0, slot.octets).unwrap();
    [&octets.first[..octets.first_len], &octets.rest[..octets.rest_len]].concat()
}

/// What one poll brings: legs and octets.
pub fn poll(receiver: &mut Verbs<Host>) -> Vec<Vec<u8>> {
    let lease = receiver.poll().unwrap();
    let all = lease.slots().iter().map(|slot| octets(receiver, slot)).collect();
    receiver.release(lease);
    all
}

/// A frame as it came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    pub number: u64,
    pub complete: bool,
    pub missing: Vec<Missing>,
    pub octets: Vec<u8>,
}

/// Whatever steps and has counted.
pub struct Played<R: Receiver, K: Kernel<R::Mem, Host>> {
    pub pipeline: Pipeline<R, Host, K>,
    shown: Arc<Mutex<Vec<Shown>>>,
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
    /// Until nothing is there.
    pub fn step(&mut self) {
        loop {
            match self.pipeline.step() {
                Ok(Progress::Busy) => {}
                Ok(Progress::Idle) | Err(RxError::End) => return,
                Err(RxError::Failed(error)) => panic!("{error}"),
            }
        }
    }
    pub fn finish(mut self) -> Outcome {
        let mut remarks = Vec::new();
        self.pipeline.finish(&mut remarks).unwrap();
        Outcome {
            packets: self.pipeline.depacketiser().counters(),
            frames: self.pipeline.frames(),
            rx: self.pipeline.rx(),
            shown: std::mem::take(&mut *self.shown.lock().unwrap()),
            remarks,
        }
    }
}

pub struct Outcome {
    pub packets: PacketCounters,
    pub frames: FrameCounters,
    pub rx: RxCounters,
    pub shown: Vec<Shown>,
    pub remarks: Vec<String>,
}

pub fn play(receiver: Verbs<Host>, wire: WireFormat) -> Played<Verbs<Host>, CpuKernel> {
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
    let mut played = Played::new(memory, wire, CpuKernel::new(conversion(wire), None));
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

/// Any octets, of any length up to so many.
pub fn any(dice: &mut Dice, most: u64) -> Vec<u8> {
    (0..dice.roll(most + 1)).map(|_| dice.roll(256) as u8).collect()
}
