//! The two buckets of ST 2110-21:2022: network compatibility (CINST, 6.6.1) and virtual receiver buffer (VRX, 6.6.2).

use super::grid::{Grid, gcd};
use super::schedule::{Pacing, Schedule};
use crate::time::Tai;
use serde::Serialize;

const SECOND: i128 = 1_000_000_000;

/// How the buckets are reckoned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// As ST 2110-21 has it: drain instants are multiples of TDRAIN since the epoch, a packet counts at once, the
    /// receiver's buffer goes on from frame to frame, and a packet is late when it comes after its read.
    #[default]
    Standard,
    /// As EBU LIST does: drain instants are counted from the first packet, which counts nothing itself, and a packet is
    /// counted before what drained since the last one is taken away; the receiver's buffer begins anew with every frame,
    /// and a packet is late when it comes a whole TRS after its read.
    List,
}

/// Where TVD, the first read of a frame, is reckoned from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tvd {
    /// From the epoch: N * TFRAME + TROFFSET (ST 2110-21:2022, 6.3). The arrivals must be TAI, and the sender locked to PTP.
    #[default]
    Epoch,
    /// From the first packet of the first frame, and every TFRAME after it: for captures without PTP.
    FirstPacket,
}

/// The network compatibility bucket: a packet puts one in, every TDRAIN = TFRAME / NPACKETS / 1.1 takes one out.
#[derive(Clone, Debug)]
pub struct Cinst {
    grid: Grid,
    method: Method,
    base: Option<Tai>,
    drained: i128,
    level: i64,
}

/// A grid is counted from a nearer instant after so many nanoseconds, so that numbers stay small.
const REBASE: u64 = 1 << 30;

impl Cinst {
    /// Empty, for a flow with the frame rate and packets of `schedule`.
    pub fn new(schedule: &Schedule, method: Method) -> Self {
        let rate = schedule.rate();
        // TDRAIN = 10 * den / (11 * num * NPACKETS) seconds.
        let step = 10 * i128::from(rate.den) * SECOND;
        let scale = 11 * i128::from(rate.num) * i128::from(schedule.packets());
        let by = gcd(step, scale);
        Cinst { grid: Grid::new(Tai(0), 0, step / by, scale / by), method, base: None, drained: 0, level: 0 }
    }

    /// A packet arrives; the level with it in.
    #[inline]
    pub fn add(&mut self, t: Tai) -> i64 {
        match self.base {
            None => {
                self.grid = match self.method {
                    Method::Standard => self.grid.rebased(t),
                    Method::List => self.grid.started_at(t),
                };
                self.begin(t);
                self.level = match self.method {
                    Method::Standard => 1,
                    Method::List => 0,
                };
                return self.level;
            }
            Some(base) if t.0.saturating_sub(base.0) > REBASE => {
                // What drained until now is taken out before the count begins anew.
                let drained = self.grid.reached(t) - self.drained;
                self.take(drained);
                self.grid = self.grid.rebased(t);
                self.begin(t);
                return self.put(0);
            }
            Some(_) => {}
        }
        let reached = self.grid.reached(t);
        // Stamps may go back by a little; nothing flows back in.
        let drained = (reached - self.drained).max(0);
        self.drained += drained;
        self.put(drained)
    }

    fn begin(&mut self, t: Tai) {
        self.base = Some(t);
        self.drained = self.grid.reached(t);
    }

    /// As far as LIST is concerned, the packet comes first: see [`Method`].
    fn take(&mut self, drained: i128) {
        let spare = match self.method {
            Method::Standard => 0,
            Method::List => 1,
        };
        let left = i128::from(self.level) + spare - drained;
        self.level = (left.max(0) - spare).max(-1) as i64;
    }

    fn put(&mut self, drained: i128) -> i64 {
        self.take(drained);
        self.level += 1;
        self.level
    }
}

/// The virtual receiver buffer's reads, exactly.
#[derive(Clone, Debug)]
pub struct Reads {
    schedule: Schedule,
    method: Method,
    /// Parts of a nanosecond in which every read is whole.
    scale: i128,
    /// The same, of TVD.
    tvd_scale: i128,
    gapped: i128,
    linear: i128,
    /// From TVD to the first read of the second field, gapped.
    half: i128,
    /// TFRAME in parts of `tvd_scale`.
    frame: i128,
    /// TVD counts from here, with TROFFSET in it; the epoch, or the first packet.
    origin: Option<Tai>,
}

/// A frame's first read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Counted since the epoch, or since the first frame.
    pub number: i64,
    /// TVD, rounded down to nanoseconds.
    pub tvd: Tai,
    /// What was cut off, in parts of the reads' scale.
    phase: i128,
}

