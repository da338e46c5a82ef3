//! Times as NMOS writes them: TAI, `<seconds>:<nanoseconds>` (IS-04, "APIs: Common Keys").

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const SECOND: u64 = 1_000_000_000;

/// Nanoseconds of TAI since 1970-01-01; also a length of time, where IS-05 asks for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tai(pub u64);

impl fmt::Display for Tai {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not padded: 1:5 is one second and five nanoseconds.
        write!(f, "{}:{}", self.0 / SECOND, self.0 % SECOND)
    }
}

impl FromStr for Tai {
    type Err = String;
    fn from_str(text: &str) -> Result<Tai, String> {
        let digits = |part: &str| {
            let all = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            all.then(|| part.parse::<u64>().ok()).flatten()
        };
        let parts = text.split_once(':').and_then(|(s, n)| Some((digits(s)?, digits(n)?)));
        let (seconds, nanoseconds) = parts.ok_or("a time is written <seconds>:<nanoseconds>, such as 1439299836:10")?;
        if nanoseconds >= SECOND {
            return Err("the nanoseconds of a time are less than 1000000000".into());
        }
        seconds
            .checked_mul(SECOND)
            .and_then(|s| s.checked_add(nanoseconds))
            .map(Tai)
            .ok_or("this time lies beyond the year 2554".into())
    }
}

/// What says how late it is.
pub type Clock = Arc<dyn Fn() -> Tai + Send + Sync>;

/// The clock of the operating system, which runs in UTC; TAI is `tai_offset` seconds ahead of it (37 since 2017).
pub fn system_clock(tai_offset: i64) -> Clock {
    Arc::new(move || {
        let utc = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ns = u64::try_from(utc.as_nanos()).unwrap_or(u64::MAX);
        Tai(ns.saturating_add_signed(tai_offset.saturating_mul(SECOND as i64)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_nmos_writes_them() {
        assert_eq!(Tai(1_439_299_836_000_000_010).to_string(), "1439299836:10");
        assert_eq!("1439299836:10".parse(), Ok(Tai(1_439_299_836_000_000_010)));
        assert_eq!("0:200000000".parse(), Ok(Tai(200_000_000)));
        assert_eq!("0:999999999".parse(), Ok(Tai(999_999_999)));
    }

    #[test]
    fn bad_ones_are_refused() {
        for bad in ["", ":", "1", "1:", ":1", "1.5", "-1:0", "+1:0", "1:-0", " 1:0", "1:0 ", "0:1000000000", "1:2:3"] {
            assert!(bad.parse::<Tai>().is_err(), "{bad}");
        }
        assert!("99999999999999999999:0".parse::<Tai>().is_err());
        assert!("18446744074:0".parse::<Tai>().is_err());
    }
}
