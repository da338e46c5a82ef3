//! What the host hands to a kernel: the same as in `kernels/abi.cuh`; both sides assert sizes and offsets.

use super::super::Conversion;
use crate::format::Output;
use gdmedia_convert::kernel::scalar::rgba;
use gdmedia_sdp::{Sampling, Scan};
use std::mem::{offset_of, size_of};

/// Octets of one packet that belong at an octet of a frame.
///
/// The first `first` octets lie in the head plane of the ring, the others in its body plane. Planes begin at multiples of
/// 16 octets and are read in whole vectors of 16.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Octet of the head plane where the piece begins; means nothing when `first` is 0.
    pub src: u32,
    /// Octet of the wire-format frame: a pgroup boundary; the piece stays inside of one wire row.
    pub dst: u32,
    /// Octet of the body plane where its other octets lie; means nothing when `first` is `len`.
    pub rest: u32,
    /// Octets, a multiple of the pgroup, at least one pgroup.
    pub len: u16,
    /// How many of them lie in the head plane.
    pub first: u16,
}

/// Pieces `begin .. end` of a launch: their ring and their frame. With a pitch they are a run, as packets that were
/// received one behind the other mostly are: nothing has to be read to know where they lie.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Address of the head plane.
    pub head: u64,
    /// Address of the body plane; 0 where the ring does not split.
    pub body: u64,
    /// Address of the frame, a multiple of 64.
    pub frame: u64,
    /// First piece.
    pub begin: u32,
    /// The piece behind the last.
    pub end: u32,
    /// The first piece of a run.
    pub piece: Piece,
    /// Octets of the head plane, for checked builds.
    pub head_octets: u32,
    /// Octets of the body plane, for checked builds.
    pub body_octets: u32,
    /// Octets from one piece of a run to the next in their plane, which is the same for all; each lies behind the one
    /// before in the frame. 0: no run, the pieces are in memory.
    pub pitch: u32,
    /// Nothing.
    pub nothing: u32,
}

/// Segments of a launch at most.
pub const SEGMENTS: usize = 16;

/// The frame as the kernels need it, with three components in the order of the wire: 0 is luma (the second of three where
/// nothing is subsampled: Y, G, Y of XYZ; or the key), 1 the colour that comes first, 2 the one that comes last.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Geometry {
    /// First octet of a component's plane; one or two where outputs have fewer. Of rgb16f R, G, B.
    pub plane: [u64; 3],
    /// Address of a component's ten-bit codes of every half float; 0 where samples are integers.
    pub table: [u64; 3],
    /// Octets of a frame's memory.
    pub size: u64,
    /// Octets from row to row.
    pub stride: [u32; 3],
    /// Octets of a wire row.
    pub row_octets: u32,
    /// See [`row_magic`].
    pub row_magic: u32,
    /// See [`row_magic`].
    pub row_shift: u32,
    /// Wire rows.
    pub rows: u32,
    /// Rows of the picture.
    pub height: u32,
    /// Octets of a wire-format frame.
    pub frame_octets: u32,
    /// 1 when colour rows of 4:2:0 outputs alternate between fields.
    pub interlaced: u32,
    /// Law of [`Output::Rgba`] and [`Output::Rgb16f`]: taken from each component.
    pub offset: [i32; 3],
    /// Rows R, G, B, in units of 2^-15.
    pub matrix: [[i32; 3]; 3],
}

/// The one parameter of kernels that take pieces.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Address of the pieces that are in no run; a segment's pieces begin at its `begin`.
    pub pieces: u64,
    /// Address of a counter, where a checked build counts what it refuses.
    pub faults: u64,
    /// Pieces.
    pub count: u32,
    /// Segments of them.
    pub segments: u32,
    /// The frame.
    pub geometry: Geometry,
    /// Nothing.
    pub nothing: u64,
    /// They follow one another: the first begins at piece 0, the last ends with `count`.
    pub segment: [Segment; SEGMENTS],
}

/// Part of a frame that is copied from another of the same layout.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First octet of the frame's memory; of v210 the first sample, three in each word of the frame's memory.
    pub offset: u32,
    /// Octets; of v210 samples.
    pub count: u32,
}

const _: () = {
    assert!(size_of::<Piece>() == 16 && offset_of!(Piece, rest) == 8 && offset_of!(Piece, first) == 14);
    assert!(size_of::<Segment>() == 64 && offset_of!(Segment, begin) == 24 && offset_of!(Segment, piece) == 32);
    assert!(offset_of!(Segment, body_octets) == 52 && offset_of!(Segment, pitch) == 56);
    assert!(size_of::<Geometry>() == 144 && offset_of!(Geometry, size) == 48 && offset_of!(Geometry, stride) == 56);
    assert!(offset_of!(Geometry, row_octets) == 68 && offset_of!(Geometry, interlaced) == 92);
    assert!(offset_of!(Geometry, offset) == 96 && offset_of!(Geometry, matrix) == 108);
    assert!(size_of::<Launch>() == 176 + 64 * SEGMENTS && offset_of!(Launch, count) == 16);
    assert!(offset_of!(Launch, geometry) == 24 && offset_of!(Launch, segment) == 176);
    assert!(size_of::<Span>() == 8);
};

