//! What goes wrong in GStreamer, in words that help: which package, which element, which cure.

use crate::error::{Error, Kind};
use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;

/// Debian's (and Ubuntu's) package of an element; exact names first, then beginnings.
pub(super) fn package(element: &str) -> Option<&'static str> {
    const BASE: &str = "gstreamer1.0-plugins-base";
    const GOOD: &str = "gstreamer1.0-plugins-good";
    const BAD: &str = "gstreamer1.0-plugins-bad";
    const X: &str = "gstreamer1.0-x";
    const GL: &str = "gstreamer1.0-gl";
    const EXACT: &[(&str, &[&str])] = &[
        (
            "libgstreamer1.0-0",
            &["queue", "queue2", "tee", "fakesink", "filesink", "fdsink", "identity", "capsfilter", "valve"],
        ),
        (
            BASE,
            &[
                "videoconvert",
                "videoscale",
                "videorate",
                "videoconvertscale",
                "videotestsrc",
                "theoraenc",
                "opusenc",
                "vorbisenc",
                "oggmux",
                "tcpserversink",
                "tcpclientsink",
                "multifdsink",
                "compositor",
                "appsrc",
                "appsink",
                "playsink",
                "rawvideoparse",
                "overlaycomposition",
            ],
        ),
        (X, &["ximagesink", "xvimagesink", "textoverlay", "timeoverlay", "clockoverlay"]),
        (GL, &["glimagesink", "glimagesinkelement", "glupload", "gldownload", "glcolorconvert", "gleffects"]),
        (
            GOOD,
            &[
                "autovideosink",
                "jpegenc",
                "pngenc",
                "matroskamux",
                "webmmux",
                "mp4mux",
                "qtmux",
                "avimux",
                "flvmux",
                "vp8enc",
                "vp9enc",
                "multifilesink",
                "splitmuxsink",
                "udpsink",
                "deinterlace",
                "videocrop",
                "videobox",
                "videoflip",
                "videobalance",
                "gamma",
                "y4menc",
                "capssetter",
                "v4l2sink",
                "cacasink",
                "aasink",
                "multipartmux",
                "souphttpclientsink",
                "rtpbin",
                "navigationtest",
                "videomixer",
                "imagefreeze",
            ],
        ),
        (
            BAD,
            &[
                "x265enc",
                "srtsink",
                "srtserversink",
                "srtclientsink",
                "hlssink",
                "hlssink2",
                "mpegtsmux",
                "mxfmux",
                "rtmpsink",
                "rtmp2sink",
                "waylandsink",
                "fbdevsink",
                "kmssink",
                "openh264enc",
                "av1enc",
                "svtav1enc",
                "webrtcbin",
                "decklinkvideosink",
                "fpsdisplaysink",
                "videoparsers",
                "h264parse",
                "h265parse",
                "av1parse",
                "nvh264enc",
                "nvh265enc",
                "cudaupload",
                "ipcpipelinesink",
                "shmsink",
                "watchdog",
                "ristsink",
                "dashsink",
                "autovideoconvert",
                "qroverlay",
                "videosignal",
                "zebrastripe",
                "timecodestamper",
            ],
        ),
        ("gstreamer1.0-plugins-ugly", &["x264enc", "asfmux"]),
        ("gstreamer1.0-gtk3", &["gtksink", "gtkglsink"]),
        ("gstreamer1.0-qt5", &["qmlglsink", "qmlgloverlay"]),
    ];
    const BEGINNINGS: &[(&str, &str)] = &[
        ("avenc_", "gstreamer1.0-libav"),
        ("avdec_", "gstreamer1.0-libav"),
        ("avmux_", "gstreamer1.0-libav"),
        ("vaapi", "gstreamer1.0-vaapi"),
        ("rtp", GOOD),
        ("v4l2", GOOD),
        ("gl", GL),
        ("va", BAD),
        ("qsv", BAD),
        ("nv", BAD),
        ("cuda", BAD),
        ("msdk", BAD),
    ];
    EXACT
        .iter()
        .find(|(_, elements)| elements.contains(&element))
        .map(|(package, _)| *package)
        .or_else(|| BEGINNINGS.iter().find(|(start, _)| element.starts_with(start)).map(|(_, package)| *package))
}

/// Elements that GStreamer does not know.
pub(super) fn missing_elements(names: &[String]) -> Error {
    let list = names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
    let mut packages: Vec<_> = names.iter().filter_map(|n| package(n)).collect();
    packages.sort_unstable();
    packages.dedup();
    let known = names.iter().all(|n| package(n).is_some());
    let mut cure = String::new();
    if !packages.is_empty() {
        cure = format!("install the package {} (Debian, Ubuntu)", packages.join(" and "));
    }
    // Those of the plug-in nvcodec exist only where NVIDIA's libraries for video do.
    if names.iter().any(|n| n.starts_with("nv") || n.starts_with("cuda")) && known {
        cure += "; where it is installed, the element also needs NVIDIA's driver with libnvidia-encode and libnvcuvid";
    }
    if !known || packages.is_empty() {
        let first = names.iter().find(|n| package(n).is_none()).map_or("", |n| n);
        let then = if cure.is_empty() { "" } else { "; then " };
        cure = format!(
            "{cure}{then}check the spelling with `gst-inspect-1.0 | grep {first}`, or ask `apt-file search` for its plug-in"
        );
    }
    let word = if names.len() == 1 { "element" } else { "elements" };
    Error::new(Kind::Unavailable, format!("GStreamer has no {word} {list}")).cure(cure)
}

