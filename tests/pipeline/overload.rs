//! A kernel that is slower than the stream: whole frames are dropped and counted, and no packet is lost for it.

use super::support::{EVEN, RATE, Sender, Sent, format, picture};
use super::{COLOUR, STRIDE};
use gdmedia::depacketise::{Config, Depacketiser};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FrameBuf, FramePool};
use gdmedia::kernel::{Conversion, CpuKernel, Kernel, KernelError, Ticket};
use gdmedia::mem::{Host, Region};
use gdmedia::pipeline::{Incomplete, Pipeline};
use gdmedia::plan::{Missing, Placement};
use gdmedia::ring::{Lease, Slot, SplitRing};
use gdmedia::rx::socket::{Options, Socket};
use gdmedia::rx::{Caps, Memory, Receiver, RxError};
use gdmedia::sdp::{Depth, Leg, Sampling, Scan, SourceFilter};
use gdmedia::stats::{FrameCounters, PacketCounters, RxCounters};
use gdmedia::time::{Tai, frame_nanos};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const FRAMES: usize = 90;
const BATCH: usize = 16;
/// Packets that wait for the pipeline at most.
const ROOM: usize = 600;

thread_local! {
    /// The time: it goes on with what is done.
    static NOW: Cell<u64> = const { Cell::new(0) };
    static QUEUE: RefCell<Queue> = RefCell::default();
}

fn now() -> Tai {
    Tai(NOW.get())
}
fn pass(ns: u64) {
    NOW.set(NOW.get() + ns);
}

/// What a socket is: packets come at their time, and wait while there is room.
#[derive(Default)]
struct Queue {
    coming: VecDeque<Sent>,
    waiting: VecDeque<Sent>,
    dropped: u64,
}

struct Network {
    inner: Memory<Host>,
    live: bool,
    caps: Caps,
}

impl Network {
    /// `stamps`: arrivals are those of the packets, not of the time when they are read.
    fn new(sent: Vec<Sent>, live: bool, stamps: bool) -> Self {
        NOW.set(sent[0].arrival.0);
        QUEUE.set(Queue { coming: sent.into(), ..Queue::default() });
        let ring = SplitRing::whole(Region::host(BATCH * STRIDE + 64).unwrap());
        let fill = move |ring: &mut SplitRing<Host>, _: usize, slots: &mut Vec<Slot>| {
            QUEUE.with_borrow_mut(|queue| {
                while queue.coming.front().is_some_and(|packet| packet.arrival <= now()) {
                    let packet = queue.coming.pop_front().unwrap();
                    if queue.waiting.len() < ROOM {
                        queue.waiting.push_back(packet);
                    } else {
                        queue.dropped += 1;
                    }
                }
                for n in 0..BATCH.min(queue.waiting.len()) {
                    let packet = queue.waiting.pop_front().unwrap();
                    let (at, octets) = (n * STRIDE, packet.octets.len() as u16);
                    ring.head_plane_mut().as_mut_slice()[at..at + packet.octets.len()].copy_from_slice(&packet.octets);
                    slots.push(Slot {
                        head_at: at as u32,
                        body_at: 0,
                        head: octets,
                        octets,
                        wire_octets: octets,
                        leg: 0,
                        arrival: if stamps { packet.arrival } else { now() },
                    });
                    pass(500);
                }
                if slots.is_empty() && queue.coming.is_empty() {
                    return Err(RxError::End);
                }
                Ok(true)
            })
        };
        let inner = Memory::new(ring, 1, BATCH, Some(now as fn() -> Tai), Box::new(fill));
        let caps = Caps { buffer_octets: (ROOM * 1200) as u64, ..inner.caps().clone() };
        Network { inner, live, caps }
    }
}

impl Receiver for Network {
    type Mem = Host;

