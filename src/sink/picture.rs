//! Any frame as RGB for people: straightforward and scalar, one frame now and then. The kernels do this for every frame.

use crate::format::Output;
use crate::frame::Frame;
use crate::kernel::Colour;
use gdmedia_sdp::{Colorimetry, Depth, Range, Sampling, Scan, Subsampling, Tcs};

/// The picture as R G B of 8 bits, full range, rows without padding, from every output of every wire format.
///
/// Colours keep their primaries and their transfer characteristic (BT.2020 and PQ look pale on a plain monitor); only
/// linear light and XYZ are brought to the curve of BT.709, because nobody could judge them otherwise.
pub fn to_rgb(frame: &Frame, colour: &Colour) -> Vec<u8> {
    let wire = &frame.layout().wire;
    let mut rgb = Vec::with_capacity(wire.width as usize * wire.height as usize * 3);
    if frame.layout().output == Output::Rgba {
        for y in 0..wire.height as usize {
            frame.row(0, y).chunks_exact(4).for_each(|pixel| rgb.extend_from_slice(&pixel[..3]));
        }
        return rgb;
    }
    if frame.layout().output == Output::Rgb16f {
        for y in 0..wire.height as usize {
            for x in 0..wire.width as usize {
                rgb.extend(codes(frame, x, y).map(|code| level8(half(code))));
            }
        }
        return rgb;
    }
    let decode = Decode::new(frame, colour);
    for y in 0..wire.height as usize {
        for x in 0..wire.width as usize {
            rgb.extend(decode.rgb(codes(frame, x, y)).map(level8));
        }
    }
    rgb
}

/// From 0..1 to 8 bits.
fn level8(level: f32) -> u8 {
    (level.clamp(0.0, 1.0) * 255.0 + 0.5) as u8
}

/// The three codes of a pixel: Y Cb Cr, R G B, X Y Z; a key three times.
fn codes(frame: &Frame, x: usize, y: usize) -> [u16; 3] {
    let layout = frame.layout();
    let wire = &layout.wire;
    let octet = |plane, row, at: usize| frame.row(plane, row).get(at).copied().unwrap_or_default();
    let word = |plane, row, at: usize| u16::from_le_bytes([octet(plane, row, at * 2), octet(plane, row, at * 2 + 1)]);
    let pair = x / 2 * 2;
    match layout.output {
        Output::Rgba => [octet(0, y, x * 4), octet(0, y, x * 4 + 1), octet(0, y, x * 4 + 2)].map(u16::from),
        Output::Planar => {
            let sample = |plane, row, at| {
                if wire.depth == Depth::D8 { u16::from(octet(plane, row, at)) } else { word(plane, row, at) }
            };
            match (wire.sampling.subsampling(), wire.sampling) {
                (Subsampling::One, _) => [sample(0, y, x); 3],
                (Subsampling::Full444, Sampling::Rgb) => [sample(2, y, x), sample(0, y, x), sample(1, y, x)],
                (Subsampling::Full444, _) => [0, 1, 2].map(|plane| sample(plane, y, x)),
                (Subsampling::Half422, _) => [sample(0, y, x), sample(1, y, x / 2), sample(2, y, x / 2)],
                (Subsampling::Quarter420, _) => [sample(0, y, x), sample(1, y / 2, x / 2), sample(2, y / 2, x / 2)],
            }
        }
        Output::P010 => {
            let row = colour_row(wire.scan, y);
            [word(0, y, x), word(1, row, pair), word(1, row, pair + 1)].map(|w| w >> 6)
        }
        Output::P210 => [word(0, y, x), word(1, y, pair), word(1, y, pair + 1)].map(|w| w >> 6),
        Output::Rgb16f => [0, 1, 2].map(|plane| word(plane, y, x)),
        Output::Nv12 => {
            let row = colour_row(wire.scan, y);
            [octet(0, y, x), octet(1, row, pair), octet(1, row, pair + 1)].map(u16::from)
        }
        Output::Uyvy => [octet(0, y, x * 2 + 1), octet(0, y, pair * 2), octet(0, y, pair * 2 + 2)].map(u16::from),
        Output::V210 => {
            // Three samples a 32-bit word, lowest first: Cb Y Cr | Y Cb Y | Cr Y Cb | Y Cr Y.
            let sample = |index: usize| {
                let at = index / 3 * 4;
                let word = u32::from_le_bytes([0, 1, 2, 3].map(|i| octet(0, y, at + i)));
                (word >> (index % 3 * 10) & 1023) as u16
            };
            [sample(x * 2 + 1), sample(pair * 2), sample(pair * 2 + 2)]
        }
        Output::Wire => {
            let row = frame.row(0, y / wire.pgroup.rows as usize);
            let sample = |index| wire_sample(row, wire.depth.bits() as usize, index);
            match (wire.sampling.subsampling(), wire.sampling) {
                (Subsampling::One, _) => [sample(x); 3],
                (Subsampling::Full444, Sampling::Rgb | Sampling::Xyz) => [0, 1, 2].map(|i| sample(x * 3 + i)),
                (Subsampling::Full444, _) => [1, 0, 2].map(|i| sample(x * 3 + i)),
                (Subsampling::Half422, _) => [sample(x * 2 + 1), sample(pair * 2), sample(pair * 2 + 2)],
                // Blocks of two by two pixels: Y00 Y01 Y10 Y11 Cb Cr.
                (Subsampling::Quarter420, _) => {
                    let block = x / 2 * 6;
                    [sample(block + y % 2 * 2 + x % 2), sample(block + 4), sample(block + 5)]
                }
            }
        }
    }
}

