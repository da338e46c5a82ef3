//! Stages one after the other, and all at once: receive (octets into the ring, and what the CPU decides about each
//! packet), copy to the GPU, unpack, read back.

use super::Args;
use super::synthetic::{Flow, Packets, Shape, WHOLE, conversion, depacketiser, flow, nobody, receiver, registered};
use gdmedia::format::Output;
use gdmedia::frame::{Frame, FrameBuf, FramePool};
use gdmedia::gpu::{Gpu, Stream};
use gdmedia::kernel::cuda::{Options, Schedule, Transfer};
use gdmedia::kernel::{Kernel, KernelError, Ticket};
use gdmedia::mem::{Device, Host, Pinned, Region};
use gdmedia::pipeline::{Deliver, Incomplete, Pipeline};
use gdmedia::plan::{Missing, Placement};
use gdmedia::ring::{Slot, SplitRing};
use gdmedia::sink::{Download, SinkQueue};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const OUTPUT: Output = Output::P210;
const SHAPE: Shape = Shape { copy: true, ..WHOLE };

pub fn run(gpu: &Arc<Gpu>, args: &Args) {
    let packets = Arc::new(Packets::new());
    if args.streams > 1 {
        return many(gpu, &packets, args);
    }
    let frames = args.frames;
    let receive = stage_receive(gpu, &packets, frames);
    let (copy, unpack, read) = stages_gpu(gpu, &packets, frames);
    let serial = serial(gpu, &packets, frames);
    let overlapped = overlapped(gpu, &packets, frames);
    let slowest = receive.max(copy).max(unpack).max(read);
    println!("\n2160p 4:2:2 10 bit to {}, {frames} frames, us a frame\n", OUTPUT.word());
    println!("| what | us | of the slowest stage's throughput |\n| --- | --- | --- |");
    for (what, us) in [
        ("receive alone (octets into the ring, depacketise)", receive),
        ("copy to the GPU alone", copy),
        ("unpack alone", unpack),
        ("read back alone", read),
        ("all, one after the other", serial),
        ("all, overlapped", overlapped),
    ] {
        println!("| {what} | {us:.0} | {:.0} % |", 100.0 * slowest / us);
    }
}

/// Several streams, a thread each, with rings that split and are filled by somebody else, as kernel bypass does it: then
/// the CPU is not what all wait for.
fn many(gpu: &Arc<Gpu>, packets: &Arc<Packets>, args: &Args) {
    let (streams, time) = (args.streams, Duration::from_secs_f64(args.seconds));
    let shape = Shape { split: true, ..WHOLE };
    let receive = rate(streams, time, |_| {
        let receiver = receiver(packets, |octets| registered(gpu, octets), shape);
        let pool = FramePool::host(conversion(OUTPUT).layout, 4).unwrap();
        let mut pipeline = Pipeline::new(receiver, depacketiser(), Nothing, pool, Incomplete::Conceal, None, nobody());
        Box::new(move || {
            pipeline.step().unwrap();
            pipeline.frames().complete
        })
    });
    let (copy, unpack, read) = stages_gpu(gpu, packets, args.frames);
    let overlapped = rate(streams, time, |_| {
        let (to, done) = read_back(gpu);
        let options = Options { transfer: Transfer::Copy, ..Options::default() };
        let mut flow = flow(gpu, packets, OUTPUT, shape, 10, options, to);
        Box::new(move || {
            flow.step().unwrap();
            done.load(Relaxed)
        })
    });
    let slowest = receive.max(copy).max(unpack).max(read);
    println!(
        "\n2160p 4:2:2 10 bit to {}, {streams} streams on as many threads, us a frame of all together\n",
        OUTPUT.word()
    );
    println!("| what | us | of the slowest stage's throughput |\n| --- | --- | --- |");
    for (what, us) in [
        ("receive alone (headers written, depacketise)", receive),
        ("copy to the GPU alone", copy),
        ("unpack alone", unpack),
        ("read back alone", read),
        ("all, overlapped", overlapped),
    ] {
        println!("| {what} | {us:.0} | {:.0} % |", 100.0 * slowest / us);
    }
}