    fn ring(&self) -> &SplitRing<Host> {
        self.inner.ring()
    }
    fn poll(&mut self) -> Result<Lease, RxError> {
        self.inner.poll().inspect(|lease| {
            if lease.is_empty() {
                pass(1_000_000);
            }
        })
    }
    fn release(&mut self, lease: Lease) {
        self.inner.release(lease);
    }
    fn caps(&self) -> &Caps {
        &self.caps
    }
    fn join(&mut self, leg: u8, what: &Leg) -> Result<(), gdmedia::Error> {
        self.inner.join(leg, what)
    }
    fn counters(&self) -> RxCounters {
        RxCounters { kernel_dropped: QUEUE.with_borrow(|queue| queue.dropped), ..self.inner.counters() }
    }
    fn now(&self) -> Option<Tai> {
        self.live.then(now)
    }
}

/// Takes its time for every placement.
struct Slow {
    inner: CpuKernel,
    takes: Box<dyn FnMut() + Send>,
}

impl Kernel<Host, Host> for Slow {
    fn apply(
        &mut self,
        ring: &SplitRing<Host>,
        slots: &[Slot],
        placements: &[Placement],
        frame: &mut FrameBuf<Host>,
    ) -> Result<Ticket, KernelError> {
        placements.iter().for_each(|_| (self.takes)());
        self.inner.apply(ring, slots, placements, frame)
    }
    fn conceal(
        &mut self,
        frame: &mut FrameBuf<Host>,
        missing: &[Missing],
        previous: Option<&Frame<Host>>,
    ) -> Result<(), KernelError> {
        Kernel::<Host, Host>::conceal(&mut self.inner, frame, missing, previous)
    }
    fn paint(&mut self, frame: &mut FrameBuf<Host>, missing: &[Missing]) -> Result<(), KernelError> {
        Kernel::<Host, Host>::paint(&mut self.inner, frame, missing)
    }
    fn finish(&mut self, frame: FrameBuf<Host>) -> Result<(Frame<Host>, Ticket), KernelError> {
        Kernel::<Host, Host>::finish(&mut self.inner, frame)
    }
    fn done(&mut self, ticket: Ticket) -> Result<bool, KernelError> {
        Kernel::<Host, Host>::done(&mut self.inner, ticket)
    }
    fn name(&self) -> &'static str {
        "slow"
    }
}

/// Time for each packet when a kernel takes `share` times the time from frame to frame.
fn each(share: f64, packets: usize) -> u64 {
    (frame_nanos(RATE) as f64 * share / packets as f64) as u64
}

fn wire() -> WireFormat {
    format(Sampling::YCbCr422, Depth::D10, 640, 90, Scan::Progressive)
}

/// What became of a stream.
struct Ran {
    sent: u64,
    packets: PacketCounters,
    frames: FrameCounters,
    kernel_dropped: u64,
    /// Those that were delivered: complete or not, and whether they hold what was sent.
    delivered: Vec<(bool, bool)>,
}

type Delivered = Arc<Mutex<Vec<(bool, bool)>>>;

/// A pipeline over a receiver, with so many frames in its pool, that sheds or not.
fn pipeline<R: Receiver<Mem = Host>>(
    receiver: R,
    takes: Box<dyn FnMut() + Send>,
    sheds: bool,
    first: u32,
) -> (Pipeline<R, Host, Slow>, Delivered) {
    let layout = Layout::new(wire(), Output::Wire).unwrap();
    let pool = FramePool::host(layout.clone(), 8).unwrap();
    let delivered = Delivered::default();
    let into = delivered.clone();
    let ticks = u64::from(gdmedia::time::VIDEO_CLOCK) * u64::from(RATE.den) / u64::from(RATE.num);
    let deliver = Box::new(move |frame: Frame, _| {
        // Timestamps alternate between two steps: which frame it is, is the nearest.
        let n = (u64::from(frame.meta().timestamp.wrapping_sub(first)) + ticks / 2) / ticks;
        let whole = frame.octets().starts_with(&picture(wire(), n as usize));
        into.lock().unwrap().push((frame.meta().complete, whole));
    });
    let kernel = Slow { inner: CpuKernel::new(Conversion { layout, colour: COLOUR }, None), takes };
    let depacketiser = Depacketiser::video(Config::new(wire(), 96, Some(RATE)));
    let mut pipeline = Pipeline::new(receiver, depacketiser, kernel, pool, Incomplete::Show, None, deliver);
    if sheds {
        pipeline.shed(Duration::from_nanos(frame_nanos(RATE)));
    }
    (pipeline, delivered)
}

