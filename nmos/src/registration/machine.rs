//! What a node does at which registry and when (IS-04, "Behaviour: Registration"), in the time that it is told.
//!
//! ```text
//! poll -> Ask(request) -> answer -> poll -> ... -> Wait(until) -> poll
//! ```
//!
//! One request at a time. What the registry has is held against what the node has: what differs is POSTed, what is gone
//! is DELETEd, and in between come the heartbeats.

use super::select::Registry;
use crate::resources::Kind;
use crate::time::Tai;
use std::collections::HashMap;
use std::time::Duration;
use uuid::Uuid;

/// Lengths of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From one heartbeat to the next: 5 s, unless a whole system uses another.
    pub heartbeat: Duration,
    /// How long a registry that failed is left alone first; twice as long each time.
    pub first_retry: Duration,
    /// And how long at most.
    pub last_retry: Duration,
    /// How long no registry must be found before the node announces itself.
    pub patience: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        let seconds = Duration::from_secs;
        Timing { heartbeat: seconds(5), first_retry: seconds(1), last_retry: seconds(60), patience: seconds(3) }
    }
}

/// A resource of the node, as far as it matters here. In the order of registration: node, device, receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// What it is.
    pub kind: Kind,
    /// Its id.
    pub id: Uuid,
    /// Since when it is so.
    pub version: Tai,
}

/// A request to a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The registry.
    pub url: String,
    /// What is asked.
    pub what: What,
}

/// What a registry is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// `POST /resource`.
    Post(Item),
    /// `DELETE /resource/{kind}/{id}`, of API version `version` where it is another than the node's.
    Delete {
        /// What it is.
        kind: Kind,
        /// Its id.
        id: Uuid,
        /// Such as `v1.2`.
        version: Option<String>,
    },
    /// `POST /health/nodes/{id}`.
    Heartbeat(Uuid),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An answer: its status, and the header `Location`.
    Status(u16, Option<String>),
    /// None that is one: no connection, no time left, no HTTP, a redirection.
    Failed(String),
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This; then [`Machine::answer`].
    Ask(Ask),
    /// Nothing before then, or before something changes.
    Wait(Option<Duration>),
    /// Everything is unregistered, or cannot be.
    Done,
}

/// The state.
#[derive(Clone, Debug)]
pub struct Machine {
    node: Uuid,
    timing: Timing,
    discovers: bool,
    registries: Vec<Registry>,
    troubles: HashMap<String, Trouble>,
    contact: Option<Contact>,
    /// What the registry, or another of its cluster, has of this node.
    known: Vec<Item>,
    /// What it has refused; the same is not sent again.
    refused: HashMap<Uuid, Tai>,
    /// Registries that have got the node, and whether what they have is from before everything was registered elsewhere.
    visited: HashMap<String, bool>,
    asked: Option<What>,
    stopping: bool,
    /// Since when there is neither a registry nor a contact.
    alone: Option<Duration>,
}

/// Why a registry is left alone.
#[derive(Clone, Copy, Debug, Default)]
struct Trouble {
    failures: u32,
    until: Duration,
    /// The version of the node that it refused, and when.
    refused: Option<(Tai, Duration)>,
}

#[derive(Clone, Debug)]
struct Contact {
    url: String,
    /// Of the last answer that keeps the node alive there.
    alive: Duration,
    /// Whether it must say first that it knows the node.
    verify: bool,
    clear: Clear,
    /// API versions under which the node may be registered there, to be deleted.
    evict: Vec<String>,
    evicted: bool,
}

/// No facility has as many registries.
const MOST_VISITED: usize = 64;

/// Whether what an earlier run of this node has left at the registry is to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clear {
    Unknown,
    Needed,
    Done,
}

impl Machine {
    /// For the node `node`; `discovers` where registries are looked for, rather than named.
    pub fn new(node: Uuid, timing: Timing, discovers: bool) -> Machine {
        // Shorter would be a flood.
        let least = Duration::from_millis(10);
        let timing = Timing {
            heartbeat: timing.heartbeat.max(least),
            first_retry: timing.first_retry.max(least),
            last_retry: timing.last_retry.max(least),
            patience: timing.patience,
        };
        Machine {
            node,
            timing,
            discovers,
            registries: vec![],
            troubles: HashMap::new(),
            contact: None,
            known: vec![],
            refused: HashMap::new(),
            visited: HashMap::new(),
            asked: None,
            stopping: false,
            alone: None,
        }
    }

    /// At `now`, these fit, the best first. The one in use stays in use while it works.
    pub fn discovered(&mut self, now: Duration, registries: Vec<Registry>) {
        let current = self.contact.as_ref().map(|contact| contact.url.clone());
        let there = |url: &String| registries.iter().any(|r| r.url == *url) || current.as_ref() == Some(url);
        self.troubles.retain(|url, _| there(url));
        self.registries = registries;
        let alone = self.registries.is_empty() && self.contact.is_none();
        self.alone = alone.then(|| self.alone.unwrap_or(now));
    }

