//! Packed outputs straight from the wire, whose samples have the same order or nearly: UYVY from 4:2:2, and v210, whose
//! block of six pixels fits no other scheme.
#![allow(unsafe_code)]

use super::drive::Step;
use super::pack::{Places, Row, Stream};
use super::unpack::{NONE, Unpack, W420, W422, W444, Words, beyond};
use super::vector::{Vector, each};
use crate::kernel::Conversion;
use std::marker::PhantomData;

/// 4:2:2 to UYVY: the upper eight bits in the order of the wire.
pub(super) struct Uyvy<const BITS: u32>;

impl<const BITS: u32> Step for Uyvy<BITS> {
    const PIXELS: usize = 32;
    const LANE_OCTETS: usize = W422::<BITS>::LANE_OCTETS;
    const BEYOND: usize = if BITS == 8 { 0 } else { W422::<BITS>::BEYOND };
    const GROUP: usize = 2;
    const ALIGN: usize = 2;
    const ATOM: usize = 1;
    const STREAMS: &'static [Stream] = &[Stream::uyvy(Row::First)];
    type Setup<V: Vector> = ();

    #[inline(always)]
    unsafe fn setup<V: Vector>(_: &Conversion) {}

    #[inline(always)]
    unsafe fn step<V: Vector>((): &(), from: *const u8, to: &Places) {
        let unit = const { &Words::<8>::new([0, 1, 2, 3, 4, 5, 6, 7], BITS, 0, 8) };
        // SAFETY: the caller's promise: four pixels are `BITS` octets.
        unsafe {
            let out = each!(4, k => {
                let at = from.add(2 * k * BITS as usize);
                if BITS == 8 {
                    V::load(at, Self::LANE_OCTETS)
                } else {
                    let a = unit.gather::<V>(at, Self::LANE_OCTETS);
                    let b = unit.gather::<V>(at.add(BITS as usize), Self::LANE_OCTETS);
                    a.shr16::<8>().pack8(b.shr16::<8>())
                }
            });
            V::store(out, to[0]);
        }
    }
}

/// Formats that v210 can be made of.
pub(super) trait Sextets: Unpack {
    /// Bits a sample.
    const BITS: u32;
    /// Rows of the picture in a wire row.
    const ROWS: usize;
    /// Samples of two columns on the wire.
    const SAMPLES: usize;
    /// For each row, which of these are Cb, the first Y, Cr and the second Y.
    const ORDER: [[usize; 4]; 2];
}

impl<const BITS: u32> Sextets for W422<BITS> {
    const BITS: u32 = BITS;
    const ROWS: usize = 1;
    const SAMPLES: usize = 4;
    const ORDER: [[usize; 4]; 2] = [[0, 1, 2, 3]; 2];
}

impl<const BITS: u32, const ORDER: usize> Sextets for W444<BITS, ORDER> {
    const BITS: u32 = BITS;
    const ROWS: usize = 1;
    const SAMPLES: usize = 6;
    const ORDER: [[usize; 4]; 2] = [[0, 1, 2, 4]; 2];
}

impl<const BITS: u32> Sextets for W420<BITS> {
    const BITS: u32 = BITS;
    const ROWS: usize = 2;
    const SAMPLES: usize = 6;
    const ORDER: [[usize; 4]; 2] = [[4, 0, 5, 1], [4, 2, 5, 3]];
}

/// v210: twelve samples of six pixels in four words of 32 bits, three in each, lowest first.
pub(super) struct V210<W>(PhantomData<W>);

/// Where the samples of a block are: the outer two of each three go to the halves of a 32-bit word, the one between
/// them to the lower half of another.
struct Block {
    outer: Words<8>,
    middle: Words<8>,
}

impl Block {
    /// Block `phase` from an octet at which a block begins.
    const fn new<W: Sextets>(row: usize, phase: usize) -> Block {
        let first = 3 * W::SAMPLES * phase;
        let mut samples = [0; 12];
        let mut i = 0;
        while i < 12 {
            samples[i] = (first + i / 4 * W::SAMPLES + W::ORDER[row][i % 4]) as u8;
            i += 1;
        }
        let s = samples;
        let outer = [s[0], s[2], s[3], s[5], s[6], s[8], s[9], s[11]];
        let middle = [s[1], NONE, s[4], NONE, s[7], NONE, s[10], NONE];
        let end = first + 3 * W::SAMPLES;
        Block { outer: Words::new(outer, W::BITS, first, end), middle: Words::new(middle, W::BITS, first, end) }
    }
}

impl<W: Sextets> V210<W> {
    const BLOCK_BITS: usize = 3 * W::SAMPLES * W::BITS as usize;
    /// Blocks after which the next begins with an octet again.
    const PHASES: usize = if Self::BLOCK_BITS.is_multiple_of(8) { 1 } else { 2 };
    const BLOCKS: [[Block; 2]; 2] =
        [[Block::new::<W>(0, 0), Block::new::<W>(0, 1)], [Block::new::<W>(1, 0), Block::new::<W>(1, 1)]];

    /// Four blocks a lane.
    ///
    /// # Safety
    /// As [`Step::step`].
    #[inline(always)]
    unsafe fn row<V: Vector>(row: usize, down: V, from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            let (outside, between) = (V::pairs(0x3ff, 0x3ff0), V::pairs(0xfc00_u16 as i16, 0x000f));
            let blocks = each!(4, k => {
                let from = from.add(k / Self::PHASES * Self::PHASES * Self::BLOCK_BITS / 8);
                let block = const { &Self::BLOCKS };
                let block = &block[row][k % Self::PHASES];
                let outer = block.outer.gather::<V>(from, Self::LANE_OCTETS).mulhi16(down).and(outside);
                let middle = block.middle.gather::<V>(from, Self::LANE_OCTETS).shl32::<4>().and(between);
                outer.or(middle)
            });
            V::store(blocks, to);
        }
    }
}

impl<W: Sextets> Step for V210<W> {
    const PIXELS: usize = 24;
    const LANE_OCTETS: usize = W::LANE_OCTETS / 4 * 3;
    const BEYOND: usize = beyond(3 * W::SAMPLES as u32, W::BITS);
    const GROUP: usize = W::GROUP;
    const ALIGN: usize = if W::GROUP == 4 { 12 } else { 6 };
    const ATOM: usize = Self::ALIGN;
    const STREAMS: &'static [Stream] = &[Stream::v210(Row::First), Stream::v210(Row::Second)];
    /// From the top of the halves to bits 0 and 4 of them, that is 0 and 20 of the word.
    type Setup<V: Vector> = V;

    #[inline(always)]
    unsafe fn setup<V: Vector>(_: &Conversion) -> V {
        // A compiler that knows powers of two turns one multiplication into a dozen shifts and shuffles.
        let (low, high) = std::hint::black_box((1 << 10, 1 << 14));
        // SAFETY: the caller's promise.
        unsafe { V::pairs(low, high) }
    }

    #[inline(always)]
    unsafe fn step<V: Vector>(down: &V, from: *const u8, to: &Places) {
        // SAFETY: the caller's promise.
        unsafe {
            Self::row::<V>(0, *down, from, to[0]);
            if W::ROWS == 2 && !to[1].is_null() {
                Self::row::<V>(1, *down, from, to[1]);
            }
        }
    }
}
