//! One receiver on its thread: opened, watched, tried again, switched.

mod act;
mod change;
mod side;

use super::board::Board;
use super::life::{Change, Life};
use super::resume::{Connected, Folder, Given};
use super::{Action, EventKind, Look, Opener, Receiver, Refusal, Session, Shown, config, source};
use crate::error::{Error, Kind};
use crate::worker::Beats;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::oneshot;

/// Between two looks at a receiver that is open, and at one that is not.
const LOOK: Duration = Duration::from_millis(20);
const IDLE: Duration = Duration::from_millis(200);
/// What is said while a receiver that is to stop does so.
const STOPPING: &str = "it is being stopped: groups are left, files are finished";

/// What a unit is told.
pub enum Order {
    /// See [`Action`].
    Act(Action, Reply),
    /// Its configuration is this one now; what that changed is answered.
    Change(Box<config::Receiver>, Arc<Settings>, mpsc::Sender<(String, Changed)>),
    /// To end, for this reason.
    End(&'static str),
}

/// Who waits for what becomes of an action.
pub type Reply = oneshot::Sender<Result<(), Refusal>>;

/// What a new configuration changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// No packet was lost.
    No,
    /// It was begun anew, or switched.
    Yes,
}

/// What all units are told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Of the whole configuration.
    pub daemon: config::Daemon,
    /// Where names of SDP files begin.
    pub folder: PathBuf,
}

/// What units share.
pub struct Shared {
    pub opener: Arc<dyn Opener>,
    pub board: Arc<Board>,
    pub begun: Instant,
    pub state: Option<Folder>,
    /// Rounds of the receive loops, by receiver and by thread: one that was given up may still have a loop.
    pub beats: Mutex<AllBeats>,
}

/// See [`Shared::beats`].
pub type AllBeats = BTreeMap<(String, u64), Beats>;

impl Shared {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }
    /// See there.
    pub fn beats(&self) -> MutexGuard<'_, AllBeats> {
        // It is whole at every instant.
        self.beats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A unit among all that there were.
pub struct Place {
    /// Of [`Board::begin`].
    pub number: u64,
    /// It has tried once to open its receiver, or is not to.
    pub tried: AtomicBool,
}

/// Where a receiver's SDP comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum From {
    Config,
    /// Somebody gave it.
    Given(Given),
}

/// A receiver.
pub struct Unit {
    spec: config::Receiver,
    settings: Arc<Settings>,
    shared: Arc<Shared>,
    place: Arc<Place>,
    life: Life,
    since: SystemTime,
    from: From,
    /// It was told to start or to stop: `enabled` of the configuration, which says the contrary.
    overruled: Option<bool>,
    /// The text that the configuration led to, when it was looked at last.
    configured: Option<Arc<str>>,
    /// What is received.
    sdp: Option<Arc<str>>,
    session: Option<Box<dyn Session>>,
    /// A session is being closed, for this.
    closing: Option<&'static str>,
    switching: Option<Switching>,
    switches: u64,
    shown: Option<Shown>,
    show_at: Duration,
    legs: side::Legs,
}

/// A switch that goes on.
struct Switching {
    sdp: Arc<str>,
    from: From,
    reply: Option<Reply>,
}

