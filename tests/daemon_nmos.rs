//! `gdmedia daemon` as a controller of a facility meets it: a registry that hears of it, connections over IS-05 with another's
//! types, pictures that are those of the sender.
#![cfg(feature = "daemon")]

#[path = "api/client.rs"]
mod client;
mod common;
#[path = "nmos/connections.rs"]
mod connections;
mod netns;
#[path = "../nmos/tests/support/registry.rs"]
mod registry;
#[path = "../nmos/tests/support/schema.rs"]
mod schema;

use client::{Answer, LONG, ask, get};
use common::{Running, Temp, free_port, temp};
use gdmedia::record::Recording;
use gdmedia::send::pattern;
use netns::Net;
use nmos::is05::{ActivationMode, ActivationPatch, Param, ReceiverStaged, ReceiverStagedPatch, TransportFile};
use nmos::{Reception, ResourceId};
use registry::{Mood, Registry};
use schema::check;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_millis(20);

/// 64x36 at 50 frames a second, with this session name.
fn sdp(name: &str, port: u16) -> String {
    let text = common::sdp(port).replace("width=320", "width=64").replace("height=180", "height=36");
    text.replace("=25;", "=50;").replace("s=test", &format!("s={name}"))
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::sleep(STEP);
    }
}

fn send(dir: &Temp, port: u16) -> Running {
    let path = dir.write(&format!("send-{port}.sdp"), &sdp("sender", port));
    Running::start(&["send", "--to", &format!("udp://127.0.0.1:{port}"), "--sdp", &path], Stdio::null())
}

/// A daemon, and where its API is.
struct Daemon {
    running: Running,
    events: Arc<Mutex<Vec<String>>>,
    address: SocketAddr,
}

impl Daemon {
    fn start(config: &str) -> Daemon {
        let mut running = Running::start(&["daemon", "-c", config], Stdio::piped());
        let lines = BufReader::new(running.0.stderr.take().unwrap());
        let events: Arc<Mutex<Vec<String>>> = Arc::default();
        let all = events.clone();
        std::thread::spawn(move || lines.lines().map_while(Result::ok).for_each(|line| all.lock().unwrap().push(line)));
        let address = said(&events, "daemon: API at http://");
        let address = address.split(['/', ' ']).find_map(|word| word.parse().ok()).unwrap();
        // The API is there a moment before the node is served by it.
        if fs::read_to_string(config).unwrap().contains("[nmos]") {
            said(&events, "daemon: NMOS node ");
        }
        Daemon { running, events, address }
    }
    fn says(&self, words: &str) -> String {
        said(&self.events, words)
    }
    fn node(&self, path: &str) -> Value {
        let answer = get(self.address, &format!("/x-nmos/node/v1.3/{path}"));
        assert_eq!(answer.code, 200, "{path}: {}", answer.text());
        answer.json()
    }
    /// The id of a receiver, by its label.
    fn id(&self, label: &str) -> String {
        until(label, || {
            let list = self.node("receivers");
            let one = list.as_array().unwrap().iter().find(|receiver| receiver["label"] == label)?;
            Some(one["id"].as_str().unwrap().to_owned())
        })
    }
    fn single(&self, label: &str, what: &str) -> String {
        format!("/x-nmos/connection/v1.1/single/receivers/{}/{what}", self.id(label))
    }
    fn active(&self, label: &str) -> ReceiverStaged {
        let value = get(self.address, &self.single(label, "active")).json();
        check("is-05/v1.1/receiver-response-schema.json", &value);
        serde_json::from_value(value).unwrap()
    }
    fn patch(&self, label: &str, patch: &impl serde::Serialize) -> Answer {
        let body = serde_json::to_vec(patch).unwrap();
        ask(self.address, "PATCH", &self.single(label, "staged"), "Content-Type: application/json\r\n", &body)
    }
    fn receiver(&self, id: &str) -> Value {
        get(self.address, &format!("/api/v1/receivers/{id}")).json()
    }
    fn steer(&self, id: &str, what: &str) {
        let answer = ask(self.address, "POST", &format!("/api/v1/receivers/{id}/{what}"), "", b"");
        assert_eq!(answer.code, 200, "{}", answer.text());
    }
    fn is(&self, id: &str, state: &str) {
        until(&format!("{id} {state}"), || (self.receiver(id)["state"] == state).then_some(()));
    }
    /// Ends it in an orderly way.
    fn end(mut self) {
        let pid = self.running.0.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
        let status = until("the end", || self.running.0.try_wait().unwrap());
        assert_eq!(status.code(), Some(0), "{:#?}", self.events.lock().unwrap());
    }
}

