//! The program: what ends it, and in which order backends are tried.

use crate::card::{Card, PORT};
use crate::library;
use std::path::Path;
use std::process::{Command, Output};

/// An SDP for packets to this address.
fn sdp(folder: &Path, to: &str) -> String {
    let text = format!(
        "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=test\r\nt=0 0\r\nm=video {PORT} RTP/AVP 96\r\nc=IN IP4 {to}\r\n\
         a=rtpmap:96 raw/90000\r\na=fmtp:96 sampling=YCbCr-4:2:2; width=640; height=90; exactframerate=30000/1001; depth=10; \
         TCS=SDR; colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN\r\n\
         a=ts-refclk:localmac=40-A3-6B-A0-2B-D2\r\na=mediaclk:sender\r\n"
    );
    let path = folder.join("stream.sdp");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn gdmedia(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gdmedia"))
        .args(words)
        .env_remove("GDMEDIA_VERBS_LIBRARY")
        .env_remove("RIVERMAX_STAND_IN")
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const QUIET: [&str; 5] = ["--headless", "--gpu", "off", "--wait", "1s"];

#[test]
fn without_a_device_it_ends_with_69_and_the_cause() {
    if Path::new("/sys/class/infiniband").exists() {
        return println!("skipped: this machine has devices");
    }
    let folder = tempfile::tempdir().unwrap();
    let sdp = sdp(folder.path(), "127.0.0.1");
    let run = |more: &[&str]| {
        let words = [&["--sdp", &sdp, "--interface", "lo", "--backend", "verbs"], &QUIET[..], more].concat();
        let output = gdmedia(&words);
        (output.status.code(), text(&output))
    };
    let (code, said) = run(&[]);
    assert_eq!(code, Some(69), "{said}");
    // Debian's own library says so, or that it is not there.
    assert!(
        said.contains("no RDMA device belongs to interface lo (there is none)")
            || said.contains("libibverbs cannot be used"),
        "{said}"
    );
    let (code, said) = run(&["--verbs", "library=/nowhere/libibverbs.so.1"]);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("libibverbs cannot be used: /nowhere/libibverbs.so.1"), "{said}");
    let (code, said) = run(&["--verbs", "cut=12"]);
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("`cut=12` is nothing that verbs can be told"), "{said}");
}

#[test]
fn backends_are_tried_in_their_order_and_each_says_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let sdp = sdp(folder.path(), "127.0.0.1");
    let words = [&["--sdp", &sdp, "--interface", "lo", "--json", "--verbs", "sysfs=/nowhere"], &QUIET[..]].concat();
    let output = gdmedia(&words);
    let said = text(&output);
    let start = said.lines().find(|line| line.contains("\"type\":\"start\"")).expect(&said);
    let start: serde_json::Value = serde_json::from_str(start).unwrap();
    let passed = start["backends_passed"].as_array().unwrap();
    let names: Vec<&str> = passed.iter().map(|one| one["backend"].as_str().unwrap()).collect();
    assert_eq!(names, ["rivermax", "verbs", "dpdk", "xdp"], "{start}");
    for one in passed {
        let reason = one["reason"].as_str().unwrap();
        assert!(!reason.is_empty() && !reason.contains('\n'), "one line: {reason}");
    }
    let reason = passed[1]["reason"].as_str().unwrap();
    assert!(reason.contains("no RDMA device") || reason.contains("libibverbs"), "{reason}");
}

/// The program with the stand-in's card, which plays the frames of a network interface.
#[test]
fn it_receives_by_a_card() {
    let folder = tempfile::tempdir().unwrap();
    let sysfs = folder.path().join("sys");
    let stream = folder.path().join("stream.sdp");
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut send = Command::new(env!("CARGO_BIN_EXE_gdmedia"))
        .args(["send", "--to", &format!("udp://127.0.0.1:{port}"), "--format", "320x180p25", "--duration", "60s"])
        .args(["--write-sdp", stream.to_str().unwrap()])
        .spawn()
        .unwrap();
    while !stream.exists() {
        assert!(send.try_wait().unwrap().is_none(), "it sends");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let words = format!("library={},sysfs={}", library::path().display(), sysfs.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_gdmedia"));
    command
        .args([
            "--sdp",
            stream.to_str().unwrap(),
            "--interface",
            "lo",
            "--backend",
            "verbs",
            "--verbs",
            &words,
            "--json",
        ])
        .args(["--headless", "--gpu", "off", "--frames", "5", "--wait", "30s"])
        .env("VERBS_STAND_IN", format!("mlx5_0 interface=lo sysfs={}", sysfs.display()));
    let output = command.output().unwrap();
    send.kill().unwrap();
    send.wait().unwrap();
    let said = text(&output);
    if said.contains("Operation not permitted") {
        return println!("skipped: packet sockets need root");
    }
    assert!(output.status.success(), "{said}");
    let summary = said.lines().find(|line| line.contains("\"type\":\"summary\"")).expect(&said);
    let summary: serde_json::Value = serde_json::from_str(summary).unwrap();
    assert!(summary["frames"]["complete"].as_u64() >= Some(4), "{summary}");
    assert!(said.contains("port 1 of mlx5_0 (lo)"), "{said}");
}

#[test]
fn words_for_verbs_need_verbs() {
    let card = Card::new();
    let folder = tempfile::tempdir().unwrap();
    let sdp = sdp(folder.path(), &card.ip.to_string());
    let output = gdmedia(&[&["--sdp", &sdp, "--backend", "socket", "--verbs", "cut=96"], &QUIET[..]].concat());
    assert_eq!(output.status.code(), Some(64), "{}", text(&output));
    assert!(text(&output).contains("--verbs"), "{}", text(&output));
}