/// Runs a receiver until it is told to end. Takes the place of whoever panics in it.
pub fn run(
    spec: config::Receiver,
    settings: Arc<Settings>,
    shared: Arc<Shared>,
    place: Arc<Place>,
    orders: &mpsc::Receiver<Order>,
) {
    let mut unit = Unit::new(spec, settings, shared, place);
    unit.guarded(Unit::begin);
    let reason = loop {
        let due = unit.life.due().map(|due| due.saturating_sub(unit.shared.now()));
        let wait = if unit.session.is_some() { LOOK } else { due.unwrap_or(IDLE).min(IDLE) };
        match orders.recv_timeout(wait) {
            Ok(Order::End(reason)) => break reason,
            Err(RecvTimeoutError::Disconnected) => break "its supervisor is gone",
            Ok(Order::Act(action, reply)) => unit.guarded(|unit| unit.act(action, reply)),
            Ok(Order::Change(spec, settings, reply)) => {
                let id = spec.id.clone();
                let mut changed = Changed::Yes;
                unit.guarded(|unit| changed = unit.change(*spec, settings));
                let _ = reply.send((id, changed));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        unit.guarded(Unit::step);
    };
    unit.guarded(|unit| unit.close(reason));
}

impl Unit {
    fn new(spec: config::Receiver, settings: Arc<Settings>, shared: Arc<Shared>, place: Arc<Place>) -> Self {
        Unit {
            life: Life::new(&spec.id, "it has not begun"),
            spec,
            settings,
            shared,
            place,
            since: SystemTime::now(),
            from: From::Config,
            overruled: None,
            configured: None,
            sdp: None,
            session: None,
            closing: None,
            switching: None,
            switches: 0,
            shown: None,
            show_at: Duration::ZERO,
            legs: side::Legs::default(),
        }
    }

    /// A panic is the end of this session, and of nothing else.
    fn guarded(&mut self, work: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| work(&mut *self))).is_ok() {
            return;
        }
        // Its thread does not receive on by itself.
        let session = self.session.take();
        let _ = catch_unwind(AssertUnwindSafe(|| session.map(|mut session| session.close())));
        self.closing = None;
        self.shared.beats().remove(&self.beats_key());
        self.answer(Err(Refusal::Unavailable("the receiver panicked".into())));
        let change = self.life.failed(self.shared.now(), false, "the receiver panicked; please report this".into());
        self.changed(change);
        self.publish();
    }

    fn begin(&mut self) {
        self.resume();
        if self.has_sdp() && self.is_wanted() {
            let change = self.life.start(self.shared.now());
            self.changed(change);
        } else {
            self.stop(self.why_not());
        }
        self.step();
        self.publish();
    }

    /// What the configuration says of the SDP: the text, where that is at hand. A later one is told from it.
    fn key(&mut self) -> Option<String> {
        let source = self.spec.sdp.clone()?;
        if is_url(&source) {
            return Some(source);
        }
        match source::text(&source, &self.settings.folder, &self.settings.daemon) {
            Ok(text) => {
                self.configured = Some(text.clone());
                Some((*text).to_owned())
            }
            Err(_) => Some(source),
        }
    }

    fn has_sdp(&self) -> bool {
        self.spec.sdp.is_some() || self.given().is_some()
    }
    /// What somebody said goes before the configuration.
    fn is_wanted(&self) -> bool {
        match self.connected() {
            Some(connected) => connected.enabled,
            None => self.overruled.map_or(self.spec.enabled, |enabled| !enabled),
        }
    }
    /// Why it is not to receive.
    fn why_not(&self) -> &'static str {
        match (self.has_sdp(), self.connected(), self.overruled) {
            (false, ..) => "it has no SDP",
            (_, Some(_), _) => "its controller released it",
            (_, _, Some(_)) => "it was told to stop",
            _ => "it is not enabled in the configuration",
        }
    }
    fn connected(&self) -> Option<&Connected> {
        match &self.from {
            From::Given(given) => given.connected.as_ref(),
            From::Config => None,
        }
    }
    /// The configuration, with what a controller changes of it.
    fn spec_of(&self, from: &From) -> config::Receiver {
        let mut spec = self.spec.clone();
        let From::Given(Given { connected: Some(connected), sdp }) = from else { return spec };
        // He has not said yet what there is to receive.
        if sdp.is_empty() {
            return spec;
        }
        // Its SDP has one flow.
        spec.flow = None;
        // The second leg alone is the first one of its SDP.
        if let [leg] = connected.legs[..]
            && leg > 0
        {
            spec.interfaces = spec.interfaces.get(leg).or(spec.interfaces.last()).cloned().into_iter().collect();
            spec.backend = spec.backend.get(leg).or(spec.backend.last()).copied().into_iter().collect();
        }
        spec
    }

    /// What is due.
    fn step(&mut self) {
        let (due, change) = self.life.is_due(self.shared.now());
        self.changed(change);
        if due {
            // It may take its time.
            self.publish();
            self.open();
        }
        self.place.tried.store(true, Ordering::Release);
        self.look();
    }

    /// The text to receive.
    fn text(&mut self) -> Result<Arc<str>, Error> {
        match (self.given(), &self.spec.sdp) {
            (Some(given), _) => Ok(given),
            (None, Some(source)) => {
                let text = source::text(source, &self.settings.folder, &self.settings.daemon)?;
                self.configured = Some(text.clone());
                source::check(&text)?;
                Ok(text)
            }
            (None, None) => Err(Error::new(Kind::Usage, "it has no SDP").cure("give it one")),
        }
    }

    /// The text that a source of the configuration leads to now.
    fn fetch(&self, source: &str) -> Result<Arc<str>, Error> {
        source::text(source, &self.settings.folder, &self.settings.daemon)
    }

    fn open(&mut self) {
        let opened = self.text().and_then(|text| self.open_with(text));
        let now = self.shared.now();
        let change = match opened {
            Ok((session, text)) => {
                self.installed(session, text);
                self.life.opened(now)
            }
            Err(error) => self.life.failed(now, is_last(&error), said(&error)),
        };
        self.changed(change);
        self.publish();
    }

    fn open_with(&self, text: Arc<str>) -> Result<(Box<dyn Session>, Arc<str>), Error> {
        Ok((self.shared.opener.open(&self.spec_of(&self.from), &text)?, text))
    }

    fn installed(&mut self, session: Box<dyn Session>, text: Arc<str>) {
        self.session = Some(session);
        self.sdp = Some(text);
        self.show_at = Duration::ZERO;
    }

    fn look(&mut self) {
        let Some(session) = &mut self.session else { return };
        let Look { frames, said: words, ended, switch } = session.look();
        for word in words {
            self.shared.board.tell(Some(&self.spec.id), word.kind, word.text);
        }
        if let Some(switch) = switch {
            self.switched(switch);
        }
        let now = self.shared.now();
        if let Some(error) = ended {
            self.answer(Err(Refusal::Unavailable(said(&error))));
            self.leave("reception ended; what is left of it is closed");
            let change = self.life.failed(now, is_last(&error), said(&error));
            self.changed(change);
            return self.publish();
        }
        let Some(session) = &mut self.session else { return };
        let silence = self.settings.daemon.silence.0;
        let change = self.life.seen(now, frames, silence, || said(&session.why_nothing()));
        let news = change.is_some();
        self.changed(change);
        if news || now >= self.show_at {
            if now >= self.show_at {
                self.show();
                self.show_at = now + self.settings.daemon.interval.0.max(Duration::from_millis(100));
            }
            self.publish();
        }
    }

    fn show(&mut self) {
        let key = self.beats_key();
        let Some(session) = &mut self.session else { return };
        self.shown = Some(session.show());
        let beats = session.beats();
        let mut all = self.shared.beats();
        match beats {
            Some(beats) => all.insert(key, beats),
            None => all.remove(&key),
        };
    }
    fn beats_key(&self) -> (String, u64) {
        (self.spec.id.clone(), self.place.number)
    }

    /// Ends the session; the files of its sinks are whole then. That takes as long as its driver and its files do: meanwhile this
    /// is shown, and whoever watches its loop goes on to.
    fn leave(&mut self, closing: &'static str) {
        self.shown = None;
        if let Some(mut session) = self.session.take() {
            self.closing = Some(closing);
            self.publish();
            let closed = session.close();
            drop(session);
            self.closing = None;
            if let Err(error) = closed {
                self.tell(EventKind::Sink, said(&error));
            }
        }
        self.shared.beats().remove(&self.beats_key());
    }
    fn close(&mut self, reason: &str) {
        self.settle("the receiver was stopped");
        self.leave(STOPPING);
        self.stop(reason);
        self.publish();
    }
    fn stop(&mut self, reason: &str) {
        let change = self.life.stop(self.shared.now(), reason);
        self.changed(change);
    }

    fn changed(&mut self, change: Option<Change>) {
        let Some(Change { from, to, reason, same }) = change else { return };
        if from != to {
            self.since = SystemTime::now();
        }
        if !same {
            let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            self.tell(EventKind::State, format!("{}{why}", to.name()));
        }
    }

    fn tell(&self, kind: EventKind, message: impl Into<String>) {
        self.shared.board.tell(Some(&self.spec.id), kind, message);
    }

    /// Shows it as it is.
    fn publish(&mut self) {
        let side = self.side();
        let shown = self.shown.as_ref().filter(|_| self.session.is_some());
        let receiver = Receiver {
            id: self.spec.id.clone(),
            label: self.spec.name().to_owned(),
            state: self.life.state(),
            reason: self.closing.or(self.life.reason()).map(str::to_owned),
            since: self.since,
            sdp: self.sdp.clone().or_else(|| self.given()).or_else(|| self.configured.clone()),
            flow: shown.map(|shown| shown.flow.clone()),
            backend: shown.map(|shown| shown.backend.clone()),
            processor: shown.map(|shown| shown.processor.clone()),
            placement: shown.and_then(|shown| shown.placement.clone()),
            restarts: self.life.restarts(),
            switches: self.switches,
            status: shown.and_then(|shown| shown.status.clone()),
            health: shown.and_then(|shown| shown.health.clone()),
            report: shown.map(|shown| shown.report.clone()),
            latency: shown.map(|shown| shown.latency.clone()).unwrap_or_default(),
            timing: shown.map(|shown| shown.timing.clone()).unwrap_or_default(),
            ptp: shown.and_then(|shown| shown.ptp),
            cards: shown.map(|shown| shown.cards.clone()).unwrap_or_default(),
            gpu_memory: shown.and_then(|shown| shown.gpu_memory.clone()),
            sinks: shown.map(|shown| shown.sinks.clone()).unwrap_or_default(),
            preview: shown.and_then(|shown| shown.preview.clone()),
            side,
        };
        self.shared.board.show(self.place.number, receiver);
    }
    fn given(&self) -> Option<Arc<str>> {
        match &self.from {
            From::Given(given) => Some(given.sdp.clone()).filter(|sdp| !sdp.is_empty()),
            From::Config => None,
        }
    }
}

/// It is fetched from a server.
fn is_url(source: &str) -> bool {
    !source::is_text(source) && source.contains("://")
}

/// Only another configuration or SDP cures it.
fn is_last(error: &Error) -> bool {
    matches!(error.kind(), Kind::Usage | Kind::Data)
}

fn refusal(error: &Error) -> Refusal {
    if is_last(error) { Refusal::Invalid(said(error)) } else { Refusal::Unavailable(said(error)) }
}

/// In one line, with its cure.
fn said(error: &Error) -> String {
    let what = error.in_one_line();
    match error.cure_text().lines().next() {
        None | Some("") => what,
        Some(cure) => format!("{what} ({cure})"),
    }
}
