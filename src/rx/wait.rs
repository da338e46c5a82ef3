//! Drain, then sleep: how a thread waits between polls.
//!
//! A wake-up per datagram costs more than the datagram; one timed sleep after the receiver is drained lets datagrams
//! gather, and the socket buffer (hundreds of milliseconds) covers it.
#![allow(unsafe_code)]

use std::time::Duration;

/// One timed sleep between drained polls, to absolute deadlines a period apart.
#[derive(Debug)]
pub struct Wait {
    period: u64,
    deadline: u64,
    prepared: bool,
}

impl Wait {
    /// Sleeps `period` at a time; zero spins, which only an isolated core should do.
    pub fn new(period: Duration) -> Self {
        Wait { period: u64::try_from(period.as_nanos()).unwrap_or(u64::MAX), deadline: 0, prepared: false }
    }

    /// To be called when a poll brought nothing. Returns early on a signal.
    pub fn sleep(&mut self) {
        if self.period == 0 {
            std::hint::spin_loop();
            return;
        }
        if !self.prepared {
            // The default slack of 50 us would be added to every sleep; it is a property of the thread.
            // SAFETY: sets a number of the calling thread.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0_u64, 0_u64, 0_u64) };
            self.prepared = true;
        }
        self.deadline = next_deadline(self.deadline, self.period, now());
        let until = libc::timespec {
            tv_sec: (self.deadline / 1_000_000_000) as libc::time_t,
            tv_nsec: (self.deadline % 1_000_000_000) as _,
        };
        // SAFETY: `until` outlives the call; the remainder is not asked for.
        unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &until, std::ptr::null_mut()) };
    }
}

/// Keeps the calling thread on one core.
///
/// # Errors
/// There is no such core, or this process may not use it.
pub fn pin(core: usize) -> crate::error::Result<()> {
    // SAFETY: an all-zero set is an empty one; it is a plain bit field.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let fits = core < 8 * size_of::<libc::cpu_set_t>();
    if fits {
        // SAFETY: `core` lies within the set.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: reads `set` and changes the calling thread alone.
    if fits && unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) } == 0 {
        return Ok(());
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Err(crate::Error::new(crate::Kind::Usage, format!("core {core} cannot be used"))
        .because(std::io::Error::last_os_error())
        .cure(format!("this process may use {cores} core(s), counted from 0; see taskset -pc $$")))
}

/// The next deadline of the cadence; when that has passed (a long drain, a stall), a whole period from now.
fn next_deadline(last: u64, period: u64, now: u64) -> u64 {
    let next = last.saturating_add(period);
    if next > now && next - now <= period { next } else { now.saturating_add(period) }
}

fn now() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is writable and outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_keep_their_cadence_and_do_not_catch_up() {
        assert_eq!(next_deadline(1000, 500, 1200), 1500);
        assert_eq!(next_deadline(1000, 500, 1499), 1500);
        assert_eq!(next_deadline(1000, 500, 1500), 2000, "passed: a whole period from now");
        assert_eq!(next_deadline(1000, 500, 90_000), 90_500, "a stall is not followed by a run of short sleeps");
        assert_eq!(next_deadline(0, 500, 90_000), 90_500, "the first");
        assert_eq!(next_deadline(90_000, 500, 10), 510, "a clock that went back");
        assert_eq!(next_deadline(1, u64::MAX, 2), u64::MAX);
    }

    #[test]
    fn sleeps_at_least_until_the_deadline_and_zero_returns_at_once() {
        let mut wait = Wait::new(Duration::from_millis(1));
        wait.sleep();
        let before = wait.deadline;
        wait.sleep();
        assert!(wait.deadline > before && now() >= wait.deadline);
        Wait::new(Duration::ZERO).sleep();
    }
}
