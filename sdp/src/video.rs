//! Words of ST 2110-20 and -21: sampling, depth, pgroup, colour, packing, schedule.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
        pub enum $name { $($(#[$vmeta])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// Every value, in the order of the standard.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];
            /// The word as SDP writes it.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(self.as_str()) }
        }
        impl FromStr for $name {
            type Err = UnknownWord;
            /// Case does not matter here; the parser says so when it differs.
            fn from_str(s: &str) -> Result<Self, UnknownWord> {
                $(if s.eq_ignore_ascii_case($text) { return Ok($name::$variant); })+
                Err(UnknownWord)
            }
        }
    };
}

/// A word that the standard does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown word")]
pub struct UnknownWord;

words! {
    /// `sampling` (ST 2110-20:2022, 7.4.1).
    Sampling {
        /// Y'CbCr, every pixel with its own colour.
        YCbCr444 = "YCbCr-4:4:4",
        /// Y'CbCr, a colour pair for two pixels.
        YCbCr422 = "YCbCr-4:2:2",
        /// Y'CbCr, a colour pair for two by two pixels.
        YCbCr420 = "YCbCr-4:2:0",
        /// Constant luminance, 4:4:4.
        ClYCbCr444 = "CLYCbCr-4:4:4",
        /// Constant luminance, 4:2:2.
        ClYCbCr422 = "CLYCbCr-4:2:2",
        /// Constant luminance, 4:2:0.
        ClYCbCr420 = "CLYCbCr-4:2:0",
        /// ICtCp, 4:4:4.
        ICtCp444 = "ICtCp-4:4:4",
        /// ICtCp, 4:2:2.
        ICtCp422 = "ICtCp-4:2:2",
        /// ICtCp, 4:2:0.
        ICtCp420 = "ICtCp-4:2:0",
        /// R'G'B' or linear RGB.
        Rgb = "RGB",
        /// CIE XYZ (ST 428-1 or linear).
        Xyz = "XYZ",
        /// A key (alpha) signal: one component.
        Key = "KEY",
    }
}

words! {
    /// `depth` (ST 2110-20:2022, 7.4.2).
    Depth {
        /// 8 bits an integer sample.
        D8 = "8",
        /// 10 bits.
        D10 = "10",
        /// 12 bits.
        D12 = "12",
        /// 16 bits.
        D16 = "16",
        /// IEEE 754 half precision.
        F16 = "16f",
    }
}

words! {
    /// `colorimetry` (ST 2110-20:2022, 7.5).
    Colorimetry {
        /// ITU-R BT.601.
        Bt601 = "BT601",
        /// ITU-R BT.709.
        Bt709 = "BT709",
        /// ITU-R BT.2020.
        Bt2020 = "BT2020",
        /// ITU-R BT.2100.
        Bt2100 = "BT2100",
        /// ACES.
        St2065_1 = "ST2065-1",
        /// Academy density exchange encoding.
        St2065_3 = "ST2065-3",
        /// The sender does not say.
        Unspecified = "UNSPECIFIED",
        /// ISO 11664-1 (1931 observer).
        Xyz = "XYZ",
        /// A key signal.
        Alpha = "ALPHA",
    }
}

words! {
    /// `TCS`, transfer characteristic (ST 2110-20:2022, 7.6).
    Tcs {
        /// Standard dynamic range.
        Sdr = "SDR",
        /// Perceptual quantiser (BT.2100).
        Pq = "PQ",
        /// Hybrid log-gamma (BT.2100).
        Hlg = "HLG",
        /// Linear light, floating point.
        Linear = "LINEAR",
        /// BT.2100 PQ display-referred linear.
        Bt2100LinPq = "BT2100LINPQ",
        /// BT.2100 HLG scene-referred linear.
        Bt2100LinHlg = "BT2100LINHLG",
        /// ACES linear.
        St2065_1 = "ST2065-1",
        /// Digital cinema.
        St428_1 = "ST428-1",
        /// Film density.
        Density = "DENSITY",
        /// Camera log S3.
        St2115LogS3 = "ST2115LOGS3",
        /// The sender does not say.
        Unspecified = "UNSPECIFIED",
    }
}

words! {
    /// `RANGE` (ST 2110-20:2022, 7.7).
    Range {
        /// Video range: Y 64-940 in 10 bits.
        Narrow = "NARROW",
        /// Full range without the codes that SDI reserves.
        FullProtect = "FULLPROTECT",
        /// 0 to the largest code.
        Full = "FULL",
    }
}

words! {
    /// `PM`, packing mode (ST 2110-20:2022, 6.3).
    Packing {
        /// General packing mode.
        Gpm = "2110GPM",
        /// Block packing mode: 180-octet blocks.
        Bpm = "2110BPM",
    }
}

