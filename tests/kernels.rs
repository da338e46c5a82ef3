//! The checker: every conversion at every level that this CPU has against the scalar law, and concealment against a
//! mask of pixels. Frames are painted with a sentinel; nothing but the run's pixels and the padding of its rows may
//! change. `cargo test --test kernels -- --nocapture` also lists which conversions have which levels.

use gdmedia::format::Output;
use gdmedia::frame::{Frame, FrameBuf, FramePool};
use gdmedia::kernel::{Colour, Conversion, CpuKernel, Kernel, Level, Pair, Run, at, pairs};
use gdmedia::mem::Host;
use gdmedia::plan::Missing;
use gdmedia::sdp::{Colorimetry, Depth, Range, Sampling, Scan, Subsampling, Tcs};
use guard::Guarded;
use mask::{Mask, Rng, paint};

#[path = "support/mask.rs"]
mod mask;

const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };

fn available(pair: Pair, level: Level) -> bool {
    let layout = pair.layout(48, 4, Scan::Progressive).unwrap();
    at(&Conversion { layout, colour: COLOUR }, level).is_some()
}

/// One conversion of one run at one level, compared with the law.
struct Case {
    conversion: Conversion,
    level: Level,
    row: u32,
    group: u32,
    groups: u32,
}

impl Case {
    fn check(&self, src: &[u8], how: &str) {
        let Case { conversion, level, row, group, groups } = self;
        let layout = &conversion.layout;
        let run = Run { src, groups: *groups, row: *row, group: *group };
        const AROUND: usize = 64;
        let go = |level: Level, sentinel: u8| {
            let mut memory = vec![sentinel; layout.size + 2 * AROUND];
            let function = at(conversion, level).expect("level was available");
            function(conversion, run, &mut memory[AROUND..AROUND + layout.size]);
            let around = [sentinel; AROUND];
            assert!(
                memory[..AROUND] == around && memory[AROUND + layout.size..] == around,
                "octets outside of the frame"
            );
            memory.drain(..AROUND);
            memory.truncate(layout.size);
            memory
        };
        let mut mask = Mask::new(layout);
        let width = layout.wire.pgroup.width();
        mask.add(layout, *row as usize, (group * width) as usize..((group + groups) * width) as usize);
        for sentinel in [0xa5, 0x5a] {
            let law = go(Level::Scalar, sentinel);
            let got = if *level == Level::Scalar { law.clone() } else { go(*level, sentinel) };
            // This is compiled without optimisation: words first, and octet by octet only where one differs.
            let sentinels = u64::from_ne_bytes([sentinel; 8]);
            let word = |octets: &[u8], i: usize| u64::from_ne_bytes(octets[i..i + 8].try_into().unwrap());
            let differs = |i: usize| {
                let (bits, seen) = (word(&mask.pixels, i), !word(&mask.ignored, i));
                (word(&law, i) & bits | sentinels & !bits) & seen != word(&got, i) & seen
            };
            let whole = layout.size / 8 * 8;
            let suspect =
                (0..whole).step_by(8).filter(|i| differs(*i)).flat_map(|i| i..i + 8).chain(whole..layout.size);
            for i in suspect {
                let (bits, seen) = (mask.pixels[i], !mask.ignored[i]);
                let expected = law[i] & bits | sentinel & !bits;
                assert!(
                    got[i] & seen == expected & seen,
                    "{:?} {} {}x{} {} to {:?}, {}, row {row}, groups {group}+{groups}, {how}: octet {i} is {:#04x}, not {expected:#04x} (law {:#04x}, bits {bits:#04x})\nplanes {:?}",
                    layout.wire.sampling,
                    layout.wire.depth,
                    layout.wire.width,
                    layout.wire.height,
                    layout.wire.scan,
                    layout.output,
                    level.name(),
                    got[i],
                    law[i],
                    layout.planes,
                );
            }
        }
    }
}

