//! `gdmedia analyze` from outside: what it prints and writes, how it exits.

use super::synthetic::{capture, frames, sdp};
use gdmedia::timing::schedule::Pacing;
use std::path::Path;
use std::process::{Command, Output};

fn run(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gdmedia"));
    let Output { status, stdout, stderr } =
        command.arg("analyze").args(arguments).current_dir(folder).output().unwrap();
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    (status.code().unwrap(), text(&stdout), text(&stderr))
}

#[test]
fn reports_and_exit_codes() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path();
    let write = |name: &str, octets: &[u8]| std::fs::write(folder.join(name), octets).unwrap();
    write("good.pcap", &capture(frames(0, Pacing::Gapped, 4, |_, _| -10_000)));
    let mut lossy = frames(0, Pacing::Gapped, 4, |_, _| -10_000);
    lossy.remove(2000);
    write("lossy.pcap", &capture(lossy));
    write("a.sdp", sdp("; TP=2110TPN").as_bytes());
    write("no.pcap", b"v=0");

    let (code, out, err) = run(folder, &["good.pcap"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("narrow") && out.contains("VRX, gapped reads, packets"), "{out}");
    let (code, out, err) =
        run(folder, &["lossy.pcap", "--report", "r.json", "--report", "r.xml", "--report", "r.html"]);
    assert_eq!(code, 2, "{out}{err}");
    assert!(out.contains("failure: loss: 1 of 4320 packets are missing, in 1 gap"), "{out}");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let json: serde_json::Value = serde_json::from_str(&read("r.json")).unwrap();
    assert_eq!((&json["schema"], &json["metrics"]["flow0.lost"]), (&1.into(), &1.0.into()));
    assert!(read("r.xml").contains("name=\"loss\" time=\"0\"><failure message=\"1 of 4320"));
    assert!(read("r.html").contains("Losses over time"));
    // The other leg of the SDP is not in the capture.
    let (code, out, _) = run(folder, &["good.pcap", "--sdp", "a.sdp", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &json["verdict"]), (2, &"failure".into()));

    for (arguments, wanted, words) in [
        (&["no.pcap"][..], 65, "not a capture: it is an SDP"),
        (&["none.pcap"], 65, "correct the path"),
        (&["good.pcap", "--report", "r.doc"], 64, ".html"),
        (&["good.pcap", "--report", "good.pcap"], 64, "no form"),
        (&["good.pcap", "--sdp", "no.pcap"], 65, "no flow"),
        (&["good.pcap", "--trust", "me"], 64, "possible values"),
        (&["good.pcap", "--limit", "cmaxx=6"], 64, "did you mean 'cmax'?"),
        (&["good.pcap", "--limits", "none.toml"], 64, "none.toml"),
        (&["good.pcap", "--report", "r.html", "--report", "./r.html"], 64, "give each its own file"),
        (&["good.pcap", "--report", "none/r.html"], 74, "mkdir -p none"),
        (&["."], 65, "is a folder"),
    ] {
        let (code, _, err) = run(folder, arguments);
        assert_eq!(code, wanted, "{arguments:?}: {err}");
        assert!(err.contains(words) && err.contains("cure: "), "{arguments:?}: {err}");
    }
}

/// A place that cannot be written to costs no work: it is told before, and what was there is not touched.
#[test]
fn places_of_reports_are_tried_before_the_work() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path();
    // The capture's own octets under the name of a report.
    let octets = capture(frames(0, Pacing::Gapped, 2, |_, _| -10_000));
    std::fs::write(folder.join("capture.txt"), &octets).unwrap();
    let (code, out, err) = run(folder, &["capture.txt", "--report", "./capture.txt"]);
    assert_eq!((code, out.as_str()), (64, ""), "{err}");
    assert!(err.contains("is also the input") && err.contains("cure: "), "{err}");
    assert_eq!(std::fs::read(folder.join("capture.txt")).unwrap(), octets);
    // The second one cannot be written: the first is not begun, and nothing is analysed.
    let (code, out, err) = run(folder, &["capture.txt", "--report", "r.json", "--report", "none/r.xml"]);
    assert_eq!((code, out.as_str()), (74, ""), "{err}");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
    // The folder goes while the work is done, as a disk that is full: the text is printed all the same.
    std::fs::create_dir(folder.join("gone")).unwrap();
    let fifo = folder.join("fifo.pcap");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let child = Command::new(env!("CARGO_BIN_EXE_gdmedia"))
        .args(["analyze", "fifo.pcap", "--report", "gone/r.html"])
        .current_dir(folder)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Opens when the program has begun its reports and opened the capture.
    use std::io::Write;
    let mut writer = std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    std::fs::remove_dir_all(folder.join("gone")).unwrap();
    writer.write_all(&octets).unwrap();
    drop(writer);
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert_eq!(status.code(), Some(74), "{out}{err}");
    assert!(out.contains("1 media flow") && err.contains("gone/r.html") && err.contains("cure: "), "{out}{err}");
}

/// A file that is damaged behind its first records is judged up to there, and fails.
#[test]
fn what_lies_before_the_damage_is_analysed() {
    let temp = tempfile::tempdir().unwrap();
    let mut octets = capture(frames(0, Pacing::Gapped, 3, |_, _| -10_000));
    // A record of 4 GiB.
    octets.extend([0; 8]);
    octets.extend([0xff; 8]);
    octets.extend([0; 400]);
    std::fs::write(temp.path().join("d.pcap"), octets).unwrap();
    let (code, out, err) = run(temp.path(), &["d.pcap"]);
    assert_eq!(code, 2, "{out}{err}");
    assert!(out.contains("failure: damage: ") && out.contains("d.pcap is damaged at octet"), "{out}");
    assert!(out.contains("1 media flow in") && out.contains("the file is damaged behind them"), "{out}");
}

/// What is not the standard's is said, and changes the verdict.
#[test]
fn limits_of_the_user_are_held_and_said() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path();
    // A packet is 300 us early in each frame: more than the 8 of VRXFULL, less than 40.
    let early = frames(0, Pacing::Gapped, 6, |_, _| -300_000);
    std::fs::write(folder.join("a.pcap"), capture(early)).unwrap();
    std::fs::write(folder.join("l.toml"), "[limits]\nvrx_full = 40\nfpt_us = [300, 400]\n").unwrap();
    let (code, out, _) = run(folder, &["a.pcap", "--trust", "hardware", "--json"]);
    let plain: serde_json::Value = serde_json::from_str(&out).unwrap();
    let verdict = |v: &serde_json::Value| {
        let checks = v["checks"].as_array().unwrap();
        checks.iter().find(|c| c["name"] == "ST 2110-21").unwrap()["message"].as_str().unwrap().to_owned()
    };
    assert!(code == 0 && verdict(&plain).starts_with("wide"), "{}", verdict(&plain));
    let (code, out, err) =
        run(folder, &["a.pcap", "--trust", "hardware", "--limits", "l.toml", "--limit", "lost=0", "--json"]);
    let held: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(code == 0 && verdict(&held).starts_with("narrow"), "{} {err}", verdict(&held));
    let decisions = held["decisions"].to_string();
    assert!(decisions.contains("VRXFULL is 40 packets, not that of ST 2110-21"), "{decisions}");
    assert!(held["checks"].to_string().contains("300 to 400 wanted"), "{}", held["checks"]);
    // FPT of 337 us is beyond what a single option says.
    let (code, out, _) =
        run(folder, &["a.pcap", "--trust", "hardware", "--limits", "l.toml", "--limit", "fpt_us=0..50"]);
    assert!(code == 1 && out.contains("warning: FPT: "), "{out}");
}
