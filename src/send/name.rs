//! Formats by the names that people use: `1080p59.94`, `1080i50`, `1080psf25`, `1280x720p50`.

use gdmedia_sdp::{Ratio, Scan};

/// Raster, scan and frame rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// Pixels a row.
    pub width: u32,
    /// Rows of a frame.
    pub height: u32,
    /// Progressive, interlaced or PsF.
    pub scan: Scan,
    /// Frames a second.
    pub rate: Option<Ratio>,
}

/// Reads a name; the rate may be absent. Interlaced rates above 30 count fields, as in `1080i59.94`.
pub fn parse(text: &str) -> Option<Named> {
    let text = text.to_ascii_lowercase();
    let (at, word, scan) = [("psf", Scan::Psf), ("p", Scan::Progressive), ("i", Scan::Interlaced)]
        .into_iter()
        .find_map(|(word, scan)| Some((text.find(word)?, word, scan)))?;
    let (raster, rate) = (text.get(..at)?, text.get(at + word.len()..)?);
    let (width, height) = match raster.split_once('x') {
        Some((width, height)) => (width.parse().ok()?, height.parse().ok()?),
        None => {
            let height = raster.parse().ok()?;
            let width = match height {
                480 | 486 | 487 | 576 => 720,
                720 => 1280,
                1080 => 1920,
                2160 => 3840,
                4320 => 7680,
                _ => return None,
            };
            (width, height)
        }
    };
    let rate = if rate.is_empty() { None } else { Some(self::rate(rate)?) };
    let fields = scan == Scan::Interlaced && rate.is_some_and(|r| r.num > 30 * r.den);
    let rate = rate.map(|r| if fields { halve(r) } else { r });
    Some(Named { width, height, scan, rate })
}

/// Reads a rate: `50`, `59.94`, `60000/1001`.
pub fn rate(text: &str) -> Option<Ratio> {
    if let Some((num, den)) = text.split_once('/') {
        return Ratio::new(num.parse().ok()?, den.parse().ok()?).filter(|r| r.num > 0);
    }
    match text {
        "23.98" | "23.976" => return Ratio::new(24_000, 1001),
        "47.95" | "47.952" => return Ratio::new(48_000, 1001),
        "71.93" => return Ratio::new(72_000, 1001),
        "95.9" | "95.90" => return Ratio::new(96_000, 1001),
        _ => {}
    }
    let value: f64 = text.parse().ok()?;
    if value.fract() == 0.0 && (1.0..=1000.0).contains(&value) {
        return Ratio::new(value as u32, 1);
    }
    // 29.97, 59.94, 119.88: a multiple of 30 less a thousandth.
    [30u32, 60, 120]
        .into_iter()
        .find(|&n| (f64::from(n) / 1.001 - value).abs() < 0.005)
        .and_then(|n| Ratio::new(n * 1000, 1001))
}

/// The shortest name: `1080p59.94`, `1080i50`, `640x480p25`.
pub fn name(width: u32, height: u32, scan: Scan, rate: Option<Ratio>) -> String {
    let usual = parse(&format!("{height}p")).is_some_and(|n| n.width == width);
    let raster = if usual { height.to_string() } else { format!("{width}x{height}") };
    let (word, factor) = match scan {
        Scan::Progressive => ("p", 1.0),
        Scan::Interlaced => ("i", 2.0),
        Scan::Psf => ("psf", 1.0),
    };
    let rate = rate.map_or(String::new(), |r| {
        let text = format!("{:.2}", r.as_f64() * factor);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    });
    format!("{raster}{word}{rate}")
}

fn halve(rate: Ratio) -> Ratio {
    if rate.num.is_multiple_of(2) {
        Ratio { num: rate.num / 2, den: rate.den }
    } else {
        Ratio { num: rate.num, den: rate.den.saturating_mul(2) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_people_use() {
        let named = |text: &str| {
            let n = parse(text).unwrap_or_else(|| panic!("{text}"));
            (n.width, n.height, n.scan, n.rate.map(|r| (r.num, r.den)))
        };
        assert_eq!(named("1080p59.94"), (1920, 1080, Scan::Progressive, Some((60_000, 1001))));
        assert_eq!(named("1080i59.94"), (1920, 1080, Scan::Interlaced, Some((30_000, 1001))));
        assert_eq!(named("1080i25"), (1920, 1080, Scan::Interlaced, Some((25, 1))));
        assert_eq!(named("1080i50"), (1920, 1080, Scan::Interlaced, Some((25, 1))));
        assert_eq!(named("1080PsF23.98"), (1920, 1080, Scan::Psf, Some((24_000, 1001))));
        assert_eq!(named("2160p"), (3840, 2160, Scan::Progressive, None));
        assert_eq!(named("640x480p60000/1001"), (640, 480, Scan::Progressive, Some((60_000, 1001))));
        assert_eq!(named("576i25"), (720, 576, Scan::Interlaced, Some((25, 1))));
        assert_eq!(named("2160p119.88"), (3840, 2160, Scan::Progressive, Some((120_000, 1001))));
        for wrong in ["", "1080", "p", "1080x", "99p50", "1080pfast", "1080p0", "1080p50/0", "x720p50", "-1x2p5"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn and_back() {
        for text in ["1080p59.94", "1080i59.94", "1080psf25", "720p50", "2160p119.88", "640x480p23.98", "576i50"] {
            let n = parse(text).unwrap();
            assert_eq!(name(n.width, n.height, n.scan, n.rate), text);
        }
    }
}
