//! A capture as a receiver: the packets of the joined legs, at full speed or at the pace of their recording.

use super::{Caps, Receiver, RxError, survey};
use crate::error::{Error, Kind, Result};
use crate::mem::{Host, Region};
use crate::ring::{Lease, SLACK, Slot, SplitRing};
use crate::sdp::{Leg, SourceFilter};
use crate::stats::{Reason, RxCounters};
use crate::time::Tai;
use crate::timing::Source;
use crate::wire::capture::{self, Capture};
use crate::wire::net::{self, Content, Datagram};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// When packets are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as they are asked for.
    Full,
    /// As they came, counted from the first one.
    Recorded,
}

/// Packets in a lease at most.
const BATCH: usize = 256;
/// Leases that can be out at once.
const AREAS: usize = 8;
/// Octets of the ring that one lease fills: a batch of standard datagrams and room for a largest one.
const AREA: usize = 512 << 10;
/// A datagram at most, and what kernels may read beyond.
const ROOM: usize = 65_536 + SLACK;
/// Records looked at in one poll before it says "nothing now".
const LOOK: usize = 1 << 16;

/// A time source for [`Pace::Recorded`]: any point, then the time since.
pub type Clock = Box<dyn FnMut() -> Duration + Send>;

/// A capture that is received.
pub struct Pcap {
    capture: Capture,
    path: PathBuf,
    legs: Vec<(u8, Leg)>,
    ring: SplitRing<Host>,
    free: Areas,
    /// Seconds from the capture's clock to TAI.
    offset: i64,
    pacer: Option<Pacer>,
    /// The end, or an error, that is told when everything before it has been.
    stop: Option<RxError>,
    ended: bool,
    counters: RxCounters,
    fragments: u64,
    caps: Caps,
}

impl Pcap {
    /// Opens a capture file; nothing is received before [`Receiver::join`].
    ///
    /// # Errors
    /// Those of [`Capture::open`], and no memory.
    pub fn open(path: &Path, pace: Pace) -> Result<Self> {
        let begun = Instant::now();
        Self::with_clock(path, pace, Box::new(move || begun.elapsed()))
    }
    /// As [`Pcap::open`], with another time source for [`Pace::Recorded`].
    ///
    /// # Errors
    /// As [`Pcap::open`].
    pub fn with_clock(path: &Path, pace: Pace, clock: Clock) -> Result<Self> {
        let how = match pace {
            Pace::Full => "at full speed",
            Pace::Recorded => "at its recorded pace",
        };
        Ok(Pcap {
            capture: Capture::open(path)?,
            path: path.to_owned(),
            legs: Vec::new(),
            ring: SplitRing::whole(Region::host(AREAS * AREA)?),
            free: Areas::new(),
            offset: 0,
            pacer: (pace == Pace::Recorded).then(|| Pacer { clock, begin: None, held: None, octets: Vec::new() }),
            stop: None,
            ended: false,
            counters: RxCounters::default(),
            fragments: 0,
            caps: Caps {
                backend: "pcap",
                notes: vec![format!("{} {how}", path.display())],
                batch: BATCH,
                buffer_octets: 0,
                live: false,
                stamps: Source::Capture,
            },
        })
    }
    /// Seconds to add to the capture's times to get TAI: 0 when its clock ran on TAI, 37 when it ran on UTC (since
    /// 2017). For packets that are still to be received.
    pub fn set_offset(&mut self, seconds: i64) {
        self.offset = seconds;
    }
    /// What was met in the file: records cut by a snap length, whether its end is missing.
    pub fn capture_counters(&self) -> capture::Counters {
        self.capture.counters()
    }
    /// Fragments of IP packets, which are not put together.
    pub fn fragments(&self) -> u64 {
        self.fragments
    }

