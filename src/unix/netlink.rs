//! Questions to the kernel by netlink: a route, and what XDP the driver of a device can do.

use serde::Serialize;
use std::io::{self, Read};
use std::net::IpAddr;
use std::time::Duration;

/// Where packets to an address go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Number of the interface.
    pub index: u32,
    /// By this router.
    pub gateway: Option<IpAddr>,
}

/// `NETDEV_XDP_ACT_…` of linux/netdev.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Features {
    /// The driver runs programs, and passes packets on to AF_XDP.
    pub native: bool,
    /// The card writes into memory of the program.
    pub zero_copy: bool,
    /// It hands its time stamp of a packet to programs (`bpf_xdp_metadata_rx_timestamp`); none where the kernel does not say
    /// (before 6.8).
    pub stamps: Option<bool>,
}

const GET_ROUTE: u16 = 26;
const ERROR: u16 = 2;
const CONTROL: u16 = 16;

/// Where packets to `to` would go; none when no route leads there.
///
/// # Errors
/// The kernel does not answer.
pub fn route(to: IpAddr) -> io::Result<Option<Route>> {
    let (family, octets) = match to {
        IpAddr::V4(ip) => (libc::AF_INET as u8, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc::AF_INET6 as u8, ip.octets().to_vec()),
    };
    // struct rtmsg: family, length of the prefix in bits, ….
    let mut body = vec![family, octets.len() as u8 * 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    attribute(&mut body, 1, &octets);
    match ask(libc::NETLINK_ROUTE, GET_ROUTE, &body) {
        Ok(answer) => Ok(read_route(&answer)),
        Err(e)
            if matches!(
                e.raw_os_error(),
                Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL)
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

fn read_route(answer: &[u8]) -> Option<Route> {
    // Type 1: to a host or a router; 2: this machine; 5: a group. All others go nowhere.
    let usable = matches!(answer.get(7), Some(1 | 2 | 5));
    let (mut index, mut gateway) = (None, None);
    for (kind, value) in Attributes(answer.get(12..)?) {
        match kind {
            4 => index = u32_at(value, 0),
            5 => gateway = address(value),
            _ => {}
        }
    }
    usable.then_some(Route { index: index?, gateway })
}

/// What the driver of the device of this number can do; none where the kernel does not say (before 6.3).
///
/// The family `netdev` of generic netlink is looked up by its name, then asked for the device.
pub fn features(index: u32) -> Option<Features> {
    let mut body = vec![3, 1, 0, 0];
    attribute(&mut body, 2, b"netdev\0");
    let control = ask(libc::NETLINK_GENERIC, CONTROL, &body).ok()?;
    let (_, family) = Attributes(control.get(4..)?).find(|(kind, _)| *kind == 1)?;
    let family = u16_at(family, 0)?;
    let mut body = vec![1, 1, 0, 0];
    attribute(&mut body, 1, &index.to_ne_bytes());
    read_features(&ask(libc::NETLINK_GENERIC, family, &body).ok()?)
}

fn read_features(answer: &[u8]) -> Option<Features> {
    let (mut act, mut metadata) = (None, None);
    for (kind, value) in Attributes(answer.get(4..)?) {
        // NETDEV_A_DEV_XDP_FEATURES, NETDEV_A_DEV_XDP_RX_METADATA_FEATURES.
        let place = match kind {
            3 => &mut act,
            5 => &mut metadata,
            _ => continue,
        };
        *place = value.first_chunk().map(|bits| u64::from_ne_bytes(*bits));
    }
    let act = act?;
    Some(Features {
        // Basic and redirect; without redirect a program cannot hand packets to AF_XDP.
        native: act & 0b11 == 0b11,
        zero_copy: act & 0b1000 != 0,
        stamps: metadata.map(|bits| bits & 1 != 0),
    })
}

/// One request, one answer: what follows the header of its message.
fn ask(protocol: i32, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut socket = socket2::Socket::new(
        socket2::Domain::from(libc::AF_NETLINK),
        socket2::Type::from(libc::SOCK_RAW),
        Some(socket2::Protocol::from(protocol)),
    )?;
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    // struct nlmsghdr: length, type, flags (a request), sequence, port.
    let mut message = Vec::from((16 + body.len() as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(1u16.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    socket.send(&message)?;
    let mut answer = vec![0u8; 64 << 10];
    let len = socket.read(&mut answer)?;
    answer.truncate(len);
    read(answer)
}

fn read(mut answer: Vec<u8>) -> io::Result<Vec<u8>> {
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let len = u32_at(&answer, 0).ok_or_else(short)? as usize;
    if u16_at(&answer, 4).ok_or_else(short)? == ERROR {
        let code = u32_at(&answer, 16).ok_or_else(short)? as i32;
        return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
    }
    answer.truncate(len);
    if answer.len() < 16 { Err(short()) } else { Ok(answer.split_off(16)) }
}

/// Appends a `struct nlattr`: length with this header, type, value; aligned to 4.
fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend((4 + value.len() as u16).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);
    fn next(&mut self) -> Option<Self::Item> {
        let len = usize::from(u16_at(self.0, 0)?);
        // Without the marks for nested and for byte order.
        let kind = u16_at(self.0, 2)? & 0x3fff;
        let value = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..)?.first_chunk().map(|b| u16::from_ne_bytes(*b))
}
fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().map(|b| u32::from_ne_bytes(*b))
}
fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => octets.first_chunk::<4>().map(|a| (*a).into()),
        16 => octets.first_chunk::<16>().map(|a| (*a).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(head: usize, attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut out = vec![0; head];
        attributes.iter().for_each(|(kind, value)| attribute(&mut out, *kind, value));
        out
    }

    #[test]
    fn routes_are_read() {
        let mut answer = with(12, &[(1, vec![192, 0, 2, 9]), (4, 7u32.to_ne_bytes().into()), (5, vec![10, 0, 0, 1])]);
        answer[7] = 1;
        assert_eq!(read_route(&answer), Some(Route { index: 7, gateway: Some([10, 0, 0, 1].into()) }));
        // Unreachable (7) has an interface too.
        answer[7] = 7;
        assert_eq!(read_route(&answer), None);
    }

    #[test]
    fn this_machine_is_reached_by_loopback() {
        let lo = route([127, 0, 0, 1].into()).unwrap().unwrap();
        assert_eq!(lo, Route { index: 1, gateway: None });
        assert_eq!(route("::1".parse().unwrap()).unwrap().map(|r| r.index), Some(1));
    }

    #[test]
    fn features_are_read() {
        let features = |bits: u64| read_features(&with(4, &[(1, vec![1, 0, 0, 0]), (3, bits.to_ne_bytes().into())]));
        assert_eq!(features(0b1011), Some(Features { native: true, zero_copy: true, stamps: None }));
        assert_eq!(features(0b0001), Some(Features { native: false, zero_copy: false, stamps: None }));
        // The time stamp is the first bit, the hash the second.
        for (bits, stamps) in [(0b111u64, true), (0b110, false)] {
            let both = [(3, 3u64.to_ne_bytes().into()), (5, bits.to_ne_bytes().into())];
            let wanted = Features { native: true, zero_copy: false, stamps: Some(stamps) };
            assert_eq!(read_features(&with(4, &both)), Some(wanted));
        }
        assert_eq!(read_features(&with(4, &[])), None);
    }

    #[test]
    fn a_device_that_does_not_exist_has_none() {
        assert_eq!(features(u32::MAX >> 1), None);
    }

    proptest::proptest! {
        #[test]
        fn any_answer_is_read_without_harm(octets in proptest::collection::vec(0u8.., 0..120)) {
            let _ = (read_route(&octets), read_features(&octets), read(octets));
        }
    }
}
