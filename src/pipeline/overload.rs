//! Is the pipeline too slow for what arrives? Then frames are opened without memory until it has caught up: whole frames are
//! lost, and no packet.
//!
//! Packets wait in the receiver's buffer while the pipeline is at work. How long they have waited is the time from their
//! arrival to their being read, less what that takes when everything has been read: clocks of arrivals need not agree with
//! that of this machine. A pipeline that finds nothing to read now and then, or catches up within the time of a frame, is
//! fast enough. Where packets are stamped when they are read, lag does not show: there the pipeline is too slow when each batch
//! is as large as it can be.
//!
//! Each leg is watched by itself. One that strangers flood lies behind alone: its packets are dropped by its own buffer, or come
//! too late, while the other one carries the flow. So frames are shed only where no leg that brings the flow keeps up.

use crate::ring::Slot;
use crate::rx::Receiver;
use crate::time::Tai;
use std::time::Duration;

/// Times for a frame that packets may wait, where the receiver's buffer has room for more.
const FRAMES: i64 = 4;
/// The part of the buffer that they may fill. The rest is for the frame that is being filled, and for what the buffer holds
/// less than it is thought to.
const PART: u128 = 4;
/// Less lag than any that was waited for, in nanoseconds.
const FRESH: i64 = 200_000;

/// Decides whether frames are shed.
#[derive(Debug, Default)]
pub(super) struct Overload {
    /// By leg; none where frames are never shed.
    legs: Vec<Leg>,
    shedding: bool,
}

impl Overload {
    /// For a stream by so many legs, of frames of so many octets, so far apart.
    pub fn new(frame: Duration, frame_octets: u64, legs: usize) -> Self {
        Overload { legs: (0..legs.max(1)).map(|_| Leg::new(frame, frame_octets)).collect(), shedding: false }
    }

    /// There was nothing to read from the receiver with this number.
    pub fn drained(&mut self, from: usize) {
        self.legs.iter_mut().filter(|leg| leg.from == from).for_each(Leg::drained);
    }
    /// There was nothing to read from any.
    pub fn all_drained(&mut self) {
        self.legs.iter_mut().for_each(Leg::drained);
        self.shedding = false;
    }

    /// These packets of `receiver`, which has the number `from`, were read at `now`. `flow` knows when the last packet of the
    /// flow came by each leg, of those that were read before.
    pub fn read(
        &mut self,
        now: Tai,
        slots: &[Slot],
        receiver: &impl Receiver,
        from: usize,
        flow: impl Fn(u8) -> Option<Tai>,
    ) {
        let (Some(first), Some(last)) = (slots.first(), slots.last()) else { return };
        let caps = receiver.caps();
        let full = slots.len() >= caps.batch.max(2);
        let mut see = |slot: &Slot, full| {
            let place = usize::from(slot.leg).min(self.legs.len().saturating_sub(1));
            let Some(leg) = self.legs.get_mut(place) else { return };
            leg.from = from;
            leg.see(now, slot.arrival, full, receiver.dropped(slot.leg), caps.buffer_octets);
            leg.brought(now, slot.arrival, flow(slot.leg));
        };
        see(last, full);
        // Nearly always of one leg. Of several, those before the last one had been read to their end.
        if first.leg != last.leg
            && let Some(before) = slots.iter().rev().find(|slot| slot.leg != last.leg)
        {
            see(before, false);
        }
        self.decide(now);
    }

    fn decide(&mut self, now: Tai) {
        self.shedding = self.legs.iter().any(|leg| leg.shedding) && !self.legs.iter().any(|leg| leg.keeps_up(now));
    }

    /// Frames that open now get no memory.
    pub const fn sheds(&self) -> bool {
        self.shedding
    }
    /// How long the last packets had waited, in nanoseconds, by the leg that lies furthest behind; 0 when there was nothing left
    /// to read.
    pub fn lag_ns(&self) -> i64 {
        self.legs.iter().map(Leg::lag_ns).max().unwrap_or(0)
    }
}

/// How far reading lies behind what arrives by a leg.
#[derive(Debug)]
struct Leg {
    /// The number of its receiver.
    from: usize,
    frame: i64,
    /// Octets of packets a second.
    octets: u64,
    /// Lag above which frames are shed, and below which they are not any more; 0 until the buffer is known.
    enter: i64,
    leave: i64,
    /// What reading takes when everything has been read.
    floor: Option<i64>,
    /// Of the last packets.
    raw: i64,
    /// There may be packets left to read.
    busy: bool,
    /// Since when there have been as many packets in each batch as one can have.
    full_since: Option<Tai>,
    /// Since when the lag has been too long, or packets have been dropped.
    behind_since: Option<Tai>,
    /// Packets that the receiver's buffer had no room for, and when that was seen last.
    dropped: u64,
    dropped_at: Option<Tai>,
    /// When it was seen that the leg brings the flow, and the arrival of the last packet of the flow then.
    flow_at: Option<Tai>,
    flow: Option<Tai>,
    shedding: bool,
}

