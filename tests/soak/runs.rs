//! `gdmedia soak` as a user meets it, with its own sender on the loopback interface.

use crate::common::{Output, free_port, gdmedia, program, temp};
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// 64x36 at 50 frames a second: 36 packets each.
fn sdp(port: u16) -> String {
    crate::common::sdp(port).replace("width=320", "width=64").replace("height=180", "height=36").replace("=25;", "=50;")
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn check<'a>(report: &'a Value, group: &str, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks
        .iter()
        .find(|c| c["group"] == group && c["name"] == name)
        .unwrap_or_else(|| panic!("{group} {name}: {checks:?}"))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn planned_faults_are_found_and_a_threshold_fails_the_run() {
    let dir = temp();
    let stream = dir.write("stream.sdp", &sdp(free_port()));
    let plan = dir
        .write("plan.toml", "seed = 7\n[[loss]]\nevery = 97\nuntil = 4000\n[[duplicate]]\nevery = 61\nuntil = 4000\n");
    let (report, junit, html) = (dir.join("r.json"), dir.join("r.xml"), dir.join("r.html"));
    let logs = dir.join("logs");
    let output = gdmedia(&[
        "soak",
        "--sdp",
        &stream,
        "--source",
        "pattern",
        "--for",
        "4s",
        "--warm-up",
        "500ms",
        "--interval",
        "200ms",
        "--gpu",
        "off",
        "--timing",
        "--fault",
        &plan,
        "--fail-if",
        "lost>0",
        "--warn-if",
        "latency.complete.p99.9>1h",
        "--report",
        text(&report),
        "--report",
        text(&junit),
        "--report",
        text(&html),
        "--histograms",
        text(&logs),
    ]);
    assert_eq!(output.code, 2, "{}", output.stderr);
    let read = json(&report);
    assert_eq!((&read["kind"], &read["verdict"]), (&"soak".into(), &"failure".into()), "{read}");
    assert_eq!(check(&read, "thresholds", "lost>0")["severity"], "failure");
    assert_eq!(check(&read, "thresholds", "latency.complete.p99.9>1h")["severity"], "pass");
    for name in ["removed", "duplicated", "restarts"] {
        let found = check(&read, "faults", &format!("leg 0 {name}"));
        assert_eq!(found["severity"], "pass", "{found}");
    }
    // Packets 96, 193 … 3976 and 60, 121 … 3964.
    let planned = |name: &str| check(&read, "faults", name)["message"].as_str().unwrap().to_owned();
    assert!(planned("leg 0 removed").starts_with("planned 41, found 4"), "{}", planned("leg 0 removed"));
    let metric =
        |name: &str| read["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name}: {}", read["metrics"]));
    assert!(metric("latency.wire.p50") > 0.0 && metric("rss") > 1e6 && metric("fds") > 2.0 && metric("fps") > 0.0);
    assert_eq!(metric("faults.mismatch"), 0.0);
    assert!(std::fs::read_to_string(&junit).unwrap().contains("<failure message=\"lost is "));
    assert!(std::fs::read_to_string(&html).unwrap().contains("<svg"));
    let log = std::fs::read_to_string(logs.join("latency.complete.hlog")).unwrap();
    assert!(log.lines().filter(|l| l.contains("HISTF")).count() >= 2, "{log}");
}

