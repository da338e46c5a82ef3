//! From R'G'B' to the codes of a signal: matrix, transfer and quantisation.

use crate::format::WireFormat;
use crate::kernel::Colour;
use gdmedia_sdp::{Colorimetry, Depth, Range, Sampling, Tcs};

/// Turns R'G'B' (0 black, 1 nominal white) into codes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coder {
    sampling: Sampling,
    depth: Depth,
    colour: Colour,
}

impl Coder {
    pub(super) fn new(format: &WireFormat, colour: Colour) -> Self {
        Coder { sampling: format.sampling, depth: format.depth, colour }
    }

    /// Codes in the order of the components: Y Cb Cr, I Ct Cp, R G B, X Y Z, or the key alone.
    pub(super) fn codes(&self, rgb: [f64; 3]) -> [u16; 3] {
        use Sampling::*;
        match self.sampling {
            Rgb => rgb.map(|e| self.level(self.transfer(e))),
            Key => [self.level(luma(REC709, rgb)), 0, 0],
            YCbCr444 | YCbCr422 | YCbCr420 => {
                let k = weights(self.colour.colorimetry);
                let y = luma(k, rgb);
                let (cb, cr) = ((rgb[2] - y) / (2.0 * (1.0 - k.1)), (rgb[0] - y) / (2.0 * (1.0 - k.0)));
                [self.level(y), self.difference(cb), self.difference(cr)]
            }
            ClYCbCr444 | ClYCbCr422 | ClYCbCr420 => {
                let (y, cb, cr) = constant_luminance(rgb);
                [self.level(y), self.difference(cb), self.difference(cr)]
            }
            ICtCp444 | ICtCp422 | ICtCp420 => {
                let (i, ct, cp) = ictcp(rgb, self.colour.tcs);
                [self.level(i), self.difference(ct), self.difference(cp)]
            }
            Xyz => xyz(rgb).map(|e| self.full_level(e)),
        }
    }

    /// Linear signals carry light, not R'G'B'.
    fn transfer(&self, e: f64) -> f64 {
        match self.colour.tcs {
            Tcs::Linear | Tcs::Bt2100LinPq | Tcs::Bt2100LinHlg | Tcs::St2065_1 => e.max(0.0).powf(2.4),
            _ => e,
        }
    }

    /// Of Y, R, G, B, I or key.
    fn level(&self, e: f64) -> u16 {
        match self.colour.range {
            Range::Narrow if self.depth != Depth::F16 => self.clamp((219.0 * e + 16.0) * self.step()),
            _ => self.full_level(e),
        }
    }

    fn full_level(&self, e: f64) -> u16 {
        if self.depth == Depth::F16 { half(e) } else { self.clamp(e * self.top()) }
    }

    /// Of a colour difference, -0.5 to 0.5.
    fn difference(&self, e: f64) -> u16 {
        match (self.depth, self.colour.range) {
            (Depth::F16, _) => half(e),
            (_, Range::Narrow) => self.clamp((224.0 * e + 128.0) * self.step()),
            _ => self.clamp(e * self.top() + 128.0 * self.step()),
        }
    }

    /// One 8-bit code in this depth.
    fn step(&self) -> f64 {
        f64::from(1u32 << (self.depth.bits() - 8))
    }

    fn top(&self) -> f64 {
        f64::from((1u32 << self.depth.bits()) - 1)
    }

    fn clamp(&self, code: f64) -> u16 {
        // SDI reserves the codes whose top eight bits are all zeros or all ones.
        let (low, high) = match self.colour.range {
            Range::Full => (0.0, self.top()),
            Range::Narrow | Range::FullProtect => (self.step(), 255.0 * self.step() - 1.0),
        };
        code.round().clamp(low, high) as u16
    }
}

/// (Kr, Kb).
type Weights = (f64, f64);
const REC709: Weights = (0.2126, 0.0722);
const REC2020: Weights = (0.2627, 0.0593);

fn weights(colorimetry: Colorimetry) -> Weights {
    match colorimetry {
        Colorimetry::Bt601 => (0.299, 0.114),
        Colorimetry::Bt2020 | Colorimetry::Bt2100 => REC2020,
        _ => REC709,
    }
}

fn luma((kr, kb): Weights, rgb: [f64; 3]) -> f64 {
    kr * rgb[0] + (1.0 - kr - kb) * rgb[1] + kb * rgb[2]
}

