//! The node: its settings, its receivers, and its documents with their versions.

mod patching;

use crate::connection::{Connection, Side};
use crate::error::Error;
use crate::patch::When;
use crate::receivers::{Format, Receiver, Receivers, Saved};
use crate::resources::{self, Kind};
use crate::settings::Settings;
use crate::time::{Clock, Tai};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;
use uuid::Uuid;

/// An NMOS node with one device and the receivers of a program. Clones are the same node.
///
/// [`crate::http::router`] serves it, [`crate::registration::Registration`] registers it.
#[derive(Clone)]
pub struct Node(Arc<Inner>);

struct Inner {
    receivers: Arc<dyn Receivers>,
    clock: Clock,
    state: Mutex<State>,
    changes: Mutex<u64>,
    changed: Condvar,
}

/// Lock order: the state, then one entry.
struct State {
    settings: Settings,
    node: Document,
    device: Document,
    entries: Vec<Arc<Entry>>,
    last: Tai,
    counters: Counters,
}

/// A document of IS-04 and since when it is so.
#[derive(Clone)]
struct Document {
    version: Tai,
    body: Value,
}

struct Entry {
    id: Uuid,
    name: String,
    /// Who has it may change the connection: PATCHes come one after another, also while they wait for the receiver.
    turn: tokio::sync::Mutex<()>,
    /// How many have or want it.
    queue: AtomicUsize,
    /// Taken for moments only, so what reads never waits for an activation.
    held: Mutex<Held>,
    gone: AtomicBool,
}

struct Held {
    receiver: Receiver,
    connection: Connection,
    document: Document,
    caps: Map<String, Value>,
    caps_version: Tai,
    timer: Option<AbortHandle>,
    /// Times that somebody else than a controller has changed the connection.
    told: u64,
}

/// A resource as a registry gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// What it is.
    pub kind: Kind,
    /// Its id.
    pub id: Uuid,
    /// Since when it is so.
    pub version: Tai,
    /// The document.
    pub body: Value,
}

/// How often the resources have changed, for `ver_*` of mDNS (IS-04, "Discovery: Peer-to-Peer Operation").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// `/self`.
    pub node: u8,
    /// `/devices`.
    pub devices: u8,
    /// `/receivers`.
    pub receivers: u8,
}

impl Node {
    /// A node as it starts: nothing is active. [`Node::resume`] brings back what was.
    ///
    /// # Errors
    /// Settings that no controller could use, receivers of the same name, or legs on interfaces that are not listed.
    pub fn new(settings: Settings, receivers: Arc<dyn Receivers>, clock: Clock) -> Result<Node, Error> {
        settings.check()?;
        let nothing = Document { version: Tai(0), body: Value::Null };
        let state = State {
            settings,
            node: nothing.clone(),
            device: nothing,
            entries: vec![],
            last: Tai(0),
            counters: Counters::default(),
        };
        let (changes, changed) = (Mutex::new(0), Condvar::new());
        let node = Node(Arc::new(Inner { receivers, clock, state: Mutex::new(state), changes, changed }));
        node.refresh()?;
        lock(&node.0.state).counters = Counters::default();
        Ok(node)
    }

    /// Asks the program for its receivers again: some may have come, gone or changed. Those that stay keep their
    /// connections, unless the number of their legs is another: such a one is new, and off.
    ///
    /// # Errors
    /// As [`Node::new`]; nothing has changed then.
    pub fn refresh(&self) -> Result<(), Error> {
        let list = self.0.receivers.list();
        let mut state = lock(&self.0.state);
        check(&list, &state.settings)?;
        self.rebuild(&mut state, Some(list));
        drop(state);
        self.notify();
        Ok(())
    }