fn check(pair: Pair, level: Level, guarded: &mut Guarded) {
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15 ^ (pair.depth as u64) << 8 ^ (pair.output as u64));
    let mut memory = vec![0; 4096];
    let mut case = |rng: &mut Rng, width: u32, run: Option<(u32, u32)>, alignment: u32, end: u32| {
        let scan =
            if pair.sampling.subsampling() == Subsampling::Quarter420 { Scan::Progressive } else { rng.of(Scan::ALL) };
        let height = rng.of(&[3, 4, 6, 7]);
        let Some(layout) = pair.layout(width, height, scan) else { return };
        let tcs = rng.of(&[Tcs::Sdr, Tcs::Linear]);
        let colour = Colour { colorimetry: rng.of(Colorimetry::ALL), tcs, range: rng.of(Range::ALL) };
        let wire = layout.wire;
        let row = rng.below(wire.rows());
        let (group, groups) = run.unwrap_or_else(|| {
            let group = rng.below(wire.row_pgroups());
            (group, 1 + rng.below(wire.row_pgroups() - group))
        });
        let case = Case { conversion: Conversion { layout, colour }, level, row, group, groups };
        let octets = (groups * wire.pgroup.octets) as usize;
        if end == 0 {
            // Nothing readable behind the last octet.
            let src = guarded.end(octets);
            paint(rng, src);
            case.check(src, "before a guard page");
        } else {
            // Tight, or with slack of no meaning.
            let slack = if end == 1 { 0 } else { 64 };
            let start = memory.as_ptr().align_offset(32) + alignment as usize;
            let src = &mut memory[start..start + octets + slack];
            paint(rng, src);
            case.check(src, &format!("alignment {alignment}, slack {slack}"));
        }
    };
    let pgroup = pair.sampling.pgroup(pair.depth).unwrap();
    // Every alignment, with every count of groups that a vector loop may see.
    let most = 72;
    for groups in 1..=most {
        let width = most * pgroup.width();
        for end in 0..2 {
            let group = rng.below(most - groups + 1);
            case(&mut rng, width, Some((group, groups)), groups % 32, end);
        }
    }
    for alignment in 0..32 {
        for end in 1..3 {
            let groups = 1 + rng.below(most);
            case(&mut rng, most * pgroup.width(), Some((most - groups, groups)), alignment, end);
        }
    }
    // Widths, odd ones too, with whole and partial rows.
    for width in (1..=33u32).chain([47, 48, 49, 95, 96, 97, 100, 127, 129, 191, 193, 250]) {
        for end in 0..3 {
            let groups = width.div_ceil(pgroup.width());
            let run = if rng.below(2) == 0 { Some((0, groups)) } else { None };
            let alignment = rng.below(32);
            case(&mut rng, width, run, alignment, end);
        }
    }
}

#[test]
fn every_conversion_at_every_level_is_the_law() {
    for level in Level::ALL {
        if !level.available() {
            println!("skipped: this CPU has no {}", level.name());
            continue;
        }
        let list: Vec<Pair> = pairs().filter(|&pair| available(pair, level)).collect();
        let have = list.len();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for part in list.chunks(have.div_ceil(threads).max(1)) {
                scope.spawn(move || {
                    let mut guarded = Guarded::new();
                    part.iter().for_each(|pair| check(*pair, level, &mut guarded));
                });
            }
        });
        println!("{}: {have} of {} conversions", level.name(), pairs().count());
        assert!(level != Level::Scalar || have == pairs().count());
    }
    let levels = |pair| Level::ALL.map(|l| if available(pair, l) { l.name() } else { "-" });
    for pair in pairs() {
        println!("{pair:32} {}", levels(pair).join(" "));
    }
}

#[test]
fn a_run_may_be_cut_anywhere() {
    let mut rng = Rng(77);
    for pair in pairs() {
        let width = 96 * 2 + 20;
        let conversion = Conversion { layout: pair.layout(width, 4, Scan::Progressive).unwrap(), colour: COLOUR };
        let wire = *conversion.wire();
        let mut row = vec![0; wire.row_octets() as usize];
        rng.fill(&mut row);
        for level in Level::ALL {
            let Some(function) = at(&conversion, level) else { continue };
            let mut whole = vec![0; conversion.layout.size];
            function(&conversion, Run { src: &row, groups: wire.row_pgroups(), row: 1, group: 0 }, &mut whole);
            let mut cut = vec![0; conversion.layout.size];
            let mut group = 0;
            while group < wire.row_pgroups() {
                let groups = (1 + rng.below(40)).min(wire.row_pgroups() - group);
                let src = &row[(group * wire.pgroup.octets) as usize..];
                function(&conversion, Run { src, groups, row: 1, group }, &mut cut);
                group += groups;
            }
            // All that is written is the same, but padding that a part may have overwritten with anything.
            let mut mask = Mask::new(&conversion.layout);
            mask.add(&conversion.layout, 1, 0..width as usize);
            for i in 0..whole.len() {
                let seen = !mask.ignored[i];
                assert_eq!(whole[i] & seen, cut[i] & seen, "{pair} {} octet {i}", level.name());
            }
        }
    }
}

