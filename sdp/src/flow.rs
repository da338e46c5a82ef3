//! What a description says, typed: the session, its flows and their legs.

use crate::{Colorimetry, Depth, Packing, Range, Ratio, Sampling, Scan, SenderType, Tcs};
use serde::Serialize;
use std::net::IpAddr;

/// A flow: one essence, on one leg or on several that carry the same packets (ST 2022-7).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flow {
    /// Position of its first leg among the media sections of the text, from 0.
    pub index: usize,
    /// Session name, and the title of the medium where there is one.
    pub name: String,
    /// What is carried.
    pub essence: Essence,
    /// RTP payload type.
    pub payload_type: u8,
    /// RTP clock in Hz.
    pub clock_rate: u32,
    /// At least one.
    pub legs: Vec<Leg>,
    /// Reference clocks (RFC 7273), media level before session level.
    pub reference_clocks: Vec<ReferenceClock>,
    /// How RTP timestamps relate to the reference clock.
    pub media_clock: MediaClock,
    /// `b=AS`, kbit/s from the IP header up.
    pub bandwidth_kbps: Option<u32>,
    /// A receiver can place its samples.
    pub usable: bool,
}

/// One path on which the packets of a flow arrive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Leg {
    /// Multicast group, or the receiver's own address.
    pub destination: IpAddr,
    /// UDP destination port.
    pub port: u16,
    /// Who may send (RFC 4570).
    pub sources: SourceFilter,
    /// Multicast TTL, where the text has one.
    pub ttl: Option<u8>,
    /// `a=mid`.
    pub mid: Option<String>,
}

/// A source filter (RFC 4570).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "mode", content = "addresses", rename_all = "lowercase")]
pub enum SourceFilter {
    /// Any source.
    #[default]
    Any,
    /// Only these.
    Include(Vec<IpAddr>),
    /// All but these.
    Exclude(Vec<IpAddr>),
}

/// `a=ts-refclk` (RFC 7273, ST 2110-10).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "source", rename_all = "lowercase")]
pub enum ReferenceClock {
    /// `ptp=<version>:<grandmaster>[:<domain>]` or traceable.
    Ptp {
        /// Such as `IEEE1588-2008`.
        version: String,
        /// EUI-64 in upper case with dashes; `None` when traceable.
        grandmaster: Option<String>,
        /// PTP domain.
        domain: Option<u8>,
    },
    /// `localmac=<MAC>`: the sender's own clock.
    LocalMac {
        /// EUI-48 in upper case with dashes.
        mac: String,
    },
    /// Any other (`ntp=`, `gps`, `local`, `private` …), as written.
    Other {
        /// The value of the attribute.
        text: String,
    },
}

/// `a=mediaclk` (RFC 7273).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum MediaClock {
    /// Not given.
    #[default]
    Unknown,
    /// `direct[=<offset>]`: timestamp = floor(t · rate) + offset.
    Direct {
        /// In ticks.
        offset: u64,
    },
    /// `sender`: free running.
    Sender,
    /// Any other, as written.
    Other {
        /// The value of the attribute.
        text: String,
    },
}

/// What a flow carries.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "essence", rename_all = "kebab-case")]
pub enum Essence {
    /// ST 2110-20.
    Video(Video),
    /// ST 2110-22.
    CompressedVideo(CompressedVideo),
    /// ST 2110-30 and AES67.
    Audio(Audio),
    /// ST 2110-31.
    Aes3(Audio),
    /// ST 2110-40.
    Ancillary(Ancillary),
    /// ST 2110-41.
    FastMetadata(FastMetadata),
    /// ST 2110-43.
    TimedText(TimedText),
    /// ST 2022-6 or -8: recognised, not received.
    Sdi2022_6,
    /// Something that is not ST 2110.
    Foreign {
        /// Its name, for people, such as `H264 video`.
        what: String,
    },
}

impl Essence {
    /// Its name, for people.
    pub fn kind(&self) -> &str {
        match self {
            Essence::Video(_) => "video (ST 2110-20)",
            Essence::CompressedVideo(_) => "compressed video (ST 2110-22)",
            Essence::Audio(_) => "audio (ST 2110-30)",
            Essence::Aes3(_) => "AES3 audio (ST 2110-31)",
            Essence::Ancillary(_) => "ancillary data (ST 2110-40)",
            Essence::FastMetadata(_) => "fast metadata (ST 2110-41)",
            Essence::TimedText(_) => "timed text (ST 2110-43)",
            Essence::Sdi2022_6 => "SDI over IP (ST 2022-6)",
            Essence::Foreign { what } => what,
        }
    }
}

