//! Kernels against the scalar law and memcpy, in octets read and written a second.
//!
//! `GDMEDIA_TABLE=1 cargo bench --bench kernels` prints one table of medians in well under a minute, and
//! `GDMEDIA_TABLE='4:2:2 10'` only the conversions whose names contain this text. Without it, criterion runs:
//! `cargo bench --bench kernels -- 'YCbCr-4:2:2 10'`.
//!
//! Runs are 1200 octets or less, as packets carry them. Source *hot* is the same 64 KiB again and again, as of packets
//! just received; source *frame* walks through memory. Frames rotate, so that no destination stays in a near cache.
//! CLYCbCr and ICtCp use the conversions of YCbCr and are left out.

use criterion::{BenchmarkId, Criterion, Throughput};
use gdmedia::format::{Layout, Output};
use gdmedia::frame::FramePool;
use gdmedia::kernel::{Colour, Conversion, CpuKernel, Kernel, Level, Pair, Run, RunFn, at, pairs};
use gdmedia::mem::{Host, Region};
use gdmedia::plan::Placement;
use gdmedia::ring::{SLACK, Slot, SplitRing};
use gdmedia::sdp::{Colorimetry, Depth, Range, Sampling, Scan, Tcs};
use gdmedia::time::Tai;
use std::time::{Duration, Instant};

const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
const PACKET: u32 = 1200;
const HOT: usize = 64 << 10;

fn listed() -> impl Iterator<Item = Pair> {
    use Sampling::*;
    pairs().filter(|p| matches!(p.sampling, YCbCr444 | YCbCr422 | YCbCr420 | Rgb | Xyz | Key))
}

#[derive(Clone, Copy, PartialEq)]
enum Source {
    Hot,
    Frame,
}

/// A conversion with its sources and frames.
struct Bench {
    conversion: Conversion,
    source: Vec<u8>,
    frames: Vec<Vec<u8>>,
    next: usize,
}

