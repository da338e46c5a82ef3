//! Samples into pgroups: the plain packer of the sender (ST 2110-20:2022, tables 1 to 5).

use crate::format::WireFormat;
use gdmedia_sdp::{Depth, Sampling, Subsampling};

/// One sample of a pgroup: which component, and where in the group's own block of that component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// 0: Y, I, R, X or key; 1: Cb, Ct, G or Y of XYZ; 2: Cr, Cp, B or Z.
    pub component: u8,
    pub dx: u8,
    pub dy: u8,
}

const fn at(component: u8, dx: u8, dy: u8) -> Place {
    Place { component, dx, dy }
}

const YUV444: [Place; 12] = [
    at(1, 0, 0),
    at(0, 0, 0),
    at(2, 0, 0),
    at(1, 1, 0),
    at(0, 1, 0),
    at(2, 1, 0),
    at(1, 2, 0),
    at(0, 2, 0),
    at(2, 2, 0),
    at(1, 3, 0),
    at(0, 3, 0),
    at(2, 3, 0),
];
const RGB: [Place; 12] = [
    at(0, 0, 0),
    at(1, 0, 0),
    at(2, 0, 0),
    at(0, 1, 0),
    at(1, 1, 0),
    at(2, 1, 0),
    at(0, 2, 0),
    at(1, 2, 0),
    at(2, 2, 0),
    at(0, 3, 0),
    at(1, 3, 0),
    at(2, 3, 0),
];
const YUV422: [Place; 4] = [at(1, 0, 0), at(0, 0, 0), at(2, 0, 0), at(0, 1, 0)];
/// Two blocks of 2 x 2 in 10 bits; one, the first half, in 8 and 12 bits.
const YUV420: [Place; 12] = [
    at(0, 0, 0),
    at(0, 1, 0),
    at(0, 0, 1),
    at(0, 1, 1),
    at(1, 0, 0),
    at(2, 0, 0),
    at(0, 2, 0),
    at(0, 3, 0),
    at(0, 2, 1),
    at(0, 3, 1),
    at(1, 1, 0),
    at(2, 1, 0),
];
const KEY: [Place; 4] = [at(0, 0, 0), at(0, 1, 0), at(0, 2, 0), at(0, 3, 0)];

/// The samples of one pgroup, in wire order.
pub(crate) fn order(format: &WireFormat) -> &'static [Place] {
    let pixels = format.pgroup.width() as usize;
    match format.sampling.subsampling() {
        Subsampling::Full444 if matches!(format.sampling, Sampling::Rgb | Sampling::Xyz) => &RGB[..3 * pixels],
        Subsampling::Full444 => &YUV444[..3 * pixels],
        Subsampling::Half422 => &YUV422,
        Subsampling::Quarter420 => &YUV420[..3 * pixels],
        Subsampling::One => &KEY[..pixels],
    }
}

/// The component that carries most of the luminance: Y, I, G, Y of XYZ, key.
pub(crate) const fn luma_component(sampling: Sampling) -> u8 {
    match sampling {
        Sampling::Rgb | Sampling::Xyz => 1,
        _ => 0,
    }
}

/// Width and height of a component's plane.
pub fn plane_size(format: &WireFormat, component: usize) -> (usize, usize) {
    let (width, height) = (format.width as usize, format.height as usize);
    match (format.sampling.subsampling(), component) {
        (Subsampling::One, 1..) => (0, 0),
        (_, 0) | (Subsampling::Full444, _) => (width, height),
        (Subsampling::Half422, _) => (width.div_ceil(2), height),
        (Subsampling::Quarter420, _) => (width.div_ceil(2), height.div_ceil(2)),
    }
}

/// Octets of a sample in a planar file: 1 for 8 bits, else 2.
pub const fn sample_octets(depth: Depth) -> usize {
    if matches!(depth, Depth::D8) { 1 } else { 2 }
}

/// Octets of a planar picture without gaps.
pub fn planar_octets(format: &WireFormat) -> usize {
    (0..3).map(|c| plane_size(format, c)).map(|(w, h)| w * h).sum::<usize>() * sample_octets(format.depth)
}

/// A sample of a planar picture.
trait Sample: Copy {
    fn code(self) -> u16;
}
impl Sample for u8 {
    #[inline(always)]
    fn code(self) -> u16 {
        u16::from(self)
    }
}
impl Sample for u16 {
    #[inline(always)]
    fn code(self) -> u16 {
        self
    }
}
impl Sample for [u8; 2] {
    #[inline(always)]
    fn code(self) -> u16 {
        u16::from_le_bytes(self)
    }
}

