//! Which conversions there are, and which implementation of one runs.

use super::{Conversion, Level, RunFn, scalar};
use crate::format::{Layout, Output, WireFormat};
use gdmedia_sdp::{Depth, Sampling, Scan};

/// The best implementation up to `limit` that this CPU can run, and the level that it is of.
pub fn select(conversion: &Conversion, limit: Level) -> (RunFn, Level) {
    let simd = Level::ALL
        .iter()
        .rev()
        .filter(|&&level| level <= limit)
        .find_map(|&level| Some((at(conversion, level)?, level)));
    simd.unwrap_or((scalar::select(conversion), Level::Scalar))
}

/// The implementation of exactly this level; `None` where there is none or this CPU cannot run it.
pub fn at(conversion: &Conversion, level: Level) -> Option<RunFn> {
    if level == Level::Scalar {
        return Some(scalar::select(conversion));
    }
    #[cfg(target_arch = "x86_64")]
    if level.available() {
        return super::x86::select(conversion, level);
    }
    None
}

/// A conversion by name: a wire format and one of its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    /// Component structure of the wire format.
    pub sampling: Sampling,
    /// Its depth.
    pub depth: Depth,
    /// The output.
    pub output: Output,
}

impl Pair {
    /// Where a picture of this size lies; `None` when the wire format has no such size or scan.
    pub fn layout(self, width: u32, height: u32, scan: Scan) -> Option<Layout> {
        Layout::new(WireFormat::new(self.sampling, self.depth, width, height, scan)?, self.output).ok()
    }
}

impl std::fmt::Display for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("{} {} -> {}", self.sampling, self.depth, self.output.word()))
    }
}

/// Every conversion that there is: the list of the checker and of the benchmark.
pub fn pairs() -> impl Iterator<Item = Pair> {
    Sampling::ALL
        .iter()
        .flat_map(|&sampling| Depth::ALL.iter().map(move |&depth| (sampling, depth)))
        .flat_map(|(sampling, depth)| Output::ALL.map(|output| Pair { sampling, depth, output }))
        .filter(|pair| pair.layout(48, 48, Scan::Progressive).is_some())
}