impl Bench {
    fn new(layout: Layout, source: Source, frames: usize) -> Self {
        let octets = if source == Source::Hot { HOT } else { layout.wire.frame_octets() as usize * frames };
        let source = (0..octets + SLACK).map(|i| (i * 31 % 251) as u8).collect();
        let frames = (0..frames).map(|_| vec![1; layout.size]).collect();
        Bench { conversion: Conversion { layout, colour: COLOUR }, source, frames, next: 0 }
    }
    /// Octets that a pass reads and writes.
    fn octets(&self) -> u64 {
        let layout = &self.conversion.layout;
        let written: usize = layout.planes.iter().map(|p| p.row_octets * p.rows).sum();
        u64::from(layout.wire.frame_octets()) + written as u64
    }
    /// One frame.
    fn pass(&mut self, function: RunFn) {
        let wire = *self.conversion.wire();
        let frame = &mut self.frames[self.next];
        let most = PACKET / wire.pgroup.octets;
        let mut from = if self.source.len() > HOT + SLACK { self.next * wire.frame_octets() as usize } else { 0 };
        for row in 0..wire.rows() {
            let mut group = 0;
            while group < wire.row_pgroups() {
                let groups = most.min(wire.row_pgroups() - group);
                let octets = (groups * wire.pgroup.octets) as usize;
                if from + octets + SLACK > self.source.len() {
                    from = 0;
                }
                let src = &self.source[from..from + octets + SLACK];
                function(&self.conversion, Run { src, groups, row, group }, frame);
                from += octets;
                group += groups;
            }
        }
        self.next = (self.next + 1) % self.frames.len();
    }
    /// Median seconds of a pass.
    fn median(&mut self, function: RunFn, samples: usize) -> f64 {
        self.pass(function);
        let mut times: Vec<f64> = (0..samples)
            .map(|_| {
                let start = Instant::now();
                self.pass(function);
                start.elapsed().as_secs_f64()
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[samples / 2]
    }
}

fn function(pair: Pair, level: Level) -> Option<RunFn> {
    at(&Conversion { layout: pair.layout(1920, 270, Scan::Progressive)?, colour: COLOUR }, level)
}

fn table(filter: &str) {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("1920 columns, runs of at most {PACKET} octets, GB/s read + written, medians; load average {load}");
    println!(
        "{:34} {:>8}  {:>8} {:>8} {:>8}   {:>8}  {:>8} {:>8} {:>8}",
        "", "hot", "", "", "of", "frame", "", "", "of"
    );
    println!(
        "{:34} {:>8}  {:>8} {:>8} {:>8}   {:>8}  {:>8} {:>8} {:>8}",
        "conversion", "scalar", "ssse3", "avx2", "memcpy", "scalar", "ssse3", "avx2", "memcpy"
    );
    const FRAMES: usize = 12;
    const SAMPLES: usize = 13;
    let mut memcpy = [0.0; 2];
    for pair in listed().filter(|p| p.to_string().contains(filter)) {
        let mut line = format!("{pair:34}");
        for (i, source) in [Source::Hot, Source::Frame].into_iter().enumerate() {
            let Some(layout) = pair.layout(1920, 270, Scan::Progressive) else { continue };
            // Copying the same octets, measured right before, so that both meet the same machine.
            let wire = Pair { output: Output::Wire, ..pair };
            if let (Some(layout), Some(copy)) =
                (wire.layout(1920, 270, Scan::Progressive), function(wire, Level::Scalar))
            {
                let mut bench = Bench::new(layout, source, FRAMES);
                memcpy[i] = bench.octets() as f64 / bench.median(copy, SAMPLES) / 1e9;
            }
            let mut bench = Bench::new(layout, source, FRAMES);
            let mut best = 0.0;
            for level in Level::ALL {
                let rate = function(pair, level).map(|f| bench.octets() as f64 / bench.median(f, SAMPLES) / 1e9);
                best = rate.map_or(best, |r| f64::max(best, r));
                line += &rate.map_or(format!(" {:>8}", "-"), |r| format!(" {r:8.2}"));
            }
            line += &format!(" {:7.2}x  ", best / memcpy[i]);
        }
        println!("{}", line.trim_end());
    }
    println!();
    println!("one 1920x1080 frame of 4:2:2 10 bit to planar 10, ms (source hot / frame)");
    let pair = Pair { sampling: Sampling::YCbCr422, depth: Depth::D10, output: Output::Planar };
    for level in Level::ALL {
        let (Some(layout), Some(function)) = (pair.layout(1920, 1080, Scan::Progressive), function(pair, level)) else {
            continue;
        };
        let ms = [Source::Hot, Source::Frame].map(|s| Bench::new(layout.clone(), s, 4).median(function, 41) * 1e3);
        println!("{:>8} {:6.3} / {:6.3}", level.name(), ms[0], ms[1]);
    }
    println!();
    println!("CpuKernel::apply, ns for a packet of {PACKET} octets of 4:2:2 10 bit, batches of 64");
    for output in [Output::Wire, Output::Planar, Output::V210, Output::P010, Output::P210] {
        for level in Level::ALL {
            let pair = Pair { output, ..pair };
            if function(pair, level).is_none() {
                continue;
            }
            if let Some(ns) = packet_ns(pair, level) {
                println!("{:>8} {:>8} {ns:6.1}", output.word(), level.name());
            }
        }
    }
}

/// Nanoseconds a packet through the kernel that receivers use.
fn packet_ns(pair: Pair, level: Level) -> Option<f64> {
    const BATCH: u32 = 64;
    let layout = pair.layout(1920, 1080, Scan::Progressive)?;
    let packets = layout.wire.frame_octets() / PACKET;
    let pool = FramePool::host(layout.clone(), 4).ok()?;
    let mut kernel = CpuKernel::new(Conversion { layout, colour: COLOUR }, Some(level));
    let mut region = Region::host(BATCH as usize * 1280).ok()?;
    region.as_mut_slice().iter_mut().enumerate().for_each(|(i, o)| *o = (i % 251) as u8);
    let ring = SplitRing::<Host>::whole(region);
    let octets = 20 + PACKET as u16;
    let slots: Vec<Slot> = (0..BATCH)
        .map(|i| Slot {
            head_at: i * 1280,
            body_at: 0,
            head: octets,
            octets,
            wire_octets: octets,
            leg: 0,
            arrival: Tai(0),
        })
        .collect();
    let plan: Vec<Placement> =
        (0..packets).map(|i| Placement { slot: i % BATCH, dst: i * PACKET, src: 20, len: PACKET as u16 }).collect();
    let mut frames: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    // Pieces short enough that other work on the machine falls between most of them.
    let mut times = Vec::new();
    for _ in 0..5 {
        for frame in &mut frames {
            for piece in plan.chunks(4 * BATCH as usize) {
                let start = Instant::now();
                for batch in piece.chunks(BATCH as usize) {
                    let _ = kernel.apply(&ring, &slots, batch, frame);
                }
                times.push(start.elapsed().as_secs_f64() * 1e9 / piece.len() as f64);
            }
        }
    }
    assert_eq!(kernel.refused(), 0);
    times.sort_by(f64::total_cmp);
    Some(times[times.len() / 2])
}

fn criterion() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300))
        .configure_from_args();
    for pair in listed() {
        for (name, source) in [("hot", Source::Hot), ("frame", Source::Frame)] {
            let Some(layout) = pair.layout(1920, 270, Scan::Progressive) else { continue };
            let mut group = criterion.benchmark_group(format!("{pair} {name}"));
            let mut bench = Bench::new(layout, source, 12);
            group.throughput(Throughput::Bytes(bench.octets()));
            for level in Level::ALL {
                if let Some(function) = function(pair, level) {
                    group
                        .bench_function(BenchmarkId::from_parameter(level.name()), |b| b.iter(|| bench.pass(function)));
                }
            }
            group.finish();
        }
    }
    criterion.final_summary();
}

fn main() {
    match std::env::var("GDMEDIA_TABLE") {
        Ok(filter) => table(if filter == "1" { "" } else { &filter }),
        Err(_) => criterion(),
    }
}
