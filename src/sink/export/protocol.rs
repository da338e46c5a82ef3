//! What goes over the socket: a hello in JSON, then messages of fixed size, little-endian.

use super::ExportKind;
use crate::error::{Error, Kind, Result};
use crate::format::{Layout, Output, Plane};
use crate::frame::Meta;
use crate::sdp::{Depth, Video};
use crate::time::Tai;
use serde::{Deserialize, Serialize};

/// The version that both sides speak; it grows when something old changes. Keys may be added to the hello without.
pub const PROTOCOL: u32 = 1;
/// A hello is no longer than this.
pub const HELLO_OCTETS: usize = 128 << 10;

/// The first message to a consumer: what the frames look like, and how to get at them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// How memory is shared.
    pub kind: ExportKind,
    /// Where it is.
    pub gpu: GpuFacts,
    /// What the SDP says of the picture.
    pub video: VideoFacts,
    /// The word of [`crate::format::Output`].
    pub output: String,
    /// What its octets are, little-endian: `uint8` (also where samples are packed), `uint16`, `float16`, `uint32` (v210).
    pub sample: String,
    /// Pixels a row.
    pub width: u32,
    /// Rows of the picture.
    pub height: u32,
    /// See [`crate::format::Layout`].
    pub planes: Vec<PlaneFacts>,
    /// Octets of a frame.
    pub frame_octets: usize,
    /// Octets from the start of one frame to the next: frame `i` begins at `i * stride`.
    pub stride: usize,
    /// Frames.
    pub count: usize,
    /// Octets of the whole memory.
    pub octets: usize,
    /// Frames that a consumer may hold; while it holds so many it gets no more.
    pub held: usize,
    /// CUDA IPC: the memory's handle, 128 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// CUDA IPC: a handle for each frame's event, 128 hex digits. A frame is finished when its event has happened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
}

/// Which GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuFacts {
    /// As CUDA counts them in the exporting process; in others it may be another.
    pub number: u32,
    /// `NVIDIA H200`.
    pub name: String,
    /// 32 hex digits in groups, as `nvidia-smi -L` shows it after `GPU-`.
    pub uuid: String,
    /// `0000:1B:00.0`.
    pub pci: String,
}

/// Words of ST 2110-20.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VideoFacts {
    /// `YCbCr-4:2:2`.
    pub sampling: String,
    /// `10`, `16f`.
    pub depth: String,
    /// `progressive`, `interlaced` (fields woven), `psf`.
    pub scan: String,
    /// Frames a second, `60000/1001`; none when the SDP does not say.
    pub rate: Option<String>,
    /// `BT709`.
    pub colorimetry: String,
    /// `SDR`.
    pub tcs: String,
    /// `NARROW`.
    pub range: String,
}

/// One plane of every frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaneFacts {
    /// First octet in the frame.
    pub offset: usize,
    /// Octets from one row to the next.
    pub stride: usize,
    /// Octets of a row that hold picture.
    pub row_octets: usize,
    /// Rows.
    pub rows: usize,
    /// Samples that lie side by side for one pixel: 2 for CbCr, 4 for RGBA; 1 where a plane is one component, or packed.
    pub channels: usize,
}

impl PlaneFacts {
    fn new(output: Output, number: usize, plane: &Plane) -> Self {
        let channels = match output {
            Output::P010 | Output::P210 | Output::Nv12 if number == 1 => 2,
            Output::Rgba => 4,
            _ => 1,
        };
        let &Plane { offset, stride, row_octets, rows } = plane;
        PlaneFacts { offset, stride, row_octets, rows, channels }
    }

    /// The octet after its last one, counted in the frame.
    fn end(&self) -> Option<usize> {
        let before = self.rows.checked_sub(1)?.checked_mul(self.stride)?;
        self.offset.checked_add(before)?.checked_add(self.row_octets)
    }
}

impl Hello {
    /// For frames of this layout, `count` of them, `stride` octets apart; handles are added by who has them.
    pub(super) fn new(kind: ExportKind, gpu: GpuFacts, video: &Video, layout: &Layout) -> Self {
        Hello {
            protocol: PROTOCOL,
            kind,
            gpu,
            video: VideoFacts {
                sampling: layout.wire.sampling.to_string(),
                depth: layout.wire.depth.to_string(),
                scan: layout.wire.scan.to_string(),
                rate: video.rate.map(|rate| rate.to_string()),
                colorimetry: video.colorimetry.to_string(),
                tcs: video.tcs.to_string(),
                range: video.range.to_string(),
            },
            output: layout.output.word().into(),
            sample: sample(layout).into(),
            width: layout.wire.width,
            height: layout.wire.height,
            planes: layout.planes.iter().enumerate().map(|(n, p)| PlaneFacts::new(layout.output, n, p)).collect(),
            frame_octets: layout.size,
            stride: 0,
            count: 0,
            octets: 0,
            held: 0,
            memory: None,
            events: Vec::new(),
        }
    }

