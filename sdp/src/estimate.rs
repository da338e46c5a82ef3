//! What a flow should weigh on the network, as far as its description tells.

use crate::{Audio, Essence, Flow, Packing, Scan, Video};

/// Octets of RTP and UDP headers.
const RTP_UDP: u64 = 12 + 8;
/// Octets of the ST 2110-20 payload header with one SRD.
const ONE_SRD: u64 = 8;
/// Octets of sample data in a block-packed packet.
const BLOCKS: u64 = 7 * 180;

/// Expected rates of one leg. Senders are free in how they cut rows, so this is a figure to size buffers by and to
/// compare with, not a promise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Packets of a frame, both fields together; `None` for what has no frames.
    pub packets_per_frame: Option<u32>,
    /// Packets a second.
    pub packets_per_second: f64,
    /// Bits a second, from the IP header up.
    pub bits_per_second: f64,
}

impl Flow {
    /// Rates of one leg, where essence, size and rate say enough.
    pub fn estimate(&self) -> Option<Estimate> {
        let ip = match self.legs.first() {
            Some(leg) if leg.destination.is_ipv6() => 40,
            _ => 20,
        };
        match &self.essence {
            Essence::Video(video) => video_rate(video, ip),
            Essence::Audio(audio) | Essence::Aes3(audio) => audio_rate(audio, self.clock_rate, ip),
            _ => self.bandwidth_kbps.map(|kbps| Estimate {
                packets_per_frame: None,
                packets_per_second: f64::from(kbps) * 1000.0 / (8.0 * 1400.0),
                bits_per_second: f64::from(kbps) * 1000.0,
            }),
        }
    }
}

fn video_rate(v: &Video, ip: u64) -> Option<Estimate> {
    let rate = v.rate?.as_f64();
    let pgroup = v.sampling.pgroup(v.depth)?;
    let octets = u64::from(pgroup.octets);
    let row = u64::from(v.width.div_ceil(pgroup.width())) * octets;
    let rows = u64::from(v.height.div_ceil(pgroup.rows));
    let packets = match v.packing {
        // Senders cut a row into equal packets where that takes at most twice as many: 4800 octets into 4 x 1200.
        Packing::Gpm => {
            let room = (u64::from(v.max_udp).saturating_sub(RTP_UDP + ONE_SRD) / octets * octets).max(octets);
            let least = row.div_ceil(room);
            let equal = (least..=2 * least).find(|n| (row / octets) % n == 0);
            rows * equal.unwrap_or(least)
        }
        Packing::Bpm if v.scan == Scan::Progressive => (rows * row).div_ceil(BLOCKS),
        Packing::Bpm => (rows.div_ceil(2) * row).div_ceil(BLOCKS) + (rows / 2 * row).div_ceil(BLOCKS),
    };
    let frame = rows * row + packets * (ONE_SRD + RTP_UDP + ip);
    Some(Estimate {
        packets_per_frame: u32::try_from(packets).ok(),
        packets_per_second: packets as f64 * rate,
        bits_per_second: frame as f64 * 8.0 * rate,
    })
}

fn audio_rate(audio: &Audio, clock_rate: u32, ip: u64) -> Option<Estimate> {
    let samples = audio.samples_per_packet.filter(|n| *n > 0)?;
    let sample = match audio.encoding.as_str() {
        "L16" => 2,
        "L24" => 3,
        _ => 4,
    };
    let packets = f64::from(clock_rate) / f64::from(samples);
    let octets = u64::from(samples) * u64::from(audio.channels) * sample + RTP_UDP + ip;
    Some(Estimate {
        packets_per_frame: None,
        packets_per_second: packets,
        bits_per_second: packets * octets as f64 * 8.0,
    })
}
