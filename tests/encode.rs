//! `--encode` by the program: what comes out is played by FFmpeg, and every frame's number is read from its picture.
#![cfg(feature = "gst")]

mod common;

use common::{Output, Temp, free_port, gdmedia, temp};
use gdmedia::format::{Layout, Output as Pixels, WireFormat};
use gdmedia::sdp::{Depth, Sampling, Scan};
use gdmedia::send::pattern;
use std::collections::HashMap;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const FRAMES: usize = 40;

fn has(elements: &[&str]) -> bool {
    gstreamer::init().unwrap();
    let missing = elements.iter().find(|name| gstreamer::ElementFactory::find(name).is_none());
    missing.inspect(|name| println!("skipped: GStreamer has no {name}")).is_none()
}

fn has_ffmpeg() -> bool {
    let there = |name: &str| Command::new(name).arg("-version").output().is_ok();
    let both = there("ffmpeg") && there("ffprobe");
    if !both {
        println!("skipped: no ffmpeg");
    }
    both
}

/// Sends the test pattern into a capture; the paths of capture and SDP.
fn capture(dir: &Temp, args: &[&str]) -> (String, String) {
    let [pcap, sdp] = ["a.pcap", "a.sdp"].map(|name| dir.join(name).to_str().unwrap().to_owned());
    let frames = FRAMES.to_string();
    let fixed = ["send", "--to", &pcap, "--write-sdp", &sdp, "--frames", &frames];
    let output = gdmedia(&[&fixed[..], args].concat());
    assert_eq!(output.code, 0, "{}", output.stderr);
    (pcap, sdp)
}

/// Encodes the capture as fast as it goes.
fn encode(dir: &Temp, sent: &[&str], spec: &str, out: &Path, more: &[&str]) -> Output {
    let (pcap, sdp) = capture(dir, sent);
    let out = out.to_str().unwrap();
    gdmedia(&[&["--sdp", &sdp, "--pcap", &pcap, "--encode", spec, "--out", out, "--gpu", "off"][..], more].concat())
}