    /// As it is sent.
    pub fn to_json(&self) -> Vec<u8> {
        // A struct of texts and numbers: nothing in it can fail to be JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// What an exporter said, checked: every frame and plane lies inside.
    ///
    /// # Errors
    /// It refuses ([`Kind::Unavailable`]), speaks another version, or is no exporter ([`Kind::Data`]).
    pub fn from_json(octets: &[u8]) -> Result<Self> {
        let strange = || Error::new(Kind::Data, "this is no frame export of gdmedia");
        let value: serde_json::Value = serde_json::from_slice(octets).map_err(|e| strange().because(e))?;
        if let Some(why) = value.get("error").and_then(|v| v.as_str()) {
            return Err(Error::new(Kind::Unavailable, format!("the exporter refuses: {why}")));
        }
        match value.get("protocol").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(PROTOCOL) => {}
            Some(version) => {
                let what = format!("the exporter speaks version {version} of the protocol, this program {PROTOCOL}");
                return Err(Error::new(Kind::Data, what).cure("use the same version of gdmedia on both sides"));
            }
            None => return Err(strange()),
        }
        let hello: Hello = serde_json::from_value(value).map_err(|e| strange().because(e))?;
        hello.check().map_err(|why| strange().because(why))?;
        Ok(hello)
    }

    fn check(&self) -> std::result::Result<(), &'static str> {
        if self.frame_octets > self.stride || self.stride.checked_mul(self.count).is_none_or(|all| all > self.octets) {
            return Err("its frames lie outside of its memory");
        }
        if self.planes.iter().any(|plane| plane.end().is_none_or(|end| end > self.frame_octets)) {
            return Err("a plane lies outside of its frame");
        }
        if self.kind == ExportKind::CudaIpc && (self.memory.is_none() || self.events.len() != self.count) {
            return Err("handles are missing");
        }
        Ok(())
    }
}

/// As Python's array libraries name it.
const fn sample(layout: &Layout) -> &'static str {
    match (layout.output, layout.wire.depth) {
        (Output::Rgb16f, _) | (Output::Planar, Depth::F16) => "float16",
        (Output::P010 | Output::P210, _) | (Output::Planar, Depth::D10 | Depth::D12 | Depth::D16) => "uint16",
        (Output::V210, _) => "uint32",
        _ => "uint8",
    }
}

/// Sent instead of a hello before the socket is closed.
pub(super) fn refusal(why: &str) -> Vec<u8> {
    serde_json::json!({ "protocol": PROTOCOL, "error": why }).to_string().into_bytes()
}

/// Hex digits, two an octet.
pub(super) fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// `N` octets from twice as many hex digits; hyphens do not count.
pub(super) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut digits = text.chars().filter(|&c| c != '-').map(|c| c.to_digit(16));
    let mut octets = [0; N];
    for octet in &mut octets {
        *octet = (digits.next()?? << 4 | digits.next()??) as u8;
    }
    digits.next().is_none().then_some(octets)
}

/// `a1b2c3d4-...` with groups of 8, 4, 4, 4 and 12 digits.
pub(super) fn uuid_text(uuid: [u8; 16]) -> String {
    [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]].map(hex).join("-")
}

/// A frame that a consumer is given: 64 octets, little-endian (Python: `struct.unpack("<IIQIIQQQIIQ", message)`).
///
/// | octet | type | what |
/// | --- | --- | --- |
/// | 0 | u32 | 1 |
/// | 4 | u32 | index of the frame in the memory |
/// | 8 | u64 | number, counts frames of the flow |
/// | 16 | u32 | flags: bit 0 every octet arrived, bit 1 the media time is known |
/// | 20 | u32 | RTP timestamp |
/// | 24 | u64 | TAI of its first sample, ns; 0 when unknown |
/// | 32 | u64 | TAI of the arrival of its first packet, ns |
/// | 40 | u64 | TAI of the arrival of its last packet, ns |
/// | 48 | u32 | runs of missing octets |
/// | 52 | u32 | frames that this consumer was not given so far, modulo 2^32 |
/// | 56 | u64 | missing octets of the wire format |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Which frame of the memory.
    pub index: u32,
    /// Counts frames of the flow.
    pub number: u64,
    /// Every octet arrived.
    pub complete: bool,
    /// RTP timestamp of the frame or its first field.
    pub timestamp: u32,
    /// TAI of its first sample.
    pub media_time: Option<Tai>,
    /// Arrival of its first packet.
    pub first_arrival: Tai,
    /// Arrival of its last packet.
    pub last_arrival: Tai,
    /// Runs of missing octets.
    pub missing_runs: u32,
    /// Missing octets.
    pub missing_octets: u64,
    /// Frames that this consumer was not given so far: it held too many, or all consumers together did.
    pub skipped: u32,
}

