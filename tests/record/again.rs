//! Recordings used again: played, sent, exported, measured.

use super::common::{free_port, gdmedia, program, send_to_pcap, temp};
use super::{files, flow, frames, numbered, record};
use gdmedia::format::Output;
use gdmedia::record::{Options, Recording};
use gdmedia::sdp::{Depth, Sampling};
use std::path::Path;
use std::process::{Command, Stdio};

/// Octets of all frames.
fn octets(path: &Path) -> Vec<Vec<u8>> {
    let recording = Recording::open(path).unwrap();
    let mut frame = vec![0; recording.header().frame_octets()];
    let places: Vec<_> = recording.places().collect();
    let load = |place| recording.load(place, &mut frame).map(|_| frame.clone()).unwrap();
    places.into_iter().map(load).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A folder with a recording of so many frames of the test pattern in this layout, and the SDP.
fn recorded(dir: &Path, output: &str, frames: u32) -> (std::path::PathBuf, String) {
    let capture = dir.join(format!("{output}.pcap"));
    let stream = send_to_pcap(&capture, free_port(), &["--frames", &frames.to_string()]);
    let folder = dir.join(output);
    std::fs::create_dir(&folder).unwrap();
    let done = gdmedia(&[
        "record",
        "--sdp",
        &stream,
        "--pcap",
        text(&capture),
        "--to",
        text(&folder),
        "--output",
        output,
        "--segment",
        "1MB",
    ]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    (folder, stream)
}

#[test]
fn recorded_sent_and_recorded_again_it_is_the_same_bit_for_bit() {
    let dir = temp();
    for output in ["wire", "planar", "v210", "p210"] {
        let (folder, _) = recorded(dir.path(), output, 12);
        assert!(files(&folder).len() > 1, "several segments");
        let (again, sdp) = (dir.join("again.pcap"), dir.join("again.sdp"));
        let sent = gdmedia(&["send", "--from", text(&folder), "--to", text(&again), "--write-sdp", text(&sdp)]);
        assert_eq!(sent.code, 0, "{}", sent.stderr);
        assert!(sent.stderr.contains("wrote 12 frames"), "{}", sent.stderr);
        let second = dir.join(&format!("{output}-again"));
        std::fs::create_dir(&second).unwrap();
        let done = gdmedia(&[
            "record",
            "--sdp",
            text(&sdp),
            "--pcap",
            text(&again),
            "--to",
            text(&second),
            "--output",
            output,
        ]);
        assert_eq!(done.code, 0, "{}", done.stderr);
        let (first, second) = (octets(&folder), octets(&second));
        assert!(first.len() == 12 && first == second, "{output}");
    }
}

/// The same over a real network: what arrives is compared with what was recorded, by the number in the picture.
#[test]
fn sent_live_it_arrives_as_it_was() {
    let dir = temp();
    let (folder, _) = recorded(dir.path(), "wire", 10);
    let (sdp, port) = (dir.join("live.sdp"), free_port());
    let mut sender = Command::new(program())
        .args([
            "send",
            "--from",
            text(&folder),
            "--loop",
            "--to",
            &format!("udp://127.0.0.1:{port}"),
            "--write-sdp",
            text(&sdp),
        ])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !sdp.exists() || std::fs::read(&sdp).unwrap().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let live = dir.join("live");
    std::fs::create_dir(&live).unwrap();
    let done = gdmedia(&["record", "--sdp", text(&sdp), "--to", text(&live), "--frames", "15"]);
    sender.kill().unwrap();
    sender.wait().unwrap();
    assert_eq!(done.code, 0, "{}", done.stderr);
    let first = octets(&folder);
    let recording = Recording::open(&live).unwrap();
    let mut frame = vec![0; recording.header().frame_octets()];
    let mut whole = 0;
    for place in recording.places().collect::<Vec<_>>() {
        let head = recording.load(place, &mut frame).unwrap();
        if head.meta.complete {
            assert!(first.contains(&frame), "frame {} is none of those that were sent", head.meta.number);
            whole += 1;
        }
    }
    assert!(whole > 0, "no whole frame came");
}

#[test]
fn played_it_shows_what_was_recorded() {
    let dir = temp();
    let (folder, stream) = recorded(dir.path(), "wire", 8);
    // As they are, by all that play has.
    let done = gdmedia(&["play", text(&folder), "--headless", "--verify", "--json"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let summary = done.summary();
    assert_eq!(summary["end"], "end of input", "{summary}");
    assert_eq!(
        (summary["frames"]["complete"].as_u64(), summary["verify"]["in_order"].as_u64()),
        (Some(8), Some(8)),
        "{summary}"
    );
    // In another layout: the same octets as of the stream itself.
    let (of_stream, of_recording) = (dir.join("a.y4m"), dir.join("b.y4m"));
    let capture = dir.join("wire.pcap");
    let done = gdmedia(&["play", "--sdp", &stream, "--pcap", text(&capture), "--out", text(&of_stream)]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let done = gdmedia(&["play", text(&folder), "--out", text(&of_recording), "--gpu", "off"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let [a, b] = [&of_stream, &of_recording].map(|path| std::fs::read(path).unwrap());
    assert!(a.len() > 8 * 320 * 180 * 4 && a == b);
    // At its own pace, and a part of it.
    let done = gdmedia(&["play", text(&folder), "--headless", "--pace", "recorded", "--frames", "3", "--json"]);
    assert_eq!(done.summary()["frames"]["delivered"], 3, "{}", done.stderr);
    // What is for a network has no place here.
    for wrong in [["--fault", "loss=1/10"], ["--pcap", "x.pcap"], ["--tap", "x.pcapng"]] {
        let done = gdmedia(&[&["play", text(&folder), "--headless"], &wrong[..]].concat());
        assert!(done.code == 64 && done.stderr.contains("recording"), "{}", done.stderr);
    }
}

#[test]
fn damage_is_left_out_and_told() {
    let dir = temp();
    let (folder, _) = recorded(dir.path(), "planar", 6);
    let path = files(&folder).remove(0);
    let mut octets = std::fs::read(&path).unwrap();
    octets[4096 + 4096 + 17] ^= 1;
    std::fs::write(&path, octets).unwrap();
    let checked = gdmedia(&["record", "--check", text(&folder)]);
    assert!(checked.code == 2 && checked.stderr.contains("5 of 6 frames good"), "{}", checked.stderr);
    assert!(checked.stderr.contains("slot 0: the CRC of its octets is wrong"), "{}", checked.stderr);
    let played = gdmedia(&["play", text(&folder), "--headless"]);
    assert!(played.code == 0 && played.stderr.contains("1 damaged frames were left out"), "{}", played.stderr);
    let out = dir.join("out.y4m");
    let exported = gdmedia(&["export", text(&folder), "--to", text(&out)]);
    assert!(exported.code == 0 && exported.stderr.contains("5 frames"), "{}", exported.stderr);
    assert!(exported.stderr.contains("1 damaged"), "{}", exported.stderr);
}

#[test]
fn exported_it_is_what_other_programs_read() {
    let dir = temp();
    let (folder, stream) = recorded(dir.path(), "wire", 5);
    let export = |name: &str, more: &[&str]| {
        let to = dir.join(name);
        gdmedia(&[&["export", text(&folder), "--to", text(&to)], more].concat())
    };
    // y4m: what play writes of the stream.
    let reference = dir.join("reference.y4m");
    let capture = dir.join("wire.pcap");
    gdmedia(&["play", "--sdp", &stream, "--pcap", text(&capture), "--out", text(&reference)]);
    assert_eq!(export("a.y4m", &[]).code, 0);
    assert!(std::fs::read(dir.join("a.y4m")).unwrap() == std::fs::read(&reference).unwrap());
    // Raw: wire octets, one frame behind the other.
    assert_eq!(export("a.raw", &["--first", "1", "--frames", "2"]).code, 0);
    assert!(std::fs::read(dir.join("a.raw")).unwrap() == octets(&folder)[1..3].concat());
    // PNG: one, and a series.
    assert_eq!(export("a.png", &["--first", "2"]).code, 0);
    assert_eq!(export("s%03d.png", &[]).code, 0);
    assert!((0..5).all(|n| dir.join(&format!("s{n:03}.png")).exists()));
    assert!(std::fs::read(dir.join("a.png")).unwrap() == std::fs::read(dir.join("s002.png")).unwrap());
    // Names that say nothing, and parts that are not there.
    let wrong = export("a.mp4", &[]);
    assert!(wrong.code == 64 && wrong.stderr.contains(".y4m"), "{}", wrong.stderr);
    let none = export("b.y4m", &["--first", "5"]);
    assert!(none.code == 65 && none.stderr.contains("no whole frame"), "{}", none.stderr);
    let same = gdmedia(&["export", text(&files(&folder)[0]), "--to", text(&files(&folder)[0])]);
    assert!(same.code == 64 && octets(&folder).len() == 5, "{}", same.stderr);
    // MOV: size, rate and number of frames as ffprobe counts them.
    let mov = export("a.mov", &[]);
    if mov.code == 69 {
        return println!("skipped: {}", mov.stderr);
    }
    assert_eq!(mov.code, 0, "{}", mov.stderr);
    let probe = Command::new("ffprobe")
        .args([
            "-v",
            "error",
            "-count_frames",
            "-show_entries",
            "stream=codec_name,width,height,r_frame_rate,nb_read_frames",
        ])
        .args(["-of", "csv=p=0", text(&dir.join("a.mov"))])
        .output();
    match probe {
        Ok(probe) => assert_eq!(String::from_utf8_lossy(&probe.stdout).trim(), "v210,320,180,25/1,5"),
        Err(_) => println!("skipped: no ffprobe"),
    }
}

#[test]
fn what_lacks_something_of_the_wire_is_not_sent() {
    let dir = temp();
    let (folder, _) = recorded(dir.path(), "nv12", 2);
    let sent = gdmedia(&["send", "--from", text(&folder), "--to", text(&dir.join("x.pcap"))]);
    assert!(sent.code == 64 && sent.stderr.contains("--output wire"), "{}", sent.stderr);
    let played = gdmedia(&["play", text(&folder), "--headless", "--output", "planar"]);
    assert!(played.code == 64 && played.stderr.contains("recorded as nv12"), "{}", played.stderr);
    assert_eq!(gdmedia(&["play", text(&folder), "--headless"]).code, 0);
}

#[test]
fn a_recording_without_frames_is_told() {
    let dir = temp();
    let video = frames::video(Sampling::YCbCr422, Depth::D10, 16, 4);
    let layout = frames::layout(&video, Output::Wire).unwrap();
    record(dir.path(), &video, &layout, &Options::default(), [0]);
    let path = files(dir.path()).remove(0);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    for args in [
        &["play", text(&path), "--headless"][..],
        &["send", "--from", text(&path), "--to", text(&dir.join("x.pcap"))],
        &["export", text(&path), "--to", text(&dir.join("x.y4m"))],
    ] {
        let done = gdmedia(args);
        assert!(done.code == 65 && done.stderr.contains("no whole frame"), "{args:?}: {}", done.stderr);
    }
    let _ = (flow(&video), numbered(&layout, 0));
}

#[test]
fn a_disk_is_measured_and_left_as_it_was() {
    let dir = temp();
    let done =
        gdmedia(&["record", "--bench", text(dir.path()), "--size", "16MiB", "--bench-format", "640x360p25", "--json"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let measured: Vec<serde_json::Value> = done
        .stderr
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|value: &serde_json::Value| value["type"] == "measured")
        .collect();
    assert!(measured.len() >= 2, "{}", done.stderr);
    assert!(measured.iter().all(|m| m["octets"].as_u64() >= Some(16 << 20) && m["seconds"].as_f64() > Some(0.0)));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    let done = gdmedia(&["record", "--bench", "/nowhere", "--size", "1MiB"]);
    assert!(done.code == 74 && done.stderr.contains("/nowhere"), "{}", done.stderr);
}
