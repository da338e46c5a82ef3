//! SSSE3 and AVX2 conversions; each gives the octets that the scalar law gives.
//!
//! A conversion is an unpacker (wire octets to components) and a packer (components to an output's octets) that meet
//! in registers: `unpack`, `views`, `pack`, `rgba`; packed outputs are made straight from the wire (`packed`).
//! Everything is written once for vectors of one or two lanes (`vector`) and driven by one loop (`drive`).
#![allow(unsafe_code)]

mod drive;
mod pack;
mod packed;
mod rgba;
pub(crate) mod scope;
mod unpack;
mod vector;
mod views;

use super::{Conversion, Level, RunFn};
use crate::format::Output;
use drive::{Fused, by_level};
use gdmedia_sdp::{Depth, Sampling, Subsampling};
use unpack::{RGB, W420, W422, W444, WKey, XYZ, YCC};

/// The conversion at this very level; `None` where there is none, which says nothing of lower levels.
pub fn select(conversion: &Conversion, level: Level) -> Option<RunFn> {
    if !level.available() {
        return None;
    }
    let wire = conversion.wire();
    let output = conversion.output();
    if wire.depth == Depth::F16 && output != Output::Planar {
        // RGBA goes through a table of all half floats.
        return None;
    }
    if output == Output::Rgba
        && matches!(wire.sampling.subsampling(), Subsampling::Half422 | Subsampling::Quarter420)
        && !rgba::has_common_luma(conversion)
    {
        return None;
    }
    macro_rules! depths {
        ($of:ident: $($wire:ident)* [$($order:ident)?]) => {
            match wire.depth {
                Depth::D8 => $of::<$($wire)*<8 $(, $order)?>>(output, level),
                Depth::D10 => $of::<$($wire)*<10 $(, $order)?>>(output, level),
                Depth::D12 => $of::<$($wire)*<12 $(, $order)?>>(output, level),
                Depth::D16 | Depth::F16 => $of::<$($wire)*<16 $(, $order)?>>(output, level),
            }
        };
    }
    match (wire.sampling, wire.sampling.subsampling()) {
        (Sampling::Rgb, _) => depths!(shown: W444 [RGB]),
        (Sampling::Xyz, _) => depths!(shown: W444 [XYZ]),
        (_, Subsampling::Full444) => depths!(coloured: W444 [YCC]),
        (_, Subsampling::Half422) if output == Output::Uyvy => match wire.depth {
            Depth::D8 => by_level::<packed::Uyvy<8>>(level),
            Depth::D10 => by_level::<packed::Uyvy<10>>(level),
            Depth::D12 => by_level::<packed::Uyvy<12>>(level),
            Depth::D16 | Depth::F16 => by_level::<packed::Uyvy<16>>(level),
        },
        (_, Subsampling::Half422) => depths!(coloured: W422 []),
        (_, Subsampling::Quarter420) => depths!(coloured: W420 []),
        (_, Subsampling::One) => depths!(shown: WKey []),
    }
}

/// Outputs of formats without subsampling of colour.
fn shown<W: rgba::Shown>(output: Output, level: Level) -> Option<RunFn>
where
    pack::Planar: pack::Pack<W>,
{
    match output {
        Output::Planar => by_level::<Fused<W, pack::Planar>>(level),
        Output::Rgba => by_level::<Fused<W, rgba::Rgba>>(level),
        // Wire octets are copied; half floats are left to the scalar law.
        _ => None,
    }
}

/// Outputs of Y'CbCr and its kin.
fn coloured<W: views::Halves + packed::Sextets + rgba::Shown>(output: Output, level: Level) -> Option<RunFn>
where
    pack::Planar: pack::Pack<W>,
{
    match output {
        Output::P010 => by_level::<Fused<W, pack::P010>>(level),
        Output::P210 => by_level::<Fused<W, pack::P210>>(level),
        Output::Nv12 => by_level::<Fused<W, pack::Nv12>>(level),
        Output::Uyvy => by_level::<Fused<W, pack::Uyvy>>(level),
        Output::V210 => by_level::<packed::V210<W>>(level),
        _ => shown::<W>(output, level),
    }
}
