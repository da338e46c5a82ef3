//! Receivers of the daemon: the sessions of `play`, with other words around.

use super::super::play::{self, Begun, Budget, Given, Progress, Said, Since};
use gdmedia::daemon::{self, EventKind, Look, Opener, Shown, Switched, config};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::rx::socket;
use gdmedia::sdp::{Description, Mode, Severity};
use gdmedia::topology::Root;
use gdmedia::worker::seats::Rules;
use gdmedia::worker::{Beats, Placement, Report, Seats};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Between two drains of a thread that several receivers share.
const SLEEP: Duration = Duration::from_millis(1);
/// Between two looks at PTP and the clocks.
const CLOCKS: Duration = Duration::from_secs(1);

/// Opens receivers as `gdmedia play` does.
pub struct Play {
    /// Threads that receive, and their cores.
    seats: Arc<Seats>,
    /// For frames of all receivers; none: as the machine has it.
    memory: Option<Arc<Budget>>,
    /// Sockets of ptp4l.
    ptp4l: Vec<PathBuf>,
}

impl Play {
    /// With what this configuration allows.
    ///
    /// # Errors
    /// There are no such threads.
    pub fn new(config: &config::Config) -> Result<Self> {
        let limits = &config.limits;
        let memory = (limits.memory > 0).then(|| Budget::new((limits.memory as u64).saturating_mul(1 << 20)));
        let own = |receiver: &&config::Receiver| receiver.core.is_none() && !receiver.interfaces.is_empty();
        let seats = Seats::new(Rules {
            cores: limits.cores.clone(),
            workers: limits.workers,
            sleep: SLEEP,
            policy: limits.placement.into(),
            expected: config.receivers.iter().filter(own).map(|receiver| names(&receiver.interfaces)).collect(),
            root: Root::new("/"),
        })?;
        Ok(Play { seats, memory, ptp4l: config.daemon.ptp4l.clone() })
    }

    /// What cores there are, and what is done with them.
    pub fn describe(&self) -> String {
        self.seats.describe()
    }

    fn given(&self) -> Given {
        Given { seats: Some(self.seats.clone()), ptp4l: self.ptp4l.clone(), memory: self.memory.clone() }
    }
}

/// Names of interfaces, of which some may be given by their addresses.
fn names(interfaces: &[String]) -> Vec<String> {
    let all = socket::interfaces();
    let named = |text: &String| {
        let address = text.parse().ok();
        let meant = all.iter().find(|i| address.is_some_and(|a| i.addresses.contains(&a)));
        meant.map_or_else(|| text.clone(), |i| i.name.clone())
    };
    interfaces.iter().map(named).collect()
}

