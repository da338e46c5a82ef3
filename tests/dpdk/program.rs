//! `gdmedia play --backend dpdk`, and `auto`, as a user meets them.

use crate::common::{Output, gdmedia, program, sdp, send_to_pcap, temp};
use crate::netns::Net;
use serde_json::Value;
use std::process::{Command, Stdio};

fn start(output: &Output) -> Value {
    let line = output.stderr.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{}", output.stderr));
    let value: Value = serde_json::from_str(line).unwrap();
    assert_eq!(value["type"], "start", "{}", output.stderr);
    value
}

const PLAIN: [&str; 5] = ["--headless", "--json", "--gpu", "off", "--verify"];

#[test]
fn a_capture_by_its_driver_becomes_the_frames_that_it_holds() {
    let dir = temp();
    let capture = dir.join("stream.pcap");
    let stream = send_to_pcap(&capture, 5004, &["--frames", "30"]);
    let words = format!("port=net_pcap,rx_pcap={};eal=--no-huge -m 128", capture.display());
    let args = ["--sdp", &stream, "--backend", "dpdk", "--dpdk", &words, "--frames", "10", "--wait", "20s"];
    let output = gdmedia(&[&args[..], &PLAIN].concat());
    assert_eq!(output.code, 0, "{}", output.stderr);
    let start = start(&output);
    assert_eq!(start["backend"], "dpdk", "{start}");
    let notes = start["notes"].to_string();
    assert!(notes.contains("DPDK ") && notes.contains("driver net_pcap") && notes.contains("buffers of"), "{notes}");
    let summary = output.summary();
    assert_eq!((&summary["frames"]["torn"], &summary["packets"]["lost"]), (&0.into(), &0.into()), "{summary}");
    // It is played as fast as it is read: a machine that is busy shows some of the ten.
    let (verify, none) = (&summary["verify"], serde_json::json!(0));
    assert!(verify["in_order"].as_u64().is_some_and(|n| (1..=10).contains(&n)), "{summary}");
    assert!([&verify["repeated"], &verify["backward"], &verify["unreadable"]].iter().all(|n| **n == none), "{summary}");
    assert!(!output.stdout.contains("EAL") && !output.stderr.contains("EAL:"), "{}", output.stderr);
}

#[test]
fn what_is_wrong_is_said_with_its_exit_code() {
    let dir = temp();
    let stream = dir.write("stream.sdp", &sdp(5004));
    for (words, code, says) in [
        ("colour=red", 64, "`colour=red`"),
        ("port=net_null0;eal=--no-huge --colour", 64, "unrecognized option '--colour'"),
        ("port=net_null0;eal=--help", 64, "`--help`"),
        ("port=net_af_packet0,iface=nowhere0;eal=--no-huge", 69, "No such device"),
        ("port=0000:99:00.0;eal=--no-huge", 69, "Cannot find device"),
        ("", 64, "DPDK is told no port"),
    ] {
        let args = ["--sdp", &stream, "--wait", "200ms", "--headless", "--backend", "dpdk", "--dpdk", words];
        let output = gdmedia(&args);
        assert_eq!(output.code, code, "{words}: {}", output.stderr);
        assert!(output.stderr.contains(says) && output.stderr.contains("cure"), "{words}: {}", output.stderr);
        assert!(!output.stderr.contains("panicked") && !output.stdout.contains("EAL"), "{words}: {}", output.stderr);
    }
}

/// A driver of an interface says that it failed, and not that it is rights.
#[test]
fn missing_rights_have_their_exit_code() {
    let dir = temp();
    let stream = dir.write("stream.sdp", &sdp(5004));
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", program()]);
    command.args(["--sdp", &stream, "--wait", "200ms", "--headless", "--backend", "dpdk", "--dpdk"]);
    let output = command.arg("port=net_af_packet,iface=lo;eal=--no-huge -m 64").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("setpriv:") {
        return println!("skipped: needs root and setpriv: {said}");
    }
    assert_eq!(output.status.code(), Some(77), "{said}");
    assert!(said.contains("CAP_NET_RAW") && said.contains("setcap"), "{said}");
}

