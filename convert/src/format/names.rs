//! What others call our layouts.

use super::{Layout, Output};
use gdmedia_sdp::{Depth, Sampling, Subsampling};

impl Layout {
    /// GStreamer's name of the video format (1.22); `None` where it has none: half floats, XYZ, P210, 4:2:2 and RGB
    /// planar of 16 bits, planar keys of 10 and 12 bits, and most wire formats.
    pub fn name(&self) -> Option<&'static str> {
        use Depth::*;
        use Subsampling::*;
        let (sampling, depth) = (self.wire.sampling, self.wire.depth);
        Some(match self.output {
            Output::P010 => "P010_10LE",
            Output::P210 | Output::Rgb16f => return None,
            Output::Nv12 => "NV12",
            Output::Uyvy => "UYVY",
            Output::V210 => "v210",
            Output::Rgba => "RGBA",
            Output::Planar => match (sampling.subsampling(), depth) {
                (Full444, _) if sampling == Sampling::Xyz => return None,
                (Full444, D8) if sampling == Sampling::Rgb => "GBR",
                (Full444, D10) if sampling == Sampling::Rgb => "GBR_10LE",
                (Full444, D12) if sampling == Sampling::Rgb => "GBR_12LE",
                (Full444, _) if sampling == Sampling::Rgb => return None,
                (Full444, D8) => "Y444",
                (Full444, D10) => "Y444_10LE",
                (Full444, D12) => "Y444_12LE",
                (Full444, D16) => "Y444_16LE",
                (Half422, D8) => "Y42B",
                (Half422, D10) => "I422_10LE",
                (Half422, D12) => "I422_12LE",
                (Quarter420, D8) => "I420",
                (Quarter420, D10) => "I420_10LE",
                (Quarter420, D12) => "I420_12LE",
                (One, D8) => "GRAY8",
                (One, D16) => "GRAY16_LE",
                (Half422, D16) | (Quarter420, D16) | (One, D10 | D12) | (_, F16) => return None,
            },
            // Cb Y Cr [Y] as some packed formats have them; the rows have no padding.
            Output::Wire => match (sampling, depth) {
                (Sampling::Rgb, D8) => "RGB",
                (Sampling::Key, D8) => "GRAY8",
                (Sampling::Key, D16) => "GRAY16_BE",
                (Sampling::Xyz, _) => return None,
                _ => match (sampling.subsampling(), depth) {
                    (Half422, D8) => "UYVY",
                    (Half422, D10) => "UYVP",
                    (Full444, D8) => "IYU2",
                    _ => return None,
                },
            },
        })
    }

    /// FFmpeg's name of the pixel format; `None` where it has none. v210 is a codec there, not a pixel
    /// format, and gbrpf16 has the planes in another order than rgb16f.
    pub fn pix_fmt(&self) -> Option<&'static str> {
        use Depth::*;
        use Subsampling::*;
        let (sampling, depth) = (self.wire.sampling, self.wire.depth);
        Some(match self.output {
            Output::P010 => "p010le",
            Output::P210 => "p210le",
            Output::Nv12 => "nv12",
            Output::Uyvy => "uyvy422",
            Output::V210 | Output::Rgb16f => return None,
            Output::Rgba => "rgba",
            Output::Planar => match (sampling.subsampling(), depth) {
                (_, F16) => return None,
                (Full444, _) if sampling == Sampling::Xyz => return None,
                (Full444, D8) if sampling == Sampling::Rgb => "gbrp",
                (Full444, D10) if sampling == Sampling::Rgb => "gbrp10le",
                (Full444, D12) if sampling == Sampling::Rgb => "gbrp12le",
                (Full444, D16) if sampling == Sampling::Rgb => "gbrp16le",
                (Full444, D8) => "yuv444p",
                (Full444, D10) => "yuv444p10le",
                (Full444, D12) => "yuv444p12le",
                (Full444, D16) => "yuv444p16le",
                (Half422, D8) => "yuv422p",
                (Half422, D10) => "yuv422p10le",
                (Half422, D12) => "yuv422p12le",
                (Half422, D16) => "yuv422p16le",
                (Quarter420, D8) => "yuv420p",
                (Quarter420, D10) => "yuv420p10le",
                (Quarter420, D12) => "yuv420p12le",
                (Quarter420, D16) => "yuv420p16le",
                (One, D8) => "gray",
                (One, D10) => "gray10le",
                (One, D12) => "gray12le",
                (One, D16) => "gray16le",
            },
            Output::Wire => match (sampling, depth) {
                (Sampling::Rgb, D8) => "rgb24",
                (Sampling::Rgb, D16) => "rgb48be",
                (Sampling::Key, D8) => "gray",
                (Sampling::Key, D16) => "gray16be",
                _ if sampling.subsampling() == Half422 && depth == D8 => "uyvy422",
                _ => return None,
            },
        })
    }

    /// The colour space tag of YUV4MPEG2 (`C…`) for this layout, planes in order and rows without padding; `None`
    /// where y4m has none: it knows planar Y'CbCr and grey of integers only. Tags of more than 8 bits are FFmpeg's.
    pub fn y4m(&self) -> Option<&'static str> {
        use Depth::*;
        use Subsampling::*;
        if self.output != Output::Planar || matches!(self.wire.sampling, Sampling::Rgb | Sampling::Xyz) {
            return None;
        }
        Some(match (self.wire.sampling.subsampling(), self.wire.depth) {
            (Quarter420, D8) => "420mpeg2",
            (Quarter420, D10) => "420p10",
            (Quarter420, D12) => "420p12",
            (Half422, D8) => "422",
            (Half422, D10) => "422p10",
            (Half422, D12) => "422p12",
            (Half422, D16) => "422p16",
            (Full444, D8) => "444",
            (Full444, D10) => "444p10",
            (Full444, D12) => "444p12",
            (Full444, D16) => "444p16",
            (One, D8) => "mono",
            (One, D10) => "mono10",
            (One, D12) => "mono12",
            (One, D16) => "mono16",
            (Quarter420, D16) | (_, F16) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::WireFormat;
    use super::*;
    use gdmedia_sdp::Scan;

    #[test]
    fn names_of_the_common_ones() {
        let names = |sampling, depth, output| {
            let wire = WireFormat::new(sampling, depth, 64, 4, Scan::Progressive).unwrap();
            let l = Layout::new(wire, output).unwrap();
            (l.name(), l.pix_fmt(), l.y4m())
        };
        use Sampling::*;
        assert_eq!(
            names(YCbCr422, Depth::D10, Output::Planar),
            (Some("I422_10LE"), Some("yuv422p10le"), Some("422p10"))
        );
        assert_eq!(
            names(ICtCp420, Depth::D12, Output::Planar),
            (Some("I420_12LE"), Some("yuv420p12le"), Some("420p12"))
        );
        assert_eq!(names(Rgb, Depth::D10, Output::Planar), (Some("GBR_10LE"), Some("gbrp10le"), None));
        assert_eq!(names(Key, Depth::D10, Output::Planar), (None, Some("gray10le"), Some("mono10")));
        assert_eq!(names(YCbCr422, Depth::F16, Output::Planar), (None, None, None));
        assert_eq!(names(YCbCr422, Depth::D10, Output::Wire), (Some("UYVP"), None, None));
        assert_eq!(names(YCbCr422, Depth::D12, Output::V210), (Some("v210"), None, None));
        assert_eq!(names(YCbCr422, Depth::D10, Output::P210), (None, Some("p210le"), None));
        assert_eq!(names(YCbCr422, Depth::D10, Output::Rgb16f), (None, None, None));
    }
}
