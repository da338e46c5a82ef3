//! The header of a YUV4MPEG2 file, as mjpegtools defined it and FFmpeg extended it.

use gdmedia_sdp::{Depth, Range, Ratio, Scan, Subsampling};

/// What the first line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Pixels a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Frames a second.
    pub rate: Option<Ratio>,
    /// Progressive or interlaced.
    pub scan: Scan,
    /// Colour planes.
    pub subsampling: Subsampling,
    /// Bits.
    pub depth: Depth,
    /// Range of codes.
    pub range: Option<Range>,
    /// Pixel aspect ratio.
    pub par: Option<Ratio>,
}

/// How every file begins.
pub const MAGIC: &[u8] = b"YUV4MPEG2 ";
/// A header line is no longer than this.
pub const MAX_LINE: usize = 1024;

/// Reads the first line, without its end.
///
/// # Errors
/// What is wrong with it.
pub fn parse(line: &[u8]) -> Result<Header, String> {
    let text = std::str::from_utf8(line).map_err(|_| "the first line is not text".to_owned())?;
    let mut words = text.split(' ').filter(|w| !w.is_empty());
    if words.next() != Some("YUV4MPEG2") {
        return Err("it does not begin with YUV4MPEG2".into());
    }
    let (mut width, mut height, mut rate, mut par, mut range) = (None, None, None, None, None);
    let (mut scan, mut colour) = (Scan::Progressive, "420");
    for word in words {
        let (tag, value) = word.split_at_checked(1).unwrap_or((word, ""));
        let ratio = || {
            let (num, den) = value.split_once(':')?;
            Ratio::new(num.parse().ok()?, den.parse().ok()?).filter(|r| r.num > 0)
        };
        match tag {
            "W" => width = value.parse().ok(),
            "H" => height = value.parse().ok(),
            "F" => rate = ratio(),
            "A" => par = ratio(),
            "C" => colour = value,
            "I" => {
                scan = match value {
                    "p" | "?" => Scan::Progressive,
                    "t" => Scan::Interlaced,
                    "b" => return Err("the bottom field comes first, which ST 2110-20 does not have".into()),
                    _ => return Err(format!("mixed scanning (I{value}) cannot be sent")),
                }
            }
            "X" if value == "COLORRANGE=FULL" => range = Some(Range::Full),
            "X" if value == "COLORRANGE=LIMITED" => range = Some(Range::Narrow),
            _ => {}
        }
    }
    let (subsampling, depth) = colourspace(colour).ok_or_else(|| format!("colourspace {colour} cannot be sent"))?;
    let side = |n: Option<u32>, name: &str| n.filter(|n| *n > 0).ok_or_else(|| format!("it gives no {name}"));
    Ok(Header {
        width: side(width, "width")?,
        height: side(height, "height")?,
        rate,
        scan,
        subsampling,
        depth,
        range,
        par,
    })
}

fn colourspace(text: &str) -> Option<(Subsampling, Depth)> {
    const EIGHT: [(&str, Subsampling); 7] = [
        ("420jpeg", Subsampling::Quarter420),
        ("420mpeg2", Subsampling::Quarter420),
        ("420paldv", Subsampling::Quarter420),
        ("420", Subsampling::Quarter420),
        ("422", Subsampling::Half422),
        ("444", Subsampling::Full444),
        ("mono", Subsampling::One),
    ];
    if let Some((_, subsampling)) = EIGHT.iter().find(|(name, _)| *name == text) {
        return Some((*subsampling, Depth::D8));
    }
    let (name, bits) = match text.strip_prefix("mono") {
        Some(bits) => ("mono", bits),
        None => text.split_once('p')?,
    };
    let subsampling = EIGHT.iter().rev().find(|(known, _)| *known == name)?.1;
    let depth = match bits {
        "10" => Depth::D10,
        "12" => Depth::D12,
        "16" => Depth::D16,
        _ => return None,
    };
    Some((subsampling, depth))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_ffmpeg_and_of_this_program() {
        let h = parse(b"YUV4MPEG2 W1920 H1080 F60000:1001 Ip A1:1 C422p10 XYSCSS=422P10 XCOLORRANGE=LIMITED").unwrap();
        assert_eq!((h.width, h.height, h.scan), (1920, 1080, Scan::Progressive));
        assert_eq!((h.subsampling, h.depth), (Subsampling::Half422, Depth::D10));
        assert_eq!((h.rate, h.range), (Ratio::new(60000, 1001), Some(Range::Narrow)));
        let h = parse(b"YUV4MPEG2 W720 H576 It C420jpeg").unwrap();
        assert_eq!(
            (h.scan, h.subsampling, h.depth, h.rate),
            (Scan::Interlaced, Subsampling::Quarter420, Depth::D8, None)
        );
        assert_eq!(parse(b"YUV4MPEG2 W4 H4 Cmono12").unwrap().depth, Depth::D12);
        assert_eq!(parse(b"YUV4MPEG2 W4 H4 C444p16").unwrap().subsampling, Subsampling::Full444);
    }

    #[test]
    fn what_cannot_be_sent_is_named() {
        for (line, says) in [
            (&b"RIFF"[..], "YUV4MPEG2"),
            (b"YUV4MPEG2 W4", "height"),
            (b"YUV4MPEG2 W0 H4", "width"),
            (b"YUV4MPEG2 W4 H4 C411", "411"),
            (b"YUV4MPEG2 W4 H4 C420p14", "420p14"),
            (b"YUV4MPEG2 W4 H4 C444alpha", "444alpha"),
            (b"YUV4MPEG2 W4 H4 Ib", "bottom"),
            (b"YUV4MPEG2 W4 H4 Im", "mixed"),
            (b"YUV4MPEG2 \xff", "text"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
