//! The registration client against a registry over TCP that fails in every way that IS-04 names, and in some more.

mod support;

use gdmedia_nmos::registration::client::{Http, Plain};
use gdmedia_nmos::registration::machine::Timing;
use gdmedia_nmos::registration::mdns::{Discovery, NodeAdvert};
use gdmedia_nmos::registration::select::Advert;
use gdmedia_nmos::registration::{Find, Registration};
use gdmedia_nmos::{Node, system_clock};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::registry::{Heard, Mood, Registry};
use support::schema::check;
use support::{Fake, LONG, settings, three, until};

fn node() -> (Node, Arc<Fake>) {
    let fake = Fake::new(three());
    (Node::new(settings(80), fake.clone(), system_clock(37)).unwrap(), fake)
}

/// Quick enough that a test sees several of each.
const QUICK: Timing = Timing {
    heartbeat: Duration::from_millis(100),
    first_retry: Duration::from_millis(20),
    last_retry: Duration::from_millis(100),
    patience: Duration::from_millis(200),
};
/// With heartbeats that are seen, and time enough for each.
const STEADY: Timing = Timing { heartbeat: Duration::from_secs(2), ..QUICK };
/// So that a machine that stands still for a moment is no registry that does not answer.
const CALM: Timing = Timing { heartbeat: Duration::from_secs(20), ..QUICK };

fn named(node: &Node, registries: &[&Registry], timing: Timing) -> Registration {
    let urls = registries.iter().map(|registry| registry.url()).collect();
    Registration::start(node.clone(), Find::Named(urls), Box::new(Plain::new()), timing).unwrap()
}

fn registered(registration: &Registration, registry: &Registry) {
    until("it is registered", || {
        let status = registration.status();
        status.registered && status.registry == Some(registry.url())
    });
}

#[test]
fn everything_in_order_as_the_node_has_it() {
    let registry = Registry::new(Mood::Well);
    let (node, fake) = node();
    let registration = named(&node, &[&registry], CALM);
    registered(&registration, &registry);
    assert_eq!(registry.lines()[..5], ["POST node", "POST device", "POST receiver", "POST receiver", "POST receiver"]);
    for heard in registry.heard() {
        assert_eq!(heard.path, "/x-nmos/registration/v1.3/resource");
        assert_eq!(heard.headers["content-type"], "application/json");
        assert_eq!(heard.headers["content-length"], heard.body.len().to_string());
        assert_eq!(heard.headers["accept"], "*/*");
        assert!(!heard.headers.contains_key("transfer-encoding"));
        check("is-04/v1.3/registrationapi-resource-post-request.json", &serde_json::from_str(&heard.body).unwrap());
    }
    let same = |registry: &Registry| {
        let has = registry.has();
        let wanted: BTreeMap<String, Value> =
            node.resources().into_iter().map(|r| (format!("{}/{}", r.kind.plural(), r.id), r.body)).collect();
        has == wanted
    };
    assert!(same(&registry));

    // A change is there at once, though the next heartbeat is far.
    node.update(|settings| settings.label = "another".into()).unwrap();
    until("the change is there", || same(&registry));
    fake.list.lock().unwrap().remove(1);
    node.refresh().unwrap();
    until("what is gone is gone", || same(&registry));

    let before = registry.lines().len();
    assert!(registration.stop(LONG));
    let last = &registry.lines()[before..];
    let kinds: Vec<&str> = last.iter().map(|line| line.split('/').nth(2).unwrap()).collect();
    assert_eq!(kinds, ["receivers", "receivers", "devices", "nodes"], "{last:?}");
    assert!(registry.has().is_empty());
}

#[test]
fn an_activation_reaches_the_registry() {
    let registry = Registry::new(Mood::Well);
    let (node, _fake) = node();
    let registration = named(&node, &[&registry], CALM);
    registered(&registration, &registry);
    let id = node.settings().receiver_id("audio");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let body = json!({ "master_enable": true, "activation": { "mode": "activate_immediate" } });
    assert_eq!(runtime.block_on(node.patch(id, body)).unwrap().0, 200);
    until("the registry knows", || registry.has()[&format!("receivers/{id}")]["subscription"]["active"] == true);
}

