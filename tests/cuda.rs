//! The checker of the GPU: every conversion against the scalar law, and copies of spans against concealment on the CPU.
//! Frames are painted with a sentinel; nothing but the pieces' pixels and the padding of their rows may change.
//!
//! `GDMEDIA_QUICK=1` takes fewer cases of every conversion: for compute-sanitizer, which is some fifty times slower.
//! `GDMEDIA_KERNELS=nvrtc` checks what NVRTC makes.
#![cfg(feature = "cuda")]
#![allow(unsafe_code)]

use gdmedia::format::{Layout, Output};
use gdmedia::gpu::{Gpu, Stream};
use gdmedia::kernel::cuda::{CHECKED, Counter, Piece, Program, SEGMENTS, Scaler, Segment, Span};
use gdmedia::kernel::{Colour, Conversion, Level, Pair, Run, at, conceal, pairs};
use gdmedia::mem::{Device, Pinned, Region};
use gdmedia::plan::Missing;
use gdmedia::scale::scale;
use gdmedia::scope::scope;
use gdmedia::sdp::{Colorimetry, Depth, Range, Sampling, Scan, Tcs};
use gdmedia::send::pattern::{NumberReader, Pattern, read_number};
use mask::{Mask, Rng, paint};
use std::sync::Arc;

#[path = "support/mask.rs"]
mod mask;

const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
/// Octets of a plane of the ring, and of all frames of a launch.
const PLANE: usize = 4 << 20;
const FRAMES: usize = 16 << 20;
/// Behind every frame, to see that nobody writes there.
const BEHIND: usize = 192;

fn quick() -> bool {
    std::env::var("GDMEDIA_QUICK").is_ok_and(|v| v == "1")
}

/// A GPU with memory for all cases.
struct Bench {
    gpu: Arc<Gpu>,
    stream: Stream,
    /// Head and body plane.
    planes: [Region<Pinned>; 2],
    device_planes: [Region<Device>; 2],
    pieces: Region<Pinned>,
    frames: Region<Device>,
    back: Region<Pinned>,
}

impl Bench {
    fn new() -> Option<Self> {
        let gpu = match Gpu::open(0) {
            Ok(gpu) => gpu,
            Err(error) => {
                println!("skipped: no CUDA device: {error}");
                return None;
            }
        };
        let pinned = |len| Region::pinned(&gpu, len).unwrap();
        let device = |len| Region::device(&gpu, len).unwrap();
        Some(Bench {
            stream: Stream::new(&gpu, false).unwrap(),
            planes: [pinned(PLANE), pinned(PLANE)],
            device_planes: [device(PLANE), device(PLANE)],
            pieces: pinned(1 << 20),
            frames: device(FRAMES),
            back: pinned(FRAMES),
            gpu,
        })
    }

    /// The first `len` octets of the frames' memory.
    fn frames_back(&mut self, len: usize) -> &mut [u8] {
        // SAFETY: both regions hold them, and nobody touches them until the wait is over.
        unsafe { self.stream.copy(self.back.address(), self.frames.address(), len) }.unwrap();
        self.stream.synchronize().unwrap();
        &mut self.back.as_mut_slice()[..len]
    }

    /// Brings octets to the frames' memory.
    fn set_frames(&mut self, octets: &[u8]) {
        self.back.as_mut_slice()[..octets.len()].copy_from_slice(octets);
        // SAFETY: both regions hold them, and nobody touches them until the wait is over.
        unsafe { self.stream.copy(self.frames.address(), self.back.address(), octets.len()) }.unwrap();
        self.stream.synchronize().unwrap();
    }
}

/// One run of whole pgroups of a wire row.
#[derive(Clone, Copy)]
struct Part {
    row: u32,
    group: u32,
    groups: u32,
}

/// Cuts the rows into runs, and leaves some of them out.
fn parts(rng: &mut Rng, layout: &Layout) -> Vec<Part> {
    let wire = &layout.wire;
    let most = rng.of(&[1, 3, 20, 300, u32::MAX]);
    let mut parts = Vec::new();
    for row in 0..wire.rows() {
        let mut group = 0;
        while group < wire.row_pgroups() {
            let left = wire.row_pgroups() - group;
            let groups = if rng.below(4) == 0 { left } else { 1 + rng.below(left) }.min(most).min(65_535 / 16);
            if rng.below(5) > 0 {
                parts.push(Part { row, group, groups });
            }
            group += groups;
        }
    }
    parts
}

