//! Components to the octets of an output, one block of 32 pixels a lane at a time.
#![allow(unsafe_code)]

use super::unpack::{Unpack, W420, W422, W444, WKey};
use super::vector::{Vector, each};
use super::views::Halves;

/// One row of one plane that a run writes.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    pub plane: usize,
    pub row: Row,
    /// Pixels of an element and its octets.
    pub pixels: usize,
    pub octets: usize,
    /// Octets of the first pixel of a pair alone.
    pub lone: usize,
}

/// Which row of the plane.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Row {
    /// The wire row; of a pair the first row.
    First,
    /// The second row of a pair; none where there is no pair or the height is odd.
    Second,
    /// The row of 4:2:0 colour that the wire row gives; none for every second row of 4:2:2 and 4:4:4.
    Colour,
    /// The wire row, also where that is a pair.
    Wire,
}

impl Stream {
    /// One or more samples a pixel.
    pub(super) const fn each(plane: usize, row: Row, octets: usize) -> Self {
        Stream { plane, row, pixels: 1, octets, lone: 0 }
    }
    /// Samples that two pixels share.
    const fn shared(plane: usize, row: Row, octets: usize) -> Self {
        Stream { plane, row, pixels: 2, octets, lone: octets }
    }
    /// Cb Y Cr Y of 8 bits.
    pub(super) const fn uyvy(row: Row) -> Self {
        Stream { plane: 0, row, pixels: 2, octets: 4, lone: 3 }
    }
    /// Blocks of six pixels; never asked for less.
    pub(super) const fn v210(row: Row) -> Self {
        Stream { plane: 0, row, pixels: 6, octets: 16, lone: 0 }
    }
    /// Octets of `pixels` pixels, the first of which begins an element.
    pub(super) const fn span(&self, pixels: usize) -> usize {
        pixels / self.pixels * self.octets + pixels % self.pixels * self.lone
    }
}

/// Most streams that a packer writes.
pub(super) const STREAMS: usize = 4;

/// Where the streams of a block go; null where nothing is written.
pub(super) type Places = [*mut u8; STREAMS];

/// How the blocks of a wire format become octets.
pub(super) trait Pack<W: Unpack> {
    /// What is written.
    const STREAMS: &'static [Stream];
    /// What is made ready once a run.
    type Setup<V: Vector>;

    /// # Safety
    /// The CPU has `V`.
    unsafe fn setup<V: Vector>(conversion: &super::Conversion) -> Self::Setup<V>;
    /// # Safety
    /// The CPU has `V`; `to[i]` is null or `STREAMS[i].span(32 * LANES)` octets can be written there.
    unsafe fn block<V: Vector>(setup: &Self::Setup<V>, block: W::Block<V>, to: &Places);
}

macro_rules! no_setup {
    () => {
        type Setup<V: Vector> = ();
        #[inline(always)]
        unsafe fn setup<V: Vector>(_: &super::Conversion) {}
    };
}

/// One plane a component.
pub(super) struct Planar;
/// Y and CbCr, 4:2:0, 10 bits at the top of 16.
pub(super) struct P010;
/// Y and CbCr, 4:2:2, 10 bits at the top of 16.
pub(super) struct P210;
/// Y and CbCr, 4:2:0, 8 bits.
pub(super) struct Nv12;
/// Cb Y Cr Y, 8 bits.
pub(super) struct Uyvy;

const fn sample(bits: u32) -> usize {
    bits.div_ceil(8) as usize
}

impl<const BITS: u32> Pack<W422<BITS>> for Planar {
    const STREAMS: &'static [Stream] = &[
        Stream::each(0, Row::First, sample(BITS)),
        Stream::shared(1, Row::First, sample(BITS)),
        Stream::shared(2, Row::First, sample(BITS)),
    ];
    no_setup!();
    #[inline(always)]
    unsafe fn block<V: Vector>((): &(), block: <W422<BITS> as Unpack>::Block<V>, to: &Places) {
        // SAFETY: the caller's promise.
        unsafe {
            full::<V, BITS>(block.y, to[0]);
            half::<V, BITS>(block.c[0], to[1]);
            half::<V, BITS>(block.c[1], to[2]);
        }
    }
}

