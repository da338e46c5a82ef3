//! The measures of a leg whose packets make frames or fields: video, compressed video, ancillary data.

use super::align::Aligner;
use super::ancillary::{self, Due};
use super::buckets::{Cinst, Frame, Reads, Tvd};
use super::limits::Buckets;
use super::measure::{Histogram, Measure, Stat};
use super::schedule::{Pacing, Schedule};
use super::sequence::Fate;
use super::stamps::Stamps;
use super::{Packet, Rules};
use crate::sdp::{Scan, SenderType};
use crate::time::{self, MediaClock, Tai, VIDEO_CLOCK};

/// What is measured, and against what.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The RTP clock.
    pub clock: MediaClock,
    /// Rate, raster, packets a frame, TROFFSET; its pacing does not matter.
    pub schedule: Schedule,
    /// How the picture is scanned.
    pub scan: Scan,
    /// Largest UDP payload.
    pub max_udp: u32,
    /// What the sender says that it is.
    pub sender_type: Option<SenderType>,
    /// The network compatibility bucket is measured: video and compressed video.
    pub cinst: bool,
    /// The receiver's buffer is measured: video whose arrivals and timestamps share a clock, or whose TVD is reckoned from its
    /// first packet. ST 2110-22 is exempt.
    pub vrx: bool,
    /// ST 2110-22, which VRX is no measure of.
    pub compressed: bool,
    /// The raster has a gapped schedule: a sender may be of type N.
    pub gapped: bool,
    /// When the packets of ancillary data are due; where arrivals and timestamps share a clock.
    pub due: Option<ancillary::Timing>,
    /// Arrivals and frames share an epoch: FPT and RTP offset mean something.
    pub epoch: bool,
    /// Added to arrivals, in nanoseconds: 37 s where they are UTC.
    pub shift_ns: i64,
    /// The first frame or field that comes is whole.
    pub first_whole: bool,
    /// How.
    pub rules: Rules,
}

/// A bucket of ST 2110-21 over the packets of a flow.
#[derive(Clone, Debug)]
pub struct Level {
    /// Packets, with extremes and mean of each frame.
    pub measure: Measure,
    /// How often each level was met.
    pub histogram: Histogram,
    /// When the highest level was met.
    pub peak_at: Tai,
    frame: Stat,
}

impl Level {
    fn new(width: u64) -> Self {
        let measure = Measure::new(width);
        Level { measure, histogram: Histogram::default(), peak_at: Tai(0), frame: Stat::default() }
    }
    #[inline]
    fn add(&mut self, level: i64, at: Tai) {
        if level > self.measure.all.max.max(self.frame.max) {
            self.peak_at = at;
        }
        self.frame.add(level);
        self.histogram.add(level);
    }
    fn close(&mut self, at: Tai) {
        let frame = std::mem::take(&mut self.frame);
        self.measure.merge(at, &frame);
    }
    /// Over all packets, those of the open frame too.
    pub fn all(&self) -> Stat {
        let mut all = self.measure.all;
        all.merge(&self.frame);
        all
    }
}

/// A frame, field or segment that is coming in.
#[derive(Clone, Copy, Debug)]
struct Unit {
    timestamp: u32,
    second: bool,
    first: i64,
    last: i64,
    first_arrival: Tai,
    last_arrival: Tai,
    /// Its first packet came.
    begun: bool,
    marker: bool,
    frame: Option<Frame>,
}

/// Measures of one leg. Times are nanoseconds.
#[derive(Clone, Debug)]
pub struct Frames {
    config: Config,
    reads: Option<Reads>,
    drain: Option<Cinst>,
    unit: Option<Unit>,
    half_ns: u64,
    half_ticks: u32,
    /// Bucket sizes of the sender types.
    pub buckets: Buckets,
    /// Frames or fields that ended.
    pub units: u64,
    /// First packet of a frame or field after N * TFRAME (and TFRAME / 2 for a second field): FPT.
    pub fpt: Measure,
    /// TROFFSET less FPT: how long before TVD the first packet comes.
    pub margin: Measure,
    /// First packet after the instant of its timestamp: video latency.
    pub latency: Measure,
    /// Last packet after the same instant.
    pub complete: Measure,
    /// Timestamp less that of N * TFRAME, in ticks.
    pub rtp_offset: Measure,
    /// From one timestamp to the next, in ticks.
    pub increment: Measure,
    /// Increments that are neither floor nor floor + 1 of the period in ticks.
    pub increments_off: u64,
    /// Packets of a whole frame or field.
    pub packets: Measure,
    /// First packet of a frame or field after the last one of the one before; negative when they overlap.
    pub gap: Measure,
    /// Time between packets of one frame or field.
    pub interval: Stat,
    /// The same, how often.
    pub intervals: Histogram,
    /// Network compatibility bucket.
    pub cinst: Option<Level>,
    /// Receiver's buffer with gapped and with linear reads.
    pub vrx: Option<[Level; 2]>,
    /// Frames or fields whose last packet came without a marker.
    pub without_marker: u64,
    /// Packets of a frame or field that came behind its marker.
    pub behind_marker: u64,
    /// Packets of an earlier frame among those of a later one.
    pub stragglers: u64,
    /// Ancillary data: packets against the time at which they are due.
    pub due: Option<Due>,
    /// Clocks.
    pub aligner: Aligner,
    /// Stamps.
    pub stamps: Stamps,
}

