//! The preview of a run as a browser meets it: real HTTP against a real stream.
#![cfg(feature = "preview")]

mod common;
mod schema;

use common::{HEIGHT, WIDTH, gdmedia, program, sdp, temp};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::sdp::{Depth, Sampling, Scan};
use gdmedia::send::pattern;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longer than any stall of a machine that tests share.
const LONG: Duration = Duration::from_secs(60);

/// A stream that is sent and received, until it is dropped.
struct Stream {
    children: Vec<Child>,
    /// Of the preview.
    address: SocketAddr,
    start: Value,
    _dir: common::Temp,
}

impl Stream {
    fn new(args: &[&str]) -> Self {
        let dir = temp();
        let port = common::free_port();
        let path = dir.write("stream.sdp", &sdp(port));
        let to = format!("udp://127.0.0.1:{port}");
        let sender = spawn(&["send", "--to", &to, "--sdp", &path], Stdio::null());
        let fixed = ["--sdp", &path, "--json", "--gpu", "off"];
        let mut receiver = spawn(&[&fixed[..], args].concat(), Stdio::piped());
        let mut lines = BufReader::new(receiver.stderr.take().unwrap());
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        let start: Value = serde_json::from_str(&first).unwrap_or_else(|e| panic!("{e}: {first:?}"));
        // Nobody waits for these lines, and the program must not wait for anybody.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        assert_eq!(start["type"], "start", "{start}");
        let url = start["preview"].as_str().unwrap_or_default();
        let address = url.strip_prefix("http://").and_then(|u| u.strip_suffix('/')).map(|a| a.parse().unwrap());
        let address = address.unwrap_or_else(|| panic!("no preview: {start}"));
        Stream { children: vec![sender, receiver], address, start, _dir: dir }
    }