/// The row of a 4:2:0 output that holds the colour of picture row `y`; see [`crate::format::Layout`].
fn colour_row(scan: Scan, y: usize) -> usize {
    if scan == Scan::Interlaced { y / 4 * 2 + y % 2 } else { y / 2 }
}

/// Sample `index` of a row of samples that follow each other bit by bit, highest bit first.
fn wire_sample(row: &[u8], bits: usize, index: usize) -> u16 {
    let first = index * bits;
    let word = (0..3).fold(0u32, |word, i| word << 8 | u32::from(row.get(first / 8 + i).copied().unwrap_or_default()));
    (word >> (24 - bits - first % 8) & ((1 << bits) - 1)) as u16
}

/// From codes to R' G' B' of 0 to 1.
struct Decode {
    model: Model,
    /// `None`: half floats. Else what is subtracted and what it is multiplied with: luma, then colour difference.
    scale: Option<[(f32, f32); 2]>,
    kr: f32,
    kb: f32,
    tcs: Tcs,
}

#[derive(PartialEq)]
enum Model {
    Ycbcr,
    ConstantLuminance,
    Ictcp,
    Rgb,
    Xyz,
}

impl Decode {
    fn new(frame: &Frame, colour: &Colour) -> Decode {
        use Sampling::*;
        let layout = frame.layout();
        let model = match layout.wire.sampling {
            YCbCr444 | YCbCr422 | YCbCr420 => Model::Ycbcr,
            ClYCbCr444 | ClYCbCr422 | ClYCbCr420 => Model::ConstantLuminance,
            ICtCp444 | ICtCp422 | ICtCp420 => Model::Ictcp,
            Rgb | Key => Model::Rgb,
            Xyz => Model::Xyz,
        };
        let bits = match layout.output {
            Output::Wire | Output::Planar => layout.wire.depth.bits(),
            Output::P010 | Output::P210 | Output::V210 => 10,
            Output::Nv12 | Output::Uyvy => 8,
            // Are R G B already.
            Output::Rgba | Output::Rgb16f => 8,
        };
        let float = layout.wire.depth == Depth::F16 && matches!(layout.output, Output::Wire | Output::Planar);
        let (top, step) = (((1u32 << bits) - 1) as f32, (1u32 << (bits - 8)) as f32);
        let middle = 128.0 * step;
        // X'Y'Z' has no narrow range.
        let narrow = colour.range == Range::Narrow && model != Model::Xyz;
        let scale = if narrow {
            [(16.0 * step, 1.0 / (219.0 * step)), (middle, 1.0 / (224.0 * step))]
        } else {
            [(0.0, 1.0 / top), (middle, 1.0 / top)]
        };
        let (kr, kb) = match colour.colorimetry {
            Colorimetry::Bt601 => (0.299, 0.114),
            Colorimetry::Bt2020 | Colorimetry::Bt2100 => (0.2627, 0.0593),
            _ => (0.2126, 0.0722),
        };
        Decode { model, scale: (!float).then_some(scale), kr, kb, tcs: colour.tcs }
    }

    fn rgb(&self, codes: [u16; 3]) -> [f32; 3] {
        let difference = !matches!(self.model, Model::Rgb | Model::Xyz);
        let mut level = [0.0; 3];
        for (i, (level, code)) in level.iter_mut().zip(codes).enumerate() {
            *level = match self.scale {
                None => half(code),
                Some([luma, chroma]) => {
                    let (zero, scale) = if difference && i > 0 { chroma } else { luma };
                    (f32::from(code) - zero) * scale
                }
            };
        }
        let rgb = match self.model {
            Model::Rgb => level,
            Model::Ycbcr => {
                let [y, cb, cr] = level;
                let (r, b) = (y + 2.0 * (1.0 - self.kr) * cr, y + 2.0 * (1.0 - self.kb) * cb);
                [r, (y - self.kr * r - self.kb * b) / (1.0 - self.kr - self.kb), b]
            }
            Model::ConstantLuminance => self.constant_luminance(level),
            Model::Ictcp => self.ictcp(level),
            Model::Xyz => {
                // ST 428-1: gamma 2.6, 48 cd/m2 is white at 52.37. Floats are linear.
                let xyz = if self.scale.is_none() { level } else { level.map(|v| v.max(0.0).powf(2.6) * 52.37 / 48.0) };
                return multiply(&XYZ_TO_RGB, xyz).map(bt709);
            }
        };
        let linear = matches!(self.tcs, Tcs::Linear | Tcs::Bt2100LinPq | Tcs::Bt2100LinHlg | Tcs::St2065_1);
        if linear { rgb.map(bt709) } else { rgb }
    }

