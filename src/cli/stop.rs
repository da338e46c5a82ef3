//! Ctrl-C and other wishes to end: the first one ends cleanly, the second one at once.

use gdmedia::error::{Error, Kind, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The exit code of a second Ctrl-C, as a shell writes death by SIGINT.
const INTERRUPTED: i32 = 130;

/// From now on Ctrl-C (and SIGTERM, and a terminal that closes) sets the flag that is returned; a second one ends the process with 130.
pub fn install() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if signal == SIGHUP && hangup_is_ignored() {
            continue;
        }
        // In this order: the shutdown looks at the flag before the same signal sets it.
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|e| Error::new(Kind::Internal, "no signal handler for Ctrl-C").because(e))?;
    }
    Ok(stop)
}

/// Whoever starts a program with nohup wants it to outlive the terminal.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).is_some_and(|m| m & (1 << (SIGHUP - 1)) != 0)
}