fn said(events: &Mutex<Vec<String>>, words: &str) -> String {
    let begun = Instant::now();
    loop {
        let all = events.lock().unwrap().clone();
        if let Some(line) = all.iter().find(|line| line.contains(words)) {
            return line.clone();
        }
        assert!(begun.elapsed() < LONG, "{words:?} is not among {all:#?}");
        std::thread::sleep(STEP);
    }
}

fn take(sender: &str, sdp: &str, mode: ActivationMode, after: Option<&str>) -> ReceiverStagedPatch {
    let activation = json!({ "mode": mode, "requested_time": after });
    ReceiverStagedPatch {
        sender_id: Param::Set(serde_json::from_value::<ResourceId>(sender.into()).unwrap()),
        master_enable: Some(true),
        activation: Some(serde_json::from_value::<ActivationPatch>(activation).unwrap()),
        transport_file: Some(TransportFile::sdp(Some(sdp.to_owned()))),
        transport_params: None,
    }
}

fn recordings(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

/// Numbers of the frames of a recording; those that a busy machine left in pieces have none.
fn recorded(folder: &Path) -> Vec<u64> {
    let recording = Recording::open(folder).unwrap();
    let layout = recording.header().layout.clone();
    let mut room = vec![0; recording.header().frame_octets()];
    let number = |place| {
        recording.load(place, &mut room).unwrap();
        pattern::read_number(&layout, &room)
    };
    recording.places().filter_map(number).collect()
}

const ONE: &str = "1ad8a7a1-5a3a-4a4f-8a56-1a2b3c4d5e01";
const TWO: &str = "1ad8a7a1-5a3a-4a4f-8a56-1a2b3c4d5e02";

/// What the registry has of a kind, and that it is as AMWA wants it.
fn of_kind(registry: &Registry, kind: &str) -> Vec<Value> {
    let has = registry.has();
    let list: Vec<Value> = has.iter().filter(|(id, _)| id.starts_with(kind)).map(|(_, value)| value.clone()).collect();
    let schema = format!("is-04/v1.3/{}.json", kind.trim_end_matches('s'));
    list.iter().for_each(|value| check(&schema, value));
    list
}

#[test]
fn a_controller_finds_connects_and_releases_receivers() {
    let dir = temp();
    let [a, b, c] = [0; 3].map(|_| free_port());
    let registry = Registry::new(Mood::Well);
    let _first = send(&dir, a);
    fs::create_dir_all(dir.join("cam")).unwrap();
    let text = format!(
        "[api]\nlisten = \"127.0.0.1:0\"\n[state]\nfolder = \"{state}\"\n\
         [nmos]\nenabled = true\nseed = \"test\"\nlabel = \"Node of a test\"\nregistry = [\"{registry}\"]\n\
         [[receivers]]\nid = \"cam\"\nlabel = \"Camera\"\ninterfaces = [\"lo\"]\ngpu = \"off\"\n\
         [receivers.record]\nfolder = \"{cam}\"\nway = \"pwrite\"\n\
         [[receivers]]\nid = \"other\"\nlabel = \"Other\"\ninterfaces = [\"lo\", \"lo\"]\ngpu = \"off\"\nsdp = '''\n{other}'''\n",
        state = dir.join("state").display(),
        registry = registry.url(),
        cam = dir.join("cam").display(),
        other = sdp("other", c),
    );
    let config = dir.write("gdmedia.toml", &text);
    let daemon = Daemon::start(&config);
    daemon.says("NMOS: registered at http://127.0.0.1");

    // What the registry hears.
    let [node] = &of_kind(&registry, "nodes")[..] else { panic!() };
    assert_eq!((&node["label"], &node["interfaces"][0]["name"]), (&json!("Node of a test"), &json!("lo")));
    let endpoint = &node["api"]["endpoints"][0];
    let wanted =
        json!({ "host": "127.0.0.1", "port": daemon.address.port(), "protocol": "http", "authorization": false });
    assert_eq!(*endpoint, wanted);
    assert_eq!(of_kind(&registry, "devices").len(), 1);
    let listed = of_kind(&registry, "receivers");
    assert_eq!(listed.len(), 2);
    assert!(listed.iter().all(|receiver| !receiver["caps"]["constraint_sets"].as_array().unwrap().is_empty()));
    let find = |label: &str| {
        let all = of_kind(&registry, "receivers");
        serde_json::from_value::<nmos::Receiver>(all.into_iter().find(|r| r["label"] == label).unwrap()).unwrap()
    };
    assert_eq!((find("Camera").interface_bindings.len(), find("Other").interface_bindings.len()), (1, 2));
    // The one of the configuration is connected without a controller.
    until("the other one", || (find("Other").reception() == Reception::Subscribed).then_some(()));
    assert!(daemon.active("Other").master_enable);
    assert_eq!(find("Camera").reception(), Reception::Unsubscribed);

    // At once, and what is wrong changes nothing.
    let answer = daemon.patch("Camera", &take(ONE, &sdp("one", a), ActivationMode::ActivateImmediate, None));
    assert_eq!(answer.code, 200, "{}", answer.text());
    daemon.is("cam", "receiving");
    until("the subscription", || (find("Camera").reception() == Reception::Subscribed).then_some(()));
    assert_eq!(find("Camera").subscription.sender_id.as_ref().map(ResourceId::as_str), Some(ONE));
    let is = || (json!(daemon.active("Camera")), daemon.receiver("cam")["switches"].clone());
    let before = is();
    for (bad, words) in [
        ("v=0\r\n".to_owned(), "the transport file is not usable"),
        (sdp("x", b).replace("depth=10", "depth=11"), "depth"),
        (sdp("x", b).replace("c=IN IP4 127.0.0.1", "c=IN IP4 127.0.0.9"), "127.0.0.9 is no address"),
    ] {
        let answer = daemon.patch("Camera", &take(TWO, &bad, ActivationMode::ActivateImmediate, None));
        let error = answer.json();
        check("is-05/v1.1/error.json", &error);
        assert_eq!(answer.code, 400, "{error}");
        assert!(error["error"].as_str().unwrap().contains(words), "{error}");
    }
    assert_eq!(is(), before);

    // Scheduled, to a sender whose numbers are far behind.
    std::thread::sleep(Duration::from_millis(500));
    let _second = send(&dir, b);
    let when = ActivationMode::ActivateScheduledRelative;
    let answer = daemon.patch("Camera", &take(TWO, &sdp("two", b), when, Some("1:500000000")));
    assert_eq!(answer.code, 202, "{}", answer.text());
    assert_eq!(daemon.patch("Camera", &json!({ "master_enable": false })).code, 423);
    let sender = || daemon.active("Camera").sender_id.map(|id| id.as_str().to_owned());
    until("the scheduled activation", || (sender().as_deref() == Some(TWO)).then_some(()));
    assert_eq!(daemon.active("Camera").transport_params[0].destination_port, Param::Set(b));
    until("the registry", || {
        (find("Camera").subscription.sender_id.as_ref().map(ResourceId::as_str) == Some(TWO)).then_some(())
    });
    std::thread::sleep(Duration::from_millis(300));

    // The same again is joined again.
    let switches = daemon.receiver("cam")["switches"].as_u64().unwrap();
    let again = json!({ "activation": { "mode": "activate_immediate" } });
    assert_eq!(daemon.patch("Camera", &again).code, 200);
    assert_eq!(daemon.receiver("cam")["switches"], switches + 1);

    // Told by somebody else: what is active is what is received.
    daemon.steer("cam", "stop");
    until("what was stopped", || (!daemon.active("Camera").master_enable).then_some(()));
    until("the registry", || (find("Camera").reception() != Reception::Subscribed).then_some(()));
    daemon.steer("cam", "start");
    until("what was started", || daemon.active("Camera").master_enable.then_some(()));
    let [first, ..] = &recordings(&dir.join("cam"))[..] else { panic!() };
    let numbers = recorded(first);
    let back = numbers.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(back == 1 && numbers.len() > 40, "from the first sender to the second, and never back: {numbers:?}");
    // Released by its controller, and connected again.
    let release = json!({ "master_enable": false, "activation": { "mode": "activate_immediate" } });
    assert_eq!(daemon.patch("Other", &release).code, 200);
    daemon.is("other", "stopped");
    let metrics = || get(daemon.address, "/metrics").text();
    until("the metric", || metrics().contains("\ngdmedia_nmos_registered 1\n").then_some(()));
    assert!(registry.lines().iter().all(|line| !line.starts_with("DELETE /resource/nodes")));

    // The end, and the same from the beginning.
    daemon.end();
    assert!(registry.has().is_empty(), "{:?}", registry.has().keys());
    let heard = registry.heard().len();
    let daemon = Daemon::start(&config);
    daemon.is("cam", "receiving");
    daemon.is("other", "stopped");
    until("what was active", || {
        (daemon.active("Camera").sender_id.as_ref().map(ResourceId::as_str) == Some(TWO)).then_some(())
    });
    assert!(daemon.active("Camera").master_enable && !daemon.active("Other").master_enable);
    until("what was released", || {
        (daemon.active("Other").transport_params[0].destination_port == Param::Set(c)).then_some(())
    });
    daemon.says("NMOS: registered at");
    // As many of each as before: nothing was left of the first run, and nothing was deleted but at its end.
    assert_eq!(registry.has().len(), 4);
    assert!(registry.lines()[heard..].iter().all(|line| !line.starts_with("DELETE")), "{:?}", registry.lines());
    until("a heartbeat", || (registry.heartbeats() > 0).then_some(()));
    daemon.end();
}

#[test]
fn whoever_has_no_token_is_told_so_as_nmos_has_it() {
    let dir = temp();
    let [see, steer] = ["a-token-that-reads", "a-token-that-steers"].map(|token| (token, dir.write(token, token)));
    let text = format!(
        "[api]\nlisten = \"127.0.0.1:0\"\n[[api.tokens]]\nname = \"see\"\nfile = \"{}\"\n\
         [[api.tokens]]\nname = \"steer\"\nfile = \"{}\"\nscopes = [\"control\"]\n\
         [nmos]\nenabled = true\nseed = \"test\"\ndiscovery = false\nwide = true\ntags = {{ room = [\"MCR\"] }}\n\
         [[receivers]]\nid = \"cam\"\ninterfaces = [\"lo\"]\n",
        see.1, steer.1
    );
    let daemon = Daemon::start(&dir.write("gdmedia.toml", &text));
    let header = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let list = "/x-nmos/node/v1.3/receivers";
    let cors = |answer: &Answer, code: u16| {
        assert_eq!((answer.code, answer.header("access-control-allow-origin")), (code, "*"), "{}", answer.text());
        if code >= 400 {
            check("is-04/v1.3/error.json", &answer.json());
        }
    };
    let none = get(daemon.address, list);
    cors(&none, 401);
    assert!(none.header("www-authenticate").starts_with("bearer"), "{}", none.head);
    let receivers = until("the receiver", || {
        let answer = ask(daemon.address, "GET", list, &header(see.0), b"");
        cors(&answer, 200);
        answer.json().as_array().filter(|list| !list.is_empty()).cloned()
    });
    assert_eq!(receivers[0]["caps"], json!({ "media_types": ["video/raw"] }), "wide");
    let node = ask(daemon.address, "GET", "/x-nmos/node/v1.3/self", &header(see.0), b"").json();
    check("is-04/v1.3/node.json", &node);
    assert_eq!(node["api"]["endpoints"][0]["authorization"], true);
    assert_eq!(node["tags"]["room"], json!(["MCR"]));
    let staged = format!("/x-nmos/connection/v1.1/single/receivers/{}/staged", receivers[0]["id"].as_str().unwrap());
    let page = "Origin: http://controller.example\r\nContent-Type: application/json\r\n";
    // A browser asks beforehand, without a token.
    cors(&ask(daemon.address, "OPTIONS", &staged, page, b""), 200);
    let body = json!({ "master_enable": true, "activation": { "mode": "activate_immediate" } }).to_string();
    cors(&ask(daemon.address, "PATCH", &staged, &(header(see.0) + page), body.as_bytes()), 403);
    cors(&ask(daemon.address, "PATCH", &staged, &(header(steer.0) + page), b"{"), 400);
    // A receiver that has nothing to receive yet waits.
    let answer = ask(daemon.address, "PATCH", &staged, &(header(steer.0) + page), body.as_bytes());
    cors(&answer, 200);
    check("is-05/v1.1/receiver-response-schema.json", &answer.json());
    let half = json!({ "transport_params": [{ "multicast_ip": "239.1.1.1" }] }).to_string();
    let answer = ask(daemon.address, "PATCH", &staged, &(header(steer.0) + page), half.as_bytes());
    cors(&answer, 400);
    assert!(answer.text().contains("stage the transport file"), "{}", answer.text());
    // Elsewhere other sites still change nothing.
    let reload = ask(daemon.address, "POST", "/api/v1/config/reload", &(header(steer.0) + page), b"");
    assert_eq!((reload.code, reload.header("access-control-allow-origin")), (403, ""));
    daemon.end();
}

/// What the API's guard says of itself: with CORS, and as IS-04 and IS-05 have errors ("APIs: Common Keys", `error.json`).
#[test]
fn what_the_guard_refuses_is_said_as_nmos_has_it() {
    let dir = temp();
    let text = "[api]\nlisten = \"127.0.0.1:0\"\n[api.limits]\nrequest_seconds = 1\n\
                [nmos]\nenabled = true\nseed = \"test\"\ndiscovery = false\naddress = [\"rx.example.org\"]\n\
                [[receivers]]\nid = \"cam\"\ninterfaces = [\"lo\"]\n";
    let config = dir.write("gdmedia.toml", text);
    let daemon = Daemon::start(&config);
    let refused = |answer: &Answer, code: u16, words: &str| {
        assert_eq!((answer.code, answer.header("access-control-allow-origin")), (code, "*"), "{}", answer.head);
        let value = answer.json();
        check("is-04/v1.3/error.json", &value);
        assert_eq!(value["code"], code);
        assert!(value["error"].as_str().unwrap().contains(words), "{value}");
    };
    let host = |method: &str, host: &str, path: &str| {
        client::raw(
            daemon.address,
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes(),
        )
    };
    let staged = daemon.single("cam", "staged");
    refused(&host("GET", "evil.example", &staged), 421, "is no name of this server");
    refused(&host("PATCH", "example.org", &staged), 421, "is no name of this server");
    // The name that controllers are told is one of its own, after another configuration as well.
    let told = daemon.node("self")["api"]["endpoints"][0]["host"].clone();
    assert_eq!(told, "rx.example.org");
    let port = daemon.address.port();
    for _ in 0..2 {
        assert_eq!(host("GET", &format!("RX.example.org:{port}"), &staged).code, 200);
        assert_eq!(host("GET", "rx.example.org.", "/api/v1").code, 200);
        assert_eq!(ask(daemon.address, "POST", "/api/v1/config/reload", "", b"").code, 200);
    }
    // Bodies: too large by their length, too large in parts, and late.
    let patch = |headers: &str, body: &[u8]| {
        let head = format!("PATCH {staged} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}\r\n");
        client::raw(daemon.address, &[head.as_bytes(), body].concat())
    };
    refused(&patch("Content-Length: 900000000\r\n", b"{"), 413, "more than");
    let large = "x".repeat(600 << 10);
    refused(&patch(&format!("Content-Length: {}\r\n", large.len()), large.as_bytes()), 413, "");
    refused(&patch("Content-Length: 100\r\n", b"{"), 408, "has not come within 1 s");
    refused(&patch("Transfer-Encoding: chunked\r\n", b"zz\r\n"), 400, "broken off");
    // HEAD is GET without a body.
    let (whole, head) = (host("GET", "localhost", &staged), host("HEAD", "localhost", &staged));
    assert_eq!((head.code, head.header("access-control-allow-origin"), head.body.len()), (200, "*", 0));
    assert_eq!(head.header("content-length"), whole.body.len().to_string());
    let gone = host("HEAD", "evil.example", &staged);
    assert_eq!((gone.code, gone.header("access-control-allow-origin"), gone.body.len()), (421, "*", 0));
    // What is no HTTP is refused before anybody knows what it asks for (docs/nmos.md).
    let none = client::raw(daemon.address, b"this is no HTTP\r\n\r\n");
    assert_eq!((none.code, none.header("access-control-allow-origin"), none.body.len()), (400, "", 0));
    let long = patch(&format!("X: {}\r\n", "y".repeat(32 << 10)), b"");
    assert_eq!((long.code, long.header("access-control-allow-origin"), long.body.len()), (431, "", 0));
    daemon.end();

    // Too often, with so few that none comes back while the test runs.
    let few = text.replace("request_seconds = 1", "requests_per_second = 1\nburst = 1");
    let daemon = Daemon::start(&dir.write("few.toml", &few));
    let often = until("too often", || Some(get(daemon.address, "/x-nmos/")).filter(|answer| answer.code != 200));
    refused(&often, 429, "more than 1 requests a second");
    assert!(often.header("retry-after").parse::<u64>().unwrap() >= 1);
    daemon.end();
}

#[test]
fn a_daemon_that_is_no_node_says_so() {
    let dir = temp();
    let daemon = Daemon::start(&dir.write("gdmedia.toml", "[api]\nlisten = \"127.0.0.1:0\"\n"));
    let answer = get(daemon.address, "/x-nmos/node/v1.3/self");
    assert_eq!((answer.code, answer.json()["code"].clone()), (404, json!(404)));
    assert!(answer.text().contains("[nmos]"), "{}", answer.text());
    daemon.end();
}

/// Groups that a namespace has joined, by interface, as the kernel has them.
fn groups(net: &Net) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut interface = String::new();
    for line in net.read("/proc/thread-self/net/igmp").lines() {
        let mut words = line.split_whitespace();
        match (line.starts_with(char::is_numeric), words.next(), words.next()) {
            (true, _, Some(name)) => interface = name.trim_end_matches(':').to_owned(),
            (false, Some(group), _) if interface.starts_with("rx") => {
                let Ok(octets) = u32::from_str_radix(group, 16) else { continue };
                let group = std::net::Ipv4Addr::from(octets.swap_bytes()).to_string();
                if group.starts_with("239.") {
                    all.push((interface.clone(), group));
                }
            }
            _ => {}
        }
    }
    all.sort();
    all
}