/// Packs planes of 16-bit samples.
pub(crate) fn pack16(format: &WireFormat, planes: [&[u16]; 3], out: &mut [u8]) {
    pack(format, planes, out);
}

/// Packs a planar picture without gaps: planes in the order Y, Cb, Cr; G, B, R; X, Y, Z; one octet a sample for 8 bits,
/// else two, little-endian, in the low bits. Pixels beyond the width become zero. Does nothing when a length does not fit.
pub fn pack_planar(format: &WireFormat, picture: &[u8], out: &mut [u8]) {
    if picture.len() < planar_octets(format) || out.len() < format.frame_octets() as usize {
        return;
    }
    let octets = sample_octets(format.depth);
    let mut rest = picture;
    let mut planes: [&[u8]; 3] = std::array::from_fn(|c| {
        let (width, height) = plane_size(format, c);
        let (plane, tail) = rest.split_at((width * height * octets).min(rest.len()));
        rest = tail;
        plane
    });
    if format.sampling == Sampling::Rgb {
        planes.rotate_right(1);
    }
    if octets == 1 {
        pack::<u8>(format, planes, out);
    } else {
        pack(format, planes.map(|p| p.as_chunks::<2>().0), out);
    }
}

fn pack<S: Sample>(format: &WireFormat, planes: [&[S]; 3], out: &mut [u8]) {
    let row_octets = format.row_octets() as usize;
    let group_octets = format.pgroup.octets as usize;
    let sizes: [(usize, usize); 3] = std::array::from_fn(|c| plane_size(format, c));
    let order = order(format);
    for (wire_row, out) in out.chunks_exact_mut(row_octets).take(format.rows() as usize).enumerate() {
        if format.sampling.subsampling() == Subsampling::Half422 {
            let row = |c: usize| &planes[c][wire_row * sizes[c].0..][..sizes[c].0];
            pack_422(format.depth.bits(), row(0), row(1), row(2), out);
            continue;
        }
        for (group, out) in out.chunks_exact_mut(group_octets).enumerate() {
            let sample = |p: &Place| {
                let c = usize::from(p.component);
                let (per_group, rows) = match (format.sampling.subsampling(), c) {
                    (Subsampling::Quarter420, 0) => (format.pgroup.width() as usize, 2),
                    (Subsampling::Quarter420, _) => (format.pgroup.width() as usize / 2, 1),
                    _ => (format.pgroup.width() as usize, 1),
                };
                let (x, y) = (group * per_group + usize::from(p.dx), wire_row * rows + usize::from(p.dy));
                if x < sizes[c].0 && y < sizes[c].1 { planes[c][y * sizes[c].0 + x].code() } else { 0 }
            };
            pack_group(format.depth.bits(), order.iter().map(sample), out);
        }
    }
}

/// The most common subsampling, without index arithmetic for each sample.
fn pack_422<S: Sample>(bits: u32, y: &[S], cb: &[S], cr: &[S], out: &mut [u8]) {
    let group_octets = bits as usize / 2;
    let pairs = y.chunks(2).zip(cb).zip(cr);
    for (((y, cb), cr), out) in pairs.zip(out.chunks_exact_mut(group_octets)) {
        let second = y.get(1).map_or(0, |s| s.code());
        let word = [cb.code(), y[0].code(), cr.code(), second].iter().fold(0u64, |w, &s| w << bits | u64::from(s));
        // Left-justified, so that the first octets are the group.
        let word = if bits == 16 { word } else { word << (64 - 4 * bits) };
        out.copy_from_slice(&word.to_be_bytes()[..group_octets]);
    }
}

