//! Asks once a second, on a thread of its own: never the one that receives.

use super::phc::{Distance, Phc};
use super::ptp4l::{Silent, State, ask};
use crate::error::{Error, Kind, Result};
use crate::unix::ethtool;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Between two questions.
const EVERY: Duration = Duration::from_secs(1);

/// What is watched.
#[derive(Clone, Debug)]
pub struct Target {
    /// Sockets of ptp4l, the first that answers counts.
    pub sockets: Vec<PathBuf>,
    /// PTP domains, see [`super::domains`].
    pub domains: Vec<u8>,
    /// The media interface, whose card has a clock.
    pub interface: Option<String>,
}

impl Target {
    /// This machine's ptp4l, and the card of an interface.
    pub fn here(domains: Vec<u8>, interface: Option<String>) -> Self {
        let sockets = super::SOCKETS.iter().map(|s| PathBuf::from("/").join(s)).collect();
        Target { sockets, domains, interface }
    }
    /// At these sockets; none: as it is.
    pub fn at(mut self, sockets: &[PathBuf]) -> Self {
        if !sockets.is_empty() {
            self.sockets = sockets.to_vec();
        }
        self
    }
    /// Asks now.
    ///
    /// # Errors
    /// As of [`ask`].
    pub fn ask(&self) -> std::result::Result<State, Silent> {
        ask(&self.sockets, &self.domains)
    }
}

/// What was seen last, and since the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Seen {
    /// What ptp4l says.
    #[serde(serialize_with = "state")]
    pub ptp: std::result::Result<State, Silent>,
    /// Times that the grandmaster was another one than before.
    pub grandmaster_changes: u64,
    /// Times that it stopped following a master.
    pub unlocked: u64,
    /// Nanoseconds that the card's clock is ahead of the system's; none without a card's clock.
    pub card_ahead_ns: Option<i64>,
}

fn state<S: serde::Serializer>(
    state: &std::result::Result<State, Silent>,
    s: S,
) -> std::result::Result<S::Ok, S::Error> {
    use serde::Serialize;
    state.as_ref().ok().serialize(s)
}

impl Seen {
    /// The first answer.
    pub const fn first(ptp: std::result::Result<State, Silent>) -> Self {
        Seen { ptp, grandmaster_changes: 0, unlocked: 0, card_ahead_ns: None }
    }

    /// The next answer. A grandmaster that is not known for a moment and comes back is no other.
    pub fn update(
        &mut self,
        ptp: std::result::Result<State, Silent>,
        last_grandmaster: &mut Option<super::ClockIdentity>,
    ) {
        let grandmaster = |ptp: &std::result::Result<State, Silent>| ptp.as_ref().ok().and_then(|s| s.grandmaster);
        *last_grandmaster = grandmaster(&self.ptp).or(*last_grandmaster);
        if let (Some(before), Some(now)) = (*last_grandmaster, grandmaster(&ptp)) {
            self.grandmaster_changes += u64::from(before != now);
        }
        let locked = |ptp: &std::result::Result<State, Silent>| ptp.as_ref().is_ok_and(State::is_locked);
        self.unlocked += u64::from(locked(&self.ptp) && !locked(&ptp));
        self.ptp = ptp;
    }
}

/// A thread that asks; it ends with this.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    seen: Mutex<Seen>,
    stop: AtomicBool,
    wake: Condvar,
}

impl Watch {
    /// Asks a first time, and begins to ask again and again.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub fn start(target: Target) -> Result<Self> {
        let clock = target.interface.as_deref().and_then(|name| ethtool::ask(name).stamps?.clock);
        let card = clock.and_then(|number| Phc::open(number).ok());
        let first = Seen { card_ahead_ns: ahead(card.as_ref()), ..Seen::first(target.ask()) };
        let shared = Arc::new(Shared { seen: Mutex::new(first), stop: false.into(), wake: Condvar::new() });
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("ptp".into())
            .spawn(move || theirs.run(&target, card.as_ref()))
            .map_err(|e| Error::new(Kind::Unavailable, "no thread that watches PTP").because(e))?;
        Ok(Watch { shared, thread: Some(thread) })
    }

    /// What was seen last.
    pub fn seen(&self) -> Seen {
        *self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn ahead(card: Option<&Phc>) -> Option<i64> {
    card.and_then(Phc::distance).map(|Distance { ahead_ns, .. }| ahead_ns)
}

impl Shared {
    fn run(&self, target: &Target, card: Option<&Phc>) {
        let mut last_grandmaster = None;
        loop {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let seen = self.wake.wait_timeout(seen, EVERY).unwrap_or_else(PoisonError::into_inner).0;
            drop(seen);
            if self.stop.load(Relaxed) {
                return;
            }
            let (ptp, card_ahead_ns) = (target.ask(), ahead(card));
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.update(ptp, &mut last_grandmaster);
            seen.card_ahead_ns = card_ahead_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ptp4l::tests::stand_in;
    use super::super::{ClockIdentity, PortState};
    use super::*;

    #[test]
    fn changes_are_counted() {
        let of = |octet: Option<u8>| State {
            port: if octet.is_some() { PortState::Slave } else { PortState::Listening },
            grandmaster: octet.map(|o| ClockIdentity([o; 8])),
            ..State::default()
        };
        let mut seen = Seen::first(Ok(of(Some(1))));
        let mut last = None;
        for (octet, changes, unlocked) in [
            (Some(1), 0, 0),
            (None, 0, 1),
            (None, 0, 1),
            (Some(1), 0, 1),
            (Some(2), 1, 1),
            (None, 1, 2),
            (Some(3), 2, 2),
        ] {
            seen.update(Ok(of(octet)), &mut last);
            assert_eq!((seen.grandmaster_changes, seen.unlocked), (changes, unlocked), "{octet:?}");
        }
        seen.update(Err(Silent::Mute), &mut last);
        assert_eq!((seen.grandmaster_changes, seen.unlocked), (2, 3));
    }

    #[test]
    fn a_watch_sees_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ptp4l");
        stand_in(&path);
        let watch = Watch::start(Target { sockets: vec![path], domains: vec![127], interface: None }).unwrap();
        assert_eq!(watch.seen().ptp.map(|s| s.domain), Ok(127));
        let json = serde_json::to_value(watch.seen()).unwrap();
        assert_eq!(
            (&json["ptp"]["port"], &json["ptp"]["grandmaster"]),
            (&"SLAVE".into(), &"08-00-11-FF-FE-22-33-44".into())
        );
    }
}
