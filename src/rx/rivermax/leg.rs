//! The legs of a flow: which port of which card each comes by, and its group.

use super::failure;
use super::open::{Library, MAX_LEGS};
use super::options::Options;
use crate::error::{Error, Kind, Result};
use crate::rx::socket::{Interface, by_route, find_interface, member};
use crate::sdp::{self, SourceFilter};
use rivermax_sys as sys;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

/// One leg, with the port that it comes by.
pub struct Leg {
    pub what: sdp::Leg,
    pub interface: Interface,
    pub address: Ipv4Addr,
    pub port: sys::Iface,
    /// One for each source.
    pub flows: Vec<sys::Flow>,
    /// Keeps the group joined.
    _member: Option<socket2::Socket>,
}

impl Leg {
    fn open(
        library: &Library,
        number: usize,
        what: &sdp::Leg,
        options: &Options,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let destination = v4(what.destination)?;
        if what.port == 0 {
            return Err(Error::new(Kind::Data, "the SDP gives UDP port 0, which nothing can be sent to")
                .cure("put the sender's destination port in the m= line"));
        }
        let (interface, address) = place(options.interface(number), what.destination)?;
        let port = library.port(&interface, address)?;
        let mut told = Vec::new();
        let member = member(what, &interface, &mut told)?;
        let to = SocketAddrV4::new(destination, what.port);
        let flow = sys::Flow::to(to).tag(number as u32 + 1);
        let flows = match &what.sources {
            SourceFilter::Include(list) => {
                let from = |source: &IpAddr| match source {
                    IpAddr::V4(source) => Some(flow.from(SocketAddrV4::new(*source, 0))),
                    IpAddr::V6(_) => None,
                };
                list.iter().filter_map(from).collect()
            }
            SourceFilter::Any => vec![flow],
            SourceFilter::Exclude(_) => {
                told.push(
                    "warning: excluded sources are kept away by the network only (IGMPv3), not by the card".into(),
                );
                vec![flow]
            }
        };
        if flows.is_empty() {
            return Err(Error::new(Kind::Data, format!("the source filter of {destination} includes no IPv4 source"))
                .cure("correct or remove a=source-filter in the SDP"));
        }
        told.push(format!("card's port {} ({address})", interface.name));
        let prefix = |note: String| if number == 0 { note } else { format!("leg {number}: {note}") };
        notes.extend(told.into_iter().map(prefix));
        Ok(Leg { what: what.clone(), interface, address, port, flows, _member: member })
    }

    pub fn destination(&self) -> String {
        format!("{}:{}", self.what.destination, self.what.port)
    }
    pub fn not_attached(&self, error: sys::Error) -> Error {
        failure::call(format_args!("attaching {}", self.destination()), error)
    }
}

fn v4(destination: IpAddr) -> Result<Ipv4Addr> {
    match destination {
        IpAddr::V4(destination) => Ok(destination),
        IpAddr::V6(_) => Err(Error::new(Kind::Unavailable, format!("{destination} is IPv6"))
            .cure("Rivermax receives IPv4 here; use --backend socket")),
    }
}

/// The interface that is named, else the one that leads there, and the address that the library finds its port by.
pub fn place(named: Option<&str>, destination: IpAddr) -> Result<(Interface, Ipv4Addr)> {
    v4(destination)?;
    let asked: Option<Ipv4Addr> = named.and_then(|text| text.parse().ok());
    let interface = match named {
        // The loopback interface has a whole network, and is told with one address of it.
        Some(_) if asked.is_some_and(|a| a.is_loopback()) => find_interface("127.0.0.1")?,
        Some(text) => find_interface(text)?,
        None => by_route(destination).ok_or_else(|| {
            Error::new(Kind::Unavailable, format!("no route leads to {destination}")).cure("name it with --interface")
        })?,
    };
    let its_own = interface.addresses.iter().find_map(|address| v4(*address).ok());
    let address = asked.or(its_own).ok_or_else(|| {
        Error::new(Kind::Unavailable, format!("interface {} has no IPv4 address", interface.name))
            .cure(format!("ip address add … dev {}: Rivermax finds its ports by address", interface.name))
    })?;
    Ok((interface, address))
}

/// All legs of a flow.
pub fn legs(library: &Library, legs: &[sdp::Leg], options: &Options, notes: &mut Vec<String>) -> Result<Vec<Leg>> {
    if legs.is_empty() || legs.len() > MAX_LEGS {
        return Err(Error::new(Kind::Usage, format!("{} legs: a receiver takes one or {MAX_LEGS}", legs.len()))
            .cure("receive the further legs with a second receiver"));
    }
    legs.iter().enumerate().map(|(number, leg)| Leg::open(library, number, leg, options, notes)).collect()
}
