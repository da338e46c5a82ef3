//! Frames to GStreamer: what arrives at the other end of a fragment, and what is said when it does not.
#![cfg(feature = "gst")]

mod frames;

use frames::{colour, flat, frame, layout, layouts, painted, rows, video};
use gdmedia::Kind;
use gdmedia::format::Output;
use gdmedia::frame::{FramePool, Meta};
use gdmedia::mem::Host;
use gdmedia::sdp::{Colorimetry, Depth, Ratio, Sampling, Scan, Video};
use gdmedia::sink::gst::{Fragment, LENT};
use gdmedia::sink::{End, Next, Sink, SinkQueue, to_rgb};
use gdmedia::time::Tai;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);

/// Says why when a test cannot run here.
fn has(elements: &[&str]) -> bool {
    gstreamer::init().unwrap();
    let missing = elements.iter().find(|e| gstreamer::ElementFactory::find(e).is_none());
    missing.inspect(|e| eprintln!("skipped: GStreamer has no {e}")).is_none()
}

/// Frame `n` of 59.94 a second, whole.
fn at(n: u64) -> Meta {
    let time = Tai(1_000_000_000_000 + n * 1_001_000_000 / 60);
    Meta { number: n, complete: true, media_time: Some(time), first_arrival: time, ..Meta::default() }
}

fn timed(layout: &gdmedia::format::Layout, n: u64) -> gdmedia::frame::Frame {
    let pool = FramePool::<Host>::host(layout.clone(), 1).unwrap();
    let picture = painted(layout, n);
    let mut buf = pool.take().unwrap();
    buf.region_mut().as_mut_slice().copy_from_slice(picture.octets());
    *buf.meta_mut() = at(n);
    buf.seal()
}

fn parse_error(text: &str) -> gdmedia::Error {
    Fragment::parse(text).map(|_| ()).unwrap_err()
}

#[test]
fn what_goes_in_comes_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.raw");
    let mut formats = 0;
    // At 48 pixels GStreamer's rows have no padding, ours have some.
    for (mut video, mut layout) in layouts(48, 8).filter(|(_, l)| l.name().is_some()) {
        formats += 1;
        if formats % 2 == 0 && layout.wire.pgroup.rows == 1 {
            video.scan = Scan::Interlaced;
            layout = frames::layout(&video, layout.output).unwrap();
        }
        let fragment = Fragment::parse(&format!("filesink location={}", path.display())).unwrap();
        let mut sink = fragment.open(&video, &layout, false).unwrap();
        let pictures = [timed(&layout, 0), timed(&layout, 1), timed(&layout, 2)];
        for picture in &pictures {
            assert_eq!(sink.take(picture).unwrap(), Next::More);
        }
        sink.finish().unwrap();
        assert!(sink.describe().contains(layout.name().unwrap()), "{}", sink.describe());
        drop(sink);
        assert!(fs::read(&path).unwrap() == pictures.iter().flat_map(rows).collect::<Vec<_>>(), "{layout:?}");
    }
    assert!(formats > 40, "{formats}");
}