/// Concatenates samples, most significant bit first.
pub(crate) fn pack_group(bits: u32, samples: impl Iterator<Item = u16>, out: &mut [u8]) {
    let word = samples.fold(0u128, |w, s| w << bits | u128::from(s));
    let octets = word.to_be_bytes();
    // At most twelve samples of ten bits: 15 of 16 octets.
    out.copy_from_slice(&octets[octets.len() - out.len()..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use gdmedia_sdp::Scan;

    /// Samples in wire order and their octets, from the standard's bit layout.
    #[test]
    fn known_groups() {
        use Depth::*;
        use Sampling::*;
        let vectors: &[(Sampling, Depth, &[u16], &[u8])] = &[
            (YCbCr422, D8, &[0x80, 0x10, 0x81, 0xeb], &[0x80, 0x10, 0x81, 0xeb]),
            (YCbCr422, D10, &[0x201, 0x2ab, 0x1fe, 0x3ac], &[0x80, 0x6a, 0xb7, 0xfb, 0xac]),
            (YCbCr422, D12, &[0x801, 0xabc, 0x7fe, 0xeb0], &[0x80, 0x1a, 0xbc, 0x7f, 0xee, 0xb0]),
            (YCbCr422, D16, &[0x8001, 0xabcd, 0x7ffe, 0xeb01], &[0x80, 0x01, 0xab, 0xcd, 0x7f, 0xfe, 0xeb, 0x01]),
            (
                YCbCr444,
                D10,
                &[1, 0x102, 0x203, 0x304, 5, 0x106, 0x207, 0x308, 9, 0x10a, 0x20b, 0x30c],
                &[0x00, 0x50, 0x28, 0x0f, 0x04, 0x01, 0x50, 0x68, 0x1f, 0x08, 0x02, 0x50, 0xa8, 0x2f, 0x0c],
            ),
            (
                Rgb,
                D12,
                &[1, 0x102, 0x203, 0x304, 0x405, 0x506],
                &[0x00, 0x11, 0x02, 0x20, 0x33, 0x04, 0x40, 0x55, 0x06],
            ),
            (
                YCbCr420,
                D10,
                &[0x101, 0x102, 0x111, 0x112, 0x201, 0x301, 0x103, 0x104, 0x113, 0x114, 0x202, 0x302],
                &[0x40, 0x50, 0x24, 0x45, 0x12, 0x80, 0x70, 0x14, 0x0d, 0x04, 0x44, 0xd1, 0x48, 0x0b, 0x02],
            ),
            (
                YCbCr420,
                D12,
                &[0x101, 0x102, 0x111, 0x112, 0x801, 0xc01],
                &[0x10, 0x11, 0x02, 0x11, 0x11, 0x12, 0x80, 0x1c, 0x01],
            ),
            (Key, D10, &[1, 2, 0x3fe, 0x3ff], &[0x00, 0x40, 0x2f, 0xfb, 0xff]),
            (Key, D12, &[1, 0xffe], &[0x00, 0x1f, 0xfe]),
        ];
        for (sampling, depth, samples, octets) in vectors {
            let group = sampling.pgroup(*depth).unwrap();
            let format =
                WireFormat::new(*sampling, *depth, group.width(), group.rows, Scan::Progressive).expect("in the table");
            assert_eq!(order(&format).len(), samples.len(), "{sampling} {depth}");
            // A picture of one pgroup whose samples lie where the order says.
            let mut planes = [vec![], vec![], vec![]];
            for (c, plane) in planes.iter_mut().enumerate() {
                let (w, h) = plane_size(&format, c);
                plane.resize(w * h, 0u16);
            }
            for (place, sample) in order(&format).iter().zip(*samples) {
                let c = usize::from(place.component);
                let width = plane_size(&format, c).0;
                planes[c][usize::from(place.dy) * width + usize::from(place.dx)] = *sample;
            }
            let mut out = vec![0; octets.len()];
            pack16(&format, [&planes[0], &planes[1], &planes[2]], &mut out);
            assert_eq!(out, *octets, "{sampling} {depth}");
            // The same from a file's octets.
            let wide = sample_octets(*depth) == 2;
            let turned = if *sampling == Rgb { [1, 2, 0] } else { [0, 1, 2] };
            let file: Vec<u8> = turned
                .iter()
                .flat_map(|c| &planes[*c])
                .flat_map(|s| if wide { s.to_le_bytes().to_vec() } else { vec![*s as u8] })
                .collect();
            out.fill(0);
            pack_planar(&format, &file, &mut out);
            assert_eq!(out, *octets, "{sampling} {depth} from octets");
        }
    }

    #[test]
    fn pixels_beyond_the_width_are_zero() {
        let format = WireFormat::new(Sampling::YCbCr422, Depth::D8, 3, 1, Scan::Progressive).unwrap();
        let mut out = [9; 8];
        pack_planar(&format, &[1, 2, 3, 10, 11, 20, 21], &mut out);
        assert_eq!(out, [10, 1, 20, 2, 11, 3, 21, 0]);
        let format = WireFormat::new(Sampling::Key, Depth::D12, 1, 1, Scan::Progressive).unwrap();
        let mut out = [9; 3];
        pack_planar(&format, &[0xff, 0x0f], &mut out);
        assert_eq!(out, [0xff, 0xf0, 0x00]);
    }
}
