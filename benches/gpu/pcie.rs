//! From pinned rings to finished frames, many streams, beside a plain copy from the host to the device.

use super::Args;
use super::synthetic::{Packets, Shape, WHOLE, flow, nobody};
use gdmedia::format::Output;
use gdmedia::gpu::{Event, EventKind, Gpu, Stream};
use gdmedia::kernel::cuda::{Options, Transfer};
use gdmedia::mem::Region;
use gdmedia::rx::Receiver;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

pub fn run(gpu: &Arc<Gpu>, args: &Args) {
    let packets = Arc::new(Packets::new());
    let frame = packets.octets.len() as f64;
    println!("\n2160p59.94 4:2:2 10 bit, {} packets and {frame} octets a frame (RTP packets)\n", packets.at.len());
    let before = copy_rate(gpu);
    println!("plain copy, host to device, 64 MiB blocks: {before:.2} GB/s");
    for (streams, octets) in [(1, 4 << 20), (8, 4 << 20), (8, 10 << 20), (16, 10 << 20)] {
        let rate = copies(gpu, streams, octets);
        println!("plain copies of {} MiB, {streams} CUDA streams taking turns: {rate:.2} GB/s", octets >> 20);
    }
    println!();
    println!(
        "| streams | threads | ring | MB a lease | output | GB/s of packets | of the plain copy | frames/s | 2160p59.94 streams | CPU a packet |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    use Output::{P210, Planar};
    let split = |cuts| Shape { cuts, split: true, ..WHOLE };
    for (streams, shape, output) in [
        (1, WHOLE, P210),
        (8, WHOLE, P210),
        (1, split(5), P210),
        (4, split(5), P210),
        (8, split(5), P210),
        (4, split(2), P210),
        (8, split(2), P210),
        (12, split(2), P210),
        (48, split(5), P210),
        (12, split(2), Planar),
    ] {
        let threads = streams.min(cores.saturating_sub(2).max(1));
        let (octets, frames, cpu) = many(gpu, &packets, streams, threads, (output, shape), args.duration());
        let rate = octets / 1e9;
        println!(
            "| {streams} | {threads} | {} | {:.1} | {} | {rate:.2} | {:.1} % | {frames:.0} | {:.1} | {cpu:.0} ns |",
            if shape.split { "split" } else { "whole" },
            frame / shape.cuts as f64 / 1e6,
            output.word(),
            100.0 * rate / before,
            frames / (60_000.0 / 1001.0),
        );
    }
    println!("\nplain copy once more: {:.2} GB/s", copy_rate(gpu));
}

/// Octets a second of a plain copy.
fn copy_rate(gpu: &Arc<Gpu>) -> f64 {
    const BLOCK: usize = 64 << 20;
    let stream = Stream::new(gpu, false).unwrap();
    let (host, device) = (Region::pinned(gpu, BLOCK).unwrap(), Region::device(gpu, BLOCK).unwrap());
    let [start, end] = [0, 1].map(|_| Event::new(gpu, EventKind::Time).unwrap());
    let mut best = 0f64;
    for _ in 0..5 {
        stream.record(&start).unwrap();
        for _ in 0..20 {
            // SAFETY: both live until the stream has been waited for.
            unsafe { stream.copy(device.address(), host.address(), BLOCK) }.unwrap();
        }
        stream.record(&end).unwrap();
        stream.synchronize().unwrap();
        best = best.max(20.0 * BLOCK as f64 / f64::from(end.since(&start).unwrap()) / 1e6);
    }
    best
}

/// GB/s of copies that several streams have queued, one after the other in turn.
fn copies(gpu: &Arc<Gpu>, streams: usize, octets: usize) -> f64 {
    let all: Vec<_> = (0..streams)
        .map(|_| {
            let (host, device) = (Region::pinned(gpu, octets).unwrap(), Region::device(gpu, octets).unwrap());
            (Stream::new(gpu, false).unwrap(), host, device)
        })
        .collect();
    let times = (4usize << 30) / octets / streams;
    let mut best = 0f64;
    for _ in 0..3 {
        let begun = Instant::now();
        for _ in 0..times {
            for (stream, host, device) in &all {
                // SAFETY: both live until the stream has been waited for.
                unsafe { stream.copy(device.address(), host.address(), octets) }.unwrap();
            }
        }
        for (stream, ..) in &all {
            stream.synchronize().unwrap();
        }
        best = best.max((times * streams * octets) as f64 / begun.elapsed().as_secs_f64() / 1e9);
    }
    best
}

/// Octets and frames a second of all streams together, and nanoseconds of CPU a packet.
fn many(
    gpu: &Arc<Gpu>,
    packets: &Arc<Packets>,
    streams: usize,
    threads: usize,
    (output, shape): (Output, Shape),
    time: Duration,
) -> (f64, f64, f64) {
    let (stop, begin) = (AtomicBool::new(false), Barrier::new(threads + 1));
    std::thread::scope(|s| {
        let workers: Vec<_> = (0..threads)
            .map(|n| {
                let (stop, begin) = (&stop, &begin);
                let count = streams / threads + usize::from(n < streams % threads);
                s.spawn(move || {
                    let options = Options { transfer: Transfer::Copy, ..Options::default() };
                    let mut flows: Vec<_> =
                        (0..count).map(|_| flow(gpu, packets, output, shape, 6, options, nobody())).collect();
                    // Every flow has a frame behind it.
                    for flow in &mut flows {
                        while flow.frames().complete < 2 {
                            flow.step().unwrap();
                        }
                    }
                    begin.wait();
                    let sum = |flows: &[super::synthetic::Flow]| {
                        let octets: u64 = flows.iter().map(|f| f.receiver().counters().octets).sum();
                        let frames: u64 = flows.iter().map(|f| f.frames().complete).sum();
                        (octets, frames)
                    };
                    let (octets, frames) = sum(&flows);
                    while !stop.load(Relaxed) {
                        for flow in &mut flows {
                            flow.step().unwrap();
                        }
                    }
                    let after = sum(&flows);
                    let lost: u64 = flows.iter().map(|f| f.depacketiser().counters().lost + f.frames().dropped).sum();
                    assert_eq!(lost, 0, "packets lost or frames dropped");
                    ((after.0 - octets) as f64, (after.1 - frames) as f64)
                })
            })
            .collect();
        begin.wait();
        let begun = Instant::now();
        std::thread::sleep(time);
        stop.store(true, Relaxed);
        let seconds = begun.elapsed().as_secs_f64();
        let sums = workers.into_iter().map(|w| w.join().unwrap()).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
        let packets_done = sums.1 * packets.at.len() as f64;
        (sums.0 / seconds, sums.1 / seconds, threads as f64 * seconds * 1e9 / packets_done)
    })
}
