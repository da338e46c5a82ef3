//! A long run: memory of the GPU, memory of the process, descriptors. They must stay as they are after the first seconds.

use super::Args;
use super::live::{Sender, receive};
use gdmedia::gpu::Gpu;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What is looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    gpu_mib: u64,
    resident_kib: u64,
    pinned_kib: u64,
    locked_kib: u64,
    descriptors: u64,
    threads: u64,
}

pub fn run(gpu: &Arc<Gpu>, args: &Args) {
    let sender = Sender::start(5480, args);
    let stop = AtomicBool::new(false);
    let (outcome, samples) = std::thread::scope(|s| {
        let watcher = s.spawn(|| {
            let (begun, mut samples) = (Instant::now(), Vec::new());
            while !stop.load(Relaxed) {
                std::thread::sleep(Duration::from_secs(5));
                samples.push((begun.elapsed().as_secs(), sample(gpu)));
            }
            samples
        });
        let outcome = receive(gpu, &sender.flow, &args.mode, args.duration());
        stop.store(true, Relaxed);
        (outcome, watcher.join().unwrap())
    });
    println!(
        "\n{} for {} s: {} frames, lost {}, incomplete {}, dropped {}, numbers wrong {}, unreadable {}\n",
        args.format,
        args.seconds,
        outcome.frames.complete,
        outcome.packets.lost,
        outcome.frames.incomplete,
        outcome.frames.dropped,
        outcome.numbers.wrong,
        outcome.numbers.unreadable
    );
    println!("| second | GPU MiB in use | resident KiB | VmPin KiB | VmLck KiB | descriptors | threads |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let every = (samples.len() / 12).max(1);
    for (n, (second, s)) in samples.iter().enumerate() {
        if n % every == 0 || n + 1 == samples.len() {
            println!(
                "| {second} | {} | {} | {} | {} | {} | {} |",
                s.gpu_mib, s.resident_kib, s.pinned_kib, s.locked_kib, s.descriptors, s.threads
            );
        }
    }
}

fn sample(gpu: &Gpu) -> Sample {
    let (free, all) = gpu.memory().unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|l| l.starts_with(name)).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    Sample {
        gpu_mib: ((all - free) >> 20) as u64,
        resident_kib: field("VmRSS:"),
        pinned_kib: field("VmPin:"),
        locked_kib: field("VmLck:"),
        descriptors: std::fs::read_dir("/proc/self/fd").map_or(0, |d| d.count() as u64),
        threads: field("Threads:"),
    }
}