/// What the parser says about a fragment.
pub(super) fn parse_error(fragment: &str, error: &glib::Error, missing: &[String]) -> Error {
    let cure = match error.kind::<gst::ParseError>() {
        Some(gst::ParseError::NoSuchElement) => {
            // The list also has elements whose properties came to nothing.
            let unknown: Vec<_> = missing.iter().filter(|n| gst::ElementFactory::find(n).is_none()).cloned().collect();
            return missing_elements(&unknown);
        }
        Some(gst::ParseError::NoSuchProperty) => "ask `gst-inspect-1.0 ELEMENT` for its properties",
        Some(gst::ParseError::CouldNotSetProperty) => "ask `gst-inspect-1.0 ELEMENT` for the values of this property",
        Some(gst::ParseError::Link) => "put `videoconvert` between the two, or a parser or muxer that they need",
        Some(gst::ParseError::Empty | gst::ParseError::EmptyBin) => "name at least a sink, such as `autovideosink`",
        _ => "write it as for gst-launch-1.0: `element property=value ! element`",
    };
    let text = error.message().trim().to_owned();
    Error::new(Kind::Usage, format!("the GStreamer fragment `{fragment}` cannot be used: {text}")).cure(cure)
}

/// Did the user close the window? Sinks have no common way to say so but their words.
pub(super) fn window_closed(message: &gst::message::Error) -> bool {
    let error = message.error();
    let text = error.message().to_lowercase();
    text.contains("window") && text.contains("clos")
}

/// An error that an element posted.
pub(super) fn element_error(message: &gst::message::Error, caps: &str) -> Error {
    let error = message.error();
    let debug = message.debug().unwrap_or_default();
    let name = message.src().map_or_else(
        || "GStreamer".into(),
        |s| match s.downcast_ref::<gst::Element>() {
            Some(element) => element.factory().map_or_else(|| s.name(), |f| f.name()),
            None => s.name(),
        },
    );
    if debug.contains("not-negotiated") || error.matches(gst::CoreError::Negotiation) {
        return Error::new(Kind::Usage, format!("GStreamer cannot agree on a format for {caps} ({name})"))
            .cure("put `videoconvert !` (and `videoscale !`) before the element that is choosy");
    }
    if debug.contains("not-linked") {
        return Error::new(Kind::Usage, format!("a part of the GStreamer fragment leads nowhere ({name})"))
            .cure("end every branch with a sink, such as `fakesink`");
    }
    let mut what = format!("GStreamer element {name}: {}", error.message());
    // The last line of the debug text often has the cause ("system error: No space left on device").
    if let Some(last) = debug.lines().skip(1).last().map(str::trim).filter(|l| !l.is_empty() && !what.contains(l)) {
        what.push_str(&format!(" ({last})"));
    }
    let (kind, cure) = if error.matches(gst::ResourceError::NoSpaceLeft) || debug.contains("No space left") {
        (Kind::Output, "free space, write elsewhere, or record less (--frames, --duration)")
    } else if error.matches(gst::CoreError::MissingPlugin) {
        (Kind::Unavailable, "install the plug-in: gstreamer1.0-plugins-good, -bad or -ugly, or gstreamer1.0-libav")
    } else if debug.contains("No such file or directory") {
        (Kind::Output, "create the folder first, or check the name")
    } else if debug.contains("Permission denied") {
        (Kind::Permission, "choose a place that you may write to")
    } else {
        (Kind::Output, "try the fragment with `gst-launch-1.0 videotestsrc ! FRAGMENT`")
    };
    Error::new(kind, what).cure(cure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_elements() {
        for (element, wanted) in [
            ("x264enc", Some("gstreamer1.0-plugins-ugly")),
            ("avenc_mpeg2video", Some("gstreamer1.0-libav")),
            ("ximagesink", Some("gstreamer1.0-x")),
            ("glimagesink", Some("gstreamer1.0-gl")),
            ("matroskamux", Some("gstreamer1.0-plugins-good")),
            ("x265enc", Some("gstreamer1.0-plugins-bad")),
            ("rtpvrawpay", Some("gstreamer1.0-plugins-good")),
            ("vaapih264enc", Some("gstreamer1.0-vaapi")),
            ("vah264enc", Some("gstreamer1.0-plugins-bad")),
            ("flumpsink", None),
        ] {
            assert_eq!(package(element), wanted, "{element}");
        }
        let text = missing_elements(&["cudadownload".into()]).to_string();
        assert!(
            text.contains("plugins-bad (Debian, Ubuntu); where it is installed") && text.contains("libnvcuvid"),
            "{text}"
        );
        assert!(!missing_elements(&["x264enc".into()]).to_string().contains("NVIDIA"));
        let text = missing_elements(&["x264enc".into(), "flumpsink".into()]).to_string();
        assert!(text.starts_with("GStreamer has no elements `x264enc`, `flumpsink`"), "{text}");
        assert!(
            text.contains("gstreamer1.0-plugins-ugly (Debian, Ubuntu); then check") && text.contains("grep flumpsink")
        );
    }
}
