//! What the kernel says about a network device: netlink (RTM_GETLINK) and ethtool.
#![allow(unsafe_code)]

use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attached {
    /// In the driver.
    Native,
    /// Behind the driver, on the kernel's packets.
    Generic,
    /// On the card itself, or several at once.
    Other,
}

/// A network device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its address on the Ethernet; zeros where it has none.
    pub mac: [u8; 6],
    /// Octets of an IP packet at most.
    pub mtu: u32,
    /// The XDP program that runs there, by its number.
    pub program: Option<(u32, Attached)>,
    /// It is a VLAN of another device: that one's number, and the identifier.
    pub vlan_of: Option<(u32, u16)>,
    /// Receive queues for which the kernel has room.
    queues: u32,
}

const ADDRESS: u16 = 1;
const IFNAME: u16 = 3;
const MTU: u16 = 4;
const LINK: u16 = 5;
const LINKINFO: u16 = 18;
const NUM_RX_QUEUES: u16 = 32;
const XDP: u16 = 43;

/// Asks about the device of this number.
pub fn query(index: u32) -> io::Result<Device> {
    // SAFETY: no pointers.
    let raw = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made above.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    // struct nlmsghdr: length, type, flags (request), sequence, port; struct ifinfomsg: family, type, index, flags, change.
    let mut ask = Vec::from(32u32.to_ne_bytes());
    ask.extend(libc::RTM_GETLINK.to_ne_bytes());
    ask.extend(1u16.to_ne_bytes());
    ask.extend([0; 12]);
    ask.extend(index.to_ne_bytes());
    ask.extend([0; 8]);
    // SAFETY: readable for this length.
    if unsafe { libc::send(socket.as_raw_fd(), ask.as_ptr().cast(), ask.len(), 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = vec![0u8; 32 << 10];
    // SAFETY: writable for this length.
    let got = unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    parse(answer.get(..got).unwrap_or_default())
}

/// An answer: one message, an error or a link.
fn parse(message: &[u8]) -> io::Result<Device> {
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let kind = u16_at(message, 4).ok_or_else(short)?;
    if kind == libc::NLMSG_ERROR as u16 {
        let code = u32_at(message, 16).ok_or_else(short)? as i32;
        return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
    }
    let len = u32_at(message, 0).ok_or_else(short)? as usize;
    let attributes = message.get(32..len.min(message.len())).ok_or_else(short)?;
    let mut device = Device::default();
    let (mut parent, mut vlan) = (None, None);
    for (kind, value) in Attributes(attributes) {
        match kind {
            ADDRESS => device.mac = value.first_chunk().copied().unwrap_or_default(),
            IFNAME => device.name = text(value),
            MTU => device.mtu = u32_at(value, 0).unwrap_or_default(),
            LINK => parent = u32_at(value, 0),
            NUM_RX_QUEUES => device.queues = u32_at(value, 0).unwrap_or_default(),
            LINKINFO => vlan = vlan_of(value),
            XDP => device.program = program(value),
            _ => {}
        }
    }
    device.vlan_of = parent.zip(vlan);
    Ok(device)
}

/// IFLA_XDP: how (2), and the program's number (4; 5 and 6 where there are several).
fn program(value: &[u8]) -> Option<(u32, Attached)> {
    let (mut how, mut id) = (Attached::Other, None);
    for (kind, value) in Attributes(value) {
        match kind {
            2 => match value.first() {
                Some(0) => return None,
                Some(1) => how = Attached::Native,
                Some(2) => how = Attached::Generic,
                _ => {}
            },
            4..=6 => id = id.or(u32_at(value, 0)),
            _ => {}
        }
    }
    Some((id?, how))
}

/// IFLA_LINKINFO: kind (1) and data (2), there IFLA_VLAN_ID (1).
fn vlan_of(value: &[u8]) -> Option<u16> {
    let inside = |wanted: u16| Attributes(value).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    if text(inside(1)?) != "vlan" {
        return None;
    }
    Attributes(inside(2)?).find(|(kind, _)| *kind == 1).and_then(|(_, value)| u16_at(value, 0))
}

/// `struct nlattr`: length with this header, type; aligned to 4.
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

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).trim_end_matches('\0').to_owned()
}
fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..)?.first_chunk().map(|b| u16::from_ne_bytes(*b))
}
fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

