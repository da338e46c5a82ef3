//! What `--encode` asks for: `h264,bitrate=20M,gop=50,preset=fast,rung=cpu`.

use super::ladder::Wish;
use std::fmt;
use std::str::FromStr;

/// A way to compress pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// ITU-T H.264, AVC.
    H264,
    /// ITU-T H.265, HEVC.
    Hevc,
    /// AV1 of the Alliance for Open Media.
    Av1,
    /// A JPEG picture a frame.
    Mjpeg,
}

impl Codec {
    /// Every codec.
    pub const ALL: [Codec; 4] = [Codec::H264, Codec::Hevc, Codec::Av1, Codec::Mjpeg];
    /// Its word on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Codec::H264 => "h264",
            Codec::Hevc => "hevc",
            Codec::Av1 => "av1",
            Codec::Mjpeg => "mjpeg",
        }
    }
    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Codec::H264 => "H.264",
            Codec::Hevc => "HEVC",
            Codec::Av1 => "AV1",
            Codec::Mjpeg => "MJPEG",
        }
    }
    /// Bits for a thousand pixels where nobody says how many: test pictures and sport look good then.
    const fn bits_per_kilopixel(self) -> u64 {
        match self {
            Codec::H264 => 120,
            Codec::Hevc => 80,
            Codec::Av1 => 60,
            Codec::Mjpeg => 1200,
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How much time an encoder may take for how good a picture; every encoder has its own word for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// The least time.
    Fastest,
    /// Little time.
    #[default]
    Fast,
    /// Between.
    Medium,
    /// Much time.
    Slow,
    /// The best picture.
    Slowest,
}

impl Preset {
    /// Every preset, fastest first, with its word.
    pub const ALL: [(Preset, &'static str); 5] = [
        (Preset::Fastest, "fastest"),
        (Preset::Fast, "fast"),
        (Preset::Medium, "medium"),
        (Preset::Slow, "slow"),
        (Preset::Slowest, "slowest"),
    ];
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The codec.
    pub codec: Codec,
    /// Bits a second on average; by default as many as suit the picture.
    pub bitrate: Option<u64>,
    /// Frames from one key frame to the next at most; by default two seconds.
    pub gop: Option<u32>,
    /// Time against quality.
    pub preset: Preset,
    /// Which encoders may be used.
    pub rung: Wish,
    /// Quality of JPEG pictures, 1 to 100.
    pub quality: u8,
    /// No frame waits for a later one; by default so in streams, not in files.
    pub low_latency: Option<bool>,
}

/// Why a text is no [`Spec`]; the second line is the cure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}\n  cure: {cure}")]
pub struct Wrong {
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub cure: String,
}

pub(super) fn wrong(what: impl Into<String>, cure: impl Into<String>) -> Wrong {
    Wrong { what: what.into(), cure: cure.into() }
}

/// Bit rates that are taken: 10 kb/s to 2 Gb/s.
const RATES: std::ops::RangeInclusive<u64> = 10_000..=2_000_000_000;

impl FromStr for Spec {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let mut parts = text.split(',').map(str::trim);
        let word = parts.next().unwrap_or_default();
        let codec = match word.to_ascii_lowercase().as_str() {
            "h264" | "h.264" | "avc" => Codec::H264,
            "hevc" | "h265" | "h.265" => Codec::Hevc,
            "av1" => Codec::Av1,
            "mjpeg" | "jpeg" => Codec::Mjpeg,
            _ => return Err(wrong(format!("no codec `{word}`"), "choose h264, hevc, av1 or mjpeg")),
        };
        let mut spec = Spec {
            codec,
            bitrate: None,
            gop: None,
            preset: Preset::default(),
            rung: Wish::Auto,
            quality: 85,
            low_latency: None,
        };
        let mut seen: Vec<&str> = Vec::new();
        for part in parts {
            let Some((key, value)) = part.split_once('=').map(|(k, v)| (k.trim(), v.trim())) else {
                return Err(wrong(format!("`{part}` is no option of an encoder"), KEYS));
            };
            if seen.contains(&key) {
                return Err(wrong(format!("{key} is given twice"), "leave one of them out"));
            }
            seen.push(key);
            spec.set(key, value)?;
        }
        Ok(spec)
    }
}

/// The cure where an option is not known.
const KEYS: &str = "write bitrate=20M, gop=50, preset=fastest to slowest, rung=auto, quality=85 (mjpeg) or latency=low";

impl Spec {
    fn set(&mut self, key: &str, value: &str) -> Result<(), Wrong> {
        let no = |cure: &str| Err(wrong(format!("`{value}` is no value of {key}"), cure));
        match key {
            "bitrate" if self.codec == Codec::Mjpeg => {
                return Err(wrong("MJPEG has no bit rate", "give quality=1 to 100, the better the more bits"));
            }
            "bitrate" => match rate(value).filter(|rate| RATES.contains(rate)) {
                Some(rate) => self.bitrate = Some(rate),
                None => return no("give bits a second from 10k to 2G, such as 20M"),
            },
            "gop" if self.codec == Codec::Mjpeg => {
                return Err(wrong("every frame of MJPEG is a key frame", "leave gop out"));
            }
            "gop" => match value.parse().ok().filter(|gop| (1..=100_000).contains(gop)) {
                Some(gop) => self.gop = Some(gop),
                None => return no("give a number of frames from 1 to 100000"),
            },
            "preset" => match Preset::ALL.into_iter().find(|(_, word)| *word == value) {
                Some((preset, _)) => self.preset = preset,
                None => return no("choose fastest, fast, medium, slow or slowest"),
            },
            "rung" => self.rung = Wish::parse(value, self.codec)?,
            "quality" if self.codec != Codec::Mjpeg => {
                return Err(wrong(format!("quality is for mjpeg, not for {}", self.codec), "give bitrate=20M"));
            }
            "quality" => match value.parse().ok().filter(|quality| (1..=100).contains(quality)) {
                Some(quality) => self.quality = quality,
                None => return no("give a number from 1 to 100"),
            },
            "latency" => match value {
                "low" => self.low_latency = Some(true),
                "normal" => self.low_latency = Some(false),
                _ => return no("choose low or normal"),
            },
            _ => return Err(wrong(format!("an encoder has no option {key}"), KEYS)),
        }
        Ok(())
    }

    /// Bits a second for pictures of this size and rate.
    pub fn bits(&self, width: u32, height: u32, fps: f64) -> u64 {
        self.bitrate.unwrap_or_else(|| {
            let pixels = f64::from(width) * f64::from(height) * fps;
            let bits = pixels * self.codec.bits_per_kilopixel() as f64 / 1000.0;
            (bits as u64).clamp(*RATES.start(), *RATES.end())
        })
    }
    /// Frames from one key frame to the next.
    pub fn key_distance(&self, fps: f64) -> u32 {
        self.gop.unwrap_or_else(|| (2.0 * fps).round().clamp(1.0, 1000.0) as u32)
    }
}

/// `20M`, `800k`, `1.5G`, or bits.
fn rate(text: &str) -> Option<u64> {
    let (number, unit) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (text.get(..at)?, 1e3),
        (at, 'm' | 'M') => (text.get(..at)?, 1e6),
        (at, 'g' | 'G') => (text.get(..at)?, 1e9),
        _ => (text, 1.0),
    };
    let bits = number.parse::<f64>().ok()? * unit;
    (bits.is_finite() && bits >= 0.0).then_some(bits as u64)
}