/// Puts runs into packets of one to three, each packet cut between the planes anywhere. `at` is where the planes are free.
fn packets(
    rng: &mut Rng,
    layout: &Layout,
    wire: &[u8],
    parts: &[Part],
    bench: &mut Bench,
    at: &mut [usize; 2],
) -> Vec<Piece> {
    let format = &layout.wire;
    let size = format.pgroup.octets;
    let mut pieces = Vec::new();
    let mut left = parts;
    while !left.is_empty() {
        let (packet, rest) = left.split_at(left.len().min(1 + rng.below(3) as usize));
        left = rest;
        let octets: u32 = packet.iter().map(|p| p.groups * size).sum();
        let cut = match rng.below(4) {
            0 => 0,
            1 => octets,
            _ => rng.below(octets + 1),
        };
        // Any alignment.
        at.iter_mut().for_each(|at| *at += rng.below(40) as usize);
        let mut done = 0;
        for part in packet {
            let len = part.groups * size;
            let dst = part.row * format.row_octets() + part.group * size;
            let first = cut.saturating_sub(done).min(len);
            let octets = &wire[dst as usize..(dst + len) as usize];
            let (head, body) = octets.split_at(first as usize);
            let mut piece = Piece { src: u32::MAX, dst, rest: u32::MAX, len: len as u16, first: first as u16 };
            for (i, octets) in [head, body].into_iter().enumerate().filter(|(_, octets)| !octets.is_empty()) {
                bench.planes[i].as_mut_slice()[at[i]..at[i] + octets.len()].copy_from_slice(octets);
                *if i == 0 { &mut piece.src } else { &mut piece.rest } = at[i] as u32;
                at[i] += octets.len();
            }
            pieces.push(piece);
            done += len;
        }
    }
    for i in (1..pieces.len()).rev() {
        pieces.swap(i, rng.below(i as u32 + 1) as usize);
    }
    pieces
}

fn octets_of(piece: &Piece) -> [u8; 16] {
    let mut octets = [0; 16];
    octets[..4].copy_from_slice(&piece.src.to_le_bytes());
    octets[4..8].copy_from_slice(&piece.dst.to_le_bytes());
    octets[8..12].copy_from_slice(&piece.rest.to_le_bytes());
    octets[12..14].copy_from_slice(&piece.len.to_le_bytes());
    octets[14..].copy_from_slice(&piece.first.to_le_bytes());
    octets
}

/// A launch of several frames, compared with the law.
fn check(bench: &mut Bench, rng: &mut Rng, conversion: &Conversion, frames: usize) {
    let layout = &conversion.layout;
    let program = Program::load(&bench.gpu, conversion).unwrap();
    let stride = (layout.size + BEHIND).next_multiple_of(64);
    assert!(stride * frames <= FRAMES);
    // Where the planes are: in memory of the host, of the GPU, or one in each.
    let on_device = [rng.below(3) == 0, rng.below(2) == 0];
    let mut at = [0; 2];
    let (mut all, mut wires, mut pieces, mut segments) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let planes: [u64; 2] =
        [0, 1].map(|i| if on_device[i] { bench.device_planes[i].address() } else { bench.planes[i].address() });
    for i in 0..frames {
        let mut wire = vec![0; layout.wire.frame_octets() as usize];
        paint(rng, &mut wire);
        let parts = parts(rng, layout);
        let begin = pieces.len() as u32;
        pieces.extend(packets(rng, layout, &wire, &parts, bench, &mut at));
        segments.push(Segment {
            head: planes[0],
            body: planes[1],
            frame: bench.frames.address() + (i * stride) as u64,
            begin,
            end: pieces.len() as u32,
            ..Segment::default()
        });
        all.push(parts);
        wires.push(wire);
    }
    let used = at.map(|at| at.next_multiple_of(16));
    for segment in &mut segments {
        [segment.head_octets, segment.body_octets] = used.map(|octets| octets as u32);
    }
    for (room, piece) in bench.pieces.as_mut_slice().as_chunks_mut().0.iter_mut().zip(&pieces) {
        *room = octets_of(piece);
    }
    let (law, width) = (at_scalar(conversion), layout.wire.pgroup.width());
    for sentinel in [0xa5, 0x5a] {
        // SAFETY: regions are as large as this says, pieces lie in the planes and in the frames, and nobody touches any of
        // it until the wait in `frames_back` is over.
        unsafe {
            for (i, used) in used.into_iter().enumerate().filter(|(i, _)| on_device[*i]) {
                bench.stream.copy(bench.device_planes[i].address(), bench.planes[i].address(), used).unwrap();
            }
            bench.stream.fill(bench.frames.address(), sentinel, stride * frames).unwrap();
            program.unpack(&bench.stream, &segments, bench.pieces.address(), pieces.len() as u32).unwrap();
        }
        let memory = bench.frames_back(stride * frames);
        for (frame, got) in memory.chunks(stride).enumerate() {
            let mut expected = vec![sentinel; layout.size];
            let mut mask = Mask::new(layout);
            for part in &all[frame] {
                let Part { row, group, groups } = *part;
                let from = (row * layout.wire.row_octets() + group * layout.wire.pgroup.octets) as usize;
                law(conversion, Run { src: &wires[frame][from..], groups, row, group }, &mut expected);
                mask.add(layout, row as usize, (group * width) as usize..((group + groups) * width) as usize);
            }
            for i in 0..layout.size {
                let (bits, seen) = (mask.pixels[i], !mask.ignored[i]);
                let right = expected[i] & bits | sentinel & !bits;
                assert!(
                    got[i] & seen == right & seen,
                    "{} {} {}x{} {} to {:?}, frame {frame} of {frames}, planes on the GPU {on_device:?}: octet {i} is \
                     {:#04x}, not {right:#04x} (law {:#04x}, bits {bits:#04x})\nplanes {:?}",
                    layout.wire.sampling,
                    layout.wire.depth,
                    layout.wire.width,
                    layout.wire.height,
                    layout.wire.scan,
                    layout.output,
                    got[i],
                    expected[i],
                    layout.planes,
                );
            }
            assert!(got[layout.size..].iter().all(|&o| o == sentinel), "octets behind the frame");
        }
    }
    check_spans(bench, rng, layout, &program);
    assert_eq!(program.faults().unwrap(), 0, "a checked build refused something");
}