/// The schedules of [`Frames::vrx`].
pub const PACINGS: [Pacing; 2] = [Pacing::Gapped, Pacing::Linear];

impl Frames {
    /// `first` is the first packet of the first frame, see [`Tvd::FirstPacket`].
    pub fn new(config: Config, first: Tai) -> Self {
        let width = config.schedule.frame_ns();
        let measure = || Measure::new(width);
        let first = first.0.saturating_add_signed(config.shift_ns);
        let origin = (config.rules.tvd == Tvd::FirstPacket).then_some(Tai(first));
        let reads = Reads::new(config.schedule, config.rules.method, origin);
        let fields = config.scan != Scan::Progressive;
        Frames {
            reads: (config.vrx || config.epoch).then_some(reads),
            drain: config.cinst.then(|| Cinst::new(&config.schedule, config.rules.method)),
            unit: None,
            half_ns: if fields { width / 2 } else { 0 },
            half_ticks: match config.scan {
                Scan::Interlaced => time::half_frame_ticks(config.schedule.rate(), VIDEO_CLOCK),
                _ => 0,
            },
            buckets: Buckets::new(&config.schedule, config.max_udp),
            units: 0,
            fpt: measure(),
            margin: measure(),
            latency: measure(),
            complete: measure(),
            rtp_offset: measure(),
            increment: measure(),
            increments_off: 0,
            packets: measure(),
            gap: measure(),
            interval: Stat::default(),
            intervals: Histogram::default(),
            cinst: config.cinst.then(|| Level::new(width)),
            vrx: config.vrx.then(|| [Level::new(width), Level::new(width)]),
            without_marker: 0,
            behind_marker: 0,
            stragglers: 0,
            due: config.due.map(Due::new),
            aligner: Aligner::new(config.clock),
            stamps: Stamps::default(),
            config,
        }
    }

    /// What is measured.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// A packet, and what it is to its flow.
    #[inline]
    pub fn push(&mut self, p: &Packet, fate: Fate) {
        let arrival = Tai(p.arrival.0.saturating_add_signed(self.config.shift_ns));
        self.stamps.add(arrival);
        if let (Some(drain), Some(level)) = (&mut self.drain, &mut self.cinst) {
            level.add(drain.add(arrival), arrival);
        }
        let Fate::New(number) = fate else { return };
        if let (Some(due), Some(head)) = (&mut self.due, &p.ancillary) {
            due.add(self.config.clock, p.timestamp, head, arrival);
        }
        let same = self.unit.as_ref().is_some_and(|u| (u.timestamp, u.second) == (p.timestamp, p.second));
        if same {
            self.within(p, number, arrival);
        } else if self.unit.as_ref().is_some_and(|u| number < u.first) {
            self.stragglers += 1;
            return;
        } else {
            self.open(p, number, arrival);
        }
        let (Some(unit), Some(reads), Some(vrx)) = (&self.unit, &self.reads, &mut self.vrx) else { return };
        let (Some(frame), true) = (&unit.frame, number >= unit.first) else { return };
        let before = if unit.second { i64::from(self.config.schedule.second()) } else { 0 };
        let Ok(index) = u32::try_from(number - unit.first + before) else { return };
        for (level, pacing) in vrx.iter_mut().zip(PACINGS) {
            level.add(reads.level(frame, pacing, index, arrival), arrival);
        }
    }

    #[inline]
    fn within(&mut self, p: &Packet, number: i64, arrival: Tai) {
        let Some(unit) = &mut self.unit else { return };
        let interval = arrival.since(unit.last_arrival);
        self.interval.add(interval);
        self.intervals.add(interval);
        if number > unit.last {
            self.behind_marker += u64::from(unit.marker);
            unit.last = number;
            unit.marker |= p.marker;
        }
        unit.last_arrival = unit.last_arrival.max(arrival);
    }

    fn open(&mut self, p: &Packet, number: i64, arrival: Tai) {
        let before = self.unit.take();
        let expected = |u: &Unit| {
            let (all, second) = (self.config.schedule.packets(), self.config.schedule.second());
            i64::from(if u.second { all - second.min(all) } else { second.min(all) })
        };
        // Where packets are missing between two frames, the usual count says which of the two they belong to.
        let first = match &before {
            Some(u) if number == u.last + 1 => number,
            Some(u) if u.begun && (u.last + 1..=number).contains(&(u.first + expected(u))) => u.first + expected(u),
            _ => number,
        };
        if let Some(u) = before {
            self.close(&u, Some(first));
        }
        let begun = first == number && (before.is_some() || self.config.first_whole);
        let frame = self.frame_of(p, before.as_ref(), arrival);
        self.unit = Some(Unit {
            timestamp: p.timestamp,
            second: p.second,
            first,
            last: number,
            first_arrival: arrival,
            last_arrival: arrival,
            begun,
            marker: p.marker,
            frame,
        });
        if begun {
            self.begin(p, frame, arrival, before.as_ref().filter(|u| u.last + 1 == number));
        }
    }

