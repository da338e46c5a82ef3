//! A leg that was joined: what its packets look like, and what was done so that they come.

use super::abi::Rule;
use crate::error::{Error, Kind, Result};
use crate::rx::socket::open;
use crate::rx::xdp::program::Wanted;
use crate::sdp::{Leg, SourceFilter};
use crate::stats::Reason;
use crate::wire::net::{self, Content, Link};
use std::net::{IpAddr, Ipv4Addr};

/// A leg.
pub struct JoinedLeg {
    /// Whose packets it takes.
    pub port: usize,
    pub wanted: Wanted,
    pub sources: SourceFilter,
    /// The group, where we are the ones who report it.
    pub group: Option<Ipv4Addr>,
    /// Lead it to our queue.
    pub rules: Vec<Rule>,
    /// Has the port and the group where the kernel has the interface too. It gets nothing.
    pub _beside: Option<socket2::Socket>,
}

/// What a received packet is.
#[derive(Debug, PartialEq, Eq)]
pub enum Sorted {
    /// Of a leg: where its UDP payload begins, its octets that are here, and those that it had on the wire.
    Wanted { leg: u8, at: u32, octets: u16, wire: u16 },
    /// Of a leg, and not wanted.
    Rejected(Reason),
    /// Of no leg.
    Other,
}

/// Looks at a frame of `octets` that came by a port, of which `frame` is what can be read. `recorded`: their ends may have been
/// cut off, which is no fault.
#[inline]
pub fn sort(frame: &[u8], octets: u32, recorded: bool, legs: &[Option<JoinedLeg>], port: usize) -> Sorted {
    let datagram = match net::parse(Link::Ethernet, frame) {
        Content::Udp(datagram) => datagram,
        _ => return Sorted::Other,
    };
    let mut answer = Sorted::Other;
    for (number, leg) in legs.iter().enumerate() {
        let Some(leg) = leg.as_ref().filter(|leg| leg.port == port && leg.wanted.matches(&datagram)) else { continue };
        if !admits(&leg.sources, datagram.source.ip()) {
            answer = Sorted::Rejected(Reason::Source);
            continue;
        }
        let at = u32::try_from(datagram.payload.start).unwrap_or(u32::MAX);
        // The frame's end may lie in another piece.
        let (wire, here) = (datagram.octets, octets.saturating_sub(at));
        let octets = u16::try_from(here).unwrap_or(u16::MAX).min(wire);
        if octets < wire && !recorded {
            // Cut by a driver whose ring has no room for so many.
            return Sorted::Rejected(Reason::Truncated);
        }
        return Sorted::Wanted { leg: number as u8, at, octets, wire };
    }
    answer
}

fn admits(sources: &SourceFilter, source: IpAddr) -> bool {
    match sources {
        SourceFilter::Any => true,
        SourceFilter::Include(list) => list.contains(&source),
        SourceFilter::Exclude(list) => !list.contains(&source),
    }
}

/// Joins a leg's group by the kernel and takes its port, so that the kernel neither forgets the group nor tells senders that
/// nobody listens. Octets do not go there.
pub fn beside(leg: &Leg, interface: &str, notes: &mut Vec<String>) -> Result<socket2::Socket> {
    let (socket, _) = open::beside(leg, Some(interface), notes)?;
    // BPF: keep no octet of anything.
    let nothing = [socket2::SockFilter::new(0x06, 0, 0, 0)];
    socket
        .attach_filter(&nothing)
        .map_err(|e| Error::new(Kind::Unavailable, "cannot keep packets out of the socket beside").because(e))?;
    Ok(socket)
}

