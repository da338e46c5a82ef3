//! Is the pipeline too slow for what arrives? Then frames are opened without memory until it has caught up: whole frames are
//! lost, and no packet.
//!
//! Packets wait in the receiver's buffer while the pipeline is at work. How long they have waited is the time from their
//! arrival to their being read, less what that takes when everything has been read: clocks of arrivals need not agree with
//! that of this machine. A pipeline that finds nothing to read now and then, or catches up within the time of a frame, is
//! fast enough. Where packets are stamped when they are read, lag does not show: there the pipeline is too slow when each batch
//! is as large as it can be.

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
#[derive(Debug)]
pub(super) struct Overload {
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
    shedding: bool,
}

impl Overload {
    /// For a stream of frames of so many octets, so far apart.
    pub fn new(frame: Duration, frame_octets: u64) -> Self {
        let nanos = u64::try_from(frame.as_nanos()).unwrap_or(u64::MAX).max(1);
        let octets = u128::from(frame_octets) * 1_000_000_000 / u128::from(nanos);
        Self::of(i64::try_from(nanos).unwrap_or(i64::MAX), u64::try_from(octets).unwrap_or(u64::MAX).max(1))
    }

    /// For another receiver of the same stream.
    pub const fn another(&self) -> Self {
        Self::of(self.frame, self.octets)
    }

    const fn of(frame: i64, octets: u64) -> Self {
        Overload {
            frame,
            octets,
            enter: 0,
            leave: 0,
            floor: None,
            raw: 0,
            busy: false,
            full_since: None,
            behind_since: None,
            dropped: 0,
            dropped_at: None,
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
    pub fn drained(&mut self) {
        if std::mem::take(&mut self.busy) {
            self.floor = Some(self.raw);
        }
        (self.full_since, self.behind_since, self.dropped_at, self.shedding) = (None, None, None, false);
    }

    /// These packets of `receiver` were read at `now`.
    pub fn read(&mut self, now: Tai, slots: &[Slot], receiver: &impl Receiver) {
        let Some(newest) = slots.last().map(|slot| slot.arrival) else { return };
        let caps = receiver.caps();
        let full = slots.len() >= caps.batch.max(2);
        self.see(now, newest, full, receiver.counters().kernel_dropped, caps.buffer_octets);
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

    /// Frames that open now get no memory.
    pub const fn sheds(&self) -> bool {
        self.shedding
    }
    /// How long the last packets had waited, in nanoseconds; 0 when there was nothing left to read.
    pub fn lag_ns(&self) -> i64 {
        self.floor.filter(|_| self.busy).map_or(0, |floor| self.raw.saturating_sub(floor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    /// 25 frames a second of 4 MB: 100 MB a second.
    fn overload() -> Overload {
        Overload::new(Duration::from_millis(40), 4_000_000)
    }
    /// Reads a batch at `now` whose last packet waited for `lag`, all in milliseconds, with a buffer of 200 ms.
    fn read(overload: &mut Overload, now: u64, lag: i64, dropped: u64) -> bool {
        let now = Tai((1_000_000 + now) * MS);
        overload.see(now, Tai(now.0.wrapping_add_signed(-lag * MS as i64)), false, dropped, 20_000_000);
        overload.sheds()
    }

    #[test]
    fn batches_that_are_full_for_long_shed_until_one_is_not() {
        let mut o = overload();
        let mut read = |at: u64, full: bool| {
            o.see(Tai(at * MS), Tai(at * MS), full, 0, 20_000_000);
            o.sheds()
        };
        assert_eq!([(0, true), (50, true), (51, true), (90, true)].map(|(at, full)| read(at, full)), [false; 4]);
        assert_eq!([(91, true), (120, true), (121, false)].map(|(at, full)| read(at, full)), [true, true, false]);
        assert_eq!([(160, true), (210, true), (212, false), (260, true)].map(|(at, full)| read(at, full)), [false; 4]);
    }

    #[test]
    fn a_quarter_of_the_buffer_for_a_frame_sheds_until_it_is_an_eighth() {
        let mut o = overload();
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
        assert!(!o.sheds());
        assert_eq!(o.lag_ns(), 0);
    }

    #[test]
    fn a_large_buffer_may_hold_four_frames() {
        for (octets, enter) in [(0, 160), (1 << 40, 160), (64_000_000, 160), (20_000_000, 50)] {
            let mut o = overload();
            o.see(Tai(0), Tai(0), false, 0, octets);
            assert_eq!((o.enter, o.leave), (enter * MS as i64, enter * MS as i64 / 2), "{octets}");
        }
    }

    #[test]
    fn a_thread_that_catches_up_within_a_frame_sheds_nothing() {
        let mut o = overload();
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
        let mut o = overload();
        assert!(!read(&mut o, 0, 0, 5));
        assert!(!read(&mut o, 50, 2, 6));
        assert!(!read(&mut o, 70, 2, 9));
        assert!(read(&mut o, 90, 2, 12));
        assert!(read(&mut o, 129, 2, 12));
        assert!(!read(&mut o, 130, 2, 12));
    }

    #[test]
    fn clocks_that_disagree_are_no_lag() {
        let mut o = overload();
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

    proptest! {
        #[test]
        fn never_sheds_what_is_read_in_time(batches in proptest::collection::vec((1u64..50, 0i64..50, proptest::bool::ANY), 1..200)) {
            let (mut o, mut now) = (overload(), 0);
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
            let mut o = overload();
            for (now, newest, dropped, octets) in times {
                o.see(Tai(now), Tai(newest), now % 2 == 0, dropped, octets);
                let _ = o.lag_ns();
            }
        }
    }
}
