//! Precision Time Protocol (IEEE 1588-2008, version 2): the header of its messages, what Announce says of the
//! grandmaster, and the origin timestamps of Sync and Follow_Up.

use super::be16;
use std::fmt;

/// A clock's identity, an EUI-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClockId(pub [u8; 8]);

impl fmt::Display for ClockId {
    /// Upper case with dashes, as `a=ts-refclk` of an SDP has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, octet) in self.0.iter().enumerate() {
            write!(f, "{}{octet:02X}", if n == 0 { "" } else { "-" })?;
        }
        Ok(())
    }
}

/// Message types (13.3.2.2).
pub mod kind {
    /// Sync.
    pub const SYNC: u8 = 0x0;
    /// Delay_Req.
    pub const DELAY_REQ: u8 = 0x1;
    /// Follow_Up.
    pub const FOLLOW_UP: u8 = 0x8;
    /// Delay_Resp.
    pub const DELAY_RESP: u8 = 0x9;
    /// Announce.
    pub const ANNOUNCE: u8 = 0xb;
    /// Management.
    pub const MANAGEMENT: u8 = 0xd;
}

/// Octets of the header (13.3.1).
pub const HEADER: usize = 34;

/// The common header (13.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Lower half of the first octet, see [`kind`].
    pub kind: u8,
    /// Domain.
    pub domain: u8,
    /// flagField, as one number.
    pub flags: u16,
    /// The sender's clock.
    pub source: ClockId,
    /// sequenceId.
    pub sequence: u16,
}

/// The header of a version 2 message; `None` for anything else and for what is cut within it.
pub fn header(octets: &[u8]) -> Option<Header> {
    let head = octets.first_chunk::<HEADER>()?;
    if head[1] & 0x0f != 2 {
        return None;
    }
    let source = octets.get(20..28)?.try_into().ok()?;
    Some(Header {
        kind: head[0] & 0x0f,
        domain: head[4],
        flags: be16(head, 6)?,
        source: ClockId(source),
        sequence: be16(head, 30)?,
    })
}

/// Flag: the leap seconds that are announced are valid (13.3.2.6, table 20: octet 1, bit 2).
pub const UTC_OFFSET_VALID: u16 = 1 << 2;
/// Flag: times are of the PTP timescale, TAI (octet 1, bit 3).
pub const PTP_TIMESCALE: u16 = 1 << 3;
/// Flag: time is traceable to a primary reference (octet 1, bit 4).
pub const TIME_TRACEABLE: u16 = 1 << 4;
/// Flag: a Follow_Up has the time of this Sync (octet 0, bit 1).
pub const TWO_STEP: u16 = 1 << 9;

/// What Announce says (13.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announce {
    /// TAI - UTC in seconds, valid with [`UTC_OFFSET_VALID`].
    pub utc_offset: i16,
    /// Of the grandmaster: priority 1, clock class, accuracy, priority 2.
    pub priority1: u8,
    /// 6: locked to a primary reference; 7: holding over; 248: neither.
    pub class: u8,
    /// Table 6: 0x21 is 100 ns.
    pub accuracy: u8,
    /// See above.
    pub priority2: u8,
    /// The grandmaster.
    pub grandmaster: ClockId,
    /// Boundary clocks between it and the sender.
    pub steps_removed: u16,
    /// Table 7: 0x20 is GPS.
    pub time_source: u8,
}

/// The body of an Announce message; `None` where it is cut.
pub fn announce(octets: &[u8]) -> Option<Announce> {
    let body = octets.get(HEADER..)?.first_chunk::<30>()?;
    Some(Announce {
        utc_offset: i16::from_be_bytes([body[10], body[11]]),
        priority1: body[13],
        class: body[14],
        accuracy: body[15],
        priority2: body[18],
        grandmaster: ClockId(octets.get(53..61)?.try_into().ok()?),
        steps_removed: be16(body, 27)?,
        time_source: body[29],
    })
}

/// The timestamp at the head of the body of Sync and Follow_Up, in nanoseconds since the PTP epoch; `None` where it is cut
/// or no time.
pub fn origin(octets: &[u8]) -> Option<u64> {
    let body = octets.get(HEADER..)?.first_chunk::<10>()?;
    let seconds = u64::from_be_bytes([0, 0, body[0], body[1], body[2], body[3], body[4], body[5]]);
    let nanos = u32::from_be_bytes([body[6], body[7], body[8], body[9]]);
    (nanos < 1_000_000_000).then_some(())?;
    seconds.checked_mul(1_000_000_000)?.checked_add(u64::from(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An Announce of domain 127 by hand.
    fn message() -> Vec<u8> {
        let mut m = vec![0x1b, 0x02, 0, 64, 127, 0, 0x00, 0x3c];
        m.extend([0; 12]);
        m.extend([0x08, 0x00, 0x11, 0xff, 0xfe, 0x21, 0xe1, 0xb0, 0, 1]);
        m.extend([0x12, 0x34, 5, 0xfe]);
        // originTimestamp, 37 s, reserved, priorities and quality.
        m.extend([0; 10]);
        m.extend([0, 37, 0, 128, 6, 0x21, 0x4e, 0x5d, 127]);
        m.extend([0x08, 0x00, 0x11, 0xff, 0xfe, 0x22, 0x39, 0xe4]);
        m.extend([0, 1, 0x20]);
        m
    }

    #[test]
    fn announce_by_hand() {
        let m = message();
        assert_eq!(m.len(), 64);
        let h = header(&m).unwrap();
        assert_eq!((h.kind, h.domain, h.sequence), (kind::ANNOUNCE, 127, 0x1234));
        assert_eq!(h.source.to_string(), "08-00-11-FF-FE-21-E1-B0");
        assert_eq!(h.flags & (UTC_OFFSET_VALID | PTP_TIMESCALE | TIME_TRACEABLE), 0x1c);
        let a = announce(&m).unwrap();
        assert_eq!(a.grandmaster.to_string(), "08-00-11-FF-FE-22-39-E4");
        assert_eq!((a.utc_offset, a.priority1, a.class, a.accuracy, a.priority2), (37, 128, 6, 0x21, 127));
        assert_eq!((a.steps_removed, a.time_source), (1, 0x20));
        assert_eq!(announce(&m[..63]), None);
    }

    #[test]
    fn origin_by_hand() {
        let mut m = message();
        m[34..44].copy_from_slice(&[0, 0, 0x65, 0x53, 0xf1, 0x25, 0x07, 0x5b, 0xcd, 0x15]);
        assert_eq!(origin(&m), Some(0x6553_f125 * 1_000_000_000 + 123_456_789));
        m[40] = 0xff;
        assert_eq!(origin(&m), None);
        m[1] = 1;
        assert_eq!(header(&m), None, "version 1");
    }

    proptest! {
        #[test]
        fn arbitrary_octets_never_panic(octets in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (header(&octets), announce(&octets), origin(&octets));
        }
    }
}