    /// From now on everything is unregistered.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether the node is to announce itself at `now`: registries are looked for, and there has been none for a while
    /// (v1.3 wants no announcement beside one).
    pub fn peer_to_peer(&self, now: Duration) -> bool {
        let long = |since: Duration| now.saturating_sub(since) >= self.timing.patience;
        self.discovers && !self.stopping && self.contact.is_none() && self.alone.is_some_and(long)
    }

    /// The registry in use.
    pub fn registry(&self) -> Option<&str> {
        self.contact.as_ref().map(|contact| contact.url.as_str())
    }

    /// Whether the registry has all of `items`, as they are now.
    pub fn registered(&self, items: &[Item]) -> bool {
        self.contact.as_ref().is_some_and(|contact| !contact.verify) && items.iter().all(|item| self.knows(item))
    }

    /// Whether a registry has refused this version of the node long ago, and no other one takes it. A new version, though
    /// of the same node, is then worth a try: a machine that started with its clock behind was refused for being older
    /// than what its last run had left.
    pub fn refused_for_long(&self, now: Duration, node: Tai) -> bool {
        let long = |trouble: &Trouble| {
            let pause = self.timing.last_retry;
            trouble.refused.is_some_and(|(version, at)| version == node && now.saturating_sub(at) >= pause)
        };
        let there = |url: &str| self.registries.iter().any(|registry| registry.url == url);
        self.contact.is_none() && self.troubles.iter().any(|(url, trouble)| there(url) && long(trouble))
    }

    /// What to do at `now` for a node that has `items`.
    pub fn poll(&mut self, now: Duration, items: &[Item]) -> Next {
        if self.asked.is_some() {
            return Next::Wait(None);
        }
        if self.stopping {
            return self.leave();
        }
        let Some(node) = items.first().filter(|item| item.kind == Kind::Node) else { return Next::Wait(None) };
        if self.contact.is_none() {
            match self.choose(now, node.version) {
                Ok(url) => {
                    let verify = self.known.iter().any(|item| item.kind == Kind::Node);
                    let (clear, evict) = (Clear::Unknown, vec![]);
                    self.contact = Some(Contact { url, alive: now, verify, clear, evict, evicted: false });
                }
                Err(until) => return Next::Wait(until),
            }
        }
        self.refused.retain(|id, _| items.iter().any(|item| item.id == *id));
        let Some(contact) = &self.contact else { return Next::Wait(None) };
        if let Some(version) = contact.evict.first() {
            let version = Some(version.clone());
            return self.ask(What::Delete { kind: Kind::Node, id: self.node, version });
        }
        if contact.clear == Clear::Needed {
            return self.ask(What::Delete { kind: Kind::Node, id: self.node, version: None });
        }
        let due = contact.alive.saturating_add(self.timing.heartbeat);
        let registered = self.known.iter().any(|item| item.kind == Kind::Node);
        if contact.verify || (registered && now >= due) {
            return self.ask(What::Heartbeat(self.node));
        }
        let gone = self.known.iter().filter(|known| !items.iter().any(|item| item.id == known.id));
        if let Some(item) = gone.max_by_key(|item| item.kind) {
            let (kind, id) = (item.kind, item.id);
            return self.ask(What::Delete { kind, id, version: None });
        }
        let missing = items.iter().find(|item| {
            !self.knows(item) && self.refused.get(&item.id) != Some(&item.version) && self.has_parent(item, items)
        });
        if let Some(item) = missing {
            return self.ask(What::Post(*item));
        }
        // It takes and keeps everything: what went wrong before is over.
        let url = contact.url.clone();
        self.troubles.remove(&url);
        Next::Wait(Some(due))
    }

    /// What came of the last request.
    pub fn answer(&mut self, now: Duration, outcome: &Outcome) {
        let Some(what) = self.asked.take() else { return };
        match outcome {
            Outcome::Failed(_) => self.fail(now),
            // No answer of a registry, and those that say themselves that they pass.
            Outcome::Status(..200 | 300..400 | 408 | 429 | 500.., _) => self.fail(now),
            Outcome::Status(code, location) => match what {
                What::Heartbeat(_) => self.heartbeat(now, *code, location.as_deref()),
                What::Post(item) => self.posted(now, item, *code, location.as_deref()),
                What::Delete { id, version, .. } => self.deleted(id, version.is_some(), *code),
            },
        }
    }

    fn heartbeat(&mut self, now: Duration, code: u16, location: Option<&str>) {
        match code {
            200..300 => {
                if let Some(contact) = &mut self.contact {
                    contact.alive = now;
                    contact.verify = false;
                    // No other of one cluster: it has resources that may be no more.
                    if self.visited.get(&contact.url) == Some(&true) {
                        contact.clear = Clear::Needed;
                    }
                }
            }
            404 => {
                self.known.clear();
                self.refused.clear();
                self.visited.values_mut().for_each(|old| *old = true);
                if let Some(contact) = &mut self.contact {
                    contact.verify = false;
                }
            }
            409 => self.conflict(now, location),
            _ => self.fail(now),
        }
    }

