//! ST 2110-20 packets to placements.
//!
//! Each packet goes: headers ([`crate::wire`]), sequence ([`crate::track`], [`crate::merge`]), frame (by timestamp and
//! field bit), rows and pgroups (`geometry`), coverage. Marker and timestamp say where frames end, the coverage when they
//! are whole.
//!
//! Frames are delivered in order, whole ones at once. One that is not whole is waited for: of one leg for some packets of
//! later frames; of several legs for as long as these may lie apart, counted from the first packet of any later frame.

mod config;
mod coverage;
mod ends;
mod frames;
mod geometry;
mod learn;
mod several;
mod unused;

pub use config::Config;

use super::Packet;
use crate::event::Event;
use crate::format::WireFormat;
use crate::merge::{MAX_LEGS, Merge, Sequence};
use crate::plan::{Fate, MAX_OPEN, Missing, Placement, Plan, Step};
use crate::sdp::Scan;
use crate::stats::{LegCounters, PacketCounters, Reason, Rejected};
use crate::time::{Tai, VIDEO_CLOCK, frame_ticks, half_frame_ticks};
use crate::track::{Sighting, Verdict};
use crate::wire::{rtp, srd};
use ends::{Why, close_run};
use frames::{Found, Frames, Pairing, Query};
use geometry::{Geometry, Spot};
use learn::{Numbering, Order};
use several::Pace;
use std::time::Duration;

/// A run of packets of one sender with one clock.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// The sequence's.
    id: u64,
    numbering: Numbering,
    order: Order,
    frames: u32,
    /// The number of the first packet of the last frame that closed, and the highest of any.
    last_closed: Option<u64>,
    highest_closed: Option<u64>,
    /// Rows out of range while the numbering is not known: nobody's fault if it turns out to be another one.
    row_rejects: u64,
}

impl Epoch {
    fn new(id: u64, two_fields: bool) -> Self {
        let mut numbering = Numbering::default();
        if !two_fields {
            numbering.only_first();
        }
        Epoch {
            id,
            numbering,
            order: Order::STANDARD,
            frames: 0,
            last_closed: None,
            highest_closed: None,
            row_rejects: 0,
        }
    }
}

/// The frame of the packet before by the same leg, so that most packets need not look for theirs.
#[derive(Clone, Copy, Debug)]
struct Current {
    timestamp: u32,
    f: usize,
    index: u8,
}

const NO_FRAME: u8 = u8::MAX;
/// From here on an index is that of a closed frame.
const CLOSED: u8 = MAX_OPEN as u8;
const NONE: Current = Current { timestamp: 0, f: usize::MAX, index: NO_FRAME };

// Room in a plan, more than a batch of packets needs.
const STEPS: usize = 1024;
const PLACEMENTS: usize = 8192;

/// Runs of the loss maps of a plan.
fn runs(format: &WireFormat) -> usize {
    4 * format.rows() as usize
}

/// Octets of a plan.
fn plan_octets(format: &WireFormat) -> usize {
    STEPS * size_of::<Step>() + PLACEMENTS * size_of::<Placement>() + runs(format) * size_of::<Missing>()
}

/// Depacketiser of one ST 2110-20 flow.
#[derive(Debug)]
pub struct Video {
    config: Config,
    geometry: Geometry,
    pairing: Pairing,
    merge: Merge,
    /// There is more than one leg.
    several: bool,
    /// How long frames of several legs wait, in nanoseconds.
    window: u64,
    frames: Frames,
    /// By leg; of one leg the first.
    current: [Current; MAX_LEGS as usize],
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
    /// The time by which frames wait, see [`Merge::arrives`].
    clock: u64,
    /// When the oldest frame expires.
    next_expiry: u64,
    /// Of the sequences that are followed, by their places; and the place of the one of the packet before.
    epochs: Vec<Epoch>,
    at: usize,
    /// How the sender's timestamps go on.
    pace: Pace,
    /// Packets or segments that were not used, but for those of other senders.
    rejected: Rejected,
    /// Before the format changed.
    past: Option<Box<Past>>,
}

/// What was counted of a flow while it had another format.
#[derive(Debug)]
struct Past {
    counters: PacketCounters,
    legs: Vec<LegCounters>,
}