#[test]
fn a_run_outside_of_the_raster_is_never_converted() {
    let pair = Pair { sampling: Sampling::YCbCr422, depth: Depth::D10, output: Output::Planar };
    let conversion = Conversion { layout: pair.layout(48, 4, Scan::Progressive).unwrap(), colour: COLOUR };
    let size = conversion.layout.size;
    for level in Level::ALL {
        let Some(function) = at(&conversion, level) else { continue };
        for (octets, groups, row, group, size) in [
            (120, 24, 4, 0, size),
            (120, 24, 0, 1, size),
            (119, 24, 0, 0, size),
            (120, 0, 0, 0, size),
            (120, u32::MAX, 0, 1, size),
            (120, 24, 0, 0, size - 1),
        ] {
            let src = vec![0; octets];
            let mut memory = vec![0; size];
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                function(&conversion, Run { src: &src, groups, row, group }, &mut memory);
            }));
            assert!(result.is_err(), "{}: {groups} groups at {row}, {group}", level.name());
        }
    }
}

fn random_frame(pool: &FramePool<Host>, rng: &mut Rng) -> (FrameBuf<Host>, Vec<u8>) {
    let mut frame = pool.take().unwrap();
    rng.fill(frame.region_mut().as_mut_slice());
    // Unused bits of v210 are zero in any frame that a kernel has filled.
    if frame.layout().output == Output::V210 {
        frame.region_mut().as_mut_slice().chunks_exact_mut(4).for_each(|w| w[3] &= 0x3f);
    }
    let octets = frame.region_mut().as_slice().to_vec();
    (frame, octets)
}

#[test]
fn concealment_touches_the_missing_pixels_alone() {
    let mut rng = Rng(4711);
    for pair in pairs() {
        for _ in 0..12 {
            let scan = if pair.sampling.subsampling() == Subsampling::Quarter420 {
                Scan::Progressive
            } else {
                rng.of(Scan::ALL)
            };
            let (width, height) = (1 + rng.below(120), rng.of(&[2, 3, 4, 7, 8]));
            let Some(layout) = pair.layout(width, height, scan) else { continue };
            let wire = layout.wire;
            let conversion = Conversion { layout: layout.clone(), colour: COLOUR };
            let mut missing = Vec::new();
            let mut mask = Mask::new(&layout);
            for row in 0..wire.rows() {
                let mut group = rng.below(wire.row_pgroups() + 3);
                while group < wire.row_pgroups() {
                    let groups = 1 + rng.below((wire.row_pgroups() - group).min(20));
                    missing.push(Missing { row, octet: group * wire.pgroup.octets, len: groups * wire.pgroup.octets });
                    let columns = group * wire.pgroup.width()..(group + groups) * wire.pgroup.width();
                    mask.add(&layout, row as usize, columns.start as usize..columns.end as usize);
                    group += groups + 1 + rng.below(20);
                }
            }
            // What lies outside of the raster is nobody's.
            missing.push(Missing { row: wire.rows(), octet: 0, len: 5 });
            missing.push(Missing { row: 0, octet: wire.row_octets(), len: u32::MAX });
            let pool = FramePool::host(layout.clone(), 2).unwrap();
            let mut kernel = CpuKernel::new(conversion.clone(), None);

            let (previous, old) = random_frame(&pool, &mut rng);
            let previous: Frame<Host> = previous.seal();
            let (mut frame, new) = random_frame(&pool, &mut rng);
            Kernel::<Host, Host>::conceal(&mut kernel, &mut frame, &missing, Some(&previous)).unwrap();
            let got = frame.region_mut().as_slice();
            for i in 0..layout.size {
                let bits = mask.pixels[i];
                assert_eq!(got[i], old[i] & bits | new[i] & !bits, "{pair} {width}x{height} {scan} octet {i}");
            }
            drop(previous);

            // Without a frame before, and painted: one colour each, the same for every missing pixel.
            for paint in [false, true] {
                let mut expected = vec![0; layout.size];
                let all: Vec<_> =
                    (0..wire.rows()).map(|row| Missing { row, octet: 0, len: wire.row_octets() }).collect();
                for (missing, check) in [(&all, false), (&missing, true)] {
                    let (mut frame, new) = random_frame(&pool, &mut rng);
                    if paint {
                        Kernel::<Host, Host>::paint(&mut kernel, &mut frame, missing).unwrap();
                    } else {
                        Kernel::<Host, Host>::conceal(&mut kernel, &mut frame, missing, None).unwrap();
                    }
                    let got = frame.region_mut().as_slice();
                    for i in (0..layout.size).filter(|_| check) {
                        let (bits, seen) = (mask.pixels[i], !mask.ignored[i]);
                        let right = expected[i] & bits | new[i] & !bits;
                        assert_eq!(got[i] & seen, right & seen, "{pair} {width}x{height} {scan} octet {i}");
                    }
                    expected.copy_from_slice(got);
                    frame.discard();
                }
            }
            frame.discard();
        }
    }
}

