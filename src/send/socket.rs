//! The sockets that a stream leaves by, one a leg.

use crate::error::{Error, Kind, Result};
use crate::rx::socket::{Interface, find_interface};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

/// Where one leg goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Receiver or group.
    pub destination: SocketAddr,
    /// Interface by name or own address; the routing table decides when absent.
    pub interface: Option<String>,
    /// Multicast TTL or hop limit.
    pub ttl: u8,
    /// Receivers on this machine hear multicast too.
    pub loopback: bool,
}

/// An open leg.
#[derive(Debug)]
pub struct Outlet {
    socket: Socket,
    target: Target,
    /// The number of the interface that was named.
    interface: Option<u32>,
}

impl AsRawFd for Outlet {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// AF41, what ST 2110-10 clause 6.4 names for media.
const DSCP: u32 = 34;
/// Holds a frame or so, so that a short stall of the device does not block the sender.
const SEND_BUFFER: usize = 8 << 20;

impl Outlet {
    /// Opens a socket and connects it.
    ///
    /// # Errors
    /// Port 0, no such interface, no route, no permission.
    pub fn open(target: Target) -> Result<Self> {
        let to = target.destination;
        if to.port() == 0 {
            return Err(Error::new(Kind::Usage, format!("cannot send to {to}: port 0 is no port"))
                .cure("name a port from 1 to 65535, such as 5004"));
        }
        if to.ip().is_unspecified() {
            return Err(Error::new(Kind::Usage, format!("cannot send to {to}: that is no receiver's address"))
                .cure("name the receiver's address or a multicast group"));
        }
        let failed = |what: &str, e: io::Error| describe(&target, what, e);
        let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))
            .map_err(|e| failed("no socket", e))?;
        // Neither is worth a failure: the kernel's default does.
        let _ = socket.set_send_buffer_size(SEND_BUFFER);
        let _ = match to {
            SocketAddr::V4(_) => socket.set_tos_v4(DSCP << 2),
            SocketAddr::V6(_) => socket.set_tclass_v6(DSCP << 2),
        };
        let interface = target.interface.as_deref().map(find_interface).transpose()?;
        let own = target.interface.as_deref().and_then(|text| text.parse::<IpAddr>().ok());
        if let Some(own) = own {
            socket.bind(&SocketAddr::new(own, 0).into()).map_err(|e| failed("cannot send from that interface", e))?;
        }
        match to.ip() {
            IpAddr::V4(group) if group.is_multicast() => {
                socket.set_multicast_ttl_v4(target.ttl.into()).map_err(|e| failed("no TTL", e))?;
                socket.set_multicast_loop_v4(target.loopback).map_err(|e| failed("no multicast loopback", e))?;
                if let Some(i) = &interface {
                    let v4 = |a: &IpAddr| if let IpAddr::V4(a) = a { Some(*a) } else { None };
                    let address = own.as_ref().and_then(v4).or_else(|| i.addresses.iter().find_map(v4));
                    let address = address.ok_or_else(|| no_address(i, "IPv4"))?;
                    socket.set_multicast_if_v4(&address).map_err(|e| failed("cannot use that interface", e))?;
                }
            }
            IpAddr::V6(group) if group.is_multicast() => {
                socket.set_multicast_hops_v6(target.ttl.into()).map_err(|e| failed("no hop limit", e))?;
                socket.set_multicast_loop_v6(target.loopback).map_err(|e| failed("no multicast loopback", e))?;
                if let Some(i) = &interface {
                    socket.set_multicast_if_v6(i.index).map_err(|e| failed("cannot use that interface", e))?;
                }
            }
            _ => {
                if let Some(i) = &interface
                    && own.is_none()
                {
                    let address = i.addresses.iter().find(|a| a.is_ipv4() == to.is_ipv4());
                    let address = address.ok_or_else(|| no_address(i, if to.is_ipv4() { "IPv4" } else { "IPv6" }))?;
                    socket
                        .bind(&SocketAddr::new(*address, 0).into())
                        .and_then(|()| socket.bind_device(Some(i.name.as_bytes())))
                        .map_err(|e| failed("cannot send from that interface", e))?;
                }
            }
        }
        socket.connect(&to.into()).map_err(|e| failed("no way there", e))?;
        Ok(Outlet { socket, target, interface: interface.map(|i| i.index) })
    }

    /// Where it goes.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Is there another interface now of the name or address that was given?
    pub(super) fn is_left(&self) -> bool {
        let named = self.target.interface.as_deref().and_then(|name| find_interface(name).ok());
        named.is_some_and(|found| Some(found.index) != self.interface)
    }

    /// The address that packets leave with.
    pub fn source(&self) -> Option<IpAddr> {
        Some(self.socket.local_addr().ok()?.as_socket()?.ip())
    }

    /// A send that failed, for people.
    pub(super) fn error(&self, e: io::Error) -> Error {
        match e.raw_os_error() {
            Some(libc::EMSGSIZE) => {
                let to = self.target.destination;
                Error::new(Kind::Unavailable, format!("the packets are too large for the way to {to}"))
                    .because(e)
                    .cure("raise the MTU of the interface, or send smaller packets (--max-udp 1460)")
            }
            _ => describe(&self.target, "sending failed", e),
        }
    }
}

