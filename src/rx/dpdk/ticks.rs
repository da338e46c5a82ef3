//! Time stamps of a card are ticks of its clock, of which there may be any number in a second (`rte_eth_read_clock`). Pure.

use std::time::Duration;

/// What a tick is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    /// In a second; none: they are nanoseconds.
    per_second: Option<u64>,
    /// Nanoseconds of one: whole ones, and parts of 2^64 of one, rounded up.
    whole: u64,
    part: u64,
}

const SECOND: u128 = 1_000_000_000;
/// Tries of a reading, and how long the best of them may take.
const TRIES: usize = 32;
const NEAR: Duration = Duration::from_micros(20);

/// Ticks of a card, and the time by our clock when they were read. Who reads may be held up between the two, so the shortest of some
/// tries counts; none: all were held up, or the card does not say.
pub fn read(mut card: impl FnMut() -> Option<u64>, mut now: impl FnMut() -> Duration) -> Option<(u64, Duration)> {
    let mut best: Option<(Duration, u64, Duration)> = None;
    for _ in 0..TRIES {
        let before = now();
        let ticks = card()?;
        let took = now().saturating_sub(before);
        if best.is_none_or(|(least, ..)| took < least) {
            best = Some((took, ticks, before + took / 2));
        }
    }
    best.filter(|(took, ..)| *took <= NEAR).map(|(_, ticks, at)| (ticks, at))
}

/// Drivers that have no clock to read, and whose stamps are nanoseconds by what their sources of 22.11 do
/// (`ice_tstamp_convert_32b_64b`, `iavf_tstamp_convert_32b_64b`).
const IN_NANOSECONDS: [&str; 2] = ["net_ice", "net_iavf"];

/// What reading a card's clock gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// There is none to read.
    None,
    /// There is one, and whoever reads it is held up too often.
    HeldUp,
    Measured(Ticks),
}

/// Why the stamps of a card are of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Useless {
    /// Its clock could not be measured in time.
    HeldUp,
    /// It has no clock to read, and its driver is none of those that are known to count nanoseconds: mlx5 counts at 78, 156 or
    /// 1000 MHz, and which one it is nobody says.
    Unknown,
}

/// What the stamps of a driver count, by what reading its clock gave.
///
/// # Errors
/// That cannot be known.
pub fn of(driver: &str, clock: Clock) -> Result<Ticks, Useless> {
    match clock {
        Clock::Measured(ticks) => Ok(ticks),
        Clock::HeldUp => Err(Useless::HeldUp),
        Clock::None if IN_NANOSECONDS.contains(&driver) => Ok(Ticks::NANOSECONDS),
        Clock::None => Err(Useless::Unknown),
    }
}

impl Ticks {
    /// Nanoseconds.
    pub const NANOSECONDS: Ticks = Ticks { per_second: None, whole: 1, part: 0 };

    fn of(per_second: u64) -> Self {
        let divisor = u128::from(per_second.max(1));
        let (whole, part) = (SECOND / divisor, ((SECOND % divisor) << 64).div_ceil(divisor));
        Ticks { per_second: Some(per_second), whole: whole as u64, part: u64::try_from(part).unwrap_or(u64::MAX) }
    }

