//! The daemon's API as its clients meet it, over real TCP; behind it is a daemon that receives nothing.
#![cfg(feature = "daemon")]

#[path = "api/client.rs"]
mod client;
#[path = "api/fake.rs"]
mod fake;
#[path = "api/prometheus.rs"]
mod prometheus;

use client::{Answer, Events, LONG, ask, connect, get, raw, request, rest};
use fake::{Fake, Picture, SDP, dead, receiver};
use gdmedia::daemon::api::{Limits, Listen, Scope, Server, Settings, Tls, Token, table};
use gdmedia::daemon::{Action, Control as _, EventKind, GpuMemory, Refusal, Reloaded, State};
use gdmedia::ptp;
use gdmedia::rx::link::CardDrops;
use proptest::prelude::*;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// A server and what is behind it.
struct Running {
    fake: Arc<Fake>,
    server: Server,
    address: SocketAddr,
}

impl Running {
    fn new(settings: Settings) -> Self {
        let receivers =
            vec![receiver("cam1"), dead("cam2", State::Failed, "eth9 is no interface\n  cure: `ip link` lists them")];
        Running::of(Fake::new(receivers), settings)
    }
    fn of(fake: Fake, mut settings: Settings) -> Self {
        let fake = Arc::new(fake);
        if settings.listen == Settings::default().listen {
            settings.listen = Listen(vec!["127.0.0.1:0".parse().unwrap()]);
        }
        let server = Server::open(fake.clone(), &settings).unwrap();
        let address = server.addresses()[0];
        Running { fake, server, address }
    }
    fn get(&self, path: &str) -> Answer {
        get(self.address, path)
    }
    fn ask(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        ask(self.address, method, path, headers, body)
    }
    fn told(&self) -> Vec<(String, Action)> {
        std::mem::take(&mut *self.fake.told.lock().unwrap())
    }
}

fn plain() -> Running {
    Running::new(Settings::default())
}

const READ: &str = "Authorization: Bearer read-read-read-read\r\n";
const STEER: &str = "Authorization: Bearer steer-steer-steer\r\n";

fn with_tokens(folder: &std::path::Path) -> Settings {
    let token = |name: &str, text: &str, scope| {
        let file = folder.join(name);
        std::fs::write(&file, text).unwrap();
        Token { name: name.into(), file: Some(file), sha256: None, scopes: vec![scope] }
    };
    let tokens =
        vec![token("read", "read-read-read-read\n", Scope::Read), token("steer", "steer-steer-steer", Scope::Control)];
    Settings { tokens, ..Settings::default() }
}

// ---- what is shown -----------------------------------------------------------------------------------------------------------

#[test]
fn the_daemon_and_its_receivers() {
    let running = plain();
    let overview = running.get("/api/v1").json();
    assert_eq!(overview["version"], "1.2.3");
    assert_eq!(overview["started"], "1970-01-01T00:16:40.000Z");
    assert_eq!((&overview["generation"], &overview["refused"]), (&json!(2), &Value::Null));
    assert_eq!(overview["receivers"], json!(["cam1", "cam2"]));
    assert_eq!(overview["health"]["overall"], "Healthy");

    let all = running.get("/api/v1/receivers");
    assert_eq!(all.header("content-type"), "application/json");
    assert_eq!(all.header("cache-control"), "no-store");
    let all = all.json();
    assert_eq!(all["receivers"].as_array().unwrap().len(), 2);
    let one = running.get("/api/v1/receivers/cam1").json();
    assert_eq!(all["receivers"][0], one);
    assert_eq!((&one["state"], &one["status"]["fps"]), (&json!("receiving"), &json!(25.0)));
    assert_eq!(one["health"]["connection"]["status"], "Healthy");
    assert_eq!((&one["sinks"][0]["dropped"], &one["preview"]), (&json!(1), &Value::Null));
    let two = running.get("/api/v1/receivers/cam2").json();
    assert_eq!((&two["state"], &two["health"], &two["status"]), (&json!("failed"), &Value::Null, &Value::Null));
    assert!(two["reason"].as_str().unwrap().contains("eth9"));

    let sdp = running.get("/api/v1/receivers/cam1/sdp");
    assert_eq!((sdp.header("content-type"), sdp.text().as_str()), ("application/sdp", SDP));
    let stats = running.get("/api/v1/receivers/cam1/stats").json();
    assert_eq!((&stats["packets"]["lost"], &stats["frames"]["complete"]), (&json!(7), &json!(1500)));
    assert_eq!((&stats["legs"][1]["lost"], &stats["legs"][1]["state"]), (&json!(27), &json!("protected")));
    assert_eq!(
        stats["latency"]["complete"],
        json!({ "count": 1500, "sum_seconds": 0.625,
        "quantiles": [{ "quantile": 0.5, "seconds": 0.0004 }, { "quantile": 0.99, "seconds": 0.0009 }] })
    );
    assert_eq!(running.get("/api/v1/receivers/cam2/stats").json()["packets"], Value::Null);

    for path in ["", "/sdp", "/stats", "/events", "/thumbnail.jpg", "/preview/", "/preview/video.mjpeg"] {
        running.get(&format!("/api/v1/receivers/none{path}")).refuses(404, "there is no receiver \"none\"");
    }
    running.get("/api/v1/receivers/cam1/thumbnail.jpg").refuses(404, "has no preview");
    running.fake.change("cam1", |receiver| receiver.sdp = None);
    running.get("/api/v1/receivers/cam1/sdp").refuses(404, "has no SDP yet");
}

#[test]
fn probes_say_what_the_daemon_says() {
    let running = plain();
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = running.get(path);
        assert_eq!(answer.code, 200, "{path}");
        let value = answer.json();
        assert_eq!(
            value["receivers"],
            json!({ "stopped": 0, "starting": 0, "waiting": 0, "receiving": 1, "retrying": 0, "failed": 1 })
        );
        assert_eq!(
            value["health"],
            json!({ "overall": "Healthy", "link": "AllUp", "connection": "Healthy",
            "external_synchronization": "NotUsed", "stream": "Healthy" })
        );
    }
    running.fake.ready.store(false, Relaxed);
    assert_eq!(["/healthz", "/livez", "/readyz"].map(|path| running.get(path).code), [200, 200, 503]);
    assert_eq!(running.get("/readyz").json()["status"], "unavailable");
    running.fake.ready.store(true, Relaxed);
    running.fake.alive.store(false, Relaxed);
    assert_eq!(["/healthz", "/livez", "/readyz"].map(|path| running.get(path).code), [200, 503, 503]);
}

#[test]
fn pages_come_from_here_alone() {
    let running = plain();
    for (method, path) in table().into_iter().filter(|(_, path)| !path.contains("/v1/") && !path.contains("metrics")) {
        let answer = running.ask(method, path, "", b"");
        assert_eq!(answer.code, 200, "{path}");
        let text = answer.text().replace("http://www.w3.org/2000/svg", "");
        assert!(!text.contains("http:") && !text.contains("https:"), "{path} asks elsewhere");
        let policy = answer.header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"), "{path}: {policy}");
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        // What that policy would not let through.
        for inline in ["<style", "style=\"", "onclick=", "javascript:", "<script>"] {
            assert!(!answer.header("content-type").contains("html") || !text.contains(inline), "{path} has {inline}");
        }
        for part in text.split(['"', '\'']).filter(|part| part.starts_with("/page/")) {
            assert_eq!(running.get(part).code, 200, "{path} asks for {part}");
        }
    }
}

