//! Packets between two addresses: collected until what they carry is known, then measured.

use super::Options;
use super::pairs::Samples;
use crate::rx::survey::{Ends, Essence, FoundFlow, Tally};
use crate::sdp::{self, SourceFilter};
use crate::time::{MediaClock, Tai};
use crate::timing::ancillary::{Head, Lines};
use crate::timing::flow::{Picture, Subject, clock_of};
use crate::timing::{self, Packet};
use crate::wire::net::Vlans;
use crate::wire::{be16, rtp};
use std::net::SocketAddr;

/// Packets of a flow that are kept until it is known what it carries.
const KEPT: usize = 40_000;
/// The same of all flows together.
const KEPT_IN_ALL: usize = 1 << 20;
/// Packets, and changes of timestamp among them, that are enough to know.
const ENOUGH: (usize, usize) = (64, 5);
/// Packets of a described flow that are held against its description.
const COMPARED: u64 = 4000;

/// A datagram that was seen.
pub(super) struct Seen<'a> {
    pub arrival: Tai,
    /// What the capture holds of it.
    pub octets: &'a [u8],
    /// Octets on the wire.
    pub wire_octets: u16,
}

/// Packets that are kept over all flows.
#[derive(Default)]
pub(super) struct Pending {
    kept: usize,
}

/// A packet whose payload cannot be read yet: its head, and the first octets of its payload.
struct Kept {
    packet: Packet,
    payload_type: u8,
    payload: [u8; 8],
}

/// Which octets of a payload matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payload {
    /// RFC 4175: high half of the sequence number, and F of the first row.
    Video,
    /// RFC 8331: high half of the sequence number.
    Ancillary,
    /// RFC 9134: the field.
    JpegXs,
    /// None.
    Plain,
}

impl Payload {
    fn of(essence: &Essence) -> Self {
        match essence {
            Essence::Video(_) => Payload::Video,
            Essence::Ancillary => Payload::Ancillary,
            Essence::CompressedVideo => Payload::JpegXs,
            _ => Payload::Plain,
        }
    }
    fn of_described(essence: &sdp::Essence) -> Self {
        match essence {
            sdp::Essence::Video(_) => Payload::Video,
            sdp::Essence::Ancillary(_) => Payload::Ancillary,
            sdp::Essence::CompressedVideo(v) if v.encoding.eq_ignore_ascii_case("jxsv") => Payload::JpegXs,
            _ => Payload::Plain,
        }
    }
    #[inline]
    fn read(self, packet: &mut Packet, payload: &[u8]) {
        match self {
            Payload::Video => {
                packet.extended = be16(payload, 0);
                packet.second = payload.get(4).is_some_and(|b| b & 0x80 != 0);
            }
            Payload::Ancillary => {
                packet.extended = be16(payload, 0);
                packet.ancillary = packet.ancillary.or_else(|| Head::of(payload));
            }
            // I, the two bits behind T, K and L: 3 is the second field.
            Payload::JpegXs => packet.second = payload.first().is_some_and(|b| b >> 3 & 3 == 3),
            Payload::Plain => {}
        }
    }
}

/// What becomes of the packets of a track.
enum Role {
    /// They are kept.
    Unknown(Vec<Kept>),
    /// They are of a flow and its leg.
    Media { flow: usize, leg: u8, payload: Payload, payload_type: u8 },
    /// They are counted.
    Nothing,
}

/// Packets between two addresses.
pub(super) struct Track {
    ends: Ends,
    tally: Option<Tally>,
    found: Option<FoundFlow>,
    role: Role,
    packets: u64,
    octets: u64,
    cut: u64,
    first: Tai,
    last: Tai,
    runs: usize,
    malformed: u64,
    rtcp: u64,
    other_payload_type: u64,
}

