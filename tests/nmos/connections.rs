//! Connections and releases in the orders that controllers have, and what is shown of receivers meanwhile.

use super::*;

/// A configuration with these receivers, each on `lo`.
fn config(dir: &Temp, nmos: &str, receivers: &[(&str, &str)]) -> String {
    let mut text = format!(
        "[api]\nlisten = \"127.0.0.1:0\"\n[state]\nfolder = \"{}\"\n[nmos]\nenabled = true\ndiscovery = false\n{nmos}\n",
        dir.join("state").display()
    );
    for (id, more) in receivers {
        text += &format!(
            "[[receivers]]\nid = \"{id}\"\ninterfaces = [\"lo\"]\nbackend = [\"socket\"]\ngpu = \"off\"\nswitch_timeout = \"200ms\"\n{more}\n"
        );
    }
    dir.write("gdmedia.toml", &text)
}

/// The SDP of a sender that a receiver takes packets from alone, so that its legs have an address without a transport file.
fn filtered(name: &str, port: u16) -> String {
    sdp(name, port).replace("a=rtpmap", "a=source-filter: incl IN IP4 127.0.0.1 127.0.0.1\r\na=rtpmap")
}

fn file(text: &str) -> Value {
    json!({ "data": text, "type": "application/sdp" })
}

/// Activates at once, and is taken.
fn now(daemon: &Daemon, label: &str, mut body: Value) {
    body["activation"] = json!({ "mode": "activate_immediate" });
    let answer = daemon.patch(label, &body);
    assert_eq!(answer.code, 200, "{label}: {body}: {}", answer.text());
    check("is-05/v1.1/receiver-response-schema.json", &answer.json());
}

fn staged(daemon: &Daemon, label: &str, body: &Value) {
    let answer = daemon.patch(label, body);
    assert_eq!(answer.code, 200, "{label}: {body}: {}", answer.text());
}

fn active(daemon: &Daemon, label: &str) -> Value {
    json!(daemon.active(label))
}

/// Whatever a receiver was connected by, it can be released, also by a controller that clears everything at once (IS-05,
/// "Behaviour", "Releasing").
#[test]
fn a_receiver_is_released_whatever_it_was_connected_by() {
    let dir = temp();
    let [a, b, c, d] = [0; 4].map(|_| free_port());
    let own = format!("sdp = '''\n{}'''", filtered("own", b));
    let config = config(&dir, "seed = \"test\"", &[("a", ""), ("b", &own), ("c", ""), ("d", "")]);
    let daemon = Daemon::start(&config);
    let cleared = || json!({ "sender_id": null, "transport_file": { "data": null, "type": null } });
    let take = |sdp: &str| take(ONE, sdp, ActivationMode::ActivateImmediate, None);
    let is_off = |daemon: &Daemon, id: &str| {
        daemon.is(id, "stopped");
        assert_eq!(active(daemon, id)["master_enable"], false, "{id}");
    };

    // All in one.
    assert_eq!(daemon.patch("a", &take(&filtered("one", a))).code, 200);
    let mut body = cleared();
    body["master_enable"] = false.into();
    now(&daemon, "a", body);
    is_off(&daemon, "a");
    assert_eq!(active(&daemon, "a")["transport_file"]["data"], Value::Null);
    assert_eq!(active(&daemon, "a")["sender_id"], Value::Null);

    // Connected by addresses alone, at once and after a restart.
    let by_addresses = || {
        let leg = json!([{ "source_ip": "127.0.0.1", "destination_port": b }]);
        json!({ "master_enable": true, "transport_file": { "data": null, "type": null }, "transport_params": leg })
    };
    now(&daemon, "b", by_addresses());
    now(&daemon, "b", json!({ "master_enable": false }));
    is_off(&daemon, "b");
    now(&daemon, "b", by_addresses());
    assert_eq!(active(&daemon, "b")["master_enable"], true);

    // Released, and then cleared.
    assert_eq!(daemon.patch("c", &take(&filtered("three", c))).code, 200);
    now(&daemon, "c", json!({ "master_enable": false }));
    is_off(&daemon, "c");
    staged(&daemon, "c", &cleared());
    now(&daemon, "c", json!({}));
    is_off(&daemon, "c");

    // Said piece by piece, the addresses first.
    staged(&daemon, "d", &json!({ "transport_params": [{ "multicast_ip": "239.78.1.1", "destination_port": d }] }));
    now(&daemon, "d", json!({ "master_enable": false }));
    now(&daemon, "d", json!({ "master_enable": true, "transport_file": file(&filtered("four", d)) }));
    assert_eq!(active(&daemon, "d")["transport_params"][0]["destination_port"], d);
    // On without a transport file is on with the one before.
    let other = json!({ "transport_params": [{ "multicast_ip": "239.78.1.1" }], "master_enable": true });
    let answer = daemon.patch("a", &other);
    assert_eq!(answer.code, 200, "what it received last is known: {}", answer.text());

    daemon.end();
    let daemon = Daemon::start(&config);
    until("what was connected", || (active(&daemon, "b")["master_enable"] == true).then_some(()));
    now(&daemon, "b", json!({ "master_enable": false }));
    is_off(&daemon, "b");
    is_off(&daemon, "a");
    daemon.end();
}