    /// Changes what the node says of itself, such as its clocks or its label. The seed stays. `change` is called while
    /// the node is locked, so it must not ask the node anything.
    ///
    /// # Errors
    /// As [`Node::new`]; nothing has changed then.
    pub fn update(&self, change: impl FnOnce(&mut Settings)) -> Result<(), Error> {
        let mut state = lock(&self.0.state);
        let mut settings = state.settings.clone();
        change(&mut settings);
        settings.seed.clone_from(&state.settings.seed);
        settings.check()?;
        let list: Vec<Receiver> = state.entries.iter().map(|entry| lock(&entry.held).receiver.clone()).collect();
        check(&list, &settings)?;
        state.settings = settings;
        self.rebuild(&mut state, None);
        drop(state);
        self.notify();
        Ok(())
    }

    /// Stages and activates what the receivers did at the last run, by their names. Waits until that is done. Returns the
    /// receivers that refused, with their reasons; these stay off, with their parameters staged.
    pub fn resume(&self, saved: &BTreeMap<String, Saved>) -> Vec<(String, String)> {
        let entries = lock(&self.0.state).entries.clone();
        let mut failed = vec![];
        for entry in entries {
            let Some(saved) = saved.get(&entry.name) else { continue };
            let activation = {
                let mut held = lock(&entry.held);
                if !held.connection.restore(saved) {
                    failed.push((entry.name.clone(), "it had another number of legs".to_owned()));
                    continue;
                }
                held.connection.resolve(held.connection.staged())
            };
            // What was off is off already.
            let done = activation.and_then(|activation| {
                if activation.master_enable {
                    self.0.receivers.activate(&entry.name, &activation)?;
                }
                Ok(activation)
            });
            match done {
                Ok(activation) => {
                    lock(&entry.held).connection.activated(activation, Some(When::Immediate), (self.0.clock)());
                    self.publish(&entry, true);
                }
                Err(why) => failed.push((entry.name.clone(), why)),
            }
        }
        failed
    }

    /// Receiver `name` does this since now, and no controller asked for it: it was set another way, or cannot go on
    /// (IS-05, "Behaviour", "Connection Status"). A mere loss of packets is no reason for this. What is staged or scheduled is
    /// given up where the connection is another; on or off alone is none.
    ///
    /// # Errors
    /// There is no such receiver, it has another number of legs, or a leg that receives has no address.
    pub fn configured(&self, name: &str, saved: &Saved) -> Result<(), String> {
        let entry = lock(&self.0.state).entries.iter().find(|entry| entry.name == name).cloned();
        let entry = entry.ok_or_else(|| format!("there is no receiver {name}"))?;
        {
            let mut held = lock(&entry.held);
            let mut connection = held.connection.clone();
            connection.configured(saved, (self.0.clock)())?;
            if connection == held.connection {
                return Ok(());
            }
            held.connection = connection;
            held.told += 1;
        }
        self.publish(&entry, true);
        Ok(())
    }

