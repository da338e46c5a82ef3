//! `gdmedia daemon` from end to end: real senders on one side, its API and metrics on the other.
#![cfg(feature = "daemon")]

#[path = "api/client.rs"]
mod client;
mod common;
mod netns;
#[path = "api/prometheus.rs"]
mod prometheus;

use client::{Answer, Events, LONG, ask, get};
use common::{Running, Temp, free_port, gdmedia, temp};
use netns::Net;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// 64x36 at 50 frames a second, with this session name.
fn sdp(name: &str, port: u16) -> String {
    let text = common::sdp(port).replace("width=320", "width=64").replace("height=180", "height=36");
    text.replace("=25;", "=50;").replace("s=test", &format!("s={name}"))
}

fn send(dir: &Temp, port: u16) -> Running {
    let path = dir.write(&format!("send-{port}.sdp"), &sdp("sender", port));
    Running::start(&["send", "--to", &format!("udp://127.0.0.1:{port}"), "--sdp", &path], Stdio::null())
}

/// A daemon, and where its API is.
struct Daemon {
    running: Running,
    address: SocketAddr,
}

impl Daemon {
    fn start(config: &str) -> Daemon {
        let mut running = Running::start(&["daemon", "--json", "-c", config], Stdio::piped());
        let mut lines = BufReader::new(running.0.stderr.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).unwrap() > 0, "it ended");
            let event: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
            let said = event["message"].as_str().unwrap_or_default();
            if let Some(url) = said.strip_prefix("API at http://") {
                break url.trim_end_matches('/').parse().unwrap();
            }
        };
        // Nobody waits for the others, and the daemon must not wait for anybody.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Daemon { running, address }
    }
    fn get(&self, path: &str) -> Answer {
        get(self.address, path)
    }
    fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        ask(self.address, method, path, "", body.as_bytes())
    }
    /// The receiver when it is so.
    fn until(&self, id: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let value = self.get(&format!("/api/v1/receivers/{id}")).json();
            if wanted(&value) {
                return value;
            }
            assert!(begun.elapsed() < LONG, "{id} is never {what}: {value:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    /// The value of a metric of cam1.
    fn metric(&self, name: &str, more: &[(&str, &str)]) -> Option<f64> {
        let page = prometheus::read(&self.get("/metrics").text());
        page.value(name, &[&[("receiver", "cam1")], more].concat())
    }
}

fn receiver(id: &str, port: u16) -> String {
    format!("[[receivers]]\nid = \"{id}\"\nsdp = '''\n{}'''\ngpu = \"off\"\n[receivers.preview]\n", sdp(id, port))
}

const API: &str = "[daemon]\ninterval = \"100ms\"\n[api]\nlisten = \"127.0.0.1:0\"\n";

#[test]
fn a_receiver_from_its_sender_to_a_picture_in_a_browser() {
    let dir = temp();
    let (a, b) = (free_port(), free_port());
    let _senders = [send(&dir, a), send(&dir, b)];
    let config = dir.write("gdmedia.toml", &format!("{API}{}", receiver("cam1", a)));
    let daemon = Daemon::start(&config);

    // What it shows.
    let cam1 =
        daemon.until("cam1", "receiving", |r| r["state"] == "receiving" && r["status"]["fps"].as_f64() > Some(0.0));
    assert_eq!((&cam1["flow"]["name"], &cam1["flow"]["width"]), (&json!("cam1"), &json!(64)));
    assert_eq!(cam1["backend"], "socket");
    // It looks a few times a second.
    let begun = Instant::now();
    while daemon.get("/readyz").code != 200 {
        assert!(begun.elapsed() < LONG, "it is never ready");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(daemon.get("/livez").json()["receivers"]["receiving"], 1);
    let sdp_of = daemon.get("/api/v1/receivers/cam1/sdp");
    assert_eq!(sdp_of.header("content-type"), "application/sdp");
    assert!(sdp_of.text().contains(&format!("m=video {a} ")), "{}", sdp_of.text());
    daemon.until("cam1", "seen", |r| r["preview"]["age_ms"].is_u64());
    let picture = daemon.get("/api/v1/receivers/cam1/thumbnail.jpg");
    assert_eq!(picture.code, 200, "{}", picture.text());
    let mut decoder = zune_jpeg::JpegDecoder::new(zune_jpeg::zune_core::bytestream::ZCursor::new(&picture.body));
    decoder.decode().unwrap();
    assert_eq!(decoder.dimensions(), Some((64, 36)));
    let stats = daemon.get("/api/v1/receivers/cam1/stats").json();
    assert!(
        stats["packets"]["received"].as_u64() > Some(0) && stats["legs"][0]["received"].as_u64() > Some(0),
        "{stats:#}"
    );
    assert!(stats["latency"]["complete"]["count"].as_u64() > Some(0), "{stats:#}");

    // Its metrics, which count on.
    let complete = || daemon.metric("gdmedia_frames_total", &[("state", "complete")]);
    let first = complete().unwrap();
    assert!(first > 0.0);
    assert_eq!(daemon.metric("gdmedia_receiver_state", &[("state", "receiving")]), Some(1.0));
    assert!(daemon.metric("gdmedia_frame_latency_seconds_count", &[("hop", "complete")]) > Some(0.0));
    let begun = Instant::now();
    while complete() <= Some(first + 50.0) {
        assert!(complete() >= Some(first), "it went back");
        assert!(begun.elapsed() < LONG, "it stands still");
    }

    // What it is told.
    let mut events = Events::open(daemon.address, "/api/v1/receivers/cam1/events", "");
    let answer = daemon.ask("POST", "/api/v1/receivers/cam1/stop", "");
    assert_eq!((answer.code, &answer.json()["state"]), (200, &json!("stopped")));
    assert_eq!(complete(), None);
    let stopped = events.next();
    assert_eq!((stopped.kind.as_str(), &stopped.data["receiver"]), ("state", &json!("cam1")));
    assert!(stopped.data["message"].as_str().unwrap().starts_with("stopped"), "{stopped:?}");
    daemon.get("/api/v1/receivers/cam1/thumbnail.jpg").refuses(404, "has no preview");
    assert_eq!(daemon.ask("POST", "/api/v1/receivers/cam1/start", "").code, 200);
    daemon.until("cam1", "receiving again", |r| r["state"] == "receiving");
    let answer = daemon.ask("PUT", "/api/v1/receivers/cam1/sdp", &sdp("another", b));
    assert_eq!(answer.code, 200, "{}", answer.text());
    let cam1 = daemon.until("cam1", "switched", |r| r["flow"]["name"] == "another" && r["state"] == "receiving");
    assert_eq!(cam1["switches"], 1);
    assert_eq!(daemon.metric("gdmedia_receiver_switches_total", &[]), Some(1.0));
    // Back to what the configuration says, and there again.
    assert_eq!(daemon.ask("DELETE", "/api/v1/receivers/cam1/sdp", "").code, 200);
    daemon.until("cam1", "as it is configured", |r| r["flow"]["name"] != "another" && r["state"] == "receiving");
    assert_eq!(daemon.ask("PUT", "/api/v1/receivers/cam1/sdp", &sdp("another", b)).code, 200);
    // What is no SDP changes nothing.
    let answer = daemon.ask("PUT", "/api/v1/receivers/cam1/sdp", "v=0\r\ns=nothing\r\n");
    answer.refuses(422, "no medium");
    assert_eq!(daemon.get("/api/v1/receivers/cam1").json()["flow"]["name"], "another");

    // What happened, for whoever comes now.
    let mut all = Events::open(daemon.address, "/api/v1/events?since=0", "");
    let mut said = Vec::new();
    while said.last().is_none_or(|event: &client::Happened| event.kind != "switch") {
        said.push(all.next());
    }
    assert_eq!(said[0].id, 1);
    assert!(said.windows(2).all(|w| w[1].id == w[0].id + 1), "{said:?}");
    daemon.running.tell("TERM");
    let mut running = daemon.running;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = running.0.try_wait().unwrap() {
            break status;
        }
        assert!(begun.elapsed() < LONG, "it does not end while somebody listens");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(0));
}

#[test]
fn an_sdp_that_cannot_be_received_does_not_disturb_a_switch_that_goes_on() {
    let dir = temp();
    let (a, b) = (free_port(), free_port());
    let _first = send(&dir, a);
    let cam1 = receiver("cam1", a).replace("[receivers.preview]\n", "switch_timeout = \"25s\"\n");
    let daemon = Daemon::start(&dir.write("gdmedia.toml", &format!("{API}{cam1}")));
    daemon.until("cam1", "receiving", |r| r["state"] == "receiving");
    let put = |sdp: &str| daemon.ask("PUT", "/api/v1/receivers/cam1/sdp", sdp);
    let audio = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=audio\r\nt=0 0\r\nm=audio 5004 RTP/AVP 97\r\nc=IN IP4 239.1.1.1/8\r\n\
        a=rtpmap:97 L24/48000/2\r\na=ptime:1\r\na=ts-refclk:ptp=IEEE1588-2008:traceable\r\na=mediaclk:direct=0\r\n";
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| put(&sdp("another", b)));
        let mut events = Events::open(daemon.address, "/api/v1/receivers/cam1/events?since=0", "");
        while !events.next().data["message"].as_str().unwrap().starts_with("another flow is received beside") {}
        put("v=0\r\ns=nothing\r\n").refuses(422, "no medium");
        put(audio).refuses(422, "");
        assert!(!waits.is_finished(), "nobody sends there yet");
        let _second = send(&dir, b);
        let answer = waits.join().unwrap();
        assert_eq!((answer.code, &answer.json()["switches"]), (200, &json!(1)), "{}", answer.text());
        daemon.until("cam1", "switched", |r| r["flow"]["name"] == "another" && r["state"] == "receiving");
    });
    assert!(daemon.get("/api/v1/receivers/cam1/sdp").text().contains("s=another"));
}

