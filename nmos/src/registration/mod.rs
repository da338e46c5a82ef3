//! Registration of the node at a registry (IS-04, "Behaviour: Registration", "Discovery").

pub mod client;
pub mod machine;
pub mod mdns;
pub mod select;

use crate::error::Error;
use crate::node::{Node, Resource, lock};
use crate::resources::NODE_VERSION;
use client::{Http, HttpRequest};
use machine::{Ask, Item, Machine, Next, Outcome, Timing, What};
use mdns::{Discovery, NodeAdvert};
use select::{Registry, Wanted};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Where registries are found.
pub enum Find {
    /// At these URLs, the first one before the others; nothing is looked for.
    Named(Vec<String>),
    /// By DNS-SD; without a registry the node announces itself.
    Discovered(Box<dyn Discovery>),
}

/// How it stands, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The registry in use, or being tried.
    pub registry: Option<String>,
    /// It has everything that the node has; what it has refused it has not.
    pub registered: bool,
    /// The node announces itself, as there is no registry.
    pub peer_to_peer: bool,
    /// What went wrong last; nothing since everything was registered.
    pub trouble: Option<String>,
}

/// The registration client, on a thread of its own. Unregisters the node when it is stopped or dropped.
pub struct Registration {
    stop: Arc<AtomicBool>,
    node: Node,
    status: Arc<Mutex<Status>>,
    done: Option<Receiver<()>>,
}

impl Registration {
    /// Starts it.
    ///
    /// # Errors
    /// There is no URL, one is none, or the operating system gives no thread.
    pub fn start(node: Node, find: Find, http: Box<dyn Http>, timing: Timing) -> Result<Registration, Error> {
        let (named, discovery) = match find {
            Find::Discovered(discovery) => (vec![], Some(discovery)),
            Find::Named(urls) => (named(&urls, http.protocols())?, None),
        };
        let mut machine = Machine::new(node.settings().node_id(), timing, discovery.is_some());
        machine.discovered(Duration::ZERO, named);
        let (stop, status) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Status::default())));
        let (ended, done) = sync_channel(1);
        let mut worker = Worker {
            node: node.clone(),
            machine,
            http,
            discovery,
            timing,
            stop: stop.clone(),
            status: status.clone(),
            start: Instant::now(),
            trouble: None,
            announced: false,
        };
        let work = move || {
            worker.run();
            drop(worker);
            let _ = ended.send(());
        };
        std::thread::Builder::new().name("nmos-register".into()).spawn(work).map_err(|error| {
            Error::new("no thread for the registration", "raise the limit of processes (ulimit -u)").because(error)
        })?;
        Ok(Registration { stop, node, status, done: Some(done) })
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        lock(&self.status).clone()
    }

    /// Unregisters the node, receivers first, and waits for that for at most `within`. Says whether it was done in that
    /// time; where it was not, the registry forgets the node by itself.
    pub fn stop(mut self, within: Duration) -> bool {
        self.end(within)
    }

    fn end(&mut self, within: Duration) -> bool {
        let Some(done) = self.done.take() else { return true };
        self.stop.store(true, Ordering::Release);
        self.node.notify();
        !matches!(done.recv_timeout(within), Err(RecvTimeoutError::Timeout))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.end(Duration::from_secs(2));
    }
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration").field("status", &self.status()).finish_non_exhaustive()
    }
}

fn named(urls: &[String], protocols: &[&str]) -> Result<Vec<Registry>, Error> {
    if urls.is_empty() {
        return Err(Error::new("no registry is named", "give the URL of one, or let it be found"));
    }
    let one = |(at, url): (usize, &String)| {
        let url = select::named(url, protocols).map_err(|what| Error::new(what, "give the URL of a registry"))?;
        Ok(Registry { url, priority: u32::try_from(at).unwrap_or(u32::MAX), tie: 0 })
    };
    urls.iter().enumerate().map(one).collect()
}

struct Worker {
    node: Node,
    machine: Machine,
    http: Box<dyn Http>,
    discovery: Option<Box<dyn Discovery>>,
    timing: Timing,
    stop: Arc<AtomicBool>,
    status: Arc<Mutex<Status>>,
    start: Instant,
    trouble: Option<String>,
    announced: bool,
}

/// How soon an advert is seen while no registry is in use.
const LOOK: Duration = Duration::from_millis(250);
/// The longest wait, after which everything is looked at again whether it has changed or not.
const LONGEST: Duration = Duration::from_secs(5);
/// For each of the last requests, so that a program ends soon though its registry does not answer.
const FAREWELL: Duration = Duration::from_secs(1);

impl Worker {
    fn run(&mut self) {
        loop {
            let seen = self.node.changes();
            let stopping = self.stop.load(Ordering::Acquire);
            if stopping {
                self.machine.stop();
            }
            self.discover();
            let mut resources = self.node.resources();
            let own = resources.first().map(|node| node.version).unwrap_or_default();
            if self.machine.refused_for_long(self.start.elapsed(), own) {
                self.node.touch();
                resources = self.node.resources();
            }
            let items: Vec<Item> = resources.iter().map(item).collect();
            let next = self.machine.poll(self.start.elapsed(), &items);
            self.report(&items, &next);
            match next {
                Next::Done => return,
                Next::Wait(until) => {
                    let left = until.map_or(LONGEST, |until| until.saturating_sub(self.start.elapsed()));
                    let looking = self.discovery.is_some() && self.machine.registry().is_none();
                    self.node.wait(seen, left.min(if looking { LOOK } else { LONGEST }));
                }
                Next::Ask(ask) => {
                    let timeout = if stopping { FAREWELL } else { self.timing.heartbeat };
                    let outcome = match request(&ask, &resources, timeout) {
                        Some(request) => self.http.send(&request),
                        // It has gone since; the next look sees that.
                        None => Outcome::Failed("the resource is gone".into()),
                    };
                    self.note(&ask, &outcome);
                    self.machine.answer(self.start.elapsed(), &outcome);
                }
            }
        }
    }

