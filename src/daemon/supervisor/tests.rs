//! The supervisor with receivers that do what a test tells them.

use super::super::{Begun, Connection, Look, Session, Shown, Switched};
use super::*;
use crate::worker::Beats;
use std::collections::VecDeque;
use std::fs;
use std::path::Path;

/// An SDP of this name.
fn sdp(name: &str) -> String {
    format!(
        "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns={name}\r\nt=0 0\r\nm=video 5004 RTP/AVP 96\r\nc=IN IP4 239.1.1.1/8\r\n\
         a=rtpmap:96 raw/90000\r\na=fmtp:96 sampling=YCbCr-4:2:2; width=64; height=32; exactframerate=25; depth=10; \
         TCS=SDR; colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN\r\n\
         a=ts-refclk:localmac=40-A3-6B-A0-2B-D2\r\na=mediaclk:direct=0\r\n"
    )
}

/// What happens to a receiver; the name of its SDP says it.
#[derive(Default)]
struct Stage {
    /// Opened and closed, in order: id and name of the SDP.
    log: Mutex<Vec<String>>,
    /// What openings of an SDP of this name do, one after the other; none: it goes well.
    script: Mutex<BTreeMap<String, VecDeque<Act>>>,
    /// Whoever hangs goes on.
    released: AtomicBool,
}

#[derive(Clone, Copy)]
enum Act {
    Refuse(Kind),
    PanicAtOpening,
    PanicAtLook,
    EndAtLook,
    /// Until it is released.
    HangAtOpening,
    HangAtClosing,
    /// Of a switch: it goes on until it is released.
    Hold,
}

fn name(sdp: &str) -> String {
    sdp.lines().find_map(|line| line.strip_prefix("s=")).unwrap_or_default().to_owned()
}

struct Actor {
    id: String,
    name: String,
    frames: u64,
    act: Option<Act>,
    /// Another one that it goes to; it waits for its release.
    next: Option<(String, bool)>,
    beats: Beats,
    stage: Arc<Stage>,
}

struct Theatre(Arc<Stage>);

impl Stage {
    fn note(&self, text: String) {
        self.log.lock().unwrap().push(text);
    }
    fn act(&self, name: &str) -> Option<Act> {
        self.script.lock().unwrap().get_mut(name).and_then(VecDeque::pop_front)
    }
    fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }
    fn release(&self) {
        self.released.store(true, Ordering::Release);
    }
    /// The bound is that of a test that hangs.
    fn hang(&self) {
        wait("the release", || self.is_released());
    }
}

fn wait(what: &str, is: impl Fn() -> bool) {
    for _ in 0..6000 {
        if is() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}");
}

impl Opener for Theatre {
    fn open(&self, receiver: &config::Receiver, sdp: &str) -> Result<Box<dyn Session>> {
        let (name, id) = (name(sdp), receiver.id.clone());
        let act = self.0.act(&name);
        match act {
            Some(Act::Refuse(kind)) => {
                self.0.note(format!("{id} refused {name}"));
                return Err(Error::new(kind, format!("no {name}")).cure("try another"));
            }
            Some(Act::PanicAtOpening) => panic!("on purpose"),
            Some(Act::HangAtOpening) => self.0.hang(),
            _ => {}
        }
        let on = receiver.interfaces.iter().map(|interface| format!(" {interface}")).collect::<String>();
        self.0.note(format!("{id} opened {name}{on}"));
        Ok(Box::new(Actor { id, name, frames: 0, act, next: None, beats: Beats::default(), stage: self.0.clone() }))
    }
}