#[test]
fn another_configuration_by_the_api_and_for_the_api() {
    let dir = temp();
    let (a, b) = (free_port(), free_port());
    let _sender = send(&dir, a);
    let cam1 = receiver("cam1", a);
    let config = dir.write("gdmedia.toml", &format!("{API}{cam1}"));
    let daemon = Daemon::start(&config);
    daemon.until("cam1", "receiving", |r| r["state"] == "receiving");
    let received = || daemon.get("/api/v1/receivers/cam1/stats").json()["packets"]["received"].as_u64().unwrap_or(0);
    let before = received();

    dir.write("gdmedia.toml", &format!("{API}{cam1}{}", receiver("cam2", b)));
    let answer = daemon.ask("POST", "/api/v1/config/reload", "");
    assert_eq!(
        answer.json(),
        json!({ "added": ["cam2"], "removed": [], "changed": [], "unchanged": ["cam1"], "unanswered": [] })
    );
    daemon.until("cam2", "waiting", |r| r["state"] == "waiting" && r["reason"].is_string());
    assert!(received() >= before, "it began anew");

    // Wrong in the receivers, and wrong in the API: nothing changes, and the overview says so.
    dir.write("gdmedia.toml", &format!("{API}{cam1}lable = \"x\"\n"));
    daemon.ask("POST", "/api/v1/config/reload", "").refuses(422, "line");
    assert!(daemon.get("/api/v1").json()["refused"].as_str().unwrap().contains("lable"));
    assert_eq!(prometheus::read(&daemon.get("/metrics").text()).value("gdmedia_config_refused", &[]), Some(1.0));
    dir.write("gdmedia.toml", &format!("{API}open = false\n{cam1}").replace("127.0.0.1:0", "0.0.0.0:0"));
    daemon.ask("POST", "/api/v1/config/reload", "").refuses(422, "which others reach, and has no tokens");
    let token = dir.write("token", "read-read-read-read\n");
    let tokens = format!("[[api.tokens]]\nname = \"wall\"\nfile = \"{token}.none\"\n");
    dir.write("gdmedia.toml", &format!("{API}{tokens}{cam1}"));
    daemon.ask("POST", "/api/v1/config/reload", "").refuses(422, "cannot be read from");
    assert_eq!(daemon.get("/api/v1").json()["receivers"], json!(["cam1", "cam2"]));

    // Tokens from now on.
    dir.write("gdmedia.toml", &format!("{API}{}{cam1}", tokens.replace(".none", "")));
    let answer = daemon.ask("POST", "/api/v1/config/reload", "");
    assert_eq!(answer.json()["removed"], json!(["cam2"]));
    daemon.get("/api/v1/receivers").refuses(401, "a token is needed");
    let answer =
        ask(daemon.address, "GET", "/api/v1/receivers/cam1", "Authorization: Bearer read-read-read-read\r\n", b"");
    assert_eq!((answer.code, &answer.json()["state"]), (200, &json!("receiving")));
}

