//! The thread that has the receivers: begins and ends them, hands on what they are told, reads the configuration again, and
//! says that all is well.

mod reload;
mod watchdog;

use self::reload::Reload;
use self::watchdog::Watchdog;
use super::board::{Board, Say};
use super::config::{self, Loaded};
use super::notify::Notifier;
use super::resume::Folder;
use super::unit::{self, Order, Place, Settings, Shared};
use super::{Action, Control, Event, EventKind, Opener, Overview, Receiver, Refusal, Reloaded, Reply, State, reply};
use crate::error::{Error, Kind, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{broadcast, oneshot};

/// Between two looks at the receive loops, at most.
const TICK: Duration = Duration::from_millis(250);
/// The same while a configuration is being taken.
const STEP: Duration = Duration::from_millis(10);
/// After the receivers the API and the printer end as well; the service manager is told so.
const FAREWELL: Duration = Duration::from_secs(10);

/// How long others are waited for.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// A receiver has so long to take a new configuration.
    answer: Duration,
    /// Whoever waits for the daemon to be ready does not wait longer for a receiver that is being opened.
    first: Duration,
    /// A receive loop that stands still for so long is stuck: it sleeps for milliseconds.
    stuck: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { answer: Duration::from_secs(60), first: Duration::from_secs(30), stuck: Duration::from_secs(5) }
    }
}

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
    Reload(ReloadReply),
    /// To end; answers with the receivers that did not end in time.
    Stop(mpsc::Sender<Vec<String>>),
}

type ReloadReply = oneshot::Sender<std::result::Result<Reloaded, Refusal>>;

impl Daemon {
    /// Reads the configuration, and begins its receivers.
    ///
    /// # Errors
    /// The configuration is wrong, or its state cannot be kept.
    pub fn start(options: Options) -> Result<Daemon> {
        Self::start_with(options, Patience::default())
    }

    fn start_with(mut options: Options, patience: Patience) -> Result<Daemon> {
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
        });
        let (wishes, heard) = mpsc::channel();
        let supervisor = Supervisor {
            options,
            shared,
            units: BTreeMap::new(),
            stop_timeout: loaded.config.daemon.stop_timeout.0,
            patience,
            reload: None,
            asked: Vec::new(),
            beats: Watchdog::new(patience.stuck),
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
    place: Arc<Place>,
    begun: Instant,
    /// It takes too long to open its receiver for the first time, which was told.
    slow: bool,
}

impl Unit {
    fn has_tried(&self) -> bool {
        self.place.tried.load(Ordering::Acquire)
    }
}

struct Supervisor {
    options: Options,
    shared: Arc<Shared>,
    units: BTreeMap<String, Unit>,
    stop_timeout: Duration,
    patience: Patience,
    /// A configuration that is being taken.
    reload: Option<Reload>,
    /// Who asked for one to be read since.
    asked: Vec<ReloadReply>,
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
            match wishes.recv_timeout(if self.reload.is_some() { STEP.min(tick) } else { tick }) {
                Ok(Wish::Act(id, action, reply)) => self.act(&id, action, reply),
                Ok(Wish::Reload(reply)) => self.asked.push(reply),
                Ok(Wish::Stop(reply)) => {
                    self.options.notifier.stopping();
                    board.tell(None, EventKind::Daemon, "it ends");
                    let late = self.end("the daemon ends");
                    let _ = reply.send(late);
                    return;
                }
                // Nobody can tell it to end any more.
                Err(RecvTimeoutError::Disconnected) => {
                    self.end("the daemon ends");
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.go_on();
            self.look();
        }
    }

    fn begin(&mut self, receiver: config::Receiver, settings: &Arc<Settings>) {
        let (orders, heard) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let (id, shared, settings) = (receiver.id.clone(), self.shared.clone(), settings.clone());
        let place = Arc::new(Place { number: self.shared.board.begin(&id), tried: AtomicBool::new(false) });
        let theirs = place.clone();
        let thread = std::thread::Builder::new().name(format!("rx-{id}")).spawn(move || {
            unit::run(receiver, settings, shared, theirs, &heard);
            let _ = end.send(());
        });
        match thread {
            Ok(thread) => {
                self.units.insert(id, Unit { orders, ended, thread, place, begun: Instant::now(), slow: false });
            }
            Err(error) => {
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

    /// Ends all receivers; those that do not end in time.
    fn end(&mut self, reason: &'static str) -> Vec<String> {
        let mut units = std::mem::take(&mut self.units);
        // Whoever waits for a new configuration hears that the daemon ends.
        units.extend(self.reload.take().map(Reload::leaving).unwrap_or_default());
        self.asked.clear();
        for unit in units.values() {
            let _ = unit.orders.send(Order::End(reason));
        }
        // The unit's own timeout may be shorter than what the configuration allows.
        self.options.notifier.extend(self.stop_timeout + FAREWELL);
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

    /// Is all well? Says so.
    fn look(&mut self) {
        let board = self.shared.board.clone();
        if !board.is_ready() && self.have_all_tried() && board.set_ready() {
            board.tell(None, EventKind::Daemon, "ready");
            self.options.notifier.ready();
        }
        self.watch();
        self.tell_status();
    }

    /// Each receiver has been tried once. One that takes long for that, in a driver for example, holds up no other.
    fn have_all_tried(&mut self) -> bool {
        let patience = self.patience.first;
        for (id, unit) in self.units.iter_mut().filter(|(_, unit)| !unit.slow && !unit.has_tried()) {
            if unit.begun.elapsed() >= patience {
                unit.slow = true;
                let text =
                    format!("it has not been opened within {} s; the daemon does not wait for it", patience.as_secs());
                self.shared.board.tell(Some(id), EventKind::Daemon, text);
            }
        }
        self.units.values().all(|unit| unit.slow || unit.has_tried())
    }

    /// Tells the watchdog, if the receive loops move.
    fn watch(&mut self) {
        let board = &self.shared.board;
        let stuck = self.beats.look(Instant::now(), &self.shared.beats());
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

#[cfg(test)]
mod tests;
