//! What every CPU conversion is: a function over one run of whole pgroups inside one wire row.

use crate::format::{Layout, Output, WireFormat};
use gdmedia_sdp::{Colorimetry, Range, Tcs};

/// Everything that a conversion knows about its frame; fixed when a flow opens.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversion {
    /// Where the output lies; holds the wire format and the output format.
    pub layout: Layout,
    /// Which colours the codes mean; matters to [`Output::Rgba`] and [`Output::Rgb16f`] alone.
    pub colour: Colour,
}

/// Which colours the codes mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Colour {
    /// Primaries and matrix.
    pub colorimetry: Colorimetry,
    /// Transfer characteristic.
    pub tcs: Tcs,
    /// Range of codes.
    pub range: Range,
}

impl Conversion {
    /// The wire format.
    pub const fn wire(&self) -> &WireFormat {
        &self.layout.wire
    }
    /// The output format.
    pub const fn output(&self) -> Output {
        self.layout.output
    }
    /// In which way the picture will not look right, for the start block; only [`Output::Rgba`] and
    /// [`Output::Rgb16f`] interpret colours.
    pub fn remark(&self) -> Option<&'static str> {
        matches!(self.output(), Output::Rgba | Output::Rgb16f).then(|| super::scalar::rgba::remark(self)).flatten()
    }
}

/// A run of whole pgroups inside one wire row.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// At least `groups` pgroups; octets behind them may be loaded but mean nothing.
    pub src: &'a [u8],
    /// Pgroups, at least 1.
    pub groups: u32,
    /// Wire row.
    pub row: u32,
    /// Position of the first pgroup in its wire row.
    pub group: u32,
}

impl Run<'_> {
    /// The contract of [`RunFn`], for the top of every conversion. Returns the octets of the run.
    ///
    /// # Panics
    /// The run does not lie in the raster, `src` does not hold it, or `memory` octets do not hold a frame.
    #[inline]
    pub fn check(&self, conversion: &Conversion, memory: usize) -> usize {
        let wire = conversion.wire();
        assert!(memory >= conversion.layout.size, "memory holds a frame");
        assert!(self.row < wire.rows(), "row in the raster");
        let end = u64::from(self.group) + u64::from(self.groups);
        assert!(self.groups > 0 && end <= u64::from(wire.row_pgroups()), "groups in the row");
        let octets = self.groups as usize * wire.pgroup.octets as usize;
        assert!(self.src.len() >= octets, "source holds the run");
        octets
    }
}

/// Converts a run into a frame's memory (all of [`Layout::size`]).
///
/// Contract: `run` lies in the raster (`row < rows()`, `group + groups <= row_pgroups()`) and `src` holds it; the
/// function asserts this at its top ([`Run::check`]) and writes the pixels of the run and nothing else, except that it
/// may write beyond the last pixel of a row into that row's own padding (`row_octets .. stride`; in UYVY and v210 also
/// what the last block holds beyond the width). In v210 the two unused bits of every word that it touches become zero.
pub type RunFn = fn(&Conversion, Run<'_>, &mut [u8]);

/// Instruction sets, in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Portable Rust: the law.
    Scalar,
    /// 16-octet vectors with byte shuffle.
    Ssse3,
    /// 32-octet vectors.
    Avx2,
}

impl Level {
    /// All, in rising order.
    pub const ALL: [Level; 3] = [Level::Scalar, Level::Ssse3, Level::Avx2];
    /// For the start block and the bench tables.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Scalar => "scalar",
            Level::Ssse3 => "ssse3",
            Level::Avx2 => "avx2",
        }
    }
    /// Does this CPU have it?
    pub fn available(self) -> bool {
        match self {
            Level::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Level::Ssse3 => std::arch::is_x86_feature_detected!("ssse3"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }
}
