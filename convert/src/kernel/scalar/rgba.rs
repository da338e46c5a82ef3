//! RGBA of 8 bits, full range, and what [`super::rgb16f`] has in common with it: the outputs that interpret colours.
//! Previews, not colour conversions of record: they have the right matrix and range, but map neither gamuts nor high
//! dynamic range.
//!
//! # The law, exact
//!
//! 1. Every sample is brought to ten bits, `s`: 8 bits are shifted up by 2, 12 and 16 bits down by 4 and 6 (`>> 2`,
//!    `>> 6`), half floats go through a table ([`tables`]: codes 0..1, light 0..1 coded as BT.709 does where RGB or XYZ
//!    is linear, colour difference -0.5..0.5 around 512; clipped).
//! 2. Subsampled colour is repeated: pixel `x` has the colour of column `x & !1`; both rows of 4:2:0 have the same.
//! 3. With `d[i] = s[i] - offset[i]` for the components in the order of the planes (Y Cb Cr, G B R, X Y Z, K), a [`Law`]
//!    gives `out = clamp((m[0] * d[0] + m[1] * d[1] + m[2] * d[2] + (1 << 14)) >> 15, 0, 255)` for R, G and B in turn.
//!    Products and sums are 32 bits wide and cannot overflow; `>>` is arithmetic. All of `m`, `d` and `1 << 14` fit 16
//!    bits, so it is two `pmaddwd`: `(d0, d1) . (m0, m1) + (d2, 1) . (m2, 1 << 14)`.
//! 4. A is 255.
//!
//! # Matrices
//!
//! Ranges: NARROW has luma, R, G, B and K at 64..940 and colour difference at 64..960; FULL and FULLPROTECT reach from 0
//! to the largest code, which is 1020 after step 1 for 8 bits and 1023 for the others. Half floats are full range.
//!
//! | what | matrix |
//! | --- | --- |
//! | Y'CbCr, BT.601 / BT.709 / BT.2020, BT.2100 | its own; UNSPECIFIED: BT.709 above 576 rows, else BT.601; others BT.709 |
//! | RGB, key | none |
//! | CLYCbCr | that of non-constant luminance (approximate) |
//! | ICtCp | first order around grey: LMS to RGB on coded values (approximate) |
//! | XYZ | XYZ to BT.709 RGB on coded values, equal codes being grey, always full range (approximate) |

use super::{At, Samples, WIDE, picture_rows};
use crate::kernel::Conversion;
use gdmedia_sdp::{Colorimetry, Depth, Range, Sampling, Subsampling, Tcs};
use std::sync::LazyLock;

/// Offsets and matrix of a conversion to RGBA or [`super::rgb16f`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Law {
    /// Taken from each component, in the order of the planes.
    pub offset: [i16; 3],
    /// One row each for R, G and B, in units of 2^-15.
    pub matrix: [[i16; 3]; 3],
}

impl Law {
    /// Step 3: R, G and B from samples of ten bits.
    pub fn pixel(&self, samples: [u16; 3]) -> [u8; 3] {
        let [d0, d1, d2] = [0, 1, 2].map(|i| i32::from(samples[i]) - i32::from(self.offset[i]));
        self.matrix.map(|m| {
            let [m0, m1, m2] = m.map(i32::from);
            level(m0 * d0 + m1 * d1 + m2 * d2)
        })
    }
}

#[derive(Clone, Copy)]
enum Model {
    Bt601,
    Bt709,
    Bt2020,
    ICtCp,
    Xyz,
    Rgb,
    Key,
}

#[derive(Clone, Copy)]
enum Scale {
    Narrow,
    /// The largest code is 1020.
    Full8,
    /// The largest code is 1023.
    Full,
}

static LAWS: [[Law; 3]; 7] = {
    use Model::*;
    let models = [Bt601, Bt709, Bt2020, ICtCp, Xyz, Rgb, Key];
    let scales = [Scale::Narrow, Scale::Full8, Scale::Full];
    let mut laws = [[Law { offset: [0; 3], matrix: [[0; 3]; 3] }; 3]; 7];
    let mut i = 0;
    while i < 21 {
        laws[i / 3][i % 3] = make(models[i / 3], scales[i % 3]);
        i += 1;
    }
    laws
};

/// The law of a conversion.
pub fn law(conversion: &Conversion) -> &'static Law {
    law_at(conversion, conversion.wire().depth)
}

