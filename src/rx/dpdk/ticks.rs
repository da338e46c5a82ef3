//! Time stamps of a card are ticks of its clock, of which there may be any number in a second (`rte_eth_read_clock`). Pure.

use std::time::Duration;

/// What a tick is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    /// In a second; none: they are nanoseconds.
    per_second: Option<u64>,
}

const SECOND: u128 = 1_000_000_000;

impl Ticks {
    /// Nanoseconds.
    pub const NANOSECONDS: Ticks = Ticks { per_second: None };

    /// From two readings of the clock so far apart.
    pub fn measured(first: u64, last: u64, apart: Duration) -> Self {
        let ticks = u128::from(last.wrapping_sub(first));
        let per_second = ticks * SECOND / apart.as_nanos().max(1);
        // Readings are a microsecond off or so. A clock that is that near to nanoseconds counts them.
        if ticks == 0 || per_second.abs_diff(SECOND) < SECOND / 500 {
            return Self::NANOSECONDS;
        }
        Ticks { per_second: u64::try_from(per_second).ok() }
    }
    /// A stamp in nanoseconds of the card's clock; 0 stays 0, for no stamp.
    #[inline]
    pub fn nanoseconds(self, stamp: u64) -> u64 {
        match self.per_second {
            None => stamp,
            Some(per_second) => (u128::from(stamp) * SECOND / u128::from(per_second.max(1))) as u64,
        }
    }
    /// In a second, where they are no nanoseconds.
    pub const fn per_second(self) -> Option<u64> {
        self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_any_length_become_nanoseconds() {
        let of = |first, last| Ticks::measured(first, last, Duration::from_millis(100));
        assert_eq!(of(5, 100_001_005), Ticks::NANOSECONDS);
        // 156.25 MHz: 6.4 ns each.
        let ticks = of(1000, 1000 + 15_625_000);
        assert_eq!((ticks.per_second(), ticks.nanoseconds(10)), (Some(156_250_000), 64));
        assert_eq!(ticks.nanoseconds(156_250_000 * 86_400 * 365), 86_400 * 365 * 1_000_000_000);
        assert_eq!((ticks.nanoseconds(0), of(7, 7)), (0, Ticks::NANOSECONDS), "a clock that stands still");
        // It wraps between the readings.
        assert_eq!(of(u64::MAX - 1_000_000, 14_624_999).per_second(), Some(156_250_000));
    }
}