/// Microseconds a frame of all streams together. `make` gives what steps a stream and says how many frames it has done.
fn rate(streams: usize, time: Duration, make: impl Fn(usize) -> Box<dyn FnMut() -> u64> + Sync) -> f64 {
    let (stop, begin) = (AtomicBool::new(false), Barrier::new(streams + 1));
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..streams)
            .map(|n| {
                let (stop, begin, make) = (&stop, &begin, &make);
                s.spawn(move || {
                    let mut step = make(n);
                    while step() < 3 {}
                    begin.wait();
                    let before = step();
                    let mut after = before;
                    while !stop.load(Relaxed) {
                        after = step();
                    }
                    after - before
                })
            })
            .collect();
        begin.wait();
        let begun = Instant::now();
        std::thread::sleep(time);
        stop.store(true, Relaxed);
        let seconds = begun.elapsed().as_secs_f64();
        let frames: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
        seconds * 1e6 / frames as f64
    })
}

/// A thread and a stream that bring frames back, and how many they have.
fn read_back(gpu: &Arc<Gpu>) -> (Deliver<Device>, Arc<AtomicU64>) {
    let done = Arc::new(AtomicU64::new(0));
    let count = done.clone();
    let deliver = Box::new(move |_: Frame<Host>| {
        count.fetch_add(1, Relaxed);
    });
    let download = Download::new(gpu, &conversion(OUTPUT).layout, 3, deliver).unwrap();
    let queue = SinkQueue::spawn(Box::new(download), 4).unwrap();
    let to: Deliver<Device> = Box::new(move |frame, _| {
        queue.offer_waiting(frame, || false);
    });
    (to, done)
}

/// Executes nothing.
struct Nothing;

impl Kernel<Pinned, Host> for Nothing {
    fn apply(
        &mut self,
        _: &SplitRing<Pinned>,
        _: &[Slot],
        _: &[Placement],
        _: &mut FrameBuf<Host>,
    ) -> Result<Ticket, KernelError> {
        Ok(Ticket(0))
    }
    fn conceal(&mut self, _: &mut FrameBuf<Host>, _: &[Missing], _: Option<&Frame<Host>>) -> Result<(), KernelError> {
        Ok(())
    }
    fn paint(&mut self, _: &mut FrameBuf<Host>, _: &[Missing]) -> Result<(), KernelError> {
        Ok(())
    }
    fn finish(&mut self, frame: FrameBuf<Host>) -> Result<(Frame<Host>, Ticket), KernelError> {
        Ok((frame.seal(), Ticket(0)))
    }
    fn done(&mut self, _: Ticket) -> Result<bool, KernelError> {
        Ok(true)
    }
    fn name(&self) -> &'static str {
        "nothing"
    }
}

fn stage_receive(gpu: &Arc<Gpu>, packets: &Arc<Packets>, frames: u64) -> f64 {
    let receiver = receiver(packets, |octets| registered(gpu, octets), SHAPE);
    let pool = FramePool::host(conversion(OUTPUT).layout, 4).unwrap();
    let mut pipeline = Pipeline::new(receiver, depacketiser(), Nothing, pool, Incomplete::Conceal, None, nobody());
    let mut until = |n: u64| {
        let begun = Instant::now();
        while pipeline.frames().complete < n {
            pipeline.step().unwrap();
        }
        begun.elapsed()
    };
    until(10);
    micros(until(10 + frames), frames)
}

fn stages_gpu(gpu: &Arc<Gpu>, packets: &Packets, frames: u64) -> (f64, f64, f64) {
    let stream = Stream::new(gpu, false).unwrap();
    let wire = Region::pinned(gpu, packets.octets.len()).unwrap();
    let size = conversion(OUTPUT).layout.size;
    let (there, finished) = (Region::device(gpu, packets.octets.len()).unwrap(), Region::device(gpu, size).unwrap());
    let back = Region::pinned(gpu, size).unwrap();
    let time = |to: u64, from: u64, octets: usize| {
        let begun = Instant::now();
        for _ in 0..frames {
            // SAFETY: all live until the stream has been waited for.
            unsafe { stream.copy(to, from, octets) }.unwrap();
        }
        stream.synchronize().unwrap();
        micros(begun.elapsed(), frames)
    };
    time(there.address(), wire.address(), wire.len());
    let copy = time(there.address(), wire.address(), wire.len());
    let read = time(back.address(), finished.address(), size);
    (copy, unpack(gpu, packets, frames), read)
}