impl Session for Actor {
    fn look(&mut self) -> Look {
        let mut look = Look::default();
        match self.act {
            Some(Act::PanicAtLook) => panic!("on purpose"),
            Some(Act::EndAtLook) => look.ended = Some(Error::new(Kind::Unavailable, "the cable was pulled")),
            _ => {}
        }
        self.frames += 1;
        self.beats.beat();
        if let Some((next, _)) = self.next.take_if(|(_, held)| !*held || self.stage.is_released()) {
            self.name = next;
            look.switch = Some(Switched::Done(format!("switched to {}", self.name)));
        }
        look.frames = self.frames;
        look
    }
    fn show(&mut self) -> Shown {
        Shown {
            flow: serde_json::json!({ "name": self.name }),
            backend: "socket".into(),
            processor: "cpu".into(),
            placement: None,
            status: None,
            health: None,
            report: Arc::default(),
            latency: Vec::new(),
            timing: Vec::new(),
            ptp: None,
            cards: Vec::new(),
            gpu_memory: None,
            sinks: Vec::new(),
            preview: None,
        }
    }
    fn why_nothing(&mut self) -> Error {
        Error::new(Kind::NoMedia, "nothing")
    }
    fn check(&self, sdp: &str) -> Result<()> {
        match name(sdp).starts_with("audio") {
            true => Err(Error::new(Kind::Usage, "no video")),
            false => Ok(()),
        }
    }
    fn give_up(&mut self) -> bool {
        let Some((next, _)) = self.next.take() else { return false };
        let came = next.starts_with("came");
        if came {
            self.name = next;
        }
        came
    }
    fn switch(&mut self, sdp: &str) -> Result<Begun> {
        let name = name(sdp);
        if name.starts_with("apart") {
            return Ok(Begun::Apart("one port".into()));
        }
        match self.stage.act(&name) {
            Some(Act::Refuse(kind)) => Err(Error::new(kind, format!("no {name}"))),
            act => {
                self.stage.note(format!("{} switches to {name}", self.id));
                self.next = Some((name, matches!(act, Some(Act::Hold))));
                Ok(Begun::Beside)
            }
        }
    }
    fn close(&mut self) -> Result<()> {
        if let Some(Act::HangAtClosing) = self.act {
            self.stage.hang();
        }
        self.beats.end();
        self.stage.note(format!("{} closed {}", self.id, self.name));
        Ok(())
    }
    fn beats(&self) -> Option<Beats> {
        Some(self.beats.clone())
    }
}

struct Rig {
    daemon: Daemon,
    stage: Arc<Stage>,
    folder: tempfile::TempDir,
}