/// `(magic, shift)`, so that `n / d` is the upper half of `2 * n * magic`, shifted right by `shift`, for all `n` below
/// 2^31. `d` is from 1 to 2^31.
pub const fn row_magic(d: u32) -> (u32, u32) {
    let shift = d.next_power_of_two().trailing_zeros();
    ((1u64 << (31 + shift)).div_ceil(d as u64) as u32, shift)
}

/// Which plane of [`Output::Planar`] the components of the wire's order are.
pub const fn planes_of(sampling: Sampling) -> [usize; 3] {
    match sampling {
        // R, G, B on the wire; G, B, R in memory.
        Sampling::Rgb => [0, 2, 1],
        // X, Y, Z both.
        Sampling::Xyz => [1, 0, 2],
        // Cb, Y, Cr on the wire; Y, Cb, Cr in memory.
        _ => [0, 1, 2],
    }
}

impl Geometry {
    /// Of a conversion; `tables` are the addresses of the tables of the first and of the other planes, 0 where samples are
    /// integers.
    pub fn new(conversion: &Conversion, tables: [u64; 2]) -> Self {
        let (wire, layout) = (conversion.wire(), &conversion.layout);
        let order = planes_of(wire.sampling);
        let memory_order = if conversion.output() == Output::Planar { order } else { [0, 1, 2] };
        let plane = memory_order.map(|i| layout.planes.get(i).copied().unwrap_or_default());
        let law = rgba::law(conversion);
        let (row_magic, row_shift) = row_magic(wire.row_octets());
        Geometry {
            plane: plane.map(|p| p.offset as u64),
            table: order.map(|i| tables[i.min(1)]),
            size: layout.size as u64,
            stride: plane.map(|p| p.stride as u32),
            row_octets: wire.row_octets(),
            row_magic,
            row_shift,
            rows: wire.rows(),
            height: wire.height,
            frame_octets: wire.frame_octets(),
            interlaced: (wire.scan == Scan::Interlaced).into(),
            offset: order.map(|i| law.offset[i].into()),
            matrix: law.matrix.map(|row| order.map(|i| row[i].into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Layout, WireFormat};
    use crate::kernel::Colour;
    use gdmedia_sdp::{Colorimetry, Depth, Range, Tcs};
    use proptest::prelude::*;

    fn geometry(sampling: Sampling, depth: Depth, size: (u32, u32), scan: Scan, output: Output) -> Geometry {
        let wire = WireFormat::new(sampling, depth, size.0, size.1, scan).unwrap();
        let colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
        Geometry::new(&Conversion { layout: Layout::new(wire, output).unwrap(), colour }, [7, 9])
    }

    #[test]
    fn numbers_of_1080_lines() {
        let g = geometry(Sampling::YCbCr422, Depth::D10, (1920, 1080), Scan::Interlaced, Output::P210);
        assert_eq!((g.plane, g.stride), ([0, 4_147_200, 0], [3840, 3840, 0]));
        assert_eq!((g.row_octets, g.rows, g.height, g.frame_octets, g.size), (4800, 1080, 1080, 5_184_000, 8_294_464));
        // 2^44 / 4800, rounded up.
        assert_eq!((g.row_magic, g.row_shift, g.interlaced), (3_665_038_760, 13, 1));
        assert_eq!((g.offset, g.matrix[2]), ([64, 512, 512], [9539, 17305, 0]));
    }

    #[test]
    fn components_are_in_the_order_of_the_wire() {
        let rgb = |output| geometry(Sampling::Rgb, Depth::D10, (64, 2), Scan::Progressive, output);
        // Green, red, blue; planes are green, blue, red.
        let g = rgb(Output::Planar);
        assert_eq!((g.plane, g.table), ([0, 512, 256], [7, 9, 9]));
        // Red is all of component 1, green of 0, blue of 2.
        assert_eq!(
            g.matrix.map(|row| row.map(|m| m > 0)),
            [[false, true, false], [true, false, false], [false, false, true]]
        );
        assert_eq!(rgb(Output::Rgb16f).plane, [0, 256, 512]);
        let g = geometry(Sampling::Xyz, Depth::D12, (64, 2), Scan::Progressive, Output::Planar);
        assert_eq!((g.plane, g.table, g.offset), ([256, 0, 512], [9, 7, 9], [0, 0, 0]));
        // XYZ to red: 3.24 X - 1.54 Y - 0.50 Z.
        assert!(g.matrix[0][1] > -g.matrix[0][0] && g.matrix[0][0] < g.matrix[0][2] && g.matrix[0][2] < 0);
    }

    #[test]
    fn edges_of_row_magic() {
        assert_eq!(row_magic(1), (1 << 31, 0));
        assert_eq!(row_magic(2), (1 << 31, 1));
        assert_eq!(row_magic(3), (2_863_311_531, 2));
    }

    proptest! {
        #[test]
        fn row_magic_divides(d in 1u32..=262_140, n in 0u32..1 << 31, near in 0u32..1 << 31) {
            let (magic, shift) = row_magic(d);
            let divide = |n: u32| (((u64::from(n * 2) * u64::from(magic)) >> 32) as u32) >> shift;
            prop_assert_eq!(divide(n), n / d);
            // Around multiples, where it would fail first.
            let multiple = near / d * d;
            prop_assert_eq!(divide(multiple), near / d);
            prop_assert_eq!(divide(multiple.saturating_sub(1)), multiple.saturating_sub(1) / d);
        }
    }
}