impl Track {
    /// A track that a described flow claims is its leg, unless another sender was there before.
    pub(super) fn new(ends: Ends, flows: &mut [Analysed]) -> Self {
        let mut role = Role::Unknown(Vec::new());
        if let Ends::Udp(source, destination) = ends {
            'flows: for (n, flow) in flows.iter_mut().enumerate() {
                let Some(described) = &flow.described else { continue };
                for (m, leg) in described.legs.iter().enumerate() {
                    if !belongs(leg, source, destination) {
                        continue;
                    }
                    let Some(seen) = flow.legs.get_mut(m) else { continue };
                    if seen.ends.is_some() {
                        seen.strangers += 1;
                        continue;
                    }
                    seen.ends = Some(ends);
                    let payload = Payload::of_described(&described.essence);
                    role = Role::Media { flow: n, leg: m as u8, payload, payload_type: described.payload_type };
                    break 'flows;
                }
            }
        }
        Track {
            ends,
            tally: Some(Tally::new(ends, Vlans::default())),
            found: None,
            role,
            packets: 0,
            octets: 0,
            cut: 0,
            first: Tai(0),
            last: Tai(0),
            runs: 0,
            malformed: 0,
            rtcp: 0,
            other_payload_type: 0,
        }
    }

    /// A packet; whether enough is known now to say what they carry.
    #[inline]
    pub(super) fn packet(&mut self, seen: &Seen<'_>, flows: &mut [Analysed], pending: &mut Pending) -> bool {
        if self.packets == 0 {
            self.first = seen.arrival;
        }
        self.packets += 1;
        self.octets += u64::from(seen.wire_octets);
        self.cut += u64::from(seen.octets.len() < usize::from(seen.wire_octets));
        self.last = seen.arrival;
        if let Some(tally) = &mut self.tally {
            tally.add(seen.arrival.0, seen.octets, seen.wire_octets);
        }
        if matches!(self.role, Role::Nothing) {
            return false;
        }
        if rtp::is_rtcp(seen.octets) {
            self.rtcp += 1;
            return false;
        }
        let Ok(header) = rtp::parse(seen.octets, usize::from(seen.wire_octets)) else {
            self.malformed += 1;
            return self.packets >= KEPT as u64;
        };
        let body = seen.octets.get(usize::from(header.payload.start)..).unwrap_or_default();
        let mut packet = Packet {
            arrival: seen.arrival,
            timestamp: header.timestamp,
            sequence: header.sequence,
            extended: None,
            ssrc: header.ssrc,
            marker: header.marker,
            second: false,
            leg: 0,
            ancillary: None,
        };
        match &mut self.role {
            Role::Media { flow, leg, payload, payload_type } => {
                if header.payload_type != *payload_type {
                    self.other_payload_type += 1;
                    return false;
                }
                payload.read(&mut packet, body);
                packet.leg = *leg;
                if let Some(flow) = flows.get_mut(*flow) {
                    flow.push(&packet, header.payload_type);
                }
                self.tally.is_some() && self.packets >= COMPARED
            }
            Role::Unknown(kept) => {
                self.runs += usize::from(kept.last().is_none_or(|k| k.packet.timestamp != packet.timestamp));
                packet.ancillary = Head::of(body);
                let mut payload = [0; 8];
                payload.iter_mut().zip(body).for_each(|(to, from)| *to = *from);
                kept.push(Kept { packet, payload_type: header.payload_type, payload });
                pending.kept += 1;
                kept.len() >= KEPT || pending.kept >= KEPT_IN_ALL || (kept.len() >= ENOUGH.0 && self.runs >= ENOUGH.1)
            }
            Role::Nothing => false,
        }
    }

    /// Says what the packets carry, with what is known; the packets that are not measured for want of room.
    pub(super) fn settle(
        &mut self,
        flows: &mut Vec<Analysed>,
        pending: &mut Pending,
        options: &Options,
        room: bool,
    ) -> u64 {
        let Some(tally) = self.tally.take() else { return 0 };
        let found = tally.finish();
        let Role::Unknown(kept) = &mut self.role else {
            self.found = Some(found);
            return 0;
        };
        let kept = std::mem::take(kept);
        pending.kept = pending.kept.saturating_sub(kept.len());
        let described = guess(&found, &kept);
        self.found = Some(found);
        let (Some((subject, clock)), Some(first), true) = (described, kept.first(), room) else {
            let media = described.is_some();
            self.role = Role::Nothing;
            return if media { kept.len() as u64 } else { 0 };
        };
        let payload = self.found.as_ref().map_or(Payload::Plain, |f| Payload::of(&f.essence));
        let payload_type = first.payload_type;
        let timing = timing::Flow::new(subject, clock, 1, options.source, options.rules);
        let leg = LegSeen { ends: Some(self.ends), ..LegSeen::default() };
        let mut flow = Analysed { described: None, timing, legs: vec![leg], samples: Some(Samples::default()) };
        for k in &kept {
            if k.payload_type != payload_type {
                self.other_payload_type += 1;
                continue;
            }
            let mut packet = k.packet;
            payload.read(&mut packet, &k.payload);
            flow.push(&packet, payload_type);
        }
        self.role = Role::Media { flow: flows.len(), leg: 0, payload, payload_type };
        flows.push(flow);
        0
    }

    /// UDP packets that are no RTP.
    pub(super) fn not_rtp(&self) -> u64 {
        match self.role {
            Role::Media { .. } => 0,
            _ => self.packets,
        }
    }

    /// Hands what was counted to its flow.
    pub(super) fn finish(self, flows: &mut [Analysed]) {
        let Role::Media { flow, leg, payload_type, .. } = self.role else { return };
        let Some(leg) = flows.get_mut(flow).and_then(|f| f.legs.get_mut(usize::from(leg))) else { return };
        let strangers = leg.strangers;
        let mut found = self.found;
        if let Some(found) = &mut found {
            // The survey looked at the first packets only.
            (found.packets, found.octets, found.cut, found.last) = (self.packets, self.octets, self.cut, self.last.0);
        }
        *leg = LegSeen {
            ends: Some(self.ends),
            found,
            packets: self.packets,
            octets: self.octets,
            cut: self.cut,
            span: (self.first, self.last),
            payload_type,
            malformed: self.malformed,
            rtcp: self.rtcp,
            other_payload_type: self.other_payload_type,
            strangers,
        };
    }
}