/// ST 2110-20 with its ST 2110-21 parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Video {
    /// Component structure.
    pub sampling: Sampling,
    /// Bits a sample.
    pub depth: Depth,
    /// Pixels a row.
    pub width: u32,
    /// Rows of a frame (both fields).
    pub height: u32,
    /// Frames a second (not fields).
    pub rate: Option<Ratio>,
    /// Progressive, interlaced or PsF.
    pub scan: Scan,
    /// Colorimetry.
    pub colorimetry: Colorimetry,
    /// Transfer characteristic.
    pub tcs: Tcs,
    /// Range of codes.
    pub range: Range,
    /// Pixel aspect ratio.
    pub par: Ratio,
    /// Packing mode.
    pub packing: Packing,
    /// Largest UDP size, 1460 unless `MAXUDP` says more.
    pub max_udp: u32,
    /// Sender type.
    pub sender_type: Option<SenderType>,
    /// `TROFF` in microseconds.
    pub troff_us: Option<u32>,
    /// `CMAX`.
    pub cmax: Option<u32>,
    /// `TSMODE` as written.
    pub ts_mode: Option<String>,
    /// `TSDELAY` in microseconds.
    pub ts_delay_us: Option<u32>,
    /// `SSN` as written.
    pub ssn: Option<String>,
}

impl Video {
    /// A progressive picture of BT.709 of which nothing more is said: what stands for what an SDP leaves out by
    /// ST 2110-20:2022 clause 7.3 (SDR, narrow range, square pixels, UDP size of 1460), in GPM.
    #[must_use]
    pub const fn new(sampling: Sampling, depth: Depth, width: u32, height: u32, rate: Option<Ratio>) -> Self {
        Video {
            sampling,
            depth,
            width,
            height,
            rate,
            scan: Scan::Progressive,
            colorimetry: Colorimetry::Bt709,
            tcs: Tcs::Sdr,
            range: Range::Narrow,
            par: Ratio { num: 1, den: 1 },
            packing: Packing::Gpm,
            max_udp: 1460,
            sender_type: None,
            troff_us: None,
            cmax: None,
            ts_mode: None,
            ts_delay_us: None,
            ssn: None,
        }
    }
}

/// ST 2110-22.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompressedVideo {
    /// Encoding name of the rtpmap, such as `jxsv`.
    pub encoding: String,
    /// Pixels a row, where given.
    pub width: Option<u32>,
    /// Rows of a frame, where given.
    pub height: Option<u32>,
    /// Frames a second.
    pub rate: Option<Ratio>,
    /// Progressive, interlaced or PsF.
    pub scan: Scan,
    /// The remaining format parameters, as written.
    pub parameters: Vec<(String, String)>,
}

/// ST 2110-30 (`L16`, `L24`) or ST 2110-31 (`AM824`).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Audio {
    /// Encoding name of the rtpmap.
    pub encoding: String,
    /// Channels (AES3: subframes).
    pub channels: u32,
    /// Samples of one channel in a packet, from `ptime` and the rate.
    pub samples_per_packet: Option<u32>,
    /// `a=ptime` in microseconds, rounded.
    pub packet_time_us: Option<u32>,
    /// `channel-order` as written.
    pub channel_order: Option<String>,
}

/// ST 2110-40.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ancillary {
    /// `DID_SDID` pairs.
    pub did_sdid: Vec<(u8, u8)>,
    /// `VPID_Code`.
    pub vpid_code: Option<u8>,
    /// Frames a second of the video that it belongs to.
    pub rate: Option<Ratio>,
    /// `SSN` as written.
    pub ssn: Option<String>,
    /// `TM` as written.
    pub transmission_model: Option<String>,
}

/// ST 2110-41.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FastMetadata {
    /// `DIT`, 22 bits each.
    pub data_item_types: Vec<u32>,
    /// `SSN` as written.
    pub ssn: Option<String>,
}

/// ST 2110-43.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimedText {
    /// `codecs` as written.
    pub codecs: Option<String>,
}
