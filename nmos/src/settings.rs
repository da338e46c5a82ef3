//! What a node says of itself.

use crate::error::Error;
use crate::receivers::Tags;
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use uuid::Uuid;

/// A node and its one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// All ids are made of it (UUIDv5), so they stay the same over restarts; two nodes of a network need two seeds. The
    /// machine's name or serial number will do.
    pub seed: String,
    /// For people.
    pub label: String,
    /// For people.
    pub description: String,
    /// More tags of IS-04.
    pub tags: Tags,
    /// The machine's name in DNS, not in mDNS (`.local`); none where it has none.
    pub hostname: Option<String>,
    /// What it is (BCP-002-02).
    pub asset: Asset,
    /// The interfaces that receivers are bound to, and others.
    pub interfaces: Vec<Interface>,
    /// Reference clocks.
    pub clocks: Vec<ClockInfo>,
    /// Where the API is reached; the first one is the preferred one. At least one.
    pub endpoints: Vec<Endpoint>,
    /// Addresses that the API listens at, with their ports: what is announced in peer-to-peer operation where `endpoints` has
    /// names. Empty: not known, and a node that has names alone does not announce itself.
    pub listening: Vec<SocketAddr>,
}

/// Distinguishing information of an asset (BCP-002-02). The three texts together are unique in a facility.
#[derive(Clone, Debug, PartialEq)]
pub struct Asset {
    /// Who makes it.
    pub manufacturer: String,
    /// What it is.
    pub product: String,
    /// Which one it is: the serial number of the machine, or a name. The seed, where there is none.
    pub instance: Option<String>,
    /// What it is for, such as `receiver`.
    pub function: String,
}

impl Default for Asset {
    fn default() -> Asset {
        Asset { manufacturer: "gdmedia".into(), product: "gdmedia".into(), instance: None, function: "receiver".into() }
    }
}

/// An interface of the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// As the operating system calls it.
    pub name: String,
    /// MAC address of the interface itself (LLDP port id).
    pub mac: [u8; 6],
    /// What the machine calls itself in LLDP.
    pub chassis: Chassis,
    /// The port of the switch that LLDP has found, where it has.
    pub neighbour: Option<Neighbour>,
    /// Its addresses; `"auto"` takes the first that fits.
    pub addresses: Vec<IpAddr>,
}

/// A chassis id of LLDP.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Chassis {
    /// Not known.
    #[default]
    Unknown,
    /// A MAC address.
    Mac([u8; 6]),
    /// Any other text.
    Text(String),
}

/// The other end of a cable, as LLDP says it.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    /// Chassis id.
    pub chassis: String,
    /// Port id.
    pub port: String,
}

/// A reference clock.
#[derive(Clone, Debug, PartialEq)]
pub enum ClockInfo {
    /// The machine's own, which follows nothing.
    Internal {
        /// `clk` and a number, unique in the node.
        name: String,
    },
    /// IEEE 1588-2008.
    Ptp {
        /// `clk` and a number, unique in the node.
        name: String,
        /// Identity of the grandmaster.
        grandmaster: [u8; 8],
        /// The grandmaster has its time from TAI.
        traceable: bool,
        /// This machine follows it.
        locked: bool,
    },
}

/// Where an API is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// A name in DNS or an address; with `https` the name of the certificate.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Over TLS (BCP-003-01).
    pub secure: bool,
    /// Requests need a token (BCP-003-02).
    pub authorization: bool,
}

impl Endpoint {
    /// `http` or `https`.
    pub const fn protocol(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }
    /// Its URL, without a slash at the end.
    pub fn url(&self) -> String {
        let host = match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
            _ => self.host.clone(),
        };
        format!("{}://{host}:{}", self.protocol(), self.port)
    }

    /// Whether a controller elsewhere could use it.
    ///
    /// # Errors
    /// It is no address that is reached, or no name of DNS; names of multicast DNS end at the next router (IS-04, "Use of
    /// .local Hostnames").
    pub fn check(&self) -> Result<(), Error> {
        let address = self.host.parse::<IpAddr>().ok();
        if self.port == 0 || address.is_some_and(|ip| ip.is_unspecified() || ip.is_multicast()) {
            let what = format!("{} is no address that a controller could reach", self.url());
            return Err(Error::new(what, "name the address of the control interface and a port"));
        }
        if address.is_none() && !is_host_name(&self.host) {
            let what = format!("`{}` is neither a host name nor an address", self.host);
            return Err(Error::new(what, "write a name of DNS, an IPv4 or an IPv6 address"));
        }
        not_of_mdns(&self.host)
    }
}