/// The law for samples of another depth than the wire's, in ten bits.
pub(crate) fn law_at(conversion: &Conversion, depth: Depth) -> &'static Law {
    let wire = conversion.wire();
    let model = match wire.sampling {
        Sampling::Rgb => Model::Rgb,
        Sampling::Key => Model::Key,
        Sampling::Xyz => Model::Xyz,
        Sampling::ICtCp444 | Sampling::ICtCp422 | Sampling::ICtCp420 => Model::ICtCp,
        Sampling::ClYCbCr444 | Sampling::ClYCbCr422 | Sampling::ClYCbCr420 => Model::Bt2020,
        Sampling::YCbCr444 | Sampling::YCbCr422 | Sampling::YCbCr420 => match conversion.colour.colorimetry {
            Colorimetry::Bt601 => Model::Bt601,
            Colorimetry::Bt2020 | Colorimetry::Bt2100 => Model::Bt2020,
            Colorimetry::Unspecified if wire.height <= 576 => Model::Bt601,
            _ => Model::Bt709,
        },
    };
    let scale = match (depth, conversion.colour.range) {
        (Depth::F16, _) => Scale::Full,
        (_, Range::Narrow) if wire.sampling != Sampling::Xyz => Scale::Narrow,
        (Depth::D8, _) => Scale::Full8,
        _ => Scale::Full,
    };
    &LAWS[model as usize][scale as usize]
}

