//! What a received frame is. Pure.

use super::ring::Shape;
use crate::rx::xdp::{admits, program::Wanted};
use crate::sdp::SourceFilter;
use crate::stats::Reason;
use crate::wire::net::{self, Content, Link};

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sorted {
    /// A packet of the leg.
    Wanted(Found),
    /// Of the leg, and not wanted.
    Rejected(Reason),
    /// The part of the frame that is seen ends before its headers do.
    Longer,
    /// Of no leg.
    Strange,
}

/// A packet of a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where its RTP header begins in the frame.
    pub at: u16,
    /// Its octets from there on.
    pub octets: u16,
    /// The sender has given a checksum.
    pub summed: bool,
    /// Its headers may reach beyond what is seen.
    pub deep: bool,
}

/// RTP header, extended sequence number and three SRDs: what the CPU has to see of a packet.
const SEEN: usize = 12 + 2 + 18;

/// Looks at a frame of `total` octets, of which `seen` are there.
#[inline]
pub fn sort(seen: &[u8], total: usize, wanted: &Wanted, sources: &SourceFilter) -> Sorted {
    let cut = seen.len() < total;
    let datagram = match net::parse(Link::Ethernet, seen) {
        Content::Udp(datagram) => datagram,
        Content::Malformed if cut => return Sorted::Longer,
        Content::Malformed => return Sorted::Rejected(Reason::Length),
        _ => return Sorted::Strange,
    };
    if !wanted.matches(&datagram) {
        return Sorted::Strange;
    }
    if !admits(sources, datagram.source.ip()) {
        return Sorted::Rejected(Reason::Source);
    }
    let (start, octets) = (datagram.payload.start, usize::from(datagram.octets));
    let Some(at) = u16::try_from(start).ok().filter(|_| start + octets <= total) else {
        return Sorted::Rejected(Reason::Length);
    };
    if start >= seen.len() && octets > 0 {
        return Sorted::Longer;
    }
    // Contributing sources and header extensions (RFC 3550) lie before the SRDs.
    let plain = seen.get(start).is_some_and(|first| first & 0x1f == 0);
    let deep = seen.len() < start + octets && (start + SEEN > seen.len() || !plain);
    let summed = seen.get(start - 2..start).is_some_and(|sum| sum != [0, 0]);
    Sorted::Wanted(Found { at, octets: datagram.octets, summed, deep })
}