/// Legs are on the interfaces of the configuration, and what a controller switches off is left.
#[test]
fn legs_are_joined_where_they_are_and_left_by_parameters() {
    let Some(net) = Net::new() else { return };
    let dir = temp();
    let text = "[api]\nlisten = \"127.0.0.1:0\"\n[nmos]\nenabled = true\nseed = \"test\"\ndiscovery = false\n\
                [[receivers]]\nid = \"duo\"\nlabel = \"Duo\"\ninterfaces = [\"rx0\", \"rx1\"]\nbackend = [\"socket\"]\n\
                gpu = \"off\"\nswitch_timeout = \"200ms\"\n";
    let config = dir.write("gdmedia.toml", text);
    let daemon = Net::inside(&net.rx, || Daemon::start(&config));
    let medium = |group: &str, mid: &str| {
        let text = sdp("duo", 5004).replace("c=IN IP4 127.0.0.1", &format!("c=IN IP4 {group}/8"));
        format!("{}a=mid:{mid}\r\n", &text[text.find("m=video").unwrap()..])
    };
    let two = "v=0\r\no=- 1 1 IN IP4 10.77.0.1\r\ns=duo\r\nt=0 0\r\na=group:DUP a b\r\n".to_owned()
        + &medium("239.78.0.1", "a")
        + &medium("239.78.0.2", "b");
    let patch = |body: Value| Net::inside(&net.rx, || daemon.patch("Duo", &body));
    let done = |mut body: Value, wanted: &[(&str, &str)]| {
        body["activation"] = json!({ "mode": "activate_immediate" });
        let answer = patch(body);
        assert_eq!(answer.code, 200, "{}", answer.text());
        let wanted: Vec<_> = wanted.iter().map(|(i, g)| ((*i).to_owned(), (*g).to_owned())).collect();
        until(&format!("{wanted:?}"), || (groups(&net) == wanted).then_some(()));
    };
    let constraints = Net::inside(&net.rx, || get(daemon.address, &daemon.single("Duo", "constraints"))).json();
    check("is-05/v1.1/constraints-schema.json", &constraints);
    assert_eq!(constraints[0]["interface_ip"]["enum"], json!(["10.77.0.10", "fd77::10"]));
    assert_eq!(constraints[1]["interface_ip"]["enum"], json!(["10.78.0.10"]));
    let file = json!({ "data": two, "type": "application/sdp" });
    done(json!({ "master_enable": true, "transport_file": file }), &[("rx0", "239.78.0.1"), ("rx1", "239.78.0.2")]);
    // The second one alone, and another group on the first.
    done(json!({ "transport_params": [{ "rtp_enabled": false }, {}] }), &[("rx1", "239.78.0.2")]);
    let other = json!([{ "rtp_enabled": true, "multicast_ip": "239.78.0.3" }, { "rtp_enabled": false }]);
    done(json!({ "transport_params": other }), &[("rx0", "239.78.0.3")]);
    let wrong = patch(json!({ "transport_params": [{ "interface_ip": "10.78.0.10" }, {}] }));
    assert!(wrong.code == 400 && wrong.text().contains("10.77.0.10"), "{}", wrong.text());
    let active = Net::inside(&net.rx, || daemon.active("Duo"));
    assert_eq!(active.transport_params[0].multicast_ip, Param::Set("239.78.0.3".parse().unwrap()));
    done(json!({ "master_enable": false }), &[]);
    // As it was.
    done(json!({ "master_enable": true }), &[("rx0", "239.78.0.3")]);
    daemon.end();
    assert_eq!(groups(&net), []);
}