#[test]
fn pictures_of_a_receiver() {
    let fake = Fake::new(vec![receiver("cam1")]);
    let mut picture = Picture::new(640, 360, "CAM 1");
    fake.change("cam1", |receiver| receiver.preview = Some(picture.preview.source()));
    let running = Running::of(fake, Settings::default());
    running.get("/api/v1/receivers/cam1/thumbnail.jpg").refuses(503, "no frame has come yet");
    running.get("/api/v1/receivers/cam1/preview/picture.jpg").refuses(503, "no frame has come yet");
    assert_eq!(running.get("/api/v1/receivers/cam1/preview/snapshot.png").header("retry-after"), "1");
    (0..3).for_each(|_| picture.step());

    let small = running.get("/api/v1/receivers/cam1/thumbnail.jpg");
    assert_eq!((small.code, small.header("content-type"), small.header("x-frame-number")), (200, "image/jpeg", "2"));
    let mut decoder = zune_jpeg::JpegDecoder::new(zune_jpeg::zune_core::bytestream::ZCursor::new(&small.body));
    decoder.decode().unwrap();
    assert_eq!(decoder.dimensions(), Some((320, 180)));
    assert_eq!(running.get("/api/v1/receivers/cam1").json()["preview"]["rendered"], 0, "it is no live picture");

    // Everything of the preview is below its path; what it says in words is JSON here.
    let png = running.get("/api/v1/receivers/cam1/preview/snapshot.png?download");
    assert_eq!((png.code, png.header("content-disposition")), (200, "attachment; filename=\"frame-2.png\""));
    let frozen = running.ask("POST", "/api/v1/receivers/cam1/preview/freeze", "", b"").json();
    assert_eq!(frozen["frames"][0]["number"], 2);
    assert_eq!(running.get("/api/v1/receivers/cam1/preview/frame?back=1").header("x-frame-number"), "1");
    running.get("/api/v1/receivers/cam1/preview/frame?back=99").refuses(404, "frames are kept");
    running.get("/api/v1/receivers/cam1/preview/frame?back=x").refuses(400, "back");
    for part in [
        "",
        "preview.css",
        "preview.js",
        "common.js",
        "preview.svg",
        "stats.json",
        "waveform.png",
        "vectorscope.png",
        "snapshot.jpg",
    ] {
        assert_eq!(running.get(&format!("/api/v1/receivers/cam1/preview/{part}")).code, 200, "{part}");
    }
    running.get("/api/v1/receivers/cam1/preview/none").refuses(404, "there is nothing at");
    // The live picture once: of the newest frame, and small enough.
    let live = running.get("/api/v1/receivers/cam1/preview/picture.jpg");
    assert_eq!((live.code, live.header("content-type"), live.header("x-frame-number")), (200, "image/jpeg", "2"));
    let mut decoder = zune_jpeg::JpegDecoder::new(zune_jpeg::zune_core::bytestream::ZCursor::new(&live.body));
    decoder.decode().unwrap();
    assert_eq!(decoder.dimensions(), Some((640, 360)));
    // One may be called like a part of the path.
    let mut odd = receiver("preview");
    odd.preview = Some(picture.preview.source());
    running.fake.receivers.lock().unwrap().push(Arc::new(odd));
    for part in ["snapshot.jpg", "stats.json", "preview.js", "frame?back=1"] {
        assert_eq!(running.get(&format!("/api/v1/receivers/preview/preview/{part}")).code, 200, "{part}");
    }

    // The live picture, until the receiver is no more.
    let mut stream = connect(running.address);
    stream.write_all(&request("GET", "/api/v1/receivers/cam1/preview/video.mjpeg", "", b"")).unwrap();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("X-Frame-Number: 2") {
        let mut part = [0; 4096];
        let n = stream.read(&mut part).unwrap();
        assert!(n > 0, "{:?}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&part[..n]);
    }
    running.fake.change("cam1", |receiver| receiver.preview = None);
    drop(picture);
    rest(&mut stream);
}

#[test]
fn a_thumbnail_is_made_once_for_all_who_ask() {
    let fake = Fake::new(vec![receiver("cam1")]);
    let mut picture = Picture::new(320, 180, "CAM 1");
    fake.change("cam1", |receiver| receiver.preview = Some(picture.preview.source()));
    picture.step();
    let running = Running::of(fake, Settings::default());
    let first = running.get("/api/v1/receivers/cam1/thumbnail.jpg");
    std::thread::scope(|scope| {
        let asked: Vec<_> =
            (0..16).map(|_| scope.spawn(|| running.get("/api/v1/receivers/cam1/thumbnail.jpg"))).collect();
        for answer in asked {
            assert_eq!(answer.join().unwrap().body, first.body, "no frame has come since");
        }
    });
    let before = Instant::now();
    picture.step();
    // A new frame is seen a second later at most; as long as the old one is served, that second is not over.
    loop {
        let answer = running.get("/api/v1/receivers/cam1/thumbnail.jpg");
        if answer.header("x-frame-number") == "1" {
            break;
        }
        assert!(before.elapsed() < LONG);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

// ---- what is told ------------------------------------------------------------------------------------------------------------

#[test]
fn receivers_are_steered() {
    let running = plain();
    let answer = running.ask("POST", "/api/v1/receivers/cam1/stop", "", b"");
    assert_eq!((answer.code, &answer.json()["state"]), (200, &json!("stopped")));
    let answer = running.ask("POST", "/api/v1/receivers/cam1/start", "", b"");
    assert_eq!((answer.code, &answer.json()["state"]), (200, &json!("receiving")));
    let other = "v=0\r\ns=other\r\n";
    for kind in ["Content-Type: application/sdp\r\n", "Content-Type: text/plain; charset=utf-8\r\n", ""] {
        let answer = running.ask("PUT", "/api/v1/receivers/cam2/sdp", kind, other.as_bytes());
        assert_eq!(answer.code, 200, "{kind}: {}", answer.text());
    }
    assert_eq!(running.get("/api/v1/receivers/cam2/sdp").text(), other);
    let switch = ("cam2".to_owned(), Action::Switch { sdp: other.into() });
    let answer = running.ask("DELETE", "/api/v1/receivers/cam2/sdp", "", b"");
    assert_eq!((answer.code, &answer.json()["id"]), (200, &json!("cam2")));
    let follow = ("cam2".to_owned(), Action::Follow);
    let wanted =
        [("cam1".into(), Action::Stop), ("cam1".into(), Action::Start), switch.clone(), switch.clone(), switch, follow];
    assert_eq!(running.told(), wanted);

    // Nothing of these comes to the daemon.
    let sdp = |headers: &str, body: &[u8]| running.ask("PUT", "/api/v1/receivers/cam1/sdp", headers, body);
    sdp("Content-Type: application/json\r\n", b"{}").refuses(415, "\"application/json\" is no SDP");
    sdp("Content-Type: application/x-www-form-urlencoded\r\n", b"v=0").refuses(415, "is no SDP");
    sdp("Content-Type: application/sdp\r\n", b"").refuses(400, "the body is empty");
    sdp("Content-Type: application/sdp\r\n", b" \r\n").refuses(400, "the body is empty");
    sdp("Content-Type: application/sdp\r\n", b"v=0\xff").refuses(400, "not UTF-8");
    sdp("Content-Type: application/sdp\r\n", &vec![b'x'; 65_537]).refuses(413, "more than 65536 octets");
    let whole = vec![b'x'; 65_536];
    assert_eq!(sdp("Content-Type: application/sdp\r\n", &whole).code, 200);
    running.ask("POST", "/api/v1/receivers/none/start", "", b"").refuses(404, "no receiver");
    running.ask("DELETE", "/api/v1/receivers/none/sdp", "", b"").refuses(404, "no receiver");
    assert_eq!(running.told().len(), 1);

    // What the daemon refuses.
    let refuse = |refusal: Option<Refusal>| *running.fake.answer.lock().unwrap() = refusal.map(Err);
    refuse(Some(Refusal::Invalid("line 3: no media\n  cure: add one".into())));
    let answer = sdp("", b"v=0");
    answer.refuses(422, "line 3: no media");
    assert_eq!(answer.json()["cure"], "add one");
    refuse(Some(Refusal::Unavailable("eth9 is no interface".into())));
    sdp("", b"v=0").refuses(409, "eth9 is no interface");
    refuse(Some(Refusal::Unknown));
    running.ask("POST", "/api/v1/receivers/cam1/stop", "", b"").refuses(404, "no receiver \"cam1\"");
    refuse(None);
    running.ask("POST", "/api/v1/receivers/cam1/stop", "", b"").refuses(503, "is ending");
}

#[test]
fn the_configuration_is_read_again() {
    let running = plain();
    let changes = Reloaded { added: vec!["cam3".into()], unchanged: vec!["cam1".into()], ..Reloaded::default() };
    let reload = |answer| {
        *running.fake.reloaded.lock().unwrap() = answer;
        running.ask("POST", "/api/v1/config/reload", "", b"")
    };
    let answer = reload(Some(Ok(changes)));
    assert_eq!(answer.code, 200);
    assert_eq!(
        answer.json(),
        json!({ "added": ["cam3"], "removed": [], "changed": [], "unchanged": ["cam1"], "unanswered": [] })
    );
    reload(Some(Err(Refusal::Invalid("line 7: unknown key `recievers`".into())))).refuses(422, "line 7: unknown key");
    reload(Some(Err(Refusal::Unavailable("another one is being read".into())))).refuses(409, "another one");
    reload(None).refuses(503, "is ending");
    running.get("/api/v1/config/reload").refuses(405, "");
}

// ---- events ------------------------------------------------------------------------------------------------------------------

#[test]
fn events_come_as_they_happen_and_nothing_is_missed() {
    let running = plain();
    running.fake.happen(None, EventKind::Daemon, "begun");
    running.fake.happen(Some("cam1"), EventKind::State, "receiving");
    running.fake.happen(Some("cam2"), EventKind::State, "failed:\n\"eth9\"");

    // From now on.
    let mut live = Events::open(running.address, "/api/v1/events", "");
    let mut of_one = Events::open(running.address, "/api/v1/receivers/cam1/events", "Last-Event-ID: 1\r\n");
    running.fake.happen(Some("cam2"), EventKind::Sink, "its file is closed");
    running.fake.happen(Some("cam1"), EventKind::Health, "Unhealthy");
    let event = live.next();
    assert_eq!((event.id, event.kind.as_str()), (4, "sink"));
    assert_eq!(live.next().id, 5);
    assert_eq!([of_one.next().id, of_one.next().id], [2, 5], "those of this receiver alone");

    // Who comes back has what happened meanwhile, once, and then what happens.
    let mut back = Events::open(running.address, "/api/v1/events", "Last-Event-ID: 2\r\n");
    let event = back.next();
    assert_eq!(
        (event.id, &event.data["message"], &event.data["receiver"]),
        (3, &json!("failed:\n\"eth9\""), &json!("cam2"))
    );
    running.fake.happen(None, EventKind::Config, "read again");
    assert_eq!([back.next().id, back.next().id, back.next().id], [4, 5, 6]);
    let mut all = Events::open(running.address, "/api/v1/events?since=0", "");
    assert_eq!((1..=6).map(|_| all.next().id).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    // The number is one of a daemon that ran before: this one begins with 1.
    let mut other = Events::open(running.address, "/api/v1/events", "Last-Event-ID: 1000\r\n");
    assert_eq!(other.next().id, 1);
    let mut none = Events::open(running.address, "/api/v1/events", "Last-Event-ID:\r\n");
    running.fake.happen(None, EventKind::Config, "and again");
    assert_eq!(none.next().id, 7);
    running.get("/api/v1/events?since=x").refuses(400, "\"x\" is no id and no number of an event");
    for wrong in ["-1", "x-1", "f4240-", "f4240-x", "f4240-1-1", "0123456789abcdef0-1"] {
        running
            .ask("GET", "/api/v1/events", &format!("Last-Event-ID: {wrong}\r\n"), b"")
            .refuses(400, "no id and no number");
    }
}

#[test]
fn events_of_another_run_are_not_taken_for_those_of_this_one() {
    let running = plain();
    (0..6).for_each(|n| running.fake.happen(None, EventKind::Daemon, &n.to_string()));
    let since = |id: &str| {
        let event = Events::open(running.address, "/api/v1/events", &format!("Last-Event-ID: {id}\r\n")).next();
        (event.run, event.id)
    };
    // It started 1000 s after 1970: 1 000 000 ms are f4240.
    assert_eq!(since("f4240-4"), ("f4240".into(), 5));
    assert_eq!(since("F4240-4").1, 5);
    assert_eq!(Events::open(running.address, "/api/v1/events?since=f4240-4", "").next().id, 5);
    // The daemon began anew, and has got further meanwhile than it was: nothing of it is known yet.
    running.fake.started.store(2_000, Relaxed);
    assert_eq!(since("f4240-4"), ("1e8480".into(), 1));
    assert_eq!(since("1e8480-4").1, 5);
    // Whoever gives a number alone means this run.
    assert_eq!(since("4").1, 5);
}

#[test]
fn what_is_not_kept_any_more_is_said() {
    let mut fake = Fake::new(vec![]);
    fake.keep = 3;
    let running = Running::of(fake, Settings::default());
    (0..10).for_each(|n| running.fake.happen(None, EventKind::Daemon, &n.to_string()));
    let mut events = Events::open(running.address, "/api/v1/events?since=2", "");
    events.comment("5 events are not kept any more");
    assert_eq!([events.next().id, events.next().id, events.next().id], [8, 9, 10]);
}

#[test]
fn streams_end_with_their_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::new(vec![receiver("cam1")]);
    let mut picture = Picture::new(64, 36, "CAM 1");
    fake.change("cam1", |receiver| receiver.preview = Some(picture.preview.source()));
    picture.step();
    let mut settings = with_tokens(folder.path());
    settings.listen = Listen(vec!["127.0.0.1:0".parse().unwrap()]);
    let running = Running::of(fake, settings.clone());
    let open = |path: &str, token: &str| {
        let mut stream = connect(running.address);
        stream.write_all(&request("GET", path, token, b"")).unwrap();
        let mut part = [0; 64];
        assert!(stream.read(&mut part).unwrap() > 0 && part.starts_with(b"HTTP/1.1 200"), "{path}");
        stream
    };
    let mut theirs = ["/api/v1/events", "/api/v1/receivers/cam1/events", "/api/v1/receivers/cam1/preview/video.mjpeg"]
        .map(|path| open(path, READ));
    let mut others = Events::open(running.address, "/api/v1/events", STEER);
    // Both are in force still.
    running.server.reload(&settings).unwrap();
    running.fake.happen(None, EventKind::Daemon, "read again");
    assert_eq!(others.next().data["message"], "read again");
    // One is not.
    settings.tokens.remove(0);
    running.server.reload(&settings).unwrap();
    for stream in &mut theirs {
        let all = rest(stream);
        assert!(all.ends_with(b"\r\n0\r\n\r\n"), "it ends in an orderly way: {:?}", String::from_utf8_lossy(&all));
    }
    running.fake.happen(None, EventKind::Daemon, "and again");
    assert_eq!(others.next().data["message"], "and again");
}

#[test]
fn streams_end_with_the_server() {
    let running = plain();
    let mut stream = connect(running.address);
    stream.write_all(&request("GET", "/api/v1/events", "", b"")).unwrap();
    let mut part = [0; 1024];
    assert!(stream.read(&mut part).unwrap() > 0);
    drop(running.server);
    rest(&mut stream);
}

// ---- who is let in -----------------------------------------------------------------------------------------------------------

#[test]
fn tokens_and_what_they_allow() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::new(with_tokens(folder.path()));
    let answer = running.get("/api/v1/receivers");
    answer.refuses(401, "a token is needed");
    assert_eq!(answer.header("www-authenticate"), "bearer realm=\"gdmedia\"");
    running
        .ask("GET", "/api/v1", "Authorization: Bearer read-read-read-reaD\r\n", b"")
        .refuses(401, "nobody knows this token");
    running.ask("GET", "/api/v1", "Authorization: Basic cmVhZDpyZWFk\r\n", b"").refuses(401, "nobody knows");
    let no_text = [
        b"GET /api/v1 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAuthorization: Bearer \xff",
        &b"\r\n\r\n"[..],
    ]
    .concat();
    raw(running.address, &no_text).refuses(401, "nobody knows");
    for headers in [READ, STEER] {
        assert_eq!(running.ask("GET", "/api/v1/receivers", headers, b"").code, 200);
    }
    let answer = running.ask("POST", "/api/v1/receivers/cam1/stop", READ, b"");
    answer.refuses(403, "this token may see, and not steer");
    assert!(answer.header("www-authenticate").contains("insufficient_scope"));
    assert_eq!(running.told(), []);
    assert_eq!(running.ask("POST", "/api/v1/receivers/cam1/stop", STEER, b"").code, 200);
    let access = |headers: &str| running.ask("GET", "/api/v1/access", headers, b"").json();
    assert_eq!(access(""), json!({ "token_needed": true, "scopes": [] }));
    let counted = || prometheus::read(&running.ask("GET", "/metrics", READ, b"").text());
    let before = counted().value("gdmedia_api_refused_total", &[("reason", "token")]).unwrap();
    assert_eq!(access("Authorization: Bearer a-guess-that-is-wrong\r\n")["scopes"], json!([]));
    let after = counted().value("gdmedia_api_refused_total", &[("reason", "token")]);
    assert_eq!(after, Some(before + 1.0), "who guesses here is counted as well");
    assert_eq!(access(READ), json!({ "token_needed": true, "scopes": ["read"] }));
    assert_eq!(access(STEER), json!({ "token_needed": true, "scopes": ["read", "control"] }));
    assert_eq!(plain().get("/api/v1/access").json(), json!({ "token_needed": false, "scopes": ["read", "control"] }));

    // Every path but pages, probes and the description.
    for (method, path) in table() {
        let path = path.replace("{id}", "cam1");
        let answer = running.ask(method, &path, "", b"");
        let free = matches!(path.as_str(), "/" | "/receiver" | "/events" | "/docs" | "/healthz" | "/livez" | "/readyz")
            || path.starts_with("/page/")
            || path == "/api/v1/openapi.json"
            || path == "/api/v1/access";
        assert_eq!(answer.code, if free { 200 } else { 401 }, "{method} {path}");
    }
    let metrics = running.ask("GET", "/metrics", READ, b"").text();
    let count = |reason: &str| prometheus::read(&metrics).value("gdmedia_api_refused_total", &[("reason", reason)]);
    assert!(count("token") > Some(20.0) && count("scope") == Some(1.0), "{metrics}");
}

#[test]
fn it_does_not_listen_to_others_without_tokens() {
    let everywhere = |tokens, open| Settings {
        listen: Listen(vec!["0.0.0.0:0".parse().unwrap()]),
        tokens,
        open,
        ..Settings::default()
    };
    let fake = Arc::new(Fake::new(vec![]));
    let error = Server::open(fake.clone(), &everywhere(vec![], false)).unwrap_err();
    assert!(error.to_string().contains("which others reach, and has no tokens"), "{error}");
    assert!(error.cure_text().contains("open = true"), "{error}");
    Server::open(fake.clone(), &everywhere(vec![], true)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    Server::open(fake, &everywhere(with_tokens(folder.path()).tokens, false)).unwrap();
}

#[test]
fn names_and_pages_of_others_are_turned_away() {
    let running = Running::new(Settings { hosts: vec!["ingest.example.org".into()], ..Settings::default() });
    let to = |host: &str| {
        raw(running.address, format!("GET /api/v1 HTTP/1.1\r\n{host}Connection: close\r\n\r\n").as_bytes())
    };
    for host in ["127.0.0.1", "localhost:8080", "[::1]:1", "ingest.example.org", "INGEST.example.org:443"] {
        assert_eq!(to(&format!("Host: {host}\r\n")).code, 200, "{host}");
    }
    for host in ["evil.example", "ingest.example.org.evil.example", "127.0.0.1.evil.example", "a@127.0.0.1"] {
        to(&format!("Host: {host}\r\n")).refuses(421, "is no name of this server");
    }
    to("").refuses(421, "is no name of this server");
    // Also where no token is needed.
    raw(running.address, b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
        .refuses(421, "no name");
    let stop = |headers: &str| running.ask("POST", "/api/v1/receivers/cam1/stop", headers, b"");
    stop("Origin: https://evil.example\r\n").refuses(403, "not from another site");
    stop("Origin: null\r\n").refuses(403, "not from another site");
    assert_eq!(running.told(), []);
    assert_eq!(stop("Origin: http://127.0.0.1\r\n").code, 200);
    // No other site may read: there is no word of it.
    let answer = running.ask("GET", "/api/v1", "Origin: https://evil.example\r\n", b"");
    assert_eq!((answer.code, answer.header("access-control-allow-origin")), (200, ""));
    assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin");
    running.ask("OPTIONS", "/api/v1", "", b"").refuses(405, "");
}

#[test]
fn what_is_wrong_is_refused_in_words() {
    let running = plain();
    running.get("/nothing").refuses(404, "there is nothing at /nothing");
    running.get("/api/v1/receivers/").refuses(404, "");
    running.get("/api/v1/receivers/%2e%2e%2fetc").refuses(404, "there is no receiver");
    running.get("/api/v1/receivers/%ff").refuses(400, "not UTF-8");
    running.get("/page/../../etc/passwd").refuses(404, "there is nothing at");
    let answer = running.ask("DELETE", "/api/v1/receivers/cam1", "", b"");
    answer.refuses(405, "method not allowed");
    assert_eq!(answer.header("allow"), "get,head");
    assert_eq!(running.ask("POST", "/api/v1/receivers/cam1/sdp", "", b"").header("allow"), "get,head,put,delete");
    let head = running.ask("HEAD", "/api/v1/receivers", "", b"");
    assert_eq!((head.code, head.body.len()), (200, 0));
    assert!(head.header("content-length").parse::<usize>().unwrap() > 100);
}

#[test]
fn too_much_is_cut_off() {
    let limits = Limits { header: 4096, headers: 20, body: 2048, request_seconds: 1, ..Limits::default() };
    let running = Running::new(Settings { limits, ..Settings::default() });
    let get = |headers: &str| running.ask("GET", "/api/v1", headers, b"");
    assert_eq!(get(&"X: y\r\n".repeat(10)).code, 200);
    assert_eq!(get(&"X: y\r\n".repeat(30)).code, 431);
    assert_eq!(get(&format!("X: {}\r\n", "y".repeat(8192))).code, 431);
    assert_eq!(running.get(&format!("/api/v1?{}", "y".repeat(8192))).code, 431);
    assert_eq!(raw(running.address, b"this is no HTTP\r\n\r\n").code, 400);

    let put = |headers: &str, body: &[u8]| {
        let head =
            format!("PUT /api/v1/receivers/cam1/sdp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}\r\n");
        raw(running.address, &[head.as_bytes(), body].concat())
    };
    put("Content-Length: 4000000000000\r\n", b"v=0").refuses(413, "more than 2048 octets");
    put("Transfer-Encoding: chunked\r\n", format!("a00\r\n{}\r\n0\r\n\r\n", "x".repeat(0xa00)).as_bytes())
        .refuses(413, "more than 2048");
    assert_eq!(put("Transfer-Encoding: chunked\r\n", b"3\r\nv=0\r\n0\r\n\r\n").code, 200);
    put("Content-Length: 100\r\n", b"v=0").refuses(408, "has not come within 1 s");
    put("Transfer-Encoding: chunked\r\n", b"zz\r\n").refuses(400, "broken off");

    // Headers that do not end: the server hangs up, with or without a word.
    let mut slow = connect(running.address);
    slow.write_all(b"GET /api/v1 HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ").unwrap();
    let begun = Instant::now();
    while begun.elapsed() < LONG && slow.write_all(b"y").is_ok() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(begun.elapsed() < LONG, "it listens for ever");
    // And one that says nothing at all.
    let mut silent = connect(running.address);
    assert!(!String::from_utf8_lossy(&rest(&mut silent)).contains("200 OK"));
    assert_eq!(running.get("/api/v1").code, 200);
}

#[test]
fn so_many_at_once() {
    // Longer than the test, so that a slow machine frees none.
    let limits = Limits { connections: 6, connections_per_peer: 4, request_seconds: 600, ..Limits::default() };
    let running = Running::new(Settings { limits, ..Settings::default() });
    let hold = |n: usize| -> Vec<_> { (0..n).map(|_| Events::open(running.address, "/api/v1/events", "")).collect() };
    let held = hold(3);
    assert_eq!(running.get("/api/v1").code, 200, "the fourth");
    let more = hold(1);
    let mut fifth = connect(running.address);
    let _ = fifth.write_all(&request("GET", "/api/v1", "", b""));
    assert_eq!(rest(&mut fifth), b"");
    drop(more);
    // It takes the server a moment to see that one has gone.
    let begun = Instant::now();
    loop {
        let mut stream = connect(running.address);
        let _ = stream.write_all(&request("GET", "/metrics", "", b""));
        if let Some(answer) = Answer::of(&rest(&mut stream)) {
            let refused =
                prometheus::read(&answer.text()).value("gdmedia_api_refused_total", &[("reason", "connections")]);
            assert!(refused >= Some(1.0));
            break;
        }
        assert!(begun.elapsed() < LONG);
        running.fake.happen(None, EventKind::Daemon, "something that shows who has gone");
    }
    drop(held);
}

#[test]
fn so_many_a_second() {
    // So few that none comes back while the test runs.
    let limits = Limits { requests_per_second: 1, burst: 5, ..Limits::default() };
    let running = Running::new(Settings { limits, ..Settings::default() });
    let answers: Vec<Answer> = (0..40).map(|_| running.get("/healthz")).collect();
    let refused = answers.iter().find(|answer| answer.code != 200).expect("40 requests do not take 35 s");
    refused.refuses(429, "more than 1 requests a second");
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
    assert!(answers[..5].iter().all(|answer| answer.code == 200), "the burst");
}

#[test]
fn clients_of_a_proxy_are_told_apart() {
    let limits = Limits { requests_per_second: 1, burst: 5, connections_per_peer: 1, ..Limits::default() };
    let trusted = Settings { limits, trusted_proxies: vec!["127.0.0.0/8".into()], ..Settings::default() };
    let ask_for = |running: &Running, of: &str| {
        running.ask("GET", "/healthz", &format!("X-Forwarded-For: 203.0.113.9, {of}\r\n"), b"").code
    };
    let running = Running::new(trusted.clone());
    // It may have more connections than one client.
    let held = [connect(running.address), connect(running.address)];
    assert!((0..40).any(|_| ask_for(&running, "192.0.2.1") == 429), "40 requests do not take 35 s");
    assert_eq!(ask_for(&running, "192.0.2.2"), 200);
    drop(held);
    // Of anybody else it means nothing.
    let limits = Limits { connections_per_peer: 64, ..trusted.limits };
    let running = Running::new(Settings { limits, trusted_proxies: vec!["10.0.0.1".into()], ..trusted });
    assert!((0..40).any(|n| ask_for(&running, &format!("192.0.2.{n}")) == 429));
}

// ---- TLS ---------------------------------------------------------------------------------------------------------------------

// Made by: openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout one.key -out one.crt -days 36500
//   -subj /CN=one.test -addext subjectAltName=DNS:one.test,IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE
fn pem(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api").join(name)
}

/// What a client that trusts the certificate `trusted` and looks for `name` is answered.
fn secure(
    address: SocketAddr,
    trusted: &str,
    name: &str,
    version: &'static rustls::SupportedProtocolVersion,
) -> std::io::Result<Answer> {
    secure_at(address, "/api/v1", trusted, name, version)
}

fn secure_at(
    address: SocketAddr,
    path: &str,
    trusted: &str,
    name: &str,
    version: &'static rustls::SupportedProtocolVersion,
) -> std::io::Result<Answer> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(pem(trusted)).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let client = rustls::ClientConnection::new(Arc::new(config), name).map_err(std::io::Error::other)?;
    let mut stream = rustls::StreamOwned::new(client, connect(address));
    stream.write_all(&request("GET", path, "", b""))?;
    let all = rest(&mut stream);
    Answer::of(&all).ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}

#[test]
fn https_with_its_certificate() {
    use rustls::version::{TLS12, TLS13};
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = ["crt", "key"].map(|kind| folder.path().join(kind));
    let install = |name: &str| {
        std::fs::copy(pem(&format!("{name}.crt")), &certificate).unwrap();
        std::fs::copy(pem(&format!("{name}.key")), &key).unwrap();
    };
    install("one");
    let mut settings =
        Settings { tls: Some(Tls { certificate: certificate.clone(), key: key.clone() }), ..Settings::default() };
    settings.listen = Listen(vec!["127.0.0.1:0".parse().unwrap()]);
    let running = Running::new(settings.clone());
    assert!(running.server.urls()[0].starts_with("https://127.0.0.1:"));
    let metrics = secure_at(running.address, "/metrics", "one.crt", "one.test", &TLS13).unwrap().text();
    // openssl x509 -enddate: Nov  6 11:15:47 2126 GMT.
    let until = prometheus::read(&metrics).value("gdmedia_api_certificate_expiry_timestamp_seconds", &[]);
    assert_eq!(until, Some(4_949_637_347.0));
    for version in [&TLS12, &TLS13] {
        assert_eq!(secure(running.address, "one.crt", "one.test", version).unwrap().code, 200);
    }
    let error = secure(running.address, "one.crt", "two.test", &TLS13).unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
    let error = secure(running.address, "two.crt", "one.test", &TLS13).unwrap_err();
    assert!(error.to_string().contains("invalid peer certificate"), "{error}");
    // HTTP is none of its languages.
    let mut stream = connect(running.address);
    stream.write_all(&request("GET", "/api/v1", "", b"")).unwrap();
    assert!(!String::from_utf8_lossy(&rest(&mut stream)).contains("HTTP/1.1"));

    // Another certificate is there, and is taken.
    install("two");
    running.server.reload(&settings).unwrap();
    assert_eq!(secure(running.address, "two.crt", "two.test", &TLS13).unwrap().code, 200);
    assert!(secure(running.address, "one.crt", "one.test", &TLS13).is_err());
    // By itself, too, when the files change; until both are there the one before is used.
    std::fs::copy(pem("one.crt"), &certificate).unwrap();
    let error = running.server.reload(&settings).unwrap_err();
    assert!(error.to_string().contains("make no TLS server"), "{error}");
    assert_eq!(secure(running.address, "two.crt", "two.test", &TLS13).unwrap().code, 200);
    std::fs::copy(pem("one.key"), &key).unwrap();
    let begun = Instant::now();
    while secure(running.address, "one.crt", "one.test", &TLS13).is_err() {
        assert!(begun.elapsed() < LONG, "never the new one");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let said = |words: &str| {
        let begun = Instant::now();
        while !running.fake.history().iter().any(|event| event.message.contains(words)) {
            assert!(begun.elapsed() < LONG, "nobody says {words:?}");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    };
    said("the API has another certificate, valid until 2126-11-06");
    std::fs::remove_file(&key).unwrap();
    said("the API goes on with the certificate that it has: no private key can be read from");
    for (file, text, wanted) in
        [(&certificate, "", "no certificate can be read"), (&key, "x", "no private key can be read")]
    {
        install("one");
        std::fs::write(file, text).unwrap();
        let error = running.server.reload(&settings).unwrap_err();
        assert!(error.to_string().contains(wanted) && !error.cure_text().is_empty(), "{error}");
    }
}

#[test]
fn settings_are_taken_while_it_runs() {
    let running = plain();
    let first = running.address;
    let folder = tempfile::tempdir().unwrap();
    let mut settings = with_tokens(folder.path());
    // The address that it has, as it was asked for, and another one.
    settings.listen = Listen(vec!["127.0.0.1:0".parse().unwrap(), "127.0.0.2:0".parse().unwrap()]);
    running.server.reload(&settings).unwrap();
    let addresses = running.server.addresses();
    assert_eq!((addresses[0], addresses.len()), (first, 2));
    for address in &addresses {
        get(*address, "/api/v1").refuses(401, "a token is needed");
    }
    // One that is wrong changes nothing.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut wrong = settings.clone();
    (wrong.tokens, wrong.listen) = (vec![], Listen(vec![taken.local_addr().unwrap()]));
    let error = running.server.reload(&wrong).unwrap_err();
    assert!(error.to_string().contains("is in use"), "{error}");
    assert_eq!(running.server.addresses(), addresses);
    running.get("/api/v1").refuses(401, "a token is needed");
    // The first address is given up.
    settings.listen.0.remove(0);
    running.server.reload(&settings).unwrap();
    assert_eq!(running.server.addresses(), addresses[1..]);
    let begun = Instant::now();
    while std::net::TcpStream::connect(first).is_ok() {
        assert!(begun.elapsed() < LONG, "it still listens");
    }
    assert_eq!(ask(addresses[1], "GET", "/api/v1", READ, b"").code, 200);
}

// ---- what it says of itself --------------------------------------------------------------------------------------------------

#[test]
fn the_description_lists_every_route_and_nothing_else() {
    let running = plain();
    let api = running.get("/api/v1/openapi.json").json();
    assert_eq!(api["info"]["version"], "1.2.3");
    let paths = api["paths"].as_object().unwrap();
    let described: BTreeSet<(String, String)> = paths
        .iter()
        .flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().keys().filter(|key| *key != "parameters");
            methods.map(move |method| (method.to_ascii_uppercase(), path.clone()))
        })
        .collect();
    let routes: BTreeSet<(String, String)> =
        table().iter().map(|(method, path)| (method.to_string(), path.to_string())).collect();
    assert_eq!(described, routes);
    // And what answers says so itself.
    Events::open(running.address, "/api/v1/events", "");
    for (method, path) in table().into_iter().filter(|(_, path)| *path != "/api/v1/events") {
        let operation = &api["paths"][path][method.to_ascii_lowercase()];
        let answer = running.ask(method, &path.replace("{id}", "none"), "", b"");
        let code = answer.code.to_string();
        assert!(operation["responses"].get(&code).is_some(), "{method} {path} answers {code}");
        let wanted = if path.contains("{id}") { "404" } else { "200" };
        // The reloaded configuration is that of the fake.
        assert_eq!(code, wanted, "{method} {path}");
    }
}

#[test]
fn metrics_are_as_the_format_says() {
    let running = plain();
    running.fake.change("cam2", |receiver| receiver.label = "a \"quoted\" \\ label\nof two lines".into());
    let sink = running.fake.receivers.lock().unwrap()[0].sinks[0].clone();
    running.fake.change("cam1", |receiver| receiver.sinks.push(sink));
    let answer = running.get("/metrics");
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let page = prometheus::read(&answer.text());
    let cam1 = [("receiver", "cam1")];
    for (name, labels, wanted) in [
        ("gdmedia_build_info", &[("version", "1.2.3")][..], 1.0),
        ("gdmedia_start_time_seconds", &[], 1000.0),
        ("gdmedia_config_loads_total", &[], 2.0),
        ("gdmedia_receivers", &[("state", "receiving")], 1.0),
        ("gdmedia_receiver_state", &[("receiver", "cam2"), ("state", "failed")], 1.0),
        ("gdmedia_receiver_state", &[("receiver", "cam2"), ("state", "receiving")], 0.0),
        ("gdmedia_receiver_state_since_seconds", &cam1, 2000.0),
        ("gdmedia_receiver_restarts_total", &cam1, 1.0),
        ("gdmedia_rx_packets_total", &[("receiver", "cam1"), ("leg", "0")], 4493.0),
        ("gdmedia_rx_lost_packets_total", &[("receiver", "cam1"), ("leg", "1")], 27.0),
        ("gdmedia_rx_unrecovered_packets_total", &cam1, 7.0),
        ("gdmedia_rx_bytes_total", &cam1, 12_600_000.0),
        ("gdmedia_socket_drops_total", &cam1, 3.0),
        ("gdmedia_rx_rejected_packets_total", &[("receiver", "cam1"), ("reason", "payload_type")], 1.0),
        ("gdmedia_frames_total", &[("receiver", "cam1"), ("state", "complete")], 1500.0),
        ("gdmedia_frames_total", &[("receiver", "cam1"), ("state", "corrupt")], 4.0),
        ("gdmedia_frames_dropped_total", &[("receiver", "cam1"), ("reason", "shed")], 2.0),
        ("gdmedia_leg_skew_seconds", &[("receiver", "cam1"), ("leg", "1")], 0.00025),
        ("gdmedia_leg_state", &[("receiver", "cam1"), ("leg", "0"), ("state", "protected")], 1.0),
        ("gdmedia_status", &[("receiver", "cam1"), ("domain", "connection")], 1.0),
        ("gdmedia_status", &[("receiver", "cam1"), ("domain", "sync")], 0.0),
        ("gdmedia_frame_latency_seconds", &[("receiver", "cam1"), ("hop", "complete"), ("quantile", "0.99")], 0.0009),
        ("gdmedia_frame_latency_seconds_sum", &[("receiver", "cam1"), ("hop", "complete")], 0.625),
        ("gdmedia_frame_latency_seconds_count", &[("receiver", "cam1"), ("hop", "complete")], 1500.0),
        ("gdmedia_sink_drops_total", &[("receiver", "cam1"), ("sink", "archive")], 1.0),
        ("gdmedia_sink_queue_depth", &[("receiver", "cam1"), ("sink", "archive#2")], 2.0),
    ] {
        assert_eq!(page.value(name, labels), Some(wanted), "{name} {labels:?}");
    }
    assert_eq!(
        page.samples("gdmedia_worker_info"),
        [(labels(&[("receiver", "cam1"), ("core", "5"), ("node", "1")]), 1.0)]
    );
    let infos = page.samples("gdmedia_receiver_info");
    assert!(infos.iter().any(|(labels, _)| labels["label"] == "a \"quoted\" \\ label\nof two lines"), "{infos:?}");
    // A receiver that is not received has no counters, and the clock that nobody uses is not said to be unlocked.
    assert!(page.samples("gdmedia_rx_bytes_total").iter().all(|(labels, _)| labels["receiver"] == "cam1"));
    // What is not known is absent, and not 0.
    for name in page.names().keys().filter(|name| name.starts_with("gdmedia_ptp_")) {
        assert_eq!(page.samples(name).len(), 0, "{name}");
    }
    for name in ["gdmedia_nic_hw_drops_total", "gdmedia_gpu_mem_bytes"] {
        assert!(page.names().contains_key(name) && page.samples(name).is_empty(), "{name}");
    }
    assert!(page.value("process_resident_memory_bytes", &[]) > Some(1e6));

    let Some(promtool) = prometheus::promtool() else {
        println!("promtool is not here: scripts/setup test brings it");
        return;
    };
    let mut child = std::process::Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(answer.text().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn labels(pairs: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn clocks_cards_and_gpus_of_the_machine() {
    let running = plain();
    let grandmaster = "08-00-11-FF-FE-22-33-44";
    let state = ptp::State {
        port: ptp::PortState::Slave,
        domain: 127,
        offset_ns: Some(-1500),
        path_delay_ns: Some(900),
        grandmaster: Some(grandmaster.parse().unwrap()),
        ..ptp::State::default()
    };
    let seen = ptp::Seen { ptp: Ok(state), grandmaster_changes: 2, unlocked: 1, card_ahead_ns: Some(37_000_000_000) };
    let card = |interface: &str, packets| CardDrops { interface: interface.into(), packets };
    let gpu = GpuMemory { gpu: "0000:1b:00.0".into(), octets: 300 << 20 };
    running.fake.change("cam1", |receiver| {
        receiver.ptp = Some(seen);
        receiver.cards = vec![card("eth1", 7), card("eth2", 0)];
        receiver.gpu_memory = Some(gpu.clone());
    });
    // Another receiver by the same card and with the same GPU, which looked a moment later; ptp4l follows nobody in its domain.
    running.fake.change("cam2", |receiver| {
        let alone = ptp::State { port: ptp::PortState::Listening, ..ptp::State::default() };
        receiver.ptp = Some(ptp::Seen::first(Ok(alone)));
        receiver.cards = vec![card("eth1", 9)];
        receiver.gpu_memory = Some(gpu);
    });
    let page = prometheus::read(&running.get("/metrics").text());
    let cam1 = [("receiver", "cam1")];
    for (name, labels, wanted) in [
        ("gdmedia_ptp_locked", &cam1[..], 1.0),
        ("gdmedia_ptp_locked", &[("receiver", "cam2")], 0.0),
        ("gdmedia_ptp_offset_seconds", &cam1, -0.000_001_5),
        ("gdmedia_ptp_path_delay_seconds", &cam1, 0.000_000_9),
        ("gdmedia_ptp_card_offset_seconds", &cam1, 37.0),
        ("gdmedia_ptp_source_changes_total", &cam1, 2.0),
        ("gdmedia_ptp_unlocked_total", &cam1, 1.0),
        ("gdmedia_ptp_grandmaster_info", &[("receiver", "cam1"), ("gm", grandmaster), ("domain", "127")], 1.0),
        ("gdmedia_nic_hw_drops_total", &[("interface", "eth1")], 9.0),
        ("gdmedia_nic_hw_drops_total", &[("interface", "eth2")], 0.0),
        ("gdmedia_gpu_mem_bytes", &[("gpu", "0000:1b:00.0")], 314_572_800.0),
    ] {
        assert_eq!(page.value(name, labels), Some(wanted), "{name} {labels:?}");
    }
    for (name, count) in [
        ("gdmedia_ptp_offset_seconds", 1),
        ("gdmedia_ptp_grandmaster_info", 1),
        ("gdmedia_ptp_card_offset_seconds", 1),
        ("gdmedia_nic_hw_drops_total", 2),
        ("gdmedia_gpu_mem_bytes", 1),
    ] {
        assert_eq!(page.samples(name).len(), count, "{name}");
    }
    // One whose ptp4l has ended keeps what it counted, and says nothing else.
    running.fake.change("cam1", |receiver| receiver.ptp = Some(ptp::Seen { ptp: Err(ptp::Silent::Absent), ..seen }));
    let page = prometheus::read(&running.get("/metrics").text());
    assert_eq!(page.value("gdmedia_ptp_source_changes_total", &cam1), Some(2.0));
    assert_eq!(
        (page.value("gdmedia_ptp_locked", &cam1), page.value("gdmedia_ptp_offset_seconds", &cam1)),
        (None, None)
    );

    // The same by the API.
    let stats = running.get("/api/v1/receivers/cam1/stats").json();
    assert_eq!((&stats["cards"][0]["interface"], &stats["cards"][0]["packets"]), (&json!("eth1"), &json!(7)));
    assert_eq!((&stats["gpu_memory"]["octets"], &stats["ptp"]["grandmaster_changes"]), (&json!(300 << 20), &json!(2)));
    let shown = running.get("/api/v1/receivers/cam1").json();
    let wanted = json!({ "core": 5, "node": 1, "shared": false, "why": "where eth1 lies" });
    assert_eq!(shown["placement"], wanted);
}

/// Every name of the list in docs/api.md is a metric, and every metric is there.
#[test]
fn every_metric_is_explained() {
    let running = plain();
    let page = prometheus::read(&running.get("/metrics").text());
    let docs = std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/api.md")).unwrap();
    for name in page.names().keys().filter(|name| name.starts_with("gdmedia_")) {
        let short = name.trim_start_matches("gdmedia");
        assert!(docs.contains(name.as_str()) || docs.contains(&format!("`{short}")), "{name} is not in docs/api.md");
    }
}

/// Whatever a dashboard or an alert asks for is there, with the labels that it asks by.
#[test]
fn dashboards_and_alerts_name_metrics_that_there_are() {
    let running = plain();
    let page = prometheus::read(&running.get("/metrics").text());
    let deploy = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let mut expressions = Vec::new();
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(deploy.join("grafana/gdmedia.json")).unwrap()).unwrap();
    strings(&dashboard, &mut expressions);
    let rules = std::fs::read_to_string(deploy.join("prometheus/gdmedia.rules.yml")).unwrap();
    expressions.extend(rules.lines().map(str::to_owned));
    let mut asked = BTreeSet::new();
    for expression in &expressions {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let starts = expression.match_indices("gdmedia_").chain(expression.match_indices("process_")).map(|(at, _)| at);
        for at in starts.filter(|&at| !expression[..at].ends_with(is_name)) {
            let rest = &expression[at..];
            let (name, after) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
            assert!(page.names().contains_key(name), "{name} is no metric: {expression}");
            asked.insert(name.to_owned());
            // Names of labels stand before `=`, `=~` and the like.
            let inside =
                after.strip_prefix('{').and_then(|inside| inside.split_once('}')).map_or("", |(inside, _)| inside);
            let known: BTreeSet<&str> =
                page.samples(name).iter().flat_map(|(labels, _)| labels.keys().map(String::as_str)).collect();
            for label in inside.split(',').filter_map(|part| part.split(['=', '!']).next()).map(str::trim) {
                let by_scraping = matches!(label, "" | "instance" | "job");
                assert!(
                    by_scraping || page.samples(name).is_empty() || known.contains(label),
                    "{name} has no {label}: {expression}"
                );
            }
        }
    }
    assert!(asked.len() > 30, "{asked:?}");
}

fn strings(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Array(all) => all.iter().for_each(|value| strings(value, into)),
        Value::Object(all) => all.values().for_each(|value| strings(value, into)),
        _ => {}
    }
}

#[test]
fn counters_do_not_go_back() {
    let running = plain();
    let counters = || prometheus::read(&running.get("/metrics").text()).counters();
    let before = counters();
    assert!(before.len() > 40, "{}", before.len());
    running.get("/nothing");
    running.get("/healthz");
    let after = counters();
    for (series, value) in &before {
        assert!(
            after.get(series).is_some_and(|now| now >= value),
            "{series}: {value} and then {:?}",
            after.get(series)
        );
    }
}

// ---- whatever comes ----------------------------------------------------------------------------------------------------------

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Bodies, methods, paths and headers of any kind: it answers, and never that it failed.
    #[test]
    fn nothing_that_comes_is_its_fault(
        which in 0..200usize,
        id in "[a-z0-9%./?#&=é-]{0,12}",
        method in prop::sample::select(vec!["GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "HEAD", "BREW"]),
        headers in prop::collection::vec(("[A-Za-z-]{1,12}", "[ -~]{0,40}"), 0..6),
        body in prop::collection::vec(any::<u8>(), 0..3000),
    ) {
        static RUNNING: std::sync::OnceLock<Running> = std::sync::OnceLock::new();
        let running = RUNNING.get_or_init(|| {
            let limits = Limits { requests_per_second: 100_000, burst: 1_000_000, ..Limits::default() };
            Running::new(Settings { limits, ..Settings::default() })
        });
        let routes = table();
        let (_, path) = routes[which % routes.len()];
        let id = if which % 3 == 0 { "cam1" } else { &id };
        let path = path.replace("{id}", id).replace('é', "%C3%A9");
        // These go on for ever.
        prop_assume!(!path.ends_with("events") && !path.contains("events?"));
        let own = ["host", "connection", "content-length", "transfer-encoding", "expect", "upgrade"];
        let headers: String = headers.iter().filter(|(name, _)| !own.contains(&name.to_ascii_lowercase().as_str()))
            .map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let path: String = path.chars().filter(|c| *c != '#').collect();
        let answer = running.ask(method, &path, &headers, &body);
        prop_assert!(answer.code < 500, "{method} {path}: {} {}", answer.head, answer.text());
        if answer.code >= 400 && answer.code != 431 && !answer.body.is_empty() && method != "HEAD" {
            prop_assert!(answer.json()["error"].is_string(), "{method} {path}: {}", answer.text());
        }
    }
}