/// BT.2020 table 4, constant luminance.
fn constant_luminance(rgb: [f64; 3]) -> (f64, f64, f64) {
    const ALPHA: f64 = 1.0993;
    const BETA: f64 = 0.0181;
    let linear = |e: f64| if e < 4.5 * BETA { e / 4.5 } else { ((e + ALPHA - 1.0) / ALPHA).powf(1.0 / 0.45) };
    let coded = |e: f64| if e < BETA { 4.5 * e } else { ALPHA * e.powf(0.45) - (ALPHA - 1.0) };
    let y = coded(luma(REC2020, rgb.map(linear)));
    let side = |d: f64, negative: f64, positive: f64| d / (2.0 * if d <= 0.0 { negative } else { positive });
    (y, side(rgb[2] - y, 0.9702, 0.7910), side(rgb[0] - y, 0.8591, 0.4969))
}

/// BT.2100 table 7.
fn ictcp(rgb: [f64; 3], tcs: Tcs) -> (f64, f64, f64) {
    let pq = tcs == Tcs::Pq;
    let [r, g, b] = rgb.map(|e| if pq { pq_light(e) } else { hlg_light(e) });
    let lms = [
        (1688.0 * r + 2146.0 * g + 262.0 * b) / 4096.0,
        (683.0 * r + 2951.0 * g + 462.0 * b) / 4096.0,
        (99.0 * r + 309.0 * g + 3688.0 * b) / 4096.0,
    ];
    let [l, m, s] = lms.map(|e| if pq { pq_signal(e) } else { hlg_signal(e) });
    let (ct, cp) = if pq {
        (6610.0 * l - 13613.0 * m + 7003.0 * s, 17933.0 * l - 17390.0 * m - 543.0 * s)
    } else {
        (3625.0 * l - 7465.0 * m + 3840.0 * s, 9500.0 * l - 9212.0 * m - 288.0 * s)
    };
    ((l + m) / 2.0, ct / 4096.0, cp / 4096.0)
}

const PQ_M1: f64 = 2610.0 / 16384.0;
const PQ_M2: f64 = 2523.0 / 32.0;
const PQ_C1: f64 = 3424.0 / 4096.0;
const PQ_C2: f64 = 2413.0 / 128.0;
const PQ_C3: f64 = 2392.0 / 128.0;

fn pq_light(e: f64) -> f64 {
    let p = e.max(0.0).powf(1.0 / PQ_M2);
    ((p - PQ_C1).max(0.0) / (PQ_C2 - PQ_C3 * p)).powf(1.0 / PQ_M1)
}

fn pq_signal(light: f64) -> f64 {
    let p = light.max(0.0).powf(PQ_M1);
    ((PQ_C1 + PQ_C2 * p) / (1.0 + PQ_C3 * p)).powf(PQ_M2)
}

const HLG_A: f64 = 0.178_832_77;
const HLG_B: f64 = 0.284_668_92;
const HLG_C: f64 = 0.559_910_73;

fn hlg_light(e: f64) -> f64 {
    let e = e.max(0.0);
    if e <= 0.5 { e * e / 3.0 } else { (((e - HLG_C) / HLG_A).exp() + HLG_B) / 12.0 }
}

fn hlg_signal(light: f64) -> f64 {
    let light = light.max(0.0);
    if light <= 1.0 / 12.0 { (3.0 * light).sqrt() } else { HLG_A * (12.0 * light - HLG_B).ln() + HLG_C }
}

/// X'Y'Z' of ST 428-1 (gamma 2.6, white of 48 in 52.37 cd/m2), from R'G'B' of BT.709.
fn xyz(rgb: [f64; 3]) -> [f64; 3] {
    let [r, g, b] = rgb.map(|e| e.max(0.0).powf(2.4));
    [0.4124 * r + 0.3576 * g + 0.1805 * b, 0.2126 * r + 0.7152 * g + 0.0722 * b, 0.0193 * r + 0.1192 * g + 0.9505 * b]
        .map(|light| (light * 48.0 / 52.37).powf(1.0 / 2.6))
}