words! {
    /// `TP`, sender type (ST 2110-21:2022, 7.1).
    SenderType {
        /// Narrow, gapped schedule.
        N = "2110TPN",
        /// Narrow, linear schedule.
        Nl = "2110TPNL",
        /// Wide.
        W = "2110TPW",
    }
}

words! {
    /// How the picture is scanned: the flags `interlace` and `segmented`.
    Scan {
        /// One timestamp a frame.
        Progressive = "progressive",
        /// Two fields a frame.
        Interlaced = "interlaced",
        /// Progressive segmented frame: two segments of one instant.
        Psf = "psf",
    }
}

/// How many components a picture has and how they are subsampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Subsampling {
    /// Three components a pixel.
    Full444,
    /// Two pixels share a colour pair.
    Half422,
    /// Two by two pixels share a colour pair.
    Quarter420,
    /// One component.
    One,
}

impl fmt::Display for Subsampling {
    /// As people write it: `4:2:2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Subsampling::Full444 => "4:4:4",
            Subsampling::Half422 => "4:2:2",
            Subsampling::Quarter420 => "4:2:0",
            Subsampling::One => "one component",
        })
    }
}

/// A pixel group: the smallest run of octets that holds whole pixels (ST 2110-20:2022, tables 1-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Pgroup {
    /// Octets of one group.
    pub octets: u32,
    /// Pixels of one group in all its rows.
    pub pixels: u32,
    /// Rows that one group covers: 2 for 4:2:0, else 1.
    pub rows: u32,
}

impl Pgroup {
    /// Pixels of one group along a row.
    pub const fn width(self) -> u32 {
        self.pixels / self.rows
    }
}

impl Sampling {
    /// The geometry that `sampling` stands for.
    pub const fn subsampling(self) -> Subsampling {
        use Sampling::*;
        match self {
            YCbCr444 | ClYCbCr444 | ICtCp444 | Rgb | Xyz => Subsampling::Full444,
            YCbCr422 | ClYCbCr422 | ICtCp422 => Subsampling::Half422,
            YCbCr420 | ClYCbCr420 | ICtCp420 => Subsampling::Quarter420,
            Key => Subsampling::One,
        }
    }

    /// The pgroup of this sampling at `depth`; `None` where ST 2110-20 defines none.
    pub const fn pgroup(self, depth: Depth) -> Option<Pgroup> {
        use Depth::*;
        if matches!(self, Sampling::Xyz) && matches!(depth, D8 | D10) {
            return None;
        }
        let (octets, pixels, rows) = match (self.subsampling(), depth) {
            (Subsampling::Full444, D8) => (3, 1, 1),
            (Subsampling::Full444, D10) => (15, 4, 1),
            (Subsampling::Full444, D12) => (9, 2, 1),
            (Subsampling::Full444, D16 | F16) => (6, 1, 1),
            (Subsampling::Half422, D8) => (4, 2, 1),
            (Subsampling::Half422, D10) => (5, 2, 1),
            (Subsampling::Half422, D12) => (6, 2, 1),
            (Subsampling::Half422, D16 | F16) => (8, 2, 1),
            (Subsampling::Quarter420, D8) => (6, 4, 2),
            (Subsampling::Quarter420, D10) => (15, 8, 2),
            (Subsampling::Quarter420, D12) => (9, 4, 2),
            (Subsampling::Quarter420, D16 | F16) => return None,
            (Subsampling::One, D8) => (1, 1, 1),
            (Subsampling::One, D10) => (5, 4, 1),
            (Subsampling::One, D12) => (3, 2, 1),
            (Subsampling::One, D16 | F16) => (2, 1, 1),
        };
        Some(Pgroup { octets, pixels, rows })
    }
}

impl Depth {
    /// Bits a sample takes on the wire.
    pub const fn bits(self) -> u32 {
        match self {
            Depth::D8 => 8,
            Depth::D10 => 10,
            Depth::D12 => 12,
            Depth::D16 | Depth::F16 => 16,
        }
    }
}

/// A ratio of two integers, never zero below; not reduced unless it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Ratio {
    /// Above the line.
    pub num: u32,
    /// Below the line, never zero.
    pub den: u32,
}

impl Ratio {
    /// `None` when `den` is zero.
    pub const fn new(num: u32, den: u32) -> Option<Self> {
        if den == 0 { None } else { Some(Ratio { num, den }) }
    }
    /// As a floating point number, for people.
    pub fn as_f64(self) -> f64 {
        f64::from(self.num) / f64::from(self.den)
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.den == 1 { write!(f, "{}", self.num) } else { write!(f, "{}/{}", self.num, self.den) }
    }
}
