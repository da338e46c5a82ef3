//! Other views of a block: as 4:2:2 or 4:2:0 for the outputs that subsample, in full for RGBA.
//!
//! The law (see [`crate::kernel::scalar`]) drops: the colour of a pair is that of its even column; bits that an output
//! does not have are cut off.
#![allow(unsafe_code)]

use super::unpack::{Full, Half, Quarter, Unpack, W420, W422, W444, WKey};
use super::vector::{Vector, each};

/// Formats with colour that can be subsampled.
pub(super) trait Halves: Unpack {
    /// Rows of the picture in a block.
    const ROWS: usize;
    /// Samples of `TO` bits; where there is one row, `y[1]` is that row again.
    ///
    /// # Safety
    /// The CPU has `V`.
    unsafe fn halves<V: Vector, const TO: u32>(block: Self::Block<V>) -> Quarter<V>;
}

/// Formats that can be shown: all.
pub(super) trait Fulls: Unpack {
    /// Rows of the picture in a block.
    const ROWS: usize;
    /// Samples of 10 bits in the order of the planes; only the first when it is a key. Where there is one row, the
    /// second is that row again.
    ///
    /// # Safety
    /// The CPU has `V`.
    unsafe fn fulls<V: Vector>(block: Self::Block<V>) -> [Full<V>; 2];
}

/// `FROM` bits to `TO` bits.
#[inline(always)]
fn rescale<V: Vector, const FROM: u32, const TO: u32>(v: V) -> V {
    match (FROM, TO) {
        (8, 10) => v.shl16::<2>(),
        (10, 8) | (12, 10) => v.shr16::<2>(),
        (12, 8) => v.shr16::<4>(),
        (16, 10) => v.shr16::<6>(),
        (16, 8) => v.shr16::<8>(),
        _ => v,
    }
}

impl<const BITS: u32> Halves for W422<BITS> {
    const ROWS: usize = 1;
    #[inline(always)]
    unsafe fn halves<V: Vector, const TO: u32>(block: Half<V>) -> Quarter<V> {
        let y = each!(4, i => rescale::<V, BITS, TO>(block.y[i]));
        Quarter { y: [y, y], c: each!(2, k => each!(2, i => rescale::<V, BITS, TO>(block.c[k][i]))) }
    }
}

impl<const BITS: u32> Halves for W420<BITS> {
    const ROWS: usize = 2;
    #[inline(always)]
    unsafe fn halves<V: Vector, const TO: u32>(block: Quarter<V>) -> Quarter<V> {
        Quarter {
            y: each!(2, k => each!(4, i => rescale::<V, BITS, TO>(block.y[k][i]))),
            c: each!(2, k => each!(2, i => rescale::<V, BITS, TO>(block.c[k][i]))),
        }
    }
}

impl<const BITS: u32, const ORDER: usize> Halves for W444<BITS, ORDER> {
    const ROWS: usize = 1;
    #[inline(always)]
    unsafe fn halves<V: Vector, const TO: u32>(block: Full<V>) -> Quarter<V> {
        // SAFETY: the caller's promise.
        let even = unsafe { V::octets([0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0]) };
        let y = each!(4, i => rescale::<V, BITS, TO>(block.0[0][i]));
        let c = each!(2, k => each!(4, i => rescale::<V, BITS, TO>(block.0[k + 1][i]).and(even)));
        Quarter { y: [y, y], c: each!(2, k => [c[k][0].pack16(c[k][1]), c[k][2].pack16(c[k][3])]) }
    }
}

/// Each sample twice.
#[inline(always)]
fn repeat<V: Vector>(c: [V; 2]) -> [V; 4] {
    [c[0].low16(c[0]), c[0].high16(c[0]), c[1].low16(c[1]), c[1].high16(c[1])]
}

impl<const BITS: u32> Fulls for W422<BITS> {
    const ROWS: usize = 1;
    #[inline(always)]
    unsafe fn fulls<V: Vector>(block: Half<V>) -> [Full<V>; 2] {
        // SAFETY: the caller's promise.
        let Quarter { y, c } = unsafe { Self::halves::<V, 10>(block) };
        let (cb, cr) = (repeat(c[0]), repeat(c[1]));
        [Full([y[0], cb, cr]), Full([y[0], cb, cr])]
    }
}

impl<const BITS: u32> Fulls for W420<BITS> {
    const ROWS: usize = 2;
    #[inline(always)]
    unsafe fn fulls<V: Vector>(block: Quarter<V>) -> [Full<V>; 2] {
        // SAFETY: the caller's promise.
        let Quarter { y, c } = unsafe { Self::halves::<V, 10>(block) };
        let (cb, cr) = (repeat(c[0]), repeat(c[1]));
        [Full([y[0], cb, cr]), Full([y[1], cb, cr])]
    }
}

impl<const BITS: u32, const ORDER: usize> Fulls for W444<BITS, ORDER> {
    const ROWS: usize = 1;
    #[inline(always)]
    unsafe fn fulls<V: Vector>(block: Full<V>) -> [Full<V>; 2] {
        let full = Full([
            each!(4, i => rescale::<V, BITS, 10>(block.0[0][i])),
            each!(4, i => rescale::<V, BITS, 10>(block.0[1][i])),
            each!(4, i => rescale::<V, BITS, 10>(block.0[2][i])),
        ]);
        [full, full]
    }
}

impl<const BITS: u32> Fulls for WKey<BITS> {
    const ROWS: usize = 1;
    #[inline(always)]
    unsafe fn fulls<V: Vector>(block: Self::Block<V>) -> [Full<V>; 2] {
        let k = each!(4, i => rescale::<V, BITS, 10>(block.0[i]));
        [Full([k, k, k]), Full([k, k, k])]
    }
}
