//! RGBA: the matrix of the scalar law in 32-bit sums, its shortest form for each wire format.
#![allow(unsafe_code)]

use super::pack::{Pack, Places, Row, Stream, down};
use super::unpack::{Full, RGB, Unpack, W420, W422, W444, WKey, YCC};
use super::vector::{Vector, each};
use crate::kernel::Conversion;
use crate::kernel::scalar::rgba::{Law, law};

/// R G B A, 8 bits, full range.
pub(super) struct Rgba;

/// Can the short forms say what the law says? They take it that all of R, G and B have the same factor for luma, and
/// that twice this factor is no more than 16 bits.
pub(super) fn has_common_luma(conversion: &Conversion) -> bool {
    let m = law(conversion).matrix;
    m.iter().all(|row| row[0] == m[0][0] && row[0].checked_mul(2).is_some())
}

/// Words of R, G and B, not yet clamped: 32 pixels a lane.
type Colours<V> = [[V; 3]; 4];

/// Formats that can be shown: all.
pub(super) trait Shown: Unpack {
    /// Rows of the picture in a block.
    const ROWS: usize;
    /// What is made of the law.
    type Setup<V: Vector>;
    /// # Safety
    /// The CPU has `V`.
    unsafe fn setup<V: Vector>(law: &Law) -> Self::Setup<V>;
    /// Where there is one row, the second is that row again.
    fn colours<V: Vector>(setup: &Self::Setup<V>, block: Self::Block<V>) -> [Colours<V>; 2];
}

impl<W: Shown> Pack<W> for Rgba {
    const STREAMS: &'static [Stream] = &[Stream::each(0, Row::First, 4), Stream::each(0, Row::Second, 4)];
    type Setup<V: Vector> = (W::Setup<V>, V);

    #[inline(always)]
    unsafe fn setup<V: Vector>(conversion: &Conversion) -> Self::Setup<V> {
        // SAFETY: the caller's promise.
        unsafe { (W::setup::<V>(law(conversion)), V::words(0xffff)) }
    }

    #[inline(always)]
    unsafe fn block<V: Vector>((setup, opaque): &Self::Setup<V>, block: W::Block<V>, to: &Places) {
        // SAFETY: the caller's promise.
        unsafe {
            let [first, second] = W::colours::<V>(setup, block);
            V::store(octets(first, *opaque), to[0]);
            if W::ROWS == 2 && !to[1].is_null() {
                V::store(octets(second, *opaque), to[1]);
            }
        }
    }
}