    /// Reads on to the next packet of a joined leg and copies it to `at`; `None` when there is none, or none soon.
    fn next_packet(&mut self, at: usize) -> Option<Slot> {
        for _ in 0..LOOK {
            let record = match self.capture.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => {
                    self.stop = Some(RxError::End);
                    return None;
                }
                Err(e) => {
                    self.stop = Some(RxError::Failed(e));
                    return None;
                }
            };
            let datagram = match net::parse(record.link, record.octets) {
                Content::Udp(datagram) => datagram,
                Content::Fragment => {
                    self.fragments += 1;
                    continue;
                }
                _ => continue,
            };
            let leg = match leg_of(&self.legs, &datagram) {
                Some(Ok(leg)) => leg,
                Some(Err(reason)) => {
                    self.counters.rejected.add(reason);
                    continue;
                }
                None => continue,
            };
            let payload = record.octets.get(datagram.payload.clone()).unwrap_or_default();
            let place = self.ring.head_plane_mut().as_mut_slice().get_mut(at..at + payload.len())?;
            place.copy_from_slice(payload);
            let octets = payload.len() as u16;
            return Some(Slot {
                head_at: at as u32,
                body_at: 0,
                head: octets,
                octets,
                wire_octets: datagram.octets,
                leg,
                arrival: Tai(record.time.saturating_add_signed(self.offset.saturating_mul(1_000_000_000))),
            });
        }
        None
    }

    /// The next packet that is due, at `at`.
    fn next_due(&mut self, at: usize, now: Option<Duration>) -> Option<Slot> {
        if let Some(slot) = self.pacer.as_mut().and_then(|p| p.held.take()) {
            let octets = self.pacer.as_ref().map(|p| p.octets.as_slice()).unwrap_or_default();
            self.ring.head_plane_mut().as_mut_slice().get_mut(at..at + octets.len())?.copy_from_slice(octets);
            let slot = Slot { head_at: at as u32, ..slot };
            return self.if_due(slot, now);
        }
        let slot = self.next_packet(at)?;
        self.if_due(slot, now)
    }

    fn if_due(&mut self, slot: Slot, now: Option<Duration>) -> Option<Slot> {
        let (Some(pacer), Some(now)) = (&mut self.pacer, now) else { return Some(slot) };
        let (begin, first) = *pacer.begin.get_or_insert((now, slot.arrival));
        let after = Duration::from_nanos(u64::try_from(slot.arrival.since(first)).unwrap_or(0));
        if now.saturating_sub(begin) >= after {
            return Some(slot);
        }
        pacer.octets.clear();
        pacer.octets.extend_from_slice(self.ring.head(&slot));
        pacer.held = Some(slot);
        None
    }

    /// The capture holds nothing of the joined legs: an error that says what it does hold.
    fn nothing_for_us(&self) -> Error {
        let mut what = format!("{} holds no packet for ", self.path.display());
        for (n, (_, leg)) in self.legs.iter().enumerate() {
            what += if n == 0 { "" } else { " nor for " };
            what += &std::net::SocketAddr::new(leg.destination, leg.port).to_string();
        }
        let rejected = self.counters.rejected.get(Reason::Source);
        if rejected > 0 {
            what += &format!(" from the sources that the SDP allows ({rejected} from others)");
        }
        match survey::survey(&self.path, Some(1_000_000)) {
            Ok(survey) if survey.flows.is_empty() => what += ", and no UDP flow at all",
            Ok(survey) => {
                what += "; it holds:";
                for flow in survey.flows.iter().take(20) {
                    what += &format!("\n  {flow}");
                }
                if survey.flows.len() > 20 {
                    what += &format!("\n  and {} more", survey.flows.len() - 20);
                }
            }
            Err(_) => {}
        }
        Error::new(Kind::Data, what).cure("use the SDP of one of its flows, or the capture of this one")
    }
}