impl Leg {
    fn new(frame: Duration, frame_octets: u64) -> Self {
        let nanos = u64::try_from(frame.as_nanos()).unwrap_or(u64::MAX).max(1);
        let octets = u128::from(frame_octets) * 1_000_000_000 / u128::from(nanos);
        Leg {
            from: usize::MAX,
            frame: i64::try_from(nanos).unwrap_or(i64::MAX),
            octets: u64::try_from(octets).unwrap_or(u64::MAX).max(1),
            enter: 0,
            leave: 0,
            floor: None,
            raw: 0,
            busy: false,
            full_since: None,
            behind_since: None,
            dropped: 0,
            dropped_at: None,
            flow_at: None,
            flow: None,
            shedding: false,
        }
    }

    /// Octets of packets that the receiver's buffer takes; 0 where that is not known.
    fn size(&mut self, buffer_octets: u64) {
        self.enter = self.frame.saturating_mul(FRAMES);
        if buffer_octets > 0 {
            let part = u128::from(buffer_octets) * 1_000_000_000 / u128::from(self.octets) / PART;
            self.enter = self.enter.min(i64::try_from(part).unwrap_or(i64::MAX).max(1));
        }
        self.leave = self.enter / 2;
    }

    /// There was nothing to read.
    fn drained(&mut self) {
        if std::mem::take(&mut self.busy) {
            self.floor = Some(self.raw);
        }
        (self.full_since, self.behind_since, self.dropped_at, self.shedding) = (None, None, None, false);
    }

    /// A packet that arrived at `newest` was read at `now`; `last` is the arrival of the last packet of the flow before.
    fn brought(&mut self, now: Tai, newest: Tai, last: Option<Tai>) {
        if last != std::mem::replace(&mut self.flow, last) && last.is_some_and(|last| self.is_recent(last, newest)) {
            self.flow_at = Some(now);
        }
    }

    /// Does it bring the flow, and is it read in time?
    fn keeps_up(&self, now: Tai) -> bool {
        let brings = self.flow_at.is_some_and(|at| self.is_recent(at, now));
        brings && !self.shedding && self.behind_since.is_none()
    }

    /// No longer ago than packets may wait, or than there is between frames.
    fn is_recent(&self, at: Tai, now: Tai) -> bool {
        now.since(at).unsigned_abs() <= self.enter.max(self.frame).unsigned_abs()
    }

    /// The last packet arrived at `newest`; `full`: there were as many as there can be. `dropped` counts packets that the
    /// receiver's buffer, which takes so many octets, had no room for.
    fn see(&mut self, now: Tai, newest: Tai, full: bool, dropped: u64, buffer_octets: u64) {
        if self.enter == 0 {
            self.size(buffer_octets);
            self.dropped = dropped;
        }
        self.raw = now.since(newest);
        self.floor = Some(self.floor.map_or(self.raw, |floor| floor.min(self.raw)));
        self.busy = true;
        if dropped != std::mem::replace(&mut self.dropped, dropped) {
            self.dropped_at = Some(now);
        }
        let lag = self.lag_ns();
        // Packets that others wait behind have waited too, but where they are stamped when they are read.
        let full = full && lag < FRESH;
        self.full_since = full.then(|| self.full_since.unwrap_or(now));
        let dropping = self.dropped_at.is_some_and(|at| now.since(at) < self.frame);
        if self.shedding {
            self.shedding = lag > self.leave || dropping || full;
        } else if lag > self.enter || dropping || self.full_since.is_some_and(|since| now.since(since) > self.enter) {
            let since = *self.behind_since.get_or_insert(now);
            self.shedding = now.since(since) >= self.frame;
        } else {
            self.behind_since = None;
        }
    }

