//! The legs of a flow: which port of which device each comes by, its rules, and its group.

use super::library::Rule;
use super::options::Options;
use super::port::{self, Port};
use crate::error::{Error, Kind, Result};
use crate::rx::link;
use crate::rx::socket::{Interface, MAX_LEGS, find_interface, member};
use crate::rx::xdp::{device, program::Wanted};
use crate::sdp::{self, SourceFilter};
use std::net::{IpAddr, Ipv4Addr};

/// One leg, with the port that it comes by.
pub struct Leg {
    pub what: sdp::Leg,
    pub interface: Interface,
    pub port: Port,
    /// What its packets look like.
    pub wanted: Wanted,
    /// One for each source.
    pub rules: Vec<Rule>,
    /// Keeps the group joined; the kernel's stack gets none of its packets.
    _member: Option<socket2::Socket>,
}

fn v4(destination: IpAddr) -> Result<Ipv4Addr> {
    match destination {
        IpAddr::V4(destination) => Ok(destination),
        IpAddr::V6(_) => Err(Error::new(Kind::Unavailable, format!("{destination} is IPv6"))
            .cure("verbs receives IPv4 here; use --backend xdp or socket")),
    }
}

/// Where a group's frames go on the Ethernet (RFC 1112, 6.4); others go to the interface itself.
fn mac_of(destination: Ipv4Addr, own: [u8; 6]) -> [u8; 6] {
    let [_, b, c, d] = destination.octets();
    if destination.is_multicast() { [0x01, 0x00, 0x5e, b & 0x7f, c, d] } else { own }
}

/// The interface that is named, else the one by which the destination comes in.
pub fn place(named: Option<&str>, destination: IpAddr) -> Result<Interface> {
    v4(destination)?;
    let asked: Option<Ipv4Addr> = named.and_then(|text| text.parse().ok());
    match named {
        // The loopback interface has a whole network, and is told with one address of it.
        Some(_) if asked.is_some_and(|a| a.is_loopback()) => find_interface("127.0.0.1"),
        Some(text) => find_interface(text),
        None => {
            let leg = sdp::Leg { destination, port: 0, sources: SourceFilter::Any, ttl: None, mid: None };
            let name = link::of_leg(&leg, None).ok_or_else(|| {
                Error::new(Kind::Unavailable, format!("no interface is known by which {destination} comes"))
                    .cure("name it with --interface")
            })?;
            find_interface(&name)
        }
    }
}

/// The port of an interface, the VLAN (0: none) and the address that it has on the Ethernet. A VLAN belongs to the port of the
/// interface that it lies on.
pub fn port_of(interface: &Interface, options: &Options) -> Result<(Port, u16, [u8; 6], u32)> {
    let silent = |name: &str, e: std::io::Error| {
        Error::new(Kind::Unavailable, format!("interface {name} does not answer")).because(e)
    };
    let link = device::query(interface.index).map_err(|e| silent(&interface.name, e))?;
    let (name, vlan) = match link.vlan_of {
        None => (interface.name.clone(), 0),
        Some((below, vlan)) => (device::query(below).map_err(|e| silent("below it", e))?.name, vlan),
    };
    let port = port::of_interface(&options.sysfs, &name)?;
    Ok((port, options.vlan.unwrap_or(vlan), link.mac, link.mtu))
}

impl Leg {
    fn open(number: usize, what: &sdp::Leg, options: &Options, notes: &mut Vec<String>) -> Result<Self> {
        let destination = v4(what.destination)?;
        if what.port == 0 {
            return Err(Error::new(Kind::Data, "the SDP gives UDP port 0, which nothing can be sent to")
                .cure("put the sender's destination port in the m= line"));
        }
        let interface = place(options.interface(number), what.destination)?;
        let (port, vlan, own, mtu) = port_of(&interface, options)?;
        let mut told = Vec::new();
        let rule = Rule {
            mac: mac_of(destination, own),
            vlan,
            destination: destination.octets(),
            source: [0; 4],
            port: what.port,
            device_port: port.number.into(),
        };
        let rules: Vec<Rule> = match &what.sources {
            SourceFilter::Include(list) => {
                let from = |source: &IpAddr| match source {
                    IpAddr::V4(source) => Some(Rule { source: source.octets(), ..rule }),
                    IpAddr::V6(_) => None,
                };
                list.iter().filter_map(from).collect()
            }
            SourceFilter::Any | SourceFilter::Exclude(_) => vec![rule],
        };
        if rules.is_empty() {
            return Err(Error::new(Kind::Data, format!("the source filter of {destination} includes no IPv4 source"))
                .cure("correct or remove a=source-filter in the SDP"));
        }
        let member = member(what, &interface, &mut told)?;
        let tagged = if vlan > 0 { format!(", VLAN {vlan}") } else { String::new() };
        told.push(format!("port {} of {} ({}{tagged})", port.number, port.device, interface.name));
        if u32::from(options.max_octets) + 28 > mtu {
            told.push(format!(
                "warning: packets may have {} octets, and the MTU of {} is {mtu}: larger ones do not arrive",
                u32::from(options.max_octets) + 28,
                interface.name
            ));
        }
        let prefix = |note: String| if number == 0 { note } else { format!("leg {number}: {note}") };
        notes.extend(told.into_iter().map(prefix));
        Ok(Leg { what: what.clone(), interface, port, wanted: Wanted::new(what, vlan), rules, _member: member })
    }

    pub fn destination(&self) -> String {
        format!("{}:{}", self.what.destination, self.what.port)
    }
}

/// All legs of a flow.
pub fn legs(legs: &[sdp::Leg], options: &Options, notes: &mut Vec<String>) -> Result<Vec<Leg>> {
    if legs.is_empty() || legs.len() > MAX_LEGS {
        return Err(Error::new(Kind::Usage, format!("{} legs: a receiver takes one or {MAX_LEGS}", legs.len()))
            .cure("receive the further legs with a second receiver"));
    }
    legs.iter().enumerate().map(|(number, leg)| Leg::open(number, leg, options, notes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_addresses_of_their_own_on_the_ethernet() {
        let own = [2, 0, 0, 0, 0, 9];
        // RFC 1112: the low 23 bits behind 01-00-5e.
        assert_eq!(mac_of([239, 129, 2, 255].into(), own), [0x01, 0x00, 0x5e, 0x01, 2, 255]);
        assert_eq!(mac_of([10, 0, 0, 7].into(), own), own);
    }
}