impl Rig {
    fn start(config: &str, script: &[(&str, &[Act])], files: &[(&str, &str)]) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        Rig::start_in(folder, config, script, files)
    }
    fn start_in(folder: tempfile::TempDir, config: &str, script: &[(&str, &[Act])], files: &[(&str, &str)]) -> Rig {
        Rig::start_with(folder, config, script, files, Patience::default(), Notifier::default())
    }
    fn start_with(
        folder: tempfile::TempDir,
        config: &str,
        script: &[(&str, &[Act])],
        files: &[(&str, &str)],
        patience: Patience,
        notifier: Notifier,
    ) -> Rig {
        for (file, text) in files {
            fs::write(folder.path().join(file), text).unwrap();
        }
        let path = folder.path().join("gdmedia.toml");
        fs::write(&path, config).unwrap();
        let stage = Arc::new(Stage::default());
        for (name, acts) in script {
            stage.script.lock().unwrap().insert((*name).into(), acts.iter().copied().collect());
        }
        let options = Options {
            opener: Arc::new(Theatre(stage.clone())),
            load: Box::new(move || config::load(&path, [])),
            say: None,
            resume: true,
            state: Some(folder.path().join("state")),
            notifier,
        };
        Rig { daemon: Daemon::start_with(options, patience).unwrap(), stage, folder }
    }
    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }
    fn log(&self) -> Vec<String> {
        self.stage.log.lock().unwrap().clone()
    }
    /// Ends it, and starts another one in the same folder.
    fn again(self, config: &str, script: &[(&str, &[Act])]) -> Rig {
        self.daemon.stop();
        Rig::start_in(self.folder, config, script, &[])
    }
    /// Is something kept of this receiver?
    fn keeps(&self, id: &str) -> Option<String> {
        fs::read_to_string(self.folder.path().join(format!("state/{id}.json"))).ok()
    }
    /// Events of a receiver that begin so.
    fn told(&self, id: &str, message: &str) -> usize {
        let all = self.daemon.history();
        all.iter().filter(|e| e.receiver.as_deref() == Some(id) && e.message.starts_with(message)).count()
    }
    /// Waits until a receiver is so; the bound is that of a test that hangs.
    fn until(&self, id: &str, is: impl Fn(&Receiver) -> bool) -> Arc<Receiver> {
        for _ in 0..3000 {
            if let Some(receiver) = self.daemon.receiver(id).filter(|receiver| is(receiver)) {
                return receiver;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{id}: {:?}\n{:?}", self.daemon.receiver(id), self.daemon.history());
    }
    fn receives(&self, id: &str, name: &str) {
        self.until(id, |r| r.state == State::Receiving && r.flow.as_ref().is_some_and(|flow| flow["name"] == name));
    }
    fn act(&self, id: &str, action: Action) -> std::result::Result<(), Refusal> {
        self.daemon.act(id, action).blocking_recv().unwrap()
    }
    fn switch(&self, id: &str, name: &str) -> std::result::Result<(), Refusal> {
        self.act(id, Action::Switch { sdp: sdp(name) })
    }
    fn reload(&self, config: &str) -> std::result::Result<Reloaded, Refusal> {
        self.begin_reload(config).blocking_recv().unwrap()
    }
    fn begin_reload(&self, config: &str) -> Reply<Reloaded> {
        self.write("gdmedia.toml", config);
        self.daemon.reload()
    }
}

mod hanging;
mod remembered;

fn receiver(id: &str) -> String {
    format!("[[receivers]]\nid = \"{id}\"\nsdp = \"{id}.sdp\"\n")
}

#[test]
fn one_that_fails_or_panics_is_tried_again_and_takes_no_other_down() {
    let config = ["a", "b", "c", "d", "e"].map(receiver).concat() + "[[receivers]]\nid = \"f\"\n";
    let files = ["a", "b", "c", "d"].map(|id| (format!("{id}.sdp"), sdp(id)));
    let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let script: &[(&str, &[Act])] = &[
        ("b", &[Act::PanicAtOpening, Act::PanicAtLook]),
        ("c", &[Act::Refuse(Kind::Usage)]),
        ("d", &[Act::Refuse(Kind::Unavailable), Act::EndAtLook]),
    ];
    let rig = Rig::start(&config, script, &files);
    rig.receives("a", "a");
    let failed = rig.until("c", |r| r.state == State::Failed);
    assert_eq!(failed.reason.as_deref(), Some("no c (try another)"));
    let missing = rig.until("e", |r| r.state == State::Retrying);
    assert!(missing.reason.as_ref().unwrap().contains("e.sdp"), "{missing:?}");
    assert_eq!(rig.until("f", |r| r.state == State::Stopped).reason.as_deref(), Some("it has no SDP"));
    rig.write("e.sdp", &sdp("e"));
    for id in ["b", "d", "e"] {
        rig.receives(id, id);
    }
    assert_eq!(rig.daemon.receiver("b").unwrap().restarts, 2);
    assert_eq!(rig.daemon.receiver("a").unwrap().restarts, 0);
    assert!(rig.daemon.overview().ready && rig.daemon.overview().generation == 1);
    assert_eq!(rig.daemon.stop(), Vec::<String>::new());
    let log = rig.log();
    assert_eq!(log.iter().filter(|line| line.starts_with("a ")).collect::<Vec<_>>(), ["a opened a", "a closed a"]);
    assert!(log.contains(&"d closed d".into()) && log.contains(&"e closed e".into()));
    // The one that panicked at a look, and the one after.
    assert_eq!(log.iter().filter(|line| *line == "b closed b").count(), 2);
}

#[test]
fn what_a_receiver_is_told() {
    let rig = Rig::start(
        &(receiver("a") + "[[receivers]]\nid = \"b\"\nenabled = false\nsdp = \"a.sdp\"\n"),
        &[("no", &[Act::Refuse(Kind::Unavailable)])],
        &[("a.sdp", &sdp("a"))],
    );
    rig.receives("a", "a");
    assert_eq!(rig.act("x", Action::Start), Err(Refusal::Unknown));
    rig.until("b", |r| r.state == State::Stopped);
    assert_eq!(rig.act("b", Action::Start), Ok(()));
    rig.receives("b", "a");
    assert_eq!(rig.act("b", Action::Stop), Ok(()));
    rig.until("b", |r| r.state == State::Stopped && r.flow.is_none());
    // The same is nothing to do.
    assert_eq!(rig.switch("a", "a"), Ok(()));
    assert_eq!(rig.daemon.receiver("a").unwrap().switches, 0);
    // Beside, refused, unusable, apart, and from nothing.
    assert_eq!(rig.switch("a", "two"), Ok(()));
    rig.receives("a", "two");
    assert_eq!(rig.switch("a", "no"), Err(Refusal::Unavailable("no no".into())));
    assert!(matches!(rig.act("a", Action::Switch { sdp: "v=0".into() }), Err(Refusal::Invalid(_))));
    rig.receives("a", "two");
    assert_eq!(rig.switch("a", "apart"), Ok(()));
    rig.receives("a", "apart");
    assert_eq!(rig.switch("b", "three"), Ok(()));
    rig.receives("b", "three");
    assert_eq!((rig.daemon.receiver("a").unwrap().switches, rig.daemon.receiver("b").unwrap().switches), (2, 1));
    let switches = rig.daemon.history().iter().filter(|e| e.kind == EventKind::Switch).count();
    assert!(switches >= 4);
}

#[test]
fn a_controller_connects_and_releases_and_all_of_it_is_kept() {
    let config = "[[receivers]]\nid = \"a\"\ninterfaces = [\"x\", \"y\"]\nbackend = [\"socket\", \"xdp\"]\n";
    let rig = Rig::start(config, &[("no", &[Act::Refuse(Kind::Unavailable)])], &[]);
    rig.until("a", |r| r.state == State::Stopped && r.side.legs == 2 && r.side.interfaces == ["x", "y"]);
    let connect = |rig: &Rig, name: &str, legs: &[usize], enabled: bool| {
        let (sdp, note) = (sdp(name), format!("note of {name}"));
        rig.act("a", Action::Connect(Box::new(Connection { enabled, sdp, legs: legs.to_vec(), note })))
    };
    let note = |rig: &Rig| rig.daemon.receiver("a").unwrap().side.note.clone();
    connect(&rig, "one", &[0, 1], true).unwrap();
    // Whoever is answered sees it.
    assert_eq!(note(&rig).as_deref(), Some("note of one"));
    rig.receives("a", "one");
    // The same again is joined anew.
    connect(&rig, "one", &[0, 1], true).unwrap();
    assert_eq!(connect(&rig, "no", &[0, 1], true), Err(Refusal::Unavailable("no no".into())));
    assert_eq!(note(&rig).as_deref(), Some("note of one"), "nothing has changed");
    // The second leg alone is received where that is.
    connect(&rig, "two", &[1], true).unwrap();
    rig.receives("a", "two");
    connect(&rig, "two", &[1], false).unwrap();
    assert_eq!(rig.daemon.receiver("a").unwrap().state, State::Stopped);
    let log = ["a opened one x y", "a switches to one", "a closed one", "a opened two y", "a closed two"];
    assert_eq!(rig.log(), log);
    let again = |rig: Rig| rig.again(config, &[]);
    let rig = again(rig);
    let off = rig.until("a", |r| r.state == State::Stopped && r.side.note.is_some());
    assert_eq!(off.reason.as_deref(), Some("its controller released it"));
    assert_eq!(rig.log(), Vec::<String>::new());
    rig.act("a", Action::Start).unwrap();
    rig.receives("a", "two");
    let rig = again(rig);
    rig.receives("a", "two");
    assert_eq!((rig.log(), note(&rig).as_deref()), (vec!["a opened two y".to_owned()], Some("note of two")));
    // Who says nothing but an SDP is no controller.
    rig.switch("a", "three").unwrap();
    rig.receives("a", "three");
    assert_eq!(note(&rig), None);
    let rig = again(rig);
    rig.receives("a", "three");
}

#[test]
fn a_controller_may_connect_what_has_no_sdp_yet() {
    let config = "[[receivers]]\nid = \"a\"\n";
    let rig = Rig::start(config, &[], &[]);
    let connect = |rig: &Rig, sdp: String, legs: &[usize]| {
        let note = format!("note of {}", name(&sdp));
        rig.act("a", Action::Connect(Box::new(Connection { enabled: true, sdp, legs: legs.to_vec(), note })))
    };
    let waits = |rig: &Rig| {
        let now = rig.until("a", |r| r.side.note.is_some());
        assert_eq!((now.state, now.reason.as_deref()), (State::Stopped, Some("it has no SDP")));
        assert_eq!((now.sdp.clone(), now.side.note.as_deref()), (None, Some("note of ")));
        assert_eq!(rig.log(), Vec::<String>::new());
    };
    connect(&rig, String::new(), &[]).unwrap();
    waits(&rig);
    let again = |rig: Rig| {
        rig.daemon.stop();
        Rig::start_in(rig.folder, config, &[], &[])
    };
    let rig = again(rig);
    waits(&rig);
    // Nobody can start it.
    assert!(matches!(rig.act("a", Action::Start), Err(Refusal::Unavailable(_))));

    // One interface has both legs of an SDP, and they stay.
    let medium = sdp("duo").replace("239.1.1.1", "239.1.1.2").replace("5004", "5006");
    let duo = sdp("duo").replace("t=0 0\r\n", "t=0 0\r\na=group:DUP a b\r\n")
        + "a=mid:a\r\n"
        + &medium[medium.find("m=video").unwrap()..]
        + "a=mid:b\r\n";
    let legs = |rig: &Rig| rig.daemon.receiver("a").unwrap().side.legs;
    assert_eq!(legs(&rig), 1);
    rig.act("a", Action::Switch { sdp: duo }).unwrap();
    assert_eq!(legs(&rig), 2);
    connect(&rig, sdp("one"), &[0]).unwrap();
    assert_eq!(legs(&rig), 2);
    let rig = again(rig);
    rig.receives("a", "one");
    assert_eq!(legs(&rig), 2, "what its controller said is of two legs");
}

#[test]
fn an_sdp_apart_that_cannot_be_opened_brings_the_one_before_back() {
    let script: &[(&str, &[Act])] = &[("apart", &[Act::Refuse(Kind::Unavailable)])];
    let rig = Rig::start(&receiver("a"), script, &[("a.sdp", &sdp("a"))]);
    rig.receives("a", "a");
    assert_eq!(rig.switch("a", "apart"), Err(Refusal::Unavailable("no apart (try another)".into())));
    rig.receives("a", "a");
    assert_eq!(rig.log(), ["a opened a", "a closed a", "a refused apart", "a opened a"]);
}

#[test]
fn a_reload_touches_what_changed_alone() {
    let ids = ["a", "b", "c", "d"];
    let files = ids.map(|id| (format!("{id}.sdp"), sdp(id)));
    let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let rig = Rig::start(&ids.map(receiver).concat(), &[], &files);
    ids.iter().for_each(|id| rig.receives(id, id));
    let before = rig.log().len();
    assert_eq!(rig.reload(&ids.map(receiver).concat()).unwrap().unchanged, ids);
    assert_eq!(rig.log().len(), before, "nothing was touched");
    // A bad file changes nothing and says why.
    let refused = rig.reload(&(receiver("a") + "lable = \"x\"\n")).unwrap_err();
    assert!(
        matches!(&refused, Refusal::Invalid(why) if why.contains("line 4") && why.contains("label")),
        "{refused:?}"
    );
    assert!(rig.daemon.overview().refused.is_some_and(|why| why.contains("did you mean")));
    assert_eq!((rig.log().len(), rig.daemon.overview().generation), (before, 2));
    // b has another SDP, c another option, d is gone, e is new; a has another label.
    rig.write("b.sdp", &sdp("b2"));
    rig.write("e.sdp", &sdp("e"));
    let text =
        format!("{}label = \"A\"\n{}{}timing = true\n{}", receiver("a"), receiver("b"), receiver("c"), receiver("e"));
    let done = rig.reload(&text).unwrap();
    assert_eq!((done.added, done.removed), (vec!["e".to_owned()], vec!["d".to_owned()]));
    assert_eq!((done.changed, done.unchanged), (vec!["b".to_owned(), "c".into()], vec!["a".to_owned()]));
    rig.receives("b", "b2");
    rig.receives("c", "c");
    rig.receives("e", "e");
    rig.until("a", |r| r.label == "A");
    assert!(rig.daemon.receiver("d").is_none());
    let mut log = rig.log().split_off(before);
    log.sort();
    assert_eq!(log, ["b switches to b2", "c closed c", "c opened c", "d closed d", "e opened e"]);
    assert_eq!(rig.daemon.overview().refused, None);
}

#[test]
fn the_last_switch_is_received_again_unless_the_configuration_has_changed() {
    let rig = Rig::start(&receiver("a"), &[], &[("a.sdp", &sdp("a"))]);
    rig.receives("a", "a");
    rig.switch("a", "two").unwrap();
    // What was switched to stays, for the configuration is as it was.
    rig.reload(&receiver("a")).unwrap();
    rig.receives("a", "two");
    rig.daemon.stop();
    let Rig { folder, .. } = rig;
    let rig = Rig::start_in(folder, &receiver("a"), &[], &[]);
    rig.receives("a", "two");
    assert_eq!(rig.log(), ["a opened two"]);
    // A new SDP of the configuration is newer.
    rig.write("a.sdp", &sdp("three"));
    rig.reload(&receiver("a")).unwrap();
    rig.receives("a", "three");
    rig.daemon.stop();
    let Rig { folder, .. } = rig;
    assert!(!Path::new(&folder.path().join("state/a.json")).exists());
    let rig = Rig::start_in(folder, &receiver("a"), &[], &[]);
    rig.receives("a", "three");
}