/// A controller may say that a receiver is on, and what it will get, before there is anything to receive.
#[test]
fn what_waits_for_its_transport_file_waits_after_a_restart() {
    let dir = temp();
    let [port, later] = [free_port(), free_port()];
    let config = config(&dir, "seed = \"test\"", &[("cam", "")]);
    let daemon = Daemon::start(&config);
    now(
        &daemon,
        "cam",
        json!({ "master_enable": true, "sender_id": ONE, "transport_params": [{ "destination_port": port }] }),
    );
    let waits = |daemon: &Daemon| {
        let active = active(daemon, "cam");
        let leg = &active["transport_params"][0];
        (active["master_enable"] == true && active["sender_id"] == ONE && leg["destination_port"] == port).then_some(())
    };
    waits(&daemon).unwrap();
    daemon.end();
    let daemon = Daemon::start(&config);
    until("it waits still", || waits(&daemon));
    daemon.is("cam", "stopped");
    // It stays so, and what it waited for connects it.
    std::thread::sleep(Duration::from_millis(500));
    waits(&daemon).unwrap();
    now(&daemon, "cam", json!({ "transport_file": file(&sdp("late", later)) }));
    let active = active(&daemon, "cam");
    assert_eq!((&active["master_enable"], &active["sender_id"]), (&json!(true), &json!(ONE)));
    assert_eq!(active["transport_params"][0]["destination_port"], later);
    assert_ne!(daemon.receiver("cam")["state"], "stopped");
    daemon.end();
}

/// `flow = 1`: controllers see that flow, and to activate what they see changes nothing.
#[test]
fn a_flow_of_several_stays_the_one_that_is_received() {
    let dir = temp();
    let [a, b] = [0; 2].map(|_| free_port());
    let second = sdp("both", b).replace("width=64", "width=96");
    let both = sdp("both", a) + &second[second.find("m=video").unwrap()..];
    let config = config(&dir, "seed = \"test\"", &[("cam", &format!("flow = 1\nsdp = '''\n{both}'''"))]);
    let daemon = Daemon::start(&config);
    until("it is on", || (active(&daemon, "cam")["master_enable"] == true).then_some(()));
    let is = || {
        let width = until("its flow", || daemon.receiver("cam")["flow"]["width"].as_u64());
        (active(&daemon, "cam")["transport_params"][0]["destination_port"].clone(), width)
    };
    assert_eq!(is(), (json!(b), 96));
    for body in [json!({}), json!({ "master_enable": false }), json!({ "master_enable": true })] {
        now(&daemon, "cam", body);
    }
    assert_eq!(is(), (json!(b), 96));
    daemon.end();
}

