//! Instants and clocks: TAI, RTP timestamps, frame numbers since the epoch.

use std::fmt;
use std::ops::{Add, Sub};

/// An instant: nanoseconds of TAI since 1970-01-01 00:00:00 TAI (the SMPTE and PTP epoch).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tai(pub u64);

impl Tai {
    /// Nanoseconds from `earlier` to `self`, negative when `self` is earlier.
    pub const fn since(self, earlier: Tai) -> i64 {
        self.0.wrapping_sub(earlier.0) as i64
    }
}

impl Add<std::time::Duration> for Tai {
    type Output = Tai;
    fn add(self, d: std::time::Duration) -> Tai {
        Tai(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<std::time::Duration> for Tai {
    type Output = Tai;
    fn sub(self, d: std::time::Duration) -> Tai {
        Tai(self.0.saturating_sub(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Tai {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}
