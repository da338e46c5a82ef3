//! Octets as they are on the wire: checked views and their writers, no sockets, no memory of their own.
//!
//! | module | knows |
//! | --- | --- |
//! | [`rtp`] | the fixed header, CSRCs, header extension, padding (RFC 3550 section 5.1) |
//! | [`srd`] | extended sequence number and sample row data headers (RFC 4175 section 4.1, ST 2110-20 clause 6) |

pub mod rtp;
pub mod srd;

/// Two octets in network order; `None` when they are not there.
#[inline]
pub(crate) fn be16(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]))
}