fn not_of_mdns(name: &str) -> Result<(), Error> {
    if !name.to_ascii_lowercase().ends_with(".local") {
        return Ok(());
    }
    let what = format!("the name {name} is one of mDNS, which ends at the next router");
    Err(Error::new(what, "use an address, or a name of DNS (IS-04, \"Use of .local Hostnames\")"))
}

impl Settings {
    /// Whether a controller could work with it.
    ///
    /// # Errors
    /// The first thing that is wrong, and what would be right.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.seed.is_empty() {
            return Err(Error::new("the node has no seed for its ids", "give it one that no other node has"));
        }
        let Some(first) = self.endpoints.first() else {
            return Err(Error::new("the node has no endpoint", "say at which address its API is served"));
        };
        for endpoint in &self.endpoints {
            endpoint.check()?;
            if endpoint.authorization != first.authorization {
                let what = "one endpoint of the node needs tokens and another does not";
                return Err(Error::new(what, "protect all of them, as they serve the same receivers"));
            }
        }
        if let Some(name) = self.hostname.as_ref().filter(|name| !is_host_name(name)) {
            return Err(Error::new(
                format!("`{name}` is no host name of DNS"),
                "leave it out, or correct the machine's name",
            ));
        }
        self.hostname.as_deref().map_or(Ok(()), not_of_mdns)?;
        for interface in &self.interfaces {
            let neighbour = interface.neighbour.iter().flat_map(|n| [&n.chassis, &n.port]);
            let own = match &interface.chassis {
                Chassis::Text(text) => Some(text),
                Chassis::Unknown | Chassis::Mac(_) => None,
            };
            if neighbour.chain(own).any(String::is_empty) {
                let what = format!("a chassis or port id of {} is empty", interface.name);
                return Err(Error::new(what, "leave out what LLDP does not say"));
            }
        }
        unique("interface", self.interfaces.iter().map(|i| i.name.as_str()))?;
        unique("clock", self.clocks.iter().map(ClockInfo::name))?;
        for name in self.clocks.iter().map(ClockInfo::name) {
            let number = name.strip_prefix("clk").unwrap_or_default();
            if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
                let what = format!("`{name}` is no name of a clock in IS-04");
                return Err(Error::new(what, "call the clocks clk0, clk1 and so on"));
            }
        }
        Ok(())
    }

    /// The id of the node.
    pub fn node_id(&self) -> Uuid {
        self.id("node", "")
    }
    /// The id of its device.
    pub fn device_id(&self) -> Uuid {
        self.id("device", "")
    }
    /// The id of the receiver `name`.
    pub fn receiver_id(&self, name: &str) -> Uuid {
        self.id("receiver", name)
    }

    fn id(&self, kind: &str, name: &str) -> Uuid {
        // A namespace of this program's own, made once; it must never change, as the ids would.
        const GDMEDIA: Uuid = Uuid::from_u128(0x6e4d_3f5a_9f0c_4f6e_8a55_61d0_2110_0405);
        let seed = Uuid::new_v5(&GDMEDIA, self.seed.as_bytes());
        Uuid::new_v5(&seed, format!("{kind}/{name}").as_bytes())
    }
}

impl ClockInfo {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            ClockInfo::Internal { name } | ClockInfo::Ptp { name, .. } => name,
        }
    }
}

/// RFC 1123, section 2.1: what the schemas of IS-04 take as a host name.
fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

fn unique<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Error::new(format!("two {what}s are called {name}"), "give each a name of its own"));
        }
    }
    Ok(())
}

