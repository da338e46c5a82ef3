//! Counters. The hot path adds to them and does nothing else; a reader takes copies.

use crate::time::Tai;
use serde::Serialize;

/// Why a datagram, or a segment in it, was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Reason {
    /// Sent by an address that the source filter excludes.
    Source,
    /// RTP version is not 2.
    Version,
    /// Another payload type than the SDP's (RTCP too).
    PayloadType,
    /// A second sender on the same address and port.
    Ssrc,
    /// Shorter than its own headers say, or an RTP padding that does not fit.
    Length,
    /// Sample row data header that the standard does not allow: no whole pgroup, lengths that exceed the payload.
    SrdHeader,
    /// Row beyond the raster.
    Row,
    /// Offset that is no pgroup boundary or beyond the row.
    Offset,
    /// Segment that passes the row's end.
    Segment,
    /// Field bit set in a progressive stream.
    Field,
    /// Datagram larger than its slot (cut by the receiver or by a capture's snap length).
    Truncated,
    /// Headers that reach beyond the part of the packet that the CPU sees: its receiver splits packets too early.
    Split,
}

impl Reason {
    /// How many there are.
    pub const COUNT: usize = 12;
    /// All of them, in order.
    pub const ALL: [Reason; Self::COUNT] = [
        Reason::Source,
        Reason::Version,
        Reason::PayloadType,
        Reason::Ssrc,
        Reason::Length,
        Reason::SrdHeader,
        Reason::Row,
        Reason::Offset,
        Reason::Segment,
        Reason::Field,
        Reason::Truncated,
        Reason::Split,
    ];
    /// Name in JSON and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Source => "source",
            Reason::Version => "version",
            Reason::PayloadType => "payload_type",
            Reason::Ssrc => "ssrc",
            Reason::Length => "length",
            Reason::SrdHeader => "srd_header",
            Reason::Row => "row",
            Reason::Offset => "offset",
            Reason::Segment => "segment",
            Reason::Field => "field",
            Reason::Truncated => "truncated",
            Reason::Split => "split",
        }
    }
}

/// Rejections by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rejected(pub [u64; Reason::COUNT]);

impl Rejected {
    /// One more.
    #[inline]
    pub fn add(&mut self, reason: Reason) {
        self.0[reason as usize] += 1;
    }
    /// Of one reason.
    pub const fn get(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }
    /// Of all reasons.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
    /// Those that came after an earlier count.
    #[must_use]
    pub fn since(&self, earlier: &Rejected) -> Rejected {
        Rejected(std::array::from_fn(|n| self.0[n].saturating_sub(earlier.0[n])))
    }
    /// The reason that there are most of, and how many; none when there is none.
    pub fn most(&self) -> Option<(Reason, u64)> {
        Reason::ALL.map(|reason| (reason, self.get(reason))).into_iter().filter(|(_, n)| *n > 0).max_by_key(|(_, n)| *n)
    }
}

impl Serialize for Rejected {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(Reason::ALL.iter().map(|r| (r.name(), self.get(*r))))
    }
}

/// What a receiver (socket, capture …) counts, before RTP is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RxCounters {
    /// Datagrams handed over.
    pub datagrams: u64,
    /// UDP payload octets of these.
    pub octets: u64,
    /// Datagrams that the operating system dropped because the socket buffer was full: the machine's loss, not the network's.
    /// Exact for single datagrams; merged ones are reckoned from how many were merged lately, for the system counts those
    /// that it merged as one.
    pub kernel_dropped: u64,
    /// Receive calls, to judge batching.
    pub calls: u64,
    /// Datagrams that came merged with others (GRO).
    pub merged: u64,
    /// Datagrams of these whose end is missing (a capture's snap length): what is there is used.
    pub cut: u64,
    /// Polls that found no free memory because too many leases were out: the reader is too slow.
    pub starved: u64,
    /// Runs of datagrams among which a network card found a wrong checksum: they are handed over.
    pub checksum_issues: u64,
    /// Completions that a network card gave with an error: their datagrams are lost.
    pub hardware_issues: u64,
    /// Datagrams that were overwritten in the ring while they were being read, or may have been: the reader is slower than
    /// the ring comes round. Only of rings that are overwritten in time.
    pub overwritten: u64,
    /// Datagrams not handed over, by reason.
    pub rejected: Rejected,
}