#[test]
fn where_it_cannot_listen_it_does_not_begin() {
    let dir = temp();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    for (api, code, words) in [
        ("listen = \"0.0.0.0:8080\"".to_owned(), 64, "which others reach, and has no tokens"),
        (format!("listen = \"{taken}\""), 69, "the TCP port is in use"),
        ("listen = \"127.0.0.1\"".to_owned(), 64, "has no port"),
        ("listen = []\n[api.limits]\nbody = 1".to_owned(), 64, "body = 1 in [api.limits]"),
        ("trusted_proxies = [\"proxy\"]".to_owned(), 64, "\"proxy\" is no address and no network"),
        (
            "[nmos]\nenabled = true\naddress = [\"rx.local\"]".to_owned(),
            64,
            "address in [nmos]: the name rx.local is one of mDNS",
        ),
        (
            "[nmos]\nenabled = true\nregistry = [\"http://192.0.2.5:8010\"]".to_owned(),
            64,
            "it is at 127.0.0.1:8080, where every controller finds itself",
        ),
    ] {
        let config = dir.write("gdmedia.toml", &format!("[api]\n{api}\n"));
        let output = gdmedia(&["daemon", "-c", &config]);
        assert_eq!(output.code, code, "{}", output.stderr);
        assert!(output.stderr.contains(words) && output.stderr.contains("cure: "), "{}", output.stderr);
        // What needs no port is said beforehand.
        let checked = gdmedia(&["daemon", "--check", "-c", &config]);
        assert_eq!(checked.stderr.contains(words), code == 64, "{}", checked.stderr);
    }
    // A registry that is looked for may be on this machine: that is no error.
    let config = dir.write("gdmedia.toml", "[nmos]\nenabled = true\n");
    let output = gdmedia(&["daemon", "--check", "-c", &config]);
    assert!(
        output.code == 0 && output.stderr.contains("NMOS: controllers are told 127.0.0.1:8080"),
        "{}",
        output.stderr
    );
    let none = dir.join("none").display().to_string();
    let config = dir.write("gdmedia.toml", &format!("[[api.tokens]]\nname = \"wall\"\nfile = \"{none}\"\n"));
    let output = gdmedia(&["daemon", "--check", "-c", &config]);
    assert!(output.code == 69 && output.stderr.contains("the token \"wall\" cannot be read from"), "{}", output.stderr);
}

