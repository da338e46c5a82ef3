//! A stream to be sent: what every frame's packets are, and when they leave.

use super::schedule::{Pacing, Schedule};
use super::template::Template;
use crate::error::{Error, Kind, Result};
use crate::format::WireFormat;
use crate::packetise::{Cut, Packetiser, Style};
use gdmedia_sdp::{Packing, Ratio, Video};

/// The packets of a flow and their schedule.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The picture.
    pub format: WireFormat,
    /// Headers and places of a frame's packets.
    pub template: Template,
    /// When they leave.
    pub schedule: Schedule,
    /// Sequence number of the next frame's first packet.
    pub sequence: u32,
}

/// What a sender may choose besides the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// When packets leave.
    pub pacing: Pacing,
    /// RTP payload type.
    pub payload_type: u8,
    /// Synchronisation source.
    pub ssrc: u32,
    /// 32-bit sequence number of the first packet.
    pub sequence: u32,
    /// Leave the extended sequence number 0, as some senders do.
    pub extended_zero: bool,
    /// General packing mode: rows in equal parts when absent, else packets as full as they can be with so many SRD
    /// headers at most.
    pub srds: Option<u8>,
}

impl Choice {
    /// Payload type 96, everything else at its simplest.
    pub const fn new(pacing: Pacing) -> Self {
        Choice { pacing, payload_type: 96, ssrc: 0x6764_6d31, sequence: 0, extended_zero: false, srds: None }
    }
}

/// Frames a second where an SDP says nothing.
pub const DEFAULT_RATE: Ratio = Ratio { num: 50, den: 1 };

impl Stream {
    /// The stream of a flow.
    ///
    /// # Errors
    /// A format that ST 2110-20 does not have, a rate or a packet size that makes no sense.
    pub fn new(video: &Video, choice: Choice) -> Result<Self> {
        let format = WireFormat::from_video(video).ok_or_else(|| {
            Error::new(
                Kind::Data,
                format!(
                    "ST 2110-20 has no such picture: {} {} bit, {}x{} {}",
                    video.sampling, video.depth, video.width, video.height, video.scan
                ),
            )
            .cure("4:2:0 is for 8, 10 and 12 bit progressive, XYZ for 12 and 16 bit; sides reach to 32767")
        })?;
        let udp = u16::try_from(video.max_udp).unwrap_or(u16::MAX);
        let cut = match (video.packing, choice.srds) {
            (Packing::Bpm, _) => Cut::Bpm { fill: false },
            (Packing::Gpm, None) => Cut::Even { udp },
            (Packing::Gpm, Some(segments)) => Cut::Full { udp, segments },
        };
        let style = Style {
            payload_type: choice.payload_type,
            ssrc: choice.ssrc,
            short_sequence: choice.extended_zero,
            ..Style::new(cut)
        };
        let packetiser = Packetiser::new(format, style, choice.sequence).ok_or_else(|| {
            let error = Error::new(Kind::Data, format!("{} {} bit does not fit {cut:?}", video.sampling, video.depth));
            error
                .cure("4:2:2 of 16 bit has no block packing mode; a packet takes 1 to 3 SRD headers and a whole pgroup")
        })?;
        let template = Template::new(packetiser, choice.extended_zero);
        let rate = video.rate.unwrap_or(DEFAULT_RATE);
        let schedule = Schedule::new(
            rate,
            format.height,
            format.scan,
            choice.pacing,
            template.packets.len() as u32,
            template.second,
            video.troff_us,
        )
        .ok_or_else(|| Error::new(Kind::Data, format!("no such frame rate: {rate}")))?;
        Ok(Stream { format, template, schedule, sequence: choice.sequence })
    }

    /// UDP payload bits a second.
    pub fn bits_per_second(&self) -> f64 {
        self.template.octets() as f64 * 8e9 / self.schedule.frame_ns() as f64
    }

    /// Packets a second.
    pub fn packets_per_second(&self) -> f64 {
        self.template.packets.len() as f64 * 1e9 / self.schedule.frame_ns() as f64
    }
}
