//! The frame number, read on the GPU: what [`super::read_number`] gives, without bringing the frame to the host.
#![allow(unsafe_code)]

use super::code::Strips;
use crate::error::Result;
use crate::format::{Layout, Output};
use crate::gpu::{Fault, Function, Gpu, Stream};
use crate::kernel::cuda::image::{self, Wanted};
use crate::send::pack::{luma_component, order};
use gdmedia_sdp::Depth;
use std::sync::Arc;

/// The same in `kernels/frame.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbers {
    frame: u64,
    to: u64,
    plane: u64,
    stride: u32,
    kind: u32,
    step: u32,
    first: u32,
    group_bits: u32,
    bits: u32,
    group_rows: u32,
    columns: u32,
    block_width: u32,
    block_height: u32,
    first_rows: [u32; 2],
    fields: u32,
    scan: u32,
}

const _: () = assert!(size_of::<Numbers>() == 80 && std::mem::offset_of!(Numbers, scan) == 76);

const OCTETS: u32 = 0;
const WORDS: u32 = 1;
const V210: u32 = 2;
const BITS: u32 = 3;

/// Reads the frame number out of finished frames of one layout.
#[derive(Debug)]
pub struct NumberReader {
    function: Function,
    numbers: Numbers,
}

impl NumberReader {
    /// For frames of this layout; all have one.
    ///
    /// # Errors
    /// There is no code for the GPU.
    pub fn load(gpu: &Arc<Gpu>, layout: &Layout) -> Result<NumberReader> {
        let (function, _) = image::load(gpu, &Wanted::of_frame("read_number"))?;
        Ok(NumberReader { function, numbers: numbers(layout) })
    }

    /// Writes the number of the frame at address `frame` to the `u64` at address `to`; `u64::MAX` where its codes are
    /// damaged, differ or do not exist.
    ///
    /// # Errors
    /// The GPU is lost.
    ///
    /// # Safety
    /// `frame` is the address of a frame of the layout, a multiple of 64, that nobody writes until the work is done; `to`
    /// that of eight octets, a multiple of 8, which nobody else touches until then.
    pub unsafe fn run(&self, stream: &Stream, frame: u64, to: u64) -> std::result::Result<(), Fault> {
        let mut numbers = Numbers { frame, to, ..self.numbers };
        // SAFETY: the kernel takes one `Numbers`; the rest is promised by the caller.
        unsafe { stream.launch(&self.function, [1, 1, 1], 256, &mut [(&raw mut numbers).cast()]) }
    }
}

/// Everything but the addresses of a launch. As [`super::code`] finds the sample of a pixel that carries the luminance.
fn numbers(layout: &Layout) -> Numbers {
    let wire = &layout.wire;
    let Some(strips) = Strips::new(wire) else { return Numbers::default() };
    let plane = layout.planes.get(usize::from(layout.output == Output::Rgb16f)).copied().unwrap_or_default();
    let mut numbers = Numbers {
        plane: plane.offset as u64,
        stride: plane.stride as u32,
        group_rows: 1,
        columns: strips.columns,
        block_width: strips.block_width,
        block_height: strips.block_height,
        first_rows: strips.first_rows,
        fields: strips.fields(),
        scan: strips.scan_code(),
        ..Numbers::default()
    };
    (numbers.kind, numbers.step, numbers.first) = match layout.output {
        Output::Planar if wire.depth == Depth::D8 => (OCTETS, 1, 0),
        Output::Planar | Output::P010 | Output::P210 | Output::Rgb16f => (WORDS, 2, 0),
        Output::Nv12 => (OCTETS, 1, 0),
        Output::Uyvy => (OCTETS, 2, 1),
        Output::V210 => (V210, 0, 0),
        Output::Rgba => (OCTETS, 4, 1),
        Output::Wire => {
            // Blocks are whole pgroups, so the middle of each has the same place in its pgroup.
            let (width, rows) = (wire.pgroup.width(), wire.pgroup.rows);
            let [dx, dy] = [strips.block_width / 2 % width, strips.block_height / 2 % rows];
            let luma = luma_component(wire.sampling);
            let slot = order(wire)
                .iter()
                .position(|p| p.component == luma && u32::from(p.dx) == dx && u32::from(p.dy) == dy)
                .unwrap_or_default();
            numbers.group_bits = wire.pgroup.octets * 8;
            numbers.bits = wire.depth.bits();
            numbers.group_rows = rows;
            (BITS, width, slot as u32 * wire.depth.bits())
        }
    };
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::WireFormat;
    use gdmedia_sdp::{Sampling, Scan};

    #[test]
    fn places_of_luminance() {
        let of = |sampling, depth, output| {
            let wire = WireFormat::new(sampling, depth, 1920, 1080, Scan::Progressive).unwrap();
            let n = numbers(&Layout::new(wire, output).unwrap());
            assert_eq!((n.columns, n.block_width, n.block_height, n.first_rows), (64, 28, 16, [0, 1064]));
            (n.kind, n.step, n.first, n.stride)
        };
        let ten = |output| of(Sampling::YCbCr422, Depth::D10, output);
        assert_eq!(ten(Output::Planar), (WORDS, 2, 0, 3840));
        assert_eq!(ten(Output::Uyvy), (OCTETS, 2, 1, 3840));
        // Cb, then Y, ten bits each.
        assert_eq!(ten(Output::Wire), (BITS, 2, 10, 4800));
        // The third pixel of four, its green: R G B of two pixels and R of its own come before.
        assert_eq!(of(Sampling::Rgb, Depth::D10, Output::Wire), (BITS, 4, 70, 7200));
        let tiny = WireFormat::new(Sampling::Key, Depth::D8, 16, 16, Scan::Progressive).unwrap();
        assert_eq!(numbers(&Layout::new(tiny, Output::Wire).unwrap()), Numbers::default());
    }
}
