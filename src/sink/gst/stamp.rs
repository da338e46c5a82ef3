//! Presentation times: pure, so that tests need neither GStreamer nor a clock.

use crate::frame::Meta;
use crate::sdp::Ratio;
use crate::time::Tai;

/// A step of the media time that differs from the time that passed by more than this is the sender's restart.
const JUMP: i64 = 1_000_000_000;
/// Media times that are off the grid of the frame rate by no more than two ticks of 90 kHz are put on it.
const TICKS: i64 = 25_000;
/// Media and arrival may drift apart this far …
const DRIFT: i64 = 100_000_000;
/// … for this many frames in a row, before the base is taken anew.
const PATIENCE: u32 = 32;
/// The time rises by so much at least: the ticks of Matroska, the coarsest of all containers. A switch between two senders that are
/// in step brings two frames of one moment.
const LEAST: u64 = 1_000_000;

/// What a buffer is stamped with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Running time of the pipeline in nanoseconds.
    pub pts: u64,
    /// Does not follow the frame before without a gap.
    pub discont: bool,
}

/// Maps media times, or arrivals where there are none, to the running time of a pipeline: rising, gaps survive.
#[derive(Debug)]
pub(super) struct Stamper {
    rate: Option<Ratio>,
    base: Option<Base>,
    /// Frames in a row whose media time has drifted away from their arrival.
    drifting: u32,
}

#[derive(Clone, Copy, Debug)]
struct Base {
    /// Media times (else arrivals) are mapped.
    media: bool,
    source: Tai,
    arrival: Tai,
    pts: u64,
    last: Last,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    arrival: Tai,
    number: u64,
    pts: u64,
}

impl Stamper {
    pub fn new(rate: Option<Ratio>) -> Stamper {
        Stamper { rate: rate.filter(|r| r.num > 0), base: None, drifting: 0 }
    }

    /// Nanoseconds of one frame.
    pub fn period(&self) -> Option<u64> {
        self.rate.map(|r| u64::from(r.den) * 1_000_000_000 / u64::from(r.num))
    }

    /// `running`: running time now; matters to the first frame alone.
    pub fn stamp(&mut self, meta: &Meta, running: u64) -> Stamp {
        let media = meta.media_time.is_some();
        let source = meta.media_time.unwrap_or(meta.first_arrival);
        let (arrival, number) = (meta.first_arrival, meta.number);
        let Some(base) = self.base else {
            let last = Last { arrival, number, pts: running };
            self.base = Some(Base { media, source, arrival, pts: running, last });
            return Stamp { pts: running, discont: true };
        };
        let last = base.last;
        let passed = arrival.since(last.arrival);
        // Signed, because a sender may step back to before the first frame.
        let expected = (base.pts as i64).saturating_add(self.on_grid(source.since(base.source)));
        let step = expected.saturating_sub(last.pts as i64);
        let drift = (base.pts as i64).saturating_add(arrival.since(base.arrival)).saturating_sub(expected);
        self.drifting = if drift.saturating_abs() > DRIFT { self.drifting + 1 } else { 0 };
        let jumped = base.media != media || step.saturating_sub(passed).saturating_abs() > JUMP;
        let anew = jumped || self.drifting >= PATIENCE;
        // A new base goes on from the last frame: by the time that passed, or to where the drift is over.
        let step = match (jumped, anew) {
            (true, _) => passed,
            (false, true) => step.saturating_add(drift),
            (false, false) => step,
        };
        let pts = last.pts.saturating_add(u64::try_from(step).unwrap_or(0).max(LEAST));
        if anew {
            self.drifting = 0;
        }
        let gap = self.period().is_some_and(|period| pts - last.pts > period * 3 / 2);
        let discont = anew || gap || number != last.number.wrapping_add(1);
        let last = Last { arrival, number, pts };
        self.base = Some(if anew { Base { media, source, arrival, pts, last } } else { Base { last, ..base } });
        Stamp { pts, discont }
    }