    fn discover(&mut self) {
        let Some(discovery) = &mut self.discovery else { return };
        let settings = self.node.settings();
        let wanted = Wanted {
            protocols: self.http.protocols(),
            authorization: self.http.authorization(),
            development: discovery.development(),
            node: settings.node_id(),
        };
        let now = self.start.elapsed();
        self.machine.discovered(now, wanted.among(&discovery.registries()));
        let advert = announcement(&self.node).filter(|_| self.machine.peer_to_peer(now));
        match &advert {
            Some(advert) => discovery.announce(advert),
            None => discovery.withdraw(),
        }
        self.announced = advert.is_some();
    }

    fn report(&mut self, items: &[Item], next: &Next) {
        let registered = self.machine.registered(items);
        if registered && matches!(next, Next::Wait(_)) {
            self.trouble = None;
        }
        let new = Status {
            registry: self.machine.registry().map(str::to_owned),
            registered,
            peer_to_peer: self.announced,
            trouble: self.trouble.clone(),
        };
        let mut status = lock(&self.status);
        if new.registered && !status.registered {
            tracing::info!("registered with {}", new.registry.as_deref().unwrap_or_default());
        }
        if new.peer_to_peer && !status.peer_to_peer {
            tracing::info!("no registry is announced; the node announces itself");
        }
        *status = new;
    }

    fn note(&mut self, ask: &Ask, outcome: &Outcome) {
        let what = match &ask.what {
            What::Post(item) => format!("POST of the {} {}", item.kind.singular(), item.id),
            What::Delete { kind, id, .. } => format!("DELETE of the {} {id}", kind.singular()),
            What::Heartbeat(_) => "heartbeat".to_owned(),
        };
        let why = match (outcome, &ask.what) {
            (Outcome::Failed(why), _) => why.clone(),
            // It does not have it: that is what was wanted.
            (Outcome::Status(404, _), What::Delete { .. }) | (Outcome::Status(..400, _), _) => return,
            (Outcome::Status(code, _), _) => format!("status {code}"),
        };
        let text = format!("{}: {what}: {why}", ask.url);
        // Once for each kind of failure: a registry that is down for a night is one line.
        if self.trouble.as_ref() != Some(&text) {
            tracing::warn!("registration: {text}");
        }
        self.trouble = Some(text);
    }
}

fn item(resource: &Resource) -> Item {
    Item { kind: resource.kind, id: resource.id, version: resource.version }
}

/// `None` where the resource that is to be sent is no more.
fn request(ask: &Ask, resources: &[Resource], timeout: Duration) -> Option<HttpRequest> {
    let base = |version: &str| format!("{}/x-nmos/registration/{version}", ask.url);
    let (method, url, body) = match &ask.what {
        What::Post(item) => {
            let resource = resources.iter().find(|resource| resource.id == item.id)?;
            let body = json!({ "type": item.kind.singular(), "data": resource.body });
            ("POST", format!("{}/resource", base(NODE_VERSION)), Some(body.to_string().into_bytes()))
        }
        What::Delete { kind, id, version } => {
            let version = version.as_deref().unwrap_or(NODE_VERSION);
            ("DELETE", format!("{}/resource/{}/{id}", base(version), kind.plural()), None)
        }
        What::Heartbeat(id) => ("POST", format!("{}/health/nodes/{id}", base(NODE_VERSION)), None),
    };
    Some(HttpRequest { method, url, body, timeout })
}

/// As IS-04 wants it ("Discovery: Peer-to-Peer Operation"): one port, and the addresses that are listened at there. None where
/// these are not known.
fn announcement(node: &Node) -> Option<NodeAdvert> {
    let (settings, counters) = (node.settings(), node.counters());
    let endpoint = settings.endpoints.first()?;
    let named = settings.endpoints.iter().filter(|e| e.port == endpoint.port).filter_map(|e| e.host.parse().ok());
    let mut addresses: Vec<IpAddr> = named.collect();
    if addresses.is_empty() {
        // Names are not looked up: what they stand for elsewhere is not for this network.
        let there = settings.listening.iter().filter(|address| address.port() == endpoint.port);
        addresses = there.map(SocketAddr::ip).filter(|ip| !ip.is_unspecified()).collect();
    }
    if addresses.is_empty() {
        return None;
    }
    let texts = [
        ("api_proto", endpoint.protocol().to_owned()),
        ("api_ver", NODE_VERSION.to_owned()),
        ("api_auth", endpoint.authorization.to_string()),
        ("ver_slf", counters.node.to_string()),
        ("ver_src", "0".to_owned()),
        ("ver_flw", "0".to_owned()),
        ("ver_dvc", counters.devices.to_string()),
        ("ver_snd", "0".to_owned()),
        ("ver_rcv", counters.receivers.to_string()),
    ];
    Some(NodeAdvert {
        name: format!("gdmedia-{}", settings.node_id()),
        addresses,
        port: endpoint.port,
        txt: texts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<BTreeMap<_, _>>(),
    })
}
