//! A capture to be sent again: its packets in memory, and how they go on after the last one.

use crate::error::{Error, Kind, Result};
use crate::wire::capture::Capture;
use crate::wire::net::{self, Content};
use crate::wire::{rtp, srd};
use gdmedia_sdp::{Essence, Flow};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;

/// Octets of packets that are held in memory at most.
const MAX_OCTETS: usize = 4 << 30;

/// One packet of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Nanoseconds since the first packet.
    pub time: u64,
    /// Its octets in [`Recording::octets`].
    pub place: Range<usize>,
    /// The leg it came by.
    pub leg: u8,
}

/// The packets of one flow.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// In the order of the capture.
    pub packets: Vec<Recorded>,
    /// Payloads of all packets.
    pub octets: Vec<u8>,
    /// Nanoseconds since 1970 of the first packet by the capture's clock.
    pub start: u64,
    /// Where its packets went, one a leg.
    pub destinations: Vec<SocketAddr>,
    /// Packets whose end a snap length cut off; it is zeros.
    pub snapped: u64,
    /// Octets 12 and 13 of every packet are the high half of the sequence number.
    pub extended: bool,
}

/// Which packets of a capture.
#[derive(Clone, Debug)]
pub enum Choose<'a> {
    /// Those of an SDP's flow.
    Flow(&'a Flow),
    /// Those of the flow with this number, in the order of first packets.
    Number(usize),
    /// Those of the only RTP flow.
    Only,
}

impl Recording {
    /// Reads a capture.
    ///
    /// # Errors
    /// It is no capture, holds no packet of the flow (lists what it holds), or more than fits into memory.
    pub fn open(path: &Path, choose: &Choose<'_>) -> Result<Self> {
        let wanted = match choose {
            Choose::Flow(flow) => flow.legs.iter().map(|l| SocketAddr::new(l.destination, l.port)).collect(),
            Choose::Number(_) | Choose::Only => vec![pick(path, choose)?],
        };
        let mut recording = Recording { destinations: wanted, ..Recording::default() };
        let mut capture = Capture::open(path)?;
        while let Some(record) = capture.next_record()? {
            let Content::Udp(datagram) = net::parse(record.link, record.octets) else { continue };
            let Some(leg) = recording.destinations.iter().position(|d| *d == datagram.destination) else { continue };
            let payload = record.octets.get(datagram.payload.clone()).unwrap_or_default();
            if payload.len() < rtp::HEADER {
                continue;
            }
            if recording.packets.is_empty() {
                recording.start = record.time;
            }
            let begin = recording.octets.len();
            recording.octets.extend_from_slice(payload);
            recording.octets.resize(begin + usize::from(datagram.octets), 0);
            recording.snapped += u64::from(datagram.truncated());
            recording.packets.push(Recorded {
                // A capture may go back in time by a little; a packet does not leave before the one in front of it.
                time: record.time.saturating_sub(recording.start).max(recording.packets.last().map_or(0, |p| p.time)),
                place: begin..recording.octets.len(),
                leg: leg as u8,
            });
            if recording.octets.len() > MAX_OCTETS {
                return Err(Error::new(
                    Kind::Data,
                    format!("{} holds more than {} GiB of this flow", path.display(), MAX_OCTETS >> 30),
                )
                .cure("cut a part out of it, for example: editcap -c 1000000 IN OUT"));
            }
        }
        if recording.packets.is_empty() {
            return Err(Error::new(
                Kind::Data,
                format!("{} holds no packet of this flow; it holds:{}", path.display(), list(path)?),
            )
            .cure("choose one of these with --flow N, or give the SDP of the capture"));
        }
        recording.extended = match choose {
            Choose::Flow(flow) => matches!(flow.essence, Essence::Video(_) | Essence::Ancillary(_)),
            _ => recording
                .packets
                .iter()
                .take(1000)
                .all(|p| is_video(recording.octets.get(p.place.clone()).unwrap_or_default())),
        };
        Ok(recording)
    }

    pub(super) fn timestamp(&self, packet: &Recorded) -> u32 {
        self.field::<4>(packet, 4).map_or(0, u32::from_be_bytes)
    }

