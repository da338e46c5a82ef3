//! `gdmedia play --backend` as a user meets it, with the stand-in in place of Rivermax: exit codes, texts, and frames. The
//! stand-in's switches are in the environment.
#![cfg(feature = "rivermax-stand-in")]

mod common;

use common::{Output, program, sdp, send_to_pcap, temp};
use serde_json::Value;
use std::process::Command;

fn run(args: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program());
    command.args(args).envs(environment.iter().copied());
    finish(command)
}

fn finish(mut command: Command) -> Output {
    let output = command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").output().unwrap();
    Output {
        command: format!("{command:?}"),
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn says(output: &Output, code: i32, words: &[&str]) {
    assert_eq!(output.code, code, "exit code of: {}\n{}", output.command, output.stderr);
    for word in words {
        assert!(output.stderr.contains(word), "{word:?} is not in what {} said:\n{}", output.command, output.stderr);
    }
    assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
}

/// The first line of NDJSON.
fn start(output: &Output) -> Value {
    let line = output.stderr.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{}", output.stderr));
    let value: Value = serde_json::from_str(line).unwrap();
    assert_eq!(value["type"], "start", "{}", output.stderr);
    value
}

const BY_RIVERMAX: [&str; 5] = ["--headless", "--backend", "rivermax", "--interface", "127.0.0.1"];
/// No sockets: packets come from a capture alone.
const MANUAL: (&str, &str) = ("RIVERMAX_STAND_IN", "manual");

#[test]
fn what_is_missing_is_said_with_its_own_words_and_exit_code() {
    let dir = temp();
    let stream = dir.write("stream.sdp", &sdp(5004));
    let fails = |environment: &[(&str, &str)], code: i32, words: &[&str]| {
        let args = [&["--sdp", &stream, "--wait", "200ms", "--rivermax", "probe=1ms,stamps=synced"], &BY_RIVERMAX[..]];
        let output = run(&args.concat(), &[environment, &[MANUAL]].concat());
        says(&output, code, words);
        assert!(output.stderr.contains("cure"), "no cure in:\n{}", output.stderr);
    };
    fails(
        &[("RIVERMAX_LIBRARY", "/nowhere/librivermax.so")],
        69,
        &["/nowhere/librivermax.so", "does not open", "No such file", "SDK"],
    );
    let fail = |calls: &'static str| [("RIVERMAX_STAND_IN_FAIL", calls)];
    fails(&fail("rmx_init=62"), 69, &["no valid licence", "RMX_LICENSE_REFUSED", "licence file"]);
    fails(&fail("rmx_retrieve_device_iface_ipv4=61"), 69, &["lo (127.0.0.1)", "no card"]);
    fails(&fail("rmx_input_create_stream=63"), 69, &["no resources"]);
    fails(&fail("rmx_register_memory=64"), 69, &["cannot be given this memory", "nvidia-peermem"]);
    fails(&fail("rmx_input_determine_mem_layout=32"), 69, &["cannot do it"]);
    fails(&fail("rmx_input_attach_flow=66"), 69, &["attached already"]);
    // Nothing comes: the same as by sockets. A clock that is in use, or none, is no failure.
    fails(&fail("rmx_use_ptp_clock=11"), 3, &["clock is in use already", "not one packet"]);
    fails(&fail("rmx_use_ptp_clock=32"), 3, &["no PTP clock", "not one packet"]);
}

#[test]
fn a_process_that_may_not_use_the_card_is_told_how_it_may() {
    let dir = temp();
    let stream = dir.write("stream.sdp", &sdp(5004));
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", program(), "--sdp", &stream]).args(BY_RIVERMAX);
    command.envs([MANUAL, ("RIVERMAX_STAND_IN_FAIL", "rmx_init=41")]);
    let output = finish(command);
    if output.stderr.contains("setpriv:") {
        return println!("skipped: needs root and setpriv: {}", output.stderr);
    }
    says(&output, 77, &["CAP_NET_RAW", "setcap"]);
}

#[test]
fn options_that_make_no_sense_are_usage_errors() {
    let dir = temp();
    let stream = dir.write("stream.sdp", &sdp(5004));
    let with = |args: &[&str]| run(&[&["--sdp", &stream, "--headless"], args].concat(), &[MANUAL]);
    says(&with(&["--backend", "rivermax", "--rivermax", "split=3"]), 64, &["split=3", "cure"]);
    says(&with(&["--backend", "rivermax", "--pcap", "x.pcap"]), 64, &["--pcap"]);
    says(&with(&["--backend", "rivermax", "--rivermax", "cores=0+8000"]), 64, &["core 8000", "cure"]);
    says(&with(&["--backend", "rivermax", "--rivermax", "cores=18446744073709551615"]), 64, &["cores=", "cure"]);
    // By auto too, whether or not Rivermax would be taken; and nothing is said to nobody.
    says(&with(&["--rivermax", "splitt=20"]), 64, &["splitt=20", "cure"]);
    says(&run(&["--sdp", &stream, "--headless", "--rivermax", "splitt=20"], &[]), 64, &["splitt=20"]);
    for other in ["socket", "xdp"] {
        says(&with(&["--backend", other, "--rivermax", "split=20"]), 64, &["--backend leaves it out", "cure"]);
    }
    says(&with(&["--backend", "netmap"]), 64, &["netmap", "socket", "rivermax"]);
}

#[test]
fn a_stream_is_received_and_its_frames_are_in_order() {
    let dir = temp();
    let capture = dir.join("stream.pcap");
    let stream = send_to_pcap(&capture, 5004, &["--frames", "40"]);
    let pcap = ("RIVERMAX_STAND_IN_CAPTURE", capture.to_str().unwrap());
    let tapped = dir.join("tap.pcapng");
    let tap = tapped.to_str().unwrap();
    for (words, more) in [
        ("", &[][..]),
        ("split=none", &["--tap", tap]),
        ("split=26,order=extended,events", &[]),
        ("split=20,hold=100ms,exact", &["--fault", "dup=1/50,seed=3"]),
    ] {
        let args = ["--sdp", &stream, "--rivermax", words, "--frames", "10", "--verify", "--json", "--wait", "20s"];
        let output = run(&[&args[..], &BY_RIVERMAX, more].concat(), &[pcap, MANUAL]);
        assert_eq!(output.code, 0, "{words}: {}", output.stderr);
        let start = start(&output);
        assert_eq!(start["backend"], "rivermax", "{start}");
        let notes = start["notes"].to_string();
        assert!(notes.contains("stand-in") && notes.contains("ring of"), "{notes}");
        let summary = output.summary();
        assert_eq!(
            (&summary["frames"]["torn"], &summary["packets"]["lost"]),
            (&0.into(), &0.into()),
            "{words}: {summary}"
        );
        assert_eq!(summary["verify"]["in_order"], 10, "{words}: {summary}");
    }
    assert!(std::fs::metadata(&tapped).unwrap().len() > 100_000, "the tap has packets");
}

#[test]
fn frames_are_windows_of_the_ring_where_that_is_asked_for() {
    let dir = temp();
    let capture = dir.join("stream.pcap");
    let stream = send_to_pcap(&capture, 5004, &["--frames", "40"]);
    let pcap = ("RIVERMAX_STAND_IN_CAPTURE", capture.to_str().unwrap());
    let args = ["--sdp", &stream, "--frames", "10", "--json", "--wait", "20s", "--output", "wire", "--rivermax"];
    let words = ["order=extended,exact,hold=600ms"];
    let output = run(&[&args[..], &words, &BY_RIVERMAX].concat(), &[pcap, MANUAL]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let frames = &output.summary()["frames"];
    assert!(frames["windows"].as_u64().unwrap() >= 8 && frames["torn"] == 0, "{frames}");
}

#[test]
fn frames_are_windows_by_themselves_where_the_flow_lets_them() {
    let dir = temp();
    let capture = dir.join("stream.pcap");
    let stream = send_to_pcap(&capture, 5004, &["--frames", "60"]);
    let pcap = ("RIVERMAX_STAND_IN_CAPTURE", capture.to_str().unwrap());
    let args = ["--sdp", &stream, "--frames", "10", "--json", "--wait", "20s", "--output"];
    let run = |layout: &str, words: &str, switch: &str| {
        let words = format!("probe=10s{words}");
        let output = run(
            &[&args[..], &[layout, "--rivermax", &words], &BY_RIVERMAX].concat(),
            &[pcap, ("RIVERMAX_STAND_IN", switch)],
        );
        assert_eq!(output.code, 0, "{}", output.stderr);
        let frames = &output.summary()["frames"];
        assert_eq!(frames["torn"], 0, "{frames}");
        (frames["windows"].as_u64().unwrap(), start(&output).to_string())
    };
    let (windows, start) = run("wire", "", "manual");
    assert!(windows >= 8 && start.contains("frames are windows of the ring"), "{windows}: {start}");
    // Where the card cannot, or something else was asked for, they are copied.
    for (layout, words, switch, why) in [
        ("wire", "", "manual,extra-stride=64", "leaves gaps"),
        ("wire", "", "manual,no-split", "leaves gaps"),
        ("wire", ",order=arrival", "manual", "as they arrived"),
        ("planar", "", "manual", "not that of the wire"),
    ] {
        let (windows, start) = run(layout, words, switch);
        assert!(windows == 0 && start.contains(why), "{why}: {windows}: {start}");
    }
}

#[test]
fn a_program_with_more_rights_than_its_user_hears_no_library_from_the_environment() {
    let dir = temp();
    let stream = dir.write("stream.sdp", &sdp(5004));
    let raised = dir.join("raised");
    std::fs::copy(program(), &raised).unwrap();
    let may_all = |path: &std::path::Path| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    may_all(raised.parent().unwrap());
    may_all(&raised);
    let run = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--clear-groups", raised.to_str().unwrap(), "--sdp", &stream]);
        command.args(BY_RIVERMAX).args(["--wait", "100ms", "--rivermax", "probe=1ms"]);
        command.envs([MANUAL, ("RIVERMAX_LIBRARY", "/nowhere/of-the-user.so")]);
        finish(command)
    };
    let plain = run();
    if !plain.stderr.contains("of-the-user.so") {
        return println!("skipped: needs root and setpriv: {}", plain.stderr);
    }
    match Command::new("setcap").args(["cap_net_raw+ep", raised.to_str().unwrap()]).status() {
        Ok(status) if status.success() => {}
        other => return println!("skipped: no file capabilities here: {other:?}"),
    }
    let output = run();
    // The stand-in's own library instead, whether or not this user may open it.
    let its_own = ["stand-in for Rivermax", "librivermax_stand_in"].iter().any(|own| output.stderr.contains(own));
    assert!(its_own && !output.stderr.contains("of-the-user.so"), "{}", output.stderr);
}

#[test]
fn a_stream_comes_by_the_network_too() {
    let dir = temp();
    let port = common::free_port();
    let stream = dir.write("stream.sdp", &sdp(port));
    let mut send = Command::new(program())
        .args(["send", "--to", &format!("udp://127.0.0.1:{port}"), "--sdp", &stream, "--duration", "60s"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let args = ["--sdp", &stream, "--frames", "10", "--verify", "--json", "--wait", "20s", "--rivermax", "probe=10s"];
    let output = run(&[&args[..], &BY_RIVERMAX].concat(), &[]);
    send.kill().unwrap();
    send.wait().unwrap();
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(start(&output)["notes"].to_string().contains("behind octet 20"), "{}", output.stderr);
    let verify = &output.summary()["verify"];
    assert_eq!((&verify["backward"], &verify["unreadable"]), (&0.into(), &0.into()), "{verify}");
}

#[test]
fn packets_that_no_slot_takes_are_told() {
    let dir = temp();
    let port = common::free_port();
    let stream = dir.write("stream.sdp", &sdp(port));
    let to = format!("udp://127.0.0.1:{port}");
    // 2432 octets a packet, and no MAXUDP in the SDP.
    let mut send = Command::new(program())
        .args(["send", "--to", &to, "--sdp", &stream, "--max-udp", "8960", "--srds", "3", "--duration", "60s"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let output = run(&[&["--sdp", &stream, "--wait", "3s", "--rivermax", "split=32"], &BY_RIVERMAX[..]].concat(), &[]);
    send.kill().unwrap();
    send.wait().unwrap();
    says(&output, 3, &["not one packet", "larger ones are lost", "MAXUDP"]);
}

#[test]
fn a_look_at_first_packets_ends_with_the_run() {
    let dir = temp();
    let stream = dir.write("stream.sdp", &sdp(common::free_port()));
    let mut command = Command::new(program());
    command.args(["--sdp", &stream, "--rivermax", "probe=1000s"]).args(BY_RIVERMAX).envs([MANUAL]);
    let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    // SIGINT is number 2.
    let catches = |status: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0)
    };
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !catches(&std::fs::read_to_string(&status).unwrap()) {
        assert!(std::time::Instant::now() < end, "no handler");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ended = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if std::time::Instant::now() > end => break None,
            None => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    };
    if ended.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(ended.and_then(|status| status.code()), Some(0));
}

#[test]
fn the_check_runs_by_the_stand_in_and_says_so() {
    let check = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/rivermax-check");
    let mut command = Command::new("python3");
    command.args([check, "--program", program(), "--seconds", "0.4"]);
    let output = finish(command);
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    for words in [
        "By the stand-in",
        "says nothing about Rivermax",
        "| host, cut as probed | ok |",
        "| host, frames are windows | ok |",
    ] {
        assert!(output.stdout.contains(words), "{words:?} is not in:\n{}", output.stdout);
    }
}

#[test]
fn auto_takes_the_next_backend_and_says_why() {
    let dir = temp();
    let port = common::free_port();
    let stream = dir.write("stream.sdp", &sdp(port));
    let auto = |environment: &[(&str, &str)]| {
        let args = ["--sdp", &stream, "--headless", "--json", "--wait", "200ms", "--rivermax", "probe=1ms"];
        let output = run(&args, environment);
        assert_eq!(output.code, 3, "{}", output.stderr);
        start(&output)
    };
    // The stand-in is taken where a test asks for it, and only there.
    let plain = auto(&[]);
    assert_eq!(plain["backend"], "socket");
    assert!(plain["backends_passed"][0]["reason"].as_str().unwrap().contains("for tests only"), "{plain}");
    let taken = auto(&[MANUAL]);
    assert_eq!((&taken["backend"], &taken["backends_passed"]), (&"rivermax".into(), &Value::Array(vec![])), "{taken}");
    for (fail, reason) in [
        ("rmx_init=62", "no valid licence"),
        ("rmx_retrieve_device_iface_ipv4=61", "no card"),
        ("rmx_input_create_stream=63", "no resources"),
        ("rmx_input_attach_flow=63", "attaching"),
    ] {
        let start = auto(&[MANUAL, ("RIVERMAX_STAND_IN_FAIL", fail)]);
        assert_eq!(start["backend"], "socket");
        let passed = &start["backends_passed"][0];
        assert_eq!(passed["backend"], "rivermax");
        assert!(passed["reason"].as_str().unwrap().contains(reason), "{start}");
    }
    // A flow is tried beforehand where no first packets are looked at.
    let args = ["--sdp", &stream, "--headless", "--json", "--wait", "200ms", "--rivermax", "split=20"];
    let start = start(&run(&args, &[MANUAL, ("RIVERMAX_STAND_IN_FAIL", "rmx_input_attach_flow=63")]));
    assert_eq!(start["backend"], "socket", "{start}");
    let start = auto(&[MANUAL, ("RIVERMAX_LIBRARY", "/nowhere.so")]);
    assert!(start["backends_passed"][0]["reason"].as_str().unwrap().contains("/nowhere.so"), "{start}");
}