impl Reads {
    /// Of a flow with this schedule, whatever its pacing. `first` is the first packet's arrival where TVD is reckoned from
    /// it, see [`Tvd`].
    pub fn new(schedule: Schedule, method: Method, first: Option<Tai>) -> Self {
        let rate = schedule.rate();
        let (active, total) = schedule.active_lines();
        let [num, den, active, total, packets] =
            [rate.num, rate.den, active, total, schedule.packets()].map(i128::from);
        let tvd_scale = num * total;
        let frame = SECOND * den * total;
        let offset = schedule.scaled_offset() as i128;
        // Parts of 1 / (num * total * packets * 2) nanoseconds, made as coarse as they can be.
        let (scale, gapped, linear) = (tvd_scale * packets * 2, SECOND * den * active * 2, SECOND * den * total * 2);
        // TFRAME / 2 + TLINE / 2.
        let half = SECOND * den * (total + 1) * packets;
        let phases = gcd(gcd(frame, offset), tvd_scale) * packets * 2;
        let by = [gapped, linear, half, phases].iter().fold(scale, |a, b| gcd(a, *b));
        Reads {
            schedule,
            method,
            scale: scale / by,
            tvd_scale,
            gapped: gapped / by,
            linear: linear / by,
            half: half / by,
            frame,
            origin: first,
        }
    }

    /// The frame whose TVD lies nearest to `t`. EBU LIST and MTL take the frame that runs at `t`, for which a first packet
    /// slightly before N * TFRAME is nearly a frame late; RP 2110-25 rounds, which is the same as here for usual TROFFSETs.
    pub fn frame_at(&self, t: Tai) -> Frame {
        let since = self.since(t);
        let number = match (self.method, self.origin) {
            (Method::List, None) => (i128::from(t.0) * self.tvd_scale).div_euclid(self.frame),
            _ => (2 * since + self.frame).div_euclid(2 * self.frame),
        };
        self.frame(i64::try_from(number).unwrap_or(i64::MAX))
    }

    /// A frame by its number.
    pub fn frame(&self, number: i64) -> Frame {
        let at = i128::from(number) * self.frame + self.base();
        let tvd = at.div_euclid(self.tvd_scale);
        let phase = at.rem_euclid(self.tvd_scale) * self.scale / self.tvd_scale;
        Frame { number, tvd: Tai(u64::try_from(tvd.max(0)).unwrap_or(u64::MAX)), phase }
    }

    /// N * TFRAME of a frame that is reckoned from the epoch, rounded down to nanoseconds.
    pub fn frame_start(&self, frame: &Frame) -> Tai {
        let at = (i128::from(frame.number) * self.frame).div_euclid(self.tvd_scale);
        Tai(u64::try_from(at.max(0)).unwrap_or(u64::MAX))
    }

    /// The buffer's level after packet `index` of `frame` arrived at `t`, had all packets before it come and been kept until
    /// their reads: packets up to this one, less the reads of this frame and those before that lie before `t`. Zero and less
    /// means that the packet's own read has passed (underflow). A packet that was lost counts as there until its read.
    #[inline]
    pub fn level(&self, frame: &Frame, pacing: Pacing, index: u32, t: Tai) -> i64 {
        let there = i128::from(index) + 1;
        if self.method == Method::List {
            let second = self.schedule.second();
            let (before, later) =
                if pacing == Pacing::Gapped && index >= second { (second, self.half) } else { (0, 0) };
            return (there - i128::from(before) - self.grid(frame, pacing, later).cut_towards_zero(t)) as i64;
        }
        let mut level = there - self.read(frame, pacing, t);
        let mut earlier = *frame;
        // Packets of the frames before that still wait.
        while t <= earlier.tvd && earlier.number > frame.number - 4 {
            earlier = self.frame(earlier.number - 1);
            level += i128::from(self.schedule.packets()) - self.read(&earlier, pacing, t);
        }
        level as i64
    }

    /// The level at which a packet is late: this or less.
    pub fn underflow(&self) -> i64 {
        match self.method {
            Method::Standard => 0,
            Method::List => -1,
        }
    }

    /// Reads of a frame before `t`.
    #[inline]
    fn read(&self, frame: &Frame, pacing: Pacing, t: Tai) -> i128 {
        let (packets, second) = (i128::from(self.schedule.packets()), i128::from(self.schedule.second()));
        match pacing {
            Pacing::Gapped if second < packets => {
                let first = self.grid(frame, pacing, 0).passed(t).clamp(0, second);
                first + self.grid(frame, pacing, self.half).passed(t).clamp(0, packets - second)
            }
            _ => self.grid(frame, pacing, 0).passed(t).clamp(0, packets),
        }
    }

    #[inline]
    fn grid(&self, frame: &Frame, pacing: Pacing, later: i128) -> Grid {
        let step = match pacing {
            Pacing::Gapped => self.gapped,
            Pacing::Linear => self.linear,
            Pacing::Burst => 1,
        };
        Grid::new(frame.tvd, frame.phase + later, step, self.scale)
    }

    /// TVD of frame 0, in parts of `tvd_scale`.
    fn base(&self) -> i128 {
        match self.origin {
            None => self.schedule.scaled_offset() as i128,
            Some(first) => i128::from(first.0) * self.tvd_scale,
        }
    }

    fn since(&self, t: Tai) -> i128 {
        i128::from(t.0) * self.tvd_scale - self.base()
    }
}
