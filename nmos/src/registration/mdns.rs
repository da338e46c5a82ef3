//! DNS-SD over multicast DNS: registries are looked for, and the node is announced where there is none.

use super::select::Advert;
use crate::error::Error;
use mdns_sd::{IfKind, Receiver, ResolvedService, ServiceDaemon, ServiceEvent, ServiceInfo};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

const REGISTER: &str = "_nmos-register._tcp.local.";
const NODE: &str = "_nmos-node._tcp.local.";
/// More registries than any facility has; a flood of adverts takes no more memory than this.
const MAX_REGISTRIES: usize = 64;

/// What finds registries and announces the node. [`Mdns`] does it by multicast DNS.
pub trait Discovery: Send {
    /// The registries that are announced now. Does not wait.
    fn registries(&mut self) -> Vec<Advert>;
    /// Whether registries for development are wanted: see [`super::select::Wanted::development`].
    fn development(&self) -> bool {
        false
    }
    /// Announces the node, or changes what is announced.
    fn announce(&mut self, advert: &NodeAdvert);
    /// Takes the announcement back.
    fn withdraw(&mut self);
}

/// The node as it announces itself.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeAdvert {
    /// Unique in the network.
    pub name: String,
    /// Where the API is.
    pub addresses: Vec<IpAddr>,
    /// TCP port.
    pub port: u16,
    /// TXT records.
    pub txt: BTreeMap<String, String>,
}

/// Multicast DNS, on a thread of its own. Ends when it is dropped.
pub struct Mdns {
    daemon: ServiceDaemon,
    events: Receiver<ServiceEvent>,
    found: BTreeMap<String, Advert>,
    development: bool,
    announced: Option<(String, NodeAdvert)>,
}

impl Mdns {
    /// On the interfaces of these names, or on all where there are none: a machine with media interfaces names the one of
    /// its control network.
    ///
    /// # Errors
    /// UDP port 5353 cannot be used.
    pub fn new(interfaces: &[String]) -> Result<Mdns, Error> {
        let opened = ServiceDaemon::new().and_then(|daemon| {
            if !interfaces.is_empty() {
                daemon.disable_interface(IfKind::All)?;
                let kinds: Vec<IfKind> = interfaces.iter().cloned().map(IfKind::Name).collect();
                daemon.enable_interface(kinds)?;
            }
            let events = daemon.browse(REGISTER)?;
            Ok((daemon, events))
        });
        let (daemon, events) = opened.map_err(|error| {
            let cure = "name the registry by its URL, or free UDP port 5353 for shared use";
            Error::new("multicast DNS cannot be used", cure).because(error)
        })?;
        Ok(Mdns { daemon, events, found: BTreeMap::new(), development: false, announced: None })
    }

    /// Registries for development are taken, too.
    #[must_use]
    pub fn with_development(mut self, development: bool) -> Mdns {
        self.development = development;
        self
    }
}

impl Discovery for Mdns {
    fn registries(&mut self) -> Vec<Advert> {
        while let Ok(event) = self.events.try_recv() {
            match event {
                ServiceEvent::ServiceResolved(service)
                    if self.found.len() < MAX_REGISTRIES || self.found.contains_key(&service.fullname) =>
                {
                    self.found.insert(service.fullname.clone(), advert(&service));
                }
                ServiceEvent::ServiceRemoved(_, name) => {
                    self.found.remove(&name);
                }
                _ => {}
            }
        }
        self.found.values().cloned().collect()
    }

    fn development(&self) -> bool {
        self.development
    }

    fn announce(&mut self, advert: &NodeAdvert) {
        if self.announced.as_ref().is_some_and(|(_, now)| now == advert) {
            return;
        }
        if self.announced.as_ref().is_some_and(|(_, now)| now.name != advert.name || now.port != advert.port) {
            self.withdraw();
        }
        let txt: Vec<(&str, &str)> = advert.txt.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let host = format!("{}.local.", advert.name);
        let done = ServiceInfo::new(NODE, &advert.name, &host, &advert.addresses[..], advert.port, &txt[..]).and_then(
            |info| {
                let name = info.get_fullname().to_owned();
                // An announcement of the same name takes the place of the one before.
                self.daemon.register(info)?;
                Ok(name)
            },
        );
        match done {
            Ok(name) => self.announced = Some((name, advert.clone())),
            Err(error) => tracing::warn!("the node cannot be announced by mDNS: {error}"),
        }
    }

    fn withdraw(&mut self) {
        if let Some((name, _)) = self.announced.take()
            && let Ok(done) = self.daemon.unregister(&name)
        {
            // Its farewell goes out on the other thread, at once.
            let _ = done.recv_timeout(Duration::from_millis(500));
        }
    }
}

impl Drop for Mdns {
    fn drop(&mut self) {
        self.withdraw();
        if let Ok(done) = self.daemon.shutdown() {
            let _ = done.recv_timeout(Duration::from_millis(500));
        }
    }
}

impl std::fmt::Debug for Mdns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mdns").field("found", &self.found).finish_non_exhaustive()
    }
}

fn advert(service: &ResolvedService) -> Advert {
    let txt = service.txt_properties.iter().take(32);
    Advert {
        addresses: service.addresses.iter().take(16).map(|ip| ip.to_ip_addr()).collect(),
        port: service.port,
        txt: txt.map(|property| (property.key().to_ascii_lowercase(), property.val_str().to_owned())).collect(),
    }
}
