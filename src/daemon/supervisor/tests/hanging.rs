//! Receivers that take long, and what others have of it.

use super::*;
use std::os::unix::net::UnixDatagram;

fn rig(config: &str, script: &[(&str, &[Act])], ids: &[&str], patience: Patience, notifier: Notifier) -> Rig {
    let files: Vec<_> = ids.iter().map(|id| (format!("{id}.sdp"), sdp(id))).collect();
    let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    Rig::start_with(tempfile::tempdir().unwrap(), config, script, &files, patience, notifier)
}

#[test]
fn a_loop_that_hangs_while_it_is_closed_is_seen() {
    let patience = Patience { stuck: Duration::from_millis(300), ..Patience::default() };
    let rig = rig(&receiver("a"), &[("a", &[Act::HangAtClosing])], &["a"], patience, Notifier::default());
    rig.receives("a", "a");
    let reply = rig.daemon.act("a", Action::Stop);
    let closing = rig.until("a", |r| r.reason.as_ref().is_some_and(|why| why.contains("being stopped")));
    assert!(closing.flow.is_none() && closing.state == State::Receiving, "{closing:?}");
    wait("somebody sees it", || !rig.daemon.overview().alive);
    rig.stage.release();
    assert_eq!(reply.blocking_recv().unwrap(), Ok(()));
    let stopped = rig.until("a", |r| r.state == State::Stopped);
    assert_eq!(stopped.reason.as_deref(), Some("it was told to stop"));
    wait("all is well", || rig.daemon.overview().alive);
}

#[test]
fn a_receiver_that_is_begun_anew_is_never_seen_stopped() {
    let rig = rig(&receiver("a"), &[("a", &[Act::HangAtClosing])], &["a"], Patience::default(), Notifier::default());
    rig.receives("a", "a");
    let reply = rig.begin_reload(&(receiver("a") + "timing = true\n"));
    let closing = rig.until("a", |r| r.reason.as_ref().is_some_and(|why| why.contains("begun anew")));
    assert_eq!(closing.state, State::Starting);
    rig.stage.release();
    assert_eq!(reply.blocking_recv().unwrap().unwrap().changed, ["a"]);
    rig.receives("a", "a");
    assert_eq!(
        (rig.told("a", "stopped"), rig.log()),
        (0, ["a opened a", "a closed a", "a opened a"].map(Into::into).to_vec())
    );
}

#[test]
fn a_switch_that_goes_on_is_not_disturbed_by_one_that_cannot_be() {
    let script: &[(&str, &[Act])] = &[
        ("held", &[Act::Hold]),
        ("came", &[Act::Hold]),
        ("late", &[Act::Hold]),
        ("no", &[Act::Refuse(Kind::Unavailable)]),
    ];
    let rig = rig(&receiver("a"), script, &["a"], Patience::default(), Notifier::default());
    rig.receives("a", "a");
    let beside = |count| wait("it is received beside", || rig.told("a", "another flow is received beside") == count);
    let begin = |name: &str| rig.daemon.act("a", Action::Switch { sdp: sdp(name) });
    let first = begin("held");
    beside(1);
    assert!(matches!(rig.act("a", Action::Switch { sdp: "v=0".into() }), Err(Refusal::Invalid(_))));
    assert_eq!(rig.switch("a", "audio"), Err(Refusal::Invalid("no video".into())));
    // By the configuration as well.
    rig.write("a.sdp", "v=0");
    rig.reload(&receiver("a")).unwrap();
    rig.stage.release();
    assert_eq!(first.blocking_recv().unwrap(), Ok(()));
    rig.receives("a", "held");
    let is = |name: &str| {
        let receiver = rig.daemon.receiver("a").unwrap();
        assert_eq!(receiver.sdp.as_deref(), Some(sdp(name).as_str()));
        assert!(rig.keeps("a").unwrap().contains(&format!("s={name}")));
        receiver.switches
    };
    assert_eq!(is("held"), 1);
    // What has taken the place of the flow before has, even if nobody has looked since.
    rig.stage.released.store(false, Ordering::Release);
    let came = begin("came");
    beside(2);
    assert_eq!(rig.switch("a", "no"), Err(Refusal::Unavailable("no no".into())));
    assert_eq!(came.blocking_recv().unwrap(), Ok(()));
    rig.receives("a", "came");
    assert_eq!(is("came"), 2);
    // One that has not is given up.
    let late = begin("late");
    beside(3);
    assert_eq!(rig.switch("a", "two"), Ok(()));
    assert!(matches!(late.blocking_recv().unwrap(), Err(Refusal::Unavailable(why)) if why.contains("another switch")));
    rig.receives("a", "two");
    assert_eq!(is("two"), 3);
}

#[test]
fn a_configuration_that_takes_long_holds_up_nobody() {
    let script: &[(&str, &[Act])] = &[("b", &[Act::HangAtClosing])];
    let config = ["a", "b", "c"].map(receiver).concat();
    let rig = rig(&config, script, &["a", "b", "c"], Patience::default(), Notifier::default());
    ["a", "b", "c"].iter().for_each(|id| rig.receives(id, id));
    rig.switch("b", "two").unwrap();
    assert!(rig.keeps("b").is_some());
    let mut first = rig.begin_reload(&["a", "c"].map(receiver).concat());
    rig.until("b", |r| r.reason.is_some());
    let mut second = rig.daemon.reload();
    assert_eq!(rig.act("a", Action::Stop), Ok(()));
    assert_eq!(rig.switch("c", "three"), Ok(()));
    assert!(first.try_recv().is_err() && second.try_recv().is_err(), "it hangs");
    assert!(rig.daemon.receiver("b").is_some());
    rig.stage.release();
    let done = first.blocking_recv().unwrap().unwrap();
    assert_eq!((done.removed, done.unchanged), (vec!["b".to_owned()], vec!["a".to_owned(), "c".into()]));
    let done = second.blocking_recv().unwrap().unwrap();
    assert_eq!((done.removed, done.unchanged), (vec![], vec!["a".to_owned(), "c".into()]));
    assert!(rig.daemon.receiver("b").is_none() && rig.keeps("b").is_none());
    // The end comes at once as well.
    assert_eq!(rig.daemon.stop(), Vec::<String>::new());
}