#[test]
fn black_and_the_mark_are_what_they_should_be() {
    let rgba = |sampling, depth, paint| {
        let pair = Pair { sampling, depth, output: Output::Rgba };
        let layout = pair.layout(8, 2, Scan::Progressive).unwrap();
        let pool = FramePool::host(layout.clone(), 1).unwrap();
        let mut kernel = CpuKernel::new(Conversion { layout, colour: COLOUR }, None);
        let mut frame = pool.take().unwrap();
        let missing = [Missing { row: 0, octet: 0, len: 1000 }];
        if paint {
            Kernel::<Host, Host>::paint(&mut kernel, &mut frame, &missing).unwrap();
        } else {
            Kernel::<Host, Host>::conceal(&mut kernel, &mut frame, &missing, None).unwrap();
        }
        let frame = frame.seal();
        [frame.row(0, 0)[0], frame.row(0, 0)[1], frame.row(0, 0)[2], frame.row(0, 0)[3]]
    };
    for &sampling in Sampling::ALL {
        for &depth in Depth::ALL {
            if sampling.pgroup(depth).is_none() {
                continue;
            }
            assert_eq!(rgba(sampling, depth, false), [0, 0, 0, 255], "{sampling} {depth}");
            let [r, g, b, _] = rgba(sampling, depth, true);
            let seen = if sampling == Sampling::Key { g > 250 } else { r > 150 && b > 150 && g < 120 };
            assert!(seen, "{sampling} {depth}: {r} {g} {b}");
        }
    }
}

/// FFmpeg converts a file of one frame; `None` when it is not installed.
fn ffmpeg(input: &[&str], octets: &[u8], output: &[&str]) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in");
    std::fs::write(&path, octets).unwrap();
    let out = std::process::Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin"])
        .args(input)
        .arg("-i")
        .arg(&path)
        .args(output)
        .args(["-frames:v", "1", "-f", "rawvideo", "-"])
        .output()
        .ok()?;
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Some(out.stdout)
}

/// A picture of random samples as `output`, planes in order and rows without padding but for v210.
fn convert(pair: Pair, width: u32, height: u32, seed: u64) -> (Vec<u8>, Vec<u8>) {
    let conversion = Conversion { layout: pair.layout(width, height, Scan::Progressive).unwrap(), colour: COLOUR };
    let layout = &conversion.layout;
    let wire = layout.wire;
    let mut octets = vec![0; wire.frame_octets() as usize];
    Rng(seed).fill(&mut octets);
    if wire.depth == Depth::D10 {
        // FFmpeg's v210 clips to 4..=1019, the codes that SDI does not reserve.
        let mut rng = Rng(seed);
        for group in octets.as_chunks_mut::<5>().0 {
            let reserved = |group: &[u8; 5]| {
                let bits = group.iter().fold(0u64, |bits, &o| bits << 8 | u64::from(o));
                (0..4).any(|i| !(4..=1019).contains(&(bits >> (i * 10) & 0x3ff)))
            };
            while reserved(group) {
                rng.fill(group);
            }
        }
    }
    let mut memory = vec![0; layout.size];
    let function = at(&conversion, Level::Scalar).unwrap();
    for (row, src) in octets.chunks(wire.row_octets() as usize).enumerate() {
        function(&conversion, Run { src, groups: wire.row_pgroups(), row: row as u32, group: 0 }, &mut memory);
    }
    let mut packed = Vec::new();
    for p in &layout.planes {
        for row in 0..p.rows {
            let octets = if pair.output == Output::V210 { p.stride } else { p.row_octets };
            packed.extend_from_slice(&memory[p.offset + row * p.stride..][..octets]);
        }
    }
    (octets, packed)
}