fn at_scalar(conversion: &Conversion) -> gdmedia::kernel::RunFn {
    at(conversion, Level::Scalar).expect("every conversion has a law")
}

/// Spans of some losses, compared with concealment on the CPU.
fn check_spans(bench: &mut Bench, rng: &mut Rng, layout: &Layout, program: &Program) {
    let wire = &layout.wire;
    let mut missing: Vec<Missing> = parts(rng, layout)
        .iter()
        .map(|p| Missing { row: p.row, octet: p.group * wire.pgroup.octets, len: p.groups * wire.pgroup.octets })
        .collect();
    missing.push(Missing { row: wire.rows(), octet: 0, len: 5 });
    let mut spans = 0u32;
    let room = bench.pieces.as_mut_slice().as_chunks_mut::<8>().0;
    conceal::ranges(layout, &missing, |start, end| {
        let span = Span { offset: start as u32, count: (end - start) as u32 };
        let room = &mut room[spans as usize];
        room[..4].copy_from_slice(&span.offset.to_le_bytes());
        room[4..].copy_from_slice(&span.count.to_le_bytes());
        spans += 1;
    });
    let stride = layout.size.next_multiple_of(64);
    let mut both = vec![0; 2 * stride];
    rng.fill(&mut both);
    if layout.output == Output::V210 {
        // Unused bits are zero in any frame that a kernel has filled.
        both.chunks_exact_mut(4).for_each(|w| w[3] &= 0x3f);
    }
    bench.set_frames(&both);
    let (frame, previous) = both.split_at_mut(stride);
    conceal::copy(layout, &missing, frame, previous);
    let at = bench.frames.address();
    // SAFETY: two frames of the layout lie there, the spans lie in them, and all stays until the wait is over.
    unsafe { program.copy_spans(&bench.stream, at, at + stride as u64, bench.pieces.address(), spans) }.unwrap();
    let got = bench.frames_back(2 * stride);
    if let Some(i) = got.iter().zip(&both).position(|(a, b)| a != b) {
        panic!("{wire:?} {:?}: {spans} spans, octet {i} is {:#04x}, not {:#04x}", layout.output, got[i], both[i]);
    }
}

