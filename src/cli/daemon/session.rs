//! Receivers of the daemon: the sessions of `play`, with other words around.

use super::super::play::{self, Begun, Given, Progress, Said, Since};
use gdmedia::daemon::{self, EventKind, Look, Opener, Shown, Switched, config};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::sdp::{Description, Mode, Severity};
use gdmedia::worker::{Beats, Crew, Report};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two drains of a thread that several receivers share.
const SLEEP: Duration = Duration::from_millis(1);

/// Opens receivers as `gdmedia play` does.
pub struct Play {
    /// Cores for receiving threads, in turn.
    cores: Vec<usize>,
    /// Threads that receive, where receivers share them.
    crews: Vec<Arc<Crew>>,
    /// Octets for frames of all receivers; none: as the machine has them.
    memory: Option<u64>,
    taken: Arc<Mutex<Taken>>,
}

/// What receivers have.
#[derive(Default)]
struct Taken {
    /// The core of each, by id: the same one after a failure.
    cores: BTreeMap<String, usize>,
    /// The thread of each, likewise.
    crews: BTreeMap<String, usize>,
    /// Octets of those that are open.
    memory: BTreeMap<String, u64>,
}

impl Play {
    /// Within these limits.
    ///
    /// # Errors
    /// There are no such threads.
    pub fn new(limits: &config::Limits) -> Result<Self> {
        let memory = (limits.memory > 0).then_some((limits.memory as u64).saturating_mul(1 << 20));
        let core = |n: usize| limits.cores.get(n.checked_rem(limits.cores.len())?).copied();
        let crews = (0..limits.workers).map(|n| Crew::start(SLEEP, core(n)).map(Arc::new)).collect::<Result<_>>()?;
        Ok(Play { cores: limits.cores.clone(), crews, memory, taken: Arc::default() })
    }

    fn given(&self, id: &str) -> Given {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let core = fewest(&mut taken.cores, id, self.cores.iter().copied());
        let crew = fewest(&mut taken.crews, id, 0..self.crews.len()).and_then(|n| self.crews.get(n).cloned());
        let others: u64 = taken.memory.iter().filter(|(other, _)| *other != id).map(|(_, octets)| octets).sum();
        Given { core: core.filter(|_| crew.is_none()), crew, memory: self.memory.map(|all| all.saturating_sub(others)) }
    }
}

/// The one that has the fewest, or had this one before.
fn fewest(taken: &mut BTreeMap<String, usize>, id: &str, all: impl Iterator<Item = usize>) -> Option<usize> {
    let count = |one: usize| taken.values().filter(|taken| **taken == one).count();
    let one = taken.get(id).copied().or_else(|| all.min_by_key(|one| count(*one)))?;
    taken.insert(id.to_owned(), one);
    Some(one)
}

impl Opener for Play {
    fn open(&self, receiver: &config::Receiver, sdp: &str) -> Result<Box<dyn daemon::Session>> {
        let args = play::Args::of(receiver, &self.given(&receiver.id))?;
        let description = description(sdp)?;
        let session = play::Session::open(args, &description, Arc::new(AtomicBool::new(false)))?;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.memory.insert(receiver.id.clone(), session.memory());
        drop(taken);
        Ok(Box::new(Running {
            opened: Some(session.how()),
            session,
            report: Report::default(),
            since: Since::now(),
            came: Came::new(),
            told: Vec::new(),
            id: receiver.id.clone(),
            taken: self.taken.clone(),
        }))
    }
}

/// An SDP with at least one flow.
fn description(text: &str) -> Result<Description> {
    let description = gdmedia::sdp::parse(text.as_bytes(), Mode::Lenient);
    if !description.flows.is_empty() {
        return Ok(description);
    }
    let why = description.diagnostics.iter().find(|d| d.severity == Severity::Error);
    let what = why.map(|d| format!(": line {}: {}", d.line, d.message)).unwrap_or_default();
    let cure = why.map_or_else(|| "look at it with: gdmedia sdp FILE".to_owned(), |d| d.cure.clone());
    Err(Error::new(Kind::Data, format!("no flow in this SDP{what}")).cure(cure))
}

