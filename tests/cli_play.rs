//! `gdmedia play` as a user meets it: what bad input says, what comes out, and with which exit code.

mod common;

use common::{Output, gdmedia, sdp, send_to_pcap, temp};
use std::fs;
use std::net::UdpSocket;

fn fails(output: &Output, code: i32, words: &[&str]) {
    assert_eq!(output.code, code, "exit code of: {}\n{}", output.command, output.stderr);
    for word in words {
        assert!(output.stderr.contains(word), "{:?} is not in what {} said:\n{}", word, output.command, output.stderr);
    }
    assert!(output.stderr.contains("cure"), "no cure in:\n{}", output.stderr);
    assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
}

#[test]
fn no_sdp_is_a_usage_error() {
    let dir = temp();
    fails(&gdmedia(&["play"]), 64, &["no SDP"]);
    fails(&gdmedia(&["--sdp", dir.join("missing.sdp").to_str().unwrap()]), 65, &["missing.sdp"]);
    fails(&gdmedia(&["--sdp", dir.path().to_str().unwrap()]), 65, &["folder"]);
}

#[test]
fn sdp_that_is_none_says_what_it_is() {
    let dir = temp();
    for (name, content) in [("empty.sdp", &b""[..]), ("binary.sdp", &[0u8, 159, 146, 150, 0, 1, 2, 3][..])] {
        let path = dir.join(name);
        fs::write(&path, content).unwrap();
        fails(&gdmedia(&["--sdp", path.to_str().unwrap()]), 65, &[name]);
    }
    let path = dir.join("huge.sdp");
    fs::write(&path, vec![b'a'; 100 << 20]).unwrap();
    fails(&gdmedia(&["--sdp", path.to_str().unwrap()]), 65, &["huge.sdp"]);
}

#[test]
fn flows_that_cannot_be_received_are_named() {
    let dir = temp();
    let audio = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 5004 RTP/AVP 97\r\nc=IN IP4 127.0.0.1\r\n\
                 a=rtpmap:97 L24/48000/2\r\na=ptime:1\r\na=ts-refclk:localmac=40-A3-6B-A0-2B-D2\r\na=mediaclk:direct=0\r\n";
    fails(&gdmedia(&["--sdp", &dir.write("audio.sdp", audio)]), 65, &["L24"]);

    let private = sdp(5004).replace("a=mediaclk", "a=privacy:protocol=RTP; mode=AES-128-CTR\r\na=mediaclk");
    fails(&gdmedia(&["--sdp", &dir.write("private.sdp", &private)]), 65, &["encrypted"]);

    let odd = sdp(5004).replace("depth=10", "depth=10; interlace").replace("4:2:2", "4:2:0");
    fails(&gdmedia(&["--sdp", &dir.write("odd.sdp", &odd)]), 65, &["4:2:0"]);
}

#[test]
fn several_flows_are_listed_and_chosen_by_number() {
    let dir = temp();
    let one = sdp(5004);
    let media = &one[one.find("m=").unwrap()..];
    let two = format!("{one}{}", media.replace("5004", "5006").replace("64", "32"));
    let path = dir.write("two.sdp", &two);
    fails(&gdmedia(&["--sdp", &path]), 64, &["0:", "1:", "--flow"]);
    fails(&gdmedia(&["--sdp", &path, "--flow", "7"]), 64, &["no flow 7", "1:"]);
}

#[test]
fn network_that_cannot_be_opened() {
    let dir = temp();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let path = dir.write("taken.sdp", &sdp(port));
    fails(&gdmedia(&["--sdp", &path, "--headless"]), 69, &[&port.to_string(), "in use"]);

    let path = dir.write("far.sdp", &sdp(5004).replace("127.0.0.1", "192.0.2.77"));
    fails(&gdmedia(&["--sdp", &path, "--headless"]), 69, &["192.0.2.77"]);

    let path = dir.write("group.sdp", &sdp(5004).replace("c=IN IP4 127.0.0.1", "c=IN IP4 239.1.2.3/8"));
    fails(&gdmedia(&["--sdp", &path, "--headless", "--interface", "nosuch0"]), 69, &["nosuch0", "lo"]);
}