/// A picture of this width and some height and scan.
fn case(rng: &mut Rng, pair: Pair, width: u32, heights: &[u32]) -> Conversion {
    let colour = Colour {
        colorimetry: rng.of(Colorimetry::ALL),
        tcs: rng.of(&[Tcs::Sdr, Tcs::Linear]),
        range: rng.of(Range::ALL),
    };
    loop {
        let (height, scan) = (rng.of(heights), rng.of(Scan::ALL));
        if let Some(layout) = pair.layout(width, height, scan) {
            return Conversion { layout, colour };
        }
    }
}

#[test]
fn every_conversion_is_the_law() {
    let Some(mut bench) = Bench::new() else { return };
    let mut how = std::collections::BTreeMap::new();
    for pair in pairs() {
        let mut rng =
            Rng(0x9e37_79b9_7f4a_7c15 ^ (pair.depth as u64) << 8 ^ (pair.output as u64) ^ (pair.sampling as u64) << 16);
        let pgroup = pair.sampling.pgroup(pair.depth).unwrap();
        // Rows of more octets than are staged at once.
        let long = 3400 * pgroup.width() / pgroup.octets + rng.below(9);
        if quick() {
            let width = 1 + rng.below(70);
            let conversion = case(&mut rng, pair, width, &[3, 4, 6, 7]);
            check(&mut bench, &mut rng, &conversion, 3);
            let conversion = case(&mut rng, pair, long, &[2, 3]);
            check(&mut bench, &mut rng, &conversion, 1);
        } else {
            for width in [1, 2, 3, 5, 6, 7, 8, 11, 12, 13, 16, 24, 31, 48, 49, 95, 130, 257] {
                let conversion = case(&mut rng, pair, width, &[1, 2, 3, 4, 6, 7, 8]);
                let frames = 1 + rng.below(4) as usize;
                check(&mut bench, &mut rng, &conversion, frames);
            }
            for frames in [1, 2] {
                let conversion = case(&mut rng, pair, long, &[2, 3, 4]);
                check(&mut bench, &mut rng, &conversion, frames);
            }
        }
        let conversion = case(&mut rng, pair, 48, &[4]);
        *how.entry(Program::load(&bench.gpu, &conversion).unwrap().how().to_owned()).or_insert(0) += 1;
    }
    println!("{}: {} conversions, {how:?}, checked: {CHECKED}", bench.gpu.name(), pairs().count());
}

const TEN: Pair = Pair { sampling: Sampling::YCbCr422, depth: Depth::D10, output: Output::P210 };

#[test]
fn as_many_frames_as_a_launch_takes() {
    let Some(mut bench) = Bench::new() else { return };
    let mut rng = Rng(5);
    for output in [Output::P210, Output::V210, Output::Wire] {
        let conversion = case(&mut rng, Pair { output, ..TEN }, 321, &[9]);
        check(&mut bench, &mut rng, &conversion, SEGMENTS);
        let program = Program::load(&bench.gpu, &conversion).unwrap();
        let many = [Segment::default(); SEGMENTS + 1];
        // SAFETY: neither starts anything.
        unsafe {
            assert!(program.unpack(&bench.stream, &many, bench.pieces.address(), 1).is_err());
            program.unpack(&bench.stream, &many[..1], bench.pieces.address(), 0).unwrap();
        }
    }
}

