//! One function a conversion, over one run of whole pgroups inside one wire row.

mod convert;
pub mod scalar;
mod select;
#[cfg(target_arch = "x86_64")]
pub mod x86;

pub use convert::{Colour, Conversion, Level, Run, RunFn};
pub use select::{Pair, at, pairs, select};
