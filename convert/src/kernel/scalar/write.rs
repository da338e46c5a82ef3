//! From samples to the frame: planar, P010, P210, NV12, UYVY, v210.

use super::{At, Samples, WIDE, picture_rows, rgb16f, rgba};
use crate::format::{Output, Plane, WireFormat};
use crate::kernel::Conversion;
use gdmedia_sdp::{Depth, Scan, Subsampling};

/// Writes a piece.
pub type Writer = fn(&Conversion, &Samples, At, &mut [u8]);

/// The writer of an output.
pub fn writer(output: Output) -> Writer {
    match output {
        Output::Planar => planar,
        Output::P010 => semi_planar::<true, false>,
        Output::P210 => semi_planar::<true, true>,
        Output::Nv12 => semi_planar::<false, false>,
        Output::Uyvy => packed::<false>,
        Output::V210 => packed::<true>,
        Output::Rgba => rgba::write,
        Output::Rgb16f => rgb16f::write,
        // Wire octets are copied, never read as samples.
        Output::Wire => |_, _, _, _| {},
    }
}

/// Samples as they are, one plane a component.
fn planar(conversion: &Conversion, samples: &Samples, at: At, frame: &mut [u8]) {
    let wire = conversion.wire();
    let store = if wire.depth == Depth::D8 { store8 } else { store16 };
    let size = if wire.depth == Depth::D8 { 1 } else { 2 };
    let planes = &conversion.layout.planes;
    for (row, line) in picture_rows(wire, at.wire_row).zip(&samples.first) {
        store(cut(frame, &planes[0], row, at.x * size), &line[..at.pixels]);
    }
    let (x, pixels) = match wire.sampling.subsampling() {
        Subsampling::Full444 | Subsampling::One => (at.x, at.pixels),
        Subsampling::Half422 | Subsampling::Quarter420 => (at.x / 2, at.pixels / 2),
    };
    for (plane, line) in planes.iter().skip(1).zip([&samples.second, &samples.third]) {
        store(cut(frame, plane, at.wire_row, x * size), &line[..pixels]);
    }
}

/// P010 and P210 (`TEN`): ten bits at the top of sixteen; NV12: eight bits. P210 has colour in `EVERY` row.
fn semi_planar<const TEN: bool, const EVERY: bool>(
    conversion: &Conversion,
    samples: &Samples,
    at: At,
    frame: &mut [u8],
) {
    let wire = conversion.wire();
    let top = 16 - wire.depth.bits();
    let fit = |s: u16| if TEN { s << top & 0xffc0 } else { s << top >> 8 };
    let planes = &conversion.layout.planes;
    let put = |plane: &Plane, row: usize, x: usize, line: &[u16], frame: &mut [u8]| {
        if TEN {
            store16(cut(frame, plane, row, x * 2), line);
        } else {
            store8(cut(frame, plane, row, x), line);
        }
    };
    let mut line = [0; WIDE + 2];
    for (row, samples) in picture_rows(wire, at.wire_row).zip(&samples.first) {
        let line = &mut line[..at.pixels];
        line.iter_mut().zip(samples).for_each(|(out, &s)| *out = fit(s));
        put(&planes[0], row, at.x, line, frame);
    }
    let rows = match colour_row(wire, at.wire_row) {
        _ if EVERY => picture_rows(wire, at.wire_row),
        Some(row) => row..row + 1,
        None => return,
    };
    let full = wire.sampling.subsampling() == Subsampling::Full444;
    // The first even column, and from there every second one; subsampled formats have colour for these alone.
    let (from, step) = if full { (at.x & 1, 2) } else { (0, 1) };
    let count = (at.pixels - (at.x & 1)).div_ceil(2);
    let colour = samples.second[from..].iter().step_by(step).zip(samples.third[from..].iter().step_by(step));
    for (pair, (&b, &r)) in line.chunks_exact_mut(2).zip(colour).take(count) {
        pair.copy_from_slice(&[fit(b), fit(r)]);
    }
    for row in rows {
        put(&planes[1], row, at.x.next_multiple_of(2), &line[..count * 2], frame);
    }
}

/// The colour row of a 4:2:0 output that a wire row fills; see [`crate::format::Layout`].
pub fn colour_row(wire: &WireFormat, wire_row: usize) -> Option<usize> {
    if wire.sampling.subsampling() == Subsampling::Quarter420 {
        return Some(wire_row);
    }
    let (field, fields) = if wire.scan == Scan::Interlaced { (wire_row & 1, 2) } else { (0, 1) };
    let in_field = wire_row / fields;
    (in_field & 1 == 0).then_some(in_field / 2 * fields + field)
}