    /// How long the last packets had waited, in nanoseconds; 0 when there was nothing left to read.
    fn lag_ns(&self) -> i64 {
        self.floor.filter(|_| self.busy).map_or(0, |floor| self.raw.saturating_sub(floor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    /// 25 frames a second of 4 MB: 100 MB a second.
    fn leg() -> Leg {
        Leg::new(Duration::from_millis(40), 4_000_000)
    }
    /// Reads a batch at `now` whose last packet waited for `lag`, all in milliseconds, with a buffer of 200 ms.
    fn read(leg: &mut Leg, now: u64, lag: i64, dropped: u64) -> bool {
        let now = Tai((1_000_000 + now) * MS);
        leg.see(now, Tai(now.0.wrapping_add_signed(-lag * MS as i64)), false, dropped, 20_000_000);
        leg.shedding
    }

    #[test]
    fn batches_that_are_full_for_long_shed_until_one_is_not() {
        let mut o = leg();
        let mut read = |at: u64, full: bool| {
            o.see(Tai(at * MS), Tai(at * MS), full, 0, 20_000_000);
            o.shedding
        };
        assert_eq!([(0, true), (50, true), (51, true), (90, true)].map(|(at, full)| read(at, full)), [false; 4]);
        assert_eq!([(91, true), (120, true), (121, false)].map(|(at, full)| read(at, full)), [true, true, false]);
        assert_eq!([(160, true), (210, true), (212, false), (260, true)].map(|(at, full)| read(at, full)), [false; 4]);
    }

    #[test]
    fn a_quarter_of_the_buffer_for_a_frame_sheds_until_it_is_an_eighth() {
        let mut o = leg();
        assert!(!read(&mut o, 0, 0, 0));
        assert_eq!([50, 51, 52].map(|lag| read(&mut o, 60, lag, 0)), [false; 3]);
        assert!(!read(&mut o, 99, 60, 0));
        assert!(read(&mut o, 100, 60, 0), "for a frame's time");
        assert_eq!(o.lag_ns(), 60 * MS as i64);
        assert_eq!([40, 26, 25].map(|lag| read(&mut o, 110, lag, 0)), [true, true, false]);
        assert!(!read(&mut o, 115, 45, 0), "hysteresis");
        assert!(!read(&mut o, 120, 51, 0));
        assert!(read(&mut o, 160, 70, 0));
        o.drained();
        assert!(!o.shedding);
        assert_eq!(o.lag_ns(), 0);
    }

    #[test]
    fn a_large_buffer_may_hold_four_frames() {
        for (octets, enter) in [(0, 160), (1 << 40, 160), (64_000_000, 160), (20_000_000, 50)] {
            let mut o = leg();
            o.see(Tai(0), Tai(0), false, 0, octets);
            assert_eq!((o.enter, o.leave), (enter * MS as i64, enter * MS as i64 / 2), "{octets}");
        }
    }

    #[test]
    fn a_thread_that_catches_up_within_a_frame_sheds_nothing() {
        let mut o = leg();
        // It stands still for 150 ms in the middle of its work, and reads it all in 40.
        for (at, lag) in [(0, 0), (30, 5), (180, 150), (195, 100), (219, 51), (221, 20), (225, 0)] {
            assert!(!read(&mut o, at, lag, 0), "{at}");
        }
        o.drained();
        assert!(!read(&mut o, 300, 0, 9), "what was dropped meanwhile is no reason either");
        o.drained();
        assert!(!read(&mut o, 330, 0, 9));
    }

    #[test]
    fn a_buffer_that_runs_over_for_a_frame_sheds_until_it_has_not_for_one() {
        let mut o = leg();
        assert!(!read(&mut o, 0, 0, 5));
        assert!(!read(&mut o, 50, 2, 6));
        assert!(!read(&mut o, 70, 2, 9));
        assert!(read(&mut o, 90, 2, 12));
        assert!(read(&mut o, 129, 2, 12));
        assert!(!read(&mut o, 130, 2, 12));
    }

    #[test]
    fn clocks_that_disagree_are_no_lag() {
        let mut o = leg();
        for at in 0..10 {
            assert!(!read(&mut o, at * 100, 37_000, 0));
            assert!(!read(&mut o, at * 100 + 50, 37_001, 0));
            o.drained();
        }
        // The clock of the arrivals steps by a second: what is read when all has been read is what counts.
        assert!(!read(&mut o, 2000, 38_000, 0));
        o.drained();
        assert!(!read(&mut o, 2100, 38_000, 0));
        assert!(!read(&mut o, 2150, 38_060, 0));
        assert!(read(&mut o, 2200, 38_080, 0));
    }

    /// Two legs of one stream, in virtual time. Of each batch: when it is read, by which leg, for how long its last packet has
    /// waited (all in milliseconds), packets that its buffer has dropped, and whether it holds any of the flow.
    struct Two(Overload, [Option<Tai>; 2]);

    impl Two {
        fn new() -> Self {
            Two(Overload::new(Duration::from_millis(40), 4_000_000, 2), [None; 2])
        }
        fn read(&mut self, at: u64, leg: usize, lag: i64, dropped: u64, flow: bool) -> bool {
            let now = Tai((1_000_000 + at) * MS);
            let newest = Tai(now.0.wrapping_add_signed(-lag * MS as i64));
            let of = &mut self.0.legs[leg];
            of.see(now, newest, false, dropped, 20_000_000);
            of.brought(now, newest, self.1[leg]);
            // What is in this batch is known when the next one is read.
            self.1[leg] = if flow { Some(newest) } else { self.1[leg] };
            self.0.decide(now);
            self.0.sheds()
        }
    }

    #[test]
    fn a_leg_that_is_flooded_sheds_nothing_while_the_other_one_keeps_up() {
        let mut two = Two::new();
        for at in (0..2000).step_by(5) {
            // Its buffer is full, for good; there is a packet of the flow in it now and then.
            assert!(!two.read(at, 0, (at as i64).min(200), at, at % 40 == 0), "{at}");
            assert!(!two.read(at + 1, 1, 1, 0, true), "{at}");
        }
        assert_eq!(two.0.lag_ns(), 200 * MS as i64);
        // Then the other one brings nothing any more: 50 ms after its last batch it does not keep up.
        let sheds: Vec<bool> = (2000..2100).step_by(10).map(|at| two.read(at, 0, 200, at, true)).collect();
        assert_eq!(sheds.iter().position(|sheds| *sheds), Some(5), "{sheds:?}");
        // It is back.
        assert!(two.read(2100, 1, 1, 0, true));
        assert!(!two.read(2105, 1, 1, 0, true), "what it brings is the flow");
    }

    #[test]
    fn frames_are_shed_when_both_legs_lie_behind() {
        let mut two = Two::new();
        let mut shed = Vec::new();
        for at in (0..200).step_by(5) {
            shed.push(two.read(at, 0, at as i64, 0, true) | two.read(at + 1, 1, at as i64, 0, true));
        }
        // More than a quarter of the buffer from 55 ms on, for a frame's time: at 95 ms.
        assert_eq!(shed.iter().position(|shed| *shed), Some(19), "{shed:?}");
        assert!(shed[19..].iter().all(|shed| *shed));
    }

    #[test]
    fn a_leg_that_brings_strangers_only_does_not_keep_up() {
        let mut two = Two::new();
        let shed = |two: &mut Two, at| two.read(at, 0, 100, 0, true) | two.read(at + 1, 1, 0, 0, false);
        // The first one begins with a lag of 0, so that 100 ms are known for what they are.
        assert!(!two.read(0, 0, 0, 0, true));
        let all: Vec<bool> = (10..100).step_by(10).map(|at| shed(&mut two, at)).collect();
        assert_eq!(all.iter().position(|shed| *shed), Some(4), "{all:?}");
    }

    proptest! {
        /// Whatever happens to one leg, frames are whole memory while the other one is read in time.
        #[test]
        fn one_leg_that_is_read_in_time_is_enough(batches in proptest::collection::vec((0i64..5_000, 0u64..9, any::<bool>()), 1..200)) {
            let (mut two, mut dropped, mut behind) = (Two::new(), 0, 0);
            two.read(0, 1, 0, 0, true);
            two.read(1, 1, 0, 0, true);
            for (n, (lag, drops, flow)) in (1u64..).zip(batches) {
                dropped += drops;
                // What is read later has arrived later, too.
                behind = lag.min(49).min(behind + 19);
                prop_assert!(!two.read(20 * n, 0, lag, dropped, flow));
                prop_assert!(!two.read(20 * n + 1, 1, behind, 0, true));
            }
        }

        #[test]
        fn never_sheds_what_is_read_in_time(batches in proptest::collection::vec((1u64..50, 0i64..50, proptest::bool::ANY), 1..200)) {
            let (mut o, mut now) = (leg(), 0);
            for (pause, lag, drained) in batches {
                now += pause;
                prop_assert!(!read(&mut o, now, lag, 0));
                if drained {
                    o.drained();
                }
            }
        }

        #[test]
        fn any_time_is_read_without_harm(times in proptest::collection::vec((0u64.., 0u64.., 0u64.., 0u64..), 1..50)) {
            let mut o = leg();
            for (now, newest, dropped, octets) in times {
                o.see(Tai(now), Tai(newest), now % 2 == 0, dropped, octets);
                let _ = o.lag_ns();
            }
        }
    }
}