impl Video {
    /// A depacketiser that has seen nothing. All its memory is taken here.
    pub fn new(config: Config) -> Self {
        let format = config.format;
        let geometry = Geometry::new(&format);
        let half = config.rate.map(|r| half_frame_ticks(r, VIDEO_CLOCK));
        let window = u64::try_from(config.window.as_nanos()).unwrap_or(u64::MAX);
        let step = config.rate.map_or(0, |rate| frame_ticks(1, rate, VIDEO_CLOCK) as u32);
        let merge = Merge::new(config.merge());
        let epochs = vec![Epoch::new(0, geometry.two_fields); merge.places()];
        let plan = Plan {
            steps: Vec::with_capacity(STEPS),
            placements: Vec::with_capacity(PLACEMENTS),
            missing: Vec::with_capacity(runs(&format)),
        };
        Video {
            pairing: Pairing { two_fields: geometry.two_fields, half, second: 1 },
            merge,
            several: config.legs > 1,
            window,
            frames: Frames::new(geometry.total(), config.open_frames().min(MAX_OPEN), window, step),
            current: [NONE; MAX_LEGS as usize],
            unopened: None,
            ever: false,
            shown_rows: None,
            shown_second_first: false,
            plan,
            run: NO_FRAME,
            run_start: 0,
            clock: 0,
            next_expiry: u64::MAX,
            epochs,
            at: 0,
            pace: Pace::default(),
            rejected: Rejected::default(),
            past: None,
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
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let (idle, stall) = (nanos(self.config.idle), nanos(self.config.stall.max(self.config.idle)));
        self.merge.tick(now);
        if self.several {
            self.clock = self.clock.max(now.0);
        }
        let last = self.last_field();
        while let Some(oldest) = self.frames.oldest() {
            // Nothing is behind it and its end has not come: its sender may stand still. Nobody waits for it meanwhile.
            let unended = self.frames.order().len() == 1 && oldest.ends[last].is_none();
            if oldest.held || now.since(oldest.last_arrival) <= if unended { stall } else { idle } {
                break;
            }
            self.close_oldest();
        }
        self.settle();
        &self.plan
    }

    /// See [`super::Depacketiser::finish`].
    pub fn finish(&mut self) -> &Plan {
        self.plan.clear();
        self.run_start = 0;
        self.merge.finish();
        self.sync();
        while let [index, later @ ..] = self.frames.order() {
            // Reception ended in the middle of the newest frame: nobody's fault.
            let (index, newest) = (*index, later.is_empty());
            let last = self.last_field();
            let open = self.frames.get(index);
            let cut = newest && open.ends[last].is_none() && open.coverage.remaining() > 0;
            self.close(index, if cut { Why::Cut } else { Why::Over });
        }
        self.next_expiry = u64::MAX;
        (0..self.epochs.len()).for_each(|at| self.count_row_rejects(at));
        if !self.several {
            self.merge.take_change();
            self.enter(self.merge.sequence());
        }
        &self.plan
    }

    /// The field bit of the field that ends a frame.
    fn last_field(&self) -> usize {
        if self.geometry.two_fields { self.pairing.second } else { 0 }
    }

    /// See [`super::Depacketiser::change`].
    pub fn change(&mut self, config: Config) -> Vec<Fate> {
        let fate = |step: &Step| match step {
            Step::Close(_, end) => Some(end.fate),
            _ => None,
        };
        let fates = self.finish().steps.iter().filter_map(fate).collect();
        let past = Past { counters: self.counters(), legs: self.legs() };
        let mut next = Video { past: Some(Box::new(past)), ..Video::new(config) };
        let mut events = Vec::new();
        self.merge.take_events(&mut events);
        events.iter().for_each(|event| next.merge.happened(event.at, event.what));
        *self = next;
        fates
    }

    /// See [`super::Depacketiser::counters`].
    pub fn counters(&self) -> PacketCounters {
        let mut counters = self.merge.counters();
        for (sum, n) in counters.rejected.0.iter_mut().zip(&self.rejected.0) {
            *sum += n;
        }
        counters.rejected.0[Reason::Row as usize] += self.epochs.iter().map(|e| e.row_rejects).sum::<u64>();
        self.past.as_ref().map_or(counters, |past| counters.and(&past.counters))
    }

    /// What it was made for.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// See [`super::Depacketiser::legs`].
    pub fn legs(&self) -> Vec<LegCounters> {
        let mut legs = self.merge.legs();
        if let Some(past) = &self.past {
            legs.iter_mut().zip(&past.legs).for_each(|(leg, before)| *leg = leg.and(before));
        }
        legs
    }

    /// See [`super::Depacketiser::last_arrival`].
    pub fn last_arrival(&self, leg: u8) -> Option<Tai> {
        self.merge.last_arrival(leg)
    }

    /// See [`super::Depacketiser::take_events`].
    pub fn take_events(&mut self, out: &mut Vec<Event>) {
        self.merge.take_events(out);
    }

    /// See [`super::Depacketiser::missed_events`].
    pub fn missed_events(&self) -> u64 {
        self.merge.missed_events()
    }

    #[inline]
    fn packet(&mut self, p: Packet<'_>) {
        self.clock = self.merge.arrives(p.leg, p.arrival);
        let (header, srds) = match self.headers(&p) {
            Ok(headers) => headers,
            Err(reason) => return self.rejected.add(reason),
        };
        let verdict = self.merge.see(
            p.leg,
            Sighting {
                ssrc: header.ssrc,
                sequence: u32::from(srds.extended) << 16 | u32::from(header.sequence),
                timestamp: header.timestamp,
                arrival: p.arrival,
            },
        );
        // Of one leg, only what is of another sequence changes anything.
        let of_this = matches!(verdict, Verdict::New | Verdict::Reordered | Verdict::Duplicate);
        if (!of_this || self.several && self.merge.has_changed()) && !self.turn(verdict) {
            return;
        }
        let f = usize::from(srds.first.field && self.geometry.two_fields);
        let current = self.current[self.leg_of(&p)];
        let index = if current.timestamp == header.timestamp && current.f == f {
            current.index
        } else {
            match self.look_for(&p, &header, &srds, f, verdict) {
                Some(index) => index,
                None => return,
            }
        };
        if self.several && !self.is_in_time(&p, &srds, index, header.marker, verdict) {
            return;
        }
        let whole = self.place(&p, &srds, index);
        if header.marker {
            self.marker(&p, &srds, f, index, verdict);
        }
        if whole || self.clock >= self.next_expiry {
            self.settle();
        }
    }

    /// The index of a packet's leg in `current`.
    #[inline]
    const fn leg_of(&self, p: &Packet<'_>) -> usize {
        const { assert!(MAX_LEGS.is_power_of_two()) };
        if self.several { (p.leg & (MAX_LEGS - 1)) as usize } else { 0 }
    }

    #[inline]
    fn epoch(&self) -> &Epoch {
        &self.epochs[self.at]
    }
    #[inline]
    fn epoch_mut(&mut self) -> &mut Epoch {
        &mut self.epochs[self.at]
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

    /// Places the segments of a packet in a frame. Is that whole then?
    #[inline]
    fn place(&mut self, p: &Packet<'_>, srds: &srd::Srds<'_>, index: u8) -> bool {
        let open = self.frames.get(index);
        let mut at = srds.data_at;
        let mut placed = false;
        for segment in srds.iter() {
            let src = at;
            // The parser has checked that all lengths lie in the packet.
            at = at.wrapping_add(segment.length);
            let spot = match spot(&self.geometry, srds, &segment) {
                Ok(spot) => spot,
                Err(Reason::Row) if !self.epochs[self.at].numbering.is_known() => {
                    self.epochs[self.at].row_rejects += 1;
                    continue;
                }
                Err(reason) => {
                    self.rejected.add(reason);
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
        if placed {
            open.last_arrival = open.last_arrival.max(p.arrival);
        }
        if at > p.octets {
            self.rejected.add(Reason::Truncated);
        }
        open.coverage.remaining() == 0
    }

    /// A packet that is not to be used, or of another sequence, or after which sequences are others: is it to be looked at further?
    #[cold]
    #[inline(never)]
    fn turn(&mut self, verdict: Verdict) -> bool {
        if self.merge.take_change() {
            self.sync();
        }
        if verdict == Verdict::Foreign {
            return false;
        }
        let sequence = self.merge.sequence();
        if self.at != usize::from(sequence.place) || self.epoch().id != sequence.id {
            self.enter(sequence);
        }
        if verdict == Verdict::Returned {
            // Strays made it wait; it is the newest again.
            let newest = self.frames.order().last().copied();
            if let Some(open) = newest.map(|i| self.frames.get(i)).filter(|o| o.epoch == sequence.id) {
                open.expires = u64::MAX;
            }
            self.settle();
        }
        !matches!(verdict, Verdict::Late | Verdict::Straggler)
    }

    /// Packets of another sequence than before.
    fn enter(&mut self, sequence: Sequence) {
        let at = usize::from(sequence.place);
        if self.epochs.get(at).is_none_or(|e| e.id != sequence.id) {
            self.count_row_rejects(at);
            (self.shown_rows, self.shown_second_first) = (self.first_rows(), self.second_field_first());
            if let Some(epoch) = self.epochs.get_mut(at) {
                *epoch = Epoch::new(sequence.id, self.geometry.two_fields);
            }
        }
        self.at = at.min(self.epochs.len() - 1);
        (self.current, self.unopened) = ([NONE; MAX_LEGS as usize], None);
        self.geometry.first_row = self.epoch().numbering.first_row;
        self.pairing.second = self.epoch().order.second;
    }

    /// What has been decided about sequences: frames of strays are nobody's, others need not wait any longer.
    fn sync(&mut self) {
        while let Some(id) = self.merge.next_dropped() {
            while let Some(index) = self.frames.first_of(id) {
                self.close(index, Why::Nobodys);
            }
            self.epochs.iter_mut().filter(|e| e.id == id).for_each(|e| e.row_rejects = 0);
        }
        if self.several {
            self.release();
        }
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
            // A packet without samples that fit is a damaged one: its field bit says nothing.
            && self.fills(p, srds)
        {
            self.epoch_mut().order.observe(f, h.timestamp, p.arrival, rate);
            self.pairing.second = self.epoch().order.second;
        }
        if newest && begins {
            self.field_announced(f, h.timestamp, p.arrival);
        }
        let number = self.merge.number();
        let query =
            Query { epoch: self.epoch().id, f, timestamp: h.timestamp, number, newest, place: place_of(&srds.first) };
        let index = match self.frames.find(query, self.pairing) {
            Found::Open(index) => index,
            Found::Closed { whole: true, at } if self.several => {
                let index = CLOSED + at;
                self.current[self.leg_of(p)] = Current { timestamp: h.timestamp, f, index };
                return Some(index);
            }
            Found::Closed { whole, .. } => {
                if !whole {
                    self.merge.too_late(verdict);
                } else if verdict != Verdict::Duplicate {
                    self.refuse(p, srds);
                }
                self.settle_if_due();
                return None;
            }
            Found::Nowhere if !newest && self.epoch().last_closed.is_some_and(|last| number < last) => {
                self.merge.too_late(verdict);
                return None;
            }
            // The first copy may have been a bad one.
            Found::Nowhere if verdict == Verdict::Duplicate && begins => return None,
            Found::Nowhere => {
                let key = self.pairing.key(f, h.timestamp, self.config.format.scan == Scan::Psf);
                if !self.fills(p, srds) {
                    self.opens_nothing(p, h, srds, f, verdict, newest, begins);
                    return None;
                }
                let Some(index) = self.open(query, key, p.arrival) else {
                    self.merge.too_late(verdict);
                    return None;
                };
                index
            }
        };
        if self.several {
            self.came_first(index, p.arrival);
        }
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
        self.current[self.leg_of(p)] = Current { timestamp: h.timestamp, f, index };
        Some(index)
    }

    /// The last packet of a frame, field or segment.
    #[cold]
    #[inline(never)]
    fn marker(&mut self, p: &Packet<'_>, srds: &srd::Srds<'_>, f: usize, index: u8, verdict: Verdict) {
        // The next packet has another timestamp, or the same and is of another field or frame.
        self.current[self.leg_of(p)] = NONE;
        if verdict == Verdict::Duplicate {
            return;
        }
        let number = self.merge.number();
        self.frames.get(index).ends[f] = Some(frames::End { number, place: place_of(&srds.first) });
        self.field_ends(f, srds, verdict);
    }

    /// See [`super::Depacketiser::check_invariants`].
    ///
    /// # Panics
    /// When the state contradicts itself.
    pub fn check_invariants(&self) {
        self.merge.check_invariants();
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
