//! Known answers: the vectors of ST 2110-20 and RFC 4175 by hand, and what each output makes of them.

use super::*;
use crate::format::Layout;
use crate::kernel::Colour;
use gdmedia_sdp::{Colorimetry, Range, Sampling, Scan, Tcs};

const SDR_709: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };

struct Picture {
    conversion: Conversion,
    memory: Vec<u8>,
}

/// A picture of one wire row (4:2:0: two rows) that consists of these octets.
fn picture(sampling: Sampling, depth: Depth, output: Output, octets: &[u8]) -> Picture {
    let pgroup = sampling.pgroup(depth).unwrap();
    let groups = octets.len() as u32 / pgroup.octets;
    let wire = WireFormat::new(sampling, depth, groups * pgroup.width(), pgroup.rows, Scan::Progressive).unwrap();
    picture_of(Layout::new(wire, output).unwrap(), SDR_709, octets)
}

fn picture_of(layout: Layout, colour: Colour, octets: &[u8]) -> Picture {
    let conversion = Conversion { layout, colour };
    let mut memory = vec![0xee; conversion.layout.size];
    let wire = *conversion.wire();
    for (row, octets) in octets.chunks(wire.row_octets() as usize).enumerate() {
        let run = Run { src: octets, groups: wire.row_pgroups(), row: row as u32, group: 0 };
        select(&conversion)(&conversion, run, &mut memory);
    }
    Picture { conversion, memory }
}

impl Picture {
    fn row(&self, plane: usize, row: usize) -> &[u8] {
        let p = &self.conversion.layout.planes[plane];
        &self.memory[p.offset + row * p.stride..][..p.row_octets]
    }
    fn row16(&self, plane: usize, row: usize) -> Vec<u16> {
        self.row(plane, row).chunks(2).map(|o| u16::from_le_bytes([o[0], o[1]])).collect()
    }
    fn words(&self) -> Vec<u32> {
        self.row(0, 0).chunks(4).map(|o| u32::from_le_bytes([o[0], o[1], o[2], o[3]])).collect()
    }
}

fn planar16(sampling: Sampling, depth: Depth, octets: &[u8], planes: &[&[u16]]) {
    let p = picture(sampling, depth, Output::Planar, octets);
    assert_eq!(p.conversion.layout.planes.len(), planes.len());
    for (i, plane) in planes.iter().enumerate() {
        assert_eq!(p.row16(i, 0), *plane, "{sampling} {depth} plane {i}");
    }
}

#[test]
fn planar_422() {
    let octets = [0x80, 0x6a, 0xb7, 0xfb, 0xac];
    planar16(Sampling::YCbCr422, Depth::D10, &octets, &[&[0x2ab, 0x3ac], &[0x201], &[0x1fe]]);
    planar16(Sampling::ICtCp422, Depth::D10, &octets, &[&[0x2ab, 0x3ac], &[0x201], &[0x1fe]]);
    planar16(Sampling::ClYCbCr422, Depth::D10, &octets, &[&[0x2ab, 0x3ac], &[0x201], &[0x1fe]]);
    let octets = [0x80, 0x1a, 0xbc, 0x7f, 0xee, 0xb0];
    planar16(Sampling::YCbCr422, Depth::D12, &octets, &[&[0xabc, 0xeb0], &[0x801], &[0x7fe]]);
    let octets = [0x80, 0x01, 0xab, 0xcd, 0x7f, 0xfe, 0xeb, 0x01];
    planar16(Sampling::YCbCr422, Depth::D16, &octets, &[&[0xabcd, 0xeb01], &[0x8001], &[0x7ffe]]);
    planar16(Sampling::YCbCr422, Depth::F16, &octets, &[&[0xabcd, 0xeb01], &[0x8001], &[0x7ffe]]);
    let p = picture(Sampling::YCbCr422, Depth::D8, Output::Planar, &[0x80, 0x10, 0x81, 0xeb]);
    assert_eq!([p.row(0, 0), p.row(1, 0), p.row(2, 0)], [&[0x10, 0xeb][..], &[0x80], &[0x81]]);
}