/// What ffprobe says about the video of a file.
fn probe(path: &Path) -> HashMap<String, String> {
    let entries = "stream=codec_name,profile,pix_fmt,width,height,color_range,color_space,color_transfer,color_primaries,\
                   field_order,r_frame_rate,avg_frame_rate,nb_read_frames,sample_aspect_ratio";
    let output = Command::new("ffprobe")
        .args(["-v", "error", "-count_frames", "-select_streams", "v:0", "-show_entries", entries])
        .args(["-of", "default=nw=1"])
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

fn expect(path: &Path, wanted: &[(&str, &str)]) {
    let found = probe(path);
    for (key, value) in wanted {
        assert_eq!(found.get(*key).map(String::as_str), Some(*value), "{key} of {}: {found:?}", path.display());
    }
}

/// Decodes with FFmpeg and reads the number in each picture. Rows and planes have no padding at this width.
fn numbers(path: &Path, scan: Scan) -> Vec<Option<u64>> {
    let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, 640, 360, scan).unwrap();
    let layout = Layout::new(wire, Pixels::Planar).unwrap();
    let octets = 640 * 360 * 2 * 2;
    assert_eq!(layout.size, octets + 64);
    let output = Command::new("ffmpeg")
        .args(["-v", "error", "-i"])
        .arg(path)
        .args(["-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "yuv422p10le", "-"])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success() && output.stdout.len().is_multiple_of(octets), "{}", output.stdout.len());
    output.stdout.chunks_exact(octets).map(|frame| pattern::read_number(&layout, &[frame, &[0; 64]].concat())).collect()
}

fn all() -> Vec<Option<u64>> {
    (0..FRAMES as u64).map(Some).collect()
}

const SENT: [&str; 2] = ["--format", "640x360p59.94"];

#[test]
fn every_frame_of_h264_by_x264_in_every_container() {
    if !has(&["x264enc"]) || !has_ffmpeg() {
        return;
    }
    let dir = temp();
    for name in ["a.mp4", "a.mov", "a.mkv", "a.ts"] {
        let path = dir.join(name);
        let output = encode(&dir, &SENT, "h264,rung=x264,bitrate=3M,gop=20", &path, &[]);
        assert_eq!(output.code, 0, "{}", output.stderr);
        assert!(output.stderr.contains("encode: H.264 by x264 to "), "{}", output.stderr);
        assert!(!output.stderr.contains("becomes"), "nothing is lost: {}", output.stderr);
        expect(
            &path,
            &[
                ("codec_name", "h264"),
                ("profile", "High 4:2:2"),
                ("pix_fmt", "yuv422p10le"),
                ("width", "640"),
                ("height", "360"),
                ("color_range", "tv"),
                ("color_space", "bt709"),
                ("color_transfer", "bt709"),
                ("color_primaries", "bt709"),
                ("field_order", "progressive"),
                ("nb_read_frames", "40"),
            ],
        );
        // Matroska counts milliseconds, so that its rate is not exact.
        if name != "a.mkv" {
            expect(&path, &[("r_frame_rate", "60000/1001")]);
        }
        assert_eq!(numbers(&path, Scan::Progressive), all(), "{name}");
    }
}

#[test]
fn every_frame_of_hevc_by_x265_and_its_colour() {
    if !has(&["x265enc"]) || !has_ffmpeg() {
        return;
    }
    let dir = temp();
    for (name, colour, wanted) in [
        ("a.mp4", &["--colorimetry", "BT2100", "--tcs", "PQ"], ["bt2020nc", "smpte2084", "bt2020"]),
        ("a.mkv", &["--colorimetry", "BT2100", "--tcs", "HLG"], ["bt2020nc", "arib-std-b67", "bt2020"]),
        ("a.ts", &["--colorimetry", "BT709", "--tcs", "SDR"], ["bt709", "bt709", "bt709"]),
    ] {
        let path = dir.join(name);
        let sent = [&SENT[..], colour].concat();
        let output = encode(&dir, &sent, "hevc,bitrate=3M,preset=fastest", &path, &[]);
        assert_eq!(output.code, 0, "{}", output.stderr);
        assert!(output.stderr.contains("encode: HEVC by x265 to "), "{}", output.stderr);
        let [space, transfer, primaries] = wanted;
        expect(
            &path,
            &[
                ("codec_name", "hevc"),
                ("pix_fmt", "yuv422p10le"),
                ("width", "640"),
                ("height", "360"),
                ("color_range", "tv"),
                ("color_space", space),
                ("color_transfer", transfer),
                ("color_primaries", primaries),
                ("nb_read_frames", "40"),
            ],
        );
        assert_eq!(numbers(&path, Scan::Progressive), all(), "{name}");
    }
}

#[test]
fn fields_stay_fields() {
    if !has(&["x264enc"]) || !has_ffmpeg() {
        return;
    }
    let dir = temp();
    let path = dir.join("a.mkv");
    let output = encode(&dir, &["--format", "640x360i50"], "h264,rung=x264,bitrate=4M", &path, &[]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let found = probe(&path);
    assert_eq!(found["field_order"], "tt", "{found:?}");
    assert_eq!(found["avg_frame_rate"], "25/1", "{found:?}");
    assert_eq!(numbers(&path, Scan::Interlaced), all());
    // Encoders without fields code the frames, and say so.
    for (spec, element, name) in [
        ("hevc,preset=fastest,bitrate=6M", "x265enc", "b.mkv"),
        ("h264,rung=openh264,bitrate=6M", "openh264enc", "c.mkv"),
        ("mjpeg,rung=jpeg,quality=95", "jpegenc", "d.mkv"),
    ] {
        if !has(&[element]) {
            continue;
        }
        let path = dir.join(name);
        let output = encode(&dir, &["--format", "640x360i50"], spec, &path, &[]);
        assert_eq!(output.code, 0, "{}", output.stderr);
        assert!(output.stderr.contains("fields are coded woven, as frames"), "{}", output.stderr);
        // Fewer colour rows than fields have them mix the fields' colours, not the code in the luminance.
        assert_eq!(numbers(&path, Scan::Interlaced), all(), "{spec}");
    }
}

#[test]
fn encoders_with_less_say_what_is_lost_and_lose_no_frame() {
    if !has_ffmpeg() {
        return;
    }
    let dir = temp();
    for (spec, element, name, pix_fmt, note) in [
        ("h264,rung=openh264,bitrate=4M", "openh264enc", "a.mp4", "yuv420p", "4:2:2 10 bit becomes 4:2:0 8 bit"),
        ("av1,rung=aom,bitrate=4M,preset=fastest", "av1enc", "a.mkv", "yuv420p", "4:2:2 10 bit becomes 4:2:0 8 bit"),
        ("mjpeg,rung=jpeg", "jpegenc", "a.mov", "yuvj422p", "4:2:2 10 bit becomes 4:2:2 8 bit, levels become"),
        (
            "mjpeg,rung=cpu,quality=60",
            "jpegenc",
            "a.mkv",
            "yuvj422p",
            "4:2:2 10 bit becomes 4:2:2 8 bit, levels become",
        ),
    ] {
        if !has(&[element]) {
            continue;
        }
        let path = dir.join(name);
        let output = encode(&dir, &SENT, spec, &path, &[]);
        assert_eq!(output.code, 0, "{spec}: {}", output.stderr);
        assert!(output.stderr.contains(note), "{spec}: {}", output.stderr);
        expect(&path, &[("pix_fmt", pix_fmt), ("width", "640"), ("height", "360"), ("nb_read_frames", "40")]);
        assert_eq!(numbers(&path, Scan::Progressive), all(), "{spec}");
    }
}

/// The middle of a bar of the pattern by its colour, in a file and as it was sent: levels of JPEG files are as they should be.
#[test]
fn levels_of_mjpeg_are_those_of_jpeg_files() {
    if !has(&["jpegenc"]) || !has_ffmpeg() {
        return;
    }
    let dir = temp();
    let path = dir.join("a.mkv");
    let output = encode(&dir, &SENT, "mjpeg,rung=jpeg,quality=95", &path, &[]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    // Rendered by our own conversion …
    let (pcap, sdp) = capture(&dir, &SENT);
    let png = dir.join("a.png");
    let output = gdmedia(&["--sdp", &sdp, "--pcap", &pcap, "--snapshot", png.to_str().unwrap(), "--gpu", "off"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let rgb = |path: &Path| {
        let text = ["-frames:v", "1", "-vf", "scale=64:36:flags=area", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"];
        let output = Command::new("ffmpeg").args(["-v", "error", "-i"]).arg(path).args(text).output().unwrap();
        assert_eq!(output.stdout.len(), 64 * 36 * 3);
        output.stdout
    };
    // … and by FFmpeg, which reads JPEG as what it is.
    let (ours, theirs) = (rgb(&png), rgb(&path));
    let difference: u64 = ours.iter().zip(&theirs).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    let mean = difference as f64 / ours.len() as f64;
    // Codes of narrow range in place of full ones would differ by some 10.
    assert!(mean < 3.0, "mean difference {mean}");
}

#[test]
fn odd_sizes_are_cut() {
    if !has(&["x264enc"]) || !has_ffmpeg() {
        return;
    }
    let dir = temp();
    let path = dir.join("a.mp4");
    let output = encode(&dir, &["--format", "321x181p25"], "h264,rung=x264", &path, &[]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(output.stderr.contains("321x181 is cut to 320x181: 4:2:2 10 bit has no such sizes"), "{}", output.stderr);
    expect(&path, &[("width", "320"), ("height", "181"), ("nb_read_frames", "40")]);
}

#[test]
fn a_run_that_is_killed_leaves_a_file_that_plays() {
    if !has(&["x264enc"]) || !has_ffmpeg() {
        return;
    }
    let dir = temp();
    let port = free_port();
    let sdp = dir.join("a.sdp").to_str().unwrap().to_owned();
    let to = format!("udp://127.0.0.1:{port}");
    let mut sender = Command::new(common::program())
        .args(["send", "--to", &to, "--write-sdp", &sdp, "--format", "640x360p25", "--duration", "60s"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !Path::new(&sdp).exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    for name in ["a.mp4", "a.mkv"] {
        let path = dir.join(name);
        let mut receiver = Command::new(common::program())
            .args(["--sdp", &sdp, "--encode", "h264,rung=x264,bitrate=2M,gop=10,preset=fastest", "--gpu", "off"])
            .arg("--out")
            .arg(&path)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Until there is something to be lost, however slow this machine is.
        for _ in 0..6000 {
            if std::fs::metadata(&path).is_ok_and(|meta| meta.len() > 400_000) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        receiver.kill().unwrap();
        receiver.wait().unwrap();
        let found = probe(&path);
        let frames: u32 = found["nb_read_frames"].parse().unwrap();
        assert!(frames >= 10, "{name}: {found:?}");
    }
    sender.kill().unwrap();
    sender.wait().unwrap();
}

#[test]
fn rtp_and_srt_reach_a_receiver() {
    if !has(&["x264enc", "srtsink", "srtsrc", "avdec_h264"]) {
        return;
    }
    let dir = temp();
    for (rtp, codec) in
        [(true, "h264,rung=x264,bitrate=1M,gop=5"), (true, "mjpeg,rung=jpeg"), (false, "h264,rung=x264,gop=5")]
    {
        let port = free_port();
        let (out, source) = if codec.starts_with("mjpeg") {
            let caps = "application/x-rtp,media=video,clock-rate=90000,encoding-name=JPEG,payload=26";
            let source = format!("udpsrc address=127.0.0.1 port={port} caps=\"{caps}\" ! rtpjpegdepay ! jpegdec");
            (format!("rtp://127.0.0.1:{port}"), source)
        } else if rtp {
            let caps = "application/x-rtp,media=video,clock-rate=90000,encoding-name=H264,payload=96";
            let depay = "rtph264depay ! h264parse ! avdec_h264";
            let source = format!("udpsrc address=127.0.0.1 port={port} caps=\"{caps}\" ! {depay}");
            (format!("rtp://127.0.0.1:{port}"), source)
        } else {
            let source = format!("srtsrc uri=srt://127.0.0.1:{port}?mode=listener ! tsdemux ! h264parse ! avdec_h264");
            (format!("srt://127.0.0.1:{port}"), source)
        };
        let mut receiver = Command::new("gst-launch-1.0")
            .args(["-q", "-e"])
            .args(format!("{source} ! identity eos-after=10 ! fakesink sync=false").split(' '))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Pictures are sent until the receiver has had enough of them.
        let (pcap, sdp) = capture(&dir, &["--format", "320x180p50"]);
        let mut ended = false;
        for _ in 0..60 {
            let args = ["--sdp", &sdp, "--pcap", &pcap, "--pace", "recorded", "--gpu", "off", "--out", &out];
            let output = gdmedia(&[&args[..], &["--encode", codec]].concat());
            // The end of the connection is the receiver's.
            ended = receiver.try_wait().unwrap().is_some();
            if ended {
                break;
            }
            assert!(output.code == 0 || !rtp, "{}", output.stderr);
            assert!(!rtp || output.stderr.contains("SDP: m=video"), "{}", output.stderr);
        }
        if !ended {
            receiver.kill().unwrap();
        }
        receiver.wait().unwrap();
        assert!(ended, "{out}");
    }
}

fn fails(output: &Output, code: i32, words: &[&str]) {
    assert_eq!(output.code, code, "exit code of: {}\n{}", output.command, output.stderr);
    for word in words {
        assert!(output.stderr.contains(word), "{word:?} is not in what {} said:\n{}", output.command, output.stderr);
    }
    assert!(output.stderr.contains("cure") && !output.stderr.contains("panicked"), "{}", output.stderr);
}

#[test]
fn bad_input() {
    let dir = temp();
    let (pcap, sdp) = capture(&dir, &["--format", "320x180p25"]);
    let run = |spec: &str, out: &str, more: &[&str]| {
        gdmedia(&[&["--sdp", &sdp, "--pcap", &pcap, "--encode", spec, "--out", out, "--gpu", "off"][..], more].concat())
    };
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    fails(&run("vp9", &path("a.mkv"), &[]), 64, &["no codec `vp9`", "h264"]);
    fails(&run("h264,bitrate=lots", &path("a.mkv"), &[]), 64, &["`lots` is no value of bitrate"]);
    fails(&run("h264", &path("a.xyz"), &[]), 64, &["no container .xyz", ".mp4"]);
    fails(&run("h264", "-", &[]), 64, &["does not say which container"]);
    fails(&run("av1", &path("a.ts"), &[]), 64, &["a transport stream (.ts) does not hold AV1", ".mkv"]);
    fails(&run("mjpeg", &path("a.mp4"), &[]), 64, &["MP4 does not hold MJPEG"]);
    fails(&run("h264", "rtp://127.0.0.1", &[]), 64, &["no port"]);
    fails(&run("h264,rung=nvenc", &path("a.mkv"), &["--output", "planar"]), 69, &["no encoder for H.264"]);
    fails(&run("h264,rung=nvenc", &path("a.mkv"), &[]), 69, &["no encoder for H.264", "not NVENC", "leave rung out"]);
    fails(&run("h264", &path("nowhere/a.mkv"), &[]), 74, &["No such file or directory", "create the folder"]);
    fails(&run("h264", "/sys/a.mkv", &[]), 77, &["Permission denied", "choose a place"]);
    let no_out = gdmedia(&["--sdp", &sdp, "--encode", "h264"]);
    assert!(no_out.code == 64 && no_out.stderr.contains("--out"), "{}", no_out.stderr);
    let both = run("h264", &path("a.mkv"), &["--sink", "fakesink"]);
    assert!(both.code == 64 && both.stderr.contains("--sink"), "{}", both.stderr);
    let forced = run("h264,rung=cpu", &path("a.mkv"), &["--output", "rgb16f"]);
    fails(&forced, 69, &["nothing that --output rgb16f can be brought to"]);
}

#[test]
fn a_full_disk_ends_the_run_with_the_cause() {
    if !has(&["x264enc"]) {
        return;
    }
    let dir = temp();
    std::os::unix::fs::symlink("/dev/full", dir.join("a.mkv")).unwrap();
    let output = encode(&dir, &["--format", "320x180p25"], "h264,rung=x264", &dir.join("a.mkv"), &[]);
    fails(&output, 74, &["No space left", "free space"]);
}

/// GStreamer without its plug-ins: as on a machine where they are not installed.
#[test]
fn an_encoder_that_is_missing_is_named_with_its_package() {
    if !has(&["x264enc"]) {
        return;
    }
    let dir = temp();
    let (pcap, sdp) = capture(&dir, &["--format", "320x180p25"]);
    let plugins = dir.join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    let run = |spec: &str, out: &str| {
        let out = dir.join(out);
        let output = Command::new(common::program())
            .args(["--sdp", &sdp, "--pcap", &pcap, "--encode", spec, "--gpu", "off", "--out", out.to_str().unwrap()])
            .env("GST_PLUGIN_SYSTEM_PATH_1_0", &plugins)
            .env("GST_PLUGIN_PATH_1_0", &plugins)
            .env("GST_REGISTRY_1_0", dir.join("registry"))
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = run("h264", "a.mp4");
    assert_eq!(code, Some(69), "{text}");
    assert!(text.contains("GStreamer has no element `x264enc`, of the package gstreamer1.0-plugins-ugly"), "{text}");
    assert!(text.contains("cure: install the package gstreamer1.0-plugins-ugly"), "{text}");
    let (code, text) = run("hevc", "a.mkv");
    assert_eq!(code, Some(69), "{text}");
    assert!(text.contains("not x265") && text.contains("not jpeg on the CPU"), "{text}");
}

/// The receiver goes away and another one comes: an encoder that was started again reaches it.
#[test]
fn an_srt_receiver_that_comes_back() {
    if !has(&["x264enc", "srtsink", "srtsrc", "avdec_h264"]) {
        return;
    }
    let dir = temp();
    let [port, to] = [free_port(), free_port()];
    let sdp = dir.join("a.sdp").to_str().unwrap().to_owned();
    let program = || {
        let mut program = Command::new(common::program());
        program.stdout(Stdio::null()).stderr(Stdio::null());
        program
    };
    let send = ["send", "--format", "320x180p25", "--duration", "150s", "--write-sdp", &sdp];
    let mut sender = program().args(send).args(["--to", &format!("udp://127.0.0.1:{port}")]).spawn().unwrap();
    while !Path::new(&sdp).exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    // Shows pictures and ends.
    let receive = || {
        let text = format!(
            "srtsrc uri=srt://127.0.0.1:{to}?mode=listener ! tsdemux ! h264parse ! avdec_h264 ! identity eos-after=150 ! \
             fakesink sync=false"
        );
        let mut launch = Command::new("gst-launch-1.0");
        launch.args(["-q", "-e"]).args(text.split_whitespace()).stdout(Stdio::null()).spawn().unwrap()
    };
    let mut first = receive();
    let log = dir.join("log");
    let mut encoder = program()
        .args([
            "--sdp",
            &sdp,
            "--gpu",
            "off",
            "--encode",
            "h264,rung=x264,gop=5",
            "--out",
            &format!("srt://127.0.0.1:{to}"),
        ])
        .args(["--json", "--interval", "60s"])
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let ended = |child: &mut std::process::Child| {
        (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            child.try_wait().unwrap().is_some()
        })
    };
    let one = ended(&mut first);
    let mut second = receive();
    let two = one && ended(&mut second);
    for child in [&mut first, &mut second, &mut encoder, &mut sender] {
        let _ = child.kill();
        child.wait().unwrap();
    }
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(one && two, "{said}");
    assert!(said.contains("the encoder failed after") && said.contains("the encoder was started again"), "{said}");
}

/// Nobody listens: the encoder is started again and again, the run ends when it never worked.
#[test]
fn an_srt_address_that_nobody_answers() {
    if !has(&["x264enc", "srtsink"]) {
        return;
    }
    let dir = temp();
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let out = format!("srt://127.0.0.1:{}", nobody.local_addr().unwrap().port());
    let port = free_port();
    let sdp = dir.join("a.sdp").to_str().unwrap().to_owned();
    let to = format!("udp://127.0.0.1:{port}");
    let mut sender = Command::new(common::program())
        .args(["send", "--to", &to, "--write-sdp", &sdp, "--format", "320x180p25", "--duration", "120s"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !Path::new(&sdp).exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let output =
        gdmedia(&["--sdp", &sdp, "--encode", "h264,rung=x264", "--out", &out, "--gpu", "off", "--duration", "100s"]);
    sender.kill().unwrap();
    sender.wait().unwrap();
    fails(&output, 74, &["the encoder failed", "started again in 0.5 s", "started again in 1.0 s"]);
}
