//! SSSE3 and AVX2 conversions; each gives the octets that the scalar law gives.
#![allow(unsafe_code)]

use super::{Conversion, Level, RunFn};

/// The conversion at this very level; `None` where there is none, which says nothing of lower levels.
pub fn select(_conversion: &Conversion, _level: Level) -> Option<RunFn> {
    None
}