/// Cb Y Cr Y: v210 (`TEN`) or UYVY.
fn packed<const TEN: bool>(conversion: &Conversion, samples: &Samples, at: At, frame: &mut [u8]) {
    let wire = conversion.wire();
    let full = wire.sampling.subsampling() == Subsampling::Full444;
    let plane = &conversion.layout.planes[0];
    let top = 16 - wire.depth.bits();
    for (row, first) in picture_rows(wire, at.wire_row).zip(&samples.first) {
        let mut line = [0; 2 * WIDE + 2];
        let interleave = if full { interleave_444 } else { interleave_422 };
        let n = interleave(at.x, &first[..at.pixels], samples, &mut line);
        let line = &mut line[..n];
        // An even column begins with its Cb, an odd one has its luma alone.
        let start = at.x * 2 + (at.x & 1);
        let row_start = plane.offset + row * plane.stride;
        if TEN {
            line.iter_mut().for_each(|s| *s = *s << top >> 6);
            store_v210(&mut frame[row_start..row_start + plane.stride], start, line);
        } else {
            line.iter_mut().for_each(|s| *s = *s << top >> 8);
            store8(&mut frame[row_start + start..], line);
        }
    }
}

/// A piece of a subsampled format begins with an even column and ends with an odd one.
fn interleave_422(_: usize, luma: &[u16], samples: &Samples, line: &mut [u16]) -> usize {
    let colour = samples.second.iter().zip(&samples.third);
    for ((out, y), (&b, &r)) in line.as_chunks_mut::<4>().0.iter_mut().zip(luma.as_chunks::<2>().0).zip(colour) {
        *out = [b, y[0], r, y[1]];
    }
    luma.len() * 2
}

/// Drops the colour of odd columns. Returns how many samples there are: a piece may begin with an odd column, whose
/// colour lies in the piece before, and end with an even one, whose second luma lies in the next.
fn interleave_444(x: usize, luma: &[u16], samples: &Samples, line: &mut [u16]) -> usize {
    let mut n = 0;
    for (i, &luma) in luma.iter().enumerate() {
        if (x + i).is_multiple_of(2) {
            line[n..n + 3].copy_from_slice(&[samples.second[i], luma, samples.third[i]]);
            n += 3;
        } else {
            line[n] = luma;
            n += 1;
        }
    }
    n
}

/// Samples of 10 bits from sample `start` of a row on, three in a little-endian word, lowest first. Words that are
/// written in part keep their other samples.
pub fn store_v210(row: &mut [u8], start: usize, mut samples: &[u16]) {
    let mut words = row[start / 3 * 4..].chunks_exact_mut(4);
    let phase = start % 3;
    let merge = |word: &mut [u8], phase: usize, some: &[u16]| {
        let mut w = u32::from_le_bytes([word[0], word[1], word[2], word[3]]) & 0x3fff_ffff;
        for (i, &s) in some.iter().enumerate() {
            let shift = (phase + i) * 10;
            w = w & !(0x3ff << shift) | u32::from(s) << shift;
        }
        word.copy_from_slice(&w.to_le_bytes());
    };
    if phase > 0 {
        let (some, rest) = samples.split_at(samples.len().min(3 - phase));
        if let Some(word) = words.next() {
            merge(word, phase, some);
        }
        samples = rest;
    }
    let whole = samples.chunks_exact(3);
    let rest = whole.remainder();
    for (s, word) in whole.zip(&mut words) {
        let w = u32::from(s[0]) | u32::from(s[1]) << 10 | u32::from(s[2]) << 20;
        word.copy_from_slice(&w.to_le_bytes());
    }
    if !rest.is_empty()
        && let Some(word) = words.next()
    {
        merge(word, 0, rest);
    }
}

/// The memory from octet `octet` of a row on.
fn cut<'a>(frame: &'a mut [u8], plane: &Plane, row: usize, octet: usize) -> &'a mut [u8] {
    &mut frame[plane.offset + row * plane.stride + octet..]
}

fn store8(memory: &mut [u8], samples: &[u16]) {
    for (o, &s) in memory[..samples.len()].iter_mut().zip(samples) {
        *o = s as u8;
    }
}

fn store16(memory: &mut [u8], samples: &[u16]) {
    for (o, &s) in memory[..samples.len() * 2].chunks_exact_mut(2).zip(samples) {
        o.copy_from_slice(&s.to_le_bytes());
    }
}
