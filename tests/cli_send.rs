//! `gdmedia send` from outside: what it writes, what it says, how it exits.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn gdmedia(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gdmedia"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = gdmedia(arguments).output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

/// The last line of standard error, as JSON.
fn summary(stderr: &str) -> serde_json::Value {
    serde_json::from_str(stderr.lines().last().unwrap_or_default()).unwrap_or_else(|e| panic!("{e}: {stderr}"))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn bad_input_names_cause_and_cure() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, octets: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, octets).unwrap();
        text(&path).to_owned()
    };
    let audio = file(
        "audio.sdp",
        b"v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=x\r\nt=0 0\r\nm=audio 5004 RTP/AVP 97\r\nc=IN IP4 239.1.1.1/64\r\n\
          a=rtpmap:97 L24/48000/2\r\na=ptime:1\r\na=ts-refclk:ptp=IEEE1588-2008:traceable\r\na=mediaclk:direct=0\r\n",
    );
    let empty = file("empty", b"");
    let field = file("field.y4m", b"YUV4MPEG2 W64 H32 F25:1 It C420jpeg\nFRAME\n");
    let other = file("other.y4m", b"YUV4MPEG2 W64 H32 F25:1 Ip C411\nFRAME\n");
    let short = file("short.raw", &[7; 100]);
    let small = file("small.y4m", b"YUV4MPEG2 W64 H32 F25:1 Ip C422p10\nFRAME\n");
    let video = |fmtp: &str| {
        format!(
            "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=x\r\nt=0 0\r\nm=video 5004 RTP/AVP 96\r\nc=IN IP4 127.0.0.1\r\n\
             a=rtpmap:96 raw/90000\r\na=fmtp:96 sampling=YCbCr-4:2:2; width=64; height=32; depth=10; {fmtp}\r\n"
        )
    };
    let senseless = file("senseless.sdp", video("exactframerate=60000000/1; SSN=ST2110-20:2017").as_bytes());
    let large = file("large.sdp", video("exactframerate=9000; SSN=ST2110-20:2017").as_bytes());
    let pcap = file("some.pcap", &[0; 24]);
    let live = "udp://127.0.0.1:5004";
    let table: &[(&[&str], i32, &str)] = &[
        (&["--to", "udp://127.0.0.1:0"], 64, "port 0"),
        (&["--to", "udp://nobody"], 64, "ADDRESS:PORT"),
        (&["--to", "https://127.0.0.1:5004"], 64, "udp://"),
        (&["--to", "UDP://nobody"], 64, "ADDRESS:PORT"),
        (&["--to", "in.y4m"], 64, "--to FILE.pcap"),
        (&["--to", "239.1.1.1"], 64, "udp://ADDRESS:PORT"),
        (&["--to", "-"], 64, "--to FILE.pcap"),
        (&["--sdp", &senseless], 65, "60000000/1"),
        (&["--sdp", &large], 65, "--rate"),
        (&["--input", &small, "--to", &small], 64, "is also the input"),
        (&["--input", &small, "--write-sdp", &small], 64, "is also the input"),
        (&["--replay", &pcap, "--to", &pcap], 64, "is also the input"),
        (&["--sdp", &large, "--write-sdp", &large], 64, "is also the input"),
        (&["--to", &pcap, "--write-sdp", &pcap], 64, "one file"),
        (&["--to", "udp://0.0.0.0:5004"], 64, "receiver's address"),
        (&["--leg", "239.1.1.1:1", "--leg", "239.1.1.2:1", "--leg", "239.1.1.3:1"], 64, "ST 2022-7"),
        (&["--leg", "239.1.1.1:5004", "--interface", "nosuch0"], 69, "nosuch0"),
        (&["--format", "1080x"], 64, "1080p59.94"),
        (&["--sampling", "YUV"], 64, "YCbCr-4:2:2"),
        (&["--depth", "16", "--packing", "bpm", "--format", "64x32p25"], 65, "block packing"),
        (&["--sampling", "YCbCr-4:2:0", "--format", "64x32i25"], 65, "progressive"),
        (&["--sdp", "/nosuch/file.sdp"], 65, "/nosuch/file.sdp"),
        (&["--sdp", &audio], 65, "audio"),
        (&["--input", "/nosuch/file.y4m"], 65, "/nosuch/file.y4m"),
        (&["--input", &empty], 65, "empty"),
        (&["--input", &field], 65, "pix_fmt"),
        (&["--input", &other], 65, "411"),
        (&["--input", &small, "--depth", "8"], 64, "holds 64x32 4:2:2 10 bit"),
        (&["--input", &short, "--format", "64x32p25", "--to", live, "--frames", "1"], 65, "100 of"),
        (&["--input", "-", "--loop", "--format", "64x32p25"], 65, "empty"),
        (&["--replay", "/nosuch/file.pcap"], 65, "/nosuch/file.pcap"),
        (&["--replay", &audio], 65, "capture"),
        (&["--to", "/nosuch/folder/x.pcap", "--format", "64x32p25"], 74, "folder"),
        (&["--to", "/dev/full", "--format", "640x360p25"], 74, "space"),
        (&["--write-sdp", "/nosuch/folder/x.sdp", "--format", "64x32p25", "--frames", "1"], 74, "folder"),
    ];
    for (arguments, code, says) in table {
        let (exit, stderr) = run(&[&["send"], *arguments].concat());
        assert_eq!(exit, Some(*code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(says), "{arguments:?}: {stderr}");
    }
    assert!(std::fs::read(&small).unwrap().starts_with(b"YUV4MPEG2"), "the input is as it was");
    // A rate that is missing is no contradiction, but is said.
    let silent = file("silent.sdp", video("SSN=ST2110-20:2017").as_bytes());
    for (arguments, says, assumed) in
        [(&["--sdp", &silent][..], "of UDP payload", true), (&["--sdp", &large, "--rate", "25"], "64x32p25", false)]
    {
        let (exit, stderr) = run(&[&["send", "--to", &pcap, "--frames", "1"], arguments].concat());
        assert_eq!(exit, Some(0), "{arguments:?}: {stderr}");
        assert!(stderr.contains(says) && stderr.contains("50 a second assumed") == assumed, "{stderr}");
    }
}

