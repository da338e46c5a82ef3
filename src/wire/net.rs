//! From a frame's link layer to its UDP datagram: Ethernet with VLAN tags, Linux cooked, loopback, raw IP;
//! IPv4 (RFC 791), IPv6 (RFC 8200), UDP (RFC 768).

use super::{be16, be32};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

/// Link layers of captures (`LINKTYPE_` of tcpdump.org).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// 1: Ethernet.
    Ethernet,
    /// 12, 14 (what some systems write) and 101: an IPv4 or IPv6 packet.
    Ip,
    /// 228: an IPv4 packet.
    Ipv4,
    /// 229: an IPv6 packet.
    Ipv6,
    /// 0: loopback of BSD and macOS, the address family in the byte order of the machine.
    Null,
    /// 108: loopback of OpenBSD, the address family in network order.
    Loop,
    /// 113: Linux cooked v1 (`tcpdump -i any`).
    Cooked,
    /// 276: Linux cooked v2.
    Cooked2,
}

impl Link {
    /// From the number in a capture; `None` where there is no way from it to UDP here.
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Link::Null,
            1 => Link::Ethernet,
            12 | 14 | 101 => Link::Ip,
            108 => Link::Loop,
            113 => Link::Cooked,
            228 => Link::Ipv4,
            229 => Link::Ipv6,
            276 => Link::Cooked2,
            _ => return None,
        })
    }
    /// The number to write into a capture.
    pub const fn number(self) -> u16 {
        match self {
            Link::Null => 0,
            Link::Ethernet => 1,
            Link::Ip => 101,
            Link::Loop => 108,
            Link::Cooked => 113,
            Link::Ipv4 => 228,
            Link::Ipv6 => 229,
            Link::Cooked2 => 276,
        }
    }
}

/// VLAN identifiers of a frame, the outermost first; of more than two tags only the first two are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Vlans {
    ids: [u16; 2],
    count: u8,
}

impl Vlans {
    /// The identifiers.
    pub fn as_slice(&self) -> &[u16] {
        self.ids.get(..usize::from(self.count)).unwrap_or_default()
    }
    fn push(&mut self, id: u16) {
        if let Some(place) = self.ids.get_mut(usize::from(self.count)) {
            *place = id;
            self.count += 1;
        }
    }
}

/// A UDP datagram in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Sender.
    pub source: SocketAddr,
    /// Receiver or group.
    pub destination: SocketAddr,
    /// The octets of the UDP payload that are there, counted in the frame.
    pub payload: Range<usize>,
    /// Octets of the UDP payload as the UDP header says.
    pub octets: u16,
    /// Tags around it.
    pub vlans: Vlans,
}

impl Datagram {
    /// Octets are missing at its end (snap length).
    pub fn truncated(&self) -> bool {
        self.payload.len() < usize::from(self.octets)
    }
}

/// What a frame holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A datagram.
    Udp(Datagram),
    /// A PTP message directly over Ethernet (IEEE 1588 annex F).
    Ptp(Range<usize>),
    /// Part of a fragmented IP packet; ST 2110-10 clause 6.3 forbids senders to make them.
    Fragment,
    /// Neither UDP nor PTP.
    Other,
    /// Headers that contradict each other or end too early.
    Malformed,
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const PTP: u16 = 0x88f7;
const UDP: u8 = 17;

/// Extension headers of IPv6 that are followed at most, and VLAN tags.
const MAX_NESTED: usize = 8;

/// Looks into a frame. Octets cut from its end only matter where a header is concerned.
pub fn parse(link: Link, frame: &[u8]) -> Content {
    link_layer(link, frame).unwrap_or(Content::Malformed)
}

fn link_layer(link: Link, frame: &[u8]) -> Option<Content> {
    let mut vlans = Vlans::default();
    let (mut ethertype, mut at) = match link {
        Link::Ethernet => (be16(frame, 12)?, 14),
        Link::Cooked => (be16(frame, 14)?, 16),
        Link::Cooked2 => (be16(frame, 0)?, 20),
        Link::Ip | Link::Ipv4 | Link::Ipv6 => (version_ethertype(frame, 0)?, 0),
        Link::Null | Link::Loop => {
            let family = be32(frame, 0)?;
            let family = if family > 0xffff { family.swap_bytes() } else { family };
            match family {
                2 => (IPV4, 4),
                // Linux, and the BSDs, each with its own number for IPv6.
                10 | 24 | 28 | 30 => (IPV6, 4),
                _ => return Some(Content::Other),
            }
        }
    };
    for _ in 0..MAX_NESTED {
        match ethertype {
            0x8100 | 0x88a8 | 0x9100 | 0x9200 => {
                vlans.push(be16(frame, at)? & 0x0fff);
                ethertype = be16(frame, at + 2)?;
                at += 4;
            }
            IPV4 => return ipv4(frame, at, vlans),
            IPV6 => return ipv6(frame, at, vlans),
            PTP => return Some(Content::Ptp(at.min(frame.len())..frame.len())),
            _ => return Some(Content::Other),
        }
    }
    Some(Content::Other)
}