/// What came by a leg.
#[derive(Clone, Debug, Default)]
pub struct LegSeen {
    /// Between whom; nothing came where this is absent.
    pub ends: Option<Ends>,
    /// What its first packets look like.
    pub found: Option<FoundFlow>,
    /// Packets, of whatever kind.
    pub packets: u64,
    /// Octets of UDP payload on the wire.
    pub octets: u64,
    /// Packets that the capture holds only in part.
    pub cut: u64,
    /// First and last packet.
    pub span: (Tai, Tai),
    /// The payload type that is measured.
    pub payload_type: u8,
    /// Packets that are no RTP.
    pub malformed: u64,
    /// RTCP packets.
    pub rtcp: u64,
    /// RTP packets of other payload types.
    pub other_payload_type: u64,
    /// Other senders to the same address.
    pub strangers: u64,
}

/// A flow that was analysed.
#[derive(Clone, Debug)]
pub struct Analysed {
    /// As the SDP describes it.
    pub described: Option<sdp::Flow>,
    /// Its measures.
    pub timing: timing::Flow,
    /// Its legs: as the SDP has them, or one.
    pub legs: Vec<LegSeen>,
    /// What shows whether another flow has the same packets; of flows that nothing describes.
    pub samples: Option<Samples>,
}

impl Analysed {
    pub(super) fn described(flow: &sdp::Flow, options: &Options) -> Self {
        Analysed {
            described: Some(flow.clone()),
            timing: timing::Flow::new(
                Subject::of(flow),
                clock_of(flow),
                flow.legs.len(),
                options.source,
                options.rules,
            ),
            legs: vec![LegSeen::default(); flow.legs.len().max(1)],
            samples: None,
        }
    }
    fn push(&mut self, packet: &Packet, payload_type: u8) {
        if let Some(samples) = &mut self.samples {
            samples.add(packet, payload_type);
        }
        self.timing.push(packet);
    }
    pub(super) fn finish(&mut self) {
        self.timing.finish();
    }
}

fn belongs(leg: &sdp::Leg, source: SocketAddr, destination: SocketAddr) -> bool {
    leg.destination == destination.ip()
        && leg.port == destination.port()
        && match &leg.sources {
            SourceFilter::Any => true,
            SourceFilter::Include(sources) => sources.contains(&source.ip()),
            SourceFilter::Exclude(sources) => !sources.contains(&source.ip()),
        }
}

/// Subject and clock of what was found, as far as it is media.
fn guess(found: &FoundFlow, kept: &[Kept]) -> Option<(Subject, MediaClock)> {
    let picture = |height, compressed| Picture {
        rate: None,
        width: None,
        height,
        scan: None,
        sender_type: None,
        troff_us: None,
        cmax: None,
        // UDP header included.
        max_udp: if found.octets / found.packets.max(1) > 1452 { 8960 } else { 1460 },
        compressed,
    };
    let clock = |rate| MediaClock { rate, offset: 0 };
    Some(match &found.essence {
        Essence::Video(v) => (Subject::Video(picture(v.height, false)), MediaClock::VIDEO),
        Essence::CompressedVideo => (Subject::Video(picture(1080, true)), MediaClock::VIDEO),
        Essence::Ancillary => {
            let lines = Lines::of(None, None);
            (Subject::Ancillary { rate: None, lines, model: None }, MediaClock::VIDEO)
        }
        Essence::Audio(a) | Essence::Aes3(a) => {
            (Subject::Audio { samples: Some(a.samples) }, clock(sampling_rate(kept)))
        }
        Essence::Sdi2022_6 => (Subject::Other, clock(27_000_000)),
        Essence::FastMetadata | Essence::TimedText | Essence::Rtp => (Subject::Other, MediaClock::VIDEO),
        Essence::Ptp | Essence::Rtcp | Essence::Udp => return None,
    })
}

/// The sampling rate nearest to the pace of the timestamps.
fn sampling_rate(kept: &[Kept]) -> u32 {
    let (Some(first), Some(last)) = (kept.first(), kept.last()) else { return 48_000 };
    let ns = u128::from(last.packet.arrival.0.saturating_sub(first.packet.arrival.0));
    let ticks = u128::from(last.packet.timestamp.wrapping_sub(first.packet.timestamp));
    let pace = (ticks * 1_000_000_000).checked_div(ns).unwrap_or(48_000);
    [44_100u32, 48_000, 96_000].into_iter().min_by_key(|r| u128::from(*r).abs_diff(pace)).unwrap_or(48_000)
}