    /// From two readings.
    pub fn measured(first: (u64, Duration), last: (u64, Duration)) -> Self {
        let (ticks, apart) = (u128::from(last.0.wrapping_sub(first.0)), last.1.saturating_sub(first.1));
        let per_second = ticks * SECOND / apart.as_nanos().max(1);
        // Readings are some microseconds off. A clock that is that near to nanoseconds counts them.
        if ticks == 0 || per_second.abs_diff(SECOND) < SECOND / 500 {
            return Self::NANOSECONDS;
        }
        u64::try_from(per_second).map_or(Self::NANOSECONDS, Self::of)
    }
    /// A stamp in nanoseconds of the card's clock, not less than by division and a nanosecond more at most; 0 stays 0, for no stamp.
    /// Each packet has one: no division here.
    #[inline]
    pub fn nanoseconds(self, stamp: u64) -> u64 {
        let part = (u128::from(stamp) * u128::from(self.part)) >> 64;
        stamp.wrapping_mul(self.whole).wrapping_add(part as u64)
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
    fn no_clock_means_nanoseconds_of_known_drivers_only() {
        let ticks = Ticks::of(156_250_000);
        assert_eq!(super::of("net_ice", Clock::None), Ok(Ticks::NANOSECONDS));
        assert_eq!(super::of("net_iavf", Clock::None), Ok(Ticks::NANOSECONDS));
        for driver in ["mlx5_pci", "mlx5_eth", "net_cnxk", "net_icelike", ""] {
            assert_eq!(super::of(driver, Clock::None), Err(Useless::Unknown), "{driver}");
            assert_eq!(super::of(driver, Clock::Measured(ticks)), Ok(ticks), "{driver}");
        }
        assert_eq!(super::of("net_ice", Clock::HeldUp), Err(Useless::HeldUp), "one that is there is asked");
    }

    #[test]
    fn ticks_of_any_length_become_nanoseconds() {
        let of = |first, last| Ticks::measured((first, Duration::ZERO), (last, Duration::from_millis(100)));
        assert_eq!(of(5, 100_001_005), Ticks::NANOSECONDS);
        // 156.25 MHz: 6.4 ns each.
        let ticks = of(1000, 1000 + 15_625_000);
        assert_eq!((ticks.per_second(), ticks.nanoseconds(10)), (Some(156_250_000), 64));
        assert_eq!(ticks.nanoseconds(156_250_000 * 86_400 * 365), 86_400 * 365 * 1_000_000_000);
        assert_eq!((ticks.nanoseconds(0), of(7, 7)), (0, Ticks::NANOSECONDS), "a clock that stands still");
        // It wraps between the readings.
        assert_eq!(of(u64::MAX - 1_000_000, 14_624_999).per_second(), Some(156_250_000));
    }

    proptest::proptest! {
        /// Any stamp, of clocks of 1 Hz to 1 THz.
        #[test]
        fn a_product_is_the_division(per_second in 1u64..1_000_000_000_000, stamp: u64, bits in 0u32..64) {
            let stamp = stamp >> bits;
            let divided = (u128::from(stamp) * SECOND / u128::from(per_second)) as u64;
            let more = Ticks::of(per_second).nanoseconds(stamp).wrapping_sub(divided);
            proptest::prop_assert!(more <= 1, "{stamp} ticks of {per_second} Hz: {more} more");
        }

        /// Whole nanoseconds are exact.
        #[test]
        fn whole_seconds_are_exact(per_second in 1u64..1_000_000_000_000, seconds in 0u64..1_000_000) {
            proptest::prop_assert_eq!(Ticks::of(per_second).nanoseconds(seconds * per_second), seconds * 1_000_000_000);
        }
    }

    /// A card of 156.25 MHz, read in so many microseconds by turns, each try.
    fn reading(took: &[u64]) -> Option<(u64, Duration)> {
        let time = std::cell::Cell::new(Duration::ZERO);
        let mut turns = took.iter().cycle();
        let mut pass = || time.set(time.get() + Duration::from_micros(*turns.next().unwrap()) / 2);
        let card = || {
            pass();
            let ticks = time.get().as_nanos() * 10 / 64;
            pass();
            Some(ticks as u64)
        };
        read(card, || time.get())
    }

    #[test]
    fn a_reading_that_was_held_up_counts_for_nothing() {
        // Each try is two turns: before the card was read, and after.
        let (ticks, at) = reading(&[64_000, 2, 2, 128_000, 4, 4]).unwrap();
        assert_eq!(at, Duration::from_micros(32_001 + 64_001 + 2));
        assert_eq!(u128::from(ticks), at.as_nanos() * 10 / 64, "of one moment");
        assert_eq!(reading(&[20, 20]).map(|(_, at)| at), Some(Duration::from_micros(10)));
        assert_eq!(reading(&[21, 21]), None);
        assert_eq!(reading(&[64_000, 2]), None);
        assert_eq!(read(|| None, || Duration::ZERO), None);
        // A stall of 64 ms in the second of two readings does not lengthen the ticks.
        let first = reading(&[2, 2]).unwrap();
        let later = reading(&[200_000, 2, 2, 2, 64_000, 2, 4, 4]).unwrap();
        assert_eq!(Ticks::measured(first, later).per_second().map(|n| n.div_ceil(1000)), Some(156_250));
    }
}