/// A receiver that is open.
struct Running {
    session: play::Session,
    /// How it is received, until it is told.
    opened: Option<String>,
    report: Report,
    since: Since,
    came: Came,
    /// Remarks that were told.
    told: Vec<String>,
    id: String,
    taken: Arc<Mutex<Taken>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).memory.remove(&self.id);
    }
}

impl daemon::Session for Running {
    fn look(&mut self) -> Look {
        let switch = match self.session.progress() {
            Progress::Going => None,
            Progress::Done(text) => {
                self.switched();
                Some(Switched::Done(text))
            }
            Progress::Refused(error) => Some(Switched::Refused(error)),
            Progress::Broken(error) => Some(Switched::Broken(error)),
        };
        let looked = self.session.look();
        let opened = self.opened.take().map(|text| daemon::Said { kind: EventKind::Health, text });
        let mut said: Vec<daemon::Said> = opened.into_iter().chain(looked.said.into_iter().filter_map(told)).collect();
        let remarks = looked.report.remarks.iter().filter(|remark| !self.told.contains(remark));
        said.extend(remarks.map(|remark| daemon::Said { kind: EventKind::Health, text: remark.clone() }));
        self.told.clone_from(&looked.report.remarks);
        self.report = looked.report;
        let (_, frames) = play::Session::counts(&self.report);
        self.came.see(&self.report, frames, Instant::now());
        let ended = self.session.has_ended().then(|| self.session.why_ended());
        Look { frames, said, ended, switch }
    }
    fn show(&mut self) -> Shown {
        self.session.shown(&self.report, &mut self.since)
    }
    fn why_nothing(&mut self) -> Error {
        match self.came.silent(Instant::now()) {
            Some(error) => error,
            None => self.session.why_nothing(&self.came.since_a_frame(&self.report)),
        }
    }
    fn switch(&mut self, sdp: &str) -> Result<daemon::Begun> {
        Ok(match self.session.switch(&description(sdp)?)? {
            Begun::Beside => daemon::Begun::Beside,
            Begun::Done(text) => {
                self.switched();
                daemon::Begun::Done(text)
            }
            Begun::Apart(why) => daemon::Begun::Apart(why),
        })
    }
    fn close(&mut self) -> Result<()> {
        self.session.close()
    }
    fn beats(&self) -> Option<Beats> {
        self.session.beats()
    }
}

impl Running {
    /// Counters begin anew.
    fn switched(&mut self) {
        (self.since, self.report, self.came) = (Since::now(), Report::default(), Came::new());
        self.told.clear();
    }
}

/// No packet for so long: none comes any more.
const QUIET: Duration = Duration::from_millis(200);

/// What came, so that a flow that ends is not taken for one that never was.
struct Came {
    frames: u64,
    /// When the last frame came.
    then: Report,
    datagrams: u64,
    /// When that changed.
    moved: Instant,
}

impl Came {
    fn new() -> Self {
        Came { frames: 0, then: Report::default(), datagrams: 0, moved: Instant::now() }
    }
    fn see(&mut self, report: &Report, frames: u64, now: Instant) {
        if report.rx.datagrams != self.datagrams {
            (self.datagrams, self.moved) = (report.rx.datagrams, now);
        }
        if frames > self.frames {
            self.frames = frames;
            self.then = Report { rx: report.rx, packets: report.packets, ..Report::default() };
        }
    }
    /// Frames came, and now not even packets do.
    fn silent(&self, now: Instant) -> Option<Error> {
        (self.frames > 0 && now.duration_since(self.moved) >= QUIET).then(|| {
            Error::new(Kind::NoMedia, format!("no packet comes any more, after {} frames", self.frames)).cure(
                "is the sender on? are its interface and this one up, and does the switch still forward the group?",
            )
        })
    }
    /// What came since the last frame.
    fn since_a_frame(&self, report: &Report) -> Report {
        let mut since = report.clone();
        since.rx.datagrams = since.rx.datagrams.saturating_sub(self.then.rx.datagrams);
        since.rx.kernel_dropped = since.rx.kernel_dropped.saturating_sub(self.then.rx.kernel_dropped);
        since.rx.rejected = since.rx.rejected.since(&self.then.rx.rejected);
        since.packets.rejected = since.packets.rejected.since(&self.then.packets.rejected);
        since
    }
}

