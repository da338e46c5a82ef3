//! Pipelines with kernels that take their time: leases go back in order and not before, a full ring is no standstill, and a
//! kernel that fails hides nothing; the kernel ends before the ring that it reads.

#[path = "pipeline/overload.rs"]
mod overload;
mod support;

use gdmedia::depacketise::{Config, Depacketiser};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FrameBuf, FramePool};
use gdmedia::kernel::{Colour, Conversion, CpuKernel, Kernel, KernelError, Ticket};
use gdmedia::mem::{Host, Region};
use gdmedia::pipeline::{Finished, Incomplete, Pipeline, Progress};
use gdmedia::plan::{Missing, Placement};
use gdmedia::ring::{Lease, Slot, SplitRing};
use gdmedia::rx::{Caps, Memory, Receiver, RxError};
use gdmedia::sdp::{Colorimetry, Depth, Leg, Range, Sampling, Scan, Tcs};
use gdmedia::stats::RxCounters;
use gdmedia::time::Tai;
use std::sync::{Arc, Mutex};
use support::{EVEN, RATE, Sender, format, picture};

const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
const FRAMES: usize = 6;
const BATCH: usize = 8;
const STRIDE: usize = 1500;

/// What happened, in order.
type Log = Arc<Mutex<Vec<&'static str>>>;

/// A receiver that says what becomes of it.
struct Watched {
    inner: Memory<Host>,
    log: Log,
}

impl Receiver for Watched {
    type Mem = Host;

    fn ring(&self) -> &SplitRing<Host> {
        self.inner.ring()
    }
    fn poll(&mut self) -> Result<Lease, RxError> {
        self.inner.poll()
    }
    fn release(&mut self, lease: Lease) {
        self.log.lock().unwrap().push("lease");
        self.inner.release(lease);
    }
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }
    fn join(&mut self, leg: u8, what: &Leg) -> Result<(), gdmedia::Error> {
        self.inner.join(leg, what)
    }
    fn counters(&self) -> RxCounters {
        self.inner.counters()
    }
    fn finish(&mut self, remarks: &mut Vec<String>) -> Result<(), gdmedia::Error> {
        self.log.lock().unwrap().push("finished");
        self.inner.finish(remarks)
    }
    fn now(&self) -> Option<Tai> {
        self.inner.now()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.log.lock().unwrap().push("receiver");
    }
}

/// Does nothing before it is told to: when a frame is finished, or by a flush.
struct Lazy {
    inner: CpuKernel,
    /// Work that was taken, and that was done.
    taken: u64,
    done: u64,
    flushed: u64,
    /// Fails with this work.
    fails_at: u64,
    log: Log,
}

impl Drop for Lazy {
    fn drop(&mut self) {
        self.log.lock().unwrap().push("kernel");
    }
}

impl Lazy {
    fn new(conversion: Conversion, fails_at: u64, log: Log) -> Self {
        Lazy { inner: CpuKernel::new(conversion, None), taken: 0, done: 0, flushed: 0, fails_at, log }
    }
}

impl Kernel<Host, Host> for Lazy {
    fn apply(
        &mut self,
        ring: &SplitRing<Host>,
        slots: &[Slot],
        placements: &[Placement],
        frame: &mut FrameBuf<Host>,
    ) -> Result<Ticket, KernelError> {
        self.taken += 1;
        if self.taken >= self.fails_at {
            return Err(KernelError("lost".into()));
        }
        self.log.lock().unwrap().push("apply");
        self.inner.apply(ring, slots, placements, frame)?;
        Ok(Ticket(self.taken))
    }
    fn conceal(&mut self, _: &mut FrameBuf<Host>, _: &[Missing], _: Option<&Frame<Host>>) -> Result<(), KernelError> {
        self.taken += 1;
        if self.taken >= self.fails_at { Err(KernelError("lost".into())) } else { Ok(()) }
    }
    fn paint(&mut self, _: &mut FrameBuf<Host>, _: &[Missing]) -> Result<(), KernelError> {
        Ok(())
    }
    fn finish(&mut self, frame: FrameBuf<Host>) -> Result<(Frame<Host>, Ticket), KernelError> {
        self.done = self.taken;
        Ok((frame.seal(), Ticket(self.taken)))
    }
    fn flush(&mut self) -> Result<(), KernelError> {
        self.flushed += 1;
        self.done = self.taken;
        Ok(())
    }
    fn done(&mut self, ticket: Ticket) -> Result<bool, KernelError> {
        Ok(ticket.0 <= self.done)
    }
    fn name(&self) -> &'static str {
        "lazy"
    }
}