/// A stream through a kernel that takes `takes` for each packet, in virtual time.
fn run(sheds: bool, live: bool, takes: Box<dyn FnMut() + Send>) -> Ran {
    run_stamped(sheds, live, true, takes)
}

fn run_stamped(sheds: bool, live: bool, stamps: bool, takes: Box<dyn FnMut() + Send>) -> Ran {
    let mut sender = Sender::plain(wire(), EVEN);
    let first = sender.timestamps(0)[0];
    let sent = sender.frames(FRAMES);
    let count = sent.len() as u64;
    let (mut pipeline, delivered) = pipeline(Network::new(sent, live, stamps), takes, sheds, first);
    pipeline.run_to_end().unwrap();
    let delivered = delivered.lock().unwrap().clone();
    Ran {
        sent: count,
        packets: pipeline.depacketiser().counters(),
        frames: pipeline.frames(),
        kernel_dropped: pipeline.rx().kernel_dropped,
        delivered,
    }
}

fn slower(share: f64) -> Box<dyn FnMut() + Send> {
    let each = each(share, 180);
    Box::new(move || pass(each))
}

#[test]
fn without_shedding_packets_are_lost_and_frames_torn() {
    let ran = run(false, true, slower(1.5));
    assert!(ran.kernel_dropped > 1000, "{}", ran.kernel_dropped);
    assert!(ran.frames.incomplete > 10, "{:?}", ran.frames);
}

#[test]
fn a_slow_kernel_costs_whole_frames_and_no_packet() {
    for share in [1.1, 1.5, 2.0] {
        let ran = run(true, true, slower(share));
        let (packets, frames) = (ran.packets, ran.frames);
        assert_eq!((ran.kernel_dropped, packets.lost, packets.received), (0, 0, ran.sent), "{share}: {frames:?}");
        assert_eq!((frames.incomplete, frames.complete + frames.acquiring), (0, FRAMES as u64), "{share}");
        assert!(frames.shed > 0 && frames.dropped == frames.shed, "{share}: {frames:?}");
        assert_eq!(ran.delivered.len() as u64 + frames.shed, frames.complete, "{share}");
        assert!(ran.delivered.iter().all(|d| *d == (true, true)), "{share}: what is delivered is whole and right");
        // As many as the kernel can do, but for what the packets that wait in the end are worth.
        let able = FRAMES as f64 / share;
        assert!(ran.delivered.len() as f64 > able * 0.85, "{share}: {} of {able}", ran.delivered.len());
    }
}

#[test]
fn packets_that_are_stamped_when_they_are_read_show_it_by_full_batches() {
    let ran = run_stamped(true, true, false, slower(1.5));
    assert_eq!((ran.kernel_dropped, ran.packets.lost, ran.frames.incomplete), (0, 0, 0), "{:?}", ran.frames);
    assert!(ran.frames.shed > 0 && ran.delivered.iter().all(|d| *d == (true, true)), "{:?}", ran.frames);
    let fast = run_stamped(true, true, false, slower(0.6));
    assert_eq!((fast.packets.lost, fast.frames.dropped), (0, 0), "{:?}", fast.frames);
}

#[test]
fn a_kernel_that_is_fast_enough_or_held_up_once_sheds_nothing() {
    let each = each(0.5, 180);
    let mut taken = 0;
    let takes = Box::new(move || {
        taken += 1;
        // The machine stands still for 60 ms.
        pass(if taken == 5000 { 60_000_000 } else { each });
    });
    let ran = run(true, true, takes);
    assert_eq!((ran.kernel_dropped, ran.packets.lost, ran.frames.dropped), (0, 0, 0), "{:?}", ran.frames);
}