/// As an event of the daemon; none of what JSON alone tells.
fn told(said: Said) -> Option<daemon::Said> {
    let kind = if said.is_of_sink() { EventKind::Sink } else { EventKind::Health };
    Some(daemon::Said { kind, text: said.what()?.to_owned() })
}

/// Options that contradict each other, and places that two receivers would write to.
pub fn check(config: &config::Config) -> Result<()> {
    let mut places: BTreeMap<std::path::PathBuf, &str> = BTreeMap::new();
    for receiver in &config.receivers {
        let wrong = |what: String| Error::new(Kind::Usage, format!("receiver \"{}\": {what}", receiver.id));
        let args = play::Args::of(receiver, &Given { core: None, crew: None, memory: None }).map_err(|error| {
            let cure = error.cure_text().to_owned();
            wrong(error.in_one_line()).cure(cure)
        })?;
        for place in args.places() {
            if let Some(other) = places.insert(place.to_owned(), &receiver.id) {
                return Err(wrong(format!("{} is also where \"{other}\" writes to", place.display()))
                    .cure("give each receiver, and each of its sinks, a place of its own"));
            }
        }
    }
    Ok(())
}

/// What a receiver would receive, as far as that is seen from here.
///
/// # Errors
/// It cannot.
pub fn look_at(receiver: &config::Receiver, loaded: &config::Loaded) -> Result<String> {
    let Some(source) = &receiver.sdp else { return Ok("no SDP: stopped until it gets one".into()) };
    let text = daemon::sdp_text(source, &loaded.folder, &loaded.config.daemon.sdp_hosts)?;
    play::seen(&description(&text)?, receiver.flow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_that_ends_is_not_one_that_never_was() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut came = Came::new();
        let mut report = Report::default();
        came.see(&report, 0, at(0));
        assert!(came.silent(at(5000)).is_none(), "nothing ever came: another's words");
        report.rx.datagrams = 1000;
        came.see(&report, 10, at(5000));
        // A part of a frame, and then nothing.
        report.rx.datagrams = 1050;
        came.see(&report, 10, at(5020));
        assert!(came.silent(at(5219)).is_none());
        assert_eq!(came.since_a_frame(&report).rx.datagrams, 50);
        let text = came.silent(at(5220)).unwrap().to_string();
        assert!(text.contains("no packet comes any more, after 10 frames"), "{text}");
        // Packets come, and no frame is made of them.
        report.rx.datagrams = 2000;
        came.see(&report, 10, at(6000));
        assert!(came.silent(at(6100)).is_none());
        assert_eq!(came.since_a_frame(&report).rx.datagrams, 1000);
    }

    #[test]
    fn cores_threads_and_memory_are_shared_out() {
        let limits = config::Limits { memory: 10, cores: vec![4, 5], ..config::Limits::default() };
        let play = Play::new(&limits).unwrap();
        let core = |id: &str| play.given(id).core;
        assert_eq!([core("a"), core("b"), core("c"), core("a")], [Some(4), Some(5), Some(4), Some(4)]);
        play.taken.lock().unwrap().memory.insert("a".into(), 3 << 20);
        assert_eq!((play.given("a").memory, play.given("b").memory), (Some(10 << 20), Some(7 << 20)));
        let play = Play::new(&config::Limits { workers: 2, ..config::Limits::default() }).unwrap();
        let crew = |id: &str| play.given(id).crew.unwrap();
        assert!(!Arc::ptr_eq(&crew("a"), &crew("b")) && Arc::ptr_eq(&crew("a"), &crew("a")));
        assert!(play.given("a").core.is_none() && play.given("a").memory.is_none());
        assert!(Play::new(&config::Limits { workers: 1, cores: vec![100_000], ..config::Limits::default() }).is_err());
    }
}