/// Where a packet lies of whose frame `head` octets are in the head plane: there, in the body plane, and how many octets in the
/// first.
#[inline]
pub fn place(shape: &Shape, slot: u32, found: Found, head: u16) -> (u32, u32, u16) {
    let octets = head.saturating_sub(found.at).min(found.octets);
    // What was copied from the body to the head is not there twice.
    let body_at = shape.body_at(slot) + usize::from(head.saturating_sub(shape.head));
    ((shape.head_at(slot) + usize::from(found.at)) as u32, body_at as u32, octets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sdp::Leg;
    use crate::wire::net::Route;
    use std::net::IpAddr;

    fn leg(vlan: u16) -> Wanted {
        let leg =
            Leg { destination: [239, 1, 2, 3].into(), port: 5004, sources: SourceFilter::Any, ttl: None, mid: None };
        Wanted::new(&leg, vlan)
    }

    fn frame(vlan: Option<u16>, payload: &[u8]) -> Vec<u8> {
        let mut route = Route::new("10.0.0.1:5000".parse().unwrap(), "239.1.2.3:5004".parse().unwrap()).unwrap();
        route.vlan = vlan;
        let mut frame = Vec::new();
        route.emit(payload, &mut frame).unwrap();
        frame
    }

    fn rtp(first: u8, octets: usize) -> Vec<u8> {
        let mut packet = vec![first, 96];
        packet.resize(octets, 7);
        packet
    }

    /// Octets as they are on the wire: Ethernet 14, IPv4 20, UDP 8.
    #[test]
    fn a_packet_begins_behind_its_headers() {
        let any = SourceFilter::Any;
        let whole = frame(None, &rtp(0x80, 1200));
        let found =
            |frame: &[u8], cut: usize, vlan| sort(&frame[..cut.min(frame.len())], frame.len(), &leg(vlan), &any);
        let wanted = |at, octets, deep| Sorted::Wanted(Found { at, octets, summed: true, deep });
        assert_eq!(found(&whole, 5000, 0), wanted(42, 1200, false));
        assert_eq!(found(&whole, 74, 0), wanted(42, 1200, false));
        assert_eq!(found(&whole, 73, 0), wanted(42, 1200, true));
        assert_eq!((found(&whole, 42, 0), found(&whole, 41, 0)), (Sorted::Longer, Sorted::Longer));
        let tagged = frame(Some(7), &rtp(0x80, 1200));
        assert_eq!((found(&tagged, 74, 7), found(&tagged, 78, 7)), (wanted(46, 1200, true), wanted(46, 1200, false)));
        assert_eq!((found(&tagged, 96, 0), found(&whole, 96, 7)), (Sorted::Strange, Sorted::Strange));
        // A contributing source, an extension: SRDs may lie further on.
        for first in [0x81, 0x90] {
            assert_eq!(found(&frame(None, &rtp(first, 1200)), 96, 0), wanted(42, 1200, true));
            assert_eq!(found(&frame(None, &rtp(first, 54)), 96, 0), wanted(42, 54, false), "all of it is seen");
        }
        // Ethernet fills up short frames.
        let mut short = frame(None, &rtp(0x80, 12));
        short.resize(60, 0);
        assert_eq!(found(&short, 96, 0), wanted(42, 12, false));
        // An end that is missing.
        assert_eq!(sort(&whole[..96], whole.len() - 1, &leg(0), &any), Sorted::Rejected(Reason::Length));
        let mut other = whole.clone();
        other[37] ^= 1;
        assert_eq!(found(&other, 96, 0), Sorted::Strange, "another port");
        other = whole;
        other[40..42].fill(0);
        assert_eq!(found(&other, 96, 0), Sorted::Wanted(Found { at: 42, octets: 1200, summed: false, deep: false }));
    }

    #[test]
    fn senders_that_are_not_wanted_are_told_apart() {
        let whole = frame(None, &rtp(0x80, 1200));
        let of = |sources| sort(&whole[..96], whole.len(), &leg(0), &sources);
        let [one, other]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        assert!(matches!(of(SourceFilter::Include(vec![one])), Sorted::Wanted(_)));
        assert_eq!(of(SourceFilter::Include(vec![other])), Sorted::Rejected(Reason::Source));
        assert_eq!(of(SourceFilter::Exclude(vec![one])), Sorted::Rejected(Reason::Source));
        assert!(matches!(of(SourceFilter::Exclude(vec![other])), Sorted::Wanted(_)));
    }

    proptest::proptest! {
        #[test]
        fn any_frame_is_looked_at_without_harm(octets in proptest::collection::vec(0u8.., 0..200), more in 0usize..2000) {
            let total = octets.len() + more;
            if let Sorted::Wanted(found) = sort(&octets, total, &leg(0), &SourceFilter::Any) {
                proptest::prop_assert!(usize::from(found.at) + usize::from(found.octets) <= total);
            }
        }
        #[test]
        fn any_cut_of_a_frame_is_looked_at_without_harm(first: u8, octets in 0usize..1400, cut in 0usize..1500) {
            let whole = frame(None, &rtp(first, octets.max(2)));
            match sort(&whole[..cut.min(whole.len())], whole.len(), &leg(0), &SourceFilter::Any) {
                Sorted::Wanted(found) => proptest::prop_assert_eq!((found.at, usize::from(found.octets)), (42, octets.max(2))),
                sorted => proptest::prop_assert_eq!(sorted, Sorted::Longer),
            }
        }
    }
}
