//! The kernel's clock that is never set.
#![allow(unsafe_code)]

use std::time::Duration;

/// `CLOCK_MONOTONIC`, which [`std::time::Instant`] does not show.
pub fn monotonic() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is written and outlives the call; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}