fn version_ethertype(frame: &[u8], at: usize) -> Option<u16> {
    match frame.get(at)? >> 4 {
        4 => Some(IPV4),
        6 => Some(IPV6),
        _ => None,
    }
}

fn ipv4(frame: &[u8], at: usize, vlans: Vlans) -> Option<Content> {
    let header = frame.get(at..at + 20)?;
    let octets = usize::from(header[0] & 0x0f) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header[0] >> 4 != 4 || octets < 20 {
        return None;
    }
    // 0: a frame captured before the network card segmented it.
    let inner = if total == 0 { usize::MAX } else { total.checked_sub(octets)? };
    if header[9] != UDP {
        return Some(Content::Other);
    }
    if u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
        return Some(Content::Fragment);
    }
    let address = |at: usize| IpAddr::V4(Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]));
    udp(frame, at + octets, inner, [address(12), address(16)], vlans)
}

fn ipv6(frame: &[u8], at: usize, vlans: Vlans) -> Option<Content> {
    let header = frame.get(at..at + 40)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let mut inner = if length == 0 { usize::MAX } else { length };
    let address = |at: usize| -> Option<IpAddr> {
        let octets: [u8; 16] = header.get(at..at + 16)?.try_into().ok()?;
        Some(IpAddr::V6(Ipv6Addr::from(octets)))
    };
    let ends = [address(8)?, address(24)?];
    let mut next = header[6];
    let mut at = at + 40;
    for _ in 0..MAX_NESTED {
        let octets = match next {
            UDP => return udp(frame, at, inner, ends, vlans),
            // Hop by hop, routing, destination options, mobility, host identity, shim.
            0 | 43 | 60 | 135 | 139 | 140 => 8 + 8 * usize::from(*frame.get(at + 1)?),
            // Authentication, counted in other units.
            51 => 8 + 4 * usize::from(*frame.get(at + 1)?),
            44 => {
                if be16(frame, at + 2)? & 0xfff9 != 0 {
                    return Some(Content::Fragment);
                }
                8
            }
            _ => return Some(Content::Other),
        };
        next = *frame.get(at)?;
        inner = inner.checked_sub(octets)?;
        at += octets;
    }
    Some(Content::Malformed)
}

fn udp(frame: &[u8], at: usize, inner: usize, [source, destination]: [IpAddr; 2], vlans: Vlans) -> Option<Content> {
    let header = frame.get(at..at + 8)?;
    let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let octets = field(4).checked_sub(8)?;
    if usize::from(field(4)) > inner {
        return None;
    }
    let start = at + 8;
    let end = (start + usize::from(octets)).min(frame.len());
    Some(Content::Udp(Datagram {
        source: SocketAddr::new(source, field(0)),
        destination: SocketAddr::new(destination, field(2)),
        payload: start..end,
        octets,
        vlans,
    }))
}

/// Where a datagram comes from and goes to: what its headers need. Both addresses are of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    source: SocketAddr,
    destination: SocketAddr,
    /// An 802.1Q tag.
    pub vlan: Option<u16>,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Differentiated services code point; 34 (AF41) is what ST 2110-10 clause 6.4 names for media.
    pub dscp: u8,
}

