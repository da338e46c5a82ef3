//! The kernels of one conversion, ready to be started.
#![allow(unsafe_code)]

use super::super::Conversion;
use super::abi::{Geometry, Launch, Segment};
use super::image::{self, CHECKED, Wanted};
use crate::error::{Error, Kind, Result};
use crate::format::Output;
use crate::gpu::sys::{self, CUresult};
use crate::gpu::{Fault, Function, Gpu, Stream, check};
use crate::mem::{Device, Region};
use gdmedia_convert::kernel::scalar::rgba;
use gdmedia_sdp::Subsampling;
use std::ffi::c_void;
use std::sync::Arc;

/// Threads of a block, and pieces or spans that it takes: a warp each. The same in `kernels/stage.cuh`.
const BLOCK: u32 = 128;
const WARPS: u32 = BLOCK / 32;

/// What unpacks pieces into frames of one layout, and copies spans between them.
#[derive(Debug)]
pub struct Program {
    unpack: Function,
    copy_spans: Function,
    geometry: Geometry,
    how: String,
    _tables: Option<Region<Device>>,
    refused: Option<Region<Device>>,
    gpu: Arc<Gpu>,
}

impl Program {
    /// The kernels of this conversion on this GPU.
    ///
    /// # Errors
    /// There is no code for the GPU, or it has no memory for tables. Frames of more than 4 GiB have no kernels.
    pub fn load(gpu: &Arc<Gpu>, conversion: &Conversion) -> Result<Program> {
        if u32::try_from(conversion.layout.size).is_err() {
            return Err(Error::new(Kind::Usage, "a frame of this output has more than 4 GiB")
                .cure("choose an output of fewer octets, such as planar, or run on the CPU (--gpu off)"));
        }
        let (unpack, copy) = (unpack_wanted(conversion), copy_wanted(conversion));
        let (unpack, how) = image::load(gpu, &unpack)?;
        let (copy_spans, _) = image::load(gpu, &copy)?;
        let (tables, addresses) = tables(gpu, conversion)?;
        Ok(Program {
            unpack,
            copy_spans,
            geometry: Geometry::new(conversion, addresses),
            how,
            _tables: tables,
            refused: if CHECKED { Some(Region::device(gpu, size_of::<u32>())?) } else { None },
            gpu: gpu.clone(),
        })
    }

    /// Where the code comes from, for the start block: `built in, sm_90`, `compiled by NVRTC 13.0` …
    pub fn how(&self) -> &str {
        &self.how
    }

    /// Unpacks `count` pieces at address `pieces`. Segments follow one another: the first begins at piece 0, the last ends
    /// with `count`.
    ///
    /// # Errors
    /// The GPU is lost; there are more segments than [`super::SEGMENTS`].
    ///
    /// # Safety
    /// `pieces` is the address of `count` [`super::Piece`]s (of which those in runs are not read), and what they and
    /// `segments` say is so: planes of rings, from
    /// addresses that are multiples of 16 on, with readable octets to the next multiple of 16 behind their last; frames of
    /// this layout, at multiples of 64. All of it, `pieces` included, stays as it is until the work is done, and nobody else
    /// touches the frames; other launches of this kernel may, for other pixels.
    #[inline]
    pub unsafe fn unpack(
        &self,
        stream: &Stream,
        segments: &[Segment],
        pieces: u64,
        count: u32,
    ) -> std::result::Result<(), Fault> {
        let mut launch = Launch {
            pieces,
            faults: self.refused_at(),
            count,
            segments: segments.len() as u32,
            geometry: self.geometry,
            ..Launch::default()
        };
        let Some(room) = launch.segment.get_mut(..segments.len()).filter(|_| pieces.is_multiple_of(16)) else {
            return Err(Fault { call: "unpack", code: CUresult::CUDA_ERROR_INVALID_VALUE });
        };
        room.copy_from_slice(segments);
        if count == 0 || segments.is_empty() {
            return Ok(());
        }
        // SAFETY: the kernel takes one `Launch`; the rest is promised by the caller.
        unsafe { stream.launch(&self.unpack, [count.div_ceil(WARPS), 1, 1], BLOCK, &mut [(&raw mut launch).cast()]) }
    }

    /// Copies `count` spans, which are at address `spans` ([`super::Span`]; see [`super::super::conceal::ranges`]), from
    /// frame `previous` to frame `frame`.
    ///
    /// # Errors
    /// The GPU is lost.
    ///
    /// # Safety
    /// All three are addresses of what they are said to be, both frames of this layout, at multiples of 64; they stay so
    /// until the work is done, `previous` is not written meanwhile, and nobody else touches the pixels of the spans.
    pub unsafe fn copy_spans(
        &self,
        stream: &Stream,
        frame: u64,
        previous: u64,
        spans: u64,
        count: u32,
    ) -> std::result::Result<(), Fault> {
        if count == 0 {
            return Ok(());
        }
        let (mut addresses, mut count) = ([frame, previous, spans], count);
        let blocks = [count.div_ceil(WARPS), 1, 1];
        let mut others = [self.geometry.size, self.refused_at()];
        let [frame, previous, spans] = addresses.each_mut().map(|a| (&raw mut *a).cast::<c_void>());
        let [size, faults] = others.each_mut().map(|a| (&raw mut *a).cast::<c_void>());
        let mut parameters = [frame, previous, spans, (&raw mut count).cast(), size, faults];
        // SAFETY: the types of copy.cu; the rest is promised by the caller.
        unsafe { stream.launch(&self.copy_spans, blocks, BLOCK, &mut parameters) }
    }