    fn on_grid(&self, delta: i64) -> i64 {
        let Some(rate) = self.rate else { return delta };
        let second = 1_000_000_000i128 * i128::from(rate.den);
        let (scaled, num) = (i128::from(delta) * i128::from(rate.num), i128::from(rate.num));
        let frame = (scaled + second / 2).div_euclid(second);
        let grid = i64::try_from((frame * second).div_euclid(num)).unwrap_or(delta);
        if (grid - delta).abs() <= TICKS { grid } else { delta }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P5994: Option<Ratio> = Ratio::new(60000, 1001);

    fn meta(number: u64, media: Option<u64>, arrival: u64) -> Meta {
        Meta { number, media_time: media.map(Tai), first_arrival: Tai(arrival), ..Meta::default() }
    }

    /// Media time of frame `n` as a 90 kHz RTP timestamp says it.
    fn ticks(n: u64) -> u64 {
        (n * 90_000 * 1001 / 60_000) * 1_000_000_000 / 90_000
    }

    #[test]
    fn frames_of_59_94_lie_on_the_grid() {
        let mut stamper = Stamper::new(P5994);
        for n in 0..200 {
            let jitter = n * 7919 % 3_000_000;
            let stamp = stamper.stamp(&meta(n, Some(5_000_000_000 + ticks(n)), 9_000_000_000 + ticks(n) + jitter), 77);
            assert_eq!(stamp, Stamp { pts: 77 + n * 1_001_000_000_000 / 60_000, discont: n == 0 });
        }
    }

    #[test]
    fn without_media_time_arrivals_count() {
        let mut stamper = Stamper::new(P5994);
        assert_eq!(stamper.stamp(&meta(0, None, 1000), 500), Stamp { pts: 500, discont: true });
        assert_eq!(stamper.stamp(&meta(1, None, 17_001_000), 0), Stamp { pts: 17_000_500, discont: false });
        // Two frames at once: the time still rises.
        assert_eq!(stamper.stamp(&meta(2, None, 17_001_000), 0), Stamp { pts: 18_000_500, discont: false });
    }

    #[test]
    fn a_switch_between_senders_in_step_is_no_standstill() {
        let mut stamper = Stamper::new(Ratio::new(50, 1));
        let at = |number, n: u64| meta(number, Some(n * 20_000_000), 7 + n * 20_000_000);
        stamper.stamp(&at(0, 0), 0);
        assert_eq!(stamper.stamp(&at(1, 1), 0), Stamp { pts: 20_000_000, discont: false });
        // The same moment, of the other one; then both moments and numbers go on.
        assert_eq!(stamper.stamp(&at(900, 1), 0), Stamp { pts: 21_000_000, discont: true });
        assert_eq!(stamper.stamp(&at(901, 2), 0), Stamp { pts: 40_000_000, discont: false });
        // One that is a frame behind.
        assert_eq!(stamper.stamp(&at(50, 1), 0), Stamp { pts: 41_000_000, discont: true });
        assert_eq!(stamper.stamp(&at(51, 2), 0), Stamp { pts: 42_000_000, discont: false });
        assert_eq!(stamper.stamp(&at(52, 3), 0), Stamp { pts: 60_000_000, discont: false });
    }

    #[test]
    fn gaps_survive_and_are_marked() {
        let mut stamper = Stamper::new(Ratio::new(50, 1));
        let at = |n: u64| meta(n, Some(n * 20_000_000), 7 + n * 20_000_000);
        stamper.stamp(&at(0), 0);
        assert_eq!(stamper.stamp(&at(1), 0), Stamp { pts: 20_000_000, discont: false });
        // A frame that was dropped, then silence for a minute with its frames missing altogether.
        assert_eq!(stamper.stamp(&at(3), 0), Stamp { pts: 60_000_000, discont: true });
        let late = Meta { number: 4, ..at(3003) };
        assert_eq!(stamper.stamp(&late, 0), Stamp { pts: 60_060_000_000, discont: true });
    }

    #[test]
    fn a_restart_of_the_sender_goes_on_by_the_time_that_passed() {
        let mut stamper = Stamper::new(Ratio::new(50, 1));
        stamper.stamp(&meta(0, Some(1_000_000_000_000), 0), 100);
        assert_eq!(stamper.stamp(&meta(1, Some(5), 300_000_000), 0), Stamp { pts: 300_000_100, discont: true });
        assert_eq!(
            stamper.stamp(&meta(2, Some(20_000_005), 320_000_000), 0),
            Stamp { pts: 320_000_100, discont: false }
        );
        // The media time is no longer trusted.
        assert_eq!(stamper.stamp(&meta(3, None, 345_000_000), 0), Stamp { pts: 345_000_100, discont: true });
    }

    #[test]
    fn a_sender_whose_clock_runs_away_is_caught_up_with() {
        let mut stamper = Stamper::new(Ratio::new(50, 1));
        let mut previous = 0;
        let mut anew = 0;
        for n in 0..3000u64 {
            // The sender counts 20 ms where 20.1 ms pass.
            let stamp = stamper.stamp(&meta(n, Some(n * 20_000_000), n * 20_100_000), 0);
            assert!(n == 0 || stamp.pts > previous);
            anew += u32::from(stamp.discont && n > 0);
            assert!((n * 20_100_000).abs_diff(stamp.pts) < 110_000_000, "{n}");
            previous = stamp.pts;
        }
        assert!((1..=3).contains(&anew), "{anew}");
    }
}
