//! IGMP: what routers and switches ask, and what a host that receives groups says (RFC 1112, RFC 2236, RFC 3376).

use super::{be16, be32};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Versions of the protocol, the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// RFC 1112.
    V1,
    /// RFC 2236.
    V2,
    /// RFC 3376.
    V3,
}

/// A question: which groups are received here?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Who asks speaks this one (RFC 3376 section 7.1).
    pub version: Version,
    /// Only this group is asked for.
    pub group: Option<Ipv4Addr>,
    /// The answer is wanted within this time.
    pub within: Duration,
}

/// Queries to all go to this address (RFC 3376 section 4.1.12).
pub const HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// Version 3 reports go to this address (RFC 3376 section 4.2.14).
pub const REPORTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
/// Version 2 hosts say there that they leave (RFC 2236 section 3).
pub const ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);

/// Kinds of group records (RFC 3376 section 4.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// As it is: only these sources.
    IsInclude = 1,
    /// As it is: all sources but these.
    IsExclude = 2,
    /// From now on only these sources; with none the group is left.
    ToInclude = 3,
    /// From now on all sources but these.
    ToExclude = 4,
    /// These sources too.
    Allow = 5,
    /// These sources no more.
    Block = 6,
}

/// Messages of the older versions that a host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Older {
    /// Version 1: the group is received.
    Report1 = 0x12,
    /// Version 2: the group is received.
    Report2 = 0x16,
    /// Version 2: the group is left.
    Leave = 0x17,
}

const QUERY: u8 = 0x11;
const REPORT3: u8 = 0x22;

