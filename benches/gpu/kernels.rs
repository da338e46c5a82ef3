//! The kernels against copies, 2160p, in well under a minute.
//!
//! A conversion is compared with copies of as many octets as it reads and writes, in the same way: launches back to back, in
//! turn over sets of memory that together do not fit the GPU's cache; the time is that between two events around them, and of
//! five such times the median. Octets are random. Pieces are 1200 octets, or the whole pgroups below; their descriptors lie in
//! memory of the GPU.

use gdmedia::format::{Layout, Output};
use gdmedia::gpu::{Event, EventKind, Function, Gpu, Module, Stream};
use gdmedia::kernel::cuda::{Piece, Program, Segment};
use gdmedia::kernel::{Colour, Conversion, Pair, pairs};
use gdmedia::mem::{Device, Pinned, Region};
use gdmedia::sdp::{Colorimetry, Depth, Range, Sampling, Scan, Tcs};
use std::sync::Arc;

const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
const PACKET: u32 = 1200;
/// Header octets before each packet in the ring: RTP and RFC 4175 with one SRD.
const HEADERS: usize = 20;
/// What the sets together have at least: more than the cache of any GPU.
const COLD: usize = 256 << 20;
const FRAMES: usize = 8;
const ROUNDS: usize = 5;

struct Bench {
    gpu: Arc<Gpu>,
    stream: Stream,
    copy: Function,
    events: [Event; 2],
    random: Region<Pinned>,
}

/// What a conversion is measured with.
struct Set {
    ring: Region<Device>,
    frame: Region<Device>,
}

pub fn run(filter: &str) {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(error) => return println!("skipped: no CUDA device: {error}"),
    };
    let bench = Bench::new(gpu);
    let started = std::time::Instant::now();
    println!("{}", bench.gpu.describe());
    let gigabyte = 1 << 30;
    let big = bench.memcpy(gigabyte, 1);
    println!("\ncopy of 1 GiB by the driver: {:.2} TB/s read + written\n", rate(2 * gigabyte, big));
    let ten = |output| Pair { sampling: Sampling::YCbCr422, depth: Depth::D10, output };
    println!(
        "| 2160p | us a frame | TB/s | of a copy kernel | of the driver's copy | 8 frames a launch: us a frame | TB/s | of 1 GiB |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for pair in [ten(Output::P210), ten(Output::Planar)] {
        let work = Work::new(&bench, pair);
        let octets = work.octets();
        let (one, eight) = (work.time(&bench, 1), work.time(&bench, FRAMES) / FRAMES as f64);
        let (kernel, driver) = (bench.copy_kernel(octets), bench.memcpy(octets / 2, COLD.div_ceil(octets)));
        println!(
            "| {pair} | {:.2} | {:.2} | {:.0} % | {:.0} % | {:.2} | {:.2} | {:.0} % |",
            one * 1e6,
            rate(octets, one),
            100.0 * kernel / one,
            100.0 * driver / one,
            eight * 1e6,
            rate(octets, eight),
            100.0 * rate(octets, eight) / rate(2 * gigabyte, big),
        );
    }
    println!(
        "\n| conversion, 2160p | kernels | us a frame | TB/s | of a copy kernel |\n| --- | --- | --- | --- | --- |"
    );
    // CLYCbCr and ICtCp use the kernels of YCbCr.
    use Sampling::*;
    let listed = pairs().filter(|p| matches!(p.sampling, YCbCr444 | YCbCr422 | YCbCr420 | Rgb | Xyz | Key));
    for pair in listed.filter(|pair| pair.to_string().contains(filter)) {
        let work = Work::new(&bench, pair);
        let octets = work.octets();
        let (one, copy) = (work.time(&bench, 1), bench.copy_kernel(octets));
        let (one_us, tb) = (one * 1e6, rate(octets, one));
        println!("| {pair} | {} | {one_us:.2} | {tb:.2} | {:.0} % |", work.program.how(), 100.0 * copy / one);
    }
    println!("\n{:.1} s", started.elapsed().as_secs_f64());
}

/// TB/s
fn rate(octets: usize, seconds: f64) -> f64 {
    octets as f64 / seconds / 1e12
}