/// The kernel alone, as a pipeline of packets that lie in GPU memory already starts it.
fn unpack(gpu: &Arc<Gpu>, packets: &Packets, frames: u64) -> f64 {
    use gdmedia::kernel::cuda::abi::{Piece, Segment};
    use gdmedia::kernel::cuda::program::Program;
    let conversion = conversion(OUTPUT);
    let program = Program::load(gpu, &conversion).unwrap();
    let stream = Stream::new(gpu, false).unwrap();
    let octets = packets.octets.len();
    let mut host = Region::pinned(gpu, octets).unwrap();
    host.as_mut_slice().copy_from_slice(&packets.octets);
    let ring = Region::device(gpu, octets + 64).unwrap();
    let frame = Region::device(gpu, conversion.layout.size).unwrap();
    let mut dst = 0;
    let pieces: Vec<Piece> = packets
        .at
        .iter()
        .zip(&packets.template.packets)
        .map(|(at, packet)| {
            let head = packet.header.len() as u32;
            let len = packet.octets - head as u16;
            let piece = Piece { src: at + head, dst, rest: 0, len, first: len };
            dst += u32::from(len);
            piece
        })
        .collect();
    let mut described = Region::<Pinned>::pinned(gpu, size_of_val(&pieces[..])).unwrap();
    for (to, piece) in described.as_mut_slice().chunks_mut(16).zip(&pieces) {
        to[0..4].copy_from_slice(&piece.src.to_le_bytes());
        to[4..8].copy_from_slice(&piece.dst.to_le_bytes());
        to[8..12].copy_from_slice(&piece.rest.to_le_bytes());
        to[12..14].copy_from_slice(&piece.len.to_le_bytes());
        to[14..16].copy_from_slice(&piece.first.to_le_bytes());
    }
    let there = Region::device(gpu, described.len()).unwrap();
    let count = pieces.len() as u32;
    let (head_octets, address) = (octets as u32 + 64, ring.address());
    let segment = Segment {
        head: address,
        body: address,
        frame: frame.address(),
        begin: 0,
        end: count,
        head_octets,
        body_octets: head_octets,
        ..Segment::default()
    };
    // SAFETY: regions live until the stream has been waited for; pieces lie in the ring and the frame.
    unsafe {
        stream.copy(ring.address(), host.address(), octets).unwrap();
        stream.copy(there.address(), described.address(), described.len()).unwrap();
        program.unpack(&stream, &[segment], there.address(), count).unwrap();
        stream.synchronize().unwrap();
        let begun = Instant::now();
        for _ in 0..frames {
            program.unpack(&stream, &[segment], there.address(), count).unwrap();
        }
        stream.synchronize().unwrap();
        micros(begun.elapsed(), frames)
    }
}

/// Every frame is waited for before the next is begun.
fn serial(gpu: &Arc<Gpu>, packets: &Arc<Packets>, frames: u64) -> f64 {
    let done = Arc::new(AtomicU64::new(0));
    let count = done.clone();
    let deliver = Box::new(move |_: Frame<Host>| {
        count.fetch_add(1, Relaxed);
    });
    let mut download = Download::new(gpu, &conversion(OUTPUT).layout, 2, deliver).unwrap();
    let to: Deliver<Device> = Box::new(move |frame, _| {
        gdmedia::sink::Sink::take(&mut download, &frame).unwrap();
    });
    let options = Options { transfer: Transfer::Copy, schedule: Schedule::WholeFrame };
    time_flow(flow(gpu, packets, OUTPUT, SHAPE, 6, options, to), &done, frames)
}

/// Frames are read back by a thread of their own, in a stream of their own.
fn overlapped(gpu: &Arc<Gpu>, packets: &Arc<Packets>, frames: u64) -> f64 {
    let (to, done) = read_back(gpu);
    let options = Options { transfer: Transfer::Copy, ..Options::default() };
    time_flow(flow(gpu, packets, OUTPUT, SHAPE, 10, options, to), &done, frames)
}

fn time_flow(mut flow: Flow, done: &AtomicU64, frames: u64) -> f64 {
    let mut until = |n: u64| {
        let begun = Instant::now();
        while done.load(Relaxed) < n {
            flow.step().unwrap();
        }
        begun.elapsed()
    };
    until(10);
    micros(until(10 + frames), frames)
}

fn micros(time: Duration, frames: u64) -> f64 {
    time.as_secs_f64() * 1e6 / frames as f64
}
