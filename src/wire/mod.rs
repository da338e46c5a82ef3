//! Octets as they are on the wire: checked views and their writers, no sockets.
//!
//! | module | knows |
//! | --- | --- |
//! | [`rtp`] | the fixed header, CSRCs, header extension, padding (RFC 3550 section 5.1) |
//! | [`srd`] | extended sequence number and sample row data headers (RFC 4175 section 4.1, ST 2110-20 clause 6.2) |
//! | [`net`] | Ethernet, VLAN, cooked and loopback frames, IPv4, IPv6, UDP |
//! | [`capture`] | pcap and pcapng, read and written |
//! | [`arp`], [`igmp`] | what a host says of its address and its groups |
//! | [`ptp`] | messages of IEEE 1588, as far as they name clocks and times |

pub mod arp;
pub mod capture;
pub mod igmp;
pub mod net;
pub mod ptp;
pub mod rtp;
pub mod srd;

/// Two octets in network order; `None` when they are not there.
#[inline]
pub(crate) fn be16(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]))
}

/// Four octets in network order; `None` when they are not there.
#[inline]
pub(crate) fn be32(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..at + 4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}
