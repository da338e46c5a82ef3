//! PTP as this machine has it: what ptp4l (linuxptp) says, what the kernel was told, and whether that fits an SDP.
//!
//! | module | does |
//! | --- | --- |
//! | [`management`] | IEEE 1588 management messages as octets; pure |
//! | [`ptp4l`] | asks ptp4l by its Unix socket |
//! | [`phc`] | reads the clock of a network card |
//! | [`judge`](mod@judge) | how clocks, offsets and the SDP fit together: named warnings; pure |
//! | [`watch`] | asks once a second, beside a run |

pub mod judge;
pub mod management;
pub mod phc;
pub mod ptp4l;
pub mod watch;

pub use judge::{Facts, TaiOffset, TaiSource, Warning, judge};
pub use management::{ClockIdentity, PortState, TimeProperties};
pub use ptp4l::{SOCKETS, Silent, State, ask};
pub use watch::{Seen, Watch};

/// Seconds that the kernel's TAI is ahead of its UTC; none where nobody told it (`adjtimex`, which a PTP or NTP daemon
/// does).
pub fn kernel_tai_offset() -> Option<i32> {
    i32::try_from(crate::rx::socket::kernel_tai_offset()? / 1_000_000_000).ok()
}

/// PTP domains in which ptp4l is asked: those that an SDP names, else IEEE 1588's and that of ST 2059-2.
pub fn domains<'a>(references: impl Iterator<Item = &'a crate::sdp::ReferenceClock>) -> Vec<u8> {
    let domain = |r: &crate::sdp::ReferenceClock| match r {
        crate::sdp::ReferenceClock::Ptp { domain, .. } => *domain,
        _ => None,
    };
    let named: std::collections::BTreeSet<u8> = references.filter_map(domain).collect();
    if named.is_empty() { vec![0, 127] } else { named.into_iter().collect() }
}