#[test]
fn a_backend_that_is_not_built_in_says_how_to_build_it() {
    if common::has_feature("rivermax") {
        println!("skipped: built with Rivermax");
        return;
    }
    let dir = temp();
    let path = dir.write("stream.sdp", &sdp(common::free_port()));
    fails(
        &gdmedia(&["--sdp", &path, "--headless", "--backend", "rivermax"]),
        69,
        &["without Rivermax", "--features rivermax"],
    );
    let output = gdmedia(&["--sdp", &path, "--headless", "--wait", "100ms"]);
    fails(&output, 3, &["backend  socket", "not rivermax: this gdmedia was built without Rivermax"]);
}

#[test]
fn nothing_comes() {
    let dir = temp();
    let port = common::free_port();
    let path = dir.write("quiet.sdp", &sdp(port));
    let output = gdmedia(&["--sdp", &path, "--headless", "--wait", "300ms"]);
    fails(&output, 3, &["not one packet"]);
}

#[test]
fn captures_that_do_not_fit() {
    let dir = temp();
    let stream = dir.write("stream.sdp", &sdp(5004));
    let run = |capture: &str| gdmedia(&["--sdp", &stream, "--headless", "--pcap", capture]);
    fails(&run(&dir.write("text.pcap", "this is no capture at all")), 65, &["text.pcap"]);
    fails(&run(&dir.write("empty.pcap", "")), 65, &["empty.pcap"]);
    fails(&run(dir.join("missing.pcap").to_str().unwrap()), 65, &["missing.pcap"]);

    let capture = dir.join("other.pcap");
    send_to_pcap(&capture, 6000, &["--frames", "2"]);
    let output = run(capture.to_str().unwrap());
    fails(&output, 65, &["no packet", "6000", "2110-20"]);
}