/// Virtual times of a capture are exact, stamps of the kernel say nothing of CINST.
#[test]
fn the_timing_of_a_sender_is_shown_where_the_clock_carries_it() {
    let dir = temp();
    let capture = dir.join("exact.pcap");
    let stream = crate::common::send_to_pcap(&capture, 5004, &["--frames", "80"]);
    let output = gdmedia(&["--sdp", &stream, "--pcap", text(&capture), "--headless", "--timing", "--json"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let leg = &output.summary()["timing"][0];
    assert_eq!((&leg["class"], &leg["packets"]["max"]), (&"narrow_linear".into(), &180.into()), "{leg}");
    assert!(leg["cinst"]["max"].as_i64().is_some_and(|n| (1..=4).contains(&n)), "{leg}");
    assert_eq!(leg["increment"]["min"], 3600, "{leg}");

    let stream = dir.write("live.sdp", &sdp(free_port()));
    let report = dir.join("r.json");
    let output = gdmedia(&[
        "soak",
        "--sdp",
        &stream,
        "--source",
        "pattern",
        "--for",
        "4s",
        "--warm-up",
        "0s",
        "--gpu",
        "off",
        "--timing",
        "--report",
        text(&report),
        "--warn-if",
        "timing.cinst>4",
        "--warn-if",
        "timing.compliance==unknown",
        "--fail-if",
        "timing.compliance==not_compliant or timing.compliance==wide",
    ]);
    assert_eq!(output.code, 1, "{}", output.stderr);
    let read = json(&report);
    assert!(read["metrics"]["timing.fpt"].is_number() && read["metrics"]["timing.cinst"].is_null(), "{read}");
    assert!(output.stderr.contains("timing.cinst was not measured"), "{}", output.stderr);
    assert_eq!(read["metrics"]["timing.compliance"], 0.0, "{read}");
    assert!(output.stderr.contains("timing.compliance is unknown"), "{}", output.stderr);
    let told =
        read["decisions"].as_array().unwrap().iter().any(|d| d.as_str().unwrap().contains("not measurable with"));
    assert!(told, "{}", read["decisions"]);
}

#[test]
fn a_checkpoint_outlives_its_process_and_gives_a_report() {
    let dir = temp();
    let stream = dir.write("stream.sdp", &sdp(free_port()));
    let (checkpoint, report) = (dir.join("c.json"), dir.join("r.html"));
    let mut child = Command::new(program())
        .args(["soak", "--sdp", &stream, "--source", "pattern", "--for", "60s", "--warm-up", "200ms", "--gpu", "off"])
        .args(["--interval", "100ms", "--checkpoint-every", "100ms", "--checkpoint", text(&checkpoint)])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let measured = || {
        let read: Option<Value> = serde_json::from_str(&std::fs::read_to_string(&checkpoint).ok()?).ok();
        read.expect("whole at every instant")["elapsed_s"].as_f64().filter(|s| *s > 1.0)
    };
    while measured().is_none() && begun.elapsed() < Duration::from_secs(40) {
        std::thread::sleep(Duration::from_millis(5));
    }
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    let output = gdmedia(&[
        "soak",
        "--from-checkpoint",
        text(&checkpoint),
        "--report",
        text(&report),
        "--fail-if",
        "frames.complete==0",
    ]);
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(output.stderr.contains("made from a checkpoint of"), "{}", output.stderr);
    assert!(std::fs::read_to_string(&report).unwrap().contains("made from a checkpoint of"));
}

/// A sink at standard output; its reader takes a pause after each read of 64 KiB. SIGINT ends the run.
fn with_reader(stream: &str, pause: Duration, args: &[&str]) -> Output {
    let mut child = Command::new(program())
        .args([
            "soak",
            "--sdp",
            stream,
            "--source",
            "pattern",
            "--warm-up",
            "500ms",
            "--gpu",
            "off",
            "--interval",
            "200ms",
        ])
        .args(["--out", "-", "--format", "raw"])
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut frames = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut octets = vec![0; 65536];
        while frames.read(&mut octets).is_ok_and(|n| n > 0) {
            std::thread::sleep(pause);
        }
    });
    std::thread::sleep(Duration::from_secs(3));
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    let output = child.wait_with_output().unwrap();
    reader.join().unwrap();
    Output {
        command: "soak --out -".into(),
        code: output.status.code().unwrap_or(-1),
        stdout: String::new(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[test]
fn a_baseline_catches_a_slowed_sink_and_an_interrupt_still_reports() {
    let dir = temp();
    let (fast, slow) = (dir.join("fast.json"), dir.join("slow.json"));
    let stream = dir.write("stream.sdp", &crate::common::sdp(free_port()));
    let output = with_reader(&stream, Duration::ZERO, &["--report", text(&fast)]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    // Frames of 230 kB at 25 a second are 5.8 MB/s; 64 KiB in 100 ms or more are 0.66 MB/s.
    let stream = dir.write("stream.sdp", &crate::common::sdp(free_port()));
    let pause = Duration::from_millis(100);
    let output = with_reader(&stream, pause, &["--report", text(&slow), "--baseline", text(&fast)]);
    assert_eq!(output.code, 2, "{}", output.stderr);
    let read = json(&slow);
    assert_eq!(check(&read, "baseline", "latency.sink.p50")["severity"], "failure", "{read}");
    assert_eq!(check(&read, "baseline", "frames.dropped")["severity"], "failure", "{read}");
    assert_eq!(check(&read, "run", "end")["message"].as_str().unwrap().split(',').next(), Some("signal"));
}

#[test]
fn what_is_wrong_is_said_before_anything_begins() {
    let dir = temp();
    let stream = dir.write("stream.sdp", &sdp(free_port()));
    let base = |args: &[&str]| gdmedia(&[&["soak", "--sdp", &stream][..], args].concat());
    let other = dir.write("other.json", "{\"schema\":1}");
    let page = dir.write("other.html", "<!DOCTYPE html>\n<html>");
    let report = |kind: &str, schema: u32| {
        format!(
            "{{\"schema\":{schema},\"kind\":\"{kind}\",\"title\":\"\",\"summary\":\"\",\"verdict\":\"pass\",\"checks\":[],\
             \"metrics\":{{}},\"sections\":[],\"events\":[],\"events_left_out\":0,\"decisions\":[],\"environment\":[]}}"
        )
    };
    let analyzed = dir.write("analyzed.json", &report("analyze", 1));
    let newer = dir.write("newer.json", &report("soak", 99));
    let baseline = dir.write("baseline.json", &report("soak", 1));
    let junk = dir.join("r.json").to_str().unwrap().to_owned();
    let table: &[(&[&str], i32, &str)] = &[
        (&["--fail-if", "lsot>0"], 64, "column 1: no metric is called lsot; lost?"),
        (&["--warn-if", "latency.sink.p99>2"], 64, "column 19: a unit is wanted here"),
        (&["--report", "report.pdf"], 64, ".html"),
        (&["--baseline", "/nosuch.json"], 65, "/nosuch.json"),
        (&["--baseline", &other], 65, "no report of gdmedia"),
        (&["--from-checkpoint", &other], 65, "no checkpoint"),
        (&["--source", "/nosuch.pcap"], 65, "/nosuch.pcap"),
        (&["--source", "pattern", "--pcap", "x.pcap"], 64, "--pcap"),
        (&["--checkpoint", "/nosuch/folder/c.json", "--source", "pattern"], 74, "/nosuch/folder/c.json"),
        (&["--report", "/nosuch/folder/r.html", "--source", "pattern"], 74, "mkdir -p /nosuch/folder"),
        (&["--report", &stream], 64, ".html"),
        (&["--report", &junk, "--report", &junk], 64, "two outputs go to one file"),
        (&["--baseline", &page], 65, "other.html is a report as HTML"),
        (&["--baseline", &analyzed], 65, "a report of gdmedia analyze, not of gdmedia soak"),
        (&["--baseline", &newer], 65, "of schema 99; this version reads schema 1"),
        (&["--baseline", &baseline, "--report", &baseline], 64, "is also the input"),
        (&["--limit", "cmax=3"], 64, "add --timing"),
        (&["--timing", "--limit", "cmaks=3"], 64, "did you mean 'cmax'?"),
    ];
    for (args, code, says) in table {
        let output = base(args);
        assert_eq!(output.code, *code, "{args:?}: {}", output.stderr);
        assert!(output.stderr.contains(says), "{args:?}: {}", output.stderr);
        assert!(output.stderr.contains("\n  cure: "), "{args:?}: {}", output.stderr);
    }
    // The cure is that of this verb, and everything is JSON where that was asked for.
    let output = gdmedia(&["soak"]);
    assert!(output.code == 64 && output.stderr.contains("gdmedia soak --sdp"), "{}", output.stderr);
    let output = gdmedia(&["soak", "--json", "--sdp", &stream, "--baseline", &page]);
    let error: Value = serde_json::from_str(output.stderr.trim()).unwrap();
    assert!(output.code == 65 && error.to_string().contains("other.html"), "{error}");
    let output = gdmedia(&["soak", "--metrics"]);
    assert!(output.code == 0 && output.stdout.lines().any(|l| l.starts_with("legN.lost ")), "{}", output.stdout);
}