    /// BT.2020, table 4, constant luminance.
    fn constant_luminance(&self, [y, cb, cr]: [f32; 3]) -> [f32; 3] {
        let b = y + cb * if cb <= 0.0 { 1.9404 } else { 1.5816 };
        let r = y + cr * if cr <= 0.0 { 1.7184 } else { 0.9936 };
        let [yl, rl, bl] = [y, r, b].map(|v| self.linear(v));
        [r, self.curve((yl - 0.2627 * rl - 0.0593 * bl) / 0.6780), b]
    }

    /// BT.2100, tables 7 and 8: I Ct Cp to L'M'S', to light, to RGB, and back to the curve.
    fn ictcp(&self, ictcp: [f32; 3]) -> [f32; 3] {
        let to_lms = if self.tcs == Tcs::Hlg { &ICTCP_TO_LMS_HLG } else { &ICTCP_TO_LMS_PQ };
        let lms = multiply(to_lms, ictcp).map(|v| self.linear(v));
        multiply(&LMS_TO_RGB, lms).map(|v| self.curve(v))
    }

    fn linear(&self, v: f32) -> f32 {
        match self.tcs {
            Tcs::Pq => {
                let p = v.max(0.0).powf(1.0 / 78.84375);
                ((p - 0.835_937_5).max(0.0) / (18.851_563 - 18.6875 * p)).powf(1.0 / 0.159_301_76)
            }
            Tcs::Hlg if v <= 0.5 => v * v / 3.0,
            Tcs::Hlg => (((v - 0.559_910_7) / 0.178_832_77).exp() + 0.284_668_92) / 12.0,
            _ if v < 0.081 => v / 4.5,
            _ => ((v + 0.099) / 1.099).powf(1.0 / 0.45),
        }
    }
    fn curve(&self, v: f32) -> f32 {
        match self.tcs {
            Tcs::Pq => {
                let p = v.max(0.0).powf(0.159_301_76);
                ((0.835_937_5 + 18.851_563 * p) / (1.0 + 18.6875 * p)).powf(78.84375)
            }
            Tcs::Hlg if v <= 1.0 / 12.0 => (3.0 * v.max(0.0)).sqrt(),
            Tcs::Hlg => 0.178_832_77 * (12.0 * v - 0.284_668_92).ln() + 0.559_910_7,
            _ => bt709(v),
        }
    }
}

/// Opto-electronic transfer of BT.709.
fn bt709(v: f32) -> f32 {
    if v < 0.018 { 4.5 * v } else { 1.099 * v.powf(0.45) - 0.099 }
}

fn multiply(m: &[[f32; 3]; 3], v: [f32; 3]) -> [f32; 3] {
    [0, 1, 2].map(|i| m[i][0] * v[0] + m[i][1] * v[1] + m[i][2] * v[2])
}

/// CIE XYZ to linear RGB of BT.709, white D65.
const XYZ_TO_RGB: [[f32; 3]; 3] =
    [[3.240_97, -1.537_383, -0.498_611], [-0.969_244, 1.875_968, 0.041_555], [0.055_63, -0.203_977, 1.056_972]];
/// Inverse of BT.2100's RGB to LMS.
const LMS_TO_RGB: [[f32; 3]; 3] =
    [[3.436_607, -2.506_452, 0.069_845], [-0.791_33, 1.983_6, -0.192_271], [-0.025_95, -0.098_914, 1.124_864]];
/// Inverse of BT.2100's L'M'S' to ICtCp, PQ.
const ICTCP_TO_LMS_PQ: [[f32; 3]; 3] =
    [[1.0, 0.008_609, 0.111_03], [1.0, -0.008_609, -0.111_03], [1.0, 0.560_031, -0.320_627]];
/// Inverse of BT.2100's L'M'S' to ICtCp, HLG.
const ICTCP_TO_LMS_HLG: [[f32; 3]; 3] =
    [[1.0, 0.015_719, 0.209_581], [1.0, -0.015_719, -0.209_581], [1.0, 1.021_271, -0.605_274]];

/// IEEE 754 half precision.
fn half(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        // Infinity and what is no number: as bright as can be.
        31 => 65504.0,
        e => (1024.0 + fraction) * 2f32.powi(e - 25),
    }
}