/// Hexadecimal, lower case, with hyphens: as IS-04 writes MAC addresses and clock identities.
pub(crate) fn hyphens(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn settings() -> Settings {
        Settings {
            seed: "machine-1".into(),
            label: "gdmedia".into(),
            description: String::new(),
            tags: Tags::new(),
            hostname: Some("rx1.example.org".into()),
            asset: Asset::default(),
            interfaces: vec![],
            clocks: vec![ClockInfo::Internal { name: "clk0".into() }],
            endpoints: vec![Endpoint { host: "192.0.2.7".into(), port: 8080, secure: false, authorization: false }],
            listening: vec![],
        }
    }

    #[test]
    fn ids_are_of_the_seed_and_the_name() {
        let a = settings();
        let b = Settings { seed: "machine-2".into(), label: a.label.clone(), ..settings() };
        // By another's UUIDv5, and never to change: controllers have routed by these.
        assert_eq!(a.node_id().to_string(), "23049ae8-bb00-5f99-a1ca-a866971ec0d4");
        assert_eq!(a.device_id().to_string(), "5732318f-b570-56b0-bab9-d14cf52431a7");
        assert_eq!(a.receiver_id("one").to_string(), "9a4f039d-9706-5f8f-85bc-4e3d8e7aee70");
        assert_ne!(a.node_id(), b.node_id());
        assert_ne!(a.node_id(), a.device_id());
        assert_ne!(a.receiver_id("one"), a.receiver_id("two"));
    }

    #[test]
    fn what_no_controller_could_use_is_refused() {
        assert!(settings().check().is_ok());
        let wrong = |f: fn(&mut Settings)| {
            let mut s = settings();
            f(&mut s);
            let error = s.check().unwrap_err();
            assert!(!error.cure().is_empty());
            error.to_string()
        };
        assert!(wrong(|s| s.seed.clear()).contains("seed"));
        assert!(wrong(|s| s.endpoints.clear()).contains("endpoint"));
        assert!(wrong(|s| s.endpoints[0].host = "0.0.0.0".into()).contains("0.0.0.0"));
        assert!(wrong(|s| s.endpoints[0].port = 0).contains(":0"));
        assert!(wrong(|s| s.endpoints[0].host = "a/b".into()).contains("a/b"));
        assert!(wrong(|s| s.endpoints[0].host = "rx1.local".into()).contains("mDNS"));
        assert!(wrong(|s| s.endpoints[0].host = "rx_1".into()).contains("rx_1"));
        assert!(wrong(|s| s.endpoints[0].host = "[fd00::1]".into()).contains("fd00"));
        assert!(wrong(|s| s.hostname = Some("RX1.LOCAL".into())).contains("mDNS"));
        assert!(wrong(|s| s.hostname = Some("rx_1".into())).contains("rx_1"));
        let chassis = |s: &mut Settings| {
            s.interfaces = vec![Interface {
                name: "eth0".into(),
                mac: [0; 6],
                chassis: Chassis::Text(String::new()),
                neighbour: None,
                addresses: vec![],
            }];
        };
        assert!(wrong(chassis).contains("eth0"));
        assert!(wrong(|s| s.clocks.push(s.clocks[0].clone())).contains("clk0"));
        assert!(wrong(|s| s.clocks = vec![ClockInfo::Internal { name: "ptp".into() }]).contains("ptp"));
        let mixed = |s: &mut Settings| s.endpoints.push(Endpoint { authorization: true, ..s.endpoints[0].clone() });
        assert!(wrong(mixed).contains("tokens"));
    }

    #[test]
    fn urls_have_brackets_where_they_must() {
        let mut endpoint = settings().endpoints[0].clone();
        assert_eq!(endpoint.url(), "http://192.0.2.7:8080");
        endpoint.host = "fd00::7".into();
        endpoint.secure = true;
        assert_eq!(endpoint.url(), "https://[fd00::7]:8080");
    }

    #[test]
    fn octets_as_is04_writes_them() {
        assert_eq!(hyphens(&[0x00, 0x1b, 0x19, 0xff, 0xfe, 0x00, 0x0a, 0xbc]), "00-1b-19-ff-fe-00-0a-bc");
    }
}
