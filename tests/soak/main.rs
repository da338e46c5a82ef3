//! Soak tests in seconds, and PTP with a real ptp4l.

#[path = "../common/mod.rs"]
mod common;
#[path = "../netns/mod.rs"]
mod netns;

mod ptp;
mod runs;
