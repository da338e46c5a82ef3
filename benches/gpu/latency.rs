//! From the arrival of a frame's last packet to its finished frame, streams of `gdmedia send` over loopback.

use super::Args;
use super::live::{Outcome, Sender, receive};
use gdmedia::gpu::Gpu;
use hdrhistogram::Histogram;
use std::sync::Arc;

pub fn run(gpu: &Arc<Gpu>, args: &Args) {
    let senders: Vec<Sender> = (0..args.streams).map(|n| Sender::start(5400 + 2 * n as u16, args)).collect();
    let outcomes: Vec<Outcome> = std::thread::scope(|s| {
        let threads: Vec<_> =
            senders.iter().map(|sender| s.spawn(|| receive(gpu, &sender.flow, &args.mode, args.duration()))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let mut all = Histogram::<u64>::new_with_bounds(1, 1_000_000_000, 3).unwrap();
    println!("\n{} x {}, {} s, {}\n", args.streams, args.format, args.seconds, outcomes[0].described);
    for (n, o) in outcomes.iter().enumerate() {
        for &ns in &o.latency {
            all.saturating_record(ns.max(1));
        }
        println!(
            "stream {n}: {} packets, lost {}, kernel dropped {}, starved {}; frames {} complete, {} incomplete, {} dropped; \
             numbers in order {}, wrong {}, unreadable {}; batches {}, waited {}, copied {} MB, mapped {} MB",
            o.packets.received,
            o.packets.lost,
            o.rx.kernel_dropped,
            o.rx.starved,
            o.frames.complete,
            o.frames.incomplete,
            o.frames.dropped,
            o.numbers.in_order,
            o.numbers.wrong,
            o.numbers.unreadable,
            o.kernel.batches,
            o.kernel.waited,
            o.kernel.copied / 1_000_000,
            o.kernel.mapped / 1_000_000,
        );
    }
    println!("\n| mode | streams | frames | p50 | p90 | p99 | p99.9 | max |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut started: Vec<u64> = outcomes.iter().flat_map(|o| o.started.iter().copied()).collect();
    started.sort_unstable();
    if let (Some(half), Some(most)) = (started.get(started.len() / 2), started.get(started.len() * 99 / 100)) {
        let us = |ns: &u64| *ns as f64 / 1e3;
        println!(
            "| work started | {} | {} | {:.1} us | | {:.1} us | | |",
            args.streams,
            started.len(),
            us(half),
            us(most)
        );
    }
    let us = |q: f64| all.value_at_quantile(q) as f64 / 1e3;
    println!(
        "| {} | {} | {} | {:.1} us | {:.1} us | {:.1} us | {:.1} us | {:.1} us |",
        args.mode,
        args.streams,
        all.len(),
        us(0.5),
        us(0.9),
        us(0.99),
        us(0.999),
        all.max() as f64 / 1e3
    );
}
