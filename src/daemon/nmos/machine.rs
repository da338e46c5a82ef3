//! What the node says of this machine: names, interfaces, clocks, where it is reached.

use super::Settings;
use crate::daemon::{Port, Receiver, Side};
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
    let name = host_name();
    let seed = settings.seed.clone().unwrap_or_default();
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
        listening: listening(place, &all),
    }
}

/// As machine-id(5) has it; empty where there is none.
pub fn id() -> String {
    read("/etc/machine-id")
}
/// As the kernel has it.
pub fn host_name() -> String {
    read("/proc/sys/kernel/hostname")
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

/// The interface of a leg, by its name: that of the kernel where it has one, else the port's.
pub fn interface_of(side: &Side, leg: usize, all: &[Interface]) -> String {
    if let Some(port) = port_of(side, leg) {
        return name_of(port, all);
    }
    let Some(given) = side.interfaces.get(leg).or(side.interfaces.last()) else { return default_interface(all) };
    let address = given.parse::<IpAddr>().ok();
    let found = all.iter().find(|i| i.name == *given || address.is_some_and(|ip| i.addresses.contains(&ip)));
    // One that has gone may come back.
    found.map_or_else(|| given.clone(), |interface| interface.name.clone())
}

fn port_of(side: &Side, leg: usize) -> Option<&Port> {
    side.ports.get(leg).or(side.ports.last())?.as_ref()
}

/// `net_af_packet,iface=eth1` is eth1; 0000:3b:00.0 is the kernel's interface where its driver has left it one.
fn name_of(port: &Port, all: &[Interface]) -> String {
    let (device, options) = port.name.split_once(',').unwrap_or((&port.name, ""));
    let over = options.split(',').find_map(|option| option.strip_prefix("iface="));
    // The domain may be left out.
    let whole = if device.matches(':').count() == 1 { format!("0000:{device}") } else { device.to_owned() };
    let card = |interface: &&Interface| {
        let link = std::fs::read_link(format!("/sys/class/net/{}/device", interface.name));
        link.is_ok_and(|link| link.file_name().is_some_and(|address| address == whole.as_str()))
    };
    let kernel = || all.iter().find(card).map(|interface| interface.name.clone());
    over.map(str::to_owned).or_else(kernel).unwrap_or(whole)
}

/// The addresses of a leg's interface: what its port answers for goes before those of the kernel.
fn addresses_of(side: &Side, leg: usize, name: &str, all: &[Interface]) -> Vec<IpAddr> {
    match port_of(side, leg).and_then(|port| port.address) {
        Some(address) => vec![address.into()],
        None => all.iter().find(|i| i.name == *name).map(usable).unwrap_or_default(),
    }
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
                let addresses = addresses_of(side, leg, &name, all);
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
    if settings.address.is_empty() {
        listening(place, all).iter().for_each(|address| add(address.ip().to_string(), address.port()));
    }
    for address in &place.addresses {
        settings.address.iter().for_each(|host| add(host.clone(), address.port()));
    }
    // From elsewhere nobody reaches it there.
    let loopback = |host: &str| host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if hosts.iter().any(|(host, _)| !loopback(host)) {
        hosts.retain(|(host, _)| !loopback(host));
    }
    let Place { secure, tokens, .. } = *place;
    hosts.into_iter().map(|(host, port)| Endpoint { host, port, secure, authorization: tokens }).collect()
}

/// Where others reach it: instead of 0.0.0.0 all that the machine has, and the loopback only where there is nothing else.
fn listening(place: &Place, all: &[Interface]) -> Vec<SocketAddr> {
    let mut list: Vec<SocketAddr> = vec![];
    for address in &place.addresses {
        // IPv6's takes IPv4 too.
        let fits = |ip: &IpAddr| ip.is_ipv4() || address.is_ipv6();
        let here: Vec<IpAddr> = match address.ip().is_unspecified() {
            true => all.iter().filter(|i| i.up).flat_map(usable).filter(fits).collect(),
            false => vec![address.ip()],
        };
        for address in here.into_iter().map(|ip| SocketAddr::new(ip, address.port())) {
            if list.len() < MOST && !list.contains(&address) {
                list.push(address);
            }
        }
    }
    if list.iter().any(|address| !address.ip().is_loopback()) {
        list.retain(|address| !address.ip().is_loopback());
    }
    list
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
        // Names do not say where it listens, which is what is announced.
        let there = |addresses: &[&str]| {
            let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
            listening(&Place { addresses, secure: false, tokens: false, ptp4l: vec![] }, &all())
        };
        assert_eq!(there(&["10.0.0.7:80", "127.0.0.1:80"]), ["10.0.0.7:80".parse().unwrap()]);
        assert_eq!(there(&["0.0.0.0:80"]), ["10.0.0.7:80", "10.1.0.7:80"].map(|address| address.parse().unwrap()));
    }

    /// A port that is bound to vfio-pci is none of the kernel's: it has the name and the address that DPDK is told.
    #[test]
    fn ports_that_no_kernel_has_are_interfaces_too() {
        let port = |name: &str, address: Option<&str>| {
            Some(Port { name: name.into(), address: address.map(|ip| ip.parse().unwrap()) })
        };
        let ports = vec![port("0000:3b:00.0", Some("192.0.2.7")), port("net_af_packet0,iface=eth1", None)];
        let side = Side { ports, legs: 2, ..Side::default() };
        let of = |leg| {
            let name = interface_of(&side, leg, &all());
            let addresses = addresses_of(&side, leg, &name, &all());
            (name, addresses)
        };
        assert_eq!(of(0), ("0000:3b:00.0".into(), vec!["192.0.2.7".parse().unwrap()]));
        assert_eq!(of(1), ("eth1".into(), vec!["10.1.0.7".parse().unwrap()]));
        let short = Side {
            ports: vec![port("3b:00.1,x=1", None)],
            interfaces: vec!["eth0".into()],
            legs: 1,
            ..Side::default()
        };
        assert_eq!(interface_of(&short, 0, &all()), "0000:3b:00.1");
        assert_eq!(addresses_of(&short, 0, "0000:3b:00.1", &all()), [IpAddr::V4(Ipv4Addr::LOCALHOST); 0]);
        // The second leg comes by a socket.
        let mixed = Side {
            ports: vec![port("0000:3b:00.0", None), None],
            interfaces: vec!["eth1".into()],
            legs: 2,
            ..Side::default()
        };
        assert_eq!(interface_of(&mixed, 1, &all()), "eth1");
    }

    #[test]
    fn legs_are_on_the_interfaces_of_the_configuration() {
        let side = |interfaces: &[&str]| Side {
            interfaces: interfaces.iter().map(|i| (*i).to_owned()).collect(),
            legs: 2,
            ..Side::default()
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