impl Route {
    /// `None` when one address is IPv4 and the other IPv6.
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Option<Self> {
        (source.is_ipv4() == destination.is_ipv4()).then_some(Route {
            source,
            destination,
            vlan: None,
            ttl: 64,
            dscp: 34,
        })
    }
    /// Sender.
    pub const fn source(&self) -> SocketAddr {
        self.source
    }
    /// Receiver or group.
    pub const fn destination(&self) -> SocketAddr {
        self.destination
    }
    /// Appends an Ethernet frame with this datagram to `out`, every checksum right; `None`, and nothing appended,
    /// when the payload does not fit into one.
    pub fn emit(&self, payload: &[u8], out: &mut Vec<u8>) -> Option<()> {
        self.emit_cut(payload, payload.len(), out)
    }
    /// As [`Route::emit`], of a payload that had `wire_octets` before its end was cut off; the UDP checksum of such a
    /// one is not known and left 0.
    pub fn emit_cut(&self, payload: &[u8], wire_octets: usize, out: &mut Vec<u8>) -> Option<()> {
        let udp_octets = u16::try_from(wire_octets.max(payload.len()) + 8).ok()?;
        let (ip_octets, ethertype) = match self.source {
            SocketAddr::V4(_) => (udp_octets.checked_add(20)?, IPV4),
            SocketAddr::V6(_) => (udp_octets, IPV6),
        };
        out.extend(mac_of(self.destination.ip()));
        out.extend(own_mac(self.source.ip()));
        if let Some(id) = self.vlan {
            out.extend(0x8100u16.to_be_bytes());
            out.extend((id & 0x0fff).to_be_bytes());
        }
        out.extend(ethertype.to_be_bytes());
        let mut pseudo = Sum::default();
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let at = out.len();
                out.extend([0x45, self.dscp << 2]);
                out.extend(ip_octets.to_be_bytes());
                // Identification 0 and "do not fragment" (RFC 6864).
                out.extend([0, 0, 0x40, 0, self.ttl, UDP, 0, 0]);
                out.extend(source.octets());
                out.extend(destination.octets());
                let mut sum = Sum::default();
                sum.add(out.get(at..)?);
                out.get_mut(at + 10..at + 12)?.copy_from_slice(&sum.finish().to_be_bytes());
                pseudo.add(&source.octets());
                pseudo.add(&destination.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                out.extend((6u32 << 28 | u32::from(self.dscp) << 22).to_be_bytes());
                out.extend(ip_octets.to_be_bytes());
                out.extend([UDP, self.ttl]);
                out.extend(source.octets());
                out.extend(destination.octets());
                pseudo.add(&source.octets());
                pseudo.add(&destination.octets());
            }
            _ => return None,
        }
        let mut udp = [0; 8];
        udp[0..2].copy_from_slice(&self.source.port().to_be_bytes());
        udp[2..4].copy_from_slice(&self.destination.port().to_be_bytes());
        udp[4..6].copy_from_slice(&udp_octets.to_be_bytes());
        pseudo.add(&[0, UDP]);
        pseudo.add(&udp_octets.to_be_bytes());
        pseudo.add(&udp);
        pseudo.add(payload);
        // 0 would say that there is no checksum.
        let checksum = match pseudo.finish() {
            _ if payload.len() < wire_octets => 0,
            0 => 0xffff,
            sum => sum,
        };
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
        out.extend(udp);
        out.extend(payload);
        Some(())
    }
}

/// The Ethernet address of a group (RFC 1112 section 6.4, RFC 2464 section 7), or a locally administered one.
pub fn mac_of(address: IpAddr) -> [u8; 6] {
    match address {
        IpAddr::V4(v4) if v4.is_multicast() => {
            let [_, b, c, d] = v4.octets();
            [0x01, 0x00, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(v6) if v6.is_multicast() => {
            let o = v6.octets();
            [0x33, 0x33, o[12], o[13], o[14], o[15]]
        }
        other => own_mac(other),
    }
}

/// A locally administered address made from an IP address.
fn own_mac(address: IpAddr) -> [u8; 6] {
    let [a, b, c, d] = match address {
        IpAddr::V4(v4) => v4.octets(),
        IpAddr::V6(v6) => {
            let o = v6.octets();
            [o[12], o[13], o[14], o[15]]
        }
    };
    [0x02, 0x00, a, b, c, d]
}

/// The internet checksum (RFC 1071); pieces but the last have an even number of octets.
#[derive(Default)]
struct Sum(u64);

impl Sum {
    fn add(&mut self, octets: &[u8]) {
        let mut words = octets.chunks_exact(4);
        for w in &mut words {
            self.0 += u64::from(u32::from_be_bytes([w[0], w[1], w[2], w[3]]));
        }
        let mut last = [0; 4];
        for (place, octet) in last.iter_mut().zip(words.remainder()) {
            *place = *octet;
        }
        self.0 += u64::from(u32::from_be_bytes(last));
    }
    fn finish(&self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

#[cfg(test)]
mod tests;
