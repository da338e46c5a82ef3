//! The clock of a network card (PTP hardware clock): `/dev/ptpN`, read by its dynamic clock identifier.
#![allow(unsafe_code)]

use crate::error::{Error, Kind, Result};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

/// An open clock.
#[derive(Debug)]
pub struct Phc {
    file: File,
    number: u32,
}

/// How a card's clock lies to the system's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distance {
    /// Nanoseconds that the card's clock is ahead of `CLOCK_REALTIME`.
    pub ahead_ns: i64,
    /// Within so many nanoseconds: how long the reading took.
    pub within_ns: i64,
}

impl Phc {
    /// Opens `/dev/ptpN`.
    ///
    /// # Errors
    /// There is none, or this user may not read it.
    pub fn open(number: u32) -> Result<Self> {
        let path = format!("/dev/ptp{number}");
        let file = File::open(&path).map_err(|e| {
            let (kind, cure) = match e.kind() {
                std::io::ErrorKind::PermissionDenied => (Kind::Permission, "make it readable, by a rule of udev"),
                _ => (Kind::Unavailable, "the driver of the card makes it: is the card's driver loaded?"),
            };
            Error::new(kind, format!("cannot open the card's clock {path}")).because(e).cure(cure)
        })?;
        Ok(Phc { file, number })
    }

    /// Which one it is.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its time, in nanoseconds; none when the card is gone.
    pub fn now(&self) -> Option<u64> {
        read(clock_id(self.file.as_raw_fd())).and_then(|ns| u64::try_from(ns).ok())
    }

    /// Its distance from the system's clock: of five readings the one that took the shortest.
    pub fn distance(&self) -> Option<Distance> {
        let once = || {
            let before = read(libc::CLOCK_REALTIME)?;
            let card = read(clock_id(self.file.as_raw_fd()))?;
            let after = read(libc::CLOCK_REALTIME)?;
            Some(between(before, card, after))
        };
        (0..5).filter_map(|_| once()).min_by_key(|d| d.within_ns)
    }
}

/// The card's clock was read between two readings of the system's.
const fn between(before: i64, card: i64, after: i64) -> Distance {
    let within = after - before;
    Distance { ahead_ns: card - (before + within / 2), within_ns: within }
}

/// `FD_TO_CLOCKID` of the kernel's `posix-timers.h`.
const fn clock_id(fd: RawFd) -> libc::clockid_t {
    (!fd << 3) | 3
}

fn read(clock: libc::clockid_t) -> Option<i64> {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is writable and outlives the call.
    (unsafe { libc::clock_gettime(clock, &mut t) } == 0).then(|| t.tv_sec * 1_000_000_000 + t.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_identifiers_are_those_of_the_kernel() {
        // ((~(clockid_t)(fd) << 3) | 3)
        assert_eq!((clock_id(0), clock_id(3), clock_id(7)), (-5, -29, -61));
        // A file that is no clock has none.
        assert_eq!(read(clock_id(File::open("/dev/null").unwrap().as_raw_fd())), None);
    }

    #[test]
    fn a_card_that_is_not_there_says_so() {
        let error = Phc::open(4_000_000).unwrap_err();
        assert!(error.to_string().contains("/dev/ptp4000000") && !error.cure_text().is_empty(), "{error}");
    }

    #[test]
    fn distances_are_taken_in_the_middle() {
        assert_eq!(between(1000, 37_000_001_100, 1200), Distance { ahead_ns: 37_000_000_000, within_ns: 200 });
    }
}
