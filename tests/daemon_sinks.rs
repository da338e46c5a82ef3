//! Sinks of a receiver in `gdmedia daemon` that is switched among live senders: a GStreamer graph and an encoder see one stream
//! where the picture is the same, and begin anew where it is another.
#![cfg(all(feature = "daemon", feature = "gst"))]

#[path = "api/client.rs"]
mod client;
mod common;

use client::{Answer, Events, LONG, ask, get};
use common::{Running, Temp, free_port, temp};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::sdp::{Depth, Sampling, Scan};
use gdmedia::send::pattern;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Says why when a test cannot run here.
fn has(elements: &[&str], programs: &[&str]) -> bool {
    gstreamer::init().unwrap();
    let missing = elements.iter().find(|name| gstreamer::ElementFactory::find(name).is_none());
    missing.inspect(|name| println!("skipped: GStreamer has no {name}"));
    let absent = programs.iter().find(|name| Command::new(name).arg("-version").output().is_err());
    absent.inspect(|name| println!("skipped: no {name}"));
    missing.is_none() && absent.is_none()
}

/// At 10 frames a second, so that a machine that stands still for a moment leaves none out.
fn sdp(name: &str, port: u16, (width, height): (u32, u32)) -> String {
    let text = common::sdp(port).replace("width=320", &format!("width={width}"));
    let text = text.replace("height=180", &format!("height={height}"));
    text.replace("=25;", "=10;").replace("s=test", &format!("s={name}"))
}

/// Sends the test pattern, whose frames are numbered from 0, until it is dropped.
fn send(dir: &Temp, port: u16, raster: (u32, u32)) -> Running {
    let path = dir.write(&format!("send-{port}.sdp"), &sdp("sender", port, raster));
    Running::start(&["send", "--to", &format!("udp://127.0.0.1:{port}"), "--sdp", &path], Stdio::null())
}

/// A daemon with the receiver `cam`.
struct Daemon {
    running: Running,
    address: SocketAddr,
}