#[test]
fn a_checked_build_refuses_what_does_not_fit() {
    let Some(mut bench) = Bench::new() else { return };
    if !CHECKED {
        return println!("skipped: kernels of this profile check nothing");
    }
    for output in [Output::P210, Output::Planar, Output::V210, Output::Wire] {
        let pair = Pair { output, ..TEN };
        let layout = pair.layout(48, 4, Scan::Progressive).unwrap();
        let program = Program::load(&bench.gpu, &Conversion { layout: layout.clone(), colour: COLOUR }).unwrap();
        let right = Piece { src: 0, dst: 0, rest: 0, len: 120, first: 120 };
        let mut wrong = vec![
            Piece { src: 881, ..right },
            Piece { src: u32::MAX, ..right },
            Piece { first: 0, rest: 441, ..right },
            Piece { first: 119, rest: 560, ..right },
            Piece { first: 121, ..right },
            Piece { len: 0, first: 0, ..right },
            Piece { dst: 365, ..right },
            Piece { dst: u32::MAX, ..right },
        ];
        if output != Output::Wire {
            // Across rows, and not at pgroups.
            wrong.extend([
                Piece { dst: 5, ..right },
                Piece { dst: 1, len: 5, first: 5, ..right },
                Piece { len: 6, first: 6, ..right },
            ]);
        }
        let [head, body] = [&bench.planes[0], &bench.planes[1]].map(Region::address);
        let frame = bench.frames.address();
        let count = wrong.len() as u32;
        let segment =
            Segment { head, body, frame, end: count, head_octets: 1000, body_octets: 560, ..Segment::default() };
        for (room, piece) in bench.pieces.as_mut_slice().as_chunks_mut().0.iter_mut().zip(wrong.iter().chain([&right]))
        {
            *room = octets_of(piece);
        }
        let pieces = bench.pieces.address();
        // SAFETY: what does not fit is what a checked build refuses; the piece behind the segment's last is right.
        unsafe {
            bench.stream.fill(frame, 0xa5, layout.size).unwrap();
            program.unpack(&bench.stream, &[segment], pieces, count).unwrap();
            bench.stream.synchronize().unwrap();
            assert_eq!(program.faults().unwrap(), count, "{output:?}");
            program.unpack(&bench.stream, &[segment], pieces, count + 1).unwrap();
        }
        assert!(bench.frames_back(layout.size).iter().all(|&o| o == 0xa5), "{output:?}");
        assert_eq!(program.faults().unwrap(), 2 * count + 1, "{output:?}: a piece behind the segments is none");
        // Spans that reach beyond the frame.
        let units = if output == Output::V210 { layout.size / 4 * 3 } else { layout.size };
        let octets = bench.pieces.as_mut_slice();
        octets[..4].copy_from_slice(&(units as u32 - 1).to_le_bytes());
        octets[4..8].copy_from_slice(&2u32.to_le_bytes());
        // SAFETY: as above.
        unsafe { program.copy_spans(&bench.stream, frame, frame + (1 << 20), pieces, 1) }.unwrap();
        assert!(bench.frames_back(layout.size).iter().all(|&o| o == 0xa5), "{output:?}");
        assert_eq!(program.faults().unwrap(), 2 * count + 2, "{output:?}: a span beyond the frame");
    }
}

/// A random frame, or one that a wire picture was converted to.
fn convert(conversion: &Conversion, wire: &[u8]) -> Vec<u8> {
    let format = conversion.wire();
    let mut frame = vec![0; conversion.layout.size];
    for (row, src) in wire.chunks(format.row_octets() as usize).enumerate() {
        let run = Run { src, groups: format.row_pgroups(), row: row as u32, group: 0 };
        at_scalar(conversion)(conversion, run, &mut frame);
    }
    frame
}

#[test]
fn previews_are_the_law() {
    let Some(mut bench) = Bench::new() else { return };
    let mut rng = Rng(31);
    let sizes = if quick() { vec![37] } else { vec![1, 2, 7, 48, 131, 700] };
    for pair in pairs() {
        for &width in &sizes {
            let conversion = case(&mut rng, pair, width, &[1, 2, 3, 4, 7, 30]);
            let mut frame = vec![0; conversion.layout.size];
            rng.fill(&mut frame);
            bench.set_frames(&frame);
            let factors: &[u32] = if quick() { &[3, u32::MAX] } else { &[0, 1, 2, 3, 5, 8, 33, 200, u32::MAX] };
            for &factor in factors {
                let scaler = Scaler::load(&bench.gpu, &conversion, factor);
                let Some(picture) = scale(&conversion, &frame, factor) else {
                    assert!(scaler.is_err(), "{pair}");
                    break;
                };
                let scaler = scaler.unwrap();
                assert_eq!((scaler.width(), scaler.height()), (picture.width, picture.height));
                let (octets, to) = (scaler.octets(), bench.planes[0].address());
                // SAFETY: the frame lies there, the plane has room for the picture, and both stay until the wait is over.
                unsafe {
                    bench.stream.fill(to, 0xa5, octets + 64).unwrap();
                    scaler.run(&bench.stream, bench.frames.address(), to).unwrap();
                }
                bench.stream.synchronize().unwrap();
                let got = &bench.planes[0].as_slice()[..octets + 64];
                let wrong = got.iter().zip(&picture.octets).position(|(a, b)| a != b);
                assert_eq!(wrong, None, "{pair} {:?} by {factor}", conversion.layout.wire);
                assert!(got[octets..].iter().all(|&o| o == 0xa5), "octets behind the picture");
            }
        }
    }
}