#[test]
fn padded_planes_and_colours_are_understood() {
    if !has(&["videoconvert"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.raw");
    // Green of each matrix, in 10 bits, in rows that are longer than their pixels.
    for (colorimetry, codes) in [
        (Colorimetry::Bt601, [578, 215, 137]),
        (Colorimetry::Bt709, [691, 167, 105]),
        (Colorimetry::Bt2020, [658, 190, 100]),
    ] {
        let mut video = video(Sampling::YCbCr422, Depth::D10, 50, 6);
        video.colorimetry = colorimetry;
        for output in [Output::Planar, Output::Wire, Output::V210] {
            let layout = layout(&video, output).unwrap();
            let text = format!("videoconvert ! video/x-raw,format=RGB ! filesink location={}", path.display());
            let fragment = Fragment::parse(&text).unwrap();
            let mut sink = fragment.open(&video, &layout, false).unwrap();
            let picture = flat(&layout, codes);
            sink.take(&picture).unwrap();
            sink.finish().unwrap();
            let got = fs::read(&path).unwrap();
            assert_eq!(got.len(), 152 * 6);
            let ours = to_rgb(&picture, &colour(&video));
            for (row, ours) in got.chunks(152).zip(ours.chunks(150)) {
                for (got, ours) in row.iter().zip(ours) {
                    assert!(got.abs_diff(*ours) <= 3, "{colorimetry} {output:?}: {:?} {:?}", &row[..6], &ours);
                }
            }
        }
    }
}

#[test]
fn a_png_encoder_gets_its_format_by_itself() {
    if !has(&["pngenc"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.png");
    let video = video(Sampling::YCbCr422, Depth::D10, 50, 6);
    let fragment = Fragment::parse(&format!("pngenc snapshot=true ! filesink location={}", path.display())).unwrap();
    assert_eq!(fragment.preferred_output(&video).unwrap(), Output::Rgba);
    let layout = layout(&video, Output::Rgba).unwrap();
    let mut sink = fragment.open(&video, &layout, false).unwrap();
    let picture = timed(&layout, 0);
    sink.take(&picture).unwrap();
    // One frame is all it wants.
    let begin = Instant::now();
    while sink.idle().unwrap() == Next::More && begin.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(sink);
    let mut reader = png::Decoder::new(BufReader::new(fs::File::open(&path).unwrap())).read_info().unwrap();
    let mut octets = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut octets).unwrap();
    assert_eq!(octets, rows(&picture));
}

#[test]
fn the_most_faithful_output_is_preferred() {
    let preferred = |text: &str, sampling, depth| {
        Fragment::parse(text).unwrap().preferred_output(&video(sampling, depth, 48, 6)).unwrap()
    };
    assert_eq!(preferred("fakesink", Sampling::YCbCr422, Depth::D10), Output::Planar);
    assert_eq!(preferred("fakesink", Sampling::YCbCr422, Depth::D16), Output::V210);
    assert_eq!(preferred("fakesink", Sampling::Key, Depth::D16), Output::Planar);
    assert_eq!(preferred("fakesink", Sampling::Xyz, Depth::D12), Output::Rgba);
    if has(&["jpegenc"]) {
        assert_eq!(preferred("jpegenc ! fakesink", Sampling::YCbCr422, Depth::D10), Output::Uyvy);
        assert_eq!(preferred("jpegenc ! fakesink", Sampling::YCbCr422, Depth::D8), Output::Planar);
    }
}

#[test]
fn errors_of_fragments() {
    let error = parse_error("videoconvert ! flumpsink");
    assert_eq!(error.kind(), Kind::Unavailable);
    let text = error.to_string();
    assert!(
        text.starts_with("GStreamer has no element `flumpsink`") && text.contains("gst-inspect-1.0 | grep flumpsink"),
        "{text}"
    );
    if let Err(error) = Fragment::parse("x264enc ! fakesink") {
        let text = error.to_string();
        assert!(text.contains("no element `x264enc`") && text.contains("gstreamer1.0-plugins-ugly"), "{text}");
    }

    let error = parse_error("fakesink ! !");
    assert_eq!(error.kind(), Kind::Usage);
    let text = error.to_string();
    assert!(text.starts_with("the GStreamer fragment `fakesink ! !` cannot be used: syntax error"), "{text}");
    assert!(text.contains("gst-launch-1.0"), "{text}");
    assert_eq!(parse_error("").kind(), Kind::Usage);

    let text = parse_error("fakesink colour=red").to_string();
    assert!(text.contains("colour") && text.contains("gst-inspect-1.0 ELEMENT"), "{text}");
    let text = parse_error("fakesrc ! fakesink").to_string();
    assert!(text.contains("has no free input") && text.contains("leave its source away"), "{text}");
    let text = parse_error("identity").to_string();
    assert!(text.contains("ends without a sink"), "{text}");
}

#[test]
fn a_format_that_does_not_fit_is_named() {
    let video = video(Sampling::YCbCr422, Depth::D10, 48, 6);
    let text = "capsfilter caps=\"video/x-raw,format={Y444_12LE,GRAY16_LE}\" ! fakesink";
    let error =
        Fragment::parse(text).unwrap().open(&video, &layout(&video, Output::Planar).unwrap(), false).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    let said = error.to_string();
    assert!(said.contains("does not take I422_10LE 48x6 progressive; it takes Y444_12LE, GRAY16_LE"), "{said}");
    assert!(said.contains("put `videoconvert !`"), "{said}");
    let said = Fragment::parse(text).unwrap().preferred_output(&video).unwrap_err().to_string();
    assert!(said.contains("does not take I422_10LE, UYVP, v210, P010_10LE, UYVY, NV12, RGBA 48x6"), "{said}");
}

#[test]
fn a_full_disk_and_a_file_that_cannot_be_made() {
    let video = video(Sampling::YCbCr422, Depth::D8, 640, 480);
    let layout = layout(&video, Output::Planar).unwrap();
    let run = |text: &str| -> gdmedia::Error {
        let mut sink = match Fragment::parse(text).and_then(|fragment| fragment.open(&video, &layout, false)) {
            Ok(sink) => sink,
            Err(error) => return error,
        };
        for n in 0..50 {
            if let Err(error) = sink.take(&timed(&layout, n)) {
                return error;
            }
        }
        sink.finish().unwrap_err()
    };
    let error = run("filesink location=/dev/full");
    assert_eq!(error.kind(), Kind::Output);
    let text = error.to_string();
    assert!(text.contains("filesink") && text.contains("No space left") && text.contains("cure: free space"), "{text}");
    let error = run("filesink location=/no/such/folder/x");
    assert_eq!(error.kind(), Kind::Output);
    assert!(error.to_string().contains("/no/such/folder/x"), "{error}");
}

#[test]
fn lent_frames_come_back() {
    let video = video(Sampling::YCbCr422, Depth::D10, 48, 6);
    let layout = layout(&video, Output::Planar).unwrap();
    let pool = FramePool::<Host>::host(layout.clone(), 4).unwrap();
    let mut sink = Fragment::parse("fakesink").unwrap().open(&video, &layout, false).unwrap();
    for number in 0..100 {
        // With one frame here, one waiting and one at the sink, a pool of four never runs dry.
        let picture = frames::fill(&pool, number, &mut |_, _, _| 0);
        assert_eq!(sink.take(&picture).unwrap(), Next::More);
    }
    sink.finish().unwrap();
    drop(sink);
    assert_eq!((0..5).map_while(|_| pool.take()).count(), 4);
}

#[test]
fn a_fragment_that_keeps_frames_gets_copies() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.raw");
    let video = video(Sampling::YCbCr422, Depth::D10, 64, 6);
    let layout = layout(&video, Output::Planar).unwrap();
    let text = format!(
        "queue min-threshold-buffers=20 max-size-buffers=40 max-size-time=0 ! filesink location={}",
        path.display()
    );
    let mut sink = Fragment::parse(&text).unwrap().open(&video, &layout, false).unwrap();
    let copied = sink.copied();
    let pictures: Vec<_> = (0..30).map(|n| timed(&layout, n)).collect();
    for picture in &pictures {
        sink.take(picture).unwrap();
        assert!(sink.lent() <= LENT);
    }
    sink.finish().unwrap();
    assert!(copied.load(std::sync::atomic::Ordering::Relaxed) >= 15);
    let expected: Vec<u8> = pictures.iter().flat_map(rows).collect();
    assert!(fs::read(&path).unwrap() == expected);
}

#[test]
fn a_stuck_fragment_holds_few_frames_and_never_the_receiver() {
    let video = video(Sampling::YCbCr422, Depth::D10, 48, 6);
    let layout = layout(&video, Output::Planar).unwrap();
    let pool = FramePool::<Host>::host(layout.clone(), 8).unwrap();
    // The second frame is due in an hour.
    let sink = Fragment::parse("fakesink sync=true").unwrap().open(&video, &layout, true).unwrap();
    let queue = SinkQueue::spawn(Box::new(sink), 2).unwrap();
    let mut taken = 0;
    for number in 0..40 {
        let Some(mut buf) = pool.take() else { panic!("frame {number}: the pool is dry") };
        let time = Tai(number * 3_600_000_000_000);
        *buf.meta_mut() = Meta { media_time: Some(time), first_arrival: time, ..at(number) };
        taken += u64::from(queue.offer(buf.seal()));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(taken < 8, "{taken}");
    assert_eq!(queue.dropped(), 40 - taken);
    let begin = Instant::now();
    let report = queue.finish(Duration::from_millis(200));
    assert!(begin.elapsed() < LONG);
    assert_eq!(report.into_result().unwrap_err().kind(), Kind::Output);
}

#[test]
fn a_fragment_that_ends_is_a_clean_end() {
    let video = video(Sampling::YCbCr422, Depth::D8, 48, 6);
    let layout = layout(&video, Output::Planar).unwrap();
    let sink = Fragment::parse("identity eos-after=4 ! fakesink").unwrap().open(&video, &layout, false).unwrap();
    let queue = SinkQueue::spawn(Box::new(sink), 2).unwrap();
    let begin = Instant::now();
    let mut number = 0;
    while !queue.ended() && begin.elapsed() < LONG {
        queue.offer(timed(&layout, number));
        number += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    match queue.finish(LONG).end {
        End::Closed(why) => assert!(why.starts_with("the GStreamer fragment ended"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_muxer_finishes_its_file() {
    if !has(&["jpegenc", "matroskamux"]) || Command::new("ffprobe").arg("-version").output().is_err() {
        eprintln!("skipped: no ffprobe, or see above");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.mkv");
    let video = video(Sampling::YCbCr422, Depth::D10, 64, 48);
    let text = format!("jpegenc ! matroskamux ! filesink location={}", path.display());
    let fragment = Fragment::parse(&text).unwrap();
    let layout = layout(&video, fragment.preferred_output(&video).unwrap()).unwrap();
    let sink = fragment.open(&video, &layout, false).unwrap();
    let queue = SinkQueue::spawn(Box::new(sink), 2).unwrap();
    // Frame 12 was dropped on the way: its place in time stays empty.
    for n in (0..30).filter(|&n| n != 12) {
        assert!(queue.offer_waiting(timed(&layout, n), || false));
    }
    let report = queue.finish(LONG);
    assert_eq!((report.taken, report.dropped), (29, 0));
    report.into_result().unwrap();
    let probe = Command::new("ffprobe")
        .args(["-v", "error", "-show_entries", "packet=pts_time:stream=codec_name,width,height:format=duration"])
        .args(["-of", "default=nw=1"])
        .arg(&path)
        .output()
        .unwrap();
    let probe = String::from_utf8(probe.stdout).unwrap();
    assert!(probe.contains("codec_name=mjpeg\nwidth=64\nheight=48"), "{probe}");
    let times: Vec<f64> = probe.lines().filter_map(|l| l.strip_prefix("pts_time=")?.parse().ok()).collect();
    let expected: Vec<f64> = (0..30).filter(|&n| n != 12).map(|n| f64::from(n) * 1001.0 / 60_000.0).collect();
    assert_eq!(times.len(), expected.len());
    // Matroska counts milliseconds.
    assert!(times.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 0.001), "{times:?}");
    let duration: f64 = probe.lines().find_map(|l| l.strip_prefix("duration=")?.parse().ok()).unwrap();
    assert!((duration - 0.5).abs() < 0.005, "{duration}");
}

// --- the window ---

/// Colour bars as people know them, with a black row at the bottom.
const BARS: [[u8; 3]; 8] =
    [[255, 255, 255], [255, 255, 0], [0, 255, 255], [0, 255, 0], [255, 0, 255], [255, 0, 0], [0, 0, 255], [0, 0, 0]];

fn bars() -> Video {
    let mut video = video(Sampling::YCbCr422, Depth::D10, 320, 240);
    video.rate = Ratio::new(25, 1);
    video
}

/// Runs in a process of its own, because the display is chosen by its environment.
#[test]
fn child_with_a_window() {
    if std::env::var_os("GDMEDIA_TEST_WINDOW").is_none() {
        return;
    }
    let video = bars();
    let fragment = match Fragment::window(&video) {
        Ok(Some(fragment)) => fragment,
        Ok(None) => {
            eprintln!("no display");
            std::process::exit(8);
        }
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(i32::from(error.kind().exit_code()));
        }
    };
    let layout = layout(&video, fragment.preferred_output(&video).unwrap()).unwrap();
    let sink = fragment.open(&video, &layout, true).unwrap();
    eprintln!("{}", sink.describe());
    let queue = SinkQueue::spawn(Box::new(sink), 2).unwrap();
    let begin = Instant::now();
    let mut number = 0;
    while !queue.ended() && begin.elapsed() < LONG {
        let picture = frame(&layout, number, |_, _, at| match at % 4 {
            3 => 255,
            component => BARS[at / 4 / 40][component],
        });
        queue.offer(picture);
        number += 1;
        std::thread::sleep(Duration::from_millis(40));
    }
    match queue.finish(LONG).end {
        End::Closed(why) => {
            eprintln!("closed: {why}");
            std::process::exit(7);
        }
        other => panic!("{other:?}"),
    }
}

fn child(display: Option<&str>) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_with_a_window", "--nocapture", "--test-threads=1"]);
    command.env("GDMEDIA_TEST_WINDOW", "1").env_remove("WAYLAND_DISPLAY").env_remove("DISPLAY");
    if let Some(display) = display {
        command.env("DISPLAY", display);
    }
    command.stderr(Stdio::piped()).stdout(Stdio::null());
    command
}

#[test]
fn without_a_display_there_is_no_window() {
    let output = child(None).output().unwrap();
    assert_eq!(output.status.code(), Some(8), "{}", String::from_utf8_lossy(&output.stderr));
    let output = child(Some(":4711")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{text}");
    assert!(text.contains("no window can be opened: display :4711 does not answer"), "{text}");
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A virtual display, or none when it is not installed. It does not begin anew when its last client goes, as it would by itself: whoever
/// looks whether it answers is such a client, and the next one may come while it does.
fn display() -> Option<(Killed, String)> {
    let mut server = Command::new("Xvfb")
        .args(["-displayfd", "1", "-screen", "0", "640x480x24", "-nolisten", "tcp", "-noreset"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut number = String::new();
    BufReader::new(server.stdout.take()?).read_line(&mut number).ok()?;
    Some((Killed(server), format!(":{}", number.trim())))
}

/// What the root window shows.
fn screenshot(display: &str, path: &Path) -> Option<Vec<u8>> {
    let png24 = format!("PNG24:{}", path.display());
    let done = Command::new("import").args(["-window", "root", "-display", display, &png24]).status().ok()?;
    if !done.success() {
        return None;
    }
    let decoder = png::Decoder::new(BufReader::new(fs::File::open(path).ok()?));
    let mut reader = decoder.read_info().ok()?;
    let mut octets = vec![0; reader.output_buffer_size()?];
    let info = reader.next_frame(&mut octets).ok()?;
    let samples = info.color_type.samples();
    (info.bit_depth == png::BitDepth::Eight && samples >= 3 && info.width == 640)
        .then(|| octets.chunks(samples).flat_map(|p| [p[0], p[1], p[2]]).collect())
}

/// Asks every window as the close button of a window manager would (WM_DELETE_WINDOW).
const CLOSE: &str = r#"
import ctypes, sys
x = ctypes.CDLL("libX11.so.6")
for f in (x.XOpenDisplay, x.XDefaultRootWindow, x.XInternAtom): f.restype = ctypes.c_void_p
d = ctypes.c_void_p(x.XOpenDisplay(sys.argv[1].encode()))
root, parent = ctypes.c_ulong(), ctypes.c_ulong()
kids, n = ctypes.POINTER(ctypes.c_ulong)(), ctypes.c_uint()
x.XQueryTree(d, ctypes.c_ulong(x.XDefaultRootWindow(d)), ctypes.byref(root), ctypes.byref(parent), ctypes.byref(kids), ctypes.byref(n))
class Message(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("serial", ctypes.c_ulong), ("send", ctypes.c_int), ("display", ctypes.c_void_p),
                ("window", ctypes.c_ulong), ("kind", ctypes.c_ulong), ("format", ctypes.c_int), ("data", ctypes.c_long * 5)]
class Event(ctypes.Union):
    _fields_ = [("message", Message), ("pad", ctypes.c_long * 24)]
for i in range(n.value):
    e = Event()
    m = e.message
    m.type, m.window, m.format = 33, kids[i], 32
    m.kind = x.XInternAtom(d, b"WM_PROTOCOLS", 0)
    m.data[0] = x.XInternAtom(d, b"WM_DELETE_WINDOW", 0)
    x.XSendEvent(d, ctypes.c_ulong(kids[i]), 0, ctypes.c_long(0), ctypes.byref(e))
x.XFlush(d)
print(n.value)
"#;

#[test]
fn a_window_shows_the_colours_and_closes() {
    if !has(&["videoconvert", "videoscale", "ximagesink"]) {
        return;
    }
    let Some((_server, display)) = display() else {
        eprintln!("skipped: no Xvfb");
        return;
    };
    if Command::new("import").arg("-version").output().is_err() {
        eprintln!("skipped: no ImageMagick");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let keep = std::env::var_os("GDMEDIA_TEST_SCREENSHOT");
    let path = keep.map_or_else(|| dir.path().join("shot.png"), Into::into);
    let player = Killed(child(Some(&display)).spawn().unwrap());
    let begin = Instant::now();
    let bar = |shot: &[u8], index: usize| {
        let at = (100 * 640 + index * 40 + 20) * 3;
        [shot[at], shot[at + 1], shot[at + 2]]
    };
    let shows = |shot: &[u8]| (0..8).all(|i| (0..3).all(|c| bar(shot, i)[c].abs_diff(BARS[i][c]) <= 4));
    let mut last = None;
    while begin.elapsed() < LONG && !last.as_deref().is_some_and(shows) {
        std::thread::sleep(Duration::from_millis(200));
        last = screenshot(&display, &path).or(last);
    }
    let shot = last.expect("a screenshot");
    assert!(shows(&shot), "{:?}", (0..8).map(|i| bar(&shot, i)).collect::<Vec<_>>());

    match Command::new("python3").args(["-c", CLOSE, &display]).output() {
        Ok(done) if done.status.success() => {}
        _ => {
            eprintln!("skipped: no python3 or libX11 to close the window with");
            return;
        }
    }
    let mut player = player;
    let mut said = String::new();
    let begin = Instant::now();
    let code = loop {
        match player.0.try_wait().unwrap() {
            Some(status) => break status.code(),
            None if begin.elapsed() > LONG => break None,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    std::io::Read::read_to_string(&mut player.0.stderr.take().unwrap(), &mut said).unwrap();
    assert!(said.contains("window: RGBA 320x240") && said.contains("closed: the window was closed"), "{said}");
    assert_eq!(code, Some(7), "{said}");
}

/// The key `o` shows words over the picture, and takes them away again.
#[test]
fn a_key_shows_words_over_the_window() {
    if !has(&["videoconvert", "videoscale", "ximagesink", "textoverlay"]) {
        return;
    }
    let Some((_server, display)) = display() else {
        eprintln!("skipped: no Xvfb");
        return;
    };
    let there = |name: &str| Command::new(name).arg("-version").output().is_ok();
    if !there("import") || !there("xdotool") {
        eprintln!("skipped: no ImageMagick or xdotool");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let sdp = dir.path().join("a.sdp");
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let program = || {
        let mut program = Command::new(env!("CARGO_BIN_EXE_gdmedia"));
        program.stderr(Stdio::null()).env("DISPLAY", &display).env_remove("WAYLAND_DISPLAY");
        program
    };
    let to = format!("udp://127.0.0.1:{port}");
    let send = ["send", "--to", &to, "--format", "640x360p25", "--duration", "120s", "--write-sdp"];
    let _sender = Killed(program().args(send).arg(&sdp).spawn().unwrap());
    while std::fs::metadata(&sdp).map_or(0, |sdp| sdp.len()) == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = dir.path().join("said.txt");
    let heard = std::fs::File::create(&said).unwrap();
    let _player = Killed(program().stderr(heard).args(["--gpu", "off", "--sdp"]).arg(&sdp).spawn().unwrap());
    let shot = dir.path().join("shot.png");
    // The grey of the first bar, where words would be.
    let level = || {
        let shot = screenshot(&display, &shot)?;
        let at = |x: usize, y: usize| u32::from(shot[(y * 640 + x) * 3]);
        let all: Vec<u32> = (20..36).flat_map(|y| (24..64).map(move |x| at(x, y))).collect();
        Some(all.iter().sum::<u32>() / all.len() as u32)
    };
    let until = |what: &str, wanted: &dyn Fn(u32) -> bool| {
        let begin = Instant::now();
        loop {
            match level() {
                Some(level) if wanted(level) => return level,
                level => {
                    let said = || std::fs::read_to_string(&said).unwrap_or_default();
                    assert!(begin.elapsed() < LONG, "{what}: {level:?}; the player said {}", said());
                }
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    let press = || {
        let script = "xdotool search --onlyvisible --name . key --window %@ o";
        Command::new("sh").args(["-c", script]).env("DISPLAY", &display).status().unwrap()
    };
    let plain = until("the bar", &|level| level.abs_diff(191) < 8);
    press();
    until("words", &|level| level + 20 < plain);
    press();
    until("no words", &|level| level.abs_diff(plain) < 8);
}
