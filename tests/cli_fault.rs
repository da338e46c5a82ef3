//! One plan of faults at the sender and at the receiver, by real sockets and captures: what was sent is what came and what
//! was taken away.

mod common;

use common::{free_port, gdmedia, program, sdp, send_to_pcap, temp};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

fn last(text: &str) -> Value {
    let line = text.lines().rev().find(|l| l.contains("\"summary\"")).unwrap_or_else(|| panic!("no summary:\n{text}"));
    serde_json::from_str(line).unwrap()
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} of {value:#}"))
}

/// The summaries of a sender and of a receiver by sockets of this machine.
fn by_sockets(plan: &str, frames: u32) -> (Value, Value) {
    let folder = temp();
    let port = free_port();
    let (stream, plan) = (folder.write("stream.sdp", &sdp(port)), folder.write("plan.toml", plan));
    let mut play = Command::new(program())
        .args(["--sdp", &stream, "--headless", "--json", "--gpu", "off", "--wait", "30s", "--duration", "3s"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(play.stderr.take().unwrap()).lines().map_while(Result::ok);
    // From this line on its socket is open.
    assert!(lines.by_ref().any(|l| l.contains("\"start\"")));
    let frames = frames.to_string();
    let send = gdmedia(&["send", "--sdp", &stream, "--fault", &plan, "--frames", &frames, "--json"]);
    assert_eq!(send.code, 0, "{}", send.stderr);
    assert!(send.stderr.contains("faults are injected on purpose"), "{}", send.stderr);
    let played: Vec<String> = lines.collect();
    assert!(play.wait().unwrap().success(), "{played:#?}");
    (last(&send.stderr), last(&played.join("\n")))
}

#[test]
fn what_a_sender_took_away_is_what_a_receiver_lacks() {
    for seed in [1, 2] {
        let plan = format!(
            "seed = {seed}\n[[loss]]\nchance = '1/40'\nburst = 3\nfrom = 5\nuntil = 4400\n[[duplicate]]\nchance = '1/30'\nwithin = 4\n\
             [[reorder]]\ndepth = 8\nchance = '1/20'\n[[delay]]\nby = '1ms'\nchance = '1/50'\nuntil = 4400"
        );
        let (sent, came) = by_sockets(&plan, 25);
        let faults = |what: &str| number(&sent, &format!("/faults/{what}"));
        assert_eq!(faults("offered") + faults("duplicated"), faults("sent") + faults("dropped"), "{sent:#}");
        assert!(faults("dropped") > 50 && faults("duplicated") > 50 && faults("delayed") > 50, "{sent:#}");
        assert_eq!(number(&sent, "/packets/sent"), faults("sent"));
        // Nothing is lost at either end of the stream, and a socket of this machine loses none of so few.
        assert_eq!(number(&came, "/packets/received") + number(&came, "/packets/lost"), faults("offered"), "{came:#}");
        assert_eq!(number(&came, "/packets/lost"), faults("dropped"), "{came:#}");
        assert_eq!(number(&came, "/packets/duplicate"), faults("duplicated"), "{came:#}");
    }
}

#[test]
fn a_restarted_sender_is_received_on() {
    let (sent, came) = by_sockets("[[restart]]\nfrom = '500ms'", 25);
    assert_eq!(number(&sent, "/faults/restarted"), 1);
    assert_eq!(number(&came, "/packets/restarts"), 1, "{came:#}");
    assert_eq!(number(&came, "/packets/lost"), 0, "{came:#}");
    assert_eq!(number(&came, "/packets/received"), number(&sent, "/faults/sent"), "{came:#}");
}

#[test]
fn a_capture_with_faults_is_the_one_that_suffers_them_later() {
    for seed in 1..=6 {
        a_capture_with_this_seed(seed);
    }
}

fn a_capture_with_this_seed(seed: u32) {
    let folder = temp();
    let plan = folder.write(
        "plan.toml",
        &format!("seed = {seed}\n[[loss]]\nchance = '1/30'\nburst = 2\nfrom = '30ms'\nuntil = '300ms'\n[[duplicate]]\nevery = 50\n[[reorder]]\ndepth = 6"),
    );
    let (whole, faulty) = (folder.join("whole.pcap"), folder.join("faulty.pcap"));
    let stream = send_to_pcap(&whole, 5004, &["--frames", "10"]);
    let sent =
        ["send", "--to", faulty.to_str().unwrap(), "--sdp", &stream, "--frames", "10", "--json", "--fault", &plan];
    let sent = gdmedia(&sent);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    let sent = last(&sent.stderr);
    let again = folder.join("again.pcap");
    let args = ["--frames", "10", "--fault", &format!("@{plan}")];
    send_to_pcap(&again, 5004, &args);
    assert!(std::fs::read(&faulty).unwrap() == std::fs::read(&again).unwrap(), "the same file every time");

    let play = |capture: &std::path::Path, more: &[&str]| {
        let args = ["--sdp", &stream, "--pcap", capture.to_str().unwrap(), "--headless", "--json", "--gpu", "off"];
        gdmedia(&[&args[..], more].concat()).summary()
    };
    let (faulty, whole) = (play(&faulty, &[]), play(&whole, &["--fault", &plan]));
    for what in ["received", "lost", "duplicate", "reordered"] {
        let path = format!("/packets/{what}");
        assert_eq!(number(&faulty, &path), number(&whole, &path), "{what}");
    }
    assert_eq!(number(&faulty, "/packets/lost"), number(&sent, "/faults/dropped"));
    assert_eq!(number(&faulty, "/packets/received") + number(&sent, "/faults/dropped"), number(&sent, "/packets/sent"));
    assert_eq!(faulty["frames"], whole["frames"]);
}

#[test]
fn corrupted_packets_are_rejected_and_the_rest_is_received() {
    let folder = temp();
    let capture = folder.join("whole.pcap");
    let stream = send_to_pcap(&capture, 5004, &["--frames", "10"]);
    // The high octet of the first segment's length, 800 of pgroups of 5: no other one leaves whole pgroups that fit.
    let plan = folder.write("plan.toml", "[[corrupt]]\npart = 'srd'\nat = 2\nevery = 100\n");
    let args = ["--sdp", &stream, "--pcap", capture.to_str().unwrap(), "--headless", "--gpu", "off", "--fault", &plan];
    let text = gdmedia(&args);
    assert_eq!(text.code, 0, "{}", text.stderr);
    assert!(text.stderr.contains("packets are copied"), "{}", text.stderr);
    let summary = gdmedia(&[&args[..], &["--json"]].concat()).summary();
    let rejected: u64 = summary["packets"]["rejected"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    let corrupted = text.stderr.split(" corrupted").next().and_then(|t| t.rsplit(' ').next()).unwrap();
    assert_eq!(rejected.to_string(), corrupted, "{summary:#}\n{}", text.stderr);
    assert!(rejected > 5);
}

#[test]
fn a_plan_that_is_wrong_is_said_by_its_line() {
    let folder = temp();
    let plan = folder.write("plan.toml", "seed = 1\n\n[[loss]]\nchanse = '1/2'\n");
    let capture = folder.join("out.pcap");
    let output = gdmedia(&["send", "--to", capture.to_str().unwrap(), "--frames", "1", "--fault", &plan]);
    assert_eq!(output.code, 64);
    assert!(output.stderr.contains("plan.toml line 4: unknown field `chanse`"), "{}", output.stderr);
    assert!(output.stderr.contains("did you mean 'chance'?"), "{}", output.stderr);
    assert!(!capture.exists());
    // A plan is read before a file of that name is written.
    let output = gdmedia(&["send", "--to", &plan, "--frames", "1", "--fault", &plan]);
    assert_eq!(output.code, 64, "{}", output.stderr);
}

#[test]
fn a_capture_that_is_sent_again_suffers_as_well() {
    let folder = temp();
    let capture = folder.join("whole.pcap");
    send_to_pcap(&capture, 5004, &["--frames", "5"]);
    let ear = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = format!("udp://{}", ear.local_addr().unwrap());
    let plan = "loss=every/10,dup=every/45,delay=2ms@every/3";
    let args = ["send", "--replay", capture.to_str().unwrap(), "--to", &to, "--fault", plan, "--json"];
    let sent = last(&gdmedia(&args).stderr);
    // 5 frames of 180 packets. Of the 20 that are doubled every second one is lost, and of the 300 that are delayed 30 are;
    // those that are doubled are delayed, too.
    let want = [("offered", 900), ("dropped", 90), ("duplicated", 10), ("sent", 820), ("delayed", 280), ("hurried", 0)];
    for (what, count) in want {
        assert_eq!(number(&sent, &format!("/faults/{what}")), count, "{what} of {sent:#}");
    }
    assert_eq!(number(&sent, "/packets/sent"), 820);
}
