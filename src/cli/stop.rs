//! Ctrl-C: the first one ends cleanly, the second one at once.

use gdmedia::error::{Error, Kind, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The exit code of a second Ctrl-C, as a shell writes death by SIGINT.
const INTERRUPTED: i32 = 130;

/// From now on Ctrl-C (and SIGTERM) sets the flag that is returned; a second one ends the process with 130.
pub fn install() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the shutdown looks at the flag before the same signal sets it.
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|e| Error::new(Kind::Internal, "no signal handler for Ctrl-C").because(e))?;
    }
    Ok(stop)
}
