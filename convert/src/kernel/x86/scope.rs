//! The cells of scopes, reckoned with AVX2: the straight code of [`crate::scope`], compiled for it.
#![allow(unsafe_code)]

use crate::scope::{levels_portable, pairs_portable};

/// Does nothing and says so where this CPU has no AVX2.
pub(crate) fn levels(samples: &[[u8; 2]], down: u32, bases: &[u32], cells: &mut [u32]) -> bool {
    if !std::arch::is_x86_feature_detected!("avx2") {
        return false;
    }
    // SAFETY: the CPU has AVX2.
    unsafe { levels_avx2(samples, down, bases, cells) };
    true
}

/// Does nothing and says so where this CPU has no AVX2.
pub(crate) fn pairs(b: &[[u8; 2]], r: &[[u8; 2]], down: u32, cells: &mut [u32]) -> bool {
    if !std::arch::is_x86_feature_detected!("avx2") {
        return false;
    }
    // SAFETY: the CPU has AVX2.
    unsafe { pairs_avx2(b, r, down, cells) };
    true
}

#[target_feature(enable = "avx2")]
fn levels_avx2(samples: &[[u8; 2]], down: u32, bases: &[u32], cells: &mut [u32]) {
    levels_portable(samples, down, bases, cells);
}

#[target_feature(enable = "avx2")]
fn pairs_avx2(b: &[[u8; 2]], r: &[[u8; 2]], down: u32, cells: &mut [u32]) {
    pairs_portable(b, r, down, cells);
}