#[test]
fn ffmpeg_agrees() {
    let pair = |sampling, depth, output| Pair { sampling, depth, output };
    const SIZE: [&str; 4] = ["-f", "rawvideo", "-video_size", "50x6"];
    let raw = |format: &'static str| [SIZE[0], SIZE[1], SIZE[2], SIZE[3], "-pix_fmt", format];
    let wide = |p: Pair| convert(p, 50, 6, 99);

    let (_, planar) = wide(pair(Sampling::YCbCr422, Depth::D10, Output::Planar));
    let (_, v210) = wide(pair(Sampling::YCbCr422, Depth::D10, Output::V210));
    let Some(theirs) = ffmpeg(&raw("yuv422p10le"), &planar, &["-c:v", "v210"]) else {
        println!("skipped: no ffmpeg");
        return;
    };
    assert!(theirs == v210, "v210 from planar");
    let (_, p210) = wide(pair(Sampling::YCbCr422, Depth::D10, Output::P210));
    let theirs = ffmpeg(&raw("yuv422p10le"), &planar, &["-pix_fmt", "p210le"]);
    assert!(theirs.unwrap() == p210, "p210 from planar");
    let theirs = ffmpeg(&["-f", "v210", "-video_size", "50x6"], &v210, &["-pix_fmt", "yuv422p10le"]);
    assert!(theirs.unwrap() == planar, "planar from v210");

    for (sampling, depth, wire_format, output, format) in [
        (Sampling::YCbCr422, Depth::D8, "uyvy422", Output::Planar, "yuv422p"),
        (Sampling::Rgb, Depth::D8, "rgb24", Output::Planar, "gbrp"),
        (Sampling::Rgb, Depth::D16, "rgb48be", Output::Planar, "gbrp16le"),
        (Sampling::Key, Depth::D16, "gray16be", Output::Planar, "gray16le"),
        (Sampling::Rgb, Depth::D8, "rgb24", Output::Rgba, "rgba"),
    ] {
        let pair = pair(sampling, depth, output);
        let conversion = Conversion {
            layout: pair.layout(50, 6, Scan::Progressive).unwrap(),
            colour: Colour { range: Range::Full, ..COLOUR },
        };
        let wire = *conversion.wire();
        let mut octets = vec![0; wire.frame_octets() as usize];
        Rng(5).fill(&mut octets);
        let mut memory = vec![0; conversion.layout.size];
        for (row, src) in octets.chunks(wire.row_octets() as usize).enumerate() {
            let run = Run { src, groups: wire.row_pgroups(), row: row as u32, group: 0 };
            at(&conversion, Level::Scalar).unwrap()(&conversion, run, &mut memory);
        }
        let rows = |p: &gdmedia::format::Plane| {
            let p = *p;
            (0..p.rows).map(move |row| p.offset + row * p.stride).map(move |at| at..at + p.row_octets)
        };
        let ours: Vec<u8> = conversion.layout.planes.iter().flat_map(rows).flat_map(|r| memory[r].to_vec()).collect();
        let theirs = ffmpeg(&raw(wire_format), &octets, &["-pix_fmt", format]).unwrap();
        assert!(theirs == ours, "{pair}");
    }
}

/// Memory that ends where nothing may be read.
mod guard {
    #![allow(unsafe_code)]

    pub struct Guarded {
        start: *mut u8,
    }

    const ROOM: usize = 8192;

    impl Guarded {
        pub fn new() -> Self {
            // SAFETY: a fresh anonymous mapping that nobody else knows; its last part is made inaccessible.
            let start = unsafe {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let start =
                    libc::mmap(std::ptr::null_mut(), 2 * ROOM, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
                assert!(start != libc::MAP_FAILED);
                assert_eq!(libc::mprotect(start.cast::<u8>().add(ROOM).cast(), ROOM, libc::PROT_NONE), 0);
                start.cast()
            };
            Guarded { start }
        }
        /// The last `n` octets before the guard.
        pub fn end(&mut self, n: usize) -> &mut [u8] {
            assert!(n <= ROOM);
            // SAFETY: `ROOM` octets at `start` are mapped, zeroed and ours; `&mut self` makes access exclusive.
            unsafe { std::slice::from_raw_parts_mut(self.start.add(ROOM - n), n) }
        }
    }

    impl Drop for Guarded {
        fn drop(&mut self) {
            // SAFETY: `new` mapped exactly this range.
            unsafe { libc::munmap(self.start.cast(), 2 * ROOM) };
        }
    }
}