/// The addresses of a leg as rules of a card know them: from which sources, each one rule; none: IPv6.
pub fn flows(wanted: &Wanted) -> Option<Vec<(Ipv4Addr, Option<Ipv4Addr>)>> {
    let v4 = |address: &IpAddr| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    };
    let destination = v4(&wanted.destination)?;
    if wanted.sources.is_empty() {
        return Some(vec![(destination, None)]);
    }
    wanted.sources.iter().map(|source| Some((destination, Some(v4(source)?)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::net::Route;
    use std::net::SocketAddr;

    fn leg(port: usize, destination: [u8; 4], sources: SourceFilter, vlan: u16) -> Option<JoinedLeg> {
        let leg = Leg { destination: destination.into(), port: 5004, sources: sources.clone(), ttl: None, mid: None };
        let wanted = Wanted::new(&leg, vlan);
        Some(JoinedLeg { port, wanted, sources, group: None, rules: Vec::new(), _beside: None })
    }

    fn frame(from: [u8; 4], to: [u8; 4], vlan: Option<u16>, octets: usize) -> Vec<u8> {
        let mut route = Route::new(SocketAddr::from((from, 5000)), SocketAddr::from((to, 5004))).unwrap();
        route.vlan = vlan;
        let mut out = Vec::new();
        route.emit(&vec![7; octets], &mut out).unwrap();
        out
    }

    #[test]
    fn frames_are_of_a_leg_by_port_address_tag_and_source() {
        let from = |last| SourceFilter::Include(vec![[10, 0, 0, last].into()]);
        let legs = [leg(0, [239, 0, 0, 1], from(1), 0), leg(1, [239, 0, 0, 1], SourceFilter::Any, 7)];
        let one = frame([10, 0, 0, 1], [239, 0, 0, 1], None, 100);
        let all = |f: &[u8], port| sort(f, f.len() as u32, false, &legs, port);
        assert_eq!(all(&one, 0), Sorted::Wanted { leg: 0, at: 42, octets: 100, wire: 100 });
        assert_eq!(all(&one, 1), Sorted::Other, "no tag");
        let tagged = frame([10, 0, 0, 9], [239, 0, 0, 1], Some(7), 100);
        assert_eq!(all(&tagged, 1), Sorted::Wanted { leg: 1, at: 46, octets: 100, wire: 100 });
        assert_eq!(all(&tagged, 0), Sorted::Other);
        let other = frame([10, 0, 0, 2], [239, 0, 0, 1], None, 100);
        assert_eq!(all(&other, 0), Sorted::Rejected(Reason::Source));
        assert_eq!(all(&frame([10, 0, 0, 1], [239, 0, 0, 2], None, 100), 0), Sorted::Other);
        // Cut into two pieces, it is whole all the same; cut off, it is not.
        assert_eq!(sort(&one[..74], 142, false, &legs, 0), Sorted::Wanted { leg: 0, at: 42, octets: 100, wire: 100 });
        assert_eq!(sort(&one[..74], 141, false, &legs, 0), Sorted::Rejected(Reason::Truncated));
        let cut = Sorted::Wanted { leg: 0, at: 42, octets: 32, wire: 100 };
        assert_eq!(sort(&one[..74], 74, true, &legs, 0), cut, "by a capture's snap length");
        assert_eq!(all(&[0; 10], 0), Sorted::Other);
    }

    #[test]
    fn each_source_has_a_rule() {
        let of = |leg: Option<JoinedLeg>| flows(&leg.unwrap().wanted);
        let group = Ipv4Addr::new(239, 0, 0, 1);
        assert_eq!(of(leg(0, [239, 0, 0, 1], SourceFilter::Any, 0)), Some(vec![(group, None)]));
        let two = SourceFilter::Include(vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()]);
        let sources = [1, 2].map(|n| (group, Some(Ipv4Addr::new(10, 0, 0, n))));
        assert_eq!(of(leg(0, [239, 0, 0, 1], two, 0)), Some(sources.to_vec()));
        let mut v6 = leg(0, [239, 0, 0, 1], SourceFilter::Any, 0).unwrap().wanted;
        v6.destination = "ff3e::1".parse().unwrap();
        assert_eq!(flows(&v6), None);
    }
}
