//! The law: what every conversion gives, in plain safe Rust. SIMD and GPU kernels are checked against it.
//!
//! A run is taken in pieces of at most [`WIDE`] pixels. A reader ([`read`]) brings the samples of a piece from their
//! wire order into one array a component; a writer ([`mod@write`], [`rgba`], [`rgb16f`]) brings these into the frame. So every wire
//! format meets every output. Formats that matter most have a shorter way ([`direct`]), with the same result.

pub mod direct;
pub mod read;
pub mod rgb16f;
pub mod rgba;
pub mod write;

use super::{Conversion, Run, RunFn};
use crate::format::{Output, WireFormat};
use gdmedia_sdp::{Depth, Subsampling};

/// Pixels of a piece along the row: a multiple of every pgroup's width and of v210's block.
pub const WIDE: usize = 96;

/// The law of this conversion.
pub fn select(conversion: &Conversion) -> RunFn {
    let wire = conversion.wire();
    let ten_bit_422 = wire.sampling.subsampling() == Subsampling::Half422 && wire.depth == Depth::D10;
    match conversion.output() {
        Output::Wire => copy,
        Output::Planar if ten_bit_422 => direct::planar_422_10,
        Output::Uyvy if ten_bit_422 => direct::uyvy_422_10,
        Output::V210 if ten_bit_422 => direct::v210_422_10,
        Output::Rgba | Output::Rgb16f => {
            // The tables of half floats are made now, not with the first packet.
            let _ = rgba::tables(conversion);
            piecewise
        }
        _ => piecewise,
    }
}

/// Wire octets as they are.
pub fn copy(conversion: &Conversion, run: Run<'_>, frame: &mut [u8]) {
    let octets = run.check(conversion, frame.len());
    let plane = &conversion.layout.planes[0];
    let at = plane.offset + run.row as usize * plane.stride + run.group as usize * octets / run.groups as usize;
    frame[at..at + octets].copy_from_slice(&run.src[..octets]);
}

/// Any wire format to any output.
pub fn piecewise(conversion: &Conversion, run: Run<'_>, frame: &mut [u8]) {
    let octets = run.check(conversion, frame.len());
    let wire = conversion.wire();
    let (group_octets, group_width) = (wire.pgroup.octets as usize, wire.pgroup.width() as usize);
    let read = read::reader(wire);
    let write = write::writer(conversion.output());
    let mut samples = Samples::new();
    let mut x = run.group as usize * group_width;
    for piece in run.src[..octets].chunks(WIDE / group_width * group_octets) {
        read(piece, &mut samples);
        let pixels = piece.len() / group_octets * group_width;
        write(conversion, &samples, At { wire_row: run.row as usize, x, pixels }, frame);
        x += pixels;
    }
}

/// The samples of a piece, in the order of the planes of [`Output::Planar`].
#[derive(Debug)]
pub struct Samples {
    /// Y, I, G, X or K; 4:2:0 has two rows.
    pub first: [[u16; WIDE]; 2],
    /// Cb, Ct, B or Y; half as many when the format is subsampled.
    pub second: [u16; WIDE],
    /// Cr, Cp, R or Z.
    pub third: [u16; WIDE],
}

impl Samples {
    const fn new() -> Self {
        Samples { first: [[0; WIDE]; 2], second: [0; WIDE], third: [0; WIDE] }
    }
}

/// Where a piece lies.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Wire row.
    pub wire_row: usize,
    /// First column.
    pub x: usize,
    /// Columns; the last ones may lie beyond the width.
    pub pixels: usize,
}

/// The picture rows of a wire row.
fn picture_rows(wire: &WireFormat, wire_row: usize) -> std::ops::Range<usize> {
    let rows = wire.pgroup.rows as usize;
    wire_row * rows..(wire_row * rows + rows).min(wire.height as usize)
}

#[cfg(test)]
mod tests;
