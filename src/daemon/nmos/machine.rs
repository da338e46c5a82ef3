//! What the node says of this machine: names, interfaces, clocks, where it is reached.

use super::Settings;
use crate::daemon::Receiver;
use crate::ptp::watch::Target;
use crate::rx::socket::{Interface, by_route, interfaces};
use gdmedia_nmos as nmos;
use nmos::{Asset, Chassis, ClockInfo, Endpoint};
use ring::digest::{SHA256, digest};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

/// Where the node is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Addresses with their ports.
    pub addresses: Vec<SocketAddr>,
    /// HTTPS.
    pub secure: bool,
    /// Requests need tokens.
    pub tokens: bool,
    /// Sockets of ptp4l; none: where linuxptp puts them.
    pub ptp4l: Vec<PathBuf>,
}

/// Endpoints that are told at most.
const MOST: usize = 16;

/// All of it.
pub fn about(settings: &Settings, place: &Place, receivers: &[Arc<Receiver>]) -> nmos::Settings {
    let all = interfaces();
    let name = read("/proc/sys/kernel/hostname");
    let seed = settings.seed.clone().unwrap_or_else(|| format!("{}/{name}", read("/etc/machine-id")));
    let label = settings.label.clone().unwrap_or_else(|| format!("gdmedia on {name}"));
    nmos::Settings {
        // The machine's id is not for everybody (machine-id(5)), and the seed is told where nothing else is.
        asset: Asset { instance: Some(hash(&seed)), ..Asset::default() },
        seed,
        label,
        description: settings.description.clone(),
        tags: settings.tags.0.clone(),
        hostname: Some(name).filter(|name| is_in_dns(name)),
        interfaces: bound(&all, receivers),
        clocks: vec![clock(&place.ptp4l)],
        endpoints: endpoints(settings, place, &all),
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn hash(text: &str) -> String {
    digest(&SHA256, text.as_bytes()).as_ref().iter().take(8).map(|octet| format!("{octet:02x}")).collect()
}

/// A whole name, and none of multicast DNS.
fn is_in_dns(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.contains('.') && name.split('.').all(label) && !name.to_ascii_lowercase().ends_with(".local")
}

/// The interface of a leg, by its name.
pub fn interface_of(side: &crate::daemon::Side, leg: usize, all: &[Interface]) -> String {
    let Some(given) = side.interfaces.get(leg).or(side.interfaces.last()) else { return default_interface(all) };
    let address = given.parse::<IpAddr>().ok();
    let found = all.iter().find(|i| i.name == *given || address.is_some_and(|ip| i.addresses.contains(&ip)));
    // One that has gone may come back.
    found.map_or_else(|| given.clone(), |interface| interface.name.clone())
}

/// Where the kernel looks for groups when nobody says it.
fn default_interface(all: &[Interface]) -> String {
    let by_route = by_route(Ipv4Addr::new(239, 255, 0, 1).into()).map(|interface| interface.name);
    let others = || all.iter().find(|i| i.up && i.has_family_of(Ipv4Addr::LOCALHOST.into()) && i.name != "lo");
    by_route.or_else(|| others().map(|interface| interface.name.clone())).unwrap_or_else(|| "lo".into())
}

/// The interfaces that receivers are bound to.
fn bound(all: &[Interface], receivers: &[Arc<Receiver>]) -> Vec<nmos::Interface> {
    let mut list: Vec<nmos::Interface> = vec![];
    for side in receivers.iter().map(|receiver| &receiver.side) {
        for leg in 0..side.legs {
            let name = interface_of(side, leg, all);
            if !list.iter().any(|interface| interface.name == name) {
                let addresses = all.iter().find(|i| i.name == name).map(usable).unwrap_or_default();
                list.push(nmos::Interface {
                    mac: mac(&read(&format!("/sys/class/net/{name}/address"))),
                    name,
                    chassis: Chassis::Unknown,
                    neighbour: None,
                    addresses,
                });
            }
        }
    }
    list
}

/// Those that mean something without the interface.
fn usable(interface: &Interface) -> Vec<IpAddr> {
    let link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    interface.addresses.iter().copied().filter(|ip| !link_local(ip)).collect()
}

fn mac(text: &str) -> [u8; 6] {
    let octets: Option<Vec<u8>> = text.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
    octets.and_then(|octets| octets.try_into().ok()).unwrap_or_default()
}

/// PTP where ptp4l knows a grandmaster, else this machine's own clock.
fn clock(ptp4l: &[PathBuf]) -> ClockInfo {
    let name = "clk0".to_owned();
    let state = Target::here(vec![0, 127], None).at(ptp4l).ask().ok();
    match state.and_then(|state| Some((state, state.grandmaster?))) {
        Some((state, grandmaster)) => ClockInfo::Ptp {
            name,
            grandmaster: grandmaster.0,
            traceable: state.time.time_traceable,
            locked: state.is_locked(),
        },
        None => ClockInfo::Internal { name },
    }
}

fn endpoints(settings: &Settings, place: &Place, all: &[Interface]) -> Vec<Endpoint> {
    let mut hosts: Vec<(String, u16)> = vec![];
    let mut add = |host: String, port: u16| {
        if hosts.len() < MOST && !hosts.contains(&(host.clone(), port)) {
            hosts.push((host, port));
        }
    };
    for address in &place.addresses {
        if !settings.address.is_empty() {
            settings.address.iter().for_each(|host| add(host.clone(), address.port()));
        } else if !address.ip().is_unspecified() {
            add(address.ip().to_string(), address.port());
        } else {
            // IPv6's takes IPv4 too.
            let fits = |ip: &IpAddr| ip.is_ipv4() || address.is_ipv6();
            for ip in all.iter().filter(|i| i.up).flat_map(usable).filter(fits) {
                add(ip.to_string(), address.port());
            }
        }
    }
    // From elsewhere nobody reaches it there.
    let loopback = |host: &str| host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if hosts.iter().any(|(host, _)| !loopback(host)) {
        hosts.retain(|(host, _)| !loopback(host));
    }
    let Place { secure, tokens, .. } = *place;
    hosts.into_iter().map(|(host, port)| Endpoint { host, port, secure, authorization: tokens }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, addresses: &[&str]) -> Interface {
        let addresses = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
        Interface { name: name.into(), index: 1, up: true, running: true, addresses }
    }
    fn all() -> Vec<Interface> {
        vec![
            interface("lo", &["127.0.0.1", "::1"]),
            interface("eth0", &["10.0.0.7", "fe80::1", "fd00::7"]),
            interface("eth1", &["10.1.0.7"]),
        ]
    }
    fn urls(settings: &Settings, addresses: &[&str], secure: bool) -> Vec<String> {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let place = Place { addresses, secure, tokens: false, ptp4l: vec![] };
        endpoints(settings, &place, &all()).iter().map(Endpoint::url).collect()
    }

    #[test]
    fn controllers_are_told_addresses_that_they_can_reach() {
        let none = Settings::default();
        assert_eq!(urls(&none, &["127.0.0.1:80"], false), ["http://127.0.0.1:80"]);
        assert_eq!(urls(&none, &["127.0.0.1:80", "10.0.0.7:81"], true), ["https://10.0.0.7:81"]);
        assert_eq!(urls(&none, &["0.0.0.0:80"], false), ["http://10.0.0.7:80", "http://10.1.0.7:80"]);
        assert_eq!(
            urls(&none, &["[::]:80"], false),
            ["http://10.0.0.7:80", "http://[fd00::7]:80", "http://10.1.0.7:80"]
        );
        let named = Settings { address: vec!["rx.example.org".into()], ..none };
        assert_eq!(urls(&named, &["0.0.0.0:80"], true), ["https://rx.example.org:80"]);
    }

    #[test]
    fn legs_are_on_the_interfaces_of_the_configuration() {
        let side = |interfaces: &[&str]| crate::daemon::Side {
            interfaces: interfaces.iter().map(|i| (*i).to_owned()).collect(),
            legs: 2,
            ..crate::daemon::Side::default()
        };
        let of = |interfaces: &[&str], leg| interface_of(&side(interfaces), leg, &all());
        assert_eq!([of(&["eth1", "10.0.0.7"], 0), of(&["eth1", "10.0.0.7"], 1)], ["eth1", "eth0"]);
        assert_eq!([of(&["eth1"], 1), of(&["gone"], 0)], ["eth1", "gone"]);
    }

    #[test]
    fn names_and_addresses() {
        assert!(is_in_dns("rx1.example.org"));
        for name in ["rx1", "rx1.local", "RX.LOCAL", "rx_1.example.org", "rx..org", ""] {
            assert!(!is_in_dns(name), "{name}");
        }
        assert_eq!(mac("02:00:5e:10:00:ff"), [2, 0, 0x5e, 0x10, 0, 0xff]);
        assert_eq!([mac(""), mac("zz:00:00:00:00:00"), mac("00:00:00:00")], [[0; 6]; 3]);
        // FIPS 180-2, B.1.
        assert_eq!(hash("abc"), "ba7816bf8f01cfea");
    }
}