    fn frame_of(&self, p: &Packet, before: Option<&Unit>, arrival: Tai) -> Option<Frame> {
        let reads = self.reads.as_ref()?;
        match before {
            // A second field belongs to the first field before it.
            Some(u) if p.second && !u.second => u.frame,
            _ if p.second => Some(reads.frame_at(Tai(arrival.0.saturating_sub(self.half_ns)))),
            _ => Some(reads.frame_at(arrival)),
        }
    }

    /// What the first packet of a frame or field says. `before` ended right in front of it.
    fn begin(&mut self, p: &Packet, frame: Option<Frame>, arrival: Tai, before: Option<&Unit>) {
        let original = Tai(arrival.0.saturating_add_signed(-self.config.shift_ns));
        let unwrapped = self.aligner.add(p.timestamp, original);
        self.latency.add(arrival, unwrapped.latency_ns.saturating_add(self.config.shift_ns));
        if let (Some(frame), Some(reads), true) = (frame, &self.reads, self.config.epoch) {
            let start = reads.frame_start(&frame);
            let half = if p.second { self.half_ns } else { 0 };
            let fpt = arrival.since(start) - half as i64;
            self.fpt.add(arrival, fpt);
            self.margin.add(arrival, self.config.schedule.offset_ns() as i64 - fpt);
            let number = u64::try_from(frame.number).unwrap_or(0);
            let ticks = time::frame_timestamp(number, self.config.schedule.rate(), VIDEO_CLOCK);
            let ticks = ticks.wrapping_add(self.config.clock.offset);
            let ticks = ticks.wrapping_add(if p.second { self.half_ticks } else { 0 });
            self.rtp_offset.add(arrival, i64::from(p.timestamp.wrapping_sub(ticks) as i32));
        }
        let Some(before) = before else { return };
        self.gap.add(arrival, arrival.since(before.last_arrival));
        if self.config.scan == Scan::Psf && p.second {
            return;
        }
        let increment = i64::from(p.timestamp.wrapping_sub(before.timestamp) as i32);
        self.increment.add(arrival, increment);
        let rate = self.config.schedule.rate();
        let halves = if self.config.scan == Scan::Interlaced { 2 } else { 1 };
        let (ticks, per) = (u64::from(VIDEO_CLOCK) * u64::from(rate.den), u64::from(rate.num) * halves);
        let (least, most) = ((ticks / per) as i64, ticks.div_ceil(per) as i64);
        self.increments_off += u64::from(!(least..=most).contains(&increment));
    }

    /// A frame or field has ended; `next` is the first number of the one behind it, where that is known.
    fn close(&mut self, unit: &Unit, next: Option<i64>) {
        self.units += 1;
        for level in self.cinst.iter_mut().chain(self.vrx.iter_mut().flatten()) {
            level.close(unit.first_arrival);
        }
        if next == Some(unit.last + 1) {
            self.without_marker += u64::from(!unit.marker);
            if unit.begun {
                self.packets.add(unit.first_arrival, unit.last + 1 - unit.first);
                let latency = self.config.clock.unwrap(unit.timestamp, unit.last_arrival).latency_ns;
                self.complete.add(unit.first_arrival, latency);
            }
        }
    }

    /// There is nothing more.
    pub fn finish(&mut self) {
        if let Some(unit) = self.unit.take() {
            self.close(&unit, unit.marker.then_some(unit.last + 1));
        }
    }

    /// CMAX and VRXFULL that it is held against as a sender of a type, see [`Buckets::held`].
    pub fn held(&self, sender_type: SenderType) -> (Option<u32>, u32) {
        self.buckets.held(sender_type, &self.config.rules.limits)
    }

    /// The level of VRX at which a packet came after its read: this or less.
    pub fn underflow(&self) -> i64 {
        self.reads.as_ref().map_or(0, Reads::underflow)
    }

    /// The receiver's buffer is a measure of this essence: all video but ST 2110-22.
    pub fn vrx_applies(&self) -> bool {
        self.config.cinst && !self.config.compressed
    }

    /// Mean time between packets as the frame rate has it, in nanoseconds.
    pub fn spacing_ns(&self) -> u64 {
        self.config.schedule.frame_ns() / u64::from(self.config.schedule.packets().max(1))
    }

    /// Gapped or linear, judged as EBU LIST does: gapped when the gap between frames or fields is ten mean spacings and more.
    pub fn seems_gapped(&self) -> bool {
        self.gap.all.count > 0 && self.interval.count > 0 && self.gap.all.mean() >= 10.0 * self.interval.mean()
    }
}