const OFFER: u32 = 1;
const RELEASE: u32 = 2;

impl Offer {
    /// Octets of the message.
    pub const OCTETS: usize = 64;

    /// What is known of a frame.
    pub fn new(index: u32, meta: &Meta) -> Self {
        Offer {
            index,
            number: meta.number,
            complete: meta.complete,
            timestamp: meta.timestamp,
            media_time: meta.media_time,
            first_arrival: meta.first_arrival,
            last_arrival: meta.last_arrival,
            missing_runs: u32::try_from(meta.missing.len()).unwrap_or(u32::MAX),
            missing_octets: meta.missing.iter().map(|run| u64::from(run.len)).sum(),
            skipped: 0,
        }
    }

    /// The message.
    pub fn to_octets(&self) -> [u8; Self::OCTETS] {
        let mut octets = [0; Self::OCTETS];
        let mut put = |at: usize, value: &[u8]| octets[at..at + value.len()].copy_from_slice(value);
        let flags = u32::from(self.complete) | u32::from(self.media_time.is_some()) << 1;
        put(0, &OFFER.to_le_bytes());
        put(4, &self.index.to_le_bytes());
        put(8, &self.number.to_le_bytes());
        put(16, &flags.to_le_bytes());
        put(20, &self.timestamp.to_le_bytes());
        put(24, &self.media_time.unwrap_or_default().0.to_le_bytes());
        put(32, &self.first_arrival.0.to_le_bytes());
        put(40, &self.last_arrival.0.to_le_bytes());
        put(48, &self.missing_runs.to_le_bytes());
        put(52, &self.skipped.to_le_bytes());
        put(56, &self.missing_octets.to_le_bytes());
        octets
    }

    /// None when it is another message.
    pub fn from_octets(octets: &[u8]) -> Option<Self> {
        let octets: &[u8; Self::OCTETS] = octets.try_into().ok()?;
        let half = |at: usize| u32::from_le_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]);
        let whole = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
        let flags = half(16);
        (half(0) == OFFER).then(|| Offer {
            index: half(4),
            number: whole(8),
            complete: flags & 1 != 0,
            timestamp: half(20),
            media_time: (flags & 2 != 0).then(|| Tai(whole(24))),
            first_arrival: Tai(whole(32)),
            last_arrival: Tai(whole(40)),
            missing_runs: half(48),
            missing_octets: whole(56),
            skipped: half(52),
        })
    }
}

/// Octets of a release.
pub const RELEASE_OCTETS: usize = 8;

/// A consumer is done with a frame: u32 2, u32 index (Python: `struct.pack("<II", 2, index)`).
pub fn release(index: u32) -> [u8; RELEASE_OCTETS] {
    let mut octets = [0; RELEASE_OCTETS];
    octets[..4].copy_from_slice(&RELEASE.to_le_bytes());
    octets[4..].copy_from_slice(&index.to_le_bytes());
    octets
}

