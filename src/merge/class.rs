//! The classes of ST 2022-7: how far the paths of the legs may lie apart.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How far the legs of a flow may lie apart in time (ST 2022-7:2019, table of receiver classes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Low skew: 10 ms.
    #[default]
    A,
    /// Moderate skew: 50 ms.
    B,
    /// High skew: 450 ms below 270 Mbit/s, 150 ms from there on.
    C,
    /// Ultra low skew: 150 µs.
    D,
    /// None of these.
    Other(Duration),
}

/// Octets a second, times eight: from here on class C has the shorter limit.
const HIGH_RATE: u64 = 270_000_000;
/// No longer time is taken.
const LONGEST: Duration = Duration::from_secs(10);

impl Class {
    /// The limit for a stream of so many bits of payload a second.
    pub const fn window(self, bits_per_second: u64) -> Duration {
        match self {
            Class::A => Duration::from_millis(10),
            Class::B => Duration::from_millis(50),
            Class::C if bits_per_second < HIGH_RATE => Duration::from_millis(450),
            Class::C => Duration::from_millis(150),
            Class::D => Duration::from_micros(150),
            Class::Other(time) => time,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Class::A => f.write_str("class A"),
            Class::B => f.write_str("class B"),
            Class::C => f.write_str("class C"),
            Class::D => f.write_str("class D"),
            Class::Other(_) => f.write_str("chosen"),
        }
    }
}

impl FromStr for Class {
    type Err = String;

    /// `A` to `D`, or a time such as `25ms`, `150us`, `1s`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is neither a class (A, B, C, D) nor a time such as 25ms or 150us");
        match text.to_ascii_uppercase().as_str() {
            "A" => return Ok(Class::A),
            "B" => return Ok(Class::B),
            "C" => return Ok(Class::C),
            "D" => return Ok(Class::D),
            _ => {}
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let nanos = match unit {
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            _ => return Err(wrong()),
        };
        let time = number.checked_mul(nanos).map(Duration::from_nanos).filter(|t| !t.is_zero() && *t <= LONGEST);
        time.map(Class::Other).ok_or_else(|| format!("`{text}` is not between 1us and 10s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_and_times() {
        let ms = Duration::from_millis;
        let of = |text: &str, rate| text.parse::<Class>().map(|class| class.window(rate));
        assert_eq!(of("A", 1), Ok(ms(10)));
        assert_eq!(of("b", 1), Ok(ms(50)));
        assert_eq!((of("C", 269_999_999), of("c", 270_000_000)), (Ok(ms(450)), Ok(ms(150))));
        assert_eq!(of("D", 1), Ok(Duration::from_micros(150)));
        assert_eq!(
            (of("25ms", 1), of("150us", 1), of("10s", 1)),
            (Ok(ms(25)), Ok(Duration::from_micros(150)), Ok(ms(10_000)))
        );
        for wrong in ["", "E", "AA", "10", "ms", "-5ms", "0ms", "11s", "99999999999999999999ms", "1.5ms", "10 ms"] {
            assert!(wrong.parse::<Class>().is_err(), "{wrong}");
        }
    }
}