#[test]
fn planar_444_rgb_xyz() {
    let ten = [0x00, 0x50, 0x28, 0x0f, 0x04, 0x01, 0x50, 0x68, 0x1f, 0x08, 0x02, 0x50, 0xa8, 0x2f, 0x0c];
    let (p, q, r) = ([0x001, 0x304, 0x207, 0x10a], [0x102, 0x005, 0x308, 0x20b], [0x203, 0x106, 0x009, 0x30c]);
    // Wire: Cb Y Cr; planes: Y Cb Cr. Wire: R G B; planes: G B R.
    planar16(Sampling::YCbCr444, Depth::D10, &ten, &[&q, &p, &r]);
    planar16(Sampling::ICtCp444, Depth::D10, &ten, &[&q, &p, &r]);
    planar16(Sampling::Rgb, Depth::D10, &ten, &[&q, &r, &p]);
    let twelve = [0x00, 0x11, 0x02, 0x20, 0x33, 0x04, 0x40, 0x55, 0x06];
    planar16(Sampling::YCbCr444, Depth::D12, &twelve, &[&[0x102, 0x405], &[0x001, 0x304], &[0x203, 0x506]]);
    planar16(Sampling::Rgb, Depth::D12, &twelve, &[&[0x102, 0x405], &[0x203, 0x506], &[0x001, 0x304]]);
    planar16(Sampling::Xyz, Depth::D12, &twelve, &[&[0x001, 0x304], &[0x102, 0x405], &[0x203, 0x506]]);
    let sixteen = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc];
    for depth in [Depth::D16, Depth::F16] {
        planar16(Sampling::YCbCr444, depth, &sixteen, &[&[0x5678], &[0x1234], &[0x9abc]]);
        planar16(Sampling::Rgb, depth, &sixteen, &[&[0x5678], &[0x9abc], &[0x1234]]);
        planar16(Sampling::Xyz, depth, &sixteen, &[&[0x1234], &[0x5678], &[0x9abc]]);
    }
    let p = picture(Sampling::Rgb, Depth::D8, Output::Planar, &[1, 2, 3, 4, 5, 6]);
    assert_eq!([p.row(0, 0), p.row(1, 0), p.row(2, 0)], [[2, 5], [3, 6], [1, 4]]);
    let p = picture(Sampling::YCbCr444, Depth::D8, Output::Planar, &[1, 2, 3, 4, 5, 6]);
    assert_eq!([p.row(0, 0), p.row(1, 0), p.row(2, 0)], [[2, 5], [1, 4], [3, 6]]);
}