/// The index in a release; none when it is another message.
pub fn released(octets: &[u8]) -> Option<u32> {
    let &[a, b, c, d, e, f, g, h] = octets else { return None };
    (u32::from_le_bytes([a, b, c, d]) == RELEASE).then(|| u32::from_le_bytes([e, f, g, h]))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::plan::Missing;

    /// Four frames of two planes, 4 by 2 pixels.
    pub fn hello(kind: ExportKind) -> Hello {
        let words = ["YCbCr-4:2:2", "8", "progressive", "BT709", "SDR", "NARROW"].map(String::from);
        let [sampling, depth, scan, colorimetry, tcs, range] = words;
        let plane = |offset, row_octets| PlaneFacts { offset, stride: 64, row_octets, rows: 2, channels: 1 };
        Hello {
            protocol: 1,
            kind,
            gpu: GpuFacts { number: 0, name: "none".into(), uuid: String::new(), pci: String::new() },
            video: VideoFacts { sampling, depth, scan, rate: Some("25".into()), colorimetry, tcs, range },
            output: "planar".into(),
            sample: "uint8".into(),
            width: 4,
            height: 2,
            planes: vec![plane(0, 4), plane(128, 2)],
            frame_octets: 320,
            stride: 65_536,
            count: 4,
            octets: 2 << 20,
            held: 3,
            memory: (kind == ExportKind::CudaIpc).then(|| "ab".repeat(64)),
            events: if kind == ExportKind::CudaIpc { vec!["01".repeat(64); 4] } else { Vec::new() },
        }
    }

    #[test]
    fn an_offer_octet_by_octet() {
        let run = |len| Missing { row: 3, octet: 0, len };
        let meta = Meta {
            number: 0x0102_0304_0506_0708,
            complete: false,
            timestamp: 0xA1A2_A3A4,
            media_time: Some(Tai(0x1112_1314_1516_1718)),
            first_arrival: Tai(0x2122_2324_2526_2728),
            last_arrival: Tai(0x3132_3334_3536_3738),
            missing: vec![run(0x0100_0000), run(5)],
            ..Meta::default()
        };
        let offer = Offer { skipped: 0x4142_4344, ..Offer::new(7, &meta) };
        #[rustfmt::skip]
        let expected = [
            1, 0, 0, 0,  7, 0, 0, 0,
            8, 7, 6, 5, 4, 3, 2, 1,
            2, 0, 0, 0,  0xA4, 0xA3, 0xA2, 0xA1,
            0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
            0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,
            0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31,
            2, 0, 0, 0,  0x44, 0x43, 0x42, 0x41,
            5, 0, 0, 1, 0, 0, 0, 0,
        ];
        assert_eq!(offer.to_octets(), expected);
        assert_eq!(Offer::from_octets(&expected), Some(offer));

        let whole = Offer::new(0, &Meta { complete: true, ..Meta::default() }).to_octets();
        assert_eq!(whole[16], 1);
        assert_eq!(Offer::from_octets(&whole).unwrap().media_time, None);
    }

    #[test]
    fn other_messages_are_no_offers() {
        let mut octets = Offer::new(0, &Meta::default()).to_octets();
        assert!(Offer::from_octets(&octets[..63]).is_none());
        assert!(Offer::from_octets(&[&octets[..], &[0]].concat()).is_none());
        octets[0] = 2;
        assert!(Offer::from_octets(&octets).is_none());
        octets[..4].copy_from_slice(&[1, 0, 0, 1]);
        assert!(Offer::from_octets(&octets).is_none());
    }

    #[test]
    fn a_release_octet_by_octet() {
        assert_eq!(release(0x0403_0201), [2, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(released(&[2, 0, 0, 0, 1, 2, 3, 4]), Some(0x0403_0201));
        for wrong in [&[][..], &[2, 0, 0, 0], &[1, 0, 0, 0, 1, 2, 3, 4], &[2, 0, 0, 0, 1, 2, 3, 4, 5]] {
            assert_eq!(released(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_hello_has_the_keys_that_the_documentation_names() {
        let text = String::from_utf8(hello(ExportKind::CudaIpc).to_json()).unwrap();
        for part in [
            r#""protocol":1,"kind":"cuda-ipc","gpu":{"number":0,"#,
            r#""video":{"sampling":"YCbCr-4:2:2","depth":"8","scan":"progressive","rate":"25","#,
            r#""output":"planar","sample":"uint8","width":4,"height":2,"#,
            r#""planes":[{"offset":0,"stride":64,"row_octets":4,"rows":2,"channels":1},"#,
            r#""frame_octets":320,"stride":65536,"count":4,"octets":2097152,"held":3,"memory":"abab"#,
            r#""events":["0101"#,
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let text = String::from_utf8(hello(ExportKind::DmaBuf).to_json()).unwrap();
        assert!(text.contains(r#""kind":"dma-buf""#) && !text.contains("memory") && !text.contains("events"), "{text}");
    }

    #[test]
    fn a_hello_is_read_and_checked() {
        for kind in ExportKind::ALL {
            let hello = hello(kind);
            assert_eq!(Hello::from_json(&hello.to_json()).unwrap(), hello);
        }
        // Keys that are not known yet do not disturb.
        let text = String::from_utf8(hello(ExportKind::DmaBuf).to_json()).unwrap();
        assert!(Hello::from_json(text.replacen('{', r#"{"new":1,"#, 1).as_bytes()).is_ok());
        let changed = |change: fn(&mut Hello)| {
            let mut hello = hello(ExportKind::CudaIpc);
            change(&mut hello);
            Hello::from_json(&hello.to_json()).unwrap_err().to_string()
        };
        assert!(changed(|h| h.protocol = 2).contains("speaks version 2"));
        assert!(changed(|h| h.count = 33).contains("outside of its memory"));
        assert!(changed(|h| h.stride = usize::MAX).contains("outside of its memory"));
        assert!(changed(|h| h.frame_octets = 65_537).contains("outside of its memory"));
        assert!(changed(|h| h.planes[1].rows = 5).contains("outside of its frame"));
        assert!(changed(|h| h.planes[1].stride = usize::MAX).contains("outside of its frame"));
        assert!(changed(|h| h.planes[1].rows = 0).contains("outside of its frame"));
        assert!(changed(|h| h.memory = None).contains("handles"));
        assert!(changed(|h| h.events.truncate(3)).contains("handles"));
        let refused = Hello::from_json(&refusal("8 consumers are connected")).unwrap_err();
        assert_eq!(refused.kind(), Kind::Unavailable);
        assert!(refused.to_string().contains("8 consumers"));
        for strange in [&b""[..], b"\xFF", b"[]", b"{}", br#"{"protocol":"1"}"#, br#"{"protocol":1}"#] {
            assert_eq!(Hello::from_json(strange).unwrap_err().kind(), Kind::Data, "{strange:?}");
        }
    }

    #[test]
    fn planes_and_samples_are_described() {
        use crate::format::WireFormat;
        use crate::sdp::{Sampling, Scan};
        let described = |depth, output| {
            let wire = WireFormat::new(Sampling::YCbCr422, depth, 96, 4, Scan::Progressive).unwrap();
            let layout = Layout::new(wire, output).unwrap();
            let channels: Vec<_> =
                layout.planes.iter().enumerate().map(|(n, p)| PlaneFacts::new(output, n, p).channels).collect();
            (sample(&layout), channels)
        };
        for (depth, output, expected) in [
            (Depth::D8, Output::Planar, ("uint8", vec![1, 1, 1])),
            (Depth::D10, Output::Planar, ("uint16", vec![1, 1, 1])),
            (Depth::F16, Output::Planar, ("float16", vec![1, 1, 1])),
            (Depth::D10, Output::Wire, ("uint8", vec![1])),
            (Depth::D10, Output::P010, ("uint16", vec![1, 2])),
            (Depth::D10, Output::P210, ("uint16", vec![1, 2])),
            (Depth::D10, Output::Nv12, ("uint8", vec![1, 2])),
            (Depth::D8, Output::Uyvy, ("uint8", vec![1])),
            (Depth::D10, Output::V210, ("uint32", vec![1])),
            (Depth::D10, Output::Rgba, ("uint8", vec![4])),
            (Depth::D10, Output::Rgb16f, ("float16", vec![1, 1, 1])),
        ] {
            assert_eq!(described(depth, output), expected, "{depth} {output:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn foreign_messages_are_read_without_harm(octets in proptest::collection::vec(0u8.., 0..200)) {
            if let Some(offer) = Offer::from_octets(&octets) {
                // The flags and padding that nobody knows yet are not kept.
                proptest::prop_assert_eq!(Offer::from_octets(&offer.to_octets()), Some(offer));
            }
            if let Some(index) = released(&octets) {
                proptest::prop_assert_eq!(&release(index)[..], &octets[..]);
            }
            let _ = Hello::from_json(&octets);
        }

        #[test]
        fn a_hello_that_was_tampered_with_is_refused_or_lies_inside(
            changes in proptest::collection::vec((0usize..2000, b' '..b'~'), 1..4),
            dma_buf in proptest::bool::ANY,
        ) {
            let mut text = hello(if dma_buf { ExportKind::DmaBuf } else { ExportKind::CudaIpc }).to_json();
            for (at, octet) in changes {
                let at = at % text.len();
                text[at] = octet;
            }
            if let Ok(hello) = Hello::from_json(&text) {
                proptest::prop_assert!(hello.stride.checked_mul(hello.count).is_some_and(|all| all <= hello.octets));
                let inside = |plane: &PlaneFacts| plane.end().is_some_and(|end| end <= hello.stride);
                proptest::prop_assert!(hello.planes.iter().all(inside));
            }
        }
    }

    #[test]
    fn hex_there_and_back() {
        assert_eq!(hex(&[0, 0x1F, 0xFF]), "001fff");
        assert_eq!(unhex("001fFF"), Some([0, 0x1F, 0xFF]));
        assert_eq!((unhex::<3>("001ff"), unhex::<3>("001fff0"), unhex::<3>("00 fff")), (None, None, None));
        let uuid = [0xA1, 0xB2, 0xC3, 0xD4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        assert_eq!(uuid_text(uuid), "a1b2c3d4-0506-0708-090a-0b0c0d0e0f10");
        assert_eq!(unhex(&uuid_text(uuid)), Some(uuid));
    }
}