/// Clamps, and puts R, G, B and A in turn.
#[inline(always)]
fn octets<V: Vector>(w: Colours<V>, opaque: V) -> [V; 8] {
    let [a, b] = each!(2, k => {
        let [r, g, b] = each!(3, i => w[2 * k][i].pack8(w[2 * k + 1][i]));
        let (rg, ba) = ([r.low8(g), r.high8(g)], [b.low8(opaque), b.high8(opaque)]);
        [rg[0].low16(ba[0]), rg[0].high16(ba[0]), rg[1].low16(ba[1]), rg[1].high16(ba[1])]
    });
    [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
}

/// The law for subsampled colour. Everything is doubled, so that the result is the upper half of a 32-bit sum.
pub(super) struct Shared<V> {
    /// Factor of even and of odd columns; what is left of offset and rounding.
    luma: [V; 2],
    black: V,
    /// For R, G and B: factors of Cb and Cr.
    colour: [V; 3],
    grey: [V; 2],
    ten: V,
    upper: V,
}

impl<V: Vector> Shared<V> {
    /// # Safety
    /// The CPU has `V`.
    #[inline(always)]
    unsafe fn new(&Law { offset, matrix: m }: &Law) -> Self {
        let luma = m[0][0] * 2;
        let black = (1 << 15) - i32::from(offset[0]) * i32::from(luma);
        // SAFETY: the caller's promise.
        unsafe {
            Shared {
                luma: [V::pairs(luma, 0), V::pairs(0, luma)],
                black: V::pairs(black as i16, (black >> 16) as i16),
                colour: each!(3, k => V::pairs(m[k][1], m[k][2])),
                grey: [V::words(2 * offset[1] as u16), V::words(2 * offset[2] as u16)],
                ten: V::words(0x7fe),
                upper: V::pairs(0, -1),
            }
        }
    }
    /// The colour part of four times 8 pixels a lane.
    #[inline(always)]
    fn colour(&self, c: [[V; 2]; 2]) -> Colours<V> {
        let [a, b] = each!(2, i => {
            let cb = c[0][i].shr16::<5>().and(self.ten).sub16(self.grey[0]);
            let cr = c[1][i].shr16::<5>().and(self.ten).sub16(self.grey[1]);
            let (low, high) = (cb.low16(cr), cb.high16(cr));
            [each!(3, k => low.madd(self.colour[k])), each!(3, k => high.madd(self.colour[k]))]
        });
        [a[0], a[1], b[0], b[1]]
    }
    /// With luma: 32-bit sums of even and of odd columns, whose upper halves make the words.
    #[inline(always)]
    fn words(&self, y: [V; 4], colour: &Colours<V>) -> Colours<V> {
        each!(4, i => {
            let y = y[i].shr16::<6>();
            let (even, odd) = (y.madd(self.luma[0]).add32(self.black), y.madd(self.luma[1]).add32(self.black));
            each!(3, k => {
                let colour = colour[i][k];
                even.add32(colour).shr32::<16>().or(odd.add32(colour).and(self.upper))
            })
        })
    }
}

impl<const BITS: u32> Shown for W422<BITS> {
    const ROWS: usize = 1;
    type Setup<V: Vector> = Shared<V>;
    #[inline(always)]
    unsafe fn setup<V: Vector>(law: &Law) -> Shared<V> {
        // SAFETY: the caller's promise.
        unsafe { Shared::new(law) }
    }
    #[inline(always)]
    fn colours<V: Vector>(setup: &Shared<V>, block: Self::Block<V>) -> [Colours<V>; 2] {
        let words = setup.words(block.y, &setup.colour(block.c));
        [words, words]
    }
}

impl<const BITS: u32> Shown for W420<BITS> {
    const ROWS: usize = 2;
    type Setup<V: Vector> = Shared<V>;
    #[inline(always)]
    unsafe fn setup<V: Vector>(law: &Law) -> Shared<V> {
        // SAFETY: the caller's promise.
        unsafe { Shared::new(law) }
    }
    #[inline(always)]
    fn colours<V: Vector>(setup: &Shared<V>, block: Self::Block<V>) -> [Colours<V>; 2] {
        let colour = setup.colour(block.c);
        [setup.words(block.y[0], &colour), setup.words(block.y[1], &colour)]
    }
}

/// The law for colour in full.
pub(super) struct Whole<V> {
    offset: [V; 3],
    /// For R, G and B: factors of the first component and of one in turn, and of the second and third in turn.
    factors: [[V; 2]; 3],
    one: V,
    /// For R, G and B: the one factor of formats without a matrix.
    single: [V; 3],
}

impl<V: Vector> Whole<V> {
    /// # Safety
    /// The CPU has `V`.
    #[inline(always)]
    unsafe fn new(&Law { offset, matrix: m }: &Law, single: [usize; 3]) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            Whole {
                offset: each!(3, k => V::words(offset[k] as u16)),
                factors: each!(3, k => [V::pairs(m[k][0], 1 << 14), V::pairs(m[k][1], m[k][2])]),
                one: V::words(1),
                single: each!(3, k => V::words(m[k][single[k]] as u16)),
            }
        }
    }
    /// 8 pixels a lane.
    #[inline(always)]
    fn matrix<const ORDER: usize>(&self, d: [V; 3]) -> [V; 3] {
        let (a, b) = ([d[0].low16(self.one), d[0].high16(self.one)], [d[1].low16(d[2]), d[1].high16(d[2])]);
        let luma = each!(2, i => a[i].madd(self.factors[0][0]));
        each!(3, k => {
            let [first, then] = self.factors[k];
            let sums = each!(2, i => {
                let first = if ORDER == YCC { luma[i] } else { a[i].madd(first) };
                first.add32(b[i].madd(then)).sra32::<15>()
            });
            sums[0].pack16(sums[1])
        })
    }
}

/// Components of R, G and B among G B R, and of a key.
const GBR: [usize; 3] = [2, 0, 1];
const KEY: [usize; 3] = [0, 0, 0];

impl<const BITS: u32, const ORDER: usize> Shown for W444<BITS, ORDER> {
    const ROWS: usize = 1;
    type Setup<V: Vector> = Whole<V>;
    #[inline(always)]
    unsafe fn setup<V: Vector>(law: &Law) -> Whole<V> {
        // SAFETY: the caller's promise.
        unsafe { Whole::new(law, GBR) }
    }
    #[inline(always)]
    fn colours<V: Vector>(setup: &Whole<V>, Full(c): Full<V>) -> [Colours<V>; 2] {
        let words = each!(4, i => {
            let d = each!(3, k => down::<V, 10>(c[k][i]).sub16(setup.offset[k]));
            if ORDER == RGB {
                let [r, g, b] = setup.single;
                [d[GBR[0]].mulround16(r), d[GBR[1]].mulround16(g), d[GBR[2]].mulround16(b)]
            } else {
                setup.matrix::<ORDER>(d)
            }
        });
        [words, words]
    }
}

impl<const BITS: u32> Shown for WKey<BITS> {
    const ROWS: usize = 1;
    type Setup<V: Vector> = Whole<V>;
    #[inline(always)]
    unsafe fn setup<V: Vector>(law: &Law) -> Whole<V> {
        // SAFETY: the caller's promise.
        unsafe { Whole::new(law, KEY) }
    }
    #[inline(always)]
    fn colours<V: Vector>(setup: &Whole<V>, block: Self::Block<V>) -> [Colours<V>; 2] {
        let words = each!(4, i => {
            let d = down::<V, 10>(block.0[i]).sub16(setup.offset[0]);
            let [r, g, b] = setup.single;
            [d.mulround16(r), d.mulround16(g), d.mulround16(b)]
        });
        [words, words]
    }
}
