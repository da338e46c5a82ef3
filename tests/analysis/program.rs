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
    ] {
        let (code, _, err) = run(folder, arguments);
        assert_eq!(code, wanted, "{arguments:?}: {err}");
        assert!(err.contains(words), "{arguments:?}: {err}");
    }
}