#[test]
fn the_end_does_not_wait_for_a_configuration() {
    let script: &[(&str, &[Act])] = &[("a", &[Act::HangAtClosing]), ("b", &[Act::HangAtClosing])];
    let config = "[daemon]\nstop_timeout = \"100ms\"\n".to_owned() + &["a", "b"].map(receiver).concat();
    let rig = rig(&config, script, &["a", "b"], Patience::default(), Notifier::default());
    ["a", "b"].iter().for_each(|id| rig.receives(id, id));
    // A minute for the answer of b.
    let reply = rig.begin_reload(&(config.clone() + "timing = true\n"));
    rig.until("b", |r| r.reason.is_some());
    let mut late = rig.daemon.stop();
    late.sort();
    assert_eq!(late, ["a", "b"]);
    assert!(reply.blocking_recv().is_err(), "the daemon ends");
    rig.stage.release();
}

#[test]
fn who_does_not_answer_is_said_and_comes_back_as_no_ghost() {
    let script: &[(&str, &[Act])] = &[("a", &[Act::HangAtClosing]), ("b", &[Act::HangAtClosing])];
    let patience = Patience { answer: Duration::from_millis(100), ..Patience::default() };
    let config = "[daemon]\nstop_timeout = \"100ms\"\n".to_owned() + &receiver("a");
    let rig = rig(&(config.clone() + &receiver("b")), script, &["a", "b"], patience, Notifier::default());
    ["a", "b"].iter().for_each(|id| rig.receives(id, id));
    let done = rig.reload(&(config + "timing = true\n")).unwrap();
    assert_eq!((done.removed, done.unanswered), (vec!["b".to_owned()], vec!["a".to_owned()]));
    assert!(done.changed.is_empty() && done.unchanged.is_empty());
    assert_eq!(rig.told("b", "it does not end"), 1);
    assert!(rig.daemon.history().iter().any(|e| e.message.ends_with("; no answer yet of a")));
    rig.stage.release();
    wait("b ends", || rig.told("b", "stopped: it is not in the configuration any more") == 1);
    rig.receives("a", "a");
    for _ in 0..50 {
        assert!(rig.daemon.receiver("b").is_none());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_receiver_that_is_long_in_opening_holds_up_no_other() {
    let script: &[(&str, &[Act])] = &[("a", &[Act::HangAtOpening])];
    let config = ["a", "b"].map(receiver).concat();
    let patience = Patience { first: Duration::from_millis(100), ..Patience::default() };
    let rig = rig(&config, script, &["a", "b"], patience, Notifier::default());
    wait("ready", || rig.daemon.overview().ready);
    assert_eq!(rig.told("a", "it has not been opened within"), 1);
    assert_eq!(rig.daemon.receiver("a").unwrap().state, State::Starting);
    rig.stage.release();
    ["a", "b"].iter().for_each(|id| rig.receives(id, id));
}

#[test]
fn a_configuration_that_is_read_before_all_is_ready_says_nothing_of_being_ready() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let (all, over) = (heard.clone(), Arc::new(AtomicBool::new(false)));
    let ended = over.clone();
    let reader = std::thread::spawn(move || {
        let mut octets = [0; 512];
        while !ended.load(Ordering::Acquire) {
            if let Ok(n) = socket.recv(&mut octets) {
                all.lock().unwrap().push(String::from_utf8_lossy(&octets[..n]).into_owned());
            }
        }
    });
    let hears = |word: &str| heard.lock().unwrap().iter().filter(|text| text.starts_with(word)).count();
    let script: &[(&str, &[Act])] = &[("a", &[Act::HangAtOpening])];
    let patience = Patience { answer: Duration::from_millis(50), ..Patience::default() };
    let notifier = Notifier::of(Some(path.as_os_str()), None, None).unwrap();
    let rig = rig(&receiver("a"), script, &["a"], patience, notifier);
    assert_eq!(rig.reload(&receiver("a")).unwrap().unanswered, ["a"]);
    // Whatever was sent before this has been heard by then.
    rig.reload("[[receivers]]\nid = \"a\"\nlable = \"x\"\n").unwrap_err();
    rig.stage.release();
    wait("ready", || hears("READY=1") == 1);
    assert_eq!((hears("RELOADING=1"), rig.daemon.overview().ready), (0, true));
    rig.receives("a", "a");
    rig.reload(&receiver("a")).unwrap();
    wait("ready again", || hears("RELOADING=1") == 1 && hears("READY=1") == 2);
    rig.daemon.stop();
    wait("the end", || hears("STOPPING=1") == 1);
    // 30 s of the configuration, and 10.
    wait("more time", || hears("EXTEND_TIMEOUT_USEC=40000000") == 1);
    over.store(true, Ordering::Release);
    reader.join().unwrap();
}
