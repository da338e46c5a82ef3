//! What GStreamer is told: encoder, parser, muxer and sink of a rung, as for `gst-launch-1.0`. Pure.

use super::ladder::Rung;
use super::picture::Picture;
use super::spec::{Codec, Preset, Spec};
use super::target::{Container, Target};
use std::fmt::Write as _;

/// All that a line depends on.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// What is wanted.
    pub spec: &'a Spec,
    /// Where it goes.
    pub target: &'a Target,
    /// Who encodes.
    pub rung: Rung,
    /// How pictures come.
    pub picture: &'a Picture,
    /// Their size.
    pub size: (u32, u32),
    /// Frames a second; 0 where the SDP does not say.
    pub fps: f64,
    /// Frames come as they are sent, else as fast as they are taken.
    pub live: bool,
}

/// How JPEG files have their levels: full range, BT.601.
const JPEG_LEVELS: &str = "1:4:7:1";
/// Payload type of what has no static one (RFC 3551).
pub const PAYLOAD_TYPE: u32 = 96;

impl Line<'_> {
    /// From raw pictures on.
    pub fn from_pictures(&self) -> String {
        let mut text = String::new();
        let (right, bottom) = self.picture.crop;
        if (right, bottom) != (0, 0) {
            let _ = write!(text, "videocrop right={right} bottom={bottom} ! ");
        }
        if let Some(format) = &self.picture.convert {
            let levels =
                if self.rung == Rung::Jpeg { format!(",colorimetry=(string){JPEG_LEVELS}") } else { "".into() };
            let _ = write!(text, "videoconvert ! video/x-raw,format=(string){format}{levels} ! ");
        }
        text + &self.encoder() + " ! " + &self.from_coded()
    }

    /// From what an encoder made on.
    pub fn from_coded(&self) -> String {
        let codec = self.rung.codec();
        // In streams, headers come again with every key frame.
        let again = match self.target {
            Target::File { container: Container::Ts, .. } | Target::Srt { .. } | Target::Rtp { .. } => {
                " config-interval=-1"
            }
            Target::File { .. } => "",
        };
        let mut text = match codec {
            Codec::H264 => format!("h264parse{again} ! "),
            Codec::Hevc => format!("h265parse{again} ! "),
            Codec::Av1 => "av1parse ! ".into(),
            // It needs no parser; but muxers have no input until something asks them for one, and the kind by its caps.
            Codec::Mjpeg if self.rung == Rung::NvJpeg => "capsfilter caps=image/jpeg ! ".into(),
            Codec::Mjpeg => String::new(),
        };
        // A network has its own pace; what is read as fast as possible would flood it.
        let sync = !self.live;
        match self.target {
            Target::File { path, container } => {
                text += match container {
                    Container::Mp4 => "mp4mux fragment-duration=1000",
                    Container::Mov => "qtmux fragment-duration=1000",
                    Container::Mkv => "matroskamux",
                    Container::Ts => "mpegtsmux",
                };
                let _ = write!(text, " ! filesink location={}", quoted(&path.to_string_lossy()));
            }
            Target::Srt { url } => {
                let uri = quoted(url);
                let _ = write!(
                    text,
                    "mpegtsmux alignment=7 ! srtsink uri={uri} wait-for-connection=false auto-reconnect=false sync={sync}"
                );
            }
            Target::Rtp { host, port } => {
                text += &match codec {
                    Codec::H264 => format!("rtph264pay pt={PAYLOAD_TYPE} config-interval=-1"),
                    Codec::Hevc => format!("rtph265pay pt={PAYLOAD_TYPE} config-interval=-1"),
                    Codec::Av1 => format!("rtpav1pay pt={PAYLOAD_TYPE}"),
                    Codec::Mjpeg => "rtpjpegpay".into(),
                };
                let _ = write!(text, " ! udpsink host={} port={port} sync={sync}", quoted(host));
            }
        }
        text
    }

    /// Elements that have to be there, the encoder apart.
    pub fn elements(&self) -> Vec<&'static str> {
        let codec = self.rung.codec();
        let mut all = match codec {
            Codec::H264 => vec!["h264parse"],
            Codec::Hevc => vec!["h265parse"],
            Codec::Av1 => vec!["av1parse"],
            Codec::Mjpeg => vec![],
        };
        match self.target {
            Target::File { container, .. } => all.extend([
                match container {
                    Container::Mp4 => "mp4mux",
                    Container::Mov => "qtmux",
                    Container::Mkv => "matroskamux",
                    Container::Ts => "mpegtsmux",
                },
                "filesink",
            ]),
            Target::Srt { .. } => all.extend(["mpegtsmux", "srtsink"]),
            Target::Rtp { .. } => all.extend([
                match codec {
                    Codec::H264 => "rtph264pay",
                    Codec::Hevc => "rtph265pay",
                    Codec::Av1 => "rtpav1pay",
                    Codec::Mjpeg => "rtpjpegpay",
                },
                "udpsink",
            ]),
        }
        if self.picture.convert.is_some() {
            all.push("videoconvert");
        }
        if self.picture.crop != (0, 0) {
            all.push("videocrop");
        }
        all
    }

    fn encoder(&self) -> String {
        let Line { spec, size: (width, height), fps, .. } = *self;
        let bits = spec.bits(width, height, if fps > 0.0 { fps } else { 50.0 });
        let kbit = (bits / 1000).max(1);
        let gop = spec.key_distance(if fps > 0.0 { fps } else { 50.0 });
        let low = self.low_latency();
        let pick = |words: [&str; 5]| {
            Preset::ALL
                .iter()
                .zip(words)
                .find(|((preset, _), _)| *preset == spec.preset)
                .map_or("", |(_, word)| word)
                .to_owned()
        };
        let x = || pick(["ultrafast", "veryfast", "medium", "slow", "veryslow"]);
        let tune = if low { " tune=zerolatency" } else { "" };
        match self.rung {
            Rung::X264 => format!("x264enc bitrate={kbit} key-int-max={gop} speed-preset={}{tune}", x()),
            Rung::X265 => format!("x265enc bitrate={kbit} key-int-max={gop} speed-preset={}{tune}", x()),
            Rung::OpenH264 => {
                let complexity = pick(["low", "low", "medium", "high", "high"]);
                format!("openh264enc bitrate={bits} rate-control=bitrate gop-size={gop} complexity={complexity}")
            }
            Rung::SvtAv1 => {
                let preset = pick(["12", "10", "8", "6", "4"]);
                format!("svtav1enc target-bitrate={kbit} preset={preset} intra-period-length={gop}")
            }
            Rung::Aom => {
                let speed = pick(["9", "8", "6", "4", "2"]);
                let lag = if low { 0 } else { 10 };
                // Without the quantizers, the element asks for lossless pictures, at which libaom aborts the process.
                format!(
                    "av1enc target-bitrate={kbit} usage-profile=realtime end-usage=cbr min-quantizer=2 max-quantizer=58 \
                     cpu-used={speed} row-mt=true keyframe-max-dist={gop} lag-in-frames={lag}"
                )
            }
            Rung::Jpeg => format!("jpegenc quality={}", spec.quality),
            // They are fed by this program.
            Rung::NvencCuda(_) | Rung::NvencHost(_) | Rung::NvJpeg => String::new(),
        }
    }

    /// No frame waits for a later one.
    pub fn low_latency(&self) -> bool {
        self.spec.low_latency.unwrap_or(self.target.is_stream())
    }
}