#[test]
fn a_capture_becomes_frames_and_counters_add_up() {
    let dir = temp();
    let capture = dir.join("five.pcap");
    let stream = send_to_pcap(&capture, 5004, &["--frames", "5"]);
    let output = gdmedia(&["--sdp", &stream, "--pcap", capture.to_str().unwrap(), "--headless", "--verify", "--json"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let summary = output.summary();
    assert_eq!(summary["frames"]["complete"], 5);
    assert_eq!(summary["frames"]["incomplete"], 0);
    assert_eq!(summary["frames"]["dropped"], 0);
    assert_eq!(summary["packets"]["lost"], 0);
    assert_eq!(summary["verify"]["in_order"], 5);
    assert_eq!(summary["packets"]["received"], summary["receiver"]["datagrams"]);
}

#[test]
fn a_leg_that_brings_nothing_shows() {
    let dir = temp();
    let one = sdp(common::free_port());
    let port = common::free_port();
    let media = one[one.find("m=").unwrap()..].replace("a=rtpmap", "a=mid:b\r\na=rtpmap");
    let second = media.replace(&media[8..media.find(" RTP").unwrap()], &port.to_string());
    let two =
        one.replace("a=rtpmap", "a=mid:a\r\na=rtpmap").replace("t=0 0\r\n", "t=0 0\r\na=group:DUP a b\r\n") + &second;
    let (one, two) = (dir.write("one.sdp", &one), dir.write("two.sdp", &two));
    // The sender knows of one leg only.
    let mut sender = std::process::Command::new(common::program())
        .args(["send", "--sdp", &one, "--duration", "20s"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let output = gdmedia(&["--sdp", &two, "--headless", "--json", "--duration", "4500ms"]);
    sender.kill().unwrap();
    sender.wait().unwrap();
    assert_eq!(output.code, 0, "{}", output.stderr);
    let lines: Vec<serde_json::Value> = output.stderr.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let summary = output.summary();
    let legs = &summary["legs"];
    assert!(legs[0]["received"].as_u64() > Some(0), "{legs}");
    assert_eq!((&legs[1]["received"], &legs[1]["used"]), (&0.into(), &0.into()), "{legs}");
    assert_eq!(legs[1]["state"], "silent");
    let status = lines.iter().rfind(|l| l["type"] == "status").unwrap();
    assert_eq!(status["health"]["link"]["status"], "AllUp");
    // A sender that is held up makes it worse than that.
    let word = &status["health"]["connection"]["status"];
    assert!(*word == "PartiallyHealthy" || *word == "Unhealthy", "{status}");
    let change = lines.iter().find(|l| l["event"] == "status" && l["domain"] == "connection").unwrap();
    assert_eq!((&change["type"], &change["from"]), (&"event".into(), &"Healthy".into()));
    assert!(change["time"].as_str().is_some_and(|t| t.ends_with('Z')) && change["message"].is_string(), "{change}");
}

#[test]
fn rates_that_no_network_carries_are_refused() {
    let dir = temp();
    let fast = sdp(5004).replace("exactframerate=25", "exactframerate=1000");
    let fast = fast.replace("width=320", "width=16384").replace("height=180", "height=8192");
    let words = ["16384x8192 at 1000 frames a second", "2684 Gb/s", "exactframerate"];
    fails(&gdmedia(&["--sdp", &dir.write("fast.sdp", &fast), "--headless"]), 65, &words);
}

#[test]
fn loss_is_counted_and_located() {
    let dir = temp();
    let capture = dir.join("ten.pcap");
    let stream = send_to_pcap(&capture, 5004, &["--frames", "10"]);
    let args = ["--sdp", &stream, "--pcap", capture.to_str().unwrap(), "--headless", "--json"];
    let whole = gdmedia(&args).summary();
    let output = gdmedia(&[&args[..], &["--fault", "loss=1/50,seed=3"]].concat());
    assert_eq!(output.code, 0, "{}", output.stderr);
    let hurt = output.summary();
    let count = |v: &serde_json::Value, key: &str| v["packets"][key].as_u64().unwrap();
    assert!(count(&hurt, "lost") > 0);
    // Packets lost before the first or after the last one that came cannot be known of.
    assert!(count(&hurt, "received") + count(&hurt, "lost") <= count(&whole, "received"));
    assert!(hurt["frames"]["incomplete"].as_u64().unwrap() > 0);
    assert!(hurt["frames"]["missing_octets"].as_u64().unwrap() > 0);
}

/// Whatever this machine has: with a GPU frames are unpacked there, without one the CPU does it and the reason is said;
/// either way the same octets come out.
#[test]
fn a_gpu_is_used_where_there_is_one_and_else_the_reason_is_said() {
    let dir = temp();
    let capture = dir.join("six.pcap");
    let sdp = send_to_pcap(&capture, 5004, &["--frames", "6"]);
    let pcap = capture.to_str().unwrap();
    let run = |gpu: &str| {
        let out = dir.join(&format!("{gpu}.raw"));
        let out = out.to_str().unwrap();
        (gdmedia(&["--sdp", &sdp, "--pcap", pcap, "--headless", "--gpu", gpu, "--out", out]), fs::read(out))
    };
    let (off, expected) = run("off");
    assert_eq!(off.code, 0, "{}", off.stderr);
    assert!(off.stderr.contains("not used: --gpu off"), "{}", off.stderr);
    let (auto, octets) = run("auto");
    assert_eq!(auto.code, 0, "{}", auto.stderr);
    assert!(octets.unwrap() == expected.unwrap(), "auto differs");
    let (required, octets) = run("require");
    let (number, _) = run("4000");
    if required.code == 0 {
        assert!(auto.stderr.contains("CUDA (") && required.stderr.contains("CUDA ("), "{}", auto.stderr);
        assert!(!octets.unwrap().is_empty());
        fails(&number, 69, &["there is no GPU 4000"]);
    } else {
        println!("skipped: no CUDA device: {}", required.stderr);
        fails(&required, 69, &[]);
        fails(&number, 69, &[]);
        assert!(auto.stderr.contains("gpu  none: ") && auto.stderr.contains(" on the CPU"), "{}", auto.stderr);
        assert!(octets.is_err(), "a run that never began wrote a file");
    }
    for options in [["--gpu", "off", "--gpu-memory", "100"], ["--gpu", "require", "--kernel", "scalar"]] {
        let run = gdmedia(&[&["--sdp", &sdp, "--pcap", pcap, "--headless"][..], &options].concat());
        fails(&run, 64, &[options[2], "leave one of them out"]);
    }
    let (wrong, _) = run("sometimes");
    assert!(wrong.code == 64 && wrong.stderr.contains("neither auto, off, require"), "{}", wrong.stderr);
}

#[test]
fn output_that_cannot_be_written() {
    let dir = temp();
    let capture = dir.join("some.pcap");
    let stream = send_to_pcap(&capture, 5004, &["--frames", "40"]);
    let args = ["--sdp", &stream, "--pcap", capture.to_str().unwrap()];
    fails(&gdmedia(&[&args[..], &["--out", "/dev/full"]].concat()), 74, &["/dev/full"]);
    fails(&gdmedia(&[&args[..], &["--out", "/nosuchfolder/x.y4m"]].concat()), 74, &["/nosuchfolder"]);
    let output = gdmedia(&[&args[..], &["--snapshot", dir.join("x.jpg").to_str().unwrap()]].concat());
    fails(&output, 64, &["png"]);
}

#[test]
fn a_reader_that_goes_away_ends_the_run_cleanly() {
    let dir = temp();
    let capture = dir.join("pipe.pcap");
    let stream = send_to_pcap(&capture, 5004, &["--frames", "40"]);
    let output = common::shell(&format!(
        "{} --sdp {stream} --pcap {} --out - | head -c 100 >/dev/null; echo ${{PIPESTATUS[0]}}",
        common::program(),
        capture.display()
    ));
    assert_eq!(output.stdout.trim(), "0", "{}", output.stderr);
    assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
}

#[test]
fn frames_go_to_a_file_and_to_a_picture() {
    let dir = temp();
    let capture = dir.join("file.pcap");
    let stream = send_to_pcap(&capture, 5004, &["--frames", "3"]);
    let (raw, png) = (dir.join("out.raw"), dir.join("out.png"));
    let output = gdmedia(&[
        "--sdp",
        &stream,
        "--pcap",
        capture.to_str().unwrap(),
        "--output",
        "wire",
        "--out",
        raw.to_str().unwrap(),
        "--snapshot",
        png.to_str().unwrap(),
        "--at",
        "1",
    ]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    // 4:2:2 10-bit of the default test raster: 5 octets for two pixels.
    assert_eq!(fs::metadata(&raw).unwrap().len(), 3 * u64::from(common::WIDTH * common::HEIGHT / 2 * 5));
    assert_eq!(&fs::read(&png).unwrap()[..8], b"\x89PNG\r\n\x1a\n");
}

#[test]
fn json_stays_json_when_it_fails() {
    let dir = temp();
    let missing = gdmedia(&["--json", "--sdp", dir.join("missing.sdp").to_str().unwrap()]);
    let port = common::free_port();
    let quiet = gdmedia(&["--json", "--sdp", &dir.write("quiet.sdp", &sdp(port)), "--headless", "--wait", "200ms"]);
    for (output, code) in [(&missing, 65), (&quiet, 3)] {
        assert_eq!(output.code, code, "{}", output.stderr);
        let lines: Vec<serde_json::Value> = output.stderr.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let error = lines.iter().find(|l| l["type"] == "error").unwrap();
        assert_eq!(error["exit"], code);
        assert!(!error["cure"].as_str().unwrap().is_empty());
    }
    assert_eq!(quiet.summary()["end"], "no media");

    // What the command line's parser says, too.
    for (args, what, cure) in [
        (["--gpu", "sometimes"], "neither auto, off, require", "auto, off, require"),
        (["--export", "frames"], "names no kind and path", "cuda-ipc=PATH"),
        (["--gpu-memory", "0"], "no frame fits", "such as 512"),
    ] {
        let output = gdmedia(&["--json", "--headless", args[0], args[1]]);
        assert_eq!(output.code, 64, "{}", output.stderr);
        let error: serde_json::Value = serde_json::from_str(output.stderr.trim_end()).unwrap();
        assert_eq!((&error["type"], &error["exit"]), (&"error".into(), &64.into()));
        assert!(error["message"].as_str().unwrap().contains(what), "{error}");
        assert!(error["cure"].as_str().unwrap().contains(cure), "{error}");
    }
}

#[test]
fn an_export_that_cannot_be_is_refused_and_touches_nothing() {
    let dir = temp();
    let capture = dir.join("two.pcap");
    let stream = send_to_pcap(&capture, 5004, &["--frames", "2"]);
    let before = fs::read(&stream).unwrap();
    let socket = dir.join("frames");
    let socket = socket.to_str().unwrap();
    let target = format!("cuda-ipc={socket}");
    let run = |target: &str, more: &[&str]| {
        let args = ["--sdp", &stream, "--pcap", capture.to_str().unwrap(), "--headless", "--export", target];
        gdmedia(&[&args, more].concat())
    };
    fails(&run(&target, &["--gpu", "off"]), 64, &["needs a GPU, and --gpu off forbids it"]);
    fails(&run(&target, &["--kernel", "scalar"]), 64, &["needs a GPU, and --kernel scalar runs on the CPU"]);
    fails(&run(&target, &["--out", socket]), 64, &["two outputs go to one file"]);
    fails(&run(&format!("dma-buf={stream}"), &[]), 64, &["also the input"]);
    let output = run(&target, &[]);
    if output.code == 0 {
        assert!(output.stderr.contains("cuda-ipc at "), "{}", output.stderr);
    } else {
        println!("skipped: no CUDA device: {}", output.stderr);
        fails(&output, 69, &["needs a GPU: ", "leave --export out"]);
        assert!(!output.stderr.contains("--gpu off"), "a cure that contradicts the options: {}", output.stderr);
    }
    assert!(!std::path::Path::new(socket).exists());
    assert_eq!(fs::read(&stream).unwrap(), before);
}

#[test]
fn a_run_without_media_destroys_no_recording() {
    let dir = temp();
    let old = dir.write("old.y4m", "what was recorded yesterday");
    let stream = dir.write("quiet.sdp", &sdp(common::free_port()));
    assert_eq!(gdmedia(&["--sdp", &stream, "--out", &old, "--wait", "200ms"]).code, 3);
    assert_eq!(fs::read_to_string(&old).unwrap(), "what was recorded yesterday");
}

#[test]
fn standard_error_that_nobody_reads_is_no_reason_to_stop() {
    let dir = temp();
    let capture = dir.join("five.pcap");
    let stream = send_to_pcap(&capture, 5004, &["--frames", "5"]);
    let out = dir.join("five.raw");
    let run = format!("{} --sdp {stream} --pcap {} --out {}", common::program(), capture.display(), out.display());
    for nobody in ["2>/dev/full", "2>&-", "2>&1 | true"] {
        let _ = fs::remove_file(&out);
        let output = common::shell(&format!("{run} {nobody}; echo ${{PIPESTATUS[0]}}"));
        assert_eq!(output.stdout.trim(), "0", "{nobody}: {}", output.stderr);
        assert!(fs::metadata(&out).unwrap().len() > 0, "{nobody}");
    }
}

#[test]
fn containers_that_are_not_written_are_refused() {
    let dir = temp();
    let capture = dir.join("two.pcap");
    let stream = send_to_pcap(&capture, 5004, &["--frames", "2"]);
    let out = dir.join("film.mp4");
    let args = ["--sdp", &stream, "--pcap", capture.to_str().unwrap(), "--out", out.to_str().unwrap()];
    fails(&gdmedia(&args), 64, &["film.mp4", "matroskamux"]);
    assert!(!out.exists());
}

#[test]
fn an_output_that_is_the_input_is_refused() {
    let dir = temp();
    let capture = dir.join("two.pcap");
    let stream = send_to_pcap(&capture, 5004, &["--frames", "2"]);
    let before = fs::read(&capture).unwrap();
    let capture_name = capture.to_str().unwrap();
    for output in ["--out", "--tap"] {
        let args = ["--sdp", &stream, "--pcap", capture_name, "--headless", "--format", "raw", output, capture_name];
        let args: Vec<&str> =
            args.into_iter().filter(|a| output == "--out" || !["--format", "raw"].contains(a)).collect();
        fails(&gdmedia(&args), 64, &["also the input"]);
        assert_eq!(fs::read(&capture).unwrap(), before, "{output}");
    }
}