/// The media go on when nobody listens to the words.
#[test]
fn standard_error_may_be_closed_or_full() {
    let folder = tempfile::tempdir().unwrap();
    let pcap = folder.path().join("x.pcap");
    for full in [false, true] {
        for json in [&[][..], &["--json"]] {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let full_device = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
            let stderr = if full { Stdio::from(full_device) } else { Stdio::from(writer) };
            let arguments = [&["send", "--format", "64x32p25", "--frames", "2", "--to", text(&pcap)], json].concat();
            assert_eq!(gdmedia(&arguments).stderr(stderr).status().unwrap().code(), Some(0), "{full} {json:?}");
        }
    }
}

#[test]
fn a_pipe_without_reader_is_an_output_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let arguments = ["send", "--write-sdp", "-", "--format", "64x32p25", "--frames", "1"];
    let output = gdmedia(&arguments).stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(74), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Without any route; needs the right to make a network namespace.
#[test]
fn an_address_that_cannot_be_reached() {
    let program = env!("CARGO_BIN_EXE_gdmedia");
    let can = Command::new("unshare").args(["-n", "true"]).status().is_ok_and(|s| s.success());
    if !can {
        eprintln!("skipped: no network namespace can be made");
        return;
    }
    for (to, cure) in [("udp://192.0.2.1:5004", "routes"), ("udp://239.1.1.1:5004", "--interface")] {
        let output =
            Command::new("unshare").args(["-n", program, "send", "--to", to, "--frames", "1"]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(69), "{stderr}");
        assert!(stderr.contains(cure), "{stderr}");
    }
}

#[test]
fn a_rate_beyond_any_machine_is_said_so() {
    let (exit, stderr) = run(&[
        "send",
        "--format",
        "1080p",
        "--rate",
        "20000/1",
        "--duration",
        "2500ms",
        "--to",
        "udp://127.0.0.1:5004",
    ]);
    assert_eq!(exit, Some(1), "{stderr}");
    assert!(stderr.contains("cannot send that rate") && stderr.contains("cure:"), "{stderr}");
}

#[test]
fn ctrl_c_ends_with_the_report() {
    ends_with_the_report("-INT");
    // Below nohup it is ignored, and so it is by programs that are started there.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:")).unwrap().trim().to_owned();
    if u64::from_str_radix(&ignored, 16).unwrap() & 1 == 0 {
        ends_with_the_report("-HUP");
    }
}