impl std::ops::Add for RxCounters {
    type Output = Self;
    /// Of two receivers together.
    fn add(mut self, other: Self) -> Self {
        let RxCounters {
            datagrams,
            octets,
            kernel_dropped,
            calls,
            merged,
            cut,
            starved,
            checksum_issues,
            hardware_issues,
            overwritten,
            rejected,
        } = other;
        self.datagrams += datagrams;
        self.octets += octets;
        self.kernel_dropped += kernel_dropped;
        self.calls += calls;
        self.merged += merged;
        self.cut += cut;
        self.starved += starved;
        self.checksum_issues += checksum_issues;
        self.hardware_issues += hardware_issues;
        self.overwritten += overwritten;
        self.rejected.0.iter_mut().zip(rejected.0).for_each(|(sum, one)| *sum += one);
        self
    }
}

/// What the sequence says (RFC 3550, 32 bits with RFC 4175's extension): `sent = received + lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PacketCounters {
    /// Packets of the flow that came in time, each counted once.
    pub received: u64,
    /// Packets that did not come in time; a `late` one stays in here.
    pub lost: u64,
    /// Packets that came after they had been counted as lost, or after their frame had closed.
    pub late: u64,
    /// Further copies of a packet by the leg that had brought it before; copies by other legs are what these are for, see
    /// [`LegCounters::redundant`].
    pub duplicate: u64,
    /// Packets that came after one with a higher number by the same leg.
    pub reordered: u64,
    /// Times that the sender started anew (SSRC, sequence, timestamp).
    pub restarts: u64,
    /// Packets or segments that were not used, by reason.
    pub rejected: Rejected,
}

impl PacketCounters {
    /// With what was counted before.
    #[must_use]
    pub fn and(mut self, before: &PacketCounters) -> Self {
        let PacketCounters { received, lost, late, duplicate, reordered, restarts, rejected } = before;
        self.received += received;
        self.lost += lost;
        self.late += late;
        self.duplicate += duplicate;
        self.reordered += reordered;
        self.restarts += restarts;
        for (sum, n) in self.rejected.0.iter_mut().zip(&rejected.0) {
            *sum += n;
        }
        self
    }
}

/// What became of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FrameCounters {
    /// With every octet.
    pub complete: u64,
    /// With a loss map that is not empty.
    pub incomplete: u64,
    /// Of the incomplete ones: those with octets that came and were overwritten before they were read for good.
    pub torn: u64,
    /// Not whole because reception began or ended in the middle of it.
    pub acquiring: u64,
    /// Whole or not, not delivered because this machine is too slow; apart from loss. They are dropped where they open, as a
    /// whole, and counted when they close: `shed`, `no_memory`, and the rest when a GPU was lost. What sinks do not take is
    /// counted by their queues.
    pub dropped: u64,
    /// Of the dropped ones: those that got no memory so that reception could catch up.
    pub shed: u64,
    /// Of the dropped ones: those that found no frame memory free, since sinks held it.
    pub no_memory: u64,
    /// Incomplete ones that were not delivered because only whole frames are wanted.
    pub withheld: u64,
    /// Octets missing in incomplete frames.
    pub missing_octets: u64,
    /// Of those that were delivered: windows of the ring, which were not copied.
    pub windows: u64,
}

/// How busy a pipeline is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Busy {
    /// Time in the kernel and in handing frames on, in nanoseconds.
    pub kernel_ns: u64,
    /// How far reading lies behind what arrives, in nanoseconds; 0 when everything has been read.
    pub lag_ns: u64,
    /// Frames are being shed.
    pub shedding: bool,
}

