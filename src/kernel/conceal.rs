//! What stands where octets are missing: the frame before, black, or a colour that everybody sees.

use super::{Conversion, Run, RunFn};
use crate::format::{Layout, Output, WireFormat};
use crate::plan::Missing;
use gdmedia_convert::kernel::scalar::write::colour_row;
use gdmedia_sdp::{Depth, Range, Sampling, Subsampling};

/// Copies the pixels of the loss map, and no others, from the frame before. Both are frames of this layout.
pub fn copy(layout: &Layout, missing: &[Missing], frame: &mut [u8], previous: &[u8]) {
    for missing in missing {
        spans(layout, missing, |plane, row, start, end| {
            let plane = &layout.planes[plane];
            let row = plane.offset + row * plane.stride;
            if layout.output == Output::V210 {
                copy_v210(&mut frame[row..row + plane.stride], &previous[row..row + plane.stride], start, end);
            } else {
                frame[row + start..row + end].copy_from_slice(&previous[row + start..row + end]);
            }
        });
    }
}

/// The same parts of a frame's memory as [`copy`] copies, `start .. end` each, for whoever copies elsewhere: in octets from
/// the frame's first; of v210 in samples, three in each word.
pub fn ranges(layout: &Layout, missing: &[Missing], mut range: impl FnMut(usize, usize)) {
    for missing in missing {
        spans(layout, missing, |plane, row, start, end| {
            let plane = &layout.planes[plane];
            let row = plane.offset + row * plane.stride;
            let row = if layout.output == Output::V210 { row / 4 * 3 } else { row };
            if start < end {
                range(row + start, row + end);
            }
        });
    }
}

/// Samples `start .. end` of a v210 row; the others in their words stay.
fn copy_v210(row: &mut [u8], previous: &[u8], start: usize, end: usize) {
    for word in start / 3..end.div_ceil(3) {
        let mask = (word * 3..word * 3 + 3)
            .enumerate()
            .filter(|(_, sample)| (start..end).contains(sample))
            .fold(0u32, |mask, (i, _)| mask | 0x3ff << (i * 10));
        let octets = word * 4..word * 4 + 4;
        let load = |row: &[u8]| row.get(octets.clone()).and_then(|o| o.try_into().ok()).map_or(0, u32::from_le_bytes);
        let merged = load(row) & !mask & 0x3fff_ffff | load(previous) & mask;
        row[octets].copy_from_slice(&merged.to_le_bytes());
    }
}

/// The pgroups of one run of a loss map, `first .. end`; `None` when it lies outside of the raster.
pub(super) fn groups(wire: &WireFormat, missing: &Missing) -> Option<(u32, u32)> {
    let end = missing.octet.saturating_add(missing.len).min(wire.row_octets());
    let size = wire.pgroup.octets;
    (missing.row < wire.rows() && missing.octet < end).then(|| (missing.octet / size, end.div_ceil(size)))
}

/// Which part of which rows a missing run owns: `(plane, row, start, end)` in octets of the row, for v210 in samples.
/// Colour that pixels share belongs to the pgroup that it came with, or would have been taken from.
fn spans(layout: &Layout, missing: &Missing, mut span: impl FnMut(usize, usize, usize, usize)) {
    let wire = &layout.wire;
    let Some((first, end)) = groups(wire, missing) else { return };
    let row = missing.row as usize;
    if layout.output == Output::Wire {
        let size = wire.pgroup.octets;
        return span(0, row, (first * size) as usize, (end * size) as usize);
    }
    let columns = [first, end].map(|group| (group * wire.pgroup.width()).min(wire.width) as usize);
    let rows = wire.pgroup.rows as usize;
    let picture_rows = row * rows..(row * rows + rows).min(wire.height as usize);
    let mut luma = |plane: usize, octets: [usize; 2]| {
        for row in picture_rows.clone() {
            span(plane, row, octets[0], octets[1]);
        }
    };
    // Every second column has colour, the first one included.
    let pairs = columns.map(|x| x.div_ceil(2));
    match layout.output {
        Output::Rgba => luma(0, columns.map(|x| x * 4)),
        // Cb Y Cr Y: an even column has three samples, an odd one the fourth.
        Output::Uyvy | Output::V210 => luma(0, columns.map(|x| x * 2 + x % 2)),
        Output::Planar => {
            let size = if wire.depth == Depth::D8 { 1 } else { 2 };
            luma(0, columns.map(|x| x * size));
            let colour = match wire.sampling.subsampling() {
                Subsampling::One => return,
                Subsampling::Full444 => columns,
                Subsampling::Half422 | Subsampling::Quarter420 => pairs,
            };
            for plane in 1..3 {
                span(plane, row, colour[0] * size, colour[1] * size);
            }
        }
        Output::P010 | Output::Nv12 => {
            let size = if layout.output == Output::P010 { 2 } else { 1 };
            luma(0, columns.map(|x| x * size));
            if let Some(row) = colour_row(wire, row) {
                span(1, row, pairs[0] * 2 * size, pairs[1] * 2 * size);
            }
        }
        Output::P210 => {
            luma(0, columns.map(|x| x * 2));
            luma(1, pairs.map(|x| x * 4));
        }
        Output::Rgb16f => (0..3).for_each(|plane| luma(plane, columns.map(|x| x * 2))),
        Output::Wire => {}
    }
}

