//! Against others: what FFmpeg and GStreamer make of our packets, and what we make of theirs, octet by octet.
//!
//! No test here depends on speed. Every frame that arrives whole must be right; when this machine lost packets, a test
//! says so and asks for no more than that.

mod common;

use common::{Temp, gdmedia, program, temp};
use std::fs::{self, File};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing here takes longer, on any machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Frames of a stream.
const FRAMES: usize = 20;
/// Fewer show nothing.
const FEW: usize = 5;

/// A stream, described as we describe it.
#[derive(Clone, Copy, Debug)]
struct Stream {
    sampling: &'static str,
    depth: u32,
    width: usize,
    height: usize,
    interlace: bool,
    packing: &'static str,
}

impl Stream {
    const fn new(sampling: &'static str, depth: u32, width: usize, height: usize) -> Self {
        Stream { sampling, depth, width, height, interlace: false, packing: "2110GPM" }
    }
    /// Octets of a frame, from the table of pgroups (ST 2110-20, 6.2).
    fn octets(&self) -> usize {
        let (octets, pixels) = match (self.sampling, self.depth) {
            ("YCbCr-4:2:2", 8) => (4, 2),
            ("YCbCr-4:2:2", 10) => (5, 2),
            ("YCbCr-4:2:0", 8) => (6, 4),
            ("YCbCr-4:4:4" | "RGB", 8) => (3, 1),
            _ => panic!("{self:?}"),
        };
        self.width * self.height / pixels * octets
    }
    fn sdp(&self, port: u16) -> String {
        let Stream { sampling, depth, width, height, interlace, packing } = self;
        let interlace = if *interlace { "interlace; " } else { "" };
        format!(
            "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=interop\r\nt=0 0\r\nm=video {port} RTP/AVP 96\r\n\
             c=IN IP4 127.0.0.1\r\na=rtpmap:96 raw/90000\r\na=fmtp:96 sampling={sampling}; width={width}; \
             height={height}; exactframerate=25; depth={depth}; TCS=SDR; colorimetry=BT709; {interlace}PM={packing}; \
             SSN=ST2110-20:2017; TP=2110TPN\r\na=ts-refclk:localmac=40-A3-6B-A0-2B-D2\r\na=mediaclk:sender\r\n"
        )
    }
    /// As GStreamer describes it.
    fn caps(&self) -> String {
        let Stream { sampling, depth, width, height, .. } = self;
        format!(
            "application/x-rtp,media=(string)video,clock-rate=(int)90000,encoding-name=(string)RAW,payload=(int)96,\
             sampling=(string){sampling},depth=(string){depth},width=(string){width},height=(string){height}"
        )
    }
}

/// A program at work in a folder of its own; it dies with the test.
struct Tool {
    child: Child,
    name: &'static str,
    log: PathBuf,
}

