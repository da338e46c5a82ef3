//! One receiver on its thread: opened, watched, tried again, switched.

mod change;
mod side;

use super::board::Board;
use super::life::{Change, Life};
use super::resume::{Connected, Folder, Given};
use super::{Action, Connection, EventKind, Look, Opener, Receiver, Refusal, Session, Shown, State, config, source};
use crate::error::{Error, Kind};
use crate::worker::Beats;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::oneshot;

/// Between two looks at a receiver that is open, and at one that is not.
const LOOK: Duration = Duration::from_millis(20);
const IDLE: Duration = Duration::from_millis(200);

/// What a unit is told.
pub enum Order {
    /// See [`Action`].
    Act(Action, oneshot::Sender<Result<(), Refusal>>),
    /// Its configuration is this one now; what that changed is answered.
    Change(Box<config::Receiver>, Arc<Settings>, mpsc::Sender<(String, Changed)>),
    /// To end, for this reason.
    End(&'static str),
}

/// What a new configuration changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// No packet was lost.
    No,
    /// It was begun anew, or switched.
    Yes,
}

/// Why a receiver is stopped that its controller has released.
const RELEASED: &str = "its controller released it";

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
    /// Rounds of the receive loops, by receiver.
    pub beats: Mutex<BTreeMap<String, Beats>>,
    /// Units that have not tried to open their receiver yet.
    pub pending: AtomicUsize,
}

impl Shared {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }
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
    life: Life,
    since: SystemTime,
    from: From,
    /// The text that the configuration led to, when it was looked at last.
    configured: Option<Arc<str>>,
    /// What is received.
    sdp: Option<Arc<str>>,
    session: Option<Box<dyn Session>>,
    switching: Option<Switching>,
    switches: u64,
    shown: Option<Shown>,
    show_at: Duration,
    tried: bool,
    legs: side::Legs,
}

/// A switch that goes on.
struct Switching {
    sdp: Arc<str>,
    from: From,
    reply: Option<oneshot::Sender<Result<(), Refusal>>>,
}