    fn ask(&self, request: &str) -> TcpStream {
        ask(self.address, request)
    }
    fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "127.0.0.1", "")
    }
    fn send(&self, method: &str, path: &str, host: &str, headers: &str) -> Answer {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n");
        Answer::of(&mut self.ask(&request))
    }
    fn stats(&self) -> Value {
        serde_json::from_slice(&self.get("/stats.json").body).unwrap()
    }
    /// The status when it is so.
    fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = std::time::Instant::now();
        loop {
            let stats = self.stats();
            if wanted(&stats) {
                return stats;
            }
            assert!(begun.elapsed() < LONG, "never {what}: {stats}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    /// The status when frames have come.
    fn running(&self) -> Value {
        self.until("frames", |stats| {
            stats["frames"]["complete"].as_u64() > Some(8) && stats["fps"].as_f64() > Some(0.0)
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn spawn(args: &[&str], stderr: Stdio) -> Child {
    let mut command = Command::new(program());
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").spawn().unwrap()
}

fn ask(address: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

struct Answer {
    code: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn of(stream: &mut TcpStream) -> Self {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        let at = all.windows(4).position(|w| w == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(all[..at].to_vec()).unwrap().to_ascii_lowercase();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = all[at + 4..].to_vec();
        if let Some(length) = value(&head, "content-length") {
            assert_eq!(length.parse(), Ok(body.len()), "{head}");
        }
        Answer { code, head, body }
    }
    fn header(&self, name: &str) -> &str {
        value(&self.head, name).unwrap_or_default()
    }
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn value<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
}

/// Parts of a multipart stream: number of the frame, and the JPEG.
struct Parts(BufReader<TcpStream>);

impl Parts {
    fn of(stream: TcpStream) -> Self {
        let mut parts = Parts(BufReader::new(stream));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(parts.0.read_line(&mut head).unwrap() > 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.to_ascii_lowercase().contains("multipart/x-mixed-replace; boundary=gdmedia-picture"), "{head}");
        parts
    }
    /// Lines of the body, which comes in chunks: their sizes stand in lines of their own and are passed over, as are the
    /// ends of chunks, since what is looked for is known.
    fn next(&mut self) -> (u64, Vec<u8>) {
        let (mut length, mut number) = (0, None);
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended");
            let line = line.to_ascii_lowercase();
            if let Some(value) = value(&line, "content-length") {
                length = value.parse().unwrap();
            } else if let Some(value) = value(&line, "x-frame-number") {
                number = Some(value.parse().unwrap());
            } else if let ("\r\n", Some(number)) = (line.as_str(), number) {
                // A picture lies whole in one chunk with its headers.
                let mut jpeg = vec![0; length];
                self.0.read_exact(&mut jpeg).unwrap();
                return (number, jpeg);
            }
        }
    }
}

/// Columns, rows and R G B A.
fn png(file: &[u8]) -> (u32, u32, Vec<u8>) {
    let mut decoder = png::Decoder::new(std::io::Cursor::new(file));
    decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::ALPHA);
    let mut reader = decoder.read_info().unwrap();
    let mut octets = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut octets).unwrap();
    (info.width, info.height, octets)
}

fn jpeg(file: &[u8]) -> (u32, u32, Vec<u8>) {
    use zune_jpeg::JpegDecoder;
    use zune_jpeg::zune_core::bytestream::ZCursor;
    let mut decoder = JpegDecoder::new(ZCursor::new(file));
    let rgb = decoder.decode().unwrap();
    let (width, height) = decoder.dimensions().unwrap();
    (width as u32, height as u32, rgb.chunks_exact(3).flat_map(|p| [p[0], p[1], p[2], 255]).collect())
}

/// The number that is coded in a picture of the test stream.
fn number((width, height, rgba): (u32, u32, Vec<u8>)) -> Option<u64> {
    let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, width, height, Scan::Progressive).unwrap();
    let layout = Layout::new(wire, Output::Rgba).unwrap();
    let plane = layout.planes[0];
    let mut memory = vec![0; layout.size];
    for (row, octets) in rgba.chunks_exact(width as usize * 4).enumerate() {
        memory[plane.offset + row * plane.stride..][..octets.len()].copy_from_slice(octets);
    }
    pattern::read_number(&layout, &memory)
}

#[test]
fn the_page_its_status_and_its_pictures() {
    let stream = Stream::new(&["--preview", "127.0.0.1:0"]);
    let sinks = stream.start["sinks"].to_string();
    assert!(sinks.contains("preview (http://127.0.0.1:") && sinks.contains("320x180"), "{sinks}");

    let page = stream.get("/");
    assert_eq!((page.code, page.header("content-type")), (200, "text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").contains("default-src 'none'"), "{}", page.head);
    assert_eq!(page.header("cross-origin-resource-policy"), "same-origin");
    for (path, kind) in [
        ("preview.css", "text/css"),
        ("common.js", "text/javascript"),
        ("preview.js", "text/javascript"),
        ("preview.svg", "image/svg+xml"),
    ] {
        assert!(page.text().contains(path), "the page asks for {path}");
        let part = stream.get(&format!("/{path}"));
        assert_eq!(part.code, 200, "{path}");
        assert!(part.header("content-type").starts_with(kind), "{path}: {}", part.head);
        // A name of the language of pictures is no address that is asked.
        let text = part.text().replace("http://www.w3.org/2000/svg", "");
        assert!(!text.contains("http:") && !text.contains("https:"), "{path} asks elsewhere");
    }
    assert!(!page.text().contains("http:") && !page.text().contains("https:"));
    assert_eq!(stream.get("/../../etc/passwd").code, 404);
    assert_eq!(stream.get("/nothing").code, 404);

    let stats = stream.running();
    let schema: Value = serde_json::from_str(include_str!("../src/preview/stats.schema.json")).unwrap();
    assert_eq!(schema::faults(&schema, &stats), [""; 0], "{stats}");
    assert_eq!((&stats["flow"]["width"], &stats["flow"]["height"]), (&WIDTH.into(), &HEIGHT.into()));
    assert_eq!(stats["preview"]["rendered"], 0, "nobody watches, so that nothing is rendered: {stats}");
    assert_eq!(stats["health"]["link"]["status"], "AllUp");

    let file = stream.get("/snapshot.png");
    assert_eq!((file.code, file.header("content-type")), (200, "image/png"));
    let picture = png(&file.body);
    assert_eq!((picture.0, picture.1), (WIDTH, HEIGHT));
    let first = number(picture).expect("the code of the picture");
    let file = stream.get("/snapshot.jpg?download");
    assert_eq!((file.code, file.header("content-type")), (200, "image/jpeg"));
    let name = format!("attachment; filename=\"frame-{}.jpg\"", file.header("x-frame-number"));
    assert_eq!(file.header("content-disposition"), name);
    let picture = jpeg(&file.body);
    assert_eq!((picture.0, picture.1), (WIDTH, HEIGHT));
    assert!(number(picture).expect("the code of the picture") >= first);
}

#[test]
fn the_live_picture_moves_for_everybody_and_is_rendered_once() {
    let stream = Stream::new(&["--preview", "127.0.0.1:0", "--preview-width", "160", "--preview-rate", "60"]);
    stream.running();
    let request = "GET /video.mjpeg HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut viewers: Vec<Parts> = (0..5).map(|_| Parts::of(stream.ask(request))).collect();
    let mut parts = 0;
    for viewer in &mut viewers {
        let mut before = None;
        for _ in 0..10 {
            let (number, file) = viewer.next();
            assert!(before < Some(number), "{before:?} before {number}");
            before = Some(number);
            let (width, height, _) = jpeg(&file);
            assert_eq!((width, height), (160, 90));
            parts += 1;
        }
    }
    let stats = stream.until("five viewers", |stats| stats["preview"]["viewers"] == 5);
    assert!(stats["preview"]["frame"].is_u64());
    let rendered = stats["preview"]["rendered"].as_u64().unwrap();
    let count = |what: &str| stats["frames"][what].as_u64().unwrap();
    let frames = count("complete") + count("incomplete");
    // One that joins first has the newest frame again.
    assert!(
        parts == 50 && (10..=frames + 1).contains(&rendered),
        "{rendered} pictures of {frames} frames for {parts} parts"
    );
    drop(viewers);
    stream.until("nobody", |stats| stats["preview"]["viewers"] == 0);
}

#[test]
fn a_viewer_that_never_reads_stops_nobody_and_is_cut_off() {
    let stream = Stream::new(&["--preview", "127.0.0.1:0", "--preview-rate", "60"]);
    stream.running();
    let request = "GET /video.mjpeg HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let deaf = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    deaf.set_recv_buffer_size(4096).unwrap();
    deaf.connect(&stream.address.into()).unwrap();
    let mut deaf: TcpStream = deaf.into();
    deaf.write_all(request.as_bytes()).unwrap();
    let mut viewer = Parts::of(stream.ask(request));
    stream.until("two viewers", |stats| stats["preview"]["viewers"] == 2);
    // It is counted out when nothing has moved for the time of patience; the other one goes on all the while.
    let begun = std::time::Instant::now();
    let mut before = None;
    loop {
        for _ in 0..20 {
            let (number, _) = viewer.next();
            assert!(before < Some(number));
            before = Some(number);
        }
        let stats = stream.stats();
        if stats["preview"]["viewers"] == 1 {
            break;
        }
        assert!(begun.elapsed() < 3 * LONG, "it is still served: {stats}");
    }
    drop(deaf);
}

#[test]
fn the_last_frames_can_be_stepped_through() {
    let stream = Stream::new(&["--preview", "127.0.0.1:0"]);
    stream.running();
    assert_eq!(stream.get("/frame?back=0").code, 404, "nothing is frozen yet");
    let answer = stream.send("POST", "/freeze", "localhost", "Content-Length: 0\r\n");
    assert_eq!(answer.code, 200, "{}", answer.text());
    let list: Value = serde_json::from_slice(&answer.body).unwrap();
    let frames = list["frames"].as_array().unwrap();
    assert_eq!(frames.len(), 8);
    // Another one does not take them away.
    assert_eq!(stream.send("POST", "/freeze", "localhost", "Content-Length: 0\r\n").code, 200);
    let mut before = None;
    for (back, frame) in frames.iter().enumerate() {
        let answer = stream.get(&format!("/frame?freeze={}&back={back}", list["freeze"]));
        assert_eq!((answer.code, answer.header("content-type")), (200, "image/jpeg"));
        assert_eq!(answer.header("x-frame-number"), frame["number"].to_string());
        assert_eq!(frame["complete"] == true, frame["missing_octets"] == 0, "{frame}");
        let number = number(jpeg(&answer.body)).expect("the code of the picture");
        // Each is older than the last, by one where none was dropped.
        assert!(before.is_none_or(|before| before > number), "{before:?} {number}");
        before = Some(number);
    }
    assert_eq!(stream.get("/frame?back=8").code, 404);
    assert_eq!(stream.get("/frame?freeze=77").code, 404);
    assert_eq!(stream.get("/frame?back=many").code, 400);
}

#[test]
fn scopes_show_the_bars_of_the_stream() {
    let stream = Stream::new(&["--preview", "127.0.0.1:0"]);
    stream.running();
    let answer = stream.get("/waveform.png");
    assert_eq!(answer.code, 200, "{}", answer.text());
    let (width, height, rgba) = png(&answer.body);
    assert_eq!((width, height), (WIDTH, 256));
    let lit = |rgba: &[u8], width: u32, x: u32, y: u32| rgba[(y * width + x) as usize * 4 + 3];
    // 75 % bars, in the middle of each: white 180, yellow 168, cyan 145, green 133, magenta 62, red 51, blue 27 or 28.
    for (bar, levels) in
        [[180, 181], [168, 169], [145, 146], [133, 134], [62, 63], [51, 52], [27, 28]].iter().enumerate()
    {
        let x = bar as u32 * 40 + 20;
        let most = levels.iter().map(|level| lit(&rgba, width, x, 255 - level)).max();
        assert!(most > Some(150), "bar {bar}: {most:?}");
        // Halfway to white no bar is, nor grey.
        assert_eq!(lit(&rgba, width, x, 255 - 215), 0, "bar {bar}");
    }
    let answer = stream.get("/vectorscope.png");
    let (width, height, rgba) = png(&answer.body);
    assert_eq!((answer.code, width, height), (200, 256, 256));
    for (b, r) in [(44, 135), (147, 44), (63, 51), (192, 204), (108, 212), (212, 120), (128, 128)] {
        let near = (b - 1..=b + 1).flat_map(|b| (r - 1..=r + 1).map(move |r| (b, r)));
        let most = near.map(|(b, r)| lit(&rgba, width, b, 255 - r)).max();
        assert!(most > Some(100), "Cb {b}, Cr {r}: {most:?}");
    }
    // No colour of the stream is so far out.
    assert_eq!(lit(&rgba, width, 240, 15), 0);
}

#[test]
fn status_comes_as_events() {
    let stream = Stream::new(&["--preview", "127.0.0.1:0"]);
    let mut lines = BufReader::new(stream.ask("GET /events HTTP/1.1\r\nHost: [::1]:9\r\n\r\n"));
    let mut seconds = Vec::new();
    while seconds.len() < 3 {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the stream ended");
        if let Some(data) = line.strip_prefix("data: ") {
            let event: Value = serde_json::from_str(data).unwrap();
            seconds.extend(event["seconds"].as_f64());
        }
    }
    assert!(seconds.is_sorted() && seconds[0] < seconds[2], "{seconds:?}");
}

#[test]
fn foreign_names_and_sites_are_turned_away() {
    let stream = Stream::new(&["--preview", "127.0.0.1:0"]);
    for host in ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example"] {
        let answer = stream.send("GET", "/stats.json", host, "");
        assert_eq!(answer.code, 421, "{host}");
        assert!(answer.text().contains(host) && answer.text().contains("address"), "{}", answer.text());
    }
    let nobody = Answer::of(&mut stream.ask("GET / HTTP/1.0\r\n\r\n"));
    assert_eq!(nobody.code, 421);
    stream.running();
    let freeze = |origin: &str| {
        stream.send("POST", "/freeze", "127.0.0.1:81", &format!("Content-Length: 0\r\nOrigin: {origin}\r\n")).code
    };
    assert_eq!(freeze("http://evil.example"), 403);
    assert_eq!(freeze("null"), 403);
    assert_eq!(freeze("http://127.0.0.1:81"), 200);
    assert_eq!(stream.get("/freeze").code, 405);
}

#[test]
fn without_a_display_or_another_sink_the_preview_is_there_by_itself() {
    let stream = Stream::new(&[]);
    assert!(stream.address.ip().is_loopback());
    assert_eq!(stream.get("/").code, 200);
    // A second run finds the port taken and another free one.
    let other = Stream::new(&[]);
    assert_ne!(stream.address.port(), other.address.port());
    assert_eq!(other.get("/").code, 200);
    let dir = temp();
    let path = dir.write("quiet.sdp", &sdp(common::free_port()));
    let none = gdmedia(&["--sdp", &path, "--headless", "--json", "--gpu", "off", "--wait", "100ms"]);
    let start: Value = serde_json::from_str(none.stderr.lines().next().unwrap()).unwrap();
    assert_eq!((&start["preview"], start["sinks"].as_array().map(Vec::len)), (&Value::Null, Some(0)));
}

#[test]
fn addresses_that_cannot_be_served_say_what_to_do() {
    let dir = temp();
    let path = dir.write("stream.sdp", &sdp(common::free_port()));
    let run = |address: &str| {
        gdmedia(&["--sdp", &path, "--headless", "--gpu", "off", "--wait", "100ms", "--preview", address])
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(&address);
    assert_eq!(output.code, 69, "{}", output.stderr);
    let port = address.rsplit(':').next().unwrap();
    for word in [port, "in use", "cure", "--preview 127.0.0.1:0"] {
        assert!(output.stderr.contains(word), "{word}: {}", output.stderr);
    }
    let output = run("192.0.2.9:8110");
    assert_eq!(output.code, 69, "{}", output.stderr);
    assert!(
        output.stderr.contains("no address of this machine") && output.stderr.contains("cure"),
        "{}",
        output.stderr
    );
    let output = run("other.sdp");
    assert_eq!(output.code, 64, "{}", output.stderr);
    assert!(output.stderr.contains("--sdp"), "{}", output.stderr);
    // Elsewhere than on this machine alone it is said that there is no password.
    let output = run("0.0.0.0:0");
    assert_eq!(output.code, 3, "{}", output.stderr);
    assert!(output.stderr.contains("no password"), "{}", output.stderr);
}

#[test]
fn before_the_first_frame_and_in_a_capture() {
    let dir = temp();
    let capture = dir.join("ten.pcap");
    let stream = common::send_to_pcap(&capture, 5004, &["--frames", "10"]);
    let capture = capture.to_str().unwrap();
    // With every frame through the preview nothing is dropped, and the run ends by itself.
    let output = gdmedia(&[
        "--sdp",
        &stream,
        "--pcap",
        capture,
        "--headless",
        "--preview",
        "127.0.0.1:0",
        "--gpu",
        "off",
        "--json",
    ]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let summary = output.summary();
    assert_eq!((&summary["frames"]["complete"], &summary["frames"]["dropped"]), (&10.into(), &0.into()));
    assert_eq!((&summary["sinks"][0]["taken"], &summary["sinks"][0]["end"]), (&10.into(), &"finished".into()));

    let path = dir.write("quiet.sdp", &sdp(common::free_port()));
    let quiet =
        spawn(&["--sdp", &path, "--json", "--gpu", "off", "--preview", "127.0.0.1:0", "--wait", "0"], Stdio::piped());
    let mut quiet =
        Stream { children: vec![quiet], address: ([127, 0, 0, 1], 0).into(), start: Value::Null, _dir: dir };
    let mut first = String::new();
    let mut lines = BufReader::new(quiet.children[0].stderr.take().unwrap());
    lines.read_line(&mut first).unwrap();
    let start: Value = serde_json::from_str(&first).unwrap();
    let url = start["preview"].as_str().unwrap();
    quiet.address = url.strip_prefix("http://").unwrap().trim_end_matches('/').parse().unwrap();
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    for path in ["/snapshot.jpg", "/snapshot.png", "/waveform.png", "/vectorscope.png"] {
        let answer = quiet.get(path);
        assert_eq!((answer.code, answer.header("retry-after")), (503, "1"), "{path}");
        assert!(answer.text().contains("no frame has come yet"), "{}", answer.text());
    }
    let stats = quiet.until("a status", |stats| stats["preview"].is_object());
    assert_eq!((&stats["preview"]["age_ms"], &stats["preview"]["frame"]), (&Value::Null, &Value::Null));
}