#[test]
fn planar_420() {
    let ten = [0x40, 0x50, 0x24, 0x45, 0x12, 0x80, 0x70, 0x14, 0x0d, 0x04, 0x44, 0xd1, 0x48, 0x0b, 0x02];
    let p = picture(Sampling::YCbCr420, Depth::D10, Output::Planar, &ten);
    assert_eq!(p.row16(0, 0), [0x101, 0x102, 0x103, 0x104]);
    assert_eq!(p.row16(0, 1), [0x111, 0x112, 0x113, 0x114]);
    assert_eq!(p.row16(1, 0), [0x201, 0x202]);
    assert_eq!(p.row16(2, 0), [0x301, 0x302]);
    let p = picture(
        Sampling::YCbCr420,
        Depth::D12,
        Output::Planar,
        &[0x10, 0x11, 0x02, 0x11, 0x11, 0x12, 0x80, 0x1c, 0x01],
    );
    assert_eq!((p.row16(0, 0), p.row16(0, 1)), (vec![0x101, 0x102], vec![0x111, 0x112]));
    assert_eq!((p.row16(1, 0), p.row16(2, 0)), (vec![0x801], vec![0xc01]));
    let p = picture(Sampling::YCbCr420, Depth::D8, Output::Planar, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!((p.row(0, 0), p.row(0, 1)), (&[1, 2, 7, 8][..], &[3, 4, 9, 10][..]));
    assert_eq!((p.row(1, 0), p.row(2, 0)), (&[5, 11][..], &[6, 12][..]));
}

#[test]
fn planar_key() {
    planar16(Sampling::Key, Depth::D10, &[0x00, 0x40, 0x2f, 0xfb, 0xff], &[&[0x001, 0x002, 0x3fe, 0x3ff]]);
    planar16(Sampling::Key, Depth::D12, &[0x00, 0x1f, 0xfe], &[&[0x001, 0xffe]]);
    planar16(Sampling::Key, Depth::D16, &[0xab, 0xcd], &[&[0xabcd]]);
    planar16(Sampling::Key, Depth::F16, &[0x3c, 0x00], &[&[0x3c00]]);
    assert_eq!(picture(Sampling::Key, Depth::D8, Output::Planar, &[7, 9]).row(0, 0), [7, 9]);
}

#[test]
fn wire_octets_stay() {
    let octets: Vec<u8> = (0..60).collect();
    assert_eq!(picture(Sampling::YCbCr444, Depth::D10, Output::Wire, &octets).row(0, 0), octets);
}

// Three pgroups: Cb Y Cr Y = 201 2AB 1FE 3AC, then 3FF 000 3FF 000, then 000 3FF 000 3FF.
const SIX: [u8; 15] = [0x80, 0x6a, 0xb7, 0xfb, 0xac, 0xff, 0xc0, 0x0f, 0xfc, 0x00, 0x00, 0x3f, 0xf0, 0x03, 0xff];

#[test]
fn uyvy() {
    let p = picture(Sampling::YCbCr422, Depth::D10, Output::Uyvy, &SIX);
    assert_eq!(p.row(0, 0), [0x80, 0xaa, 0x7f, 0xeb, 0xff, 0, 0xff, 0, 0, 0xff, 0, 0xff]);
    let p = picture(Sampling::YCbCr422, Depth::D12, Output::Uyvy, &[0x80, 0x1a, 0xbc, 0x7f, 0xee, 0xb0]);
    assert_eq!(p.row(0, 0), [0x80, 0xab, 0x7f, 0xeb]);
    let p = picture(Sampling::YCbCr422, Depth::D16, Output::Uyvy, &[0x80, 0x01, 0xab, 0xcd, 0x7f, 0xfe, 0xeb, 0x01]);
    assert_eq!(p.row(0, 0), [0x80, 0xab, 0x7f, 0xeb]);
    // 4:4:4: the colour of the even columns.
    let p = picture(Sampling::YCbCr444, Depth::D8, Output::Uyvy, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(p.row(0, 0)[..7], [1, 2, 3, 5, 7, 8, 9]);
    // 4:2:0: both rows have the same colour.
    let p = picture(Sampling::YCbCr420, Depth::D8, Output::Uyvy, &[1, 2, 3, 4, 5, 6]);
    assert_eq!((p.row(0, 0), p.row(0, 1)), (&[5, 1, 6, 2][..], &[5, 3, 6, 4][..]));
}

#[test]
fn v210() {
    let p = picture(Sampling::YCbCr422, Depth::D10, Output::V210, &SIX);
    // Cr0 Y0 Cb0 · Y2 Cb2 Y1 · Cb4 Y3 Cr2 · Y5 Cr4 Y4, highest first.
    let words = [0x1fe << 20 | 0x2ab << 10 | 0x201, 0x3ff << 10 | 0x3ac, 0x3ff, 0x3ff << 20 | 0x3ff];
    assert_eq!(p.words(), words);
    // 8 bits are shifted up: Cb0 Y0 Cr0 = 80 10 81, Y1 = EB, the rest of the block stays.
    let p = picture(Sampling::YCbCr422, Depth::D8, Output::V210, &[0x80, 0x10, 0x81, 0xeb]);
    assert_eq!(p.words()[0], 0x204 << 20 | 0x040 << 10 | 0x200);
    assert_eq!(p.words()[1], 0xeeee_eeee & 0x3fff_fc00 | 0x3ac);
    assert_eq!(p.words()[2..], [0xeeee_eeee; 2]);
}

#[test]
fn p010_and_nv12() {
    let p = picture(Sampling::YCbCr422, Depth::D10, Output::P010, &SIX);
    assert_eq!(p.row16(0, 0), [0x2ab << 6, 0x3ac << 6, 0, 0, 0xffc0, 0xffc0]);
    assert_eq!(p.row16(1, 0), [0x201 << 6, 0x1fe << 6, 0xffc0, 0xffc0, 0, 0]);
    let p = picture(Sampling::YCbCr422, Depth::D10, Output::Nv12, &SIX);
    assert_eq!(p.row(0, 0), [0xaa, 0xeb, 0, 0, 0xff, 0xff]);
    assert_eq!(p.row(1, 0), [0x80, 0x7f, 0xff, 0xff, 0, 0]);
    // 12 bits lose two, 8 bits gain two.
    let p = picture(Sampling::YCbCr422, Depth::D12, Output::P010, &[0x80, 0x1a, 0xbf, 0x7f, 0xfe, 0xb0]);
    assert_eq!((p.row16(0, 0), p.row16(1, 0)), (vec![0xabc0, 0xeb00], vec![0x8000, 0x7fc0]));
    let p = picture(Sampling::YCbCr422, Depth::D8, Output::P010, &[0x80, 0x10, 0x81, 0xeb]);
    assert_eq!((p.row16(0, 0), p.row16(1, 0)), (vec![0x1000, 0xeb00], vec![0x8000, 0x8100]));
    let p = picture(Sampling::YCbCr420, Depth::D8, Output::Nv12, &[1, 2, 3, 4, 5, 6]);
    assert_eq!((p.row(0, 0), p.row(0, 1), p.row(1, 0)), (&[1, 2][..], &[3, 4][..], &[5, 6][..]));
}

#[test]
fn p210() {
    let p = picture(Sampling::YCbCr422, Depth::D10, Output::P210, &SIX);
    assert_eq!(p.row16(0, 0), [0x2ab << 6, 0x3ac << 6, 0, 0, 0xffc0, 0xffc0]);
    assert_eq!(p.row16(1, 0), [0x201 << 6, 0x1fe << 6, 0xffc0, 0xffc0, 0, 0]);
    // 12 bits lose two, 8 bits gain two.
    let p = picture(Sampling::YCbCr422, Depth::D12, Output::P210, &[0x80, 0x1a, 0xbf, 0x7f, 0xfe, 0xb0]);
    assert_eq!((p.row16(0, 0), p.row16(1, 0)), (vec![0xabc0, 0xeb00], vec![0x8000, 0x7fc0]));
    // Of 4:4:4 the colour of even columns; 4:2:0 has the same colour in both rows.
    let p = picture(Sampling::YCbCr444, Depth::D8, Output::P210, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!((p.row16(0, 0), p.row16(1, 0)), (vec![0x200, 0x500, 0x800], vec![0x100, 0x300, 0x700, 0x900]));
    let p = picture(Sampling::YCbCr420, Depth::D8, Output::P210, &[1, 2, 3, 4, 5, 6]);
    assert_eq!((p.row16(0, 0), p.row16(0, 1)), (vec![0x100, 0x200], vec![0x300, 0x400]));
    assert_eq!((p.row16(1, 0), p.row16(1, 1)), (vec![0x500, 0x600], vec![0x500, 0x600]));
    // Every row has its own colour, fields or not.
    let octets: Vec<u8> = (1..=5).flat_map(|row| [row, 0, row, 0]).collect();
    for scan in [Scan::Progressive, Scan::Interlaced] {
        let wire = WireFormat::new(Sampling::YCbCr422, Depth::D8, 2, 5, scan).unwrap();
        let p = picture_of(Layout::new(wire, Output::P210).unwrap(), SDR_709, &octets);
        assert_eq!([0, 1, 2, 3, 4].map(|row| p.row16(1, row)[0] >> 8), [1, 2, 3, 4, 5], "{scan}");
    }
}

#[test]
fn rgb16f_of_one_group() {
    // Cb Y Cr Y = 240 1F6 2D0 3AC: d = (438, 64, 208) and (876, 64, 208); sums by the matrix of BT.709:
    // R 9539 * 438 + 14686 * 208 = 7232770, 11410852; G 9539 * 438 - 1747 * 64 - 4366 * 208 = 3158146, 7336228;
    // B 9539 * 438 + 17305 * 64 = 5285602, 9463684. Over 8355840: 0.865594, 1.37; 0.377957, 0.877976; 0.632564, 1.13.
    let p = picture(Sampling::YCbCr422, Depth::D10, Output::Rgb16f, &[0x90, 0x1f, 0x6b, 0x43, 0xac]);
    assert_eq!(p.row16(0, 0), [0x3aed, 0x3c00]);
    assert_eq!(p.row16(1, 0), [0x360c, 0x3b06]);
    assert_eq!(p.row16(2, 0), [0x390f, 0x3c00]);
    // Planes are R, G, B whatever the wire's order; full range 255, 51, 0.
    let wire = WireFormat::new(Sampling::Rgb, Depth::D8, 1, 1, Scan::Progressive).unwrap();
    let full = Colour { range: Range::Full, ..SDR_709 };
    let p = picture_of(Layout::new(wire, Output::Rgb16f).unwrap(), full, &[255, 51, 0]);
    assert_eq!([0, 1, 2].map(|plane| p.row16(plane, 0)[0]), [0x3c00, 0x3266, 0]);
    // Half floats by way of ten bits: 1.0, 0.5, 0.0 of BT.709's linear light, 0.5 being 722 of 1023.
    let wire = WireFormat::new(Sampling::Rgb, Depth::F16, 1, 1, Scan::Progressive).unwrap();
    let linear = Colour { tcs: Tcs::Linear, ..SDR_709 };
    let p = picture_of(Layout::new(wire, Output::Rgb16f).unwrap(), linear, &[0x3c, 0, 0x38, 0, 0, 0]);
    assert_eq!([0, 1, 2].map(|plane| p.row16(plane, 0)[0]), [0x3c00, 0x39a5, 0]);
}

#[test]
fn colour_rows_of_fields_alternate() {
    // Eight rows, colour 1, 2 … 8; which of them are kept?
    let octets: Vec<u8> = (1..=8).flat_map(|row| [row, 0, row, 0]).collect();
    for (scan, kept) in [(Scan::Progressive, [1, 3, 5, 7]), (Scan::Psf, [1, 3, 5, 7]), (Scan::Interlaced, [1, 2, 5, 6])]
    {
        let wire = WireFormat::new(Sampling::YCbCr422, Depth::D8, 2, 8, scan).unwrap();
        let p = picture_of(Layout::new(wire, Output::Nv12).unwrap(), SDR_709, &octets);
        assert_eq!([0, 1, 2, 3].map(|row| p.row(1, row)[0]), kept, "{scan}");
    }
}

fn rgba(sampling: Sampling, depth: Depth, colour: Colour, octets: &[u8]) -> Vec<[u8; 4]> {
    let layout = picture(sampling, depth, Output::Rgba, octets).conversion.layout;
    picture_of(layout, colour, octets).row(0, 0).as_chunks().0.to_vec()
}

/// Octets of a 4:4:4 pixel of 8 bits from Y Cb Cr.
fn ycbcr(y: u8, b: u8, r: u8) -> [u8; 3] {
    [b, y, r]
}

#[test]
fn rgba_of_bars() {
    // 100 % bars in 8 bits, narrow, as every table has them.
    let white = [255; 4];
    let bars_709 = [
        (ycbcr(235, 128, 128), white),
        (ycbcr(219, 16, 138), [255, 255, 0, 255]),
        (ycbcr(188, 154, 16), [0, 255, 255, 255]),
        (ycbcr(173, 42, 26), [0, 255, 0, 255]),
        (ycbcr(78, 214, 230), [255, 0, 255, 255]),
        (ycbcr(63, 102, 240), [255, 0, 0, 255]),
        (ycbcr(32, 240, 118), [0, 0, 255, 255]),
        (ycbcr(16, 128, 128), [0, 0, 0, 255]),
    ];
    let bars_601 = [
        (ycbcr(210, 16, 146), [255, 255, 0, 255]),
        (ycbcr(145, 54, 34), [0, 255, 0, 255]),
        (ycbcr(81, 90, 240), [255, 0, 0, 255]),
        (ycbcr(41, 240, 110), [0, 0, 255, 255]),
    ];
    let bars_2020 = [
        (ycbcr(222, 16, 137), [255, 255, 0, 255]),
        (ycbcr(74, 97, 240), [255, 0, 0, 255]),
        (ycbcr(29, 240, 119), [0, 0, 255, 255]),
    ];
    let near = |bars: &[([u8; 3], [u8; 4])], colorimetry| {
        for (octets, expected) in bars {
            let colour = Colour { colorimetry, ..SDR_709 };
            let got = rgba(Sampling::YCbCr444, Depth::D8, colour, octets)[0];
            // Eight-bit codes are themselves rounded by half a step.
            let off = got.iter().zip(expected).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
            assert!(off <= 2, "{colorimetry} {octets:?}: {got:?} instead of {expected:?}");
        }
    };
    near(&bars_709, Colorimetry::Bt709);
    near(&bars_601, Colorimetry::Bt601);
    near(&bars_2020, Colorimetry::Bt2020);
    near(&bars_2020, Colorimetry::Bt2100);
    near(&bars_601, Colorimetry::Unspecified);
}

#[test]
fn rgba_grey_is_exact() {
    let narrow = SDR_709;
    let full = Colour { range: Range::Full, ..SDR_709 };
    // Black and white of both ranges, 8 and 10 bits; values outside are clipped.
    let ten = |y: u16| [0x80, (y >> 4 & 63) as u8, ((y & 15) << 4 | 8) as u8, (y >> 8) as u8, y as u8];
    for (y, grey) in [(0, 0), (64, 0), (502, 128), (940, 255), (1023, 255)] {
        assert_eq!(rgba(Sampling::YCbCr422, Depth::D10, narrow, &ten(y)), [[grey, grey, grey, 255]; 2], "{y}");
    }
    for (y, grey) in [(0, 0), (512, 128), (1023, 255)] {
        assert_eq!(rgba(Sampling::YCbCr422, Depth::D10, full, &ten(y)), [[grey, grey, grey, 255]; 2], "{y}");
    }
    for v in 0..=255 {
        assert_eq!(rgba(Sampling::Rgb, Depth::D8, full, &[v, 255 - v, 7]), [[v, 255 - v, 7, 255]]);
        assert_eq!(rgba(Sampling::Key, Depth::D8, full, &[v]), [[v, v, v, 255]]);
        assert_eq!(rgba(Sampling::YCbCr420, Depth::D8, full, &[v, v, v, v, 128, 128]), [[v, v, v, 255]; 2]);
    }
    assert_eq!(rgba(Sampling::Key, Depth::D8, narrow, &[16, 235]), [[0, 0, 0, 255], [255; 4]]);
    for sampling in [Sampling::ICtCp444, Sampling::ClYCbCr444] {
        assert_eq!(rgba(sampling, Depth::D8, narrow, &ycbcr(235, 128, 128)), [[255; 4]]);
        assert_eq!(rgba(sampling, Depth::D8, narrow, &ycbcr(16, 128, 128)), [[0, 0, 0, 255]]);
    }
    assert_eq!(rgba(Sampling::Xyz, Depth::D12, narrow, &[0xff; 9]), [[255; 4]; 2]);
}

#[test]
fn rgba_of_half_floats() {
    let linear = Colour { tcs: Tcs::Linear, ..SDR_709 };
    // 1.0, 0.5, 0.0; then 2.0, -1.0, not a number.
    let octets = [0x3c, 0x00, 0x38, 0x00, 0x00, 0x00, 0x40, 0x00, 0xbc, 0x00, 0x7e, 0x00];
    // BT.709: 1.099 * 0.5^0.45 - 0.099 = 0.7055.
    assert_eq!(rgba(Sampling::Rgb, Depth::F16, linear, &octets), [[255, 180, 0, 255], [255, 0, 0, 255]]);
    assert_eq!(rgba(Sampling::Rgb, Depth::F16, SDR_709, &octets)[0], [255, 128, 0, 255]);
    // Y 1.0 without colour.
    assert_eq!(rgba(Sampling::YCbCr444, Depth::F16, SDR_709, &[0, 0, 0x3c, 0, 0, 0]), [[255; 4]]);
}

#[test]
fn matrices_are_those_of_the_books() {
    // In units of 2^-15 of a ten-bit narrow code: 255 / 876 = 0.29110; BT.709 Cr to R: 1.5748 * 255 / 896 = 0.44819 …
    let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, 1920, 1080, Scan::Progressive).unwrap();
    let layout = Layout::new(wire, Output::Rgba).unwrap();
    let law = rgba::law(&Conversion { layout, colour: SDR_709 });
    assert_eq!(law.offset, [64, 512, 512]);
    assert_eq!(law.matrix, [[9539, 0, 14686], [9539, -1747, -4366], [9539, 17305, 0]]);
}

#[test]
fn remarks_name_what_is_not_right() {
    let remark = |sampling, colour, output| {
        let wire = WireFormat::new(sampling, Depth::D12, 16, 16, Scan::Progressive).unwrap();
        Conversion { layout: Layout::new(wire, output).unwrap(), colour }.remark()
    };
    let pq = Colour { colorimetry: Colorimetry::Bt2100, tcs: Tcs::Pq, range: Range::Narrow };
    assert_eq!(remark(Sampling::YCbCr422, SDR_709, Output::Rgba), None);
    assert!(remark(Sampling::YCbCr422, pq, Output::Rgba).unwrap().contains("PQ"));
    assert!(remark(Sampling::YCbCr422, pq, Output::Rgb16f).unwrap().contains("PQ"));
    assert_eq!(remark(Sampling::YCbCr422, pq, Output::Planar), None);
    assert!(remark(Sampling::Xyz, SDR_709, Output::Rgba).unwrap().contains("XYZ"));
}