impl<const BITS: u32, const ORDER: usize> Pack<W444<BITS, ORDER>> for Planar {
    const STREAMS: &'static [Stream] = &[
        Stream::each(0, Row::First, sample(BITS)),
        Stream::each(1, Row::First, sample(BITS)),
        Stream::each(2, Row::First, sample(BITS)),
    ];
    no_setup!();
    #[inline(always)]
    unsafe fn block<V: Vector>((): &(), block: <W444<BITS, ORDER> as Unpack>::Block<V>, to: &Places) {
        // SAFETY: the caller's promise.
        unsafe {
            full::<V, BITS>(block.0[0], to[0]);
            full::<V, BITS>(block.0[1], to[1]);
            full::<V, BITS>(block.0[2], to[2]);
        }
    }
}

impl<const BITS: u32> Pack<W420<BITS>> for Planar {
    const STREAMS: &'static [Stream] = &[
        Stream::each(0, Row::First, sample(BITS)),
        Stream::each(0, Row::Second, sample(BITS)),
        Stream::shared(1, Row::Wire, sample(BITS)),
        Stream::shared(2, Row::Wire, sample(BITS)),
    ];
    no_setup!();
    #[inline(always)]
    unsafe fn block<V: Vector>((): &(), block: <W420<BITS> as Unpack>::Block<V>, to: &Places) {
        // SAFETY: the caller's promise.
        unsafe {
            full::<V, BITS>(block.y[0], to[0]);
            if !to[1].is_null() {
                full::<V, BITS>(block.y[1], to[1]);
            }
            half::<V, BITS>(block.c[0], to[2]);
            half::<V, BITS>(block.c[1], to[3]);
        }
    }
}

impl<const BITS: u32> Pack<WKey<BITS>> for Planar {
    const STREAMS: &'static [Stream] = &[Stream::each(0, Row::First, sample(BITS))];
    no_setup!();
    #[inline(always)]
    unsafe fn block<V: Vector>((): &(), block: <WKey<BITS> as Unpack>::Block<V>, to: &Places) {
        // SAFETY: the caller's promise.
        unsafe { full::<V, BITS>(block.0, to[0]) }
    }
}

impl<W: Halves> Pack<W> for Uyvy {
    const STREAMS: &'static [Stream] = &[Stream::uyvy(Row::First), Stream::uyvy(Row::Second)];
    no_setup!();
    #[inline(always)]
    unsafe fn block<V: Vector>((): &(), block: W::Block<V>, to: &Places) {
        // SAFETY: the caller's promise.
        unsafe {
            let block = W::halves::<V>(block);
            let c = cbcr8(block.c);
            put_uyvy(block.y[0], c, to[0]);
            if W::ROWS == 2 && !to[1].is_null() {
                put_uyvy(block.y[1], c, to[1]);
            }
        }
    }
}

/// # Safety
/// As [`Pack::block`].
#[inline(always)]
unsafe fn put_uyvy<V: Vector>(y: [V; 4], c: [V; 2], to: *mut u8) {
    let y = each!(2, i => y[2 * i].shr16::<8>().pack8(y[2 * i + 1].shr16::<8>()));
    let out = [c[0].low8(y[0]), c[0].high8(y[0]), c[1].low8(y[1]), c[1].high8(y[1])];
    // SAFETY: the caller's promise.
    unsafe { V::store(out, to) }
}

impl<W: Halves> Pack<W> for P010 {
    const STREAMS: &'static [Stream] =
        &[Stream::each(0, Row::First, 2), Stream::each(0, Row::Second, 2), Stream::shared(1, Row::Colour, 4)];
    no_setup!();
    #[inline(always)]
    unsafe fn block<V: Vector>((): &(), block: W::Block<V>, to: &Places) {
        // SAFETY: the caller's promise.
        unsafe {
            let block = W::halves::<V>(block);
            let ten = V::words(0xffc0);
            V::store(each!(4, i => block.y[0][i].and(ten)), to[0]);
            if W::ROWS == 2 && !to[1].is_null() {
                V::store(each!(4, i => block.y[1][i].and(ten)), to[1]);
            }
            if !to[2].is_null() {
                let c = interleave(each!(2, k => each!(2, i => block.c[k][i].and(ten))));
                V::store(c, to[2]);
            }
        }
    }
}