    fn sequence(&self, packet: &Recorded) -> u32 {
        let low = self.field::<2>(packet, 2).map_or(0, u16::from_be_bytes);
        let high = if self.extended { self.field::<2>(packet, 12).map_or(0, u16::from_be_bytes) } else { 0 };
        u32::from(high) << 16 | u32::from(low)
    }

    fn field<const N: usize>(&self, packet: &Recorded, at: usize) -> Option<[u8; N]> {
        self.octets.get(packet.place.clone())?.get(at..)?.first_chunk().copied()
    }

    /// Runs of packets of one leg with one timestamp.
    fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for (index, packet) in self.packets.iter().enumerate().filter(|(_, p)| p.leg == 0) {
            let timestamp = self.timestamp(packet);
            match groups.last_mut() {
                Some(g) if g.timestamp == timestamp => {
                    g.count += 1;
                    g.end = index + 1;
                }
                _ => {
                    let second = self.extended && self.field::<1>(packet, 16).is_some_and(|[o]| o & 0x80 != 0);
                    groups.push(Group { timestamp, count: 1, begin: index, end: index + 1, second });
                }
            }
        }
        groups
    }

    /// Leaves whole frames only, and says how a repetition goes on; `clock_rate` is the RTP clock's where it is known.
    ///
    /// # Errors
    /// Fewer than two frames are whole.
    pub fn seamless(&mut self, clock_rate: Option<u32>) -> Result<Repeat> {
        let mut groups = self.groups();
        let too_short = || {
            Error::new(Kind::Data, "the capture is too short to be repeated: it has not two whole frames")
                .cure("send it once (leave --loop out), or record more")
        };
        // The recording began and ended anywhere: what lies between first and last timestamp is whole.
        let usual = groups.get(1).map(|g| g.count).ok_or_else(too_short)?;
        if groups.first().is_some_and(|g| g.count < usual) {
            groups.remove(0);
        }
        if groups.last().is_some_and(|g| g.count < usual) {
            groups.pop();
        }
        if groups.iter().any(|g| g.second) {
            while groups.first().is_some_and(|g| g.second) {
                groups.remove(0);
            }
            while groups.last().is_some_and(|g| !g.second) {
                groups.pop();
            }
        }
        let (Some(first), Some(last)) = (groups.first(), groups.last()) else { return Err(too_short()) };
        let steps = groups.len() as u64;
        let between = u64::from(last.timestamp.wrapping_sub(first.timestamp));
        if steps < 2 || between == 0 {
            return Err(too_short());
        }
        let ticks = between * steps / (steps - 1);
        let (begin, end) = (first.begin, last.end);
        // Copies of the other leg that belong to the frames that stay.
        let numbers = (self.sequence(&self.packets[begin]), self.sequence(&self.packets[end - 1]));
        let kept: Vec<Recorded> = self
            .packets
            .iter()
            .enumerate()
            .filter(|(index, p)| {
                if p.leg == 0 {
                    (begin..end).contains(index)
                } else {
                    let bits = if self.extended { 0 } else { 16 };
                    let from = self.sequence(p).wrapping_sub(numbers.0) << bits;
                    from <= numbers.1.wrapping_sub(numbers.0) << bits
                }
            })
            .map(|(_, p)| p.clone())
            .collect();
        let span = numbers.1.wrapping_sub(numbers.0).wrapping_add(1);
        self.packets = kept;
        let zero = self.packets.first().map_or(0, |p| p.time);
        self.start += zero;
        self.packets.iter_mut().for_each(|p| p.time -= zero);
        let took = self.packets.last().map_or(0, |p| p.time);
        let rate = clock_rate.unwrap_or_else(|| guess_rate(between, took));
        let period_ns = (u128::from(ticks) * 1_000_000_000 / u128::from(rate.max(1))) as u64;
        Ok(Repeat { sequence: span, ticks: ticks as u32, period_ns: period_ns.max(took), clock_rate: rate })
    }

    /// Adds to sequence number and timestamp of every packet.
    pub fn advance(&mut self, sequence: u32, ticks: u32) {
        for packet in &self.packets {
            let number = self.sequence(packet).wrapping_add(sequence);
            let timestamp = self.timestamp(packet).wrapping_add(ticks);
            let Some(octets) = self.octets.get_mut(packet.place.clone()) else { continue };
            if let Some(low) = octets.get_mut(2..4) {
                low.copy_from_slice(&(number as u16).to_be_bytes());
            }
            if let Some(time) = octets.get_mut(4..8) {
                time.copy_from_slice(&timestamp.to_be_bytes());
            }
            if self.extended
                && let Some(high) = octets.get_mut(12..14)
            {
                high.copy_from_slice(&((number >> 16) as u16).to_be_bytes());
            }
        }
    }

    /// The RTP clock's rate, guessed from timestamps and times.
    pub fn clock_rate(&self) -> u32 {
        let (Some(first), Some(last)) = (self.packets.first(), self.packets.last()) else { return 90_000 };
        guess_rate(u64::from(self.timestamp(last).wrapping_sub(self.timestamp(first))), last.time)
    }
}

