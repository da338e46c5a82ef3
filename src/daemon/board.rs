//! What is known of all receivers, for everybody who asks; and what happened.

use super::{Event, EventKind, Overview, Receiver};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::sync::broadcast;

/// Events that are kept.
const KEPT: usize = 1000;
/// Events that a reader may be behind.
const BEHIND: usize = 256;

/// Hears of every event, in order.
pub type Say = Box<dyn Fn(&Event) + Send + Sync>;

/// Where receivers write what they are, and others read it. Whoever reads holds no lock while he does something with it.
pub struct Board {
    started: SystemTime,
    inner: Mutex<Inner>,
    ready: AtomicBool,
    alive: AtomicBool,
    events: broadcast::Sender<Arc<Event>>,
    say: Option<Say>,
}

#[derive(Debug, Default)]
struct Inner {
    receivers: BTreeMap<String, Arc<Receiver>>,
    /// Which thread speaks for a receiver; others with its id are given up.
    speakers: BTreeMap<String, u64>,
    threads: u64,
    history: VecDeque<Arc<Event>>,
    events: u64,
    generation: u64,
    refused: Option<String>,
}

impl Board {
    /// An empty one. `say` is called with every event, in order.
    pub fn new(say: Option<Say>) -> Self {
        Board {
            started: SystemTime::now(),
            inner: Mutex::default(),
            ready: AtomicBool::new(false),
            alive: AtomicBool::new(true),
            events: broadcast::Sender::new(BEHIND),
            say,
        }
    }

    /// Something happened.
    pub fn tell(&self, receiver: Option<&str>, kind: EventKind, message: impl Into<String>) {
        let mut inner = self.lock();
        inner.events += 1;
        let event = Arc::new(Event {
            number: inner.events,
            at: SystemTime::now(),
            receiver: receiver.map(str::to_owned),
            kind,
            message: message.into(),
        });
        if inner.history.len() >= KEPT {
            inner.history.pop_front();
        }
        inner.history.push_back(event.clone());
        if let Some(say) = &self.say {
            say(&event);
        }
        // Nobody may listen.
        let _ = self.events.send(event);
    }
    /// A thread begins that speaks for a receiver; its number.
    pub fn begin(&self, id: &str) -> u64 {
        let mut inner = self.lock();
        inner.threads += 1;
        let number = inner.threads;
        inner.speakers.insert(id.to_owned(), number);
        number
    }
    /// Does the thread of this number speak for the receiver?
    pub fn is_speaker(&self, thread: u64, id: &str) -> bool {
        self.lock().speakers.get(id) == Some(&thread)
    }
    /// A receiver is like this now, says the thread of this number.
    pub fn show(&self, thread: u64, receiver: Receiver) {
        let mut inner = self.lock();
        // One that does not end in time may still have something to say when nobody asks any more.
        if inner.speakers.get(&receiver.id) == Some(&thread) {
            inner.receivers.insert(receiver.id.clone(), Arc::new(receiver));
        }
    }
    /// A receiver is there no more.
    pub fn remove(&self, id: &str) {
        let mut inner = self.lock();
        inner.speakers.remove(id);
        inner.receivers.remove(id);
    }
    /// A configuration was taken.
    pub fn taken(&self) {
        let mut inner = self.lock();
        inner.generation += 1;
        inner.refused = None;
    }
    /// A configuration was not taken.
    pub fn refused(&self, why: &str) {
        self.lock().refused = Some(why.to_owned());
    }
    /// Each receiver has been begun once.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
    /// The same from now on; true when it is news.
    pub fn set_ready(&self) -> bool {
        !self.ready.swap(true, Ordering::Relaxed)
    }
    /// The receive loops move, or one does not.
    pub fn set_alive(&self, alive: bool) -> bool {
        self.alive.swap(alive, Ordering::Relaxed)
    }

    /// See [`super::Control::overview`].
    pub fn overview(&self) -> Overview {
        let inner = self.lock();
        Overview {
            version: env!("CARGO_PKG_VERSION"),
            started: self.started,
            ready: self.ready.load(Ordering::Relaxed),
            alive: self.alive.load(Ordering::Relaxed),
            generation: inner.generation,
            refused: inner.refused.clone(),
        }
    }
    /// See [`super::Control::receivers`].
    pub fn receivers(&self) -> Vec<Arc<Receiver>> {
        self.lock().receivers.values().cloned().collect()
    }
    /// See [`super::Control::receiver`].
    pub fn receiver(&self, id: &str) -> Option<Arc<Receiver>> {
        self.lock().receivers.get(id).cloned()
    }
    /// See [`super::Control::events`].
    pub fn events(&self) -> broadcast::Receiver<Arc<Event>> {
        self.events.subscribe()
    }
    /// See [`super::Control::history`].
    pub fn history(&self) -> Vec<Arc<Event>> {
        self.lock().history.iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // It is whole at every instant.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_numbered_kept_and_heard() {
        let board = Board::new(None);
        let mut heard = board.events();
        for n in 0..KEPT + 5 {
            board.tell(Some("cam1"), EventKind::State, n.to_string());
        }
        let history = board.history();
        assert_eq!((history.len(), history[0].number, history[0].message.as_str()), (KEPT, 6, "5"));
        assert!(matches!(heard.try_recv(), Err(broadcast::error::TryRecvError::Lagged(_))));
        assert!(heard.try_recv().is_ok_and(|event| event.number > 6), "the newest are still there");
    }

    #[test]
    fn configurations_are_counted() {
        let board = Board::new(None);
        board.refused("line 3");
        assert_eq!((board.overview().generation, board.overview().refused.as_deref()), (0, Some("line 3")));
        board.taken();
        assert_eq!((board.overview().generation, board.overview().refused), (1, None));
        assert!(board.set_ready() && !board.set_ready() && board.overview().ready);
    }
}
