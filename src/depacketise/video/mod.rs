//! ST 2110-20 packets to placements.
//!
//! Each packet goes: headers ([`crate::wire`]), sequence ([`crate::track`]), frame (by timestamp and field bit), rows
//! and pgroups (`geometry`), coverage. Marker and timestamp say where frames end, the coverage when they are whole.

mod coverage;
mod ends;
mod frames;
mod geometry;
mod learn;
mod unused;

use super::Packet;
use crate::format::WireFormat;
use crate::plan::{Fate, MAX_OPEN, Placement, Plan, Step};
use crate::sdp::{Ratio, Scan};
use crate::stats::{PacketCounters, Reason};
use crate::time::{Tai, VIDEO_CLOCK, frame_nanos, half_frame_ticks};
use crate::track::{Sighting, Track, Verdict, WINDOW};
use crate::wire::{rtp, srd};
use ends::close_run;
use frames::{Found, Frames, Pairing, Query};
use geometry::{Geometry, Spot};
use learn::{Numbering, Order};
use std::time::Duration;

/// What a video depacketiser has to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The picture on the wire.
    pub format: WireFormat,
    /// RTP payload type.
    pub payload_type: u8,
    /// Frames a second, where known: pairs fields and sets times.
    pub rate: Option<Ratio>,
    /// Packets of later frames for which an incomplete frame stays open.
    pub reorder: u32,
    /// Without a packet for so long, a frame closes when [`super::Depacketiser::idle`] is called.
    pub idle: Duration,
    /// Sequence numbers that are remembered (see [`Track`]).
    pub window: usize,
}

impl Config {
    /// The defaults: 256 packets, two frame times (100 ms without a rate), [`WINDOW`].
    pub fn new(format: WireFormat, payload_type: u8, rate: Option<Ratio>) -> Self {
        let rate = rate.filter(|r| r.num > 0 && r.den > 0);
        let idle = rate.map_or(100_000_000, |r| 2 * frame_nanos(r));
        Config { format, payload_type, rate, reorder: 256, idle: Duration::from_nanos(idle), window: WINDOW }
    }
}

/// A run of packets of one sender with one clock.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    id: u32,
    numbering: Numbering,
    order: Order,
    frames: u32,
    last_closed: Option<u32>,
    /// Rows out of range while the numbering is not known: nobody's fault if it turns out to be another one.
    row_rejects: u64,
}

impl Epoch {
    fn new(id: u32, two_fields: bool) -> Self {
        let mut numbering = Numbering::default();
        if !two_fields {
            numbering.only_first();
        }
        Epoch { id, numbering, order: Order::STANDARD, frames: 0, last_closed: None, row_rejects: 0 }
    }
}

/// The frame of the packet before, so that most packets need not look for theirs.
#[derive(Clone, Copy, Debug)]
struct Current {
    timestamp: u32,
    f: usize,
    index: u8,
}

const NO_FRAME: u8 = u8::MAX;
const NONE: Current = Current { timestamp: 0, f: usize::MAX, index: NO_FRAME };

/// Depacketiser of one ST 2110-20 flow.
#[derive(Debug)]
pub struct Video {
    config: Config,
    geometry: Geometry,
    pairing: Pairing,
    track: Track,
    frames: Frames,
    current: Current,
    /// The field of the last packets that could open no frame: its bit and timestamp.
    unopened: Option<(usize, u32)>,
    /// Has a frame ever been opened?
    ever: bool,
    /// What epochs before have shown about rows and the order of fields.
    shown_rows: Option<[u32; 2]>,
    shown_second_first: bool,
    plan: Plan,
    /// The frame that placements since `run_start` belong to.
    run: u8,
    run_start: u32,
    /// Packets looked at.
    count: u64,
    /// When the oldest frame expires.
    next_expiry: u64,
    epoch: Epoch,
    /// The epoch before, while the present one is on trial.
    before: Epoch,
    epochs: u32,
}

