//! R, G and B planes of half floats (IEEE 754 binary16), 0 to 1, full range: what inference takes, NCHW.
//!
//! # The law, exact
//!
//! Steps 1 and 2, the offsets and the matrix are those of [`super::rgba`]. Instead of its step 3, for R, G and B in turn:
//!
//! 1. `sum = m[0] * d[0] + m[1] * d[1] + m[2] * d[2]`, 32 bits wide, without a rounding term and without a shift.
//! 2. `sum` becomes a binary32, rounded to nearest, ties to even.
//! 3. It is multiplied once, in binary32, with [`UNIT`]: the binary32 next to 1 / (255 * 32768), bits 0x34008081.
//! 4. The product is clamped to 0..1.
//! 5. It becomes a binary16, rounded to nearest, ties to even ([`to_half`]); numbers below 2^-14 become subnormal.
//!
//! No step is fused with another. Nothing that is rounded is subnormal in binary32, so it does not matter whether a
//! machine flushes those to zero.

use super::{At, Samples, rgba};
use crate::kernel::Conversion;

/// One unit of a sum: white is 255 * 2^15.
pub const UNIT: f32 = (1.0 / (255.0 * 32768.0)) as f32;

pub(super) fn write(conversion: &Conversion, samples: &Samples, at: At, frame: &mut [u8]) {
    let matrix = rgba::law(conversion).matrix;
    rgba::rows(conversion, samples, at, |row, d| {
        for (plane, m) in conversion.layout.planes.iter().zip(matrix) {
            let start = plane.offset + row * plane.stride + at.x * 2;
            let out = frame[start..start + at.pixels * 2].as_chunks_mut::<2>().0;
            for (out, sum) in out.iter_mut().zip(rgba::sums(m, d)) {
                *out = level(sum).to_le_bytes();
            }
        }
    });
}

/// What the law makes of a sum.
pub fn level(sum: i32) -> u16 {
    to_half((sum as f32 * UNIT).clamp(0.0, 1.0))
}

/// The bits of the binary16 nearest to a binary32; of two, the even one. From 65520 on infinity; what is no number stays
/// none.
pub const fn to_half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let (exponent, fraction) = ((bits >> 23 & 0xff) as i32, bits & 0x7f_ffff);
    if exponent == 255 {
        return sign | 0x7c00 | if fraction != 0 { 0x200 } else { 0 };
    }
    // The significand with its leading one, and how many of its 24 bits are beyond those of the half.
    let (biased, drop) = if exponent >= 113 { (exponent - 112, 13) } else { (0, 126 - exponent) };
    if biased > 30 {
        return sign | 0x7c00;
    }
    if drop > 24 {
        // Less than half of the smallest subnormal.
        return sign;
    }
    let significand = fraction | 0x80_0000;
    let (kept, rest, tie) = (significand >> drop, significand & ((1 << drop) - 1), 1 << (drop - 1));
    let up = (rest > tie || rest == tie && kept & 1 == 1) as u32;
    // A leading one counts as one exponent, and so does a carry out of the fraction.
    let whole = if biased > 0 { ((biased - 1) as u32) << 10 } else { 0 };
    sign | (whole + kept + up) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_placed_by_hand() {
        assert_eq!(UNIT.to_bits(), 0x3400_8081);
        let p = |exponent: i32| 2f32.powi(exponent);
        for (value, bits) in [
            (0.0, 0x0000),
            (-0.0, 0x8000),
            (1.0, 0x3c00),
            (-2.0, 0xc000),
            (0.5, 0x3800),
            (1.0 / 3.0, 0x3555),
            (0.1, 0x2e66),
            (65504.0, 0x7bff),
            // Ties: to the even neighbour, down and up; past a tie, and short of one.
            (1.0 + p(-11), 0x3c00),
            (1.0 + 3.0 * p(-11), 0x3c02),
            (1.0 + p(-11) + p(-23), 0x3c01),
            (1.0 + p(-10) + p(-11) - p(-23), 0x3c01),
            // Rounding carries into the exponent: 1 - 2^-12 is halfway between 1 - 2^-11 and 1.
            (1.0 - p(-12), 0x3c00),
            (1.0 - p(-11), 0x3bff),
            // The smallest normal, the largest subnormal, between them; the smallest subnormal and its ties.
            (p(-14), 0x0400),
            (1023.0 * p(-24), 0x03ff),
            (2047.0 * p(-25), 0x0400),
            (p(-24), 0x0001),
            (1.5 * p(-24), 0x0002),
            (2.5 * p(-24), 0x0002),
            (p(-25), 0x0000),
            (p(-25) + p(-48), 0x0001),
            (p(-26), 0x0000),
            (f32::from_bits(1), 0x0000),
            // The largest that is still finite, and the tie to infinity.
            (65519.996, 0x7bff),
            (65520.0, 0x7c00),
            (1e30, 0x7c00),
            (f32::INFINITY, 0x7c00),
            (f32::NEG_INFINITY, 0xfc00),
            (f32::NAN, 0x7e00),
        ] {
            assert_eq!(to_half(value), bits, "{value:e}");
        }
    }

    /// The value of a positive finite half.
    fn value(bits: u16) -> f32 {
        let (exponent, fraction) = (i32::from(bits >> 10), f32::from(bits & 1023));
        if exponent == 0 { fraction * 2f32.powi(-24) } else { (1024.0 + fraction) * 2f32.powi(exponent - 25) }
    }

    #[test]
    fn every_half_stays_and_every_tie_is_even() {
        for bits in 0..0x7bffu16 {
            let (here, next) = (value(bits), value(bits + 1));
            assert_eq!(to_half(here), bits);
            assert_eq!(to_half(-here), bits | 0x8000);
            // Halfway is exact in binary32.
            let middle = (here + next) / 2.0;
            assert_eq!(to_half(middle), bits + (bits & 1), "{middle:e}");
            assert_eq!(to_half(f32::from_bits(middle.to_bits() - 1)), bits, "{middle:e}");
            assert_eq!(to_half(f32::from_bits(middle.to_bits() + 1)), bits + 1, "{middle:e}");
        }
    }

    #[test]
    fn sums_become_levels() {
        // Black and below, one unit (1.19676e-7, two smallest subnormals), half, white and above.
        assert_eq!([-1, 0, 1].map(level), [0, 0, 2]);
        assert_eq!([255 << 14, 255 << 15, (255 << 15) + 324, i32::MAX].map(level), [0x3800, 0x3c00, 0x3c00, 0x3c00]);
    }
}
