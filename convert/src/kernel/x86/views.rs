//! Blocks for the outputs that subsample colour.
//!
//! The law (see [`crate::kernel::scalar`]) drops: the colour of a pair is that of its even column.
#![allow(unsafe_code)]

use super::unpack::{Full, Half, Quarter, Unpack, W420, W422, W444};
use super::vector::{Vector, each};

/// Formats with colour that can be subsampled.
pub(super) trait Halves: Unpack {
    /// Rows of the picture in a block.
    const ROWS: usize;
    /// Of 4:2:2 and 4:4:4 there is one row: `y[1]` is that row again.
    ///
    /// # Safety
    /// The CPU has `V`.
    unsafe fn halves<V: Vector>(block: Self::Block<V>) -> Quarter<V>;
}

impl<const BITS: u32> Halves for W422<BITS> {
    const ROWS: usize = 1;
    #[inline(always)]
    unsafe fn halves<V: Vector>(block: Half<V>) -> Quarter<V> {
        Quarter { y: [block.y, block.y], c: block.c }
    }
}

impl<const BITS: u32> Halves for W420<BITS> {
    const ROWS: usize = 2;
    #[inline(always)]
    unsafe fn halves<V: Vector>(block: Quarter<V>) -> Quarter<V> {
        block
    }
}

impl<const BITS: u32, const ORDER: usize> Halves for W444<BITS, ORDER> {
    const ROWS: usize = 1;
    #[inline(always)]
    unsafe fn halves<V: Vector>(Full([y, cb, cr]): Full<V>) -> Quarter<V> {
        // SAFETY: the caller's promise.
        let even = unsafe { V::octets([0, 1, 4, 5, 8, 9, 12, 13, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80]) };
        let c = [cb, cr];
        let c = each!(2, k => each!(2, i => c[k][2 * i].shuffle(even).low64(c[k][2 * i + 1].shuffle(even))));
        Quarter { y: [y, y], c }
    }
}
