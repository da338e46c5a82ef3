//! Network interfaces: which exist, and which one a person means.
#![allow(unsafe_code)]

use crate::error::{Error, Kind, Result};
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// A network interface of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Such as `eth0`.
    pub name: String,
    /// The kernel's number for it.
    pub index: u32,
    /// Switched on (`ip link set … up`).
    pub up: bool,
    /// Has a carrier.
    pub running: bool,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

impl Interface {
    /// Has an address of the same family as `other`.
    pub fn has_family_of(&self, other: IpAddr) -> bool {
        self.addresses.iter().any(|a| a.is_ipv4() == other.is_ipv4())
    }
}

/// All interfaces, in the kernel's order.
pub fn interfaces() -> Vec<Interface> {
    let mut list = Vec::<Interface>::new();
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: on success `first` points to a list that stays valid until `freeifaddrs`.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return list;
    }
    let mut at = first;
    while !at.is_null() {
        // SAFETY: `at` is an element of the list made above, its name is a C string in the same list.
        let (entry, name) = unsafe { (&*at, CStr::from_ptr((*at).ifa_name)) };
        at = entry.ifa_next;
        // SAFETY: a C string.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        let flag = |f: libc::c_int| entry.ifa_flags & f as libc::c_uint != 0;
        let known = list.iter().position(|i| i.index == index).unwrap_or_else(|| {
            list.push(Interface {
                name: name.to_string_lossy().into_owned(),
                index,
                up: flag(libc::IFF_UP),
                running: flag(libc::IFF_RUNNING),
                addresses: Vec::new(),
            });
            list.len() - 1
        });
        if !entry.ifa_addr.is_null() {
            // SAFETY: `ifa_addr`, when there, is a socket address of the family that it names.
            let address = unsafe {
                match i32::from((*entry.ifa_addr).sa_family) {
                    libc::AF_INET => {
                        let a = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                        Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr))))
                    }
                    libc::AF_INET6 => {
                        let a = entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                        Some(IpAddr::V6(Ipv6Addr::from(a.sin6_addr.s6_addr)))
                    }
                    _ => None,
                }
            };
            list[known].addresses.extend(address);
        }
    }
    // SAFETY: made by `getifaddrs`, and no reference into it is left.
    unsafe { libc::freeifaddrs(first) };
    list
}

/// Is there still an interface with this number? One that is deleted and made anew has another.
pub(super) fn exists(index: u32) -> bool {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: writes a C string of at most so many octets.
    !unsafe { libc::if_indextoname(index, name.as_mut_ptr()) }.is_null()
}

/// The interface that `text` names, by its name or by one of its addresses.
pub fn find(text: &str) -> Result<Interface> {
    let all = interfaces();
    let address = text.parse::<IpAddr>().ok();
    all.iter().find(|i| i.name == text || address.is_some_and(|a| i.addresses.contains(&a))).cloned().ok_or_else(|| {
        let what = if address.is_some() { "no interface has the address" } else { "there is no interface" };
        Error::new(Kind::Unavailable, format!("{what} {text}"))
            .cure(format!("choose one of: {}", describe(&all, |_| true)))
    })
}

/// The interface by which the kernel would send to `address`; `None` when no route leads there.
pub fn by_route(address: IpAddr) -> Option<Interface> {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // Connecting a datagram socket sends nothing, it only looks up the route.
    let probe = UdpSocket::bind(any).ok()?;
    probe.connect((address, 9)).ok()?;
    let local = probe.local_addr().ok()?.ip();
    interfaces().into_iter().find(|i| i.addresses.contains(&local))
}

/// For messages: the interfaces that `wanted` selects, with their addresses.
pub(super) fn describe(all: &[Interface], wanted: impl Fn(&Interface) -> bool) -> String {
    let each: Vec<String> = all
        .iter()
        .filter(|i| wanted(i))
        .map(|i| {
            let state = (!i.up).then(|| "down".to_owned());
            let inside: Vec<String> = state.into_iter().chain(i.addresses.iter().map(ToString::to_string)).collect();
            if inside.is_empty() { i.name.clone() } else { format!("{} ({})", i.name, inside.join(" ")) }
        })
        .collect();
    if each.is_empty() { "(none)".into() } else { each.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found_by_name_and_by_address() {
        let by_name = find("lo").unwrap();
        assert!(by_name.up && by_name.index > 0 && by_name.addresses.contains(&Ipv4Addr::LOCALHOST.into()));
        assert_eq!(find("127.0.0.1").unwrap(), by_name);
        assert_eq!(by_route(Ipv4Addr::LOCALHOST.into()).unwrap().name, "lo");
    }

    #[test]
    fn an_unknown_interface_lists_those_that_exist() {
        let error = find("nosuch0").unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable);
        let text = error.to_string();
        assert!(text.contains("nosuch0") && text.contains("lo (127.0.0.1"), "{text}");
        let text = find("192.0.2.77").unwrap_err().to_string();
        assert!(text.contains("no interface has the address 192.0.2.77"), "{text}");
    }
}