/// A value that may hold anything.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

/// What a receiver has to be told of an RTP stream: the media lines of an SDP.
pub fn media_lines(codec: Codec, host: &str, port: u16) -> String {
    let version = if host.contains(':') { "IP6" } else { "IP4" };
    let (payload_type, map) = match codec {
        Codec::H264 => (PAYLOAD_TYPE, "H264/90000"),
        Codec::Hevc => (PAYLOAD_TYPE, "H265/90000"),
        Codec::Av1 => (PAYLOAD_TYPE, "AV1/90000"),
        Codec::Mjpeg => (26, "JPEG/90000"),
    };
    format!("m=video {port} RTP/AVP {payload_type}, c=IN {version} {host}, a=rtpmap:{payload_type} {map}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Output;

    fn lines(
        spec: &str,
        target: &str,
        rung: Rung,
        convert: Option<&str>,
        crop: (u32, u32),
        live: bool,
    ) -> (String, Vec<&'static str>) {
        let picture = Picture { output: Output::Planar, convert: convert.map(str::to_owned), crop, notes: vec![] };
        let (spec, target) = (spec.parse().unwrap(), target.parse().unwrap());
        let line = Line { spec: &spec, target: &target, rung, picture: &picture, size: (1920, 1080), fps: 50.0, live };
        (line.from_pictures(), line.elements())
    }

    #[test]
    fn files() {
        let (text, elements) = lines("h264", "a.mp4", Rung::X264, None, (0, 0), true);
        assert_eq!(
            text,
            "x264enc bitrate=12441 key-int-max=100 speed-preset=veryfast ! h264parse ! mp4mux fragment-duration=1000 ! \
             filesink location=\"a.mp4\""
        );
        assert_eq!(elements, ["h264parse", "mp4mux", "filesink"]);
        let (text, _) = lines("hevc,bitrate=5M,gop=7,preset=slow", "a b\"\\.ts", Rung::X265, None, (1, 0), true);
        assert_eq!(
            text,
            "videocrop right=1 bottom=0 ! x265enc bitrate=5000 key-int-max=7 speed-preset=slow ! h265parse config-interval=-1 ! \
             mpegtsmux ! filesink location=\"a b\\\"\\\\.ts\""
        );
        let (text, elements) = lines("mjpeg,quality=70", "a.mkv", Rung::Jpeg, Some("Y42B"), (0, 0), true);
        assert_eq!(
            text,
            "videoconvert ! video/x-raw,format=(string)Y42B,colorimetry=(string)1:4:7:1 ! jpegenc quality=70 ! matroskamux ! \
             filesink location=\"a.mkv\""
        );
        assert_eq!(elements, ["matroskamux", "filesink", "videoconvert"]);
        let (text, _) = lines("av1", "a.mov", Rung::Aom, Some("I420"), (0, 0), true);
        assert!(
            text.starts_with("videoconvert ! video/x-raw,format=(string)I420 ! av1enc target-bitrate=6220 "),
            "{text}"
        );
        assert!(text.contains("lag-in-frames=10 ! av1parse ! qtmux fragment-duration=1000"), "{text}");
    }

    #[test]
    fn networks() {
        let (text, elements) = lines("h264,bitrate=8M", "srt://h:9000?mode=caller", Rung::X264, None, (0, 0), true);
        assert_eq!(
            text,
            "x264enc bitrate=8000 key-int-max=100 speed-preset=veryfast tune=zerolatency ! h264parse config-interval=-1 ! \
             mpegtsmux alignment=7 ! srtsink uri=\"srt://h:9000?mode=caller\" wait-for-connection=false \
             auto-reconnect=false sync=false"
        );
        assert_eq!(elements, ["h264parse", "mpegtsmux", "srtsink"]);
        let (text, _) = lines("hevc", "rtp://[ff15::1]:5004", Rung::X265, None, (0, 0), false);
        assert!(text.ends_with("rtph265pay pt=96 config-interval=-1 ! udpsink host=\"ff15::1\" port=5004 sync=true"));
        let (text, _) = lines("h264,latency=normal", "rtp://h:5004", Rung::OpenH264, Some("I420"), (0, 0), true);
        assert!(
            text.contains("openh264enc bitrate=12441600 rate-control=bitrate gop-size=100 complexity=low"),
            "{text}"
        );
        assert_eq!(
            media_lines(Codec::H264, "239.1.1.1", 5),
            "m=video 5 RTP/AVP 96, c=IN IP4 239.1.1.1, a=rtpmap:96 H264/90000"
        );
    }

    #[test]
    fn what_is_coded_elsewhere_goes_to_the_same_places() {
        let (spec, target) = ("h264".parse().unwrap(), "a.mkv".parse().unwrap());
        let picture = Picture { output: Output::Nv12, convert: None, crop: (0, 0), notes: vec![] };
        let rung = Rung::NvencCuda(Codec::H264);
        let line = Line { spec: &spec, target: &target, rung, picture: &picture, size: (64, 64), fps: 0.0, live: true };
        assert_eq!(line.from_coded(), "h264parse ! matroskamux ! filesink location=\"a.mkv\"");
        let line = Line { rung: Rung::NvJpeg, ..line };
        assert_eq!(line.from_coded(), "capsfilter caps=image/jpeg ! matroskamux ! filesink location=\"a.mkv\"");
    }
}