impl Receiver for Pcap {
    type Mem = Host;
    fn ring(&self) -> &SplitRing<Host> {
        &self.ring
    }
    fn poll(&mut self) -> std::result::Result<Lease, RxError> {
        self.counters.calls += 1;
        if self.stop.is_none() && !self.ended {
            let Some((area, mut slots)) = self.free.take() else {
                self.counters.starved += 1;
                return Ok(Lease::new(Vec::new(), NO_AREA));
            };
            let begin = area as usize * AREA;
            let mut at = begin;
            let now = self.pacer.as_mut().map(|p| (p.clock)());
            while slots.len() < BATCH && at + ROOM <= begin + AREA {
                let Some(slot) = self.next_due(at, now) else { break };
                at += usize::from(slot.octets).next_multiple_of(SLACK);
                self.counters.datagrams += 1;
                self.counters.octets += u64::from(slot.octets);
                self.counters.cut += u64::from(slot.octets < slot.wire_octets);
                slots.push(slot);
            }
            if self.stop.is_none() || !slots.is_empty() {
                return Ok(Lease::new(slots, area));
            }
            self.free.give(area, slots);
        }
        self.ended = true;
        match self.stop.take() {
            Some(RxError::End) if self.counters.datagrams == 0 && !self.legs.is_empty() => {
                Err(RxError::Failed(self.nothing_for_us()))
            }
            Some(stop) => Err(stop),
            None => Err(RxError::End),
        }
    }
    fn release(&mut self, lease: Lease) {
        self.free.give(lease.token, lease.slots);
    }
    fn caps(&self) -> &Caps {
        &self.caps
    }
    fn join(&mut self, leg: u8, what: &Leg) -> Result<()> {
        self.legs.push((leg, what.clone()));
        Ok(())
    }
    fn counters(&self) -> RxCounters {
        self.counters
    }
    fn finish(&mut self, remarks: &mut Vec<String>) -> Result<()> {
        // What a user would not see in the counters.
        let met = self.capture.counters();
        if met.cut_short {
            remarks.push("the capture ends within a record: it was cut short, and used up to there".into());
        }
        for (count, what) in [
            (met.snapped, "records were cut by the capture's snap length; what they lack is in the loss maps"),
            (met.other_link, "records are of link types that are not read here"),
            (self.fragments, "fragments of IP packets were passed over"),
        ] {
            if count > 0 {
                remarks.push(format!("{count} {what}"));
            }
        }
        Ok(())
    }
}

/// The leg that a datagram belongs to; a reason when only its sender does not fit; `None` when it is of no leg.
fn leg_of(legs: &[(u8, Leg)], datagram: &Datagram) -> Option<std::result::Result<u8, Reason>> {
    let mut found = None;
    for (number, leg) in legs {
        if leg.port == datagram.destination.port() && leg.destination == datagram.destination.ip() {
            if allows(&leg.sources, datagram.source.ip()) {
                return Some(Ok(*number));
            }
            found = Some(Err(Reason::Source));
        }
    }
    found
}

fn allows(filter: &SourceFilter, source: IpAddr) -> bool {
    match filter {
        SourceFilter::Any => true,
        SourceFilter::Include(only) => only.contains(&source),
        SourceFilter::Exclude(not) => !not.contains(&source),
    }
}

/// What [`Pace::Recorded`] needs.
struct Pacer {
    clock: Clock,
    /// By the clock and by the capture, when the first packet was handed over.
    begin: Option<(Duration, Tai)>,
    /// The packet that is not due yet, and its octets.
    held: Option<Slot>,
    octets: Vec<u8>,
}

/// Token of a lease without memory.
const NO_AREA: u32 = u32::MAX;

/// The parts of the ring that no lease holds, each with an empty list for its slots.
struct Areas([Option<Vec<Slot>>; AREAS]);

impl Areas {
    fn new() -> Self {
        Areas(std::array::from_fn(|_| Some(Vec::with_capacity(BATCH))))
    }
    fn take(&mut self) -> Option<(u32, Vec<Slot>)> {
        self.0.iter_mut().enumerate().find_map(|(n, area)| area.take().map(|slots| (n as u32, slots)))
    }
    fn give(&mut self, token: u32, mut slots: Vec<Slot>) {
        if let Some(area) = self.0.get_mut(token as usize) {
            slots.clear();
            *area = Some(slots);
        }
    }
}

#[cfg(test)]
mod tests;