impl Bench {
    fn new(gpu: Arc<Gpu>) -> Self {
        let text = concat!(include_str!("copy.ptx"), "\0");
        // SAFETY: PTX as text, with its closing zero.
        let module = unsafe { Module::load(&gpu, text.as_bytes()) }.expect("every driver compiles PTX of 2018");
        let mut random = Region::pinned(&gpu, 64 << 20).expect("64 MiB");
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        for octets in random.as_mut_slice().as_chunks_mut::<8>().0 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *octets = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
        }
        Bench {
            stream: Stream::new(&gpu, false).expect("a stream"),
            copy: module.function(c"copy16").expect("it has this kernel"),
            events: [0, 1].map(|_| Event::new(&gpu, EventKind::Time).expect("an event")),
            random,
            gpu,
        }
    }

    /// Device memory with random octets.
    fn filled(&self, octets: usize) -> Region<Device> {
        let region = Region::device(&self.gpu, octets).expect("memory for a bench");
        for at in (0..octets).step_by(self.random.len()) {
            let count = self.random.len().min(octets - at);
            // SAFETY: both hold as many, and stay until the wait below.
            unsafe { self.stream.copy(region.address() + at as u64, self.random.address(), count) }.expect("a copy");
        }
        self.stream.synchronize().expect("the GPU");
        region
    }

    /// Median seconds of one of `launches` launches back to back.
    fn time(&self, launches: usize, mut launch: impl FnMut(usize)) -> f64 {
        (0..launches.div_ceil(4)).for_each(&mut launch);
        let mut times = [0; ROUNDS].map(|_: u8| {
            self.stream.record(&self.events[0]).expect("the GPU");
            (0..launches).for_each(&mut launch);
            self.stream.record(&self.events[1]).expect("the GPU");
            self.events[1].wait().expect("the GPU");
            f64::from(self.events[1].since(&self.events[0]).expect("both happened")) / 1e3 / launches as f64
        });
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2]
    }

    /// Seconds in which a kernel of a thread every 16 octets reads and writes `octets`.
    fn copy_kernel(&self, octets: usize) -> f64 {
        let half = (octets / 2).next_multiple_of(16);
        let sets: Vec<_> = (0..COLD.div_ceil(octets)).map(|_| [self.filled(half), self.filled(half)]).collect();
        let vectors = half as u64 / 16;
        let blocks = vectors.div_ceil(256) as u32;
        self.time(launches(octets), |i| {
            let [from, to] = &sets[i % sets.len()];
            let mut parameters = [to.address(), from.address(), vectors];
            let mut parameters = parameters.each_mut().map(|p| (&raw mut *p).cast());
            // SAFETY: the kernel takes these three, and both regions hold the vectors.
            unsafe { self.stream.launch(&self.copy, [blocks, 1, 1], 256, &mut parameters) }.expect("the GPU");
        })
    }

    /// Seconds in which the driver copies `octets`.
    fn memcpy(&self, octets: usize, sets: usize) -> f64 {
        let sets: Vec<_> = (0..sets).map(|_| [self.filled(octets), self.filled(octets)]).collect();
        self.time(launches(2 * octets), |i| {
            let [from, to] = &sets[i % sets.len()];
            // SAFETY: both regions hold them.
            unsafe { self.stream.copy(to.address(), from.address(), octets) }.expect("the GPU");
        })
    }
}

/// So many that they take some milliseconds, and that the sets take turns.
fn launches(octets: usize) -> usize {
    ((4usize << 30) / octets).clamp(4, 200)
}

/// A conversion with its memory.
struct Work {
    program: Program,
    layout: Layout,
    sets: Vec<Set>,
    /// Of [`FRAMES`] frames.
    pieces: Region<Device>,
    /// Pieces of a frame.
    count: u32,
    ring_octets: usize,
}

impl Work {
    fn new(bench: &Bench, pair: Pair) -> Self {
        let layout = pair.layout(3840, 2160, Scan::Progressive).expect("2160p");
        let conversion = Conversion { layout: layout.clone(), colour: COLOUR };
        let program = Program::load(&bench.gpu, &conversion).unwrap_or_else(|error| panic!("{pair}: {error}"));
        let wire = layout.wire;
        let most = PACKET / wire.pgroup.octets * wire.pgroup.octets;
        let (mut pieces, mut src) = (Vec::new(), 0);
        for row in 0..wire.rows() {
            let mut at = 0;
            while at < wire.row_octets() {
                let len = most.min(wire.row_octets() - at);
                src += HEADERS as u32;
                let dst = row * wire.row_octets() + at;
                pieces.push(Piece { src, dst, rest: 0, len: len as u16, first: len as u16 });
                src += len;
                at += len;
            }
        }
        let ring_octets = (src as usize).next_multiple_of(16);
        let octets: Vec<u8> = pieces
            .iter()
            .flat_map(|p| {
                let words = [p.src, p.dst, p.rest, u32::from(p.len) | u32::from(p.first) << 16];
                words.into_iter().flat_map(u32::to_le_bytes)
            })
            .collect();
        let mut staged = Region::pinned(&bench.gpu, octets.len() * FRAMES).expect("memory for pieces");
        staged.as_mut_slice().chunks_mut(octets.len()).for_each(|frame| frame.copy_from_slice(&octets));
        let on_device = Region::device(&bench.gpu, staged.len()).expect("memory for pieces");
        // SAFETY: both hold them, and stay until the wait.
        unsafe { bench.stream.copy(on_device.address(), staged.address(), staged.len()) }.expect("a copy");
        bench.stream.synchronize().expect("the GPU");
        let sets = COLD.div_ceil(wire.frame_octets() as usize + layout.size).max(FRAMES);
        let set = |_| Set {
            ring: bench.filled(ring_octets),
            frame: Region::device(&bench.gpu, layout.size).expect("memory for frames"),
        };
        Work {
            sets: (0..sets).map(set).collect(),
            program,
            layout,
            pieces: on_device,
            count: pieces.len() as u32,
            ring_octets,
        }
    }

    /// Octets that a frame reads and writes, descriptors and headers not counted.
    fn octets(&self) -> usize {
        let written: usize = self.layout.planes.iter().map(|p| p.row_octets * p.rows).sum();
        self.layout.wire.frame_octets() as usize + written
    }

    /// Seconds of a launch of so many frames.
    fn time(&self, bench: &Bench, frames: usize) -> f64 {
        let segment = |set: &Set, i: u32| Segment {
            head: set.ring.address(),
            body: 0,
            frame: set.frame.address(),
            begin: i * self.count,
            end: (i + 1) * self.count,
            head_octets: self.ring_octets as u32,
            ..Segment::default()
        };
        bench.time(launches(frames * self.octets()), |i| {
            let mut segments = [Segment::default(); FRAMES];
            for (k, room) in segments[..frames].iter_mut().enumerate() {
                *room = segment(&self.sets[(i * frames + k) % self.sets.len()], k as u32);
            }
            let count = self.count * frames as u32;
            // SAFETY: pieces, rings and frames are as said, and stay until the wait in `time`.
            unsafe { self.program.unpack(&bench.stream, &segments[..frames], self.pieces.address(), count) }
                .expect("the GPU");
        })
    }
}
