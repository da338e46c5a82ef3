//! Known answers, octets and samples placed by hand (ST 2110-20:2022, 6.2), at every level: rows long enough that whole
//! vectors, their ends and the way through the stack all meet them.

use gdmedia::format::Output;
use gdmedia::kernel::{Colour, Conversion, Level, Pair, Run, at, pairs};
use gdmedia::sdp::{Colorimetry, Depth, Range, Sampling, Scan, Tcs};

const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };

/// Rows of planes that one pgroup gives: plane, row, samples.
type Rows = &'static [(usize, usize, &'static [u16])];

const VECTORS: &[(Sampling, Depth, &[u8], Rows)] = &[
    (
        Sampling::YCbCr422,
        Depth::D8,
        &[0x80, 0x10, 0x81, 0xeb],
        &[(0, 0, &[0x10, 0xeb]), (1, 0, &[0x80]), (2, 0, &[0x81])],
    ),
    (
        Sampling::YCbCr422,
        Depth::D10,
        &[0x80, 0x6a, 0xb7, 0xfb, 0xac],
        &[(0, 0, &[0x2ab, 0x3ac]), (1, 0, &[0x201]), (2, 0, &[0x1fe])],
    ),
    (
        Sampling::YCbCr422,
        Depth::D12,
        &[0x80, 0x1a, 0xbc, 0x7f, 0xee, 0xb0],
        &[(0, 0, &[0xabc, 0xeb0]), (1, 0, &[0x801]), (2, 0, &[0x7fe])],
    ),
    (
        Sampling::YCbCr422,
        Depth::D16,
        &[0x80, 0x01, 0xab, 0xcd, 0x7f, 0xfe, 0xeb, 0x01],
        &[(0, 0, &[0xabcd, 0xeb01]), (1, 0, &[0x8001]), (2, 0, &[0x7ffe])],
    ),
    (
        Sampling::YCbCr444,
        Depth::D10,
        &[0x00, 0x50, 0x28, 0x0f, 0x04, 0x01, 0x50, 0x68, 0x1f, 0x08, 0x02, 0x50, 0xa8, 0x2f, 0x0c],
        &[
            (0, 0, &[0x102, 0x005, 0x308, 0x20b]),
            (1, 0, &[0x001, 0x304, 0x207, 0x10a]),
            (2, 0, &[0x203, 0x106, 0x009, 0x30c]),
        ],
    ),
    (
        Sampling::Rgb,
        Depth::D12,
        &[0x00, 0x11, 0x02, 0x20, 0x33, 0x04, 0x40, 0x55, 0x06],
        &[(0, 0, &[0x102, 0x405]), (1, 0, &[0x203, 0x506]), (2, 0, &[0x001, 0x304])],
    ),
    (
        Sampling::YCbCr420,
        Depth::D10,
        &[0x40, 0x50, 0x24, 0x45, 0x12, 0x80, 0x70, 0x14, 0x0d, 0x04, 0x44, 0xd1, 0x48, 0x0b, 0x02],
        &[
            (0, 0, &[0x101, 0x102, 0x103, 0x104]),
            (0, 1, &[0x111, 0x112, 0x113, 0x114]),
            (1, 0, &[0x201, 0x202]),
            (2, 0, &[0x301, 0x302]),
        ],
    ),
    (
        Sampling::YCbCr420,
        Depth::D12,
        &[0x10, 0x11, 0x02, 0x11, 0x11, 0x12, 0x80, 0x1c, 0x01],
        &[(0, 0, &[0x101, 0x102]), (0, 1, &[0x111, 0x112]), (1, 0, &[0x801]), (2, 0, &[0xc01])],
    ),
    (Sampling::Key, Depth::D10, &[0x00, 0x40, 0x2f, 0xfb, 0xff], &[(0, 0, &[0x001, 0x002, 0x3fe, 0x3ff])]),
    (Sampling::Key, Depth::D12, &[0x00, 0x1f, 0xfe], &[(0, 0, &[0x001, 0xffe])]),
];

#[test]
fn planes_hold_the_known_samples() {
    const GROUPS: u32 = 101;
    for &(sampling, depth, octets, rows) in VECTORS {
        let pgroup = sampling.pgroup(depth).unwrap();
        let pair = Pair { sampling, depth, output: Output::Planar };
        let layout = pair.layout(GROUPS * pgroup.width(), pgroup.rows, Scan::Progressive).unwrap();
        let conversion = Conversion { layout, colour: COLOUR };
        let src = octets.repeat(GROUPS as usize);
        for level in Level::ALL {
            let Some(function) = at(&conversion, level) else { continue };
            let mut memory = vec![0xa5; conversion.layout.size];
            function(&conversion, Run { src: &src, groups: GROUPS, row: 0, group: 0 }, &mut memory);
            for &(plane, row, samples) in rows {
                let plane = &conversion.layout.planes[plane];
                let got = &memory[plane.offset + row * plane.stride..][..plane.row_octets];
                let size = if depth == Depth::D8 { 1 } else { 2 };
                let expected: Vec<u8> = samples.iter().flat_map(|s| s.to_le_bytes().into_iter().take(size)).collect();
                assert_eq!(got, expected.repeat(GROUPS as usize), "{pair} {}", level.name());
            }
        }
    }
}

#[test]
fn v210_holds_the_known_words() {
    // Twelve samples, all different: Cb Y Cr Y Cb Y ... are 001 to 00c, moved up by 0x100.
    let samples: Vec<u16> = (0x101..=0x10c).collect();
    let mut src = Vec::new();
    for s in samples.chunks(4) {
        let bits = s.iter().fold(0u64, |bits, &s| bits << 10 | u64::from(s));
        src.extend_from_slice(&bits.to_be_bytes()[3..]);
    }
    assert_eq!(src[..5], [0x40, 0x50, 0x24, 0x0d, 0x04]);
    let words = [0x1034_0901_u32, 0x1064_1504, 0x1094_2107, 0x10c4_2d0a];
    let pair = Pair { sampling: Sampling::YCbCr422, depth: Depth::D10, output: Output::V210 };
    let conversion = Conversion { layout: pair.layout(6 * 31, 1, Scan::Progressive).unwrap(), colour: COLOUR };
    let expected: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    for level in Level::ALL {
        let Some(function) = at(&conversion, level) else { continue };
        let mut memory = vec![0; conversion.layout.size];
        function(&conversion, Run { src: &src.repeat(31), groups: 93, row: 0, group: 0 }, &mut memory);
        assert_eq!(memory[..16 * 31], expected.repeat(31), "{}", level.name());
    }
}

#[test]
fn no_conversion_lacks_a_level() {
    for pair in pairs() {
        let Some(layout) = pair.layout(48, 48, Scan::Progressive) else { continue };
        let conversion = Conversion { layout, colour: COLOUR };
        for level in [Level::Ssse3, Level::Avx2] {
            // Wire octets are copied; half floats are shown through a table, and made by the scalar law alone.
            let scalar_alone = matches!(pair.output, Output::Wire | Output::Rgb16f)
                || (pair.depth == Depth::F16 && pair.output == Output::Rgba);
            assert_eq!(at(&conversion, level).is_some(), level.available() && !scalar_alone, "{pair} {}", level.name());
        }
    }
}
