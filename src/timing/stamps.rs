//! What the time stamps of arrivals can carry. Buckets and gaps need stamps that were taken on the wire; stamps of the
//! kernel are made when it gets round to a packet, often many at once, and say nothing of the spacing.

use crate::time::Tai;
use serde::Serialize;
use std::fmt;

/// Who stamped the arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A network card, a switch or a tap, on the wire; or a virtual sender.
    Hardware,
    /// A capture does not say who; it is judged by what can be seen.
    #[default]
    Capture,
    /// The kernel or a program.
    Software,
}

/// Whether measures within a frame may be shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "trust", rename_all = "snake_case")]
pub enum Trust {
    /// They are exact.
    Exact,
    /// They may be off by so many packets, for the stamps are no finer than this.
    Coarse {
        /// Nanoseconds of a step of the stamps.
        resolution_ns: u64,
        /// Packets that come in such a step, rounded up.
        packets: u32,
    },
    /// They may not.
    No {
        /// Why.
        reason: String,
    },
}

impl Trust {
    /// How far bucket levels may be off, in packets; `None` when they may not be shown.
    pub fn slack(&self) -> Option<i64> {
        match self {
            Trust::Exact => Some(0),
            Trust::Coarse { packets, .. } => Some(i64::from(*packets)),
            Trust::No { .. } => None,
        }
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trust::Exact => f.write_str("exact"),
            Trust::Coarse { resolution_ns, packets } => {
                let (us, s) = (*resolution_ns as f64 / 1000.0, if *packets == 1 { "" } else { "s" });
                write!(f, "stamps in steps of {us} us: levels are right to {packets} packet{s}")
            }
            Trust::No { reason } => write!(f, "not measurable with this clock: {reason}"),
        }
    }
}

/// No two packets of video come closer than this: 1000 octets at 400 Gb/s.
const WIRE_NS: i64 = 20;
/// What a kernel's stamps of one poll lie apart at most, and what two packets at 25 Gb/s lie apart at least.
const POLL_NS: i64 = 600;

/// Watches the stamps of one leg.
#[derive(Clone, Copy, Debug)]
pub struct Stamps {
    last: Option<Tai>,
    /// The largest power of ten that all stamps are multiples of.
    step: u64,
    count: u64,
    /// Stamps nearer to the one before than any wire allows, and the longest run of them.
    merged: u64,
    run: u32,
    longest: u32,
    /// Stamps as near as those of one poll.
    near: u64,
}

impl Default for Stamps {
    fn default() -> Self {
        Stamps { last: None, step: 1_000_000_000, count: 0, merged: 0, run: 0, longest: 0, near: 0 }
    }
}

impl Stamps {
    /// One more stamp.
    #[inline]
    pub fn add(&mut self, t: Tai) {
        while self.step > 1 && !t.0.is_multiple_of(self.step) {
            self.step /= 10;
        }
        self.count += 1;
        if let Some(last) = self.last {
            let after = t.since(last);
            self.near += u64::from(after < POLL_NS);
            if after < WIRE_NS {
                self.merged += 1;
                self.run += 1;
                self.longest = self.longest.max(self.run);
            } else {
                self.run = 0;
            }
        }
        self.last = Some(t);
    }

    /// Nanoseconds of a step, as far as the stamps show it.
    pub fn resolution_ns(&self) -> u64 {
        self.step
    }

    /// Packets whose stamps are equal or nearer than any wire allows.
    pub fn merged(&self) -> u64 {
        self.merged
    }

    /// Whether they carry measures of packets that come every `spacing_ns` on average.
    pub fn trust(&self, source: Source, spacing_ns: u64) -> Trust {
        let no = |reason: String| Trust::No { reason };
        match source {
            Source::Software => {
                return no("software stamps do not say when packets were on the wire".into());
            }
            Source::Capture => {
                // Equal stamps within a step as long as the wire needs for them are no sign of anything.
                let possible = (self.step as i64 / WIRE_NS).max(0) as u32;
                if self.longest > possible.max(1) || (self.step < 100 && self.merged * 1000 > self.count) {
                    return no(format!(
                        "{} of {} stamps are equal to the one before, or nearer than any wire allows: they were given to \
                         many packets at once",
                        self.merged, self.count
                    ));
                }
                if self.step < 1000 && spacing_ns > 4 * POLL_NS as u64 && self.near * 10 > self.count {
                    return no(format!(
                        "{} of {} packets come within {POLL_NS} ns of the one before, as in stamps that a kernel makes, \
                         and as a sender without pacing sends; say --trust hardware when a card or a tap made them",
                        self.near, self.count
                    ));
                }
            }
            Source::Hardware => {}
        }
        if self.count > 0 && self.step * 10 > spacing_ns {
            let packets = self.step.div_ceil(spacing_ns.max(1));
            if packets > 8 {
                return no(format!("stamps in steps of {} us, with a packet every {spacing_ns} ns", self.step / 1000));
            }
            return Trust::Coarse { resolution_ns: self.step, packets: packets as u32 };
        }
        Trust::Exact
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(times: impl Iterator<Item = u64>) -> Stamps {
        let mut s = Stamps::default();
        times.for_each(|t| s.add(Tai(1_700_000_000_000_000_000 + t)));
        s
    }

    #[test]
    fn what_stamps_can_carry() {
        let paced = stamps((0..1000).map(|n| n * 3707 + n % 3));
        assert_eq!((paced.resolution_ns(), paced.trust(Source::Capture, 3707)), (1, Trust::Exact));
        assert!(matches!(paced.trust(Source::Software, 3707), Trust::No { .. }));
        let micro = stamps((0..1000).map(|n| n * 7407 / 1000 * 1000));
        assert_eq!(micro.trust(Source::Capture, 7407), Trust::Coarse { resolution_ns: 1000, packets: 1 });
        assert_eq!(micro.trust(Source::Capture, 42_667), Trust::Exact);
        // 2160p59.94 in microseconds: two packets a step.
        let uhd = stamps((0..1000).map(|n| n * 927 / 1000 * 1000));
        assert_eq!(uhd.trust(Source::Hardware, 927), Trust::Coarse { resolution_ns: 1000, packets: 2 });
    }

    #[test]
    fn stamps_of_a_kernel_are_not_believed() {
        // 32 packets of one poll, 300 ns apart.
        let polled = stamps((0..1000).map(|n| n / 32 * 118_000 + n % 32 * 301));
        let Trust::No { reason } = polled.trust(Source::Capture, 3707) else { panic!() };
        assert!(reason.contains("--trust hardware"), "{reason}");
        assert_eq!(polled.trust(Source::Hardware, 3707), Trust::Exact);
        // One stamp for a merged run.
        let merged = stamps((0..1000).map(|n| n / 16 * 59_311));
        let Trust::No { reason } = merged.trust(Source::Capture, 3707) else { panic!() };
        assert!(reason.contains("at once"), "{reason}");
        // The same cut to microseconds: more in a step than the wire can bring... 51 packets are possible at 400 Gb/s.
        let milli = stamps((0..1000).map(|n| n * 3707 / 1_000_000 * 1_000_000));
        assert!(matches!(milli.trust(Source::Capture, 3707), Trust::No { .. }));
    }
}