/// What one leg of a flow brought (ST 2022-7:2019): `sent = received + lost`, and `received = used + redundant`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LegCounters {
    /// Datagrams that came by this leg, whatever they were.
    pub datagrams: u64,
    /// Packets of the flow that it brought in time, each counted once.
    pub received: u64,
    /// Packets of the flow that it did not bring in time; a `late` one stays in here. Charged when nothing waits for the
    /// packet any more, whichever leg brought it, never at the first gap.
    pub lost: u64,
    /// Packets that it brought after they had been counted as lost, or after their frame had closed.
    pub late: u64,
    /// Further copies by this same leg.
    pub duplicate: u64,
    /// Packets that came after one with a higher number by this leg.
    pub reordered: u64,
    /// Of the received: those that no other leg had brought before.
    pub used: u64,
    /// Of the received: those that another leg had brought before.
    pub redundant: u64,
    /// Times that its sender started anew.
    pub restarts: u64,
    /// Packets of another sender than the one that is followed.
    pub foreign: u64,
    /// How far it lies behind the leg that brings packets first.
    pub skew: Skew,
    /// Arrival of its last packet of the flow, in nanoseconds of the clock of the arrivals; none before the first.
    pub last_arrival: Option<Tai>,
}

/// Copies of packets by different legs, compared whole (ST 2022-7:2019 clause 6 wants them to be equal).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LegComparison {
    /// Copies that were compared with the first one of the same packet.
    pub compared: u64,
    /// Of these: those that differ. The first copy is used.
    pub different: u64,
    /// The first that differs.
    pub first: Option<LegDifference>,
}

/// A copy that differs from the first one of the same packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LegDifference {
    /// Its arrival.
    pub at: Tai,
    /// The leg that it came by, counted from 0.
    pub leg: u8,
    /// The leg by which the first copy came.
    pub first_leg: u8,
    /// Its sequence number, with the high half of ST 2110-20.
    pub sequence: u32,
    /// Its RTP timestamp.
    pub timestamp: u32,
}

impl LegCounters {
    /// With what was counted before.
    #[must_use]
    pub fn and(mut self, before: &LegCounters) -> Self {
        let LegCounters { datagrams, received, lost, late, duplicate, reordered, used, redundant, .. } = before;
        self.datagrams += datagrams;
        self.received += received;
        self.lost += lost;
        self.late += late;
        self.duplicate += duplicate;
        self.reordered += reordered;
        self.used += used;
        self.redundant += redundant;
        self.restarts += before.restarts;
        self.foreign += before.foreign;
        self.skew = self.skew.and(&before.skew);
        self.last_arrival = self.last_arrival.or(before.last_arrival);
        self
    }
}

/// Arrival of a copy minus the arrival of the first copy of the same packet, in nanoseconds: over some of the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Skew {
    /// Copies that were measured; of none the rest is 0.
    pub samples: u64,
    /// The last one.
    pub last_ns: i64,
    /// The smallest one.
    pub min_ns: i64,
    /// The largest one.
    pub max_ns: i64,
}

impl Skew {
    /// With what was measured before.
    #[must_use]
    pub fn and(self, before: &Skew) -> Self {
        match (self.samples, before.samples) {
            (_, 0) => self,
            (0, _) => *before,
            _ => Skew {
                samples: self.samples + before.samples,
                last_ns: self.last_ns,
                min_ns: self.min_ns.min(before.min_ns),
                max_ns: self.max_ns.max(before.max_ns),
            },
        }
    }
    /// One more copy.
    pub fn add(&mut self, ns: i64) {
        self.min_ns = if self.samples == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = if self.samples == 0 { ns } else { self.max_ns.max(ns) };
        self.last_ns = ns;
        self.samples += 1;
    }
}
