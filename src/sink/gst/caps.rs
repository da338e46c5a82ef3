//! What GStreamer has to know of a flow: format, colour, scan, rate.

use crate::error::{Error, Kind, Result};
use crate::format::{Layout, Output, WireFormat};
use gdmedia_sdp::{Colorimetry, Depth, Range, Sampling, Scan, Subsampling, Tcs, Video};
use gstreamer as gst;
use gstreamer_video as gst_video;

/// Outputs in the order in which a fragment is asked whether it takes them: those that lose nothing come first.
/// P210 and rgb16f have no name there.
const ORDER: [Output; 7] =
    [Output::Planar, Output::Wire, Output::V210, Output::P010, Output::Uyvy, Output::Nv12, Output::Rgba];

/// The outputs of a flow that GStreamer has a name for, best first.
pub(super) fn candidates(video: &Video) -> Result<Vec<(Output, gst_video::VideoInfo)>> {
    let wire = WireFormat::from_video(video).ok_or_else(|| {
        let what =
            format!("there is no {} of {} bits and {}x{}", video.sampling, video.depth, video.width, video.height);
        Error::new(Kind::Data, what).cure("check the SDP")
    })?;
    let named = |output| Some((output, info(video, &Layout::new(wire, output).ok()?).ok()?));
    Ok(ORDER.into_iter().filter_map(named).collect())
}

/// Caps of a layout, and where GStreamer itself would put its octets.
///
/// # Errors
/// GStreamer has no name for the layout; says which output to ask for instead.
pub(super) fn info(video: &Video, layout: &Layout) -> Result<gst_video::VideoInfo> {
    let wire = &layout.wire;
    let format = layout.name().map_or(gst_video::VideoFormat::Unknown, gst_video::VideoFormat::from_string);
    if format == gst_video::VideoFormat::Unknown {
        let other = ORDER.into_iter().find(|&o| Layout::new(*wire, o).is_ok_and(|l| l.name().is_some()));
        let (sampling, depth, word) = (wire.sampling, wire.depth, layout.output.word());
        return Err(Error::new(
            Kind::Usage,
            format!("GStreamer has no format for {sampling} of {depth} bits as {word}"),
        )
        .cure(format!("choose the output {}", other.unwrap_or(Output::Rgba).word())));
    }
    let interlaced = video.scan == Scan::Interlaced;
    let fraction = |num: u32, den: u32| {
        let (num, den) = (i32::try_from(num).ok()?, i32::try_from(den).ok()?);
        (num > 0 && den > 0).then(|| gst::Fraction::new(num, den))
    };
    gst_video::VideoInfo::builder(format, wire.width, wire.height)
        // 0/1: the rate is not known, or varies.
        .fps(video.rate.and_then(|r| fraction(r.num, r.den)).unwrap_or_else(|| gst::Fraction::new(0, 1)))
        .par(fraction(video.par.num, video.par.den).unwrap_or_else(|| gst::Fraction::new(1, 1)))
        .interlace_mode(if interlaced {
            gst_video::VideoInterlaceMode::Interleaved
        } else {
            gst_video::VideoInterlaceMode::Progressive
        })
        // The first field has the upper rows: row of the frame = 2 * row + F.
        .field_order_if(gst_video::VideoFieldOrder::TopFieldFirst, interlaced)
        .colorimetry(&colorimetry(video, layout))
        .chroma_site_if_some(chroma_site(layout))
        .build()
        .map_err(|e| {
            Error::new(Kind::Unavailable, format!("GStreamer cannot describe {}x{} {format}", wire.width, wire.height))
                .because(e)
                .cure("choose another output")
        })
}

