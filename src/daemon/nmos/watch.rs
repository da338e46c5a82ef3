//! Keeps the node as the daemon is, and says what becomes of its registration.

use super::bridge::{Bridge, Known, doing};
use super::{FAREWELL, LOOK, Place, Say, Settings, machine, register};
use crate::daemon::{Control, Receiver, Side};
use gdmedia_nmos::params::LegParams;
use gdmedia_nmos::registration::{Find, Registration, Status};
use gdmedia_nmos::{Node, Saved};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two looks at interfaces, clocks and addresses.
const MACHINE: Duration = Duration::from_secs(2);
/// Receivers that take longer to begin appear later.
const BEGINNING: Duration = Duration::from_secs(10);

/// Tells it to end.
#[derive(Debug, Default)]
pub struct Stop {
    told: Mutex<bool>,
    wake: Condvar,
}

impl Stop {
    pub fn set(&self) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_all();
    }
    /// Waits for it, but not longer.
    fn wait(&self, timeout: Duration) -> bool {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.wake.wait_timeout_while(told, timeout, |told| !*told);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

pub struct Watch {
    node: Node,
    bridge: Arc<Bridge>,
    control: Arc<dyn Control>,
    settings: Settings,
    place: Box<dyn Fn() -> Place + Send>,
    say: Say,
    state: Arc<Mutex<Status>>,
    /// What the node lists.
    listed: Option<Vec<(String, String, Side)>>,
    /// What was said last of a receiver that cannot be shown.
    troubles: BTreeMap<String, String>,
    looked: Option<Instant>,
}

impl Watch {
    pub fn new(
        node: Node,
        bridge: Arc<Bridge>,
        control: Arc<dyn Control>,
        settings: Settings,
        place: Box<dyn Fn() -> Place + Send>,
        say: Say,
        state: Arc<Mutex<Status>>,
    ) -> Self {
        let troubles = BTreeMap::new();
        Watch { node, bridge, control, settings, place, say, state, listed: None, troubles, looked: None }
    }

    /// Until it is told to end. `find`: where registries are.
    pub fn run(mut self, stop: &Stop, mut find: Option<(Node, Find)>) {
        let begun = Instant::now();
        let mut registration: Option<Registration> = None;
        let mut before = Status::default();
        loop {
            self.look();
            if (self.control.overview().ready || begun.elapsed() >= BEGINNING)
                && let Some((node, find)) = find.take()
            {
                match register(node, find, &self.settings) {
                    Ok(running) => registration = Some(running),
                    Err(error) => (self.say)(error.in_one_line()),
                }
            }
            if let Some(registration) = &registration {
                let now = registration.status();
                if let Some(text) = news(&before, &now) {
                    (self.say)(text);
                }
                before.clone_from(&now);
                *self.state.lock().unwrap_or_else(PoisonError::into_inner) = now;
            }
            if stop.wait(LOOK) {
                break;
            }
        }
        if let Some(registration) = registration {
            let known = registration.status().registry;
            if !registration.stop(FAREWELL)
                && let Some(url) = known
            {
                (self.say)(format!(
                    "NMOS: {url} did not take the node from its list in time, and will forget it by itself"
                ));
            }
        }
    }

    fn look(&mut self) {
        let receivers = self.control.receivers();
        let listed: Vec<_> =
            receivers.iter().map(|r| (r.id.clone(), r.label.clone(), Side { note: None, ..r.side.clone() })).collect();
        let other = self.listed.as_ref() != Some(&listed);
        if other || self.looked.is_none_or(|looked| looked.elapsed() >= MACHINE) {
            self.looked = Some(Instant::now());
            match self.machine(&receivers, other) {
                Ok(()) => {
                    self.listed = Some(listed);
                    self.troubles.remove("");
                }
                Err(error) => self.trouble("", error.to_string()),
            }
        }
        self.bridge.known().retain(|id, known| known.busy || receivers.iter().any(|r| r.id == *id));
        for receiver in &receivers {
            self.follow(receiver);
        }
    }

    /// What the node says of the machine, and which receivers it lists.
    fn machine(&self, receivers: &[Arc<Receiver>], other: bool) -> Result<(), gdmedia_nmos::Error> {
        let about = machine::about(&self.settings, &(self.place)(), receivers);
        if !other {
            // The interfaces are those of the receivers that are listed.
            return self.update(about);
        }
        // Those of receivers before and after, as the node wants to know every interface that one is bound to.
        let mut both = about.clone();
        for interface in self.node.settings().interfaces {
            if !both.interfaces.iter().any(|other| other.name == interface.name) {
                both.interfaces.push(interface);
            }
        }
        self.update(both)?;
        self.bridge.list_these(receivers);
        self.node.refresh()?;
        self.update(about)
    }
    fn update(&self, about: gdmedia_nmos::Settings) -> Result<(), gdmedia_nmos::Error> {
        if self.node.settings() == about {
            return Ok(());
        }
        self.node.update(|settings| *settings = about)
    }

    /// Tells the node what a receiver does where that is something else than it knows.
    fn follow(&mut self, receiver: &Receiver) {
        let id = &receiver.id;
        if receiver.side.legs == 0 {
            return;
        }
        let Known { busy, saved } = self.bridge.known().get(id).cloned().unwrap_or_default();
        let now = doing(receiver);
        if busy || saved == now {
            return;
        }
        let told = match (&now, saved) {
            (Some(now), _) => now.clone(),
            // It was told by its controller to wait, with nothing to receive.
            (None, Some(Saved { sdp: None, .. }) | None) => return,
            (None, Some(_)) => {
                let legs = vec![LegParams::default(); receiver.side.legs];
                Saved { master_enable: false, sender_id: None, sdp: None, legs }
            }
        };
        // One that begins to be told by a controller just now is told by him.
        let mut known = self.bridge.known();
        let entry = known.entry(id.clone()).or_default();
        if entry.busy {
            return;
        }
        let done = self.node.configured(id, &told);
        if done.is_ok() {
            entry.saved = now;
        }
        drop(known);
        match done {
            Ok(()) => drop(self.troubles.remove(id)),
            Err(why) => self.trouble(id, format!("receiver {id}: {why}")),
        }
    }

    /// Says it once.
    fn trouble(&mut self, of: &str, text: String) {
        if self.troubles.get(of) != Some(&text) {
            (self.say)(format!("NMOS: {text}"));
            self.troubles.insert(of.to_owned(), text);
        }
    }
}

/// What is worth saying of a registration.
fn news(before: &Status, now: &Status) -> Option<String> {
    let registry = now.registry.as_deref().unwrap_or("a registry");
    if now.registered && (!before.registered || before.registry != now.registry) {
        return Some(format!("NMOS: registered at {registry}"));
    }
    if now.peer_to_peer && !before.peer_to_peer {
        return Some("NMOS: there is no registry; the node announces itself".into());
    }
    match &now.trouble {
        Some(trouble) if before.trouble.as_ref() != Some(trouble) => Some(format!("NMOS: {trouble}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_a_registration_is_said_once() {
        let none = Status::default();
        let registered = Status { registry: Some("http://a".into()), registered: true, ..Status::default() };
        let failed =
            Status { registered: false, trouble: Some("http://a: heartbeat: timeout".into()), ..registered.clone() };
        assert_eq!(news(&none, &none), None);
        assert_eq!(news(&none, &registered).as_deref(), Some("NMOS: registered at http://a"));
        assert_eq!(news(&registered, &registered), None);
        assert_eq!(news(&registered, &failed).as_deref(), Some("NMOS: http://a: heartbeat: timeout"));
        assert_eq!(news(&failed, &failed), None);
        assert!(news(&failed, &registered).is_some());
        let alone = Status { peer_to_peer: true, ..Status::default() };
        assert!(news(&none, &alone).unwrap().contains("announces itself"));
    }
}