impl Opener for Play {
    fn open(&self, receiver: &config::Receiver, sdp: &str) -> Result<Box<dyn daemon::Session>> {
        let args = play::Args::of(receiver, &self.given())?;
        let description = description(sdp)?;
        let session = play::Session::open(args, &description, Arc::new(AtomicBool::new(false)))?;
        Ok(Box::new(Running {
            placed: None,
            asked: Instant::now(),
            opened: Some(session.how()),
            session,
            report: Report::default(),
            since: Since::now(),
            came: Came::new(),
            told: Vec::new(),
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
    /// Where its thread is, as it was told last.
    placed: Option<Placement>,
    /// When the clocks were looked at last.
    asked: Instant,
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
        let times = match self.asked.elapsed() >= CLOCKS {
            true => {
                self.asked = Instant::now();
                self.session.times()
            }
            false => Vec::new(),
        };
        let opened = self.opened.take().map(|text| daemon::Said { kind: EventKind::Health, text });
        let placed = self.placed().map(|text| daemon::Said { kind: EventKind::Health, text });
        let news = looked.said.into_iter().chain(times).filter_map(told);
        let mut said: Vec<daemon::Said> = opened.into_iter().chain(placed).chain(news).collect();
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
    fn check(&self, sdp: &str) -> Result<()> {
        self.session.check(&description(sdp)?)
    }
    fn give_up(&mut self) -> bool {
        let installed = self.session.give_up_next();
        if installed {
            self.switched();
        }
        installed
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
    /// Where its thread is, where that is something new.
    fn placed(&mut self) -> Option<String> {
        let now = self.session.placement()?;
        if self.placed.as_ref() == Some(now) {
            return None;
        }
        let text = format!("thread on {now}");
        self.placed = Some(now.clone());
        Some(text)
    }
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
        let args = play::Args::of(receiver, &Given::default()).map_err(|error| {
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
    let text = daemon::sdp_text(source, &loaded.folder, &loaded.config.daemon)?;
    play::seen(&description(&text)?, receiver.flow)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

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

    /// A receiver that waits for no frame of another flow.
    fn receiver(id: usize) -> config::Receiver {
        let text = format!("id = \"r{id}\"\ngpu = \"off\"\nswitch_timeout = \"1ms\"\n");
        gdmedia::config::parse("receiver", &text).unwrap()
    }
    fn port() -> u16 {
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }
    fn sdp(port: u16) -> String {
        format!(
            "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\nm=video {port} RTP/AVP 96\r\nc=IN IP4 127.0.0.1\r\n\
             a=rtpmap:96 raw/90000\r\na=fmtp:96 sampling=YCbCr-4:2:2; width=64; height=36; exactframerate=25; depth=10; \
             TCS=SDR; colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN\r\n\
             a=ts-refclk:localmac=40-A3-6B-A0-2B-D2\r\na=mediaclk:direct=0\r\n"
        )
    }
    /// One that has so many octets to share out.
    fn with(octets: u64) -> (Play, Arc<Budget>) {
        let budget = Budget::new(octets);
        let play = Play::new(&config::Config::default()).unwrap();
        (Play { memory: Some(budget.clone()), ..play }, budget)
    }
    /// Octets of the frames of one receiver.
    fn one() -> u64 {
        let (play, budget) = with(u64::MAX);
        let session = play.open(&receiver(0), &sdp(port())).unwrap();
        let taken = budget.taken();
        assert!(taken > 64 * 36 * 2, "of several frames: {taken}");
        drop(session);
        assert_eq!(budget.taken(), 0, "it gives back what it had");
        taken
    }
    fn why<T>(refused: Result<T>) -> String {
        refused.map(drop).unwrap_err().to_string()
    }

    #[test]
    fn of_receivers_that_open_at_once_those_that_fit_do() {
        let one = one();
        let (play, budget) = with(one * 5 / 2);
        let ports: Vec<u16> = (0..8).map(|_| port()).collect();
        let (begin, tried) = (Barrier::new(ports.len()), Barrier::new(ports.len()));
        let open = |id: usize, port: u16| {
            begin.wait();
            let opened = play.open(&receiver(id), &sdp(port));
            // What is open stays so until all have tried.
            tried.wait();
            let taken = budget.taken();
            tried.wait();
            (taken, opened.map(drop).map_err(|error| error.to_string()))
        };
        let open = &open;
        let opened: Vec<_> = thread::scope(|scope| {
            let all: Vec<_> = ports.iter().enumerate().map(|(id, port)| scope.spawn(move || open(id, *port))).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(opened.iter().all(|(taken, _)| *taken == 2 * one), "{opened:?}");
        let refused: Vec<_> = opened.iter().filter_map(|(_, opened)| opened.as_ref().err()).collect();
        assert_eq!(refused.len(), 6, "{refused:?}");
        assert!(refused.iter().all(|why| why.contains("limits.memory leaves")), "{refused:?}");
        // Those that are closed make room.
        assert_eq!(budget.taken(), 0);
        assert!(play.open(&receiver(9), &sdp(ports[0])).is_ok());
    }

    #[test]
    fn a_switch_needs_room_for_both_flows() {
        let one = one();
        let (a, b, c) = (port(), port(), port());
        let (play, budget) = with(one * 2 - 1);
        let mut session = play.open(&receiver(0), &sdp(a)).unwrap();
        let error = why(session.switch(&sdp(b)));
        assert!(error.contains("limits.memory leaves"), "{error}");
        assert_eq!(budget.taken(), one, "the flow before goes on");
        // Where it is left first there is room.
        assert!(matches!(session.switch(&sdp(a)), Ok(daemon::Begun::Done(_))));
        assert_eq!(budget.taken(), one);
        session.close().unwrap();
        assert_eq!(budget.taken(), 0);

        let (play, budget) = with(one * 2);
        let mut session = play.open(&receiver(0), &sdp(a)).unwrap();
        assert!(matches!(session.switch(&sdp(b)), Ok(daemon::Begun::Beside)));
        assert_eq!(budget.taken(), 2 * one);
        assert!(why(play.open(&receiver(1), &sdp(c))).contains("limits.memory leaves"));
        // One that was to come is given up for another.
        assert!(matches!(session.switch(&sdp(c)), Ok(daemon::Begun::Beside)));
        assert_eq!(budget.taken(), 2 * one);
        // No frame comes: after its time it is taken all the same, and the flow before has ended.
        thread::sleep(Duration::from_millis(2));
        assert!(matches!(session.look().switch, Some(Switched::Done(_))));
        assert_eq!(budget.taken(), one);
        drop(session);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn what_the_configuration_limits() {
        let limits = config::Limits { memory: 10, ..config::Limits::default() };
        let play = Play::new(&config::Config { limits, ..config::Config::default() }).unwrap();
        assert!(play.given().memory.is_some() && play.given().seats.is_some());
        let play = Play::new(&config::Config::default()).unwrap();
        assert!(play.given().memory.is_none());
        let limits = config::Limits { workers: 1, cores: vec![100_000], ..config::Limits::default() };
        assert!(Play::new(&config::Config { limits, ..config::Config::default() }).is_err());
    }

    #[test]
    fn interfaces_are_known_by_their_addresses() {
        assert_eq!(names(&["127.0.0.1".into(), "eth7".into(), "192.0.2.9".into()]), ["lo", "eth7", "192.0.2.9"]);
    }
}
