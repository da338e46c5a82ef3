//! v210: twelve samples of six pixels in four words of 32 bits, three in each, lowest first.
#![allow(unsafe_code)]

use super::drive::Step;
use super::pack::{Places, Row, Stream, interleave};
use super::unpack::Quarter;
use super::vector::{Vector, each};
use super::views::Halves;
use crate::kernel::Conversion;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// One row of one plane; asked for whole blocks alone.
const fn stream(row: Row) -> Stream {
    Stream { plane: 0, row, pixels: 6, octets: 16, lone: 0 }
}

/// From 4:2:2 10 bit, whose samples have the same order: three pgroups are one block.
pub(super) struct Direct;

/// The shuffles bring the two octets of a sample, swapped, into 16-bit words: of each three samples the first and last
/// into the halves of a 32-bit word, the middle one into the low half.
struct Tables<V> {
    outer: V,
    outer_up: V,
    outer_down: V,
    outer_mask: V,
    middle: V,
    middle_up: V,
    middle_mask: V,
}

/// For words of 16 bits: the octets of a sample, and the factor that brings it to the top.
const fn tables(samples: [Option<usize>; 8]) -> ([u8; 16], [u8; 16]) {
    let (mut shuffle, mut factors) = ([0x80; 16], [0; 16]);
    let mut i = 0;
    while i < 8 {
        if let Some(sample) = samples[i] {
            let bit = sample * 10;
            shuffle[2 * i] = (bit / 8 + 1) as u8;
            shuffle[2 * i + 1] = (bit / 8) as u8;
            factors[2 * i] = 1 << (bit % 8);
        }
        i += 1;
    }
    (shuffle, factors)
}

const OUTER: ([u8; 16], [u8; 16]) = tables([Some(0), Some(2), Some(3), Some(5), Some(6), Some(8), Some(9), Some(11)]);
const MIDDLE: ([u8; 16], [u8; 16]) = tables([Some(1), None, Some(4), None, Some(7), None, Some(10), None]);

impl Step for Direct {
    const PIXELS: usize = 24;
    const LANE_OCTETS: usize = 60;
    const BEYOND: usize = 1;
    const GROUP: usize = 2;
    const ALIGN: usize = 6;
    const ATOM: usize = 6;
    const STREAMS: &'static [Stream] = &[stream(Row::First)];
    type Setup<V: Vector> = ();

    #[inline(always)]
    unsafe fn setup<V: Vector>(_: &Conversion) {}

    #[inline(always)]
    unsafe fn step<V: Vector>((): &(), from: *const u8, to: &Places) {
        // SAFETY: the caller's promise.
        unsafe {
            let tables = Tables {
                outer: V::octets(OUTER.0),
                outer_up: V::octets(OUTER.1),
                // From the top of the halves to bits 0 and 4 of them, that is 0 and 20 of the word.
                outer_down: V::pairs(1 << 10, 1 << 14),
                outer_mask: V::pairs(0x3ff, 0x3ff0),
                middle: V::octets(MIDDLE.0),
                middle_up: V::octets(MIDDLE.1),
                middle_mask: V::pairs(0xfc00u16 as i16, 0x000f),
            };
            let blocks = each!(4, k => tables.block(V::load(from.add(15 * k), Self::LANE_OCTETS)));
            V::store(blocks, to[0]);
        }
    }
}

impl<V: Vector> Tables<V> {
    #[inline(always)]
    fn block(&self, octets: V) -> V {
        let outer = octets.shuffle(self.outer).mul16(self.outer_up).mulhi16(self.outer_down).and(self.outer_mask);
        let middle = octets.shuffle(self.middle).mul16(self.middle_up).shl32::<4>().and(self.middle_mask);
        outer.or(middle)
    }
}

/// From anything else, by way of samples in the order Cb Y Cr Y on the stack.
pub(super) struct Tiled<W>(PhantomData<W>);

/// Pixels a lane and octets of their samples.
const TILE: usize = 96;
const TILE_OCTETS: usize = TILE * 4;

impl<W: Halves> Step for Tiled<W> {
    const PIXELS: usize = TILE;
    const LANE_OCTETS: usize = W::LANE_OCTETS * 3;
    const BEYOND: usize = W::BEYOND;
    const GROUP: usize = W::GROUP;
    const ALIGN: usize = if W::GROUP == 4 { 12 } else { 6 };
    const ATOM: usize = Self::ALIGN;
    const STREAMS: &'static [Stream] = &[stream(Row::First), stream(Row::Second)];
    type Setup<V: Vector> = ();

    #[inline(always)]
    unsafe fn setup<V: Vector>(_: &Conversion) {}

    #[inline(always)]
    unsafe fn step<V: Vector>((): &(), from: *const u8, to: &Places) {
        #[repr(align(64))]
        struct Aligned<T>(T);
        let mut tile = Aligned(MaybeUninit::<[[u8; 2 * TILE_OCTETS]; 2]>::uninit());
        let rows = each!(2, i => tile.0.as_mut_ptr().cast::<u8>().wrapping_add(i * 2 * TILE_OCTETS));
        let second = W::ROWS == 2 && !to[1].is_null();
        // SAFETY: three blocks fill a row of the tile; the rest is the caller's promise.
        unsafe {
            for i in 0..3 {
                let block = W::halves::<V, 10>(W::block::<V>(from.add(i * V::LANES * W::LANE_OCTETS)));
                let at = i * V::LANES * TILE_OCTETS / 3;
                V::store(samples(&block, 0), rows[0].add(at));
                if second {
                    V::store(samples(&block, 1), rows[1].add(at));
                }
            }
            words::<V>(rows[0], to[0]);
            if second {
                words::<V>(rows[1], to[1]);
            }
        }
    }
}

/// 32 pixels a lane as Cb Y Cr Y.
#[inline(always)]
fn samples<V: Vector>(block: &Quarter<V>, row: usize) -> [V; 8] {
    let c = interleave(block.c);
    let y = block.y[row];
    each!(8, i => if i & 1 == 0 { c[i / 2].low16(y[i / 2]) } else { c[i / 2].high16(y[i / 2]) })
}

/// A tile row to v210.
///
/// # Safety
/// The CPU has `V`; the tile row is written; `TILE / 6 * 16 * LANES` octets can be written at `to`.
#[inline(always)]
unsafe fn words<V: Vector>(tile: *const u8, to: *mut u8) {
    const Z: u8 = 0x80;
    // SAFETY: blocks of 24 octets, four a lane, are loaded in two parts that lie inside of them.
    unsafe {
        // Samples 0 1 3 4 of six in one half, and 2 5 as upper halves of 32-bit words.
        let first = V::octets([0, 1, 2, 3, 6, 7, 8, 9, Z, Z, 4, 5, Z, Z, 10, 11]);
        let then = V::octets([4, 5, 6, 7, 10, 11, 12, 13, Z, Z, 8, 9, Z, Z, 14, 15]);
        let factors = V::pairs(1, 1 << 10);
        for i in 0..4 {
            let (from, to) = (tile.add(i * 96 * V::LANES), to.add(i * 64 * V::LANES));
            let blocks = each!(4, k => {
                let a = V::load(from.add(24 * k), 96).shuffle(first);
                let b = V::load(from.add(24 * k + 8), 96).shuffle(then);
                a.low64(b).madd(factors).or(a.high64(b).shl16::<4>())
            });
            V::store(blocks, to);
        }
    }
}