/// A wire row of one colour, to be converted like any other.
#[derive(Debug)]
pub struct Paint {
    row: Vec<u8>,
}

impl Paint {
    /// Black.
    pub fn black(conversion: &Conversion) -> Self {
        let wire = conversion.wire();
        let black = if conversion.colour.range == Range::Narrow { 16 } else { 0 };
        let [first, others] = match (wire.sampling, wire.depth) {
            (_, Depth::F16) | (Sampling::Xyz, _) => [0, 0],
            (Sampling::Rgb | Sampling::Key, _) => [black, black],
            _ => [black, 128],
        };
        let up = wire.depth.bits() - 8;
        Self::new(wire, [first, others, others].map(|s: u16| s << up))
    }

    /// Magenta, the rarest colour of pictures; white where there is no colour.
    pub fn mark(conversion: &Conversion) -> Self {
        let wire = conversion.wire();
        let ictcp = matches!(wire.sampling, Sampling::ICtCp444 | Sampling::ICtCp422 | Sampling::ICtCp420);
        let samples: [u16; 3] = match (wire.sampling, wire.depth == Depth::F16) {
            // Half floats: 1 and 0; XYZ 0.593, 0.285, 0.970; ICtCp 0.45, 0.5, 0.35; Y'CbCr 0.285, 0.386, 0.454.
            (Sampling::Rgb, true) => [0, 0x3c00, 0x3c00],
            (Sampling::Key, true) => [0x3c00; 3],
            (Sampling::Xyz, true) => [0x38be, 0x348f, 0x3bc3],
            (_, true) if ictcp => [0x3733, 0x3800, 0x359a],
            (_, true) => [0x348f, 0x362d, 0x3744],
            (Sampling::Rgb, false) => [16, 235, 235],
            (Sampling::Key, false) => [235; 3],
            (Sampling::Xyz, false) => [151, 73, 247],
            (_, false) if ictcp => [110, 240, 210],
            (_, false) => [78, 214, 230],
        };
        let up = if wire.depth == Depth::F16 { 0 } else { wire.depth.bits() - 8 };
        Self::new(wire, samples.map(|s| s << up))
    }

    /// `samples` in the order of the planes.
    fn new(wire: &WireFormat, [a, b, c]: [u16; 3]) -> Self {
        let order: &[u16] = match (wire.sampling, wire.sampling.subsampling()) {
            (Sampling::Rgb, _) => &[c, a, b],
            (Sampling::Xyz, _) => &[a, b, c],
            (_, Subsampling::Full444) => &[b, a, c],
            (_, Subsampling::Half422) => &[b, a, c, a],
            (_, Subsampling::Quarter420) => &[a, a, a, a, b, c],
            (_, Subsampling::One) => &[a],
        };
        // Samples concatenated, most significant bit first.
        let (size, bits) = (wire.row_octets() as usize, wire.depth.bits());
        let mut row = Vec::with_capacity(size + crate::ring::SLACK);
        let (mut held, mut n) = (0u32, 0);
        for &sample in order.iter().cycle() {
            held = held << bits | u32::from(sample);
            n += bits;
            while n >= 8 {
                n -= 8;
                row.push((held >> n) as u8);
            }
            if row.len() >= size {
                break;
            }
        }
        row.truncate(size);
        row.resize(size + crate::ring::SLACK, 0);
        Paint { row }
    }

    /// The octets of the row, and some of no meaning behind them.
    #[cfg(feature = "cuda")]
    pub(super) fn row(&self) -> &[u8] {
        &self.row
    }

    /// Paints the pixels of the loss map, and no others.
    pub fn fill(&self, conversion: &Conversion, convert: RunFn, missing: &[Missing], frame: &mut [u8]) {
        let wire = conversion.wire();
        for missing in missing {
            let Some((first, end)) = groups(wire, missing) else { continue };
            let src = &self.row[(first * wire.pgroup.octets) as usize..];
            convert(conversion, Run { src, groups: end - first, row: missing.row, group: first }, frame);
        }
    }
}