    /// What the node says of itself.
    pub fn settings(&self) -> Settings {
        lock(&self.0.state).settings.clone()
    }
    /// The node, its device, its receivers, in the order in which they are registered.
    pub fn resources(&self) -> Vec<Resource> {
        let state = lock(&self.0.state);
        let settings = &state.settings;
        let first = resource(Kind::Node, settings.node_id(), &state.node);
        let second = resource(Kind::Device, settings.device_id(), &state.device);
        let rest = state.entries.iter().map(|entry| resource(Kind::Receiver, entry.id, &lock(&entry.held).document));
        [first, second].into_iter().chain(rest).collect()
    }
    /// How often they have changed.
    pub fn counters(&self) -> Counters {
        lock(&self.0.state).counters
    }
    /// Goes up with every change, for [`Node::wait`].
    pub fn changes(&self) -> u64 {
        *lock(&self.0.changes)
    }
    /// Waits until [`Node::changes`] is no longer `seen`, or for `timeout`; says how it is then.
    pub fn wait(&self, seen: u64, timeout: Duration) -> u64 {
        let changes = lock(&self.0.changes);
        let waited = self.0.changed.wait_timeout_while(changes, timeout, |changes| *changes == seen);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
    /// Wakes whoever is in [`Node::wait`].
    pub(crate) fn notify(&self) {
        let mut changes = lock(&self.0.changes);
        *changes = changes.wrapping_add(1);
        self.0.changed.notify_all();
    }

    /// A new version of the node's own document, which stays the same.
    pub(crate) fn touch(&self) {
        let mut state = lock(&self.0.state);
        state.node.version = state.next((self.0.clock)());
        state.counters.node = state.counters.node.wrapping_add(1);
    }

    /// The ids of the receivers, in their order.
    pub(crate) fn receiver_ids(&self) -> Vec<Uuid> {
        lock(&self.0.state).entries.iter().map(|entry| entry.id).collect()
    }
    /// Looks at a receiver's connection.
    pub(crate) fn connection<T>(&self, id: Uuid, look: impl FnOnce(&Connection) -> T) -> Option<T> {
        let entry = self.entry(id)?;
        let held = lock(&entry.held);
        Some(look(&held.connection))
    }

    fn entry(&self, id: Uuid) -> Option<Arc<Entry>> {
        lock(&self.0.state).entries.iter().find(|entry| entry.id == id).cloned()
    }

    /// The receiver's document anew; its version goes up where it has changed, or by `force`.
    fn publish(&self, entry: &Entry, force: bool) {
        let mut state = lock(&self.0.state);
        let version = state.next((self.0.clock)());
        if document(&state.settings, &mut lock(&entry.held), version, force) {
            state.counters.receivers = state.counters.receivers.wrapping_add(1);
        }
        drop(state);
        self.notify();
    }

    /// All documents anew, with the receivers of `list`, or those that are there.
    fn rebuild(&self, state: &mut State, list: Option<Vec<Receiver>>) {
        let version = state.next((self.0.clock)());
        let mut counters = state.counters;
        let mut changed = false;
        if let Some(list) = list {
            let mut old: HashMap<String, Arc<Entry>> =
                state.entries.drain(..).map(|entry| (entry.name.clone(), entry)).collect();
            state.entries = list
                .into_iter()
                .map(|receiver| {
                    let kept = old.remove(&receiver.name).filter(|entry| {
                        let same = lock(&entry.held).receiver.legs.len() == receiver.legs.len();
                        entry.gone.store(!same, Ordering::Release);
                        same
                    });
                    match kept {
                        Some(entry) => {
                            lock(&entry.held).receiver = receiver;
                            entry
                        }
                        None => Arc::new(Entry::new(&state.settings, receiver)),
                    }
                })
                .collect();
            for entry in old.into_values() {
                entry.gone.store(true, Ordering::Release);
                changed = true;
            }
        }
        for entry in &state.entries {
            let mut held = lock(&entry.held);
            let side = side(&state.settings, &held.receiver);
            held.connection.set_side(side);
            changed |= document(&state.settings, &mut held, version, false);
        }
        let ids: Vec<Uuid> = state.entries.iter().map(|entry| entry.id).collect();
        counters.receivers = counters.receivers.wrapping_add(changed.into());
        counters.devices =
            counters.devices.wrapping_add(state.device.put(resources::device(&state.settings, &ids), version).into());
        counters.node = counters.node.wrapping_add(state.node.put(resources::node(&state.settings), version).into());
        state.counters = counters;
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("settings", &self.settings()).finish_non_exhaustive()
    }
}

impl State {
    /// A version later than every other, whatever the clock does.
    fn next(&mut self, now: Tai) -> Tai {
        self.last = now.max(Tai(self.last.0.saturating_add(1)));
        self.last
    }
}

impl Document {
    /// Says whether it is another one.
    fn put(&mut self, body: Value, version: Tai) -> bool {
        let other = self.body != body;
        if other {
            *self = Document { version, body };
        }
        other
    }
}

impl Entry {
    fn new(settings: &Settings, receiver: Receiver) -> Entry {
        let held = Held {
            connection: Connection::new(side(settings, &receiver)),
            document: Document { version: Tai(0), body: Value::Null },
            caps: Map::new(),
            caps_version: Tai(0),
            timer: None,
            told: 0,
            receiver,
        };
        let (id, name) = (settings.receiver_id(&held.receiver.name), held.receiver.name.clone());
        let (turn, queue, gone) = (tokio::sync::Mutex::new(()), AtomicUsize::new(0), AtomicBool::new(false));
        Entry { id, name, turn, queue, held: Mutex::new(held), gone }
    }
}

/// Puts the document of a receiver in its place; says whether it is another one.
fn document(settings: &Settings, held: &mut Held, version: Tai, force: bool) -> bool {
    let caps = held.receiver.caps.json();
    if held.caps != caps || held.caps_version == Tai(0) {
        held.caps_version = version;
        held.caps = caps;
    }
    let mut body = resources::receiver(settings, &held.receiver, &held.connection);
    if held.caps.contains_key("constraint_sets")
        && let Some(caps) = body.get_mut("caps").and_then(Value::as_object_mut)
    {
        caps.insert("version".into(), held.caps_version.to_string().into());
    }
    let other = held.document.put(body, version);
    if force {
        held.document.version = version;
    }
    other || force
}

fn resource(kind: Kind, id: Uuid, document: &Document) -> Resource {
    let mut body = document.body.clone();
    if let Some(map) = body.as_object_mut() {
        map.insert("version".into(), document.version.to_string().into());
    }
    Resource { kind, id, version: document.version, body }
}

fn side(settings: &Settings, receiver: &Receiver) -> Side {
    let addresses = |name: &String| {
        let interface = settings.interfaces.iter().find(|interface| interface.name == *name);
        interface.map(|interface| interface.addresses.clone()).unwrap_or_default()
    };
    Side {
        format: receiver.format,
        media_types: receiver.caps.media_types.clone(),
        addresses: receiver.legs.iter().map(addresses).collect(),
    }
}

fn check(list: &[Receiver], settings: &Settings) -> Result<(), Error> {
    let (mut names, mut groups) = (HashSet::new(), HashSet::new());
    for receiver in list {
        let name = &receiver.name;
        if !names.insert(name) {
            return Err(Error::new(format!("two receivers are called {name}"), "give each a name of its own"));
        }
        if let Some(group) = &receiver.group
            && !groups.insert(group)
        {
            let what = format!("two receivers are the {} of group {}", group.1, group.0);
            return Err(Error::new(what, "give each a role of its own in the group (BCP-002-01)"));
        }
        if !(1..=2).contains(&receiver.legs.len()) {
            let what = format!("receiver {name} has {} legs", receiver.legs.len());
            return Err(Error::new(what, "give it one leg, or two for ST 2022-7"));
        }
        for kind in &receiver.caps.media_types {
            let format = match receiver.format {
                Format::Video => "video/",
                Format::Audio => "audio/",
                Format::Data | Format::Mux => "",
            };
            let slashes = kind.bytes().filter(|b| *b == b'/').count();
            if !kind.starts_with(format) || slashes != 1 || kind.contains(char::is_whitespace) {
                let what = format!("receiver {name} of {} cannot take `{kind}`", receiver.format.word());
                return Err(Error::new(what, "list media types such as video/raw, audio/L24, video/smpte291"));
            }
        }
        for leg in &receiver.legs {
            if !settings.interfaces.iter().any(|interface| interface.name == *leg) {
                let what = format!("receiver {name} is bound to {leg}, and the node lists no such interface");
                return Err(Error::new(what, "list the interface, or bind the receiver to another"));
            }
        }
    }
    Ok(())
}

/// What a thread that panicked has left is whole: every change is made in one step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