    /// How many pieces and spans a checked build has refused so far, in work that has been waited for; 0 in others.
    ///
    /// # Errors
    /// The GPU is lost.
    pub fn faults(&self) -> std::result::Result<u32, Fault> {
        let mut count = 0u32;
        if let Some(refused) = &self.refused {
            self.gpu.bind()?;
            let to = (&raw mut count).cast();
            // SAFETY: both have four octets.
            let code = unsafe { sys::cuMemcpyDtoH_v2(to, refused.address(), size_of::<u32>()) };
            self.gpu.note(check("cuMemcpyDtoH", code))?;
        }
        Ok(count)
    }

    fn refused_at(&self) -> u64 {
        self.refused.as_ref().map_or(0, Region::address)
    }
}

/// The kernel that unpacks.
fn unpack_wanted(conversion: &Conversion) -> Wanted {
    let wire = conversion.wire();
    let output = conversion.output();
    if output == Output::Wire {
        return Wanted::of("copy", "copy.cu", "copy_wire");
    }
    let structure = match wire.sampling.subsampling() {
        Subsampling::Full444 => 444,
        Subsampling::Half422 => 422,
        Subsampling::Quarter420 => 420,
        Subsampling::One => 400,
    };
    let bits = wire.depth.bits();
    // The numbers of kernels/write.cuh.
    let number = Output::ALL.iter().position(|&o| o == output).unwrap_or_default();
    Wanted {
        image: format!("unpack_{structure}_{bits}"),
        source: "unpack.cu",
        defines: vec![format!("-DGD_WIRE={structure}"), format!("-DGD_BITS={bits}"), format!("-DGD_OUT={number}")],
        kernel: format!("unpack_{structure}_{bits}_{}", output.word()),
    }
}

/// The kernel that copies spans.
fn copy_wanted(conversion: &Conversion) -> Wanted {
    let kernel = if conversion.output() == Output::V210 { "copy_spans_v210" } else { "copy_spans" };
    Wanted::of("copy", "copy.cu", kernel)
}

/// Ten-bit codes of every half float, on the GPU: those of the first and of the other planes, where samples are half
/// floats and colours are interpreted.
pub(super) fn tables(gpu: &Arc<Gpu>, conversion: &Conversion) -> Result<(Option<Region<Device>>, [u64; 2])> {
    let [Some(first), Some(others)] = rgba::tables(conversion) else { return Ok((None, [0; 2])) };
    let octets = size_of_val(first);
    let region = Region::device(gpu, 2 * octets)?;
    let at = [region.address(), region.address() + octets as u64];
    gpu.bind()?;
    for (at, table) in at.into_iter().zip([first, others]) {
        // SAFETY: `octets` are read from the table and written into this half of the region.
        gpu.note(check("cuMemcpyHtoD", unsafe { sys::cuMemcpyHtoD_v2(at, table.as_ptr().cast(), octets) }))?;
    }
    // SAFETY: no argument. Streams do not wait for the copies above.
    gpu.note(check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() }))?;
    Ok((Some(region), at))
}

/// Every kernel: what the tests of built-in images and of NVRTC go through.
#[cfg(test)]
pub(super) fn all_wanted() -> Vec<Wanted> {
    use crate::kernel::{Colour, pairs};
    use gdmedia_sdp::{Colorimetry, Range, Scan, Tcs};
    let colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
    pairs()
        .filter_map(|pair| Some(Conversion { layout: pair.layout(48, 48, Scan::Progressive)?, colour }))
        .flat_map(|conversion| [unpack_wanted(&conversion), copy_wanted(&conversion)])
        .chain(["scale", "count", "read_number", "drop_alpha"].map(Wanted::of_frame))
        .chain([Wanted::of("crc", "crc.cu", "crc32c")])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::abi::SEGMENTS;
    use super::*;

    #[test]
    fn outputs_have_the_numbers_of_the_sources() {
        let source = include_str!("../../../kernels/write.cuh");
        for (number, output) in Output::ALL.iter().enumerate() {
            let line = format!("#define {} {number}\n", output.word().to_uppercase());
            assert!(source.contains(&line), "{line}");
        }
        let stage = include_str!("../../../kernels/stage.cuh");
        assert!(stage.contains(&format!("#define BLOCK {BLOCK}\n")));
        let abi = include_str!("../../../kernels/abi.cuh");
        assert!(abi.contains(&format!("#define SEGMENTS {SEGMENTS}\n")));
    }
}