impl Daemon {
    /// With these lines for its receiver, which waits for a sender however long the machine takes.
    fn start(dir: &Temp, sdp: &str, receiver: &str) -> Daemon {
        let text = format!(
            "[daemon]\ninterval = \"100ms\"\n[api]\nlisten = \"127.0.0.1:0\"\n[[receivers]]\nid = \"cam\"\ngpu = \"off\"\n\
             switch_timeout = \"25s\"\nsdp = '''\n{sdp}'''\n{receiver}"
        );
        let config = dir.write("gdmedia.toml", &text);
        let mut running = Running::start(&["daemon", "--json", "-c", &config], Stdio::piped());
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
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Daemon { running, address }
    }
    fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(begun.elapsed() < LONG, "{what}: {:#}", self.cam());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    fn cam(&self) -> Value {
        get(self.address, "/api/v1/receivers/cam").json()
    }
    /// Frames that its only sink took.
    fn frames(&self) -> u64 {
        self.cam()["sinks"][0]["frames"].as_u64().unwrap_or(0)
    }
    fn takes(&self, more: u64) {
        let wanted = self.frames() + more;
        self.until("frames at the sink", || (self.frames() >= wanted).then_some(()));
    }
    /// Returns when it is done.
    fn switch(&self, sdp: &str) {
        let answer: Answer = ask(self.address, "PUT", "/api/v1/receivers/cam/sdp", "", sdp.as_bytes());
        assert_eq!(answer.code, 200, "{}", answer.text());
    }
    /// What was said of switches so far; the last of them is this many.
    fn switches(&self, count: usize) -> Vec<String> {
        let mut events = Events::open(self.address, "/api/v1/receivers/cam/events?since=0", "");
        let mut said = Vec::new();
        while said.len() < count {
            let event = events.next();
            let text = event.data["message"].as_str().unwrap().to_owned();
            if text.starts_with("switched to ") {
                said.push(text);
            }
        }
        said
    }
    fn end(mut self) {
        let sent = Command::new("kill").args(["-s", "TERM", &self.running.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let begun = Instant::now();
        while begun.elapsed() < LONG {
            if let Some(status) = self.running.0.try_wait().unwrap() {
                return assert_eq!(status.code(), Some(0));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it does not end");
    }
}

/// Frames of the first sender, of the second, which began much later, and of the first again: in order, and none twice.
fn there_and_back(numbers: &[u64]) {
    let back: Vec<usize> = (1..numbers.len()).filter(|at| numbers[*at] <= numbers[at - 1]).collect();
    assert_eq!(back.len(), 1, "one step back, to the sender that began later: {numbers:?}");
    let (first, rest) = numbers.split_at(back[0]);
    // Forward by as many as the second one began later; what is lost on the way is less.
    let forward = (1..rest.len()).max_by_key(|at| rest[*at] - rest[at - 1]).unwrap();
    let (second, again) = rest.split_at(forward);
    assert!(first.len() >= 8 && second.len() >= 3 && again.len() >= 3, "{numbers:?}");
    assert!(again[0] > first[first.len() - 1], "the first sender came back: {numbers:?}");
}

/// What GStreamer's `gdppay` wrote: a head of 62 octets and a payload, again and again (gst/gdp/dataprotocol.h, version 1.0).
struct Packet {
    kind: u16,
    pts: u64,
    payload: Vec<u8>,
}

/// Kinds of packets: a buffer, caps; of events 64 and the number of the event (gstevent.h).
const BUFFER: u16 = 1;
const CAPS: u16 = 2;
const STREAM_START: u16 = 64 + (40 << 8) + 14;
const SEGMENT: u16 = 64 + (70 << 8) + 14;
const HEAD: usize = 62;

/// Those that are whole.
fn packets(path: &Path) -> Vec<Packet> {
    let octets = fs::read(path).unwrap_or_default();
    let (mut rest, mut all) = (&octets[..], Vec::new());
    while rest.len() >= HEAD {
        let length = u32::from_be_bytes(rest[6..10].try_into().unwrap()) as usize;
        let Some(payload) = rest.get(HEAD..HEAD + length) else { break };
        let kind = u16::from_be_bytes(rest[4..6].try_into().unwrap());
        let pts = u64::from_be_bytes(rest[10..18].try_into().unwrap());
        all.push(Packet { kind, pts, payload: payload.to_vec() });
        rest = &rest[HEAD + length..];
    }
    all
}

fn of_kind(all: &[Packet], kind: u16) -> Vec<&Packet> {
    all.iter().filter(|packet| packet.kind == kind).collect()
}

/// The numbers in pictures of 5 octets for 2 pixels, whose times rise.
fn numbered(all: &[Packet], (width, height): (u32, u32)) -> Vec<u64> {
    let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, width, height, Scan::Progressive).unwrap();
    let layout = Layout::new(wire, Output::Wire).unwrap();
    let frames = of_kind(all, BUFFER);
    let times: Vec<u64> = frames.iter().map(|frame| frame.pts).collect();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "running time goes on: {times:?}");
    let number = |frame: &&Packet| {
        assert_eq!(frame.payload.len(), (width * height / 2 * 5) as usize);
        let mut room = frame.payload.clone();
        room.resize(layout.size, 0);
        pattern::read_number(&layout, &room)
    };
    // The first frame may have begun before it was received; what it lacks has no number.
    frames.iter().filter_map(number).collect()
}

const SMALL: (u32, u32) = (64, 36);
const WIDE: (u32, u32) = (96, 36);

#[test]
fn a_graph_lives_through_switches_and_is_made_anew_for_another_picture() {
    if !has(&["gdppay", "filesink"], &[]) {
        return;
    }
    let dir = temp();
    let [a, b, c] = [0; 3].map(|_| free_port());
    let path = dir.join("cam.gdp");
    let gst = format!(
        "output = \"wire\"\n[receivers.gst]\nfragment = \"gdppay ! filesink buffer-mode=unbuffered location={}\"\n",
        path.display()
    );
    let _first = send(&dir, a, SMALL);
    let daemon = Daemon::start(&dir, &sdp("one", a, SMALL), &gst);
    daemon.takes(12);
    let _second = send(&dir, b, SMALL);
    daemon.switch(&sdp("two", b, SMALL));
    daemon.takes(6);
    daemon.switch(&sdp("one again", a, SMALL));
    daemon.takes(6);
    let said = daemon.switches(2);
    assert!(said.iter().all(|text| !text.contains("began anew")), "{said:?}");
    // What a sink took is in the file when the graph has come so far.
    let taken = daemon.frames() as usize;
    let all = daemon.until("all of them in the file", || {
        let all = packets(&path);
        (of_kind(&all, BUFFER).len() >= taken).then_some(all)
    });
    // One graph, which began once: another one would have begun the file anew.
    for kind in [STREAM_START, CAPS, SEGMENT] {
        assert_eq!(of_kind(&all, kind).len(), 1, "kind {kind}");
    }
    there_and_back(&numbered(&all, SMALL));

    // Another picture.
    let _third = send(&dir, c, WIDE);
    daemon.switch(&sdp("three", c, WIDE));
    let said = daemon.switches(3);
    assert!(said[2].starts_with("switched to 96x36") && said[2].contains("all sinks began anew"), "{said:?}");
    daemon.takes(6);
    daemon.end();
    let all = packets(&path);
    for kind in [STREAM_START, CAPS, SEGMENT] {
        assert_eq!(of_kind(&all, kind).len(), 1, "kind {kind}");
    }
    assert!(String::from_utf8_lossy(&of_kind(&all, CAPS)[0].payload).contains("width=(int)96"));
    let numbers = numbered(&all, WIDE);
    assert!(numbers.len() >= 3 && numbers.is_sorted(), "{numbers:?}");
}

/// Numbers of the frames of a video file, and their times, as FFmpeg reads them.
fn decoded(path: &Path, (width, height): (u32, u32)) -> (Vec<u64>, Vec<f64>) {
    let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, width, height, Scan::Progressive).unwrap();
    let layout = Layout::new(wire, Output::Planar).unwrap();
    // Rows and planes have no padding at these widths.
    let octets = (width * height * 2 * 2) as usize;
    let output = Command::new("ffmpeg")
        .args(["-v", "fatal", "-i"])
        .arg(path)
        .args(["-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "yuv422p10le", "-"])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success() && output.stdout.len().is_multiple_of(octets), "{}", output.stdout.len());
    let number = |frame: &[u8]| {
        let mut room = frame.to_vec();
        room.resize(layout.size, 0);
        pattern::read_number(&layout, &room)
    };
    let numbers = output.stdout.chunks_exact(octets).filter_map(number).collect();
    let output = Command::new("ffprobe")
        .args(["-v", "error", "-select_streams", "v:0", "-show_entries", "frame=best_effort_timestamp_time"])
        .args(["-of", "default=nk=1:nw=1"])
        .arg(path)
        .output()
        .unwrap();
    let times = String::from_utf8(output.stdout).unwrap();
    let times = times.lines().map(|line| line.parse().unwrap()).collect();
    (numbers, times)
}

#[test]
fn an_encoder_goes_on_through_switches_and_begins_another_file_for_another_picture() {
    if !has(&["x264enc", "matroskamux"], &["ffmpeg", "ffprobe"]) {
        return;
    }
    const LARGE: (u32, u32) = (640, 360);
    const OTHER: (u32, u32) = (320, 180);
    let dir = temp();
    let [a, b, c] = [0; 3].map(|_| free_port());
    let file = |name: &str| dir.join(name);
    let encode = format!(
        "[receivers.encode]\ncodec = \"h264,rung=x264,bitrate=3M,gop=10\"\nto = \"{}\"\n",
        file("cam.mkv").display()
    );
    let _first = send(&dir, a, LARGE);
    let daemon = Daemon::start(&dir, &sdp("one", a, LARGE), &encode);
    daemon.takes(12);
    let _second = send(&dir, b, LARGE);
    daemon.switch(&sdp("two", b, LARGE));
    daemon.takes(6);
    daemon.switch(&sdp("one again", a, LARGE));
    daemon.takes(6);
    assert!(!file("cam-2.mkv").exists(), "the same picture is the same file");
    let _third = send(&dir, c, OTHER);
    daemon.switch(&sdp("three", c, OTHER));
    let said = daemon.switches(3);
    assert!(said[..2].iter().all(|text| !text.contains("began anew")), "{said:?}");
    assert!(said[2].starts_with("switched to 320x180") && said[2].contains("all sinks began anew"), "{said:?}");
    daemon.takes(6);
    daemon.end();
    for (name, raster) in [("cam.mkv", LARGE), ("cam-2.mkv", OTHER)] {
        let (numbers, times) = decoded(&file(name), raster);
        assert!(times.len() >= 3 && times.windows(2).all(|pair| pair[0] < pair[1]), "{name}: {times:?}");
        if raster == LARGE {
            there_and_back(&numbers);
        } else {
            assert!(numbers.len() >= 3 && numbers.is_sorted(), "{numbers:?}");
        }
    }
    assert!(!file("cam-3.mkv").exists());
}