impl Video {
    /// A depacketiser that has seen nothing. All its memory is taken here.
    pub fn new(config: Config) -> Self {
        let format = config.format;
        let geometry = Geometry::new(&format);
        let half = config.rate.map(|r| half_frame_ticks(r, VIDEO_CLOCK));
        let silence = config.rate.map_or(100_000_000, |r| 2 * frame_nanos(r));
        let epoch = Epoch::new(0, geometry.two_fields);
        let plan = Plan {
            steps: Vec::with_capacity(1024),
            placements: Vec::with_capacity(8192),
            missing: Vec::with_capacity(4 * format.rows() as usize),
        };
        Video {
            pairing: Pairing { two_fields: geometry.two_fields, half, second: 1 },
            track: Track::new(config.window, silence),
            frames: Frames::new(geometry.total()),
            current: NONE,
            unopened: None,
            ever: false,
            shown_rows: None,
            shown_second_first: false,
            plan,
            run: NO_FRAME,
            run_start: 0,
            count: 0,
            next_expiry: u64::MAX,
            epoch,
            before: epoch,
            epochs: 1,
            geometry,
            config,
        }
    }

    /// See [`super::Depacketiser::push`].
    pub fn push<'a>(&mut self, packets: impl Iterator<Item = Packet<'a>>) -> &Plan {
        self.plan.clear();
        self.run_start = 0;
        for packet in packets {
            self.packet(packet);
        }
        self.flush();
        &self.plan
    }

    /// See [`super::Depacketiser::idle`].
    pub fn idle(&mut self, now: Tai) -> &Plan {
        self.plan.clear();
        self.run_start = 0;
        let idle = i64::try_from(self.config.idle.as_nanos()).unwrap_or(i64::MAX);
        while self.frames.oldest().is_some_and(|o| now.since(o.last_arrival) > idle || o.coverage.remaining() == 0) {
            self.close_oldest();
        }
        self.settle();
        &self.plan
    }

    /// See [`super::Depacketiser::finish`].
    pub fn finish(&mut self) -> &Plan {
        self.plan.clear();
        self.run_start = 0;
        while let [index, later @ ..] = self.frames.order() {
            // Reception ended in the middle of the newest frame: nobody's fault.
            let (index, newest) = (*index, later.is_empty());
            let last_field = if self.geometry.two_fields { self.pairing.second } else { 0 };
            let open = self.frames.get(index);
            let cut = newest && open.ends[last_field].is_none() && open.coverage.remaining() > 0;
            self.close(index, cut.then_some(Fate::Acquiring));
        }
        self.track.finish();
        self.count_row_rejects();
        self.new_epoch();
        &self.plan
    }

    /// See [`super::Depacketiser::counters`].
    pub fn counters(&self) -> PacketCounters {
        let mut counters = *self.track.counters();
        counters.rejected.0[Reason::Row as usize] += self.epoch.row_rejects;
        counters
    }

    #[inline]
    fn packet(&mut self, p: Packet<'_>) {
        self.count += 1;
        let (header, srds) = match self.headers(&p) {
            Ok(headers) => headers,
            Err(reason) => return self.track.counters_mut().rejected.add(reason),
        };
        let verdict = self.track.see(Sighting {
            ssrc: header.ssrc,
            sequence: u32::from(srds.extended) << 16 | u32::from(header.sequence),
            timestamp: header.timestamp,
            arrival: p.arrival,
        });
        if verdict != Verdict::New && !self.turn(verdict) {
            return;
        }
        let f = usize::from(srds.first.field && self.geometry.two_fields);
        let index = if self.current.timestamp == header.timestamp && self.current.f == f {
            self.current.index
        } else {
            match self.look_for(&p, &header, &srds, f, verdict) {
                Some(index) => index,
                None => return,
            }
        };
        self.place(&p, &srds, index);
        if header.marker {
            self.marker(&srds, f, index, verdict);
        }
        if self.frames.get(index).coverage.remaining() == 0 || self.count >= self.next_expiry {
            self.settle();
        }
    }

    #[inline]
    fn headers<'a>(&self, p: &Packet<'a>) -> Result<(rtp::Header, srd::Srds<'a>), Reason> {
        let header = rtp::parse(p.head, usize::from(p.wire_octets)).map_err(|reason| unseen(p, reason))?;
        if header.payload_type != self.config.payload_type {
            return Err(Reason::PayloadType);
        }
        let srds = srd::parse(p.head, header.payload.clone()).map_err(|reason| unseen(p, reason))?;
        Ok((header, srds))
    }

    /// Places the segments of a packet in a frame.
    #[inline]
    fn place(&mut self, p: &Packet<'_>, srds: &srd::Srds<'_>, index: u8) {
        let open = self.frames.get(index);
        open.last_arrival = p.arrival;
        let mut at = srds.data_at;
        let mut placed = false;
        for segment in srds.iter() {
            let src = at;
            // The parser has checked that all lengths lie in the packet.
            at = at.wrapping_add(segment.length);
            let spot = match spot(&self.geometry, srds, &segment) {
                Ok(spot) => spot,
                Err(Reason::Row) if !self.epoch.numbering.is_known() => {
                    self.epoch.row_rejects += 1;
                    continue;
                }
                Err(reason) => {
                    self.track.counters_mut().rejected.add(reason);
                    continue;
                }
            };
            let mut count = spot.count;
            let mut len = segment.length;
            if at > p.octets {
                // Cut: whole pgroups that are present.
                count = self.geometry.pgroups(p.octets.saturating_sub(src));
                len = (count * self.geometry.pgroup_octets) as u16;
            }
            if open.coverage.fill(spot.pgroup, count) == 0 {
                continue;
            }
            if self.run != index {
                let end = self.plan.placements.len() as u32;
                close_run(&mut self.plan.steps, self.run, self.run_start, end);
                (self.run, self.run_start) = (index, end);
            }
            placed = true;
            let dst = spot.pgroup * self.geometry.pgroup_octets;
            self.plan.placements.push(Placement { slot: p.slot, dst, src, len });
        }
        open.packets += u32::from(placed);
        if at > p.octets {
            self.track.counters_mut().rejected.add(Reason::Truncated);
        }
    }

    /// A packet that is not the next one: is it to be looked at further?
    #[cold]
    fn turn(&mut self, verdict: Verdict) -> bool {
        match verdict {
            Verdict::New | Verdict::Reordered | Verdict::Duplicate => true,
            Verdict::Late | Verdict::Foreign => false,
            Verdict::Restart { aborted } => {
                if aborted {
                    self.discard_epoch();
                } else {
                    self.count_row_rejects();
                    self.before = self.epoch;
                }
                self.new_epoch();
                true
            }
            Verdict::Returned => {
                self.discard_epoch();
                self.enter(self.before);
                // Strays made it wait; it is the newest again.
                let id = self.epoch.id;
                let newest = self.frames.order().last().copied();
                if let Some(open) = newest.map(|i| self.frames.get(i)).filter(|o| o.epoch == id) {
                    open.expires = u64::MAX;
                }
                self.settle();
                true
            }
        }
    }

    fn new_epoch(&mut self) {
        (self.shown_rows, self.shown_second_first) = (self.first_rows(), self.second_field_first());
        let id = self.epochs;
        self.epochs = self.epochs.wrapping_add(1);
        self.enter(Epoch::new(id, self.geometry.two_fields));
    }

    fn enter(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        (self.current, self.unopened) = (NONE, None);
        self.geometry.first_row = epoch.numbering.first_row;
        self.pairing.second = epoch.order.second;
    }

    /// Strays: their frames are nobody's.
    fn discard_epoch(&mut self) {
        let epoch = self.epoch.id;
        while let Some(index) = self.frames.order().iter().copied().find(|i| self.frames_epoch(*i) == Some(epoch)) {
            self.close(index, Some(Fate::Acquiring));
        }
    }

    fn frames_epoch(&self, index: u8) -> Option<u32> {
        self.frames.peek(index).map(|o| o.epoch)
    }

    /// The frame of a packet that is not of the same field as the one before.
    #[cold]
    #[inline(never)]
    fn look_for(
        &mut self,
        p: &Packet<'_>,
        h: &rtp::Header,
        srds: &srd::Srds<'_>,
        f: usize,
        verdict: Verdict,
    ) -> Option<u8> {
        let newest = matches!(verdict, Verdict::New | Verdict::Returned | Verdict::Restart { .. });
        // Not so when packets of this field came before and could not open a frame.
        let begins = self.unopened != Some((f, h.timestamp));
        if newest
            && begins
            && self.config.format.scan == Scan::Interlaced
            && let Some(rate) = self.config.rate
        {
            self.epoch.order.observe(f, h.timestamp, p.arrival, rate);
            self.pairing.second = self.epoch.order.second;
        }
        let number = self.track.number();
        let query = Query {
            epoch: self.epoch.id,
            f,
            timestamp: h.timestamp,
            newest: newest.then_some(number),
            place: place_of(&srds.first),
        };
        let index = match self.frames.find(query, self.pairing) {
            Found::Open(index) => index,
            Found::Closed { whole } => {
                if !whole {
                    self.track.too_late(verdict);
                } else if verdict != Verdict::Duplicate {
                    self.refuse(p, srds);
                }
                self.settle_if_due();
                return None;
            }
            // The first copy may have been a bad one.
            Found::Nowhere if verdict == Verdict::Duplicate && begins => return None,
            Found::Nowhere => {
                let key = self.pairing.key(f, h.timestamp, self.config.format.scan == Scan::Psf);
                if !newest && self.epoch.last_closed.is_some_and(|last| !frames::older(last, key)) {
                    self.track.too_late(verdict);
                    return None;
                }
                if !self.fills(p, srds) {
                    self.opens_nothing(p, h, srds, f, verdict, newest, begins);
                    return None;
                }
                self.open(query, key, p.arrival)?
            }
        };
        let open = self.frames.get(index);
        if open.fields[f].is_none() {
            open.fields[f] = Some(h.timestamp);
            if f != self.pairing.second || !self.pairing.two_fields {
                open.key = h.timestamp;
            }
            if newest && begins {
                self.field_begins(f, srds);
            }
        }
        self.unopened = None;
        self.current = Current { timestamp: h.timestamp, f, index };
        Some(index)
    }

    /// The last packet of a frame, field or segment.
    #[cold]
    #[inline(never)]
    fn marker(&mut self, srds: &srd::Srds<'_>, f: usize, index: u8, verdict: Verdict) {
        // The next packet has another timestamp, or the same and is of another field or frame.
        self.current = NONE;
        if verdict == Verdict::Duplicate {
            return;
        }
        let number = self.track.number();
        self.frames.get(index).ends[f] = Some(frames::End { number, place: place_of(&srds.first) });
        self.field_ends(f, srds, verdict);
    }

    /// See [`super::Depacketiser::check_invariants`].
    ///
    /// # Panics
    /// When the state contradicts itself.
    pub fn check_invariants(&self) {
        self.track.check_invariants();
        self.frames.check_invariants();
        let frame = self.config.format.frame_octets();
        let row = self.config.format.row_octets();
        for p in &self.plan.placements {
            let len = u32::from(p.len);
            assert!(len > 0 && p.dst + len <= frame && p.dst % row + len <= row, "{p:?}");
        }
        let mut placed = 0;
        for step in &self.plan.steps {
            match step {
                Step::Open(id) => assert!(usize::from(id.0) < MAX_OPEN),
                Step::Place(id, range) => {
                    assert!(usize::from(id.0) < MAX_OPEN && range.start == placed && range.end > placed);
                    placed = range.end;
                }
                Step::Close(id, end) => {
                    assert!(usize::from(id.0) < MAX_OPEN);
                    let missing = &self.plan.missing[end.missing.start as usize..end.missing.end as usize];
                    assert!(end.fate != Fate::Incomplete || !missing.is_empty());
                    assert!(end.fate != Fate::Complete || missing.is_empty());
                    assert!(missing.iter().all(|m| m.len > 0 && m.octet + m.len <= row && (m.row + 1) * row <= frame));
                }
            }
        }
        assert_eq!(placed as usize, self.plan.placements.len());
    }
}

/// Headers that are cut although the packet is there whole: the ring splits it before their end.
fn unseen(p: &Packet<'_>, reason: Reason) -> Reason {
    if reason == Reason::Truncated && p.head.len() < usize::from(p.octets) { Reason::Split } else { reason }
}

/// Row and offset as one number that grows down the picture.
fn place_of(srd: &srd::Srd) -> u32 {
    u32::from(srd.row) << 16 | u32::from(srd.offset)
}

/// Where a segment of a packet belongs.
#[inline]
fn spot(geometry: &Geometry, srds: &srd::Srds<'_>, segment: &srd::Srd) -> Result<Spot, Reason> {
    match geometry.spot(segment) {
        Ok(_) if segment.field != srds.first.field => Err(Reason::Field),
        Ok(_) if segment.length == 0 && srds.count() > 1 => Err(Reason::SrdHeader),
        spot => spot,
    }
}