/// ST 2110-20 says nothing of the siting; interfaces of broadcast have colour on the left one of two pixels.
fn chroma_site(layout: &Layout) -> Option<gst_video::VideoChromaSite> {
    let quarter = matches!(layout.output, Output::P010 | Output::Nv12)
        || layout.wire.sampling.subsampling() == Subsampling::Quarter420
            && matches!(layout.output, Output::Wire | Output::Planar);
    let half = matches!(layout.output, Output::Uyvy | Output::V210 | Output::P210)
        || layout.wire.sampling.subsampling() == Subsampling::Half422
            && matches!(layout.output, Output::Wire | Output::Planar);
    if quarter && layout.wire.sampling.subsampling() != Subsampling::Quarter420 {
        // Our own decimation takes the colour of the upper left pixel.
        return Some(gst_video::VideoChromaSite::COSITED);
    }
    (quarter || half).then_some(gst_video::VideoChromaSite::MPEG2)
}

/// The four words of GStreamer's colorimetry; it writes them as a short name (`bt709`) where there is one.
fn colorimetry(video: &Video, layout: &Layout) -> gst_video::VideoColorimetry {
    use gst_video::{
        VideoColorMatrix as M, VideoColorPrimaries as P, VideoColorRange as R, VideoTransferFunction as T,
    };
    let full_rgb = matches!(layout.output, Output::Rgba | Output::Rgb16f);
    let rgb = full_rgb || video.sampling == Sampling::Rgb;
    let range = match video.range {
        _ if full_rgb => R::Range0_255,
        Range::Narrow => R::Range16_235,
        Range::Full | Range::FullProtect => R::Range0_255,
    };
    let matrix = match (video.sampling, video.colorimetry) {
        _ if rgb => M::Rgb,
        // GStreamer has no matrix for constant luminance, ICtCp, XYZ and keys.
        (Sampling::YCbCr444 | Sampling::YCbCr422 | Sampling::YCbCr420, colorimetry) => match colorimetry {
            Colorimetry::Bt601 => M::Bt601,
            Colorimetry::Bt2020 | Colorimetry::Bt2100 => M::Bt2020,
            Colorimetry::Bt709 => M::Bt709,
            _ => M::Unknown,
        },
        _ => M::Unknown,
    };
    let fine = matches!(video.depth, Depth::D12 | Depth::D16 | Depth::F16);
    let transfer = match (video.tcs, video.colorimetry) {
        (Tcs::Pq, _) => T::Smpte2084,
        (Tcs::Hlg, _) => T::AribStdB67,
        (Tcs::Sdr, Colorimetry::Bt601) => T::Bt601,
        (Tcs::Sdr, Colorimetry::Bt709) => T::Bt709,
        (Tcs::Sdr, Colorimetry::Bt2020 | Colorimetry::Bt2100) if fine => T::Bt202012,
        (Tcs::Sdr, Colorimetry::Bt2020 | Colorimetry::Bt2100) => T::Bt202010,
        (Tcs::Linear | Tcs::Bt2100LinPq | Tcs::Bt2100LinHlg | Tcs::St2065_1, _) => T::Gamma10,
        _ => T::Unknown,
    };
    let primaries = match video.colorimetry {
        // 625 lines have 576 rows, up to 608 with blanking; 525 lines have 486, up to 512.
        Colorimetry::Bt601 if (513..=608).contains(&video.height) => P::Bt470bg,
        Colorimetry::Bt601 => P::Smpte170m,
        Colorimetry::Bt709 => P::Bt709,
        Colorimetry::Bt2020 | Colorimetry::Bt2100 => P::Bt2020,
        Colorimetry::Xyz => P::Smptest428,
        _ => P::Unknown,
    };
    gst_video::VideoColorimetry::new(range, matrix, transfer, primaries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gdmedia_sdp::Ratio;

    fn video(sampling: Sampling, depth: Depth) -> Video {
        Video::new(sampling, depth, 1920, 1080, Ratio::new(60000, 1001))
    }

    fn caps(video: &Video, output: Output) -> String {
        gst::init().unwrap();
        let layout = Layout::new(WireFormat::from_video(video).unwrap(), output).unwrap();
        info(video, &layout).unwrap().to_caps().unwrap().to_string()
    }

    #[test]
    fn caps_say_all_that_the_sdp_says() {
        let mut v = video(Sampling::YCbCr422, Depth::D10);
        assert_eq!(
            caps(&v, Output::Planar),
            "video/x-raw, format=(string)I422_10LE, width=(int)1920, height=(int)1080, \
             interlace-mode=(string)progressive, pixel-aspect-ratio=(fraction)1/1, chroma-site=(string)mpeg2, \
             colorimetry=(string)bt709, framerate=(fraction)60000/1001"
        );
        (v.scan, v.rate, v.par) = (Scan::Interlaced, Ratio::new(25, 1), Ratio { num: 16, den: 11 });
        (v.width, v.height, v.colorimetry) = (720, 576, Colorimetry::Bt601);
        let text = caps(&v, Output::Uyvy);
        for wanted in [
            "format=(string)UYVY",
            "interlace-mode=(string)interleaved",
            "field-order=(string)top-field-first",
            "pixel-aspect-ratio=(fraction)16/11",
            "colorimetry=(string)2:4:16:3",
            "framerate=(fraction)25/1",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in {text}");
        }
        v.rate = None;
        v.scan = Scan::Psf;
        let text = caps(&v, Output::Uyvy);
        assert!(text.contains("progressive") && text.contains("framerate=(fraction)0/1"), "{text}");
    }

    type Case = (fn(&mut Video), Output, &'static str);

    #[test]
    fn colours_by_their_short_names() {
        let colorimetry = |change: fn(&mut Video), output| {
            let mut v = video(Sampling::YCbCr422, Depth::D10);
            change(&mut v);
            let text = caps(&v, output);
            text.split("colorimetry=(string)").nth(1).map(|t| t.split(',').next().unwrap_or_default().to_owned())
        };
        use Output::*;
        let cases: &[Case] = &[
            (|v| (v.colorimetry, v.height) = (Colorimetry::Bt601, 486), Planar, "bt601"),
            (|v| v.colorimetry = Colorimetry::Bt2020, Planar, "bt2020-10"),
            (|v| (v.colorimetry, v.depth) = (Colorimetry::Bt2020, Depth::D12), Planar, "bt2020"),
            (|v| (v.colorimetry, v.tcs) = (Colorimetry::Bt2100, Tcs::Pq), Planar, "bt2100-pq"),
            (|v| (v.colorimetry, v.tcs) = (Colorimetry::Bt2100, Tcs::Hlg), Planar, "bt2100-hlg"),
            (|v| v.range = Range::Full, Planar, "1:3:5:1"),
            (|v| v.sampling = Sampling::Rgb, Planar, "2:1:5:1"),
            (|_| (), Rgba, "1:1:5:1"),
            (|v| (v.colorimetry, v.tcs) = (Colorimetry::Bt2100, Tcs::Pq), Rgba, "1:1:14:7"),
        ];
        for (change, output, wanted) in cases {
            assert_eq!(colorimetry(*change, *output).as_deref(), Some(*wanted));
        }
    }

    #[test]
    fn what_gstreamer_lacks_is_refused_and_the_way_out_named() {
        gst::init().unwrap();
        let v = video(Sampling::YCbCr422, Depth::D16);
        let layout = Layout::new(WireFormat::from_video(&v).unwrap(), Output::Planar).unwrap();
        let error = info(&v, &layout).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(
            error.to_string().starts_with("GStreamer has no format for YCbCr-4:2:2 of 16 bits as planar"),
            "{error}"
        );
        assert_eq!(error.cure_text(), "choose the output v210");
        for &sampling in Sampling::ALL {
            for &depth in Depth::ALL.iter().filter(|&&d| sampling.pgroup(d).is_some()) {
                let outputs = candidates(&video(sampling, depth)).unwrap();
                assert_eq!(outputs.last().unwrap().0, Output::Rgba, "{sampling} {depth}");
            }
        }
    }
}
