//! What receivers were told, the configuration, and which of them counts.

use super::*;

const NOT_ENABLED: &str = "enabled = false\n";

#[test]
fn a_stop_is_kept_until_a_start_or_another_enabled() {
    let rig = Rig::start(&receiver("a"), &[], &[("a.sdp", &sdp("a"))]);
    let is_stopped = |rig: &Rig| {
        let stopped = rig.until("a", |r| r.state == State::Stopped);
        assert_eq!(stopped.reason.as_deref(), Some("it was told to stop"));
    };
    rig.receives("a", "a");
    rig.act("a", Action::Stop).unwrap();
    is_stopped(&rig);
    // Another option is no start.
    let timing = receiver("a") + "timing = true\n";
    rig.reload(&timing).unwrap();
    is_stopped(&rig);
    let rig = rig.again(&timing, &[]);
    is_stopped(&rig);
    assert_eq!(rig.log(), Vec::<String>::new());
    rig.act("a", Action::Start).unwrap();
    rig.receives("a", "a");
    assert_eq!(rig.keeps("a"), None);
    // Whoever changes `enabled` has the last word, by a reload and while nothing ran.
    rig.act("a", Action::Stop).unwrap();
    let disabled = receiver("a") + NOT_ENABLED;
    rig.reload(&disabled).unwrap();
    rig.until("a", |r| r.reason.as_deref() == Some("it is not enabled in the configuration"));
    assert_eq!(rig.keeps("a"), None);
    rig.reload(&receiver("a")).unwrap();
    rig.receives("a", "a");
    rig.act("a", Action::Stop).unwrap();
    let rig = rig.again(&disabled, &[]);
    rig.until("a", |r| r.reason.as_deref() == Some("it is not enabled in the configuration"));
    // Nor does the stop come back.
    rig.reload(&receiver("a")).unwrap();
    rig.receives("a", "a");
    let rig = rig.again(&receiver("a"), &[]);
    rig.receives("a", "a");
}

#[test]
fn what_a_controller_connected_is_stopped_and_started_by_hand_as_well() {
    let rig = Rig::start(&receiver("a"), &[], &[("a.sdp", &sdp("a"))]);
    rig.receives("a", "a");
    let connects = |to: &str| {
        Action::Connect(Box::new(Connection { enabled: true, sdp: sdp(to), legs: vec![0], note: "note".into() }))
    };
    rig.act("a", connects("two")).unwrap();
    rig.receives("a", "two");
    // A stop outlives what the controller said.
    rig.act("a", Action::Stop).unwrap();
    assert_eq!(rig.act("a", Action::Follow), Ok(()));
    let stopped = rig.daemon.receiver("a").unwrap();
    assert_eq!((stopped.state, stopped.reason.as_deref()), (State::Stopped, Some("it was told to stop")));
    let rig = rig.again(&receiver("a"), &[]);
    rig.until("a", |r| r.state == State::Stopped);
    // Whoever connects it has the last word.
    rig.act("a", connects("three")).unwrap();
    rig.receives("a", "three");
    let rig = rig.again(&receiver("a"), &[]);
    rig.receives("a", "three");
}

#[test]
fn a_switch_to_what_is_received_already_is_one() {
    let config = receiver("a") + NOT_ENABLED;
    let rig = Rig::start(&config, &[], &[("a.sdp", &sdp("a"))]);
    let connection = Connection { enabled: true, sdp: sdp("two"), legs: vec![0], note: "note".into() };
    rig.act("a", Action::Connect(Box::new(connection))).unwrap();
    rig.receives("a", "two");
    rig.switch("a", "two").unwrap();
    rig.reload(&(config.clone() + "timing = true\n")).unwrap();
    rig.receives("a", "two");
    let rig = rig.again(&config, &[]);
    rig.receives("a", "two");
}

#[test]
fn a_stop_of_what_has_no_sdp_does_not_keep_one_from_being_received() {
    let rig = Rig::start("[[receivers]]\nid = \"a\"\n", &[], &[("a.sdp", &sdp("a"))]);
    rig.until("a", |r| r.state == State::Stopped);
    rig.act("a", Action::Stop).unwrap();
    assert_eq!(rig.keeps("a"), None);
    rig.reload(&receiver("a")).unwrap();
    rig.receives("a", "a");
}

#[test]
fn a_start_of_what_is_not_enabled_is_kept_as_well() {
    let config = receiver("a") + NOT_ENABLED;
    let rig = Rig::start(&config, &[], &[("a.sdp", &sdp("a"))]);
    rig.until("a", |r| r.state == State::Stopped);
    rig.act("a", Action::Start).unwrap();
    rig.receives("a", "a");
    let rig = rig.again(&config, &[]);
    rig.receives("a", "a");
    // A switch starts as well.
    rig.act("a", Action::Stop).unwrap();
    assert_eq!(rig.keeps("a"), None);
    rig.switch("a", "two").unwrap();
    let rig = rig.again(&config, &[]);
    rig.receives("a", "two");
}