fn no_address(interface: &Interface, family: &str) -> Error {
    Error::new(Kind::Unavailable, format!("interface {} has no {family} address", interface.name))
        .cure("give it one (ip address add), or choose another interface")
}

fn describe(target: &Target, what: &str, e: io::Error) -> Error {
    let to = target.destination;
    let place = target.interface.as_ref().map_or(String::new(), |i| format!(" by {i}"));
    let (kind, cure) = match e.raw_os_error() {
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN) if to.ip().is_multicast() => {
            (Kind::Unavailable, "name the interface with --interface, and see that it is up")
        }
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN) => {
            (Kind::Unavailable, "check the address and the routes (ip route get ADDRESS), and that the interface is up")
        }
        Some(libc::EADDRNOTAVAIL) => (Kind::Unavailable, "choose an address of this machine (ip address)"),
        Some(libc::EACCES | libc::EPERM) => {
            (Kind::Permission, "a firewall, a broadcast address or missing rights forbid it: check them")
        }
        Some(libc::EAFNOSUPPORT) => (Kind::Unavailable, "this machine has no such address family; use the other one"),
        _ => (Kind::Unavailable, "check the address and the interface"),
    };
    Error::new(kind, format!("cannot send to {to}{place}: {what}")).because(e).cure(cure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn target(to: &str) -> Target {
        Target { destination: to.parse().unwrap(), interface: None, ttl: 1, loopback: true }
    }

    #[test]
    fn bad_targets_name_their_cure() {
        for (target, kind, text) in [
            (target("127.0.0.1:0"), Kind::Usage, "port 0"),
            (target("0.0.0.0:5004"), Kind::Usage, "no receiver"),
            (target("255.255.255.255:5004"), Kind::Permission, "forbid"),
            (Target { interface: Some("nosuch0".into()), ..target("239.1.1.1:5004") }, Kind::Unavailable, "nosuch0"),
            (
                Target { interface: Some("192.0.2.77".into()), ..target("239.1.1.1:5004") },
                Kind::Unavailable,
                "192.0.2.77",
            ),
        ] {
            let error = Outlet::open(target).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(text) && !error.cure_text().is_empty(), "{error}");
        }
    }

    #[test]
    fn multicast_by_the_loopback_interface() {
        let outlet = Outlet::open(Target { interface: Some("lo".into()), ..target("239.1.1.1:5004") }).unwrap();
        assert_eq!(outlet.source(), Some(Ipv4Addr::LOCALHOST.into()));
    }
}