type Pictures = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

/// A pipeline over a ring of so many leases, and where its frames go.
fn pipeline(areas: usize, fails_at: u64) -> (Pipeline<Watched, Host, Lazy>, Pictures, WireFormat) {
    holed(areas, fails_at, 0..0)
}

/// The same without some of the packets.
fn holed(
    areas: usize,
    fails_at: u64,
    hole: std::ops::Range<usize>,
) -> (Pipeline<Watched, Host, Lazy>, Pictures, WireFormat) {
    let wire = format(Sampling::YCbCr422, Depth::D10, 640, 90, Scan::Progressive);
    let mut sent = Sender::plain(wire, EVEN).frames(FRAMES);
    sent.drain(hole);
    let mut sent = sent.into_iter().peekable();
    let ring = SplitRing::whole(Region::host(areas * BATCH * STRIDE + 64).unwrap());
    let fill = move |ring: &mut SplitRing<Host>, area: usize, slots: &mut Vec<Slot>| {
        if sent.peek().is_none() {
            return Err(RxError::End);
        }
        for (n, packet) in sent.by_ref().take(BATCH).enumerate() {
            let at = (area * BATCH + n) * STRIDE;
            let octets = packet.octets.len() as u16;
            ring.head_plane_mut().as_mut_slice()[at..at + packet.octets.len()].copy_from_slice(&packet.octets);
            let arrival = packet.arrival;
            let slot =
                Slot { head_at: at as u32, body_at: 0, head: octets, octets, wire_octets: octets, leg: 0, arrival };
            slots.push(slot);
        }
        Ok(true)
    };
    // Long after all arrivals: what waits behind a full ring is not late.
    let clock = || Tai(u64::MAX / 4);
    let log = Log::default();
    let inner = Memory::new(ring, areas, BATCH, Some(clock as fn() -> Tai), Box::new(fill));
    let memory = Watched { inner, log: log.clone() };
    let layout = Layout::new(wire, Output::Wire).unwrap();
    let pool = FramePool::host(layout.clone(), FRAMES + 2).unwrap();
    let pictures: Pictures = Arc::default();
    let into = pictures.clone();
    let deliver = Box::new(move |frame: Frame, _| {
        into.lock().unwrap().push((frame.meta().number, frame.octets().to_vec()));
    });
    let kernel = Lazy::new(Conversion { layout, colour: COLOUR }, fails_at, log);
    let depacketiser = Depacketiser::video(Config::new(wire, 96, Some(RATE)));
    (Pipeline::new(memory, depacketiser, kernel, pool, Incomplete::Conceal, None, deliver), pictures, wire)
}