impl Device {
    /// Receive queues that it uses.
    pub fn queues(&self) -> u32 {
        // struct ethtool_channels: command, four limits, then receive, transmit, other, combined.
        let mut channels = [0u32; 9];
        channels[0] = 0x3c;
        // SAFETY: as long as that structure.
        match ethtool_socket().and_then(|socket| unsafe { ethtool(socket.as_fd(), &self.name, &mut channels) }) {
            Ok(()) if channels[5] + channels[8] > 0 => channels[5] + channels[8],
            _ => self.queues.max(1),
        }
    }

    /// It takes tags off packets before a program sees them.
    pub fn strips_vlans(&self) -> bool {
        // struct ethtool_value; ETHTOOL_GFLAGS, ETH_FLAG_RXVLAN.
        let mut value = [0x25u32, 0];
        // SAFETY: as long as that structure.
        ethtool_socket().and_then(|socket| unsafe { ethtool(socket.as_fd(), &self.name, &mut value) }).is_ok()
            && value[1] & 1 << 8 != 0
    }
}

/// A socket to ask by.
pub fn ethtool_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let raw = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made above.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// `SIOCETHTOOL`, with a command that reads and writes `value`.
///
/// # Safety
/// `value` is as long as the command's structure, and every pattern of octets is a value of it.
pub unsafe fn ethtool<T>(socket: BorrowedFd<'_>, name: &str, value: &mut T) -> io::Result<()> {
    // SAFETY: plain C data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, octet) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = octet as _;
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(value).cast();
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    // SAFETY: the kernel reads and writes no more than the command's structure.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::from((4 + value.len() as u16).to_ne_bytes());
        out.extend(kind.to_ne_bytes());
        out.extend(value);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    fn message(attributes: &[Vec<u8>]) -> Vec<u8> {
        let body = attributes.concat();
        let mut out = Vec::from((32 + body.len() as u32).to_ne_bytes());
        out.extend(16u16.to_ne_bytes());
        out.resize(32, 0);
        out.extend(body);
        out
    }

    #[test]
    fn a_vlan_with_a_program_is_read() {
        let data = attribute(2 | 0x8000, &attribute(1, &100u16.to_ne_bytes()));
        let xdp = [attribute(2, &[1]), attribute(4, &77u32.to_ne_bytes())].concat();
        let answer = message(&[
            attribute(ADDRESS, &[2, 0, 0, 0, 0, 7]),
            attribute(IFNAME, b"eth1.100\0"),
            attribute(MTU, &9000u32.to_ne_bytes()),
            attribute(LINK, &3u32.to_ne_bytes()),
            attribute(LINKINFO, &[attribute(1, b"vlan\0"), data].concat()),
            attribute(NUM_RX_QUEUES, &4u32.to_ne_bytes()),
            attribute(XDP, &xdp),
        ]);
        let device = parse(&answer).unwrap();
        let program = Some((77, Attached::Native));
        let mac = [2, 0, 0, 0, 0, 7];
        let wanted = Device { name: "eth1.100".into(), mac, mtu: 9000, program, vlan_of: Some((3, 100)), queues: 4 };
        assert_eq!(device, wanted);
        for len in 0..answer.len() {
            let _ = parse(&answer[..len]);
        }
    }

    #[test]
    fn a_device_without_a_program_and_one_that_is_not_there() {
        let none = [attribute(2, &[0])].concat();
        let device = parse(&message(&[attribute(IFNAME, b"lo\0"), attribute(XDP, &none)])).unwrap();
        assert_eq!((device.program, device.vlan_of), (None, None));
        let two = [attribute(2, &[4]), attribute(5, &1u32.to_ne_bytes()), attribute(6, &2u32.to_ne_bytes())].concat();
        let device = parse(&message(&[attribute(XDP, &two)])).unwrap();
        assert_eq!(device.program, Some((1, Attached::Other)));
        let error = query(u32::MAX >> 1).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn the_loopback_device_answers() {
        let device = query(1).unwrap();
        assert_eq!((device.name.as_str(), device.queues()), ("lo", 1));
    }

    proptest::proptest! {
        #[test]
        fn any_answer_is_read_without_harm(octets in proptest::collection::vec(0u8.., 0..200)) {
            let _ = parse(&octets);
        }
    }
}