#[test]
fn back_to_the_configuration() {
    let config = receiver("a") + "[[receivers]]\nid = \"b\"\n";
    let rig = Rig::start(&config, &[], &[("a.sdp", &sdp("a"))]);
    rig.receives("a", "a");
    assert_eq!(rig.act("a", Action::Follow), Ok(()), "it does already");
    rig.switch("a", "two").unwrap();
    assert_eq!(rig.act("a", Action::Follow), Ok(()));
    rig.receives("a", "a");
    assert_eq!((rig.keeps("a"), rig.daemon.receiver("a").unwrap().switches), (None, 2));
    // What is stopped stays so.
    rig.switch("a", "two").unwrap();
    rig.act("a", Action::Stop).unwrap();
    assert_eq!(rig.act("a", Action::Follow), Ok(()));
    let stopped = rig.daemon.receiver("a").unwrap();
    assert_eq!((stopped.state, stopped.sdp.as_deref()), (State::Stopped, Some(sdp("a").as_str())));
    assert!(rig.keeps("a").is_some_and(|kept| !kept.contains("two")), "the stop is");
    rig.act("a", Action::Start).unwrap();
    rig.receives("a", "a");
    // What cannot be had changes nothing.
    rig.switch("a", "two").unwrap();
    fs::remove_file(rig.folder.path().join("a.sdp")).unwrap();
    assert!(matches!(rig.act("a", Action::Follow), Err(Refusal::Unavailable(why)) if why.contains("a.sdp")));
    rig.receives("a", "two");
    assert!(rig.keeps("a").is_some());
    // Where the configuration says nothing there is nothing to receive.
    rig.switch("b", "one").unwrap();
    rig.receives("b", "one");
    assert_eq!(rig.act("b", Action::Follow), Ok(()));
    let stopped = rig.daemon.receiver("b").unwrap();
    assert_eq!((stopped.reason.as_deref(), stopped.sdp.as_deref()), (Some("it has no SDP"), None));
    assert_eq!(rig.keeps("b"), None);
    // What a controller said is forgotten as a whole.
    let released = Connection { enabled: false, sdp: sdp("one"), legs: vec![0], note: "note".into() };
    rig.act("b", Action::Connect(Box::new(released))).unwrap();
    assert_eq!(rig.act("b", Action::Follow), Ok(()));
    assert_eq!((rig.daemon.receiver("b").unwrap().side.note.clone(), rig.keeps("b")), (None, None));
}

#[test]
fn another_text_counts_whatever_else_changes() {
    let rig = Rig::start(&receiver("a"), &[], &[("a.sdp", &sdp("a"))]);
    rig.receives("a", "a");
    rig.switch("a", "two").unwrap();
    // Another option alone leaves the switch as it is.
    rig.reload(&(receiver("a") + "timing = true\n")).unwrap();
    rig.receives("a", "two");
    rig.write("a.sdp", &sdp("three"));
    rig.reload(&receiver("a")).unwrap();
    rig.receives("a", "three");
    assert_eq!(rig.keeps("a"), None);
    // One that is stopped shows it at once.
    rig.switch("a", "two").unwrap();
    rig.act("a", Action::Stop).unwrap();
    rig.write("a.sdp", &sdp("four"));
    rig.reload(&receiver("a")).unwrap();
    rig.until("a", |r| r.sdp.as_deref() == Some(sdp("four").as_str()) && r.state == State::Stopped);
    rig.act("a", Action::Start).unwrap();
    rig.receives("a", "four");
    // And where what it was switched to does not run.
    rig.switch("a", "two").unwrap();
    let rig = rig.again(&receiver("a"), &[("two", &[Act::Refuse(Kind::Usage)])]);
    rig.until("a", |r| r.state == State::Failed);
    rig.write("other.sdp", &sdp("other"));
    rig.reload(&receiver("a").replace("a.sdp", "other.sdp")).unwrap();
    rig.receives("a", "other");
    assert_eq!(rig.keeps("a"), None);
}

#[test]
fn what_is_damaged_is_told() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("state")).unwrap();
    let rig = Rig::start_in(folder, &receiver("a"), &[], &[("a.sdp", &sdp("a")), ("state/a.json", "{ half")]);
    rig.receives("a", "a");
    let told = rig.daemon.history().iter().find(|e| e.message.contains("a.json is ignored")).cloned().unwrap();
    assert_eq!((told.receiver.as_deref(), told.kind), (Some("a"), EventKind::Daemon));
}