    fn posted(&mut self, now: Duration, item: Item, code: u16, location: Option<&str>) {
        let fresh = item.kind == Kind::Node && !self.known.iter().any(|known| known.id == item.id);
        match code {
            200 if fresh && self.contact.as_ref().is_some_and(|c| c.clear == Clear::Unknown) => {
                // An earlier run of this node is still there, with receivers that may be no more.
                if let Some(contact) = &mut self.contact {
                    contact.clear = Clear::Needed;
                }
            }
            200..300 => {
                self.known.retain(|known| known.id != item.id);
                self.known.push(item);
                self.refused.remove(&item.id);
                if let (Some(contact), Kind::Node) = (&mut self.contact, item.kind) {
                    contact.alive = now;
                    contact.clear = Clear::Done;
                    if self.visited.len() >= MOST_VISITED {
                        self.visited.clear();
                    }
                    self.visited.insert(contact.url.clone(), false);
                }
            }
            409 => self.conflict(now, location),
            // The same request must not come again before something is corrected.
            _ if item.kind == Kind::Node => {
                if let Some(contact) = self.contact.take() {
                    self.troubles.entry(contact.url).or_default().refused = Some((item.version, now));
                }
            }
            _ => {
                self.refused.insert(item.id, item.version);
            }
        }
    }

    fn deleted(&mut self, id: Uuid, evicting: bool, code: u16) {
        if let Some(contact) = self.contact.as_mut().filter(|_| evicting) {
            // There, and now gone; else it is registered under the next one.
            if (200..300).contains(&code) {
                contact.evict.clear();
            } else if !contact.evict.is_empty() {
                contact.evict.remove(0);
            }
            return;
        }
        if id == self.node {
            self.known.clear();
            if let Some(contact) = &mut self.contact {
                contact.clear = Clear::Done;
            }
        }
        // Also where it was refused: asking again would not change it.
        self.known.retain(|item| item.id != id);
    }

    /// The registry has the node under another version of the API: it is to be removed there first.
    fn conflict(&mut self, now: Duration, location: Option<&str>) {
        let Some(contact) = self.contact.as_mut().filter(|contact| !contact.evicted) else { return self.fail(now) };
        contact.evicted = true;
        contact.verify = false;
        contact.evict = match location.and_then(version_of) {
            Some(version) => vec![version],
            None => ["v1.2", "v1.1", "v1.0"].map(String::from).to_vec(),
        };
        self.known.clear();
    }

    fn fail(&mut self, now: Duration) {
        let Some(contact) = self.contact.take() else { return };
        let trouble = self.troubles.entry(contact.url).or_default();
        trouble.failures = trouble.failures.saturating_add(1);
        let factor = 1_u32.checked_shl(trouble.failures - 1).unwrap_or(u32::MAX);
        let pause = self.timing.first_retry.saturating_mul(factor).min(self.timing.last_retry);
        trouble.until = now.saturating_add(pause);
    }

    /// The best registry that is not left alone, or when one will be.
    fn choose(&self, now: Duration, node: Tai) -> Result<String, Option<Duration>> {
        let mut soonest: Option<Duration> = None;
        for registry in &self.registries {
            let trouble = self.troubles.get(&registry.url).copied().unwrap_or_default();
            let until = match trouble.refused {
                Some((version, since)) if version == node => since.saturating_add(self.timing.last_retry),
                _ if trouble.until <= now => return Ok(registry.url.clone()),
                _ => trouble.until,
            };
            if until > now {
                soonest = Some(soonest.map_or(until, |s| s.min(until)));
            }
        }
        Err(soonest)
    }

    /// Children before their parents, the node last; a registry that fails is left at that.
    fn leave(&mut self) -> Next {
        if self.contact.is_none() {
            return Next::Done;
        }
        match self.known.iter().max_by_key(|item| item.kind).copied() {
            Some(item) => self.ask(What::Delete { kind: item.kind, id: item.id, version: None }),
            None => Next::Done,
        }
    }

    fn knows(&self, item: &Item) -> bool {
        self.known.contains(item)
    }

    /// A registry takes nothing whose parent it does not have.
    fn has_parent(&self, item: &Item, items: &[Item]) -> bool {
        let parent = match item.kind {
            Kind::Node => return true,
            Kind::Device => Kind::Node,
            Kind::Receiver => Kind::Device,
        };
        items.iter().filter(|i| i.kind == parent).all(|i| self.known.iter().any(|known| known.id == i.id))
    }

    fn ask(&mut self, what: What) -> Next {
        let Some(contact) = &self.contact else { return Next::Wait(None) };
        let url = contact.url.clone();
        self.asked = Some(what.clone());
        Next::Ask(Ask { url, what })
    }
}

/// The API version of `/x-nmos/registration/v1.2/resource/...`, where it is another than this node's. Nothing else of
/// the text is used.
fn version_of(location: &str) -> Option<String> {
    let rest = location.split_once("/x-nmos/registration/")?.1;
    let version = rest.split('/').next()?;
    let (major, minor) = version.strip_prefix('v')?.split_once('.')?;
    let number = |text: &str| (1..=3).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    let other = number(major) && number(minor) && version != crate::resources::NODE_VERSION;
    other.then(|| version.to_owned())
}
