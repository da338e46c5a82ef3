//! Unix: sockets between programs, descriptors that go along, and what the kernel and the drivers of network interfaces say.

#[cfg(feature = "daemon")]
pub mod clock;
#[cfg(not(gdmedia_loom))]
pub mod cores;
pub mod descriptor;
pub mod ethtool;
pub mod listener;
#[cfg(feature = "daemon")]
pub mod memory;
pub mod netlink;
#[cfg(feature = "preview")]
pub mod priority;
pub mod rights;