#[test]
fn auto_takes_it_where_a_port_is_named_and_says_of_each_why_not() {
    let dir = temp();
    let capture = dir.join("stream.pcap");
    let stream = send_to_pcap(&capture, 5004, &["--frames", "30"]);
    let auto = |words: &[&str]| {
        let args = ["--sdp", &stream, "--interface", "lo", "--frames", "1", "--wait", "300ms"];
        start(&gdmedia(&[&args[..], &PLAIN, words].concat()))
    };
    let passed = |start: &Value| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let list = start["backends_passed"].as_array().unwrap();
        list.iter().map(|one| (text(&one["backend"]), text(&one["reason"]))).collect()
    };
    // Nobody named a port: sockets, and a line for each that comes before them.
    let plain = auto(&[]);
    assert_eq!(plain["backend"], "socket", "{plain}");
    let list = passed(&plain);
    assert_eq!(list.iter().map(|one| one.0.as_str()).collect::<Vec<_>>(), ["rivermax", "verbs", "dpdk", "xdp"]);
    assert!(list[2].1.contains("no port is named for it"), "{list:?}");
    assert!(list.iter().all(|one| !one.1.is_empty() && !one.1.contains('\n')), "{list:?}");
    // A port that cannot be had: the cause in that line.
    let missing = auto(&["--dpdk", "port=net_af_packet0,iface=nowhere0;eal=--no-huge"]);
    let list = passed(&missing);
    assert!(missing["backend"] == "socket" && list[2].1.contains("No such device"), "{missing}");
    // One that can: it receives.
    let named = auto(&["--dpdk", &format!("port=net_pcap,rx_pcap={};eal=--no-huge", capture.display())]);
    assert_eq!(named["backend"], "dpdk", "{named}");
    assert_eq!(passed(&named).iter().map(|one| one.0.as_str()).collect::<Vec<_>>(), ["rivermax", "verbs"]);
    // A word that nobody knows is no reason to receive otherwise.
    let args = ["--sdp", &stream, "--headless", "--dpdk", "colour=red"];
    assert_eq!(gdmedia(&args).code, 64);
    let args = ["--sdp", &stream, "--headless", "--backend", "socket", "--dpdk", "port=net_null0"];
    let output = gdmedia(&args);
    assert!(output.code == 64 && output.stderr.contains("--dpdk"), "{}", output.stderr);
}

#[test]
fn a_stream_over_veth_is_received_whole() {
    let Some(net) = Net::new() else { return };
    let dir = temp();
    // Virtual interfaces hand datagrams of one call over in one piece (GSO), which no card does.
    let single = ["-n", &net.tx, "link", "set", "tx0", "gso_max_segs", "1"];
    assert!(Command::new("ip").args(single).status().unwrap().success());
    // A small one: the machine of a test is busy with others.
    let stream = dir.join("stream.sdp").to_str().unwrap().to_owned();
    let send = ["netns", "exec", &net.tx, program(), "send", "--to", "udp://10.77.0.10:5004", "--format", "320x180p25"];
    let mut send = Command::new("ip")
        .args(send)
        .args(["--write-sdp", &stream, "--duration", "1h"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = std::time::Instant::now();
    while std::fs::metadata(&stream).is_ok_and(|m| m.len() == 0) || !std::path::Path::new(&stream).exists() {
        assert!(begun.elapsed().as_secs() < 20);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let results = ["net_af_packet", "net_af_xdp"].map(|driver| {
        let words = format!("port={driver},iface=rx0;eal=--no-huge -m 128");
        let play = ["netns", "exec", &net.rx, program(), "--sdp", &stream, "--backend", "dpdk", "--dpdk", &words];
        let more = ["--frames", "10", "--wait", "20s"];
        Command::new("ip").args(play).args(more).args(PLAIN).output().unwrap()
    });
    send.kill().unwrap();
    send.wait().unwrap();
    for output in results {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        let last = stderr.lines().rev().find(|l| l.starts_with('{')).unwrap();
        let summary: Value = serde_json::from_str(last).unwrap();
        assert_eq!((&summary["type"], &summary["verify"]["in_order"]), (&"summary".into(), &10.into()), "{summary}");
    }
}