/// Runs a receiver until it is told to end. Takes the place of whoever panics in it.
pub fn run(spec: config::Receiver, settings: Arc<Settings>, shared: Arc<Shared>, orders: &mpsc::Receiver<Order>) {
    let mut unit = Unit::new(spec, settings, shared);
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
    fn new(spec: config::Receiver, settings: Arc<Settings>, shared: Arc<Shared>) -> Self {
        Unit {
            life: Life::new(&spec.id, "it has not begun"),
            spec,
            settings,
            shared,
            since: SystemTime::now(),
            from: From::Config,
            configured: None,
            sdp: None,
            session: None,
            switching: None,
            switches: 0,
            shown: None,
            show_at: Duration::ZERO,
            tried: false,
            legs: side::Legs::default(),
        }
    }

    /// A panic is the end of this session, and of nothing else.
    fn guarded(&mut self, work: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| work(&mut *self))).is_ok() {
            return;
        }
        let session = self.session.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(session)));
        self.answer(Err(Refusal::Unavailable("the receiver panicked".into())));
        let change = self.life.failed(self.shared.now(), false, "the receiver panicked; please report this".into());
        self.changed(change);
        self.publish();
    }

    fn begin(&mut self) {
        let key = self.key();
        if let Some(state) = &self.shared.state
            && let Some(saved) = state.read(&self.spec.id, key.as_deref())
        {
            if !saved.sdp.is_empty() {
                self.tell(EventKind::Switch, "the SDP of its last switch is received again");
            }
            self.from = From::Given(saved);
        }
        if !self.has_sdp() {
            self.stop("it has no SDP");
        } else if self.is_wanted() {
            let change = self.life.start(self.shared.now());
            self.changed(change);
        } else {
            self.stop(self.why_unwanted());
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
        match source::text(&source, &self.settings.folder, &[]) {
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
    /// What a controller said goes before the configuration.
    fn is_wanted(&self) -> bool {
        self.connected().map_or(self.spec.enabled, |connected| connected.enabled)
    }
    fn why_unwanted(&self) -> &'static str {
        match self.connected() {
            Some(_) => RELEASED,
            None => "it is not enabled in the configuration",
        }
    }
    fn connected(&self) -> Option<&Connected> {
        match &self.from {
            From::Given(given) => given.connected.as_ref(),
            From::Config => None,
        }
    }
    /// How its controller has it; false where that is nothing new, or none has.
    fn set_connected(&mut self, enabled: bool) -> bool {
        let From::Given(Given { connected: Some(connected), .. }) = &mut self.from else { return false };
        std::mem::replace(&mut connected.enabled, enabled) != enabled
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
            self.open();
        }
        if !std::mem::replace(&mut self.tried, true) {
            self.shared.pending.fetch_sub(1, Ordering::AcqRel);
        }
        self.look();
    }

    /// The text to receive.
    fn text(&mut self) -> Result<Arc<str>, Error> {
        match (self.given(), &self.spec.sdp) {
            (Some(given), _) => Ok(given),
            (None, Some(source)) => {
                let text = source::text(source, &self.settings.folder, &self.settings.daemon.sdp_hosts)?;
                self.configured = Some(text.clone());
                source::check(&text)?;
                Ok(text)
            }
            (None, None) => Err(Error::new(Kind::Usage, "it has no SDP").cure("give it one")),
        }
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
            self.leave();
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
        let Some(session) = &mut self.session else { return };
        self.shown = Some(session.show());
        let beats = session.beats();
        let mut all = self.shared.beats.lock().unwrap_or_else(PoisonError::into_inner);
        match beats {
            Some(beats) => all.insert(self.spec.id.clone(), beats),
            None => all.remove(&self.spec.id),
        };
    }

    /// Ends the session; the files of its sinks are whole then.
    fn leave(&mut self) {
        self.shared.beats.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.spec.id);
        self.shown = None;
        let Some(mut session) = self.session.take() else { return };
        if let Err(error) = session.close() {
            self.tell(EventKind::Sink, said(&error));
        }
    }
    fn close(&mut self, reason: &str) {
        self.answer(Err(Refusal::Unavailable("the receiver was stopped".into())));
        self.leave();
        self.stop(reason);
        self.publish();
    }
    fn stop(&mut self, reason: &str) {
        let change = self.life.stop(self.shared.now(), reason);
        self.changed(change);
    }

    fn act(&mut self, action: Action, reply: oneshot::Sender<Result<(), Refusal>>) {
        let done = match action {
            Action::Stop => {
                self.close("it was told to stop");
                if self.set_connected(false) {
                    self.remember();
                }
                Ok(())
            }
            Action::Start if !self.has_sdp() => {
                Err(Refusal::Unavailable("it has no SDP: switch it to one, or configure one".into()))
            }
            Action::Start => {
                if self.set_connected(true) {
                    self.remember();
                }
                let change = self.life.start(self.shared.now());
                self.changed(change);
                self.step();
                match self.life.state() {
                    State::Failed => Err(Refusal::Invalid(self.life.reason().unwrap_or_default().to_owned())),
                    _ => Ok(()),
                }
            }
            Action::Switch { sdp } => {
                let sdp: Arc<str> = sdp.into();
                return self.switch(sdp.clone(), From::Given(Given::sdp(sdp)), Some(reply));
            }
            Action::Connect(connection) => {
                let Connection { enabled, sdp, legs, note } = *connection;
                let sdp: Arc<str> = sdp.into();
                let connected = Some(Connected { enabled, legs, of: self.legs.shown(), note: note.into() });
                let from = From::Given(Given { sdp: sdp.clone(), connected });
                if enabled && !sdp.is_empty() {
                    return self.switch(sdp, from, Some(reply));
                }
                self.close(if enabled { "it has no SDP" } else { RELEASED });
                (self.from, self.sdp) = (from, Some(sdp).filter(|sdp| !sdp.is_empty()));
                self.remember();
                // What the configuration names may come yet.
                self.restart();
                Ok(())
            }
        };
        // Whoever asked may have gone.
        let _ = reply.send(done);
    }

    fn changed(&mut self, change: Option<Change>) {
        let Some(Change { from, to, reason }) = change else { return };
        if from != to {
            self.since = SystemTime::now();
        }
        let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        self.tell(EventKind::State, format!("{}{why}", to.name()));
    }

    fn tell(&self, kind: EventKind, message: impl Into<String>) {
        self.shared.board.tell(Some(&self.spec.id), kind, message);
    }

    /// Shows it as it is.
    fn publish(&mut self) {
        let side = self.side();
        let shown = self.shown.as_ref().filter(|_| self.session.is_some());
        self.shared.board.show(Receiver {
            id: self.spec.id.clone(),
            label: self.spec.name().to_owned(),
            state: self.life.state(),
            reason: self.life.reason().map(str::to_owned),
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
        });
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
