//! The program: record, check; killed at any moment.

use super::common::{free_port, gdmedia, program, sdp, send_to_pcap, temp};
use super::files;
use gdmedia::record::Recording;
use gdmedia::send::pattern;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Numbers that the test pattern codes in the frames of a recording.
fn coded(path: &Path) -> Vec<Option<u64>> {
    let recording = Recording::open(path).unwrap();
    let layout = &recording.header().layout;
    let mut octets = vec![0; layout.size];
    let places: Vec<_> = recording.places().collect();
    places
        .into_iter()
        .map(|place| {
            recording.load(place, &mut octets).unwrap();
            pattern::read_number(layout, &octets)
        })
        .collect()
}

#[test]
fn a_capture_is_recorded_in_every_layout_that_holds_numbers() {
    let dir = temp();
    let capture = dir.join("in.pcap");
    let port = free_port();
    let stream = send_to_pcap(&capture, port, &["--frames", "12"]);
    for output in ["wire", "planar", "v210", "uyvy"] {
        let folder = dir.join(output);
        std::fs::create_dir(&folder).unwrap();
        let (to, from) = (folder.to_str().unwrap(), capture.to_str().unwrap());
        let done = gdmedia(&["record", "--sdp", &stream, "--pcap", from, "--to", to, "--output", output, "--json"]);
        assert_eq!(done.code, 0, "{}", done.stderr);
        let summary = done.summary();
        let recording = summary["sinks"].as_array().unwrap().iter().find_map(|s| s.get("recording")).unwrap();
        assert_eq!((recording["frames"].as_u64(), recording["gaps"].as_u64()), (Some(12), Some(0)), "{summary}");
        assert_eq!(recording["disk_ns"]["count"], 12);
        assert_eq!(coded(&folder), (0..12).map(Some).collect::<Vec<_>>(), "{output}");
        let checked = gdmedia(&["record", "--check", to]);
        assert_eq!(checked.code, 0, "{}", checked.stderr);
        assert!(checked.stderr.contains("12 of 12 frames good"), "{}", checked.stderr);
    }
}

#[test]
fn what_is_asked_for_and_cannot_be_is_said_with_its_cure() {
    let dir = temp();
    let stream = dir.write("a.sdp", &sdp(free_port()));
    let file = dir.write("file", "");
    let of = |args: &[&str]| gdmedia(&[&["record", "--sdp", &stream], args].concat());
    for (to, code, words) in
        [(dir.join("none").to_str().unwrap(), 74, "create the folder"), (&file, 74, "name a folder")]
    {
        let done = of(&["--to", to]);
        assert!(done.code == code && done.stderr.contains(words), "{to}: {} {}", done.code, done.stderr);
    }
    let done = of(&[]);
    assert!(done.code == 64 && done.stderr.contains("--to FOLDER"), "{}", done.stderr);
    let done = of(&["--to", dir.path().to_str().unwrap(), "--way", "cufile", "--gpu", "off"]);
    assert!(done.code == 69 && done.stderr.contains("cufile"), "{}", done.stderr);
    let done = of(&["--to", dir.path().to_str().unwrap(), "--segment", "10 parsecs"]);
    assert!(done.code == 64 && done.stderr.contains("10GiB"), "{}", done.stderr);
    let done = gdmedia(&["record", "--check", &file]);
    assert!(done.code == 65 && done.stderr.contains("no recording"), "{}", done.stderr);
    assert!(files(dir.path()).is_empty(), "nothing is left behind");
}

/// The process is killed at a random moment while it records a stream that never ends; what it had said is there, whole and
/// without a hole. GDMEDIA_KILLS sets how often (5).
#[test]
fn killed_at_any_moment() {
    let times: u64 = std::env::var("GDMEDIA_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    let mut random = std::process::id();
    for round in 0..times {
        let dir = temp();
        let port = free_port();
        let stream = dir.write("a.sdp", &sdp(port));
        let to = dir.join("rec");
        std::fs::create_dir(&to).unwrap();
        let mut sender =
            Command::new(program()).args(["send", "--sdp", &stream]).stderr(Stdio::null()).spawn().unwrap();
        let way = ["auto", "pwrite"][round as usize % 2];
        let segment = ["10GiB", "1MB"][round as usize / 2 % 2];
        let mut recorder = Command::new(program())
            .args(["record", "--sdp", &stream, "--to", to.to_str().unwrap(), "--way", way, "--segment", segment])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It has begun when there are frames; then a moment between 0 and 500 ms.
        let begun = Instant::now();
        let has_frames = || Recording::open(&to).is_ok_and(|r| r.frames() > 1);
        while !has_frames() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        std::thread::sleep(Duration::from_millis(u64::from(random >> 16) % 500));
        // What a reader beside it sees is there afterwards, too.
        let seen = Recording::open(&to).map_or(0, |r| r.frames());
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        sender.kill().unwrap();
        sender.wait().unwrap();
        assert!(seen > 1, "nothing was recorded");
        let recording = Recording::open(&to).unwrap();
        // Between two segments there is none that lacks its index.
        let whole = recording.segments().last().is_some_and(|segment| segment.end().is_some());
        assert!(recording.frames() >= seen, "{} after, {seen} before", recording.frames());
        for segment in recording.segments() {
            let found = segment.check(|_, _| {});
            assert_eq!((found.damaged, found.empty), (0, 0), "{found:?}");
        }
        // Every frame that lies between others and is not there was left out by the recorder, and said so.
        let mut octets = vec![0; recording.header().frame_octets()];
        let mut next = None;
        for place in recording.places() {
            let head = recording.load(place, &mut octets).unwrap();
            assert!(next.is_none_or(|next| head.meta.number == next + head.gap), "a hole before {}", head.meta.number);
            next = Some(head.meta.number + 1);
        }
        // The check makes the index, and then has nothing to make.
        let checked = gdmedia(&["record", "--check", to.to_str().unwrap()]);
        assert_eq!(checked.code, 0, "{}", checked.stderr);
        assert_eq!(checked.stderr.contains("index made"), !whole, "{}", checked.stderr);
        let checked = gdmedia(&["record", "--check", to.to_str().unwrap()]);
        assert!(checked.code == 0 && !checked.stderr.contains("index made"), "{}", checked.stderr);
        // The frame that was on its way may have arrived meanwhile.
        assert!((recording.frames()..=recording.frames() + 1).contains(&Recording::open(&to).unwrap().frames()));
    }
}