impl Tool {
    /// `line`: its arguments, which hold no blanks.
    fn start(dir: &Temp, name: &'static str, line: &str) -> Self {
        let log = dir.join(&format!("{}.log", name.rsplit('/').next().unwrap()));
        let out = File::create(&log).unwrap();
        let child = Command::new(name)
            .args(line.split_whitespace())
            .current_dir(dir.path())
            .env_remove("DISPLAY")
            .env_remove("WAYLAND_DISPLAY")
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        Tool { child, name, log }
    }
    fn run(dir: &Temp, name: &'static str, line: &str) -> String {
        Tool::start(dir, name, line).end()
    }
    /// Waits for it to succeed; what it said.
    fn end(mut self) -> String {
        let done = wait_until(|| self.child.try_wait().unwrap().is_some());
        let said = self.said();
        assert!(done, "{} does not end:\n{said}", self.name);
        assert!(self.child.wait().unwrap().success(), "{} failed:\n{said}", self.name);
        said
    }
    fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap()).into_owned()
    }
    fn alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
    /// As Ctrl-C does.
    fn interrupt(&self) {
        assert!(Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_until(mut done: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

fn succeeds(tool: &str, args: &[&str]) -> bool {
    let status =
        Command::new(tool).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|s| s.success())
}

fn ffmpeg() -> bool {
    let found = succeeds("ffmpeg", &["-version"]);
    if !found {
        eprintln!("skipped: no ffmpeg");
    }
    found
}

fn gstreamer(elements: &[&str]) -> bool {
    if !succeeds("gst-launch-1.0", &["--version"]) {
        eprintln!("skipped: no gst-launch-1.0");
        return false;
    }
    let lacks = elements.iter().find(|e| !succeeds("gst-inspect-1.0", &["--exists", e]));
    if let Some(element) = lacks {
        eprintln!("skipped: no {element} in GStreamer");
    }
    lacks.is_none()
}

/// A port that is free together with the next one, which RTCP takes.
fn free_ports() -> u16 {
    for _ in 0..100 {
        let port = common::free_port() & !1;
        if [port, port + 1].iter().all(|p| UdpSocket::bind(("127.0.0.1", *p)).is_ok()) {
            return port;
        }
    }
    panic!("no two free ports")
}

/// Somebody has bound the port.
fn bound(port: u16) -> bool {
    let wanted = format!(":{port:04X} ");
    ["/proc/net/udp", "/proc/net/udp6"].iter().any(|table| {
        let table = fs::read_to_string(table).unwrap_or_default();
        table
            .lines()
            .any(|line| line.split_whitespace().nth(1).is_some_and(|local| format!("{local} ").ends_with(&wanted)))
    })
}

fn frames(path: &Path, octets: usize) -> Vec<Vec<u8>> {
    fs::read(path).unwrap_or_default().chunks_exact(octets).map(<[u8]>::to_vec).collect()
}

/// Each frame received is one that was sent, in the order sent: how many of those that were sent are missing.
fn missing(what: &str, received: &[Vec<u8>], sent: &[Vec<u8>]) -> usize {
    let mut next = 0;
    for (number, frame) in received.iter().enumerate() {
        let Some(found) = sent[next..].iter().position(|s| s == frame) else {
            let (nearest, differing) = sent
                .iter()
                .map(|s| s.iter().zip(frame).filter(|(a, b)| a != b).count())
                .enumerate()
                .min_by_key(|(_, differing)| *differing)
                .unwrap();
            panic!(
                "{what}: frame {number} is none of those sent from {next} on; {differing} octets off frame {nearest}"
            );
        };
        next += found + 1;
    }
    sent.len() - received.len()
}

/// Our packets in a capture, and the frames that we make of them.
fn our_packets(dir: &Temp, stream: &Stream, port: u16, args: &[&str], output: &str) -> Vec<Vec<u8>> {
    dir.write("ours.sdp", &stream.sdp(port));
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let (sdp, pcap, raw) = (path("ours.sdp"), path("ours.pcap"), path("ours.raw"));
    let count = FRAMES.to_string();
    let sent = gdmedia(&[&["send", "--to", &pcap, "--sdp", &sdp, "--frames", &count], args].concat());
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    let got = gdmedia(&[
        "--sdp", &sdp, "--pcap", &pcap, "--output", output, "--out", &raw, "--format", "raw", "--verify", "--json",
    ]);
    assert_eq!(got.code, 0, "{}", got.stderr);
    assert_eq!(got.summary()["verify"]["in_order"], FRAMES, "{}", got.stderr);
    let ours = frames(Path::new(&raw), stream.octets());
    assert_eq!(ours.len(), FRAMES, "{stream:?}");
    ours
}

/// How a sender may cut pictures: rows evenly, across rows, in blocks.
const CUTS: [(&str, &[&str]); 3] = [("2110GPM", &[]), ("2110GPM", &["--srds", "3"]), ("2110BPM", &[])];

#[test]
fn gstreamer_reads_our_captures() {
    if !gstreamer(&["pcapparse", "rtpvrawdepay", "videoconvert"]) {
        return;
    }
    // The depayloader's output is the wire's order for packed formats, planes for 4:2:0.
    for (sampling, depth, output, format) in [
        ("YCbCr-4:2:2", 8, "wire", "UYVY"),
        ("YCbCr-4:2:2", 10, "wire", "UYVP"),
        ("YCbCr-4:2:0", 8, "planar", "I420"),
        ("RGB", 8, "wire", "RGB"),
        ("YCbCr-4:4:4", 8, "planar", "Y444"),
    ] {
        for (packing, args) in CUTS {
            let stream = Stream { packing, ..Stream::new(sampling, depth, 160, 90) };
            let what = format!("{stream:?} {args:?}");
            let dir = temp();
            let ours = our_packets(&dir, &stream, 5004, args, output);
            let line = format!(
                "-q filesrc location=ours.pcap ! pcapparse dst-port=5004 ! {} ! rtpvrawdepay ! videoconvert ! \
                 video/x-raw,format={format} ! filesink location=theirs.raw",
                stream.caps()
            );
            Tool::run(&dir, "gst-launch-1.0", &line);
            let theirs = frames(&dir.join("theirs.raw"), stream.octets());
            assert_eq!(theirs.len(), FRAMES, "{what}");
            assert_eq!(missing(&what, &theirs, &ours), 0, "{what}");
        }
    }
}

#[test]
fn ffmpeg_receives_our_streams() {
    if !ffmpeg() {
        return;
    }
    for (sampling, depth, interlace, cuts) in [
        ("YCbCr-4:2:2", 8, false, 0..2),
        ("YCbCr-4:2:2", 8, true, 2..3),
        ("YCbCr-4:2:2", 10, false, 1..3),
        ("YCbCr-4:2:2", 10, true, 0..1),
        // It counts offsets of 4:2:0 in fours of pixels, so it can do with whole rows only.
        ("YCbCr-4:2:0", 8, false, 0..1),
        ("RGB", 8, false, 2..3),
        ("RGB", 8, true, 1..2),
    ] {
        for (packing, args) in &CUTS[cuts] {
            let stream = Stream { interlace, packing, ..Stream::new(sampling, depth, 96, 48) };
            ffmpeg_receives(&stream, args);
        }
    }
}

/// Frames of a stream over loopback to FFmpeg. It has no payload's meaning but moves octets, so they are those of the
/// wire; fields come out woven.
fn ffmpeg_receives(stream: &Stream, args: &[&str]) {
    let what = format!("{stream:?} {args:?}");
    let dir = temp();
    let port = free_ports();
    let ours = our_packets(&dir, stream, port, args, "wire");
    let line = "-nostdin -hide_banner -loglevel warning -protocol_whitelist file,udp,rtp -buffer_size 8388608 \
                -analyzeduration 0 -probesize 32 -i ours.sdp -c copy -flush_packets 1 -f rawvideo theirs.raw";
    let mut ffmpeg = Tool::start(&dir, "ffmpeg", line);
    assert!(wait_until(|| bound(port) || !ffmpeg.alive()), "FFmpeg does not listen:\n{}", ffmpeg.said());
    assert!(ffmpeg.alive(), "{}", ffmpeg.said());
    Tool::run(&dir, program(), &format!("send --replay ours.pcap --to udp://127.0.0.1:{port}"));
    // It does not know that the stream has ended. What it has not written long after that, it lacks.
    let raw = dir.join("theirs.raw");
    let begun = Instant::now();
    let enough = || fs::metadata(&raw).is_ok_and(|m| m.len() as usize >= FRAMES * stream.octets());
    wait_until(|| enough() || begun.elapsed() > Duration::from_secs(3));
    let said = ffmpeg.said();
    drop(ffmpeg);
    let theirs = frames(&raw, stream.octets());
    if said.to_lowercase().contains("missed") {
        eprintln!("machine stalled, FFmpeg lost packets of {what}: {said}");
        return;
    }
    let missing = missing(&what, &theirs, &ours);
    assert!(theirs.len() >= FEW, "{what}: {missing} frames missing\n{said}");
}

/// Receives with the program while `send` sends; then frames that came whole, and the summary.
fn we_receive(
    dir: &Temp,
    sdp: &str,
    octets: usize,
    output: &str,
    send: impl FnOnce(),
) -> (Vec<Vec<u8>>, serde_json::Value) {
    dir.write("theirs.sdp", sdp);
    let line = format!(
        "--sdp theirs.sdp --output {output} --out got.raw --format raw --incomplete drop --wait 30s --duration 60s --json"
    );
    let mut ours = Tool::start(dir, program(), &line);
    assert!(wait_until(|| ours.said().contains("\"start\"") || !ours.alive()), "{}", ours.said());
    assert!(ours.alive(), "{}", ours.said());
    send();
    std::thread::sleep(Duration::from_millis(300));
    ours.interrupt();
    let said = ours.end();
    let summary = said.lines().rev().find(|l| l.contains("\"summary\"")).unwrap_or_else(|| panic!("{said}"));
    (frames(&dir.join("got.raw"), octets), serde_json::from_str(summary).unwrap())
}

/// Whole frames are right ones, and nothing was refused; enough of them, unless this machine lost packets.
fn judge(what: &str, received: &[Vec<u8>], sent: &[Vec<u8>], summary: &serde_json::Value) {
    assert_eq!(sent.len(), FRAMES, "{what}: the sender wrote another number of frames");
    let missing = missing(what, received, sent);
    let rejected = summary["packets"]["rejected"].as_object().unwrap();
    assert!(rejected.values().all(|n| n == 0), "{what}: {summary}");
    if summary["packets"]["lost"] != 0 {
        eprintln!("machine stalled, packets of {what} were lost: {summary}");
        return;
    }
    assert!(received.len() >= FEW, "{what}: {missing} frames missing: {summary}");
    assert_eq!(summary["frames"]["incomplete"], 0, "{what}: {summary}");
}

/// GStreamer leaves the extended sequence number zero and cuts rows wherever a packet is full.
#[test]
fn we_receive_what_gstreamer_sends() {
    if !gstreamer(&["videotestsrc", "videoconvert", "rtpvrawpay", "udpsink"]) {
        return;
    }
    for (sampling, depth, format, file, output) in [
        ("YCbCr-4:2:2", 8, "UYVY", "UYVY", "wire"),
        ("YCbCr-4:2:2", 8, "UYVY", "UYVY", "uyvy"),
        ("YCbCr-4:2:2", 10, "UYVP", "UYVP", "wire"),
        ("YCbCr-4:2:0", 8, "I420", "I420", "planar"),
        ("RGB", 8, "RGB", "RGB", "wire"),
        ("YCbCr-4:4:4", 8, "AYUV", "Y444", "planar"),
    ] {
        let stream = Stream::new(sampling, depth, 320, 240);
        let what = format!("{stream:?} as {output}");
        let dir = temp();
        let port = free_ports();
        let line = format!(
            "-q videotestsrc num-buffers={FRAMES} ! video/x-raw,format={format},width=320,height=240,framerate=25/1 ! \
             tee name=t t. ! queue ! videoconvert ! video/x-raw,format={file} ! filesink location=sent.raw \
             t. ! queue ! rtpvrawpay seqnum-offset=65000 ! udpsink host=127.0.0.1 port={port}"
        );
        let (received, summary) = we_receive(&dir, &stream.sdp(port), stream.octets(), output, || {
            Tool::run(&dir, "gst-launch-1.0", &line);
        });
        judge(&what, &received, &frames(&dir.join("sent.raw"), stream.octets()), &summary);
    }
}

/// FFmpeg's own test picture, at its pace.
const SOURCE: &str = "-nostdin -v error -re -f lavfi -i testsrc2=size=320x240:rate=25";

/// FFmpeg with its own SDP, which says neither rate nor clocks nor colour.
#[test]
fn we_receive_what_ffmpeg_sends() {
    if !ffmpeg() {
        return;
    }
    for (stream, codec, pixels, output) in [
        (Stream::new("YCbCr-4:2:2", 8, 320, 240), "rawvideo", "uyvy422", "wire"),
        (Stream::new("YCbCr-4:2:2", 10, 320, 240), "bitpacked", "yuv422p10le", "planar"),
        (Stream::new("RGB", 8, 320, 240), "rawvideo", "rgb24", "wire"),
    ] {
        let what = format!("{stream:?} as {output}");
        let dir = temp();
        let port = free_ports();
        let rtp = format!(
            "-frames:v {FRAMES} -pix_fmt {pixels} -c:v {codec} -rtpflags skip_rtcp -seq 65000 -f rtp rtp://127.0.0.1:{port}"
        );
        let raw = format!("-frames:v {FRAMES} -pix_fmt {pixels} -f rawvideo sent.raw");
        // What it says of a stream, before there is one.
        Tool::run(&dir, "ffmpeg", &format!("{SOURCE} -t 0.04 -sdp_file ffmpeg.sdp {rtp}"));
        let sdp = fs::read_to_string(dir.join("ffmpeg.sdp")).unwrap();
        let octets = if output == "planar" { 320 * 240 * 2 * 2 } else { stream.octets() };
        let (received, summary) = we_receive(&dir, &sdp, octets, output, || {
            Tool::run(&dir, "ffmpeg", &format!("{SOURCE} {raw} {rtp}"));
        });
        judge(&what, &received, &frames(&dir.join("sent.raw"), octets), &summary);
    }
}

/// FFmpeg sends the planes of 4:2:0 as they lie in memory, with odd row numbers: no receiver can place that. It must
/// be refused and counted, and no picture made of it.
#[test]
fn no_picture_is_made_of_ffmpegs_420() {
    if !ffmpeg() {
        return;
    }
    let stream = Stream::new("YCbCr-4:2:0", 8, 320, 240);
    let dir = temp();
    let port = free_ports();
    let rtp = "-frames:v 5 -pix_fmt yuv420p -c:v rawvideo -rtpflags skip_rtcp -f rtp rtp://127.0.0.1";
    let (received, summary) = we_receive(&dir, &stream.sdp(port), stream.octets(), "planar", || {
        Tool::run(&dir, "ffmpeg", &format!("{SOURCE} {rtp}:{port}"));
    });
    assert!(received.is_empty(), "{summary}");
    assert!(summary["packets"]["rejected"].as_object().unwrap().values().any(|n| n != 0), "{summary}");
}