/// The Internet checksum (RFC 1071); 0 over octets that hold their own.
pub fn checksum(octets: &[u8]) -> u16 {
    let words = octets.chunks(2).map(|w| u64::from(w[0]) << 8 | u64::from(w.get(1).copied().unwrap_or(0)));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Reads a query, from the octets of an IPv4 packet behind its header; none where it is none, or damaged.
pub fn query(octets: &[u8]) -> Option<Query> {
    let [kind, code] = *octets.first_chunk()?;
    if kind != QUERY || checksum(octets) != 0 {
        return None;
    }
    let group = Ipv4Addr::from_bits(be32(octets, 4)?);
    let tenths = |n: u64| Duration::from_millis(100 * n);
    let (version, within) = match (octets.len(), code) {
        (8, 0) => (Version::V1, tenths(100)),
        (8, _) => (Version::V2, tenths(code.into())),
        (0..12, _) => return None,
        // Section 4.1.1: from 128 on a mantissa of four bits and an exponent.
        (_, 0..128) => (Version::V3, tenths(code.into())),
        (_, _) => (Version::V3, tenths((u64::from(code & 0x0f) | 0x10) << ((code >> 4 & 7) + 3))),
    };
    Some(Query { version, group: (!group.is_unspecified()).then_some(group), within })
}

/// Octets of a message of an older version.
pub const OLDER_OCTETS: usize = 8;

/// Octets of a version 3 report of one group with so many sources.
pub const fn report_octets(sources: usize) -> usize {
    16 + 4 * sources
}

/// Appends a version 3 report of one group. Of more sources than fit into a frame there have to be several.
pub fn report(kind: Kind, group: Ipv4Addr, sources: &[Ipv4Addr], out: &mut Vec<u8>) {
    let at = out.len();
    let count = u16::try_from(sources.len()).unwrap_or(u16::MAX);
    out.extend([REPORT3, 0, 0, 0, 0, 0, 0, 1, kind as u8, 0]);
    out.extend(count.to_be_bytes());
    out.extend(group.octets());
    out.extend(sources.iter().take(count.into()).flat_map(Ipv4Addr::octets));
    seal(out, at);
}

/// Appends a message of an older version.
pub fn older(kind: Older, group: Ipv4Addr, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend([kind as u8, 0, 0, 0]);
    out.extend(group.octets());
    seal(out, at);
}

fn seal(out: &mut [u8], at: usize) {
    let sum = checksum(out.get(at..).unwrap_or_default());
    if let Some(place) = out.get_mut(at + 2..at + 4) {
        place.copy_from_slice(&sum.to_be_bytes());
    }
}

/// Appends an IPv4 header for `octets` of IGMP: time to live 1, internetwork control, router alert (RFC 3376 section 4, RFC 2113).
pub fn header(source: Ipv4Addr, destination: Ipv4Addr, octets: u16, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend([0x46, 0xc0]);
    out.extend((24 + octets).to_be_bytes());
    out.extend([0, 0, 0x40, 0, 1, 2, 0, 0]);
    out.extend(source.octets());
    out.extend(destination.octets());
    out.extend([0x94, 0x04, 0, 0]);
    let sum = checksum(out.get(at..).unwrap_or_default());
    if let Some(place) = out.get_mut(at + 10..at + 12) {
        place.copy_from_slice(&sum.to_be_bytes());
    }
}

/// The octets of IGMP in an IPv4 packet, and who sent it; none where it is no IGMP, damaged, or a fragment.
pub fn inside(packet: &[u8]) -> Option<(Ipv4Addr, &[u8])> {
    let first = *packet.first()?;
    let header = usize::from(first & 0x0f) * 4;
    let total = usize::from(be16(packet, 2)?);
    if first >> 4 != 4 || header < 20 || *packet.get(9)? != 2 || be16(packet, 6)? & 0x3fff != 0 {
        return None;
    }
    if checksum(packet.get(..header)?) != 0 {
        return None;
    }
    Some((Ipv4Addr::from_bits(be32(packet, 12)?), packet.get(header..total)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn group(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(239, 1, 1, last)
    }

    #[test]
    fn queries_of_three_versions() {
        // 0x1164 + 0x0000 (sum) + 0 + 0 = 0x1164, its complement 0xee9b.
        let v2 = [0x11, 0x64, 0xee, 0x9b, 0, 0, 0, 0];
        assert_eq!(query(&v2), Some(Query { version: Version::V2, group: None, within: Duration::from_secs(10) }));
        // 0x1100, complement 0xeeff.
        let v1 = [0x11, 0, 0xee, 0xff, 0, 0, 0, 0];
        assert_eq!(query(&v1), Some(Query { version: Version::V1, group: None, within: Duration::from_secs(10) }));
        // Group 239.1.1.7: 0x1164 + 0xef01 + 0x0107 = 0x1016c, folded 0x016d; robustness 2 and interval 125: + 0x027d = 0x03ea.
        let v3 = [0x11, 0x64, 0xfc, 0x15, 239, 1, 1, 7, 2, 125, 0, 0];
        assert_eq!(
            query(&v3),
            Some(Query { version: Version::V3, group: Some(group(7)), within: Duration::from_secs(10) })
        );
        // 0xff: (15 | 16) << (7 + 3) tenths of a second.
        let mut long = [0x11, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let sum = checksum(&long);
        long[2..4].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(query(&long).unwrap().within, Duration::from_millis(31 << 10) * 100);
        let mut damaged = v2;
        damaged[1] = 0x65;
        assert_eq!(query(&damaged), None);
        // Between 8 and 12 octets there is no version (section 7.1).
        let mut nine = [0x11, 0x64, 0, 0, 0, 0, 0, 0, 0, 0];
        let sum = checksum(&nine);
        nine[2..4].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(query(&nine), None);
    }

    #[test]
    fn a_report_as_rfc_3376_lays_it_out() {
        let mut out = Vec::new();
        report(Kind::ToExclude, group(7), &[], &mut out);
        // 0x2200 + 0x0001 + 0x0400 + 0xef01 + 0x0107 = 0x11609, folded 0x160a, complement 0xe9f5.
        assert_eq!(out, [0x22, 0, 0xe9, 0xf5, 0, 0, 0, 1, 4, 0, 0, 0, 239, 1, 1, 7]);
        out.clear();
        report(Kind::Allow, group(7), &[Ipv4Addr::new(10, 77, 0, 1)], &mut out);
        // 0x2200 + 1 + 0x0500 + 1 + 0xef01 + 0x0107 + 0x0a4d + 1 = 0x12158, folded 0x2159, complement 0xdea6.
        assert_eq!(out, [0x22, 0, 0xde, 0xa6, 0, 0, 0, 1, 5, 0, 0, 1, 239, 1, 1, 7, 10, 77, 0, 1]);
    }

    #[test]
    fn messages_of_version_2_as_rfc_2236_lays_them_out() {
        let mut out = Vec::new();
        older(Older::Report2, group(7), &mut out);
        // 0x1600 + 0xef01 + 0x0107 = 0x10608, folded 0x0609, complement 0xf9f6.
        assert_eq!(out, [0x16, 0, 0xf9, 0xf6, 239, 1, 1, 7]);
        older(Older::Leave, group(7), &mut out);
        assert_eq!(out[8..], [0x17, 0, 0xf8, 0xf6, 239, 1, 1, 7]);
    }

    #[test]
    fn the_header_has_a_router_alert_and_goes_one_hop() {
        let mut out = Vec::new();
        header(Ipv4Addr::new(10, 77, 0, 10), REPORTS, 16, &mut out);
        // 0x46c0 + 0x0028 + 0x4000 + 0x0102 + 0x0a4d + 0x000a + 0xe000 + 0x0016 + 0x9404 = 0x2065b, folded 0x065d.
        let wanted = [0x46, 0xc0, 0, 40, 0, 0, 0x40, 0, 1, 2, 0xf9, 0xa2, 10, 77, 0, 10, 224, 0, 0, 22, 0x94, 4, 0, 0];
        assert_eq!(out, wanted);
        out.extend([0x16, 0, 0xf9, 0xf6, 239, 1, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 99]);
        let (from, octets) = inside(&out).unwrap();
        assert_eq!((from, octets.len()), (Ipv4Addr::new(10, 77, 0, 10), 16), "padding of Ethernet is left out");
        out[9] = 17;
        assert_eq!(inside(&out), None);
    }

    proptest! {
        #[test]
        fn nothing_that_comes_is_too_much(octets in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = query(&octets);
            if let Some((_, within)) = inside(&octets) {
                prop_assert!(within.len() < octets.len());
            }
        }

        #[test]
        fn what_is_written_has_a_right_checksum(n in 0usize..80, kind in 1u8..7, start in any::<u32>()) {
            let kind = [Kind::IsInclude, Kind::IsExclude, Kind::ToInclude, Kind::ToExclude, Kind::Allow, Kind::Block][usize::from(kind) - 1];
            let sources: Vec<Ipv4Addr> = (0..n as u32).map(|i| Ipv4Addr::from_bits(start.wrapping_add(i))).collect();
            let mut out = Vec::new();
            report(kind, group(1), &sources, &mut out);
            prop_assert_eq!(checksum(&out), 0);
            prop_assert_eq!(out.len(), 16 + 4 * n);
        }
    }
}