struct Group {
    timestamp: u32,
    count: usize,
    begin: usize,
    end: usize,
    second: bool,
}

/// How a recording goes on after its last packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// Added to sequence numbers.
    pub sequence: u32,
    /// Added to timestamps.
    pub ticks: u32,
    /// After this time the next round begins.
    pub period_ns: u64,
    /// Ticks a second.
    pub clock_rate: u32,
}

/// The RTP clock that fits best.
fn guess_rate(ticks: u64, ns: u64) -> u32 {
    if ns == 0 {
        return 90_000;
    }
    let measured = ticks as f64 * 1e9 / ns as f64;
    let distance = |rate: u32| (measured / f64::from(rate)).ln().abs();
    let rates = [90_000, 48_000, 96_000, 44_100, 27_000_000, 1000];
    rates.into_iter().min_by(|a, b| distance(*a).total_cmp(&distance(*b))).unwrap_or(90_000)
}

/// Looks like ST 2110-20: SRD headers whose lengths fill the packet.
fn is_video(packet: &[u8]) -> bool {
    let total = packet.len();
    rtp::parse(packet, total)
        .and_then(|h| srd::parse(packet, h.payload.clone()).map(|s| (h, s)))
        .is_ok_and(|(h, s)| s.data_octets > 0 && u32::from(s.data_at) + s.data_octets == u32::from(h.payload.end))
}

/// Destinations with RTP packets, in the order of their first packets, and how many packets.
fn flows(path: &Path) -> Result<Vec<(SocketAddr, u64)>> {
    let mut capture = Capture::open(path)?;
    let mut flows: Vec<(SocketAddr, u64)> = Vec::new();
    let mut known = HashMap::new();
    while let Some(record) = capture.next_record()? {
        let Content::Udp(datagram) = net::parse(record.link, record.octets) else { continue };
        let payload = record.octets.get(datagram.payload.clone()).unwrap_or_default();
        // RTCP, PTP and whatever else is not RTP stays out.
        if rtp::parse(payload, datagram.octets.into()).is_ok_and(|h| !(72..=76).contains(&h.payload_type)) {
            let index = *known.entry(datagram.destination).or_insert_with(|| {
                flows.push((datagram.destination, 0));
                flows.len() - 1
            });
            if let Some(flow) = flows.get_mut(index) {
                flow.1 += 1;
            }
        }
    }
    Ok(flows)
}

fn list(path: &Path) -> Result<String> {
    let flows = flows(path)?;
    if flows.is_empty() {
        return Ok(" no RTP at all".into());
    }
    Ok(flows.iter().enumerate().map(|(n, (to, packets))| format!("\n  {n}: {to}, {packets} packets")).collect())
}

fn pick(path: &Path, choose: &Choose<'_>) -> Result<SocketAddr> {
    let flows = flows(path)?;
    match (choose, flows.as_slice()) {
        (Choose::Number(n), _) if *n < flows.len() => Ok(flows[*n].0),
        (Choose::Only, [only]) => Ok(only.0),
        (_, []) => Err(Error::new(Kind::Data, format!("{} holds no RTP packet", path.display()))
            .cure("give a capture of an ST 2110 flow")),
        _ => Err(Error::new(Kind::Usage, format!("which flow of {}? It holds:{}", path.display(), list(path)?))
            .cure("choose one of these with --flow N, or give its SDP with --sdp")),
    }
}
