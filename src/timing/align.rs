//! How the sender's RTP clock lies to the clock that stamped the arrivals (ST 2110-10:2022, 7.4 and 7.5).

use super::measure::Stat;
use crate::time::{self, MediaClock, Tai};
use serde::Serialize;

/// A drift of less than this is none: quartz clocks that are not locked differ by more.
const STEADY_PPM: f64 = 0.5;

/// The relation of the two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Alignment {
    /// No packet yet.
    Unknown,
    /// Timestamps name instants of TAI, and so do the arrivals: less than a second lies between them.
    Aligned,
    /// 37 s apart: one of them is UTC.
    Utc,
    /// A constant distance that is none of these.
    Offset,
    /// The distance changes: the sender's clock runs free.
    FreeRunning,
    /// Apart, and seen for too short a time to tell a constant distance from a drift.
    Apart,
}

impl Alignment {
    /// For people.
    pub const fn text(self) -> &'static str {
        match self {
            Alignment::Unknown => "not known",
            Alignment::Aligned => "timestamps are TAI, like the arrivals",
            Alignment::Utc => "timestamps and arrivals lie 37 s apart: one of the two clocks is UTC, not TAI",
            Alignment::Offset => "timestamps lie at a constant distance from the arrivals",
            Alignment::FreeRunning => "timestamps come from a free-running clock",
            Alignment::Apart => "timestamps are not TAI (seen too briefly to tell a constant distance from a drift)",
        }
    }
}

/// The relation with its figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Clocks {
    /// What it is.
    pub alignment: Alignment,
    /// Arrival minus media time, in nanoseconds, over the units that were looked at.
    pub latency_ns: Stat,
    /// How much faster the arrivals' clock runs than the sender's, in millionths, where the time suffices.
    pub drift_ppm: Option<f64>,
    /// One standard error of the drift.
    pub drift_error_ppm: Option<f64>,
}

impl Clocks {
    /// The drift in millionths, where it is more than the jitter of the arrivals makes of it.
    pub fn sure_drift_ppm(&self) -> Option<f64> {
        let (drift, error) = self.drift_ppm.zip(self.drift_error_ppm)?;
        (error < STEADY_PPM || drift.abs() > 4.0 * error).then_some(drift)
    }
}

/// Watches the first packets of frames (or all packets of audio).
#[derive(Clone, Debug)]
pub struct Aligner {
    clock: MediaClock,
    first: Option<(Tai, i64)>,
    latency: Stat,
    // Sums of the least squares of latency (ns) over arrival (s), both from the first one: figures for people, which no
    // exact boundary rests on.
    n: f64,
    sums: [f64; 5],
}

impl Aligner {
    /// For timestamps of this clock.
    pub fn new(clock: MediaClock) -> Self {
        Aligner { clock, first: None, latency: Stat::default(), n: 0.0, sums: [0.0; 5] }
    }

    /// One more timestamp and its arrival; the media time and the latency.
    #[inline]
    pub fn add(&mut self, timestamp: u32, arrival: Tai) -> time::Unwrapped {
        let unwrapped = self.clock.unwrap(timestamp, arrival);
        let (from, base) = *self.first.get_or_insert((arrival, unwrapped.latency_ns));
        self.latency.add(unwrapped.latency_ns);
        let x = arrival.since(from) as f64 / 1e9;
        let y = unwrapped.latency_ns.wrapping_sub(base) as f64;
        self.n += 1.0;
        for (sum, term) in self.sums.iter_mut().zip([x, y, x * x, x * y, y * y]) {
            *sum += term;
        }
        unwrapped
    }

    /// What has been seen so far.
    pub fn clocks(&self) -> Clocks {
        let drift = self.drift();
        let seen = match self.first {
            None => Alignment::Unknown,
            Some((_, latency)) => match time::Alignment::judge(latency) {
                time::Alignment::Aligned => Alignment::Aligned,
                time::Alignment::Utc => Alignment::Utc,
                time::Alignment::Free => match drift {
                    Some((ppm, error)) if ppm.abs() > STEADY_PPM && ppm.abs() > 4.0 * error => Alignment::FreeRunning,
                    Some((_, error)) if error < STEADY_PPM / 2.0 => Alignment::Offset,
                    _ => Alignment::Apart,
                },
            },
        };
        Clocks {
            alignment: seen,
            latency_ns: self.latency,
            drift_ppm: drift.map(|d| d.0),
            drift_error_ppm: drift.map(|d| d.1),
        }
    }

    /// Slope and its standard error, in millionths; of half a second at least.
    fn drift(&self) -> Option<(f64, f64)> {
        let [x, y, xx, xy, yy] = self.sums;
        let n = self.n;
        let (sxx, sxy, syy) = (xx - x * x / n, xy - x * y / n, yy - y * y / n);
        // Evenly spaced over half a second: n * 0.5^2 / 12.
        if n < 10.0 || sxx < n * 0.25 / 12.0 {
            return None;
        }
        let slope = sxy / sxx;
        let error = ((syy - slope * sxy).max(0.0) / (n - 2.0) / sxx).sqrt();
        // Nanoseconds a second are thousandths of a millionth.
        Some((slope / 1000.0, error / 1000.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: u64 = 1_700_000_037_123_456_789;

    /// A sender whose clock is `offset` ns behind at the start and gains `ppm`, seen for so many 50ths of a second.
    fn seen(offset: i64, ppm: i64, frames: u64) -> Clocks {
        let mut a = Aligner::new(MediaClock::VIDEO);
        for n in 0..frames {
            let since = n * 20_000_000;
            let sender = (T + since).wrapping_add_signed(since as i64 * ppm / 1_000_000 - offset);
            a.add(time::rtp_from_tai(Tai(sender), 90_000), Tai(T + since));
        }
        a.clocks()
    }

    #[test]
    fn clocks_are_told_apart() {
        assert_eq!(Aligner::new(MediaClock::VIDEO).clocks().alignment, Alignment::Unknown);
        let aligned = seen(640_000, 0, 500);
        assert_eq!(aligned.alignment, Alignment::Aligned);
        assert!((640_000..651_112).contains(&aligned.latency_ns.min), "{aligned:?}");
        assert_eq!(seen(-37_000_000_000 + 640_000, 0, 500).alignment, Alignment::Utc);
        assert_eq!(seen(37_000_640_000, 0, 3).alignment, Alignment::Utc);
        assert_eq!(seen(3_660_000_000_000, 0, 500).alignment, Alignment::Offset);
        assert_eq!(seen(3_660_000_000_000, 0, 5).alignment, Alignment::Apart);
        let free = seen(3_660_000_000_000, 20, 500);
        assert_eq!(free.alignment, Alignment::FreeRunning);
        // The sender gains: latency falls.
        assert!((free.drift_ppm.unwrap() + 20.0).abs() < 0.2, "{free:?}");
    }
}