/// Of `/proc/PID/status` (proc(5)).
fn field<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim()
}

/// Threads that hear from the network, or make pictures, have none of the daemon's capabilities; those that receive have all.
#[test]
fn threads_that_need_no_capabilities_have_none() {
    let of_status = |status: &str| {
        let bits = |name: &str| u64::from_str_radix(field(status, name), 16).unwrap();
        (field(status, "Name:").to_owned(), [bits("CapEff:"), bits("CapPrm:"), bits("CapInh:")])
    };
    let me = std::fs::read_to_string("/proc/self/status").unwrap();
    let (_, [mine, ..]) = of_status(&me);
    if mine == 0 {
        println!("skipped: there are no capabilities to be given up (run as root)");
        return;
    }
    let dir = temp();
    let port = free_port();
    let _sender = send(&dir, port);
    let nmos = "[nmos]\nenabled = true\nseed = \"test\"\ndiscovery = false\nregistry = [\"http://127.0.0.1:9\"]\n";
    let config = dir.write("gdmedia.toml", &format!("{API}{nmos}{}", receiver("cam1", port)));
    let daemon = Daemon::start(&config);
    daemon.until("cam1", "seen", |r| r["state"] == "receiving" && r["preview"]["age_ms"].is_u64());
    let tasks = format!("/proc/{}/task", daemon.running.0.id());
    let all = || {
        let threads = std::fs::read_dir(&tasks).unwrap().filter_map(|task| {
            // One may end meanwhile.
            Some(of_status(&std::fs::read_to_string(task.ok()?.path().join("status")).ok()?))
        });
        threads.collect::<Vec<_>>()
    };
    const FREE: [&str; 4] = ["api", "events", "nmos", "preview"];
    let begun = Instant::now();
    // A thread gives them up when it begins.
    let threads = loop {
        let threads = all();
        let has = |name: &str| threads.iter().any(|(thread, _)| thread == name);
        let with = threads.iter().filter(|(thread, sets)| FREE.contains(&thread.as_str()) && *sets != [0; 3]);
        if FREE.iter().all(|name| has(name)) && with.count() == 0 {
            break threads;
        }
        assert!(begun.elapsed() < LONG, "{threads:x?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    // CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: certificates are read again as they were read at first.
    let of = |name: &str| threads.iter().find(|(thread, _)| thread == name).map(|(_, sets)| sets[0]);
    assert_eq!(of("api-renew"), Some(mine & 0b110), "{threads:x?}");
    for name in ["gdmedia", "supervisor", "rx-cam1"] {
        assert_eq!(of(name), Some(mine), "{name}: {threads:x?}");
    }
    // What they have to do they still can: metrics of the process, a picture, a configuration with another address.
    let metrics = prometheus::read(&daemon.get("/metrics").text());
    assert!(metrics.value("process_open_fds", &[]) > Some(0.0));
    assert_eq!(daemon.get("/api/v1/receivers/cam1/preview/snapshot.png").code, 200);
    let other = API.replace("\"127.0.0.1:0\"", "[\"127.0.0.1:0\", \"127.0.0.2:0\"]");
    dir.write("gdmedia.toml", &format!("{other}{nmos}{}", receiver("cam1", port)));
    assert_eq!(daemon.ask("POST", "/api/v1/config/reload", "").code, 200);
    if field(&me, "Uid:").split_whitespace().nth(1) == Some("0") {
        let mut events = Events::open(daemon.address, "/api/v1/events?since=0", "");
        while !events.next().data["message"].as_str().unwrap().starts_with("it runs as root") {}
    }
}

/// What a package and a cluster begin with.
#[test]
fn the_configurations_that_are_shipped_are_right() {
    let deploy = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let shipped = deploy.join("gdmedia.toml");
    let output = gdmedia(&["daemon", "--check", "-c", shipped.to_str().unwrap()]);
    assert!(output.code == 0 && output.stderr.contains("0 receivers, 0 of them wrong"), "{}", output.stderr);
    // With its receiver, which is commented out, and an SDP for it.
    let dir = temp();
    dir.write("cam1.sdp", &sdp("cam1", 5004));
    let text = std::fs::read_to_string(shipped).unwrap();
    let (before, receiver) = text.split_once("# [[receivers]]").unwrap();
    let config = dir.write("with.toml", &format!("{before}[[receivers]]{}", receiver.replace("\n# ", "\n")));
    let output = gdmedia(&["daemon", "--check", "-c", &config]);
    assert!(output.code == 0 && output.stderr.contains("1 receivers, 0 of them wrong"), "{}", output.stderr);

    let manifest = std::fs::read_to_string(deploy.join("kubernetes/base.yaml")).unwrap();
    let (_, block) = manifest.split_once("gdmedia.toml: |\n").unwrap();
    let block: String =
        block.lines().take_while(|line| *line != "---").map(|line| format!("{}\n", line.trim_start())).collect();
    let config = dir.write("pod.toml", &block.replace("/etc/gdmedia-tokens", dir.path().to_str().unwrap()));
    let output = gdmedia(&["daemon", "--check", "-c", &config]);
    assert!(output.code == 69 && output.stderr.contains("the token \"wall\" cannot be read from"), "{}", output.stderr);
    for name in ["wall", "operators"] {
        dir.write(name, "sixteen-characters-of-a-token\n");
    }
    let output = gdmedia(&["daemon", "--check", "-c", &config]);
    assert_eq!(output.code, 0, "{}", output.stderr);
}

/// ptp4l of linuxptp, which ends with the test. It only looks at clocks and never sets one (`free_running`), so that it never
/// says SLAVE, but UNCALIBRATED.
struct Ptp4l {
    child: Child,
    socket: PathBuf,
}

impl Ptp4l {
    fn start(dir: &Temp, name: &str, namespace: &str, interface: &str, more: &str) -> Ptp4l {
        let socket = dir.join(name);
        let text = format!(
            "[global]\ndomainNumber 127\nuds_address {}\ntime_stamping software\nfree_running 1\nlogAnnounceInterval -3\n\
             logSyncInterval -3\nlogMinDelayReqInterval -3\n{more}\n",
            socket.display()
        );
        let config = dir.write(&format!("{name}.cfg"), &text);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, "ptp4l", "-q", "-i", interface, "-f", &config]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Ptp4l { child, socket }
    }
}

impl Drop for Ptp4l {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_real_ptp4l_shows_in_the_metrics() {
    if Command::new("ptp4l").arg("-v").output().is_err() {
        println!("skipped: no ptp4l (scripts/setup test brings it)");
        return;
    }
    let Some(net) = Net::new() else { return };
    let dir = temp();
    let identity = |n: u8| format!("clockIdentity 020000.fffe.00000{n}");
    let master = Ptp4l::start(&dir, "master", &net.tx, "tx0", &format!("priority1 100\n{}", identity(1)));
    let slave = Ptp4l::start(&dir, "slave", &net.rx, "rx0", "slaveOnly 1");
    let port = free_port();
    let _sender = send(&dir, port);
    let text = format!("[daemon]\nptp4l = [\"{}\"]\n", slave.socket.display());
    let config = dir.write("gdmedia.toml", &format!("{}{}", API.replace("[daemon]\n", &text), receiver("cam1", port)));
    let daemon = Daemon::start(&config);
    let page = || prometheus::read(&daemon.get("/metrics").text());
    // A shared machine may take its time.
    let until = |what: &str, wanted: &dyn Fn(&prometheus::Page) -> bool| {
        let begun = Instant::now();
        loop {
            let page = page();
            if wanted(&page) {
                return page;
            }
            let ptp: Vec<_> = page.names().keys().filter(|name| name.contains("_ptp_")).collect();
            let ptp: Vec<_> = ptp.iter().map(|name| (name, page.samples(name))).collect();
            assert!(begun.elapsed() < LONG, "{what}: {ptp:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    let cam1 = [("receiver", "cam1")];
    let master_is = |page: &prometheus::Page, n: u8| {
        let gm = format!("02-00-00-FF-FE-00-00-0{n}");
        page.value("gdmedia_ptp_grandmaster_info", &[cam1[0], ("gm", &gm), ("domain", "127")]) == Some(1.0)
    };
    let page = until("a master", &|page| {
        // ptp4l says 0 before it has measured.
        let measured = |name| page.value(name, &cam1).is_some_and(|seconds| seconds != 0.0);
        master_is(page, 1) && measured("gdmedia_ptp_path_delay_seconds") && measured("gdmedia_ptp_offset_seconds")
    });
    // One machine has one clock: the two are near.
    let offset = page.value("gdmedia_ptp_offset_seconds", &cam1).unwrap();
    assert!(offset.abs() < 1.0, "{offset}");
    assert_eq!(page.value("gdmedia_ptp_locked", &cam1), Some(0.0), "it sets no clock, so it is not settled");
    assert_eq!(page.value("gdmedia_ptp_source_changes_total", &cam1), Some(0.0));
    // Health is told when it has been so for a while.
    until("unhealthy", &|page| page.value("gdmedia_status", &[cam1[0], ("domain", "sync")]) == Some(3.0));
    let stats = daemon.get("/api/v1/receivers/cam1/stats").json();
    assert_eq!((&stats["ptp"]["ptp"]["port"], &stats["ptp"]["ptp"]["domain"]), (&json!("UNCALIBRATED"), &json!(127)));

    // Another grandmaster.
    drop(master);
    let other = Ptp4l::start(&dir, "other", &net.tx, "tx0", &format!("priority1 90\n{}", identity(2)));
    let page = until("another master", &|page| master_is(page, 2));
    assert!(!master_is(&page, 1));
    assert_eq!(page.value("gdmedia_ptp_source_changes_total", &cam1), Some(1.0));

    // None: there is no offset to nobody.
    drop(other);
    let page = until("no master", &|page| page.samples("gdmedia_ptp_grandmaster_info").is_empty());
    assert_eq!(page.value("gdmedia_ptp_locked", &cam1), Some(0.0));
    assert_eq!(page.samples("gdmedia_ptp_offset_seconds").len(), 0);
    // No ptp4l: what it does is not known, what it did is.
    drop(slave);
    let page = until("no ptp4l", &|page| page.samples("gdmedia_ptp_locked").is_empty());
    assert_eq!(page.value("gdmedia_ptp_source_changes_total", &cam1), Some(1.0));
}
