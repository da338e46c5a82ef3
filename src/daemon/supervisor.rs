//! The thread that has the receivers: begins and ends them, hands on what they are told, reads the configuration again, and
//! says that all is well.

use super::board::{Board, Say};
use super::config::{self, Loaded};
use super::notify::Notifier;
use super::resume::Folder;
use super::unit::{self, Changed, Order, Settings, Shared};
use super::{Action, Control, Event, EventKind, Opener, Overview, Receiver, Refusal, Reloaded, Reply, State, reply};
use crate::error::{Error, Kind, Result};
use crate::worker::Beats;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{broadcast, oneshot};

/// Between two looks at the receive loops, at most.
const TICK: Duration = Duration::from_millis(250);
/// A receive loop that stands still for so long is stuck: it sleeps for milliseconds.
const STUCK: Duration = Duration::from_secs(5);
/// A receiver has so long to take a new configuration.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a daemon runs with.
pub struct Options {
    /// Opens receivers.
    pub opener: Arc<dyn Opener>,
    /// Reads the configuration.
    pub load: Box<dyn FnMut() -> Result<Loaded> + Send>,
    /// Hears of every event.
    pub say: Option<Say>,
    /// The last switches are received again.
    pub resume: bool,
    /// Where the state is kept, when the configuration does not say.
    pub state: Option<PathBuf>,
    /// The service manager.
    pub notifier: Notifier,
}

/// A daemon that runs. It ends with [`Daemon::stop`].
pub struct Daemon {
    board: Arc<Board>,
    wishes: mpsc::Sender<Wish>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the supervisor is told.
enum Wish {
    Act(String, Action, oneshot::Sender<std::result::Result<(), Refusal>>),
    Reload(oneshot::Sender<std::result::Result<Reloaded, Refusal>>),
    /// To end; answers with the receivers that did not end in time.
    Stop(mpsc::Sender<Vec<String>>),
}

impl Daemon {
    /// Reads the configuration, and begins its receivers.
    ///
    /// # Errors
    /// The configuration is wrong, or its state cannot be kept.
    pub fn start(mut options: Options) -> Result<Daemon> {
        let loaded = (options.load)()?;
        let folder = loaded.config.state.folder.clone().or_else(|| options.state.clone());
        let state = folder.filter(|_| options.resume).map(|folder| Folder::open(&folder)).transpose()?;
        let board = Arc::new(Board::new(options.say.take()));
        let shared = Arc::new(Shared {
            opener: options.opener.clone(),
            board: board.clone(),
            begun: Instant::now(),
            state,
            beats: Mutex::default(),
            pending: AtomicUsize::new(0),
        });
        let (wishes, heard) = mpsc::channel();
        let supervisor = Supervisor {
            options,
            shared,
            units: BTreeMap::new(),
            stop_timeout: loaded.config.daemon.stop_timeout.0,
            beats: Watchdog::default(),
            pinged: Instant::now(),
            status: String::new(),
        };
        let thread = std::thread::Builder::new()
            .name("supervisor".into())
            .spawn(move || supervisor.run(loaded, &heard))
            .map_err(|e| Error::new(Kind::Unavailable, "no thread for the supervisor").because(e))?;
        Ok(Daemon { board, wishes, thread: Mutex::new(Some(thread)) })
    }