#[cfg(test)]
mod tests {
    use super::super::ladder::Rung;
    use super::*;

    #[test]
    fn everything_that_can_be_said() {
        let spec: Spec = "h264".parse().unwrap();
        assert_eq!((spec.codec, spec.bitrate, spec.gop, spec.rung), (Codec::H264, None, None, Wish::Auto));
        let spec: Spec = "hevc,bitrate=1.5M,gop=25,preset=slowest,rung=x265,latency=low".parse().unwrap();
        assert_eq!((spec.codec, spec.bitrate, spec.gop), (Codec::Hevc, Some(1_500_000), Some(25)));
        let rest = (spec.preset, spec.rung, spec.low_latency);
        assert_eq!(rest, (Preset::Slowest, Wish::Only(Rung::X265), Some(true)));
        let spec: Spec = " AV1 , bitrate=800k , rung=cpu".parse().unwrap();
        assert_eq!((spec.codec, spec.bitrate, spec.rung), (Codec::Av1, Some(800_000), Wish::Cpu));
        assert_eq!("mjpeg,quality=40".parse::<Spec>().unwrap().quality, 40);
    }

    #[test]
    fn what_is_wrong_is_named_with_what_to_write() {
        for (text, what, cure) in [
            ("", "no codec ``", "choose h264"),
            ("vp9", "no codec `vp9`", "choose h264"),
            ("h264,fast", "`fast` is no option", "preset="),
            ("h264,speed=3", "no option speed", "bitrate=20M"),
            ("h264,bitrate=much", "`much` is no value of bitrate", "20M"),
            ("h264,bitrate=9k", "`9k` is no value of bitrate", "10k to 2G"),
            ("h264,bitrate=-5M", "`-5M` is no value", "10k to 2G"),
            ("h264,bitrate=infM", "`infM` is no value", "10k to 2G"),
            ("h264,bitrate=", "`` is no value", "10k to 2G"),
            ("h264,gop=0", "`0` is no value of gop", "1 to 100000"),
            ("h264,preset=veryfast", "`veryfast` is no value of preset", "fastest"),
            ("h264,quality=3", "quality is for mjpeg", "bitrate"),
            ("h264,rung=x265", "`x265` does not make H.264", "x264"),
            ("h264,rung=magic", "no rung `magic`", "auto"),
            ("h264,latency=none", "`none` is no value of latency", "low or normal"),
            ("h264,gop=1,gop=2", "gop is given twice", "leave one"),
            ("mjpeg,bitrate=1M", "MJPEG has no bit rate", "quality"),
            ("mjpeg,gop=1", "every frame of MJPEG", "leave gop out"),
            ("mjpeg,quality=0", "`0` is no value of quality", "1 to 100"),
        ] {
            let wrong = text.parse::<Spec>().unwrap_err();
            assert!(wrong.what.contains(what) && wrong.cure.contains(cure), "{text}: {wrong}");
        }
    }

    #[test]
    fn defaults_suit_the_picture() {
        let spec: Spec = "h264".parse().unwrap();
        // 1920 * 1080 * 50 * 0.12
        assert_eq!((spec.bits(1920, 1080, 50.0), spec.key_distance(50.0)), (12_441_600, 100));
        assert_eq!((spec.bits(16, 16, 1.0), spec.key_distance(0.0)), (10_000, 1));
        let spec: Spec = "h264,bitrate=5M,gop=7".parse().unwrap();
        assert_eq!((spec.bits(1920, 1080, 50.0), spec.key_distance(50.0)), (5_000_000, 7));
    }
}