/// One interface may have both legs; an activation drops none.
#[test]
fn both_legs_of_one_interface_stay() {
    let dir = temp();
    let [a, b] = [0; 2].map(|_| free_port());
    let [one, two] = [a, b].map(|port| {
        let text = sdp("duo", port);
        text[text.find("m=video").unwrap()..].to_owned()
    });
    let duo = format!(
        "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=duo\r\nt=0 0\r\na=group:DUP a b\r\n{one}a=mid:a\r\n{two}a=mid:b\r\n"
    );
    let single = format!("sdp = '''\n{}'''", sdp("single", free_port()));
    let config = config(&dir, "seed = \"test\"", &[("duo", &format!("sdp = '''\n{duo}'''")), ("single", &single)]);
    let daemon = Daemon::start(&config);
    let ports = |daemon: &Daemon| {
        let active = active(daemon, "duo");
        let legs = active["transport_params"].as_array().unwrap().clone();
        legs.iter().map(|leg| (leg["destination_port"].clone(), leg["rtp_enabled"] == true)).collect::<Vec<_>>()
    };
    until("it is on", || (active(&daemon, "duo")["master_enable"] == true).then_some(()));
    let list = daemon.node("receivers");
    let bindings = |label: &str| {
        let one = list.as_array().unwrap().iter().find(|receiver| receiver["label"] == label).unwrap();
        one["interface_bindings"].clone()
    };
    assert_eq!((bindings("duo"), bindings("single")), (json!(["lo", "lo"]), json!(["lo"])));
    assert_eq!(ports(&daemon), [(json!(a), true), (json!(b), true)]);
    now(&daemon, "duo", json!({}));
    assert_eq!(ports(&daemon), [(json!(a), true), (json!(b), true)]);
    let legs = || until("its legs", || daemon.receiver("duo")["flow"]["legs"].as_array().map(Vec::len));
    assert_eq!(legs(), 2);
    // One is switched off: it is there still, also after a restart.
    now(&daemon, "duo", json!({ "transport_params": [{}, { "rtp_enabled": false }] }));
    assert_eq!(ports(&daemon), [(json!(a), true), (json!(b), false)]);
    daemon.end();
    let daemon = Daemon::start(&config);
    until("what was left", || (ports(&daemon) == [(json!(a), true), (json!(b), false)]).then_some(()));
    now(&daemon, "duo", json!({ "transport_params": [{}, { "rtp_enabled": true }] }));
    assert_eq!(ports(&daemon), [(json!(a), true), (json!(b), true)]);
    daemon.end();
}

