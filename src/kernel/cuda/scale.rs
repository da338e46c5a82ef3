//! Previews on the GPU: the law of [`crate::scale`], bit for bit.
#![allow(unsafe_code)]

use super::super::Conversion;
use super::image::{self, Wanted};
use super::program::tables;
use crate::error::{Error, Kind, Result};
use crate::format::Output;
use crate::gpu::{Fault, Function, Gpu, Stream};
use crate::mem::{Device, Region};
use crate::scale;
use gdmedia_sdp::{Scan, Subsampling};
use std::sync::Arc;

/// Threads of a block, as in `kernels/frame.cu`.
const BLOCK: u32 = 128;

/// The same in `kernels/frame.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scale {
    pub frame: u64,
    to: u64,
    plane: [u64; 3],
    table: [u64; 3],
    pixels: u64,
    stride: [u32; 3],
    output: u32,
    bits: u32,
    pair: u32,
    colour_rows: u32,
    columns: u32,
    rows: u32,
    across: u32,
    down: u32,
    lanes: u32,
    offset: [i32; 3],
    matrix: [[i32; 3]; 3],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Scale>() == 168 && offset_of!(Scale, pixels) == 64 && offset_of!(Scale, output) == 84);
    assert!(offset_of!(Scale, columns) == 100 && offset_of!(Scale, lanes) == 116 && offset_of!(Scale, matrix) == 132);
};

/// Makes finished frames of one layout smaller by a whole number, as RGBA of 8 bits.
#[derive(Debug)]
pub struct Scaler {
    function: Function,
    scale: Scale,
    _tables: Option<Region<Device>>,
}

impl Scaler {
    /// `factor` 0 counts as 1.
    ///
    /// # Errors
    /// The output has no previews (wire octets and rgb16f); there is no code for the GPU, or it has no memory for tables.
    pub fn load(gpu: &Arc<Gpu>, conversion: &Conversion, factor: u32) -> Result<Scaler> {
        let output = conversion.output();
        if matches!(output, Output::Wire | Output::Rgb16f) {
            return Err(Error::new(Kind::Usage, format!("no preview of {} frames", output.word()))
                .cure("choose another output, such as planar or p210"));
        }
        let (function, _) = image::load(gpu, &Wanted::of_frame("scale"))?;
        let (tables, addresses) = if output == Output::Planar { tables(gpu, conversion)? } else { (None, [0; 2]) };
        Ok(Scaler { function, scale: numbers(conversion, factor, addresses), _tables: tables })
    }
    /// Columns of the picture.
    pub const fn width(&self) -> u32 {
        self.scale.columns
    }
    /// Its rows.
    pub const fn height(&self) -> u32 {
        self.scale.rows
    }
    /// Its octets: rows of R G B A without padding.
    pub const fn octets(&self) -> usize {
        self.scale.columns as usize * self.scale.rows as usize * 4
    }

    /// Writes the picture of the frame at address `frame` to address `to`.
    ///
    /// # Errors
    /// The GPU is lost.
    ///
    /// # Safety
    /// `frame` is the address of a frame of the layout, a multiple of 64, that nobody writes until the work is done; `to`
    /// that of [`Scaler::octets`] octets, a multiple of 4, which nobody else touches until then.
    pub unsafe fn run(&self, stream: &Stream, frame: u64, to: u64) -> std::result::Result<(), Fault> {
        let mut scale = Scale { frame, to, ..self.scale };
        let pixels = u64::from(scale.columns) * u64::from(scale.rows);
        let blocks = pixels.div_ceil(u64::from(BLOCK / scale.lanes)) as u32;
        // SAFETY: the kernel takes one `Scale`; the rest is promised by the caller.
        unsafe { stream.launch(&self.function, [blocks, 1, 1], BLOCK, &mut [(&raw mut scale).cast()]) }
    }
}

/// Everything but the addresses of a launch.
pub(super) fn numbers(conversion: &Conversion, factor: u32, tables: [u64; 2]) -> Scale {
    let (wire, layout) = (conversion.wire(), &conversion.layout);
    let output = conversion.output();
    let [across, down] = [wire.width, wire.height].map(|n| n.min(factor.max(1)));
    let plane = [0, 1, 2].map(|i| layout.planes.get(i).copied().unwrap_or_default());
    let subsampling = wire.sampling.subsampling();
    let subsampled = matches!(subsampling, Subsampling::Half422 | Subsampling::Quarter420);
    let colour_rows = match output {
        Output::P010 | Output::Nv12 if wire.scan == Scan::Interlaced => 2,
        Output::P010 | Output::Nv12 => 1,
        Output::Planar if subsampling == Subsampling::Quarter420 => 1,
        _ => 0,
    };
    let law = scale::law(conversion).copied();
    Scale {
        plane: plane.map(|p| p.offset as u64),
        table: [tables[0], tables[1], tables[1]],
        pixels: u64::from(across) * u64::from(down),
        stride: plane.map(|p| p.stride as u32),
        output: Output::ALL.iter().position(|&o| o == output).unwrap_or_default() as u32,
        bits: wire.depth.bits(),
        pair: subsampled.into(),
        colour_rows,
        columns: wire.width / across,
        rows: wire.height / down,
        across,
        down,
        lanes: across.next_power_of_two().min(32),
        offset: law.map_or([0; 3], |law| law.offset.map(i32::from)),
        matrix: law.map_or([[0; 3]; 3], |law| law.matrix.map(|row| row.map(i32::from))),
        ..Scale::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Layout, WireFormat};
    use crate::kernel::Colour;
    use gdmedia_sdp::{Colorimetry, Depth, Range, Sampling, Tcs};

    #[test]
    fn numbers_of_previews() {
        let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, 1920, 1080, Scan::Interlaced).unwrap();
        let colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
        let of = |output, factor| {
            numbers(&Conversion { layout: Layout::new(wire, output).unwrap(), colour }, factor, [0; 2])
        };
        let s = of(Output::Nv12, 7);
        assert_eq!((s.columns, s.rows, s.across, s.down, s.lanes, s.pixels), (274, 154, 7, 7, 8, 49));
        assert_eq!((s.colour_rows, s.stride, s.offset), (2, [1920, 1920, 0], [64, 512, 512]));
        let s = of(Output::Planar, u32::MAX);
        assert_eq!((s.columns, s.rows, s.across, s.down, s.lanes), (1, 1, 1920, 1080, 32));
        assert_eq!((s.colour_rows, s.pair, s.plane[1]), (0, 1, 4_147_200));
        let s = of(Output::Rgba, 0);
        assert_eq!((s.columns, s.rows, s.pixels, s.lanes, s.matrix), (1920, 1080, 1, 1, [[0; 3]; 3]));
    }
}