#[test]
fn heartbeats_have_no_body() {
    let registry = Registry::new(Mood::Well);
    let (node, _fake) = node();
    let registration = named(&node, &[&registry], QUICK);
    until("heartbeats come", || registry.heartbeats() >= 3);
    let path = format!("/x-nmos/registration/v1.3/health/nodes/{}", node.settings().node_id());
    let beats: Vec<Heard> = registry.heard().into_iter().filter(|h| h.path.contains("health")).collect();
    for beat in beats {
        assert_eq!((beat.method.as_str(), beat.path.as_str(), beat.body.as_str()), ("POST", path.as_str(), ""));
        assert_eq!(beat.headers["content-length"], "0");
        assert!(!beat.headers.contains_key("content-type"));
    }
    drop(registration);
    assert!(registry.has().is_empty(), "dropping it unregisters");
}

#[test]
fn what_an_earlier_run_left_is_cleared() {
    let registry = Registry::new(Mood::Well);
    let (node, _fake) = node();
    let stale = format!("receivers/{}", uuid::Uuid::from_u128(9));
    {
        let mut state = registry.state.lock().unwrap();
        state.has.insert(format!("nodes/{}", node.settings().node_id()), json!({ "label": "old" }));
        state.has.insert(stale.clone(), json!({}));
    }
    let registration = named(&node, &[&registry], CALM);
    registered(&registration, &registry);
    assert!(!registry.has().contains_key(&stale));
    assert_eq!(
        registry.lines()[..3],
        [
            "POST node".to_owned(),
            format!("DELETE /resource/nodes/{}", node.settings().node_id()),
            "POST node".to_owned()
        ]
    );
}

#[test]
fn a_registry_that_forgot_is_told_again() {
    let registry = Registry::new(Mood::Well);
    let (node, _fake) = node();
    let registration = named(&node, &[&registry], QUICK);
    registered(&registration, &registry);
    registry.forget();
    until("everything is there again", || registry.has().len() == 5);
    registered(&registration, &registry);
}

#[test]
fn every_failure_moves_on_and_the_next_one_is_asked_first() {
    let failures = [
        Mood::Code(500),
        Mood::Code(503),
        Mood::Code(301),
        Mood::Code(307),
        Mood::Dead,
        Mood::Silent,
        Mood::Slow,
        Mood::Raw(b"garbage\r\n\r\n"),
        Mood::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab"),
        Mood::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
        Mood::Raw(b"HTTP/1.1 9999 OK\r\n\r\n"),
        Mood::Raw(b"\x16\x03\x01\x02\x00"),
        Mood::Raw(&[b'a'; 100_000]),
    ];
    let one = |failure: &Mood| {
        let (first, second) = (Registry::new(Mood::Well), Registry::new(Mood::Well));
        let (node, _fake) = node();
        let registration = named(&node, &[&first, &second], STEADY);
        registered(&registration, &first);
        // A cluster: what one has, the other has.
        second.state.lock().unwrap().has = first.has();
        first.mood(failure.clone());
        registered(&registration, &second);
        let lines = second.lines();
        assert!(lines[0].starts_with("POST /health/"), "{failure:?}: {lines:?}");
        assert!(!lines.contains(&"POST node".to_owned()), "{failure:?}: {lines:?}");
    };
    std::thread::scope(|scope| failures.iter().for_each(|failure| drop(scope.spawn(|| one(failure)))));
}