/// Through the running daemon: bulk, times of TAI, slashes, HEAD. And who stops a receiver meanwhile means no other connection.
#[test]
fn bulk_and_absolute_times_by_every_spelling() {
    let dir = temp();
    let [a, b] = [0; 2].map(|_| free_port());
    let config = config(&dir, "seed = \"test\"", &[("a", ""), ("b", "")]);
    let daemon = Daemon::start(&config);
    let ids = ["a", "b"].map(|label| daemon.id(label));
    let json_type = "Content-Type: application/json\r\n";
    let params = |port: u16, activation: Value| json!({ "master_enable": true, "transport_file": file(&sdp("x", port)), "activation": activation });
    let immediate = json!({ "mode": "activate_immediate" });
    let nobody = "1ad8a7a1-5a3a-4a4f-8a56-1a2b3c4d5eff";
    let bulk = json!([
        { "id": ids[0], "params": params(a, immediate.clone()) },
        { "id": nobody, "params": {} },
        { "id": ids[1], "params": params(b, immediate) },
    ]);
    let path = "/x-nmos/connection/v1.1/bulk/receivers/";
    let answer = ask(daemon.address, "POST", path, json_type, bulk.to_string().as_bytes());
    assert_eq!(answer.code, 200, "{}", answer.text());
    let codes: Vec<Value> = answer.json().as_array().unwrap().iter().map(|one| one["code"].clone()).collect();
    assert_eq!(codes, [200, 404, 200]);
    for (label, port) in [("a", a), ("b", b)] {
        assert_eq!(active(&daemon, label)["transport_params"][0]["destination_port"], port);
    }
    // Every path with and without a slash at its end, and its head alone.
    let single = daemon.single("a", "active");
    for path in ["/x-nmos", "/x-nmos/node/v1.3", "/x-nmos/node/v1.3/self", single.as_str()] {
        let [plain, slash] = [get(daemon.address, path), get(daemon.address, &format!("{path}/"))];
        assert_eq!((plain.code, &plain.body), (200, &slash.body), "{path}");
        let head = ask(daemon.address, "HEAD", path, "", b"");
        assert_eq!((head.code, head.body.len()), (200, 0), "{path}");
        assert_eq!(head.header("content-length"), plain.body.len().to_string(), "{path}");
        assert_eq!(head.header("access-control-allow-origin"), "*", "{path}");
    }
    // An hour from now, by the node's own clock.
    let version = daemon.node(&format!("receivers/{}", ids[0]))["version"].as_str().unwrap().to_owned();
    let (seconds, _) = version.split_once(':').unwrap();
    let time = |later: i64| {
        let seconds = seconds.parse::<i64>().unwrap() + later;
        json!({ "mode": "activate_scheduled_absolute", "requested_time": format!("{seconds}:0") })
    };
    assert_eq!(daemon.patch("a", &json!({ "sender_id": ONE, "activation": time(3600) })).code, 202);
    let scheduled = || get(daemon.address, &daemon.single("a", "staged")).json()["activation"].clone();
    let accepted = scheduled();
    assert_eq!(accepted["requested_time"], time(3600)["requested_time"]);
    daemon.steer("a", "stop");
    until("what was stopped", || (active(&daemon, "a")["master_enable"] == false).then_some(()));
    daemon.steer("a", "start");
    until("what was started", || (active(&daemon, "a")["master_enable"] == true).then_some(()));
    assert_eq!(scheduled(), accepted);
    assert_eq!(daemon.patch("a", &json!({})).code, 423);
    assert_eq!(daemon.patch("a", &json!({ "activation": { "mode": null } })).code, 200);
    // A time that is past is now.
    assert_eq!(daemon.patch("a", &json!({ "sender_id": TWO, "activation": time(-1) })).code, 202);
    until("the activation", || (active(&daemon, "a")["sender_id"] == TWO).then_some(()));
    daemon.end();
}

/// What a registry refuses is said, and the metric does not say that it has everything.
#[test]
fn a_receiver_that_the_registry_refuses_is_said() {
    let dir = temp();
    let registry = Registry::new(Mood::Refuses("receiver"));
    let nmos = format!("seed = \"test\"\nheartbeat = \"1s\"\nregistry = [\"{}\"]", registry.url());
    let daemon = Daemon::start(&config(&dir, &nmos, &[("cam", "")]));
    daemon.says("POST of the receiver");
    let metrics = || get(daemon.address, "/metrics").text();
    // Heartbeats go on, as often as they are to.
    until("heartbeats", || (registry.heartbeats() >= 2).then_some(()));
    assert!(metrics().contains("\ngdmedia_nmos_registered 0\n"));
    registry.mood(Mood::Well);
    // Another version is another try.
    now(&daemon, "cam", json!({ "master_enable": true }));
    daemon.says("NMOS: registered at");
    until("the metric", || metrics().contains("\ngdmedia_nmos_registered 1\n").then_some(()));
    daemon.end();
}

/// Controllers' routes hang on the ids: they stay when the machine gets another name.
#[test]
fn ids_are_kept_with_the_state() {
    let dir = temp();
    let config = config(&dir, "", &[("cam", "")]);
    let id = || {
        let daemon = Daemon::start(&config);
        let id = daemon.id("cam");
        daemon.end();
        id
    };
    let first = id();
    let kept = dir.join("state").join("nmos-seed");
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(fs::read_to_string(&kept).unwrap().ends_with(&format!("/{}\n", name.trim())));
    assert_eq!(id(), first);
    fs::write(&kept, "0123456789abcdef/before it was renamed\n").unwrap();
    let before = id();
    assert_ne!(before, first);
    assert_eq!(id(), before);
}