#[test]
fn a_ring_full_of_work_that_was_not_begun_is_no_standstill() {
    // A frame has 180 packets, 23 leases; the ring holds 4.
    let (mut pipeline, pictures, wire) = pipeline(4, u64::MAX);
    let finished = Arc::new(Mutex::new(Vec::new()));
    let into = finished.clone();
    pipeline.observe(Box::new(move |f: Finished| into.lock().unwrap().push(f.number)));
    let mut idle = 0;
    loop {
        match pipeline.step() {
            Ok(Progress::Idle) => idle += 1,
            Ok(Progress::Busy) => {}
            Err(RxError::End) => break,
            Err(RxError::Failed(error) | RxError::Gone(error)) => panic!("{error}"),
        }
        assert!(idle < 10_000, "nothing goes on");
    }
    pipeline.finish(&mut Vec::new()).unwrap();
    assert!(idle > 0, "the ring was never full");
    let pictures = pictures.lock().unwrap();
    let numbers: Vec<u64> = pictures.iter().map(|p| p.0).collect();
    assert_eq!(*finished.lock().unwrap(), numbers, "each is finished once, in order");
    let counts = pipeline.frames();
    assert_eq!((counts.complete, counts.incomplete, counts.dropped), (FRAMES as u64, 0, 0), "{counts:?}");
    for (number, octets) in &*pictures {
        let sent = picture(wire, FRAMES - pictures.len() + *number as usize);
        assert!(octets[..sent.len()] == sent, "frame {number}");
    }
}

#[test]
fn a_kernel_that_fails_leaves_every_frame_counted() {
    let (mut pipeline, pictures, _) = pipeline(64, 40);
    let error = loop {
        match pipeline.step() {
            Ok(_) => {}
            Err(RxError::Failed(error) | RxError::Gone(error)) => break error,
            Err(RxError::End) => panic!("the kernel never failed"),
        }
    };
    assert!(error.to_string().contains("the kernel cannot go on") && pipeline.is_broken(), "{error}");
    // It is not asked again.
    pipeline.finish(&mut Vec::new()).unwrap();
    let counts = pipeline.frames();
    let delivered = pictures.lock().unwrap().len() as u64;
    assert_eq!(delivered + counts.dropped + counts.withheld, counts.complete + counts.incomplete, "{counts:?}");
    assert!(delivered >= 1);
}

/// Steps until so much work was taken: with 30 in the second frame.
fn step_to(pipeline: &mut Pipeline<Watched, Host, Lazy>, work: usize) -> Log {
    let log = pipeline.receiver().log.clone();
    while log.lock().unwrap().iter().filter(|&&what| what == "apply").count() < work {
        pipeline.step().unwrap();
    }
    log
}

#[test]
fn the_receiver_finishes_although_the_kernel_fails_with_the_last_frame() {
    // Two frames of 352 packets together: 44 leases, one of which has packets of both.
    let (mut pipeline, pictures, _) = holed(64, 46, 200..208);
    let log = step_to(&mut pipeline, 45);
    let error = pipeline.finish(&mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("the kernel cannot go on") && pipeline.is_broken(), "{error}");
    assert!(log.lock().unwrap().contains(&"finished"), "what it recorded is lost");
    let counts = pipeline.frames();
    assert_eq!((pictures.lock().unwrap().len(), counts.dropped), (1, 1), "{counts:?}");
    assert_eq!((counts.complete, counts.incomplete), (1, 1));
}

#[test]
fn the_kernel_ends_before_the_ring_that_it_reads() {
    let ends = |log: Log| {
        let log = log.lock().unwrap();
        let of = |what| log.iter().position(|&w| w == what).unwrap();
        (of("kernel"), of("receiver"), log.len() - log.iter().rev().position(|&w| w == "apply").unwrap())
    };
    let (mut dropped, ..) = pipeline(64, u64::MAX);
    let log = step_to(&mut dropped, 30);
    drop(dropped);
    let (kernel, receiver, _) = ends(log);
    assert!(kernel < receiver);

    // Leases of work that was not done go back when nothing reads them any more.
    let (mut taken, ..) = pipeline(64, u64::MAX);
    let log = step_to(&mut taken, 30);
    drop(taken.into_receivers());
    let (kernel, receiver, after) = ends(log.clone());
    let log = log.lock().unwrap();
    assert!(!log[after..kernel].contains(&"lease"), "{:?}", &log[after..]);
    assert!(log[kernel..receiver].contains(&"lease"), "{:?}", &log[after..]);
}
