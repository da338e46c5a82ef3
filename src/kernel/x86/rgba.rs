//! RGBA: the matrix of the scalar law as two multiply-adds a component.
#![allow(unsafe_code)]

use super::pack::{Pack, Places, Row, Stream};
use super::unpack::Full;
use super::vector::{Vector, each};
use super::views::Fulls;
use crate::kernel::Conversion;
use crate::kernel::scalar::rgba::{Law, law};

/// R G B A, 8 bits, full range.
pub(super) struct Rgba;

/// The law, spread over vectors.
pub(super) struct Matrix<V> {
    offset: [V; 3],
    /// For R, G and B: factors of the first two components in turn, and of the third and of one in turn.
    factors: [[V; 2]; 3],
    one: V,
    opaque: V,
}

impl<W: Fulls> Pack<W> for Rgba {
    const STREAMS: &'static [Stream] = &[Stream::each(0, Row::First, 4), Stream::each(0, Row::Second, 4)];
    type Setup<V: Vector> = Matrix<V>;

    #[inline(always)]
    unsafe fn setup<V: Vector>(conversion: &Conversion) -> Matrix<V> {
        let Law { offset, matrix } = law(conversion);
        // SAFETY: the caller's promise.
        unsafe {
            Matrix {
                offset: [V::words(offset[0] as u16), V::words(offset[1] as u16), V::words(offset[2] as u16)],
                factors: [factors(matrix[0]), factors(matrix[1]), factors(matrix[2])],
                one: V::words(1),
                opaque: V::words(0xffff),
            }
        }
    }

    #[inline(always)]
    unsafe fn block<V: Vector>(setup: &Matrix<V>, block: W::Block<V>, to: &Places) {
        // SAFETY: the caller's promise.
        unsafe {
            let [first, second] = W::fulls::<V>(block);
            V::store(setup.apply(first), to[0]);
            if W::ROWS == 2 && !to[1].is_null() {
                V::store(setup.apply(second), to[1]);
            }
        }
    }
}

/// # Safety
/// The CPU has `V`.
#[inline(always)]
unsafe fn factors<V: Vector>([a, b, c]: [i16; 3]) -> [V; 2] {
    // SAFETY: the caller's promise.
    unsafe { [V::pairs(a, b), V::pairs(c, 1 << 14)] }
}

impl<V: Vector> Matrix<V> {
    #[inline(always)]
    fn apply(&self, Full(samples): Full<V>) -> [V; 8] {
        let [a, b] = each!(2, k => {
            // 16 pixels a lane
            let words = each!(2, i => {
                let i = 2 * k + i;
                let d0 = samples[0][i].sub16(self.offset[0]);
                let d1 = samples[1][i].sub16(self.offset[1]);
                let d2 = samples[2][i].sub16(self.offset[2]);
                let low = [d0.low16(d1), d2.low16(self.one)];
                let high = [d0.high16(d1), d2.high16(self.one)];
                [self.sum(0, low, high), self.sum(1, low, high), self.sum(2, low, high)]
            });
            let r = words[0][0].pack8(words[1][0]);
            let g = words[0][1].pack8(words[1][1]);
            let b = words[0][2].pack8(words[1][2]);
            let rg = [r.low8(g), r.high8(g)];
            let ba = [b.low8(self.opaque), b.high8(self.opaque)];
            [rg[0].low16(ba[0]), rg[0].high16(ba[0]), rg[1].low16(ba[1]), rg[1].high16(ba[1])]
        });
        [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
    }

    /// One of R, G, B of 8 pixels a lane.
    #[inline(always)]
    fn sum(&self, component: usize, low: [V; 2], high: [V; 2]) -> V {
        let [first, then] = self.factors[component];
        let low = low[0].madd(first).add32(low[1].madd(then)).sra32::<15>();
        let high = high[0].madd(first).add32(high[1].madd(then)).sra32::<15>();
        low.pack16(high)
    }
}