impl<W: Halves> Pack<W> for P210 {
    const STREAMS: &'static [Stream] = &[
        Stream::each(0, Row::First, 2),
        Stream::each(0, Row::Second, 2),
        Stream::shared(1, Row::First, 4),
        Stream::shared(1, Row::Second, 4),
    ];
    no_setup!();
    #[inline(always)]
    unsafe fn block<V: Vector>((): &(), block: W::Block<V>, to: &Places) {
        // SAFETY: the caller's promise.
        unsafe {
            let block = W::halves::<V>(block);
            let ten = V::words(0xffc0);
            let c = interleave(each!(2, k => each!(2, i => block.c[k][i].and(ten))));
            V::store(each!(4, i => block.y[0][i].and(ten)), to[0]);
            V::store(c, to[2]);
            // Both rows of the pair or neither.
            if W::ROWS == 2 && !to[1].is_null() {
                V::store(each!(4, i => block.y[1][i].and(ten)), to[1]);
                V::store(c, to[3]);
            }
        }
    }
}

impl<W: Halves> Pack<W> for Nv12 {
    const STREAMS: &'static [Stream] =
        &[Stream::each(0, Row::First, 1), Stream::each(0, Row::Second, 1), Stream::shared(1, Row::Colour, 2)];
    no_setup!();
    #[inline(always)]
    unsafe fn block<V: Vector>((): &(), block: W::Block<V>, to: &Places) {
        // SAFETY: the caller's promise.
        unsafe {
            let block = W::halves::<V>(block);
            full::<V, 8>(block.y[0], to[0]);
            if W::ROWS == 2 && !to[1].is_null() {
                full::<V, 8>(block.y[1], to[1]);
            }
            if !to[2].is_null() {
                V::store(cbcr8(block.c), to[2]);
            }
        }
    }
}

/// A component of every pixel, in octets or words as its depth asks.
///
/// # Safety
/// As [`Pack::block`]; `to` is not null.
#[inline(always)]
unsafe fn full<V: Vector, const BITS: u32>(r: [V; 4], to: *mut u8) {
    let r = each!(4, i => down::<V, BITS>(r[i]));
    // SAFETY: the caller's promise.
    unsafe { if BITS == 8 { V::store([r[0].pack8(r[1]), r[2].pack8(r[3])], to) } else { V::store(r, to) } }
}

/// A component of every second pixel, likewise.
///
/// # Safety
/// As [`full`].
#[inline(always)]
unsafe fn half<V: Vector, const BITS: u32>(r: [V; 2], to: *mut u8) {
    let r = each!(2, i => down::<V, BITS>(r[i]));
    // SAFETY: the caller's promise.
    unsafe { if BITS == 8 { V::store([r[0].pack8(r[1])], to) } else { V::store(r, to) } }
}

/// From the top of the words to their low bits.
#[inline(always)]
pub(super) fn down<V: Vector, const BITS: u32>(v: V) -> V {
    match BITS {
        8 => v.shr16::<8>(),
        10 => v.shr16::<6>(),
        12 => v.shr16::<4>(),
        _ => v,
    }
}

/// Words of Cb and Cr in turn.
#[inline(always)]
fn interleave<V: Vector>([cb, cr]: [[V; 2]; 2]) -> [V; 4] {
    [cb[0].low16(cr[0]), cb[0].high16(cr[0]), cb[1].low16(cr[1]), cb[1].high16(cr[1])]
}

/// Octets of Cb and Cr in turn.
///
/// # Safety
/// The CPU has `V`.
#[inline(always)]
unsafe fn cbcr8<V: Vector>([cb, cr]: [[V; 2]; 2]) -> [V; 2] {
    // SAFETY: the caller's promise.
    let upper = unsafe { V::words(0xff00) };
    each!(2, i => cb[i].shr16::<8>().or(cr[i].and(upper)))
}
