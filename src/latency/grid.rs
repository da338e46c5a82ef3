//! Which frames were expected and did not come. Pure.

use crate::sdp::Ratio;
use crate::time::{Tai, frame_nanos};

/// The media clock's grid, as the frames that pass a point show it.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    rate: Option<Ratio>,
    clock_rate: u32,
    last: Option<(u32, Tai)>,
}

/// Timestamps and arrivals that differ by more nanoseconds are not of one clock: the sender began anew.
const JUMP: i64 = 1_000_000_000;
/// Frames that are recorded for one gap at most: an hour at 120 a second.
const MOST: u64 = 432_000;

impl Grid {
    /// Of frames at this rate, none where it is not known, and timestamps of so many ticks a second.
    pub const fn new(rate: Option<Ratio>, clock_rate: u32) -> Self {
        Grid { rate, clock_rate, last: None }
    }

    /// A frame passes, `ns` after it was expected. The delays of those that should have passed since the one before and did
    /// not: `ns` and the time by which each was expected earlier.
    pub fn missing(&mut self, timestamp: u32, expected: Tai, ns: u64) -> impl Iterator<Item = u64> + use<> {
        let frame_ns = self.rate.map_or(0, frame_nanos);
        let since = self
            .last
            .replace((timestamp, expected))
            .map_or(0, |(before, at)| self.frames(timestamp, before, expected, at));
        (1..since.min(MOST)).map(move |n| ns.saturating_add(n * frame_ns))
    }

    /// Frames from one to the next: by the media clock, or by the time that has passed where its timestamps jumped. Timestamps that go
    /// on by no more than a second are believed whatever time has passed: it is the clock of the arrivals that was set then.
    fn frames(&self, timestamp: u32, before: u32, now: Tai, at: Tai) -> u64 {
        let Some(rate) = self.rate.filter(|r| r.num > 0 && r.den > 0) else { return 0 };
        let passed = now.since(at);
        let ticks = i64::from(timestamp.wrapping_sub(before) as i32);
        let by_clock = i128::from(ticks) * 1_000_000_000 / i128::from(self.clock_rate.max(1));
        let goes_on = (1..=i128::from(JUMP)).contains(&by_clock);
        let agrees = (by_clock - i128::from(passed)).abs() <= i128::from(JUMP);
        let by_clock = if goes_on || agrees { by_clock } else { passed.into() };
        // Rounded: a timestamp is cut to its tick.
        let (num, den) = (i128::from(rate.num), i128::from(rate.den) * 1_000_000_000);
        u64::try_from((2 * by_clock * num + den) / (2 * den)).unwrap_or(0)
    }

    /// The delays that frames have at `now` which should have passed since the last one.
    pub fn overdue(&mut self, now: Tai) -> impl Iterator<Item = u64> + use<> {
        let frame_ns = self.rate.map_or(0, frame_nanos);
        let late = self.last.take().map_or(0, |(_, at)| u64::try_from(now.since(at)).unwrap_or(0));
        let count = late.checked_div(frame_ns).unwrap_or(0).min(MOST);
        (1..=count).rev().map(move |n| late - n * frame_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{frame_timestamp, rtp_from_tai};
    use proptest::prelude::*;

    const NTSC: Ratio = Ratio { num: 60000, den: 1001 };
    const T: Tai = Tai(1_700_000_037_123_456_789);

    #[test]
    fn increments_of_1501_and_1502_are_one_frame() {
        let mut grid = Grid::new(Some(NTSC), 90_000);
        for n in 0..100u64 {
            let at = Tai(T.0 + n * 16_683_333);
            assert_eq!(grid.missing(frame_timestamp(n, NTSC, 90_000), at, 5).count(), 0, "{n}");
        }
        let at = Tai(T.0 + 102 * 16_683_333);
        let delays: Vec<u64> = grid.missing(frame_timestamp(102, NTSC, 90_000), at, 5).collect();
        assert_eq!(delays, [16_683_338, 33_366_671]);
    }

    #[test]
    fn a_sender_that_begins_anew_is_no_gap_and_an_outage_is_one() {
        let fifty = Ratio { num: 50, den: 1 };
        let mut grid = Grid::new(Some(fifty), 90_000);
        let ms = |n: u64| Tai(T.0 + n * 1_000_000);
        assert_eq!(grid.missing(1000, ms(0), 1).count(), 0);
        assert_eq!(grid.missing(0x8000_0000, ms(20), 1).count(), 0, "new timestamps, in time");
        assert_eq!(grid.missing(77, ms(100), 1).count(), 3, "new timestamps, 80 ms later");
        assert_eq!(grid.missing(77 + 90_000 * 10, ms(10_100), 1).count(), 499, "ten seconds of silence");
        assert_eq!(grid.missing(77 + 90_000 * 9, ms(10_100), 1).count(), 0, "backwards");
        let mut unknown = Grid::new(None, 90_000);
        assert_eq!(unknown.missing(0, ms(0), 1).count() + unknown.missing(90_000, ms(1000), 1).count(), 0);
    }

    /// The clock of the arrivals is set: by an hour, by the 37 s of TAI, back. No frame is missing.
    #[test]
    fn a_clock_that_is_set_is_no_outage() {
        let fifty = Ratio { num: 50, den: 1 };
        let mut grid = Grid::new(Some(fifty), 90_000);
        let mut at = T.0;
        let mut missing = 0;
        for (n, step) in [0i64, 0, 3_600_000_000_000, 0, 37_000_000_000, 0, -37_000_000_000, 0].into_iter().enumerate()
        {
            at = at.wrapping_add_signed(20_000_000 + step);
            missing += grid.missing(1800 * n as u32, Tai(at), 5).count();
        }
        assert_eq!(missing, 0);
        // One frame that does not come while the clock is set is found.
        at = at.wrapping_add_signed(40_000_000 + 3_600_000_000_000);
        assert_eq!(grid.missing(1800 * 9, Tai(at), 5).collect::<Vec<_>>(), [20_000_005]);
    }

    proptest! {
        #[test]
        fn as_many_as_were_left_out(gaps in proptest::collection::vec(1u64..200, 1..40)) {
            let mut grid = Grid::new(Some(NTSC), 90_000);
            let mut n = 101_898_104_123u64;
            let at = |n: u64| Tai((u128::from(n) * 1_001_000_000_000 / 60_000) as u64);
            prop_assert_eq!(grid.missing(frame_timestamp(n, NTSC, 90_000), at(n), 0).count(), 0);
            for gap in gaps {
                n += gap;
                let missing = grid.missing(frame_timestamp(n, NTSC, 90_000), at(n), 0).count() as u64;
                prop_assert_eq!(missing, gap - 1);
            }
        }

        #[test]
        fn nothing_overflows(timestamps: [u32; 4], at: [u64; 4], num: u32, den: u32, clock: u32, ns: u64) {
            let mut grid = Grid::new(Some(Ratio { num, den }), clock);
            for (timestamp, at) in timestamps.into_iter().zip(at) {
                let _ = grid.missing(timestamp, Tai(at), ns).take(9).count();
            }
            let _ = grid.overdue(Tai(at[0])).take(9).count();
            let _ = rtp_from_tai(Tai(at[0]), clock);
        }
    }
}