#[test]
fn captures_are_never_shed() {
    let ran = run(true, false, slower(1.5));
    assert_eq!((ran.frames.shed, ran.frames.dropped), (0, 0));
}

#[test]
fn frames_that_find_no_memory_are_counted_apart() {
    let mut sender = Sender::plain(wire(), EVEN);
    let sent = sender.frames(6);
    let layout = Layout::new(wire(), Output::Wire).unwrap();
    let pool = FramePool::host(layout.clone(), 2).unwrap();
    // A sink that keeps all it gets.
    let kept = Arc::new(Mutex::new(Vec::new()));
    let into = kept.clone();
    let deliver = Box::new(move |frame: Frame, _| into.lock().unwrap().push(frame));
    let kernel = CpuKernel::new(Conversion { layout, colour: COLOUR }, None);
    let depacketiser = Depacketiser::video(Config::new(wire(), 96, Some(RATE)));
    let mut pipeline =
        Pipeline::new(Network::new(sent, true, true), depacketiser, kernel, pool, Incomplete::Drop, None, deliver);
    pipeline.shed(Duration::from_nanos(frame_nanos(RATE)));
    pipeline.run_to_end().unwrap();
    let frames = pipeline.frames();
    assert_eq!((frames.complete, frames.dropped, frames.no_memory, frames.shed), (6, 4, 4, 0), "{frames:?}");
    assert_eq!(kept.lock().unwrap().len(), 2);
}

/// The same through a socket of this machine, at full length: run by hand with `--ignored`, since it takes 20 s and a
/// machine that is otherwise idle.
#[test]
#[ignore = "needs an idle machine"]
fn through_a_real_socket() {
    let mut before = u64::MAX;
    for sheds in [false, true] {
        let there = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let leg = Leg { destination: there.ip(), port: there.port(), sources: SourceFilter::Any, ttl: None, mid: None };
        let mut socket = Socket::open(Options { buffer_octets: 1 << 20, gro: false, ..Options::default() }).unwrap();
        socket.join(0, &leg).unwrap();
        let mut sender = Sender::plain(wire(), EVEN);
        let first = sender.timestamps(0)[0];
        let each = Duration::from_nanos(each(1.5, 180));
        let takes = Box::new(move || {
            let begun = Instant::now();
            while begun.elapsed() < each {
                std::hint::spin_loop();
            }
        });
        let (mut pipeline, delivered) = pipeline(socket, takes, sheds, first);
        let sent = sender.frames(300);
        let count = sent.len();
        let from = std::thread::spawn(move || {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let (begun, zero) = (Instant::now(), sent[0].arrival.0);
            for packet in sent {
                let due = Duration::from_nanos(packet.arrival.0 - zero);
                while let Some(left) = due.checked_sub(begun.elapsed()) {
                    std::thread::sleep(left.min(Duration::from_millis(1)));
                }
                socket.send_to(&packet.octets, there).unwrap();
            }
        });
        let mut last = Instant::now();
        while !from.is_finished() || last.elapsed() < Duration::from_millis(300) {
            if pipeline.step().unwrap() == gdmedia::pipeline::Progress::Busy {
                last = Instant::now();
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        from.join().unwrap();
        pipeline.finish(&mut Vec::new()).unwrap();
        let (rx, packets, frames) = (pipeline.rx(), pipeline.depacketiser().counters(), pipeline.frames());
        let whole = delivered.lock().unwrap().iter().filter(|d| d.0).count();
        println!(
            "shedding {sheds}: sent {count}, received {}, lost {}, dropped by the socket {}; frames: {whole} delivered whole, {} incomplete, {} shed",
            packets.received, packets.lost, rx.kernel_dropped, frames.incomplete, frames.shed
        );
        // What is dropped behind the last packet that is read cannot be known of.
        let known = packets.received + packets.lost;
        assert!(if sheds { known == count as u64 } else { known <= count as u64 });
        assert_eq!(sheds, frames.shed > 0);
        // None in a build for speed on a machine that has nothing else to do.
        assert!(rx.kernel_dropped < before / 20);
        before = rx.kernel_dropped;
    }
}
