//! Cards of the stand-in, and pipelines behind them.

use crate::support::{RATE, Sent};
use gdmedia::depacketise::{Config, Depacketiser};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FramePool};
use gdmedia::kernel::{Colour, Conversion, CpuKernel, Kernel};
use gdmedia::mem::{Host, Region};
use gdmedia::pipeline::{Incomplete, Pipeline, Progress};
use gdmedia::plan::Missing;
use gdmedia::ring::{SLACK, Slot, SplitRing};
use gdmedia::rx::rivermax::library::{Library, Status, stand_in};
use gdmedia::rx::rivermax::{Options, Order, Split};
use gdmedia::rx::{Memory, Receiver, Rivermax, RxError};
use gdmedia::sdp::{Colorimetry, Leg, Range, SourceFilter, Tcs};
use gdmedia::stats::{FrameCounters, PacketCounters, RxCounters};
use gdmedia::time::Tai;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
pub const PORT: u16 = 5004;

/// The library counts for the whole process: tests take turns, and each ends with nothing registered and nothing misused.
pub struct Alone(#[allow(dead_code)] MutexGuard<'static, ()>);

pub fn alone() -> Alone {
    static TURN: Mutex<()> = Mutex::new(());
    Alone(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Drop for Alone {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!((controls().registered(), controls().misuse()), (0, 0), "registered memory, misused calls");
        }
    }
}

pub fn controls() -> stand_in::StandIn {
    Library::load(None).unwrap().stand_in()
}

/// A card with an address of the loopback network for itself. Packets go to that address.
#[derive(Clone, Copy, Debug)]
pub struct Card {
    pub ip: Ipv4Addr,
}

impl Card {
    pub fn new() -> Self {
        Self::with(stand_in::Device::default())
    }
    /// One that has these ways; packets are always brought by hand.
    pub fn with(device: stand_in::Device) -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let [a, b] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let card = Card { ip: Ipv4Addr::new(127, 0x20 | a, b, 1) };
        controls().set_device(card.ip, &stand_in::Device { manual: true, ..device });
        card
    }
    pub fn leg(self) -> Leg {
        Leg { destination: self.ip.into(), port: PORT, sources: SourceFilter::Any, ttl: None, mid: None }
    }
    pub fn packet(self, data: &[u8]) -> stand_in::Packet<'_> {
        let source = SocketAddrV4::new(Ipv4Addr::new(127, 9, 9, 9), 5000);
        stand_in::Packet { source, destination: SocketAddrV4::new(self.ip, PORT), time: 0, data }
    }
    /// Packets arrive.
    pub fn deliver(self, sent: &[Sent]) {
        for packet in sent {
            controls().deliver(self.ip, &[self.packet(&packet.octets[..packet.present])]);
        }
    }
    pub fn fail(self, call: &str, status: Status, times: usize) {
        controls().fail(Some(self.ip), call, status, times);
    }
}

/// Options for these cards: one a leg.
pub fn options(cards: &[Card], split: Split, order: Order, capacity: usize) -> Options {
    Options {
        interfaces: cards.iter().map(|card| card.ip.to_string()).collect(),
        split,
        order,
        capacity: Some(capacity),
        probe: Duration::from_millis(20),
        ..Options::default()
    }
}

/// A receiver that has joined.
pub fn receiver(cards: &[Card], options: &Options) -> Rivermax<Host> {
    let legs: Vec<Leg> = cards.iter().map(|card| card.leg()).collect();
    let mut receiver = Rivermax::open(options, &legs, &()).unwrap();
    receiver.join_all(&legs).unwrap();
    receiver
}

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
        self.pipeline.finish(&mut Vec::new()).unwrap();
        Outcome {
            packets: self.pipeline.depacketiser().counters(),
            frames: self.pipeline.frames(),
            rx: self.pipeline.rx(),
            shown: std::mem::take(&mut *self.shown.lock().unwrap()),
        }
    }
}

pub struct Outcome {
    pub packets: PacketCounters,
    pub frames: FrameCounters,
    pub rx: RxCounters,
    pub shown: Vec<Shown>,
}

pub fn play(receiver: Rivermax<Host>, wire: WireFormat) -> Played<Rivermax<Host>, CpuKernel> {
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
            let slot = Slot {
                head_at: at as u32,
                body_at: 0,
                head: octets,
                octets,
                wire_octets: octets,
                leg: 0,
                arrival: now(),
            };
            slots.push(slot);
        }
        Ok(true)
    };
    let ring = SplitRing::whole(Region::host(4 * BATCH * STRIDE + SLACK).unwrap());
    let memory: Memory<Host> = Memory::new(ring, 4, BATCH, None, Box::new(fill));
    let mut played = Played::new(memory, wire, CpuKernel::new(conversion(wire), None));
    played.step();
    played.finish()
}

fn now() -> Tai {
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