#[test]
fn scopes_are_those_of_the_cpu() {
    let Some(mut bench) = Bench::new() else { return };
    let mut rng = Rng(43);
    for pair in pairs() {
        let sizes: &[(u32, u32)] =
            if quick() { &[(65, 40)] } else { &[(1, 1), (33, 37), (65, 40), (720, 488), (1920, 90)] };
        for &(width, height) in sizes {
            let scan = rng.of(Scan::ALL);
            let layout = pair.layout(width, height, scan).or_else(|| pair.layout(width, height, Scan::Progressive));
            let conversion =
                Conversion { layout: layout.expect("every pair has progressive pictures"), colour: COLOUR };
            let mut frame = vec![0; conversion.layout.size];
            match rng.below(3) {
                // Most of a picture is flat: all count in one cell.
                0 => frame.fill(rng.below(256) as u8),
                _ => frame.fill_with(|| rng.below(256) as u8),
            }
            if conversion.output() == Output::Planar && pair.depth != Depth::D8 {
                // Words hold a sample and nothing above it.
                let mask = ((1u32 << pair.depth.bits()) - 1) as u16;
                frame
                    .as_chunks_mut()
                    .0
                    .iter_mut()
                    .for_each(|word| *word = (u16::from_le_bytes(*word) & mask).to_le_bytes());
            }
            bench.set_frames(&frame);
            for columns in [1, 64, 480] {
                let counter = Counter::load(&bench.gpu, &conversion, columns);
                let Some(wanted) = scope(&conversion, &frame, columns, Level::Scalar) else {
                    assert!(counter.is_err(), "{pair}");
                    break;
                };
                let counter = counter.unwrap();
                let (octets, to) = (counter.octets(), bench.planes[0].address());
                // SAFETY: the frame lies there, the plane has room for the counts, and both stay until the wait is over.
                unsafe {
                    bench.stream.fill(to, 0xa5, octets + 64).unwrap();
                    counter.run(&bench.stream, bench.frames.address(), to).unwrap();
                }
                bench.stream.synchronize().unwrap();
                let got = &bench.planes[0].as_slice()[..octets + 64];
                assert!(counter.read(got) == wanted, "{pair} {:?}, {columns} columns", conversion.layout.wire);
                assert!(got[octets..].iter().all(|&o| o == 0xa5), "octets behind the counts");
            }
        }
    }
}

#[test]
fn numbers_are_read() {
    let Some(mut bench) = Bench::new() else { return };
    let mut rng = Rng(41);
    for pair in pairs() {
        let sizes: &[(u32, u32)] = if quick() { &[(65, 40)] } else { &[(33, 37), (65, 40), (720, 487), (16, 16)] };
        for &(width, height) in sizes {
            let scan = rng.of(Scan::ALL);
            let layout = pair.layout(width, height, scan).or_else(|| pair.layout(width, height, Scan::Progressive));
            let layout = layout.expect("every pair has progressive pictures");
            let reader = NumberReader::load(&bench.gpu, &layout).unwrap();
            let conversion = Conversion { layout: layout.clone(), colour: COLOUR };
            let mut pattern = Pattern::new(layout.wire, COLOUR, 75, "");
            let mut wire = vec![0; layout.wire.frame_octets() as usize];
            let numbers: &[u64] = if quick() { &[0xa5_1234_5678] } else { &[0, 1, 0xa5_1234_5678, (1 << 40) - 1] };
            for &number in numbers {
                pattern.frame(number, &mut wire);
                let mut frame = convert(&conversion, &wire);
                for damage in [false, true] {
                    if damage {
                        // The lower half, where codes are, too: none, or the same where the raster has no code.
                        let half = frame.len() / 2;
                        rng.fill(&mut frame[half..]);
                    }
                    let law = read_number(&layout, &frame);
                    assert!(damage || law.is_none_or(|law| law == number), "{pair}");
                    bench.set_frames(&frame);
                    let to = bench.planes[1].address();
                    // SAFETY: the frame lies there, the plane has room for a number, and both stay until the wait is over.
                    unsafe {
                        bench.stream.fill(to, 0xa5, 16).unwrap();
                        reader.run(&bench.stream, bench.frames.address(), to).unwrap();
                    }
                    bench.stream.synchronize().unwrap();
                    let got = bench.planes[1].as_slice()[..16].as_chunks::<8>().0;
                    assert_eq!(
                        u64::from_le_bytes(got[0]),
                        law.unwrap_or(u64::MAX),
                        "{pair} {:?} {number}",
                        layout.wire
                    );
                    assert_eq!(got[1], [0xa5; 8]);
                }
            }
        }
    }
}
