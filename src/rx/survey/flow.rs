//! One flow of a survey: what is counted while its packets pass.

use super::essence::{Essence, Evidence};
use crate::wire::net::Vlans;
use crate::wire::rtp;
use std::fmt;
use std::net::SocketAddr;

/// Between whom a flow runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ends {
    /// UDP source and destination.
    Udp(SocketAddr, SocketAddr),
    /// Ethernet source and destination; zero where the capture does not have them.
    Ethernet([u8; 6], [u8; 6]),
}

impl Ends {
    pub(crate) fn of_ethernet(known: bool, frame: &[u8]) -> Self {
        match (known, frame.first_chunk::<12>()) {
            (true, Some([d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5])) => {
                Ends::Ethernet([*s0, *s1, *s2, *s3, *s4, *s5], [*d0, *d1, *d2, *d3, *d4, *d5])
            }
            _ => Ends::Ethernet([0; 6], [0; 6]),
        }
    }
    /// Where it goes to, when it is UDP.
    pub fn destination(&self) -> Option<SocketAddr> {
        match self {
            Ends::Udp(_, destination) => Some(*destination),
            Ends::Ethernet(..) => None,
        }
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn mac(m: &[u8; 6]) -> String {
            m.map(|b| format!("{b:02x}")).join(":")
        }
        match self {
            Ends::Udp(source, destination) => write!(f, "{source} -> {destination}"),
            Ends::Ethernet(source, destination) => write!(f, "{} -> {}", mac(source), mac(destination)),
        }
    }
}

/// A flow that was found.
#[derive(Clone, Debug)]
pub struct FoundFlow {
    /// Between whom.
    pub ends: Ends,
    /// VLAN tags of its first packet.
    pub vlans: Vlans,
    /// Packets.
    pub packets: u64,
    /// Octets of UDP payload on the wire.
    pub octets: u64,
    /// Packets that the capture holds only in part.
    pub cut: u64,
    /// Time of the first packet, nanoseconds by the capture's clock.
    pub first: u64,
    /// Time of the last packet.
    pub last: u64,
    /// What RTP says, when most packets are RTP.
    pub rtp: Option<FoundRtp>,
    /// What it carries.
    pub essence: Essence,
    /// Why that is thought.
    pub why: String,
}

/// What the RTP headers of a flow say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundRtp {
    /// RTP packets.
    pub packets: u64,
    /// Payload types in the order of their appearance, eight at most.
    pub payload_types: Vec<u8>,
    /// Synchronisation sources, likewise.
    pub ssrcs: Vec<u32>,
    /// Sequence number of the first packet.
    pub first_sequence: u16,
    /// Timestamp of the first packet.
    pub first_timestamp: u32,
    /// Places where the 16-bit sequence jumps forward.
    pub gaps: u64,
    /// Packets missing there.
    pub lost: u64,
    /// Packets that follow one with a higher number.
    pub reordered: u64,
    /// Packets with the number of the one before.
    pub repeated: u64,
    /// Packets with the marker.
    pub markers: u64,
    /// Packets with padding.
    pub padded: u64,
    /// Runs of packets with the same timestamp.
    pub timestamps: u64,
    /// Smallest and largest step from one timestamp to the next.
    pub steps: Option<(i32, i32)>,
    /// Fewest and most packets with the same timestamp, the first and the last run left out.
    pub run: Option<(u64, u64)>,
}

impl fmt::Display for FoundFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, {} packets", self.ends, self.essence, self.packets)?;
        if let Some(rtp) = &self.rtp {
            let types: Vec<String> = rtp.payload_types.iter().map(u8::to_string).collect();
            write!(f, ", PT {}", types.join("/"))?;
            if rtp.lost > 0 {
                write!(f, ", {} lost", rtp.lost)?;
            }
        }
        if self.cut > 0 {
            write!(f, ", {} of them cut by the capture", self.cut)?;
        }
        Ok(())
    }
}

/// Counts the packets of one flow.
pub(crate) struct Tally {
    flow: FoundFlow,
    rtp: FoundRtp,
    evidence: Evidence,
    last: Option<(u16, u32)>,
    run: u64,
}

impl Tally {
    pub(crate) fn new(ends: Ends, vlans: Vlans) -> Self {
        let flow = FoundFlow {
            ends,
            vlans,
            packets: 0,
            octets: 0,
            cut: 0,
            first: 0,
            last: 0,
            rtp: None,
            essence: Essence::Udp,
            why: String::new(),
        };
        Tally { flow, rtp: FoundRtp::default(), evidence: Evidence::default(), last: None, run: 0 }
    }

    /// A packet: what is there of it, and its length on the wire.
    pub(crate) fn add(&mut self, time: u64, octets: &[u8], wire_octets: u16) {
        let flow = &mut self.flow;
        if flow.packets == 0 {
            flow.first = time;
        }
        flow.last = time;
        flow.packets += 1;
        flow.octets += u64::from(wire_octets);
        flow.cut += u64::from(octets.len() < usize::from(wire_octets));
        if self.evidence.not_media(&flow.ends, octets) {
            return;
        }
        let Ok(header) = rtp::parse(octets, usize::from(wire_octets)) else { return };
        self.evidence.add(&header, octets, self.last);
        self.follow(&header, octets);
    }

    fn follow(&mut self, header: &rtp::Header, octets: &[u8]) {
        let rtp = &mut self.rtp;
        rtp.packets += 1;
        rtp.markers += u64::from(header.marker);
        rtp.padded += u64::from(octets.first().is_some_and(|b| b & 0x20 != 0));
        if rtp.payload_types.len() < 8 && !rtp.payload_types.contains(&header.payload_type) {
            rtp.payload_types.push(header.payload_type);
        }
        if rtp.ssrcs.len() < 8 && !rtp.ssrcs.contains(&header.ssrc) {
            rtp.ssrcs.push(header.ssrc);
        }
        let now = (header.sequence, header.timestamp);
        let Some((sequence, timestamp)) = self.last.replace(now) else {
            (rtp.first_sequence, rtp.first_timestamp) = now;
            rtp.timestamps = 1;
            self.run = 1;
            return;
        };
        match header.sequence.wrapping_sub(sequence) {
            0 => rtp.repeated += 1,
            1 => {}
            // Backwards: late packets, of which one has been counted as lost.
            0x8000.. => {
                rtp.reordered += 1;
                rtp.lost = rtp.lost.saturating_sub(1);
                self.last = Some((sequence, timestamp));
                return;
            }
            step => {
                rtp.gaps += 1;
                rtp.lost += u64::from(step) - 1;
            }
        }
        if header.timestamp == timestamp {
            self.run += 1;
            return;
        }
        let step = header.timestamp.wrapping_sub(timestamp) as i32;
        let (least, most) = rtp.steps.unwrap_or((step, step));
        rtp.steps = Some((least.min(step), most.max(step)));
        if rtp.timestamps > 1 {
            let (fewest, most) = rtp.run.unwrap_or((self.run, self.run));
            rtp.run = Some((fewest.min(self.run), most.max(self.run)));
        }
        rtp.timestamps += 1;
        self.run = 1;
    }

    pub(crate) fn finish(mut self) -> FoundFlow {
        let (essence, why) = self.evidence.judge(&self.flow, &self.rtp);
        self.flow.essence = essence;
        self.flow.why = why;
        self.flow.rtp = (self.rtp.packets * 2 > self.flow.packets).then_some(self.rtp);
        self.flow
    }
}