/// IEEE 754 half precision, to nearest; no infinities.
fn half(value: f64) -> u16 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let value = value.abs().min(65504.0);
    if value < 2f64.powi(-14) {
        return sign | (value * 2f64.powi(24)).round() as u16;
    }
    let exponent = value.log2().floor() as i32;
    let mantissa = ((value / 2f64.powi(exponent) - 1.0) * 1024.0).round() as u16;
    // A mantissa of 1024 carries into the exponent, as it should.
    sign | (((exponent + 15) as u16) << 10).saturating_add(mantissa)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gdmedia_sdp::Scan;

    fn coder(sampling: Sampling, depth: Depth, colorimetry: Colorimetry, range: Range) -> Coder {
        let format = WireFormat::new(sampling, depth, 64, 64, Scan::Progressive).unwrap();
        Coder::new(&format, Colour { colorimetry, tcs: Tcs::Sdr, range })
    }

    /// SMPTE RP 219 table of 75 % bars, BT.709, 10 bits.
    #[test]
    fn bars_of_rp_219() {
        let c = coder(Sampling::YCbCr422, Depth::D10, Colorimetry::Bt709, Range::Narrow);
        let v = 0.75;
        assert_eq!(c.codes([1.0; 3]), [940, 512, 512]);
        assert_eq!(c.codes([v, v, v]), [721, 512, 512]);
        assert_eq!(c.codes([v, v, 0.0]), [674, 176, 543]);
        assert_eq!(c.codes([0.0, v, v]), [581, 589, 176]);
        assert_eq!(c.codes([0.0, v, 0.0]), [534, 253, 207]);
        assert_eq!(c.codes([v, 0.0, v]), [251, 771, 817]);
        assert_eq!(c.codes([v, 0.0, 0.0]), [204, 435, 848]);
        assert_eq!(c.codes([0.0, 0.0, v]), [111, 848, 481]);
        assert_eq!(c.codes([0.0; 3]), [64, 512, 512]);
    }

    #[test]
    fn ranges_and_depths() {
        let narrow = coder(Sampling::YCbCr422, Depth::D8, Colorimetry::Bt601, Range::Narrow);
        assert_eq!(narrow.codes([1.0; 3]), [235, 128, 128]);
        // BT.601, 100 % red: 81 90 240.
        assert_eq!(narrow.codes([1.0, 0.0, 0.0]), [81, 90, 240]);
        let full = coder(Sampling::Rgb, Depth::D10, Colorimetry::Bt709, Range::Full);
        assert_eq!(full.codes([1.0, 0.0, 0.5]), [1023, 0, 512]);
        let protect = coder(Sampling::Rgb, Depth::D10, Colorimetry::Bt709, Range::FullProtect);
        assert_eq!(protect.codes([1.0, 0.0, 0.5]), [1019, 4, 512]);
        let twelve = coder(Sampling::YCbCr444, Depth::D12, Colorimetry::Bt2020, Range::Narrow);
        assert_eq!(twelve.codes([1.0; 3]), [3760, 2048, 2048]);
        let wide = coder(Sampling::Key, Depth::D16, Colorimetry::Alpha, Range::Full);
        assert_eq!(wide.codes([1.0; 3])[0], 65535);
    }

    #[test]
    fn half_precision() {
        assert_eq!(half(1.0), 0x3c00);
        assert_eq!(half(0.5), 0x3800);
        assert_eq!(half(-0.5), 0xb800);
        assert_eq!(half(0.0), 0);
        assert_eq!(half(65504.0), 0x7bff);
        assert_eq!(half(2f64.powi(-24)), 1);
        assert_eq!(half(0.999_999), 0x3c00);
    }

    #[test]
    fn grey_has_no_colour_in_any_system() {
        for (sampling, tcs) in [
            (Sampling::ClYCbCr422, Tcs::Sdr),
            (Sampling::ICtCp422, Tcs::Pq),
            (Sampling::ICtCp444, Tcs::Hlg),
            (Sampling::YCbCr420, Tcs::Sdr),
        ] {
            let format = WireFormat::new(sampling, Depth::D10, 64, 64, Scan::Progressive).unwrap();
            let colour = Colour { colorimetry: Colorimetry::Bt2100, tcs, range: Range::Narrow };
            for grey in [0.0, 0.25, 0.5, 1.0] {
                let [y, a, b] = Coder::new(&format, colour).codes([grey; 3]);
                assert_eq!([y, a, b], [(64.0 + 876.0 * grey).round() as u16, 512, 512], "{sampling} {grey}");
            }
        }
    }
}