    /// Ends all receivers: they leave their groups and close their files. Those that did not within the time that the
    /// configuration allows.
    pub fn stop(&self) -> Vec<String> {
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Vec::new();
        };
        let (to, from) = mpsc::channel();
        let late = match self.wishes.send(Wish::Stop(to)) {
            Ok(()) => from.recv().unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        // It has nothing left to do.
        let _ = thread.join();
        late
    }
    /// Its supervisor has died, which is a fault of this program.
    pub fn has_died(&self) -> bool {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(JoinHandle::is_finished)
    }
    /// Something happened outside of the receivers, such as to the API.
    pub fn tell(&self, message: impl Into<String>) {
        self.board.tell(None, EventKind::Daemon, message);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
    }
}

fn ended() -> Refusal {
    Refusal::Unavailable("the daemon ends".into())
}

impl Control for Daemon {
    fn overview(&self) -> Overview {
        self.board.overview()
    }
    fn receivers(&self) -> Vec<Arc<Receiver>> {
        self.board.receivers()
    }
    fn receiver(&self, id: &str) -> Option<Arc<Receiver>> {
        self.board.receiver(id)
    }
    fn act(&self, id: &str, action: Action) -> Reply<()> {
        let (to, from) = oneshot::channel();
        match self.wishes.send(Wish::Act(id.to_owned(), action, to)) {
            Ok(()) => from,
            Err(_) => reply(Err(ended())),
        }
    }
    fn reload(&self) -> Reply<Reloaded> {
        let (to, from) = oneshot::channel();
        match self.wishes.send(Wish::Reload(to)) {
            Ok(()) => from,
            Err(_) => reply(Err(ended())),
        }
    }
    fn note(&self, message: String) {
        self.tell(message);
    }
    fn events(&self) -> broadcast::Receiver<Arc<Event>> {
        self.board.events()
    }
    fn history(&self) -> Vec<Arc<Event>> {
        self.board.history()
    }
}

/// A receiver's thread.
struct Unit {
    orders: mpsc::Sender<Order>,
    ended: mpsc::Receiver<()>,
    thread: JoinHandle<()>,
}

struct Supervisor {
    options: Options,
    shared: Arc<Shared>,
    units: BTreeMap<String, Unit>,
    stop_timeout: Duration,
    beats: Watchdog,
    pinged: Instant,
    status: String,
}

impl Supervisor {
    fn run(mut self, loaded: Loaded, wishes: &mpsc::Receiver<Wish>) {
        let board = self.shared.board.clone();
        let files: Vec<String> = loaded.files.iter().map(|file| file.display().to_string()).collect();
        let count = loaded.config.receivers.len();
        board.tell(None, EventKind::Daemon, format!("started with {count} receivers of {}", files.join(", ")));
        let settings = settings(&loaded);
        for receiver in loaded.config.receivers {
            self.begin(receiver, &settings);
        }
        board.taken();
        let tick = self.options.notifier.watchdog().map_or(TICK, |every| (every / 4).min(TICK));
        loop {
            match wishes.recv_timeout(tick) {
                Ok(Wish::Act(id, action, reply)) => self.act(&id, action, reply),
                Ok(Wish::Reload(reply)) => {
                    self.options.notifier.reloading();
                    let reloaded = self.reload();
                    self.options.notifier.ready();
                    // Whoever asked may have gone.
                    let _ = reply.send(reloaded);
                }
                Ok(Wish::Stop(reply)) => {
                    self.options.notifier.stopping();
                    board.tell(None, EventKind::Daemon, "it ends");
                    let late = self.end(None, "the daemon ends");
                    let _ = reply.send(late);
                    return;
                }
                // Nobody can tell it to end any more.
                Err(RecvTimeoutError::Disconnected) => {
                    self.end(None, "the daemon ends");
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.look();
        }
    }

    fn begin(&mut self, receiver: config::Receiver, settings: &Arc<Settings>) {
        let (orders, heard) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let (id, shared, settings) = (receiver.id.clone(), self.shared.clone(), settings.clone());
        self.shared.pending.fetch_add(1, Ordering::AcqRel);
        let thread = std::thread::Builder::new().name(format!("rx-{id}")).spawn(move || {
            unit::run(receiver, settings, shared, &heard);
            let _ = end.send(());
        });
        match thread {
            Ok(thread) => {
                self.units.insert(id, Unit { orders, ended, thread });
            }
            Err(error) => {
                self.shared.pending.fetch_sub(1, Ordering::AcqRel);
                self.shared.board.tell(Some(&id), EventKind::Daemon, format!("no thread for it: {error}"));
            }
        }
    }

    fn act(&self, id: &str, action: Action, reply: oneshot::Sender<std::result::Result<(), Refusal>>) {
        let Some(unit) = self.units.get(id) else {
            let _ = reply.send(Err(Refusal::Unknown));
            return;
        };
        // Where its thread is gone the answer is that nobody answers.
        let _ = unit.orders.send(Order::Act(action, reply));
    }

    /// Ends these receivers, or all; those that do not end in time.
    fn end(&mut self, ids: Option<&[String]>, reason: &'static str) -> Vec<String> {
        let ids = ids.map_or_else(|| self.units.keys().cloned().collect(), <[String]>::to_vec);
        let units: Vec<(String, Unit)> = ids.into_iter().filter_map(|id| self.units.remove_entry(&id)).collect();
        for (_, unit) in &units {
            let _ = unit.orders.send(Order::End(reason));
        }
        let deadline = Instant::now() + self.stop_timeout;
        let mut late = Vec::new();
        for (id, unit) in units {
            // The watchdog hears of it meanwhile: files may take long.
            while unit.ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) && Instant::now() < deadline {
                self.watch();
            }
            if unit.thread.is_finished()
                || unit.ended.recv_timeout(Duration::from_millis(1)) != Err(RecvTimeoutError::Timeout)
            {
                let _ = unit.thread.join();
            } else {
                late.push(id);
            }
        }
        late
    }

    fn reload(&mut self) -> std::result::Result<Reloaded, Refusal> {
        let board = self.shared.board.clone();
        let loaded = (self.options.load)().map_err(|error| {
            let text = error.to_string().replace("\n  cure: ", " (").trim().to_owned();
            let text = if text.contains(" (") { text + ")" } else { text };
            board.refused(&text);
            board.tell(None, EventKind::Config, format!("the configuration stays as it was: {text}"));
            Refusal::Invalid(text)
        })?;
        let settings = settings(&loaded);
        self.stop_timeout = loaded.config.daemon.stop_timeout.0;
        let mut done = Reloaded::default();
        let has = |id: &String| loaded.config.receivers.iter().any(|receiver| receiver.id == *id);
        done.removed = self.units.keys().filter(|id| !has(id)).cloned().collect();
        // First, for others may be waiting for what these have.
        for id in self.end(Some(&done.removed), "it is not in the configuration any more") {
            board.tell(Some(&id), EventKind::Daemon, "it does not end");
        }
        for id in &done.removed {
            board.remove(id);
        }
        let (to, answers) = mpsc::channel();
        let mut asked = 0;
        let mut new = Vec::new();
        for receiver in loaded.config.receivers {
            match self.units.get(&receiver.id) {
                Some(unit) => {
                    let order = Order::Change(Box::new(receiver), settings.clone(), to.clone());
                    asked += usize::from(unit.orders.send(order).is_ok());
                }
                None => new.push(receiver),
            }
        }
        for receiver in new {
            done.added.push(receiver.id.clone());
            self.begin(receiver, &settings);
        }
        let deadline = Instant::now() + PATIENCE;
        while asked > 0 && Instant::now() < deadline {
            match answers.recv_timeout(TICK) {
                Ok((id, Changed::No)) => done.unchanged.push(id),
                Ok((id, Changed::Yes)) => done.changed.push(id),
                Err(_) => {
                    self.look();
                    continue;
                }
            }
            asked -= 1;
        }
        for list in [&mut done.added, &mut done.changed, &mut done.unchanged] {
            list.sort();
        }
        board.taken();
        let text = format!(
            "the configuration was read again: {} added, {} removed, {} changed, {} as they were",
            done.added.len(),
            done.removed.len(),
            done.changed.len(),
            done.unchanged.len()
        );
        board.tell(None, EventKind::Config, text);
        Ok(done)
    }

    /// Is all well? Says so.
    fn look(&mut self) {
        let board = &self.shared.board;
        if self.shared.pending.load(Ordering::Acquire) == 0 && board.set_ready() {
            board.tell(None, EventKind::Daemon, "ready");
            self.options.notifier.ready();
        }
        self.watch();
        self.tell_status();
    }

    /// Tells the watchdog, if the receive loops move.
    fn watch(&mut self) {
        let board = &self.shared.board;
        let stuck = {
            let beats = self.shared.beats.lock().unwrap_or_else(PoisonError::into_inner);
            self.beats.look(Instant::now(), &beats)
        };
        if board.set_alive(stuck.is_empty()) != stuck.is_empty() {
            let text = match stuck.is_empty() {
                true => "all receive loops move again".to_owned(),
                false => format!("receive loops stand still: {}", stuck.join(", ")),
            };
            board.tell(None, EventKind::Daemon, text);
        }
        let due = self.options.notifier.watchdog().is_some_and(|every| self.pinged.elapsed() >= every / 3);
        if due && stuck.is_empty() {
            self.pinged = Instant::now();
            self.options.notifier.alive();
        }
    }

    fn tell_status(&mut self) {
        let receivers = self.shared.board.receivers();
        let in_state = |state: State| receivers.iter().filter(|r| r.state == state).count();
        let mut text = format!("{} of {} receive", in_state(State::Receiving), receivers.len());
        for state in [State::Waiting, State::Retrying, State::Failed, State::Stopped] {
            let count = in_state(state);
            if count > 0 {
                text += &format!(", {count} {}", state.name());
            }
        }
        if text != self.status {
            self.options.notifier.status(&text);
            self.status = text;
        }
    }
}

fn settings(loaded: &Loaded) -> Arc<Settings> {
    Arc::new(Settings { daemon: loaded.config.daemon.clone(), folder: loaded.folder.clone() })
}

/// Which receive loops move.
#[derive(Debug, Default)]
struct Watchdog {
    seen: BTreeMap<String, (u64, Instant)>,
}

impl Watchdog {
    /// Those that have stood still for too long.
    fn look(&mut self, now: Instant, beats: &BTreeMap<String, Beats>) -> Vec<String> {
        self.seen.retain(|id, _| beats.contains_key(id));
        let mut stuck = Vec::new();
        for (id, beats) in beats {
            let count = beats.count();
            let (before, since) = self.seen.entry(id.clone()).or_insert((count, now));
            if *before != count {
                (*before, *since) = (count, now);
            } else if now.saturating_duration_since(*since) >= STUCK {
                stuck.push(id.clone());
            }
        }
        stuck
    }
}

#[cfg(test)]
mod tests;