fn ends_with_the_report(signal: &str) {
    let mut child = gdmedia(&["send", "--format", "64x32p25", "--json", "--duration", "60s"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut start = String::new();
    stderr.read_line(&mut start).unwrap();
    assert!(start.contains("\"start\""), "{start}");
    let interrupted = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    assert_eq!(summary(&rest)["type"], "summary");
}

#[test]
fn captures_and_their_sdp() {
    let folder = tempfile::tempdir().unwrap();
    let (pcap, sdp) = (folder.path().join("x.pcap"), folder.path().join("x.sdp"));
    for more in [
        &["--format", "320x180p50"][..],
        &["--format", "320x180i50", "--pacing", "linear", "--packing", "bpm"],
        &["--format", "320x180psf25", "--sampling", "RGB", "--depth", "12", "--range", "FULL"],
        &["--format", "320x180p59.94", "--leg", "239.1.1.1:5004", "--leg", "239.2.1.1:5004"],
    ] {
        let to = ["send", "--to", text(&pcap), "--write-sdp", text(&sdp), "--frames", "4", "--json"];
        let legs = more.contains(&"--leg");
        let to: Vec<&str> =
            if legs { to.into_iter().filter(|a| !["--to", text(&pcap)].contains(a)).collect() } else { to.into() };
        let (exit, stderr) = run(&[&to, more].concat());
        // Live, a busy machine may skip frames, which is exit code 1; into a file nothing is ever late.
        assert!(exit == Some(0) || legs && exit == Some(1), "{more:?}: {exit:?} {stderr}");
        assert_eq!(summary(&stderr)["frames"]["sent"], 4, "{stderr}");
        let read = gdmedia(&["sdp", text(&sdp)]).output().unwrap();
        let said = String::from_utf8_lossy(&read.stdout).into_owned();
        assert_eq!(read.status.code(), Some(0), "{more:?}: {said}{}", std::fs::read_to_string(&sdp).unwrap());
        if !legs {
            let (exit, stderr) = run(&["--sdp", text(&sdp), "--pcap", text(&pcap), "--headless", "--verify", "--json"]);
            assert_eq!(exit, Some(0), "{more:?}: {stderr}");
            let summary = summary(&stderr);
            assert_eq!(summary["frames"]["complete"], 4, "{more:?}: {summary}");
            assert_eq!(summary["packets"]["lost"], 0);
        }
    }
}

/// A y4m file goes out and comes back the same.
#[test]
fn y4m_through_a_capture() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (input, pcap, sdp, out) = (path("in.y4m"), path("x.pcap"), path("x.sdp"), path("out.y4m"));
    for (tag, samples, octets, largest) in [
        ("422p10", 66 * 40 * 2, 2, 1023u32),
        ("420jpeg", 66 * 40 * 3 / 2, 1, 255),
        ("444p12", 66 * 40 * 3, 2, 4095),
        ("mono", 66 * 40, 1, 255),
    ] {
        let mut file = format!("YUV4MPEG2 W66 H40 F25:1 Ip A1:1 C{tag} XCOLORRANGE=LIMITED\n").into_bytes();
        for frame in 0..3u32 {
            file.extend(b"FRAME\n");
            for n in 0..samples as u32 {
                let sample = (n.wrapping_mul(2_654_435_761) >> 7).wrapping_add(frame * 77) % (largest + 1);
                file.extend(&sample.to_le_bytes()[..octets]);
            }
        }
        std::fs::write(&input, &file).unwrap();
        let (exit, stderr) = run(&["send", "--input", text(&input), "--to", text(&pcap), "--write-sdp", text(&sdp)]);
        assert_eq!(exit, Some(0), "{tag}: {stderr}");
        assert!(stderr.contains("wrote 3 frames"), "{tag}: {stderr}");
        let (exit, stderr) = run(&["--sdp", text(&sdp), "--pcap", text(&pcap), "--headless", "--out", text(&out)]);
        assert_eq!(exit, Some(0), "{tag}: {stderr}");
        let back = std::fs::read(&out).unwrap();
        let body = |file: &[u8]| file.splitn(2, |b| *b == b'\n').nth(1).unwrap().to_vec();
        assert!(body(&back) == body(&file), "{tag}: {} and {} octets", back.len(), file.len());
    }
}