#[test]
fn a_body_that_breaks_off_is_no_answer() {
    // As an answer to the first POST: nothing is believed to be registered.
    let registry = Registry::new(Mood::Raw(b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{"));
    let (node, _fake) = node();
    let registration = named(&node, &[&registry], CALM);
    until("it is said", || registration.status().trouble.is_some());
    assert!(!registration.status().registered);
    registry.mood(Mood::Well);
    registered(&registration, &registry);
    assert_eq!(registry.has().len(), 5);
}

#[test]
fn nobody_there_at_first() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let registry = Registry::new(Mood::Code(503));
    let (node, _fake) = node();
    let urls = vec![closed, registry.url()];
    let registration = Registration::start(node, Find::Named(urls), Box::new(Plain::new()), CALM).unwrap();
    until("both were tried, more than once", || registry.lines().len() >= 3);
    assert!(registration.status().trouble.unwrap().contains("POST of the node"));
    registry.mood(Mood::Well);
    registered(&registration, &registry);
    assert_eq!(registration.status().trouble, None);
}

#[test]
fn what_is_refused_is_not_repeated() {
    let registry = Registry::new(Mood::Code(400));
    let (node, _fake) = node();
    let registration = named(&node, &[&registry], Timing { last_retry: LONG, ..QUICK });
    until("it was refused", || registration.status().trouble.is_some());
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(registry.lines(), ["POST node"]);
    registry.mood(Mood::Well);
    node.update(|settings| settings.label = "corrected".into()).unwrap();
    registered(&registration, &registry);
}

/// What a registry refuses it has not, however well it goes on otherwise.
#[test]
fn a_receiver_that_is_refused_is_a_trouble_that_stays() {
    let registry = Registry::new(Mood::Refuses("receiver"));
    let (node, fake) = node();
    let registration = named(&node, &[&registry], STEADY);
    until("the receivers were refused, and a heartbeat came after that", || {
        registry.lines().iter().filter(|line| *line == "POST receiver").count() == 3 && registry.heartbeats() >= 1
    });
    let status = registration.status();
    assert!(!status.registered);
    let last = node.settings().receiver_id("data");
    let trouble = status.trouble.unwrap();
    assert!(trouble.ends_with(&format!("POST of the receiver {last}: status 400")), "{trouble}");
    registry.mood(Mood::Well);
    fake.list.lock().unwrap().iter_mut().for_each(|receiver| receiver.label.push('!'));
    node.refresh().unwrap();
    registered(&registration, &registry);
    until("nothing is wrong any more", || registration.status().trouble.is_none());
}

#[test]
fn a_node_whose_clock_was_behind_is_taken_in_the_end() {
    let registry = Registry::new(Mood::Code(400));
    let (node, _fake) = node();
    let registration = named(&node, &[&registry], QUICK);
    until("it was refused, with another version each time", || registry.heard().len() >= 3);
    let version = |heard: &Heard| serde_json::from_str::<Value>(&heard.body).unwrap()["data"]["version"].to_string();
    let versions: std::collections::BTreeSet<String> = registry.heard().iter().take(3).map(version).collect();
    assert_eq!(versions.len(), 3);
    registry.mood(Mood::Well);
    registered(&registration, &registry);
}

#[test]
fn a_conflict_is_resolved() {
    let registry = Registry::new(Mood::Conflict("/x-nmos/registration/v1.2/resource/nodes/x"));
    let (node, _fake) = node();
    let registration = named(&node, &[&registry], CALM);
    registered(&registration, &registry);
    let id = node.settings().node_id();
    assert_eq!(registry.lines()[1], format!("DELETE /x-nmos/registration/v1.2/resource/nodes/{id}"));
    assert_eq!(registry.has().len(), 5);
}

#[test]
fn it_ends_soon_though_its_registry_does_not_answer() {
    let registry = Registry::new(Mood::Well);
    let (node, _fake) = node();
    let registration = named(&node, &[&registry], CALM);
    registered(&registration, &registry);
    registry.mood(Mood::Silent);
    assert!(registration.stop(LONG), "the thread has ended");
    assert_eq!(registry.lines().iter().filter(|line| line.starts_with("DELETE")).count(), 1, "one try");
}

#[test]
fn a_url_that_is_none_is_refused_at_once() {
    let (node, _fake) = node();
    for url in ["registry", "https://registry:443", "http://"] {
        let find = Find::Named(vec![url.to_owned()]);
        let error = Registration::start(node.clone(), find, Box::new(Plain::new()), QUICK).unwrap_err();
        assert!(error.to_string().contains(url), "{error}");
    }
    assert_eq!(Plain::new().protocols(), ["http"]);
}

/// What a network announces.
#[derive(Clone, Default)]
struct Network(Arc<Mutex<(Vec<Advert>, Option<NodeAdvert>)>>);

impl Discovery for Network {
    fn registries(&mut self) -> Vec<Advert> {
        self.0.lock().unwrap().0.clone()
    }
    fn announce(&mut self, advert: &NodeAdvert) {
        self.0.lock().unwrap().1 = Some(advert.clone());
    }
    fn withdraw(&mut self) {
        self.0.lock().unwrap().1 = None;
    }
}

#[test]
fn the_best_of_those_that_are_announced() {
    let (good, worse, wrong) = (Registry::new(Mood::Well), Registry::new(Mood::Well), Registry::new(Mood::Well));
    let network = Network::default();
    let mut other = wrong.advert("0");
    other.txt.insert("api_ver".into(), "v1.2".into());
    network.0.lock().unwrap().0 = vec![worse.advert("20"), other, good.advert("10")];
    let (node, _fake) = node();
    let find = Find::Discovered(Box::new(network.clone()));
    let registration = Registration::start(node, find, Box::new(Plain::new()), STEADY).unwrap();
    registered(&registration, &good);
    assert!(worse.heard().is_empty() && wrong.heard().is_empty());
    assert_eq!(network.0.lock().unwrap().1, None, "beside a registry the node does not announce itself");
    good.mood(Mood::Dead);
    registered(&registration, &worse);
    assert!(wrong.heard().is_empty());
}

#[test]
fn alone_it_announces_itself_with_counters() {
    let network = Network::default();
    let (node, fake) = node();
    let find = Find::Discovered(Box::new(network.clone()));
    let registration = Registration::start(node.clone(), find, Box::new(Plain::new()), QUICK).unwrap();
    let announced = || network.0.lock().unwrap().1.clone();
    until("it announces itself", || announced().is_some());
    let advert = announced().unwrap();
    let expected = [
        ("api_auth", "false"),
        ("api_proto", "http"),
        ("api_ver", "v1.3"),
        ("ver_dvc", "0"),
        ("ver_flw", "0"),
        ("ver_rcv", "0"),
        ("ver_slf", "0"),
        ("ver_snd", "0"),
        ("ver_src", "0"),
    ];
    let txt: Vec<(&str, &str)> = advert.txt.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(txt, expected);
    assert_eq!((advert.addresses.as_slice(), advert.port), (&["127.0.0.1".parse().unwrap()][..], 80));
    assert!(registration.status().peer_to_peer);

    fake.list.lock().unwrap()[0].label = "new".into();
    node.refresh().unwrap();
    until("the counter goes up", || announced().is_some_and(|advert| advert.txt["ver_rcv"] == "1"));
    assert_eq!(announced().unwrap().txt["ver_slf"], "0");
    for turn in 0..255 {
        node.update(|settings| settings.label = format!("turn {turn}")).unwrap();
    }
    // 255 changes, and one more wraps.
    until("it counts", || announced().is_some_and(|advert| advert.txt["ver_slf"] == "255"));
    node.update(|settings| settings.label = "last".into()).unwrap();
    until("it wraps", || announced().is_some_and(|advert| advert.txt["ver_slf"] == "0"));

    // Names are of no use here: what is announced is where it listens, and nothing where that is not known.
    let listening = ["10.0.0.7:80", "10.0.0.8:81"].map(|address| address.parse().unwrap());
    node.update(|settings| {
        settings.endpoints[0].host = "rx1.example.org".into();
        settings.listening = listening.to_vec();
    })
    .unwrap();
    until("the address", || announced().is_some_and(|advert| advert.addresses == [listening[0].ip()]));
    node.update(|settings| settings.listening.clear()).unwrap();
    until("nobody could reach it", || announced().is_none() && !registration.status().peer_to_peer);
    node.update(|settings| settings.endpoints[0].host = "127.0.0.1".into()).unwrap();
    until("it is back", || announced().is_some());

    // One for development is as none; one that is there is used.
    let registry = Registry::new(Mood::Well);
    network.0.lock().unwrap().0 = vec![registry.advert("100")];
    std::thread::sleep(Duration::from_millis(600));
    assert!(registry.heard().is_empty() && announced().is_some());
    network.0.lock().unwrap().0 = vec![registry.advert("0")];
    registered(&registration, &registry);
    until("it is withdrawn", || announced().is_none());
    assert!(registration.stop(LONG));
    assert_eq!(announced(), None);
}