const fn make(model: Model, scale: Scale) -> Law {
    let (black, luma, colour) = match scale {
        Scale::Narrow => (64, 255.0 / 876.0, 255.0 / 896.0),
        Scale::Full8 => (0, 255.0 / 1020.0, 255.0 / 1020.0),
        Scale::Full => (0, 255.0 / 1023.0, 255.0 / 1023.0),
    };
    let (difference, m) = match model {
        Model::Bt601 => (true, ycbcr(0.299, 0.114)),
        Model::Bt709 => (true, ycbcr(0.2126, 0.0722)),
        Model::Bt2020 => (true, ycbcr(0.2627, 0.0593)),
        // BT.2100: I Ct Cp to L'M'S', then LMS to RGB of BT.2020.
        Model::ICtCp => {
            let lms = [[1.0, 0.00861, 0.11103], [1.0, -0.00861, -0.11103], [1.0, 0.56003, -0.32063]];
            let rgb = [[3.4366, -2.5065, 0.0698], [-0.7913, 1.9836, -0.1923], [-0.0259, -0.0989, 1.1249]];
            (true, grey(product(rgb, lms), 1))
        }
        Model::Xyz => {
            (false, grey([[3.2406, -1.5372, -0.4986], [-0.9689, 1.8758, 0.0415], [0.0557, -0.2040, 1.0570]], 3))
        }
        Model::Rgb => (false, [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
        Model::Key => (false, [[1.0, 0.0, 0.0]; 3]),
    };
    let mut law = Law {
        offset: [black, if difference { 512 } else { black }, if difference { 512 } else { black }],
        matrix: [[0; 3]; 3],
    };
    let mut i = 0;
    while i < 9 {
        let scaled = m[i / 3][i % 3] * if difference && i % 3 > 0 { colour } else { luma } * 32768.0;
        law.matrix[i / 3][i % 3] = (if scaled < 0.0 { scaled - 0.5 } else { scaled + 0.5 }) as i16;
        i += 1;
    }
    law
}

/// Y'CbCr to R'G'B' from the luma coefficients of red and blue.
const fn ycbcr(kr: f64, kb: f64) -> [[f64; 3]; 3] {
    let kg = 1.0 - kr - kb;
    let (b, r) = (2.0 * (1.0 - kb), 2.0 * (1.0 - kr));
    [[1.0, 0.0, r], [1.0, -b * kb / kg, -r * kr / kg], [1.0, b, 0.0]]
}

const fn product(a: [[f64; 3]; 3], b: [[f64; 3]; 3]) -> [[f64; 3]; 3] {
    let mut m = [[0.0; 3]; 3];
    let mut i = 0;
    while i < 27 {
        m[i / 9][i / 3 % 3] += a[i / 9][i % 3] * b[i % 3][i / 3 % 3];
        i += 1;
    }
    m
}

/// Divides every row by the sum of its first `n` coefficients, so that grey stays grey.
const fn grey(mut m: [[f64; 3]; 3], n: usize) -> [[f64; 3]; 3] {
    let mut i = 0;
    while i < 3 {
        let (mut sum, mut j) = (0.0, 0);
        while j < n {
            sum += m[i][j];
            j += 1;
        }
        m[i] = [m[i][0] / sum, m[i][1] / sum, m[i][2] / sum];
        i += 1;
    }
    m
}

pub(super) fn write(conversion: &Conversion, samples: &Samples, at: At, frame: &mut [u8]) {
    let matrix = law(conversion).matrix;
    let plane = &conversion.layout.planes[0];
    rows(conversion, samples, at, |row, d| {
        let [r, g, b] = matrix.map(|m| sums(m, d).map(level));
        let start = plane.offset + row * plane.stride + at.x * 4;
        let out = frame[start..start + at.pixels * 4].as_chunks_mut::<4>().0;
        for (((out, r), g), b) in out.iter_mut().zip(r).zip(g).zip(b) {
            *out = [r, g, b, 255];
        }
    });
}

/// Steps 1 and 2: every picture row of a piece, with what step 3 calls `d`.
pub(super) fn rows(conversion: &Conversion, samples: &Samples, at: At, mut each: impl FnMut(usize, [&[i16; WIDE]; 3])) {
    let wire = conversion.wire();
    let offset = law(conversion).offset;
    let subsampled = matches!(wire.sampling.subsampling(), Subsampling::Half422 | Subsampling::Quarter420);
    let [of_first, of_others] = tables(conversion);
    let top = 16 - wire.depth.bits();
    let centre = |samples: &[u16; WIDE], table: Option<&Table>, offset: i16| match table {
        None => samples.map(|s| ((s << top >> 6) as i16) - offset),
        Some(table) => samples.map(|s| table[usize::from(s)] as i16 - offset),
    };
    let repeat = |d: [i16; WIDE]| if subsampled { std::array::from_fn(|x| d[x / 2]) } else { d };
    let d1 = repeat(centre(&samples.second, of_others, offset[1]));
    let d2 = repeat(centre(&samples.third, of_others, offset[2]));
    for (row, first) in picture_rows(wire, at.wire_row).zip(&samples.first) {
        each(row, [&centre(first, of_first, offset[0]), &d1, &d2]);
    }
}

/// The sums of step 3 for one of R, G and B, without the rounding term.
pub(super) fn sums([m0, m1, m2]: [i16; 3], [d0, d1, d2]: [&[i16; WIDE]; 3]) -> [i32; WIDE] {
    let product = |a: i16, b: i16| i32::from(a) * i32::from(b);
    let mut out = [0; WIDE];
    for (((out, &d0), &d1), &d2) in out.iter_mut().zip(d0).zip(d1).zip(d2) {
        *out = product(m0, d0) + product(m1, d1) + product(m2, d2);
    }
    out
}

/// What step 3 makes of a sum.
fn level(sum: i32) -> u8 {
    ((sum + (1 << 14)) >> 15).clamp(0, 255) as u8
}

/// Ten bits for every half float.
pub type Table = [u16; 1 << 16];

/// The tables of step 1 for the first and the other components; none for integers.
pub fn tables(conversion: &Conversion) -> [Option<&'static Table>; 2] {
    let wire = conversion.wire();
    if wire.depth != Depth::F16 {
        return [None; 2];
    }
    let linear = matches!(conversion.colour.tcs, Tcs::Linear | Tcs::Bt2100LinPq | Tcs::Bt2100LinHlg | Tcs::St2065_1);
    match wire.sampling {
        Sampling::Rgb | Sampling::Xyz if linear => [Some(&LIGHT); 2],
        Sampling::Rgb | Sampling::Xyz | Sampling::Key => [Some(&CODE); 2],
        _ => [Some(&CODE), Some(&DIFFERENCE)],
    }
}

/// Codes from 0 to 1.
static CODE: LazyLock<Box<Table>> = LazyLock::new(|| table(|v| v));
/// Linear light from 0 to 1, coded as BT.709 does (item 1.2).
static LIGHT: LazyLock<Box<Table>> =
    LazyLock::new(|| table(|v| if v < 0.018 { 4.5 * v } else { 1.099 * v.powf(0.45) - 0.099 }));
/// Colour difference from -0.5 to 0.5.
static DIFFERENCE: LazyLock<Box<Table>> = LazyLock::new(|| table(|v| v + 512.0 / 1023.0));

fn table(curve: impl Fn(f64) -> f64) -> Box<Table> {
    let mut table = Box::new([0; 1 << 16]);
    for (bits, code) in table.iter_mut().enumerate() {
        let value = curve(half(bits as u16));
        // A float that is not a number becomes 0.
        *code = (value.clamp(0.0, 1.0) * 1023.0 + 0.5) as u16;
    }
    table
}

/// The value of a half float (IEEE 754 binary16).
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// What a viewer should know; see [`Conversion::remark`].
pub(in crate::kernel) fn remark(conversion: &Conversion) -> Option<&'static str> {
    use Sampling::*;
    Some(match (conversion.wire().sampling, conversion.colour.tcs, conversion.colour.colorimetry) {
        (Key, ..) => "the key is shown as grey",
        (Xyz, ..) => "preview colours only: XYZ through a matrix on coded values",
        (ICtCp444 | ICtCp422 | ICtCp420, ..) => {
            "preview colours only: ICtCp through a matrix on coded values, without tone or gamut mapping"
        }
        (ClYCbCr444 | ClYCbCr422 | ClYCbCr420, ..) => {
            "preview colours only: constant luminance shown with the matrix of non-constant luminance"
        }
        (_, Tcs::Pq | Tcs::Bt2100LinPq, _) => "preview colours only: PQ without tone mapping",
        (_, Tcs::Hlg | Tcs::Bt2100LinHlg, _) => "preview colours only: HLG without tone mapping",
        (_, Tcs::Density | Tcs::St2115LogS3, _) => "preview colours only: the logarithmic curve is shown as it is",
        _ if conversion.wire().depth == Depth::F16 => "preview colours only: half floats clipped to 0..1",
        (_, _, Colorimetry::Bt2020 | Colorimetry::Bt2100 | Colorimetry::St2065_1 | Colorimetry::St2065_3) => {
            "preview colours only: the wide gamut is not mapped to the screen's"
        }
        _ => return None,
    })
}
