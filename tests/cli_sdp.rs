//! `gdmedia sdp` as a process: exit status, JSON, `--fix`, and where the text comes from.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};

const GOOD: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=camera\r\nt=0 0\r\nm=video 5004 RTP/AVP 96\r\n\
    c=IN IP4 239.1.1.1/64\r\na=source-filter: incl IN IP4 239.1.1.1 192.0.2.1\r\na=rtpmap:96 raw/90000\r\n\
    a=fmtp:96 sampling=YCbCr-4:2:2; width=1920; height=1080; exactframerate=60000/1001; depth=10; TCS=SDR; \
    colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN\r\n\
    a=ts-refclk:ptp=IEEE1588-2008:08-00-11-FF-FE-22-33-44:127\r\na=mediaclk:direct=0\r\na=x-private:kept\r\n";

fn sdp(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gdmedia"))
        .arg("sdp")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // The program may refuse before it reads.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().expect("the program ends")
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

#[test]
fn exit_status_is_severity() {
    let warned = GOOD.replace("; TP=2110TPN", "");
    let broken = GOOD.replace("width=1920", "width=wide");
    for (input, status) in [(GOOD, 0), (&warned, 1), (&broken, 2), ("<html></html>", 2)] {
        let out = sdp(&["-"], input.as_bytes());
        assert_eq!(out.status.code(), Some(status), "{}{}", text(&out.stdout), text(&out.stderr));
        let out = sdp(&["-", "--json"], input.as_bytes());
        assert_eq!(out.status.code(), Some(status), "{}", text(&out.stderr));
    }
    assert_eq!(sdp(&["--strict", "-"], warned.as_bytes()).status.code(), Some(2));
    assert_eq!(sdp(&["--strict", "-"], GOOD.as_bytes()).status.code(), Some(0));
    assert_eq!(sdp(&[], b"").status.code(), Some(64));
    assert_eq!(sdp(&["-", "--json", "--fix"], GOOD.as_bytes()).status.code(), Some(64));
}

#[test]
fn people_read_what_where_and_how_to_mend_it() {
    let out = text(&sdp(&["-"], GOOD.as_bytes()).stdout);
    for part in [
        "flow 0 \"camera\"",
        "1920x1080 progressive, 59.94 (60000/1001) frames a second",
        "YCbCr-4:2:2 10 bit, BT709, SDR, NARROW",
        "2.59 Gb/s, 4320 packets a frame, 258941 a second",
        "239.1.1.1:5004 multicast from 192.0.2.1, TTL 64",
        "grandmaster 08-00-11-FF-FE-22-33-44, domain 127",
        "usable: 1 of 1 flows can be received; 0 errors, 0 warnings, 0 notes",
    ] {
        assert!(out.contains(part), "{part:?} is not in\n{out}");
    }
    let out = text(&sdp(&["-"], GOOD.replace("width=1920", "width=wide").as_bytes()).stdout);
    let want = "error: width is `wide`, which is not a number [bad-size]\n  --> standard input:9:39\n  9 | a=fmtp:96 sampling=YCbCr-4:2:2; width=wide; ";
    assert!(out.contains(want), "{out}");
    let lines: Vec<&str> = out.lines().collect();
    let at = lines.iter().position(|l| l.contains("width=wide;")).expect("quoted");
    let column = lines[at].find("wide").expect("there");
    assert_eq!(lines[at + 1].find('^'), Some(column), "the caret stands under the value\n{out}");
    assert!(lines[at + 2].starts_with("  cure: ") && lines[at + 3].starts_with("  rule: ST 2110-20"), "{out}");
    assert!(out.contains("cannot be received: its fmtp parameters cannot be read"), "{out}");
    // A stranger's text does not reach the terminal as control sequences.
    let out = sdp(&["-"], GOOD.replace("s=camera", "s=\u{1b}[2Jcamera").as_bytes()).stdout;
    assert!(!out.contains(&0x1b));
}

#[test]
fn essences_that_are_not_received_are_not_promised() {
    let audio = "m=audio 5006 RTP/AVP 97\r\nc=IN IP4 239.1.1.2/64\r\na=rtpmap:97 L24/48000/2\r\na=ptime:1\r\n\
        a=ts-refclk:ptp=IEEE1588-2008:traceable\r\na=mediaclk:direct=0\r\n";
    let alone = format!("v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=x\r\nt=0 0\r\n{audio}");
    let out = sdp(&["-"], alone.as_bytes());
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert!(said.contains("\n  described well; not received by this version\n"), "{said}");
    assert!(said.contains("\ndescribed well; not received by this version: 1 of 1 flows; 0 errors"), "{said}");
    assert!(!said.contains("can be received"), "{said}");
    let both = text(&sdp(&["-"], format!("{GOOD}{audio}").as_bytes()).stdout);
    let last = "\nusable: 1 of 2 flows can be received; 1 described well; not received by this version; 0 errors";
    assert!(both.contains(last) && both.contains("flow 1 "), "{both}");
}

#[test]
fn closed_output_is_no_crash() {
    for stderr in [false, true] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("x.sdp");
        std::fs::write(&file, GOOD.replace("60000/1001", "59.94")).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gdmedia"));
        command.args(["sdp", "--fix"]).arg(&file).stdin(Stdio::null());
        if stderr {
            command.stdout(Stdio::null()).stderr(writer);
        } else {
            command.stdout(writer).stderr(Stdio::null());
        }
        assert_eq!(command.status().expect("it runs").code(), Some(0));
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gdmedia"));
        command.args(["sdp", "--json"]).arg(&file).stdin(Stdio::null()).stdout(full).stderr(Stdio::null());
        assert_eq!(command.status().expect("it runs").code(), Some(74));
    }
}

#[test]
fn json_has_the_same_shape_for_everything() {
    let foreign = GOOD.replace("raw/90000", "H264/90000");
    let cases: [(&[u8], bool); 5] =
        [(GOOD.as_bytes(), true), (foreign.as_bytes(), false), (b"\0\x01\x02", false), (b"{}", false), (b"", false)];
    for (input, usable) in cases {
        let out = sdp(&["-", "--json"], input);
        let value: Value = serde_json::from_slice(&out.stdout).expect("JSON");
        let object = value.as_object().expect("an object");
        let mut keys: Vec<&str> = object.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["diagnostics", "flows", "usable"]);
        assert_eq!(value["usable"], usable);
        assert_eq!(value["flows"].as_array().expect("a list").iter().any(|f| f["usable"] == true), usable);
        let diagnostics = value["diagnostics"].as_array().expect("a list");
        assert!(usable || !diagnostics.is_empty());
        for d in diagnostics {
            assert!(matches!(d["severity"].as_str(), Some("note" | "warning" | "error")), "{d}");
            for key in ["code", "parameter", "message", "cure", "clause"] {
                assert!(d[key].is_string(), "{key} of {d}");
            }
            assert!(d["line"].is_u64() && d["column"].is_u64());
        }
    }
    let value: Value = serde_json::from_slice(&sdp(&["-", "--json"], GOOD.as_bytes()).stdout).expect("JSON");
    let flow = &value["flows"][0];
    assert_eq!(flow["essence"]["essence"], "video");
    assert_eq!(flow["essence"]["sampling"], "YCbCr-4:2:2");
    assert_eq!(flow["legs"][0]["destination"], "239.1.1.1");
}

#[test]
fn fix_writes_what_then_is_clean() {
    let slips = GOOD
        .replace("t=0 0\r\n", "t=0 0\r\n\r\n# video\r\n")
        .replace("239.1.1.1/64", "239.1.1.1")
        .replace("60000/1001", "59.94")
        .replace("BT709", "BT.709")
        .replace("SSN=ST2110-20:2017", "SSN=\"ST2110-20:2017\"")
        .replace("a=ts-refclk", "a=tsrefclk")
        .replace("direct=0", "direct")
        .replace("08-00-11", "08 00 11");
    assert_eq!(sdp(&["-"], slips.as_bytes()).status.code(), Some(1));
    let out = sdp(&["-", "--fix"], slips.as_bytes());
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("warning: `59.94`"), "the findings go to standard error");
    let fixed = text(&out.stdout);
    for part in
        ["exactframerate=60000/1001", "a=mediaclk:direct=0", "a=x-private:kept", "s=camera", "o=- 1 1 IN IP4 192.0.2.1"]
    {
        assert!(fixed.contains(part), "{part:?} is not in\n{fixed}");
    }
    let again = sdp(&["-", "--strict"], &out.stdout);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stdout));
    // What only the sender knows is left and said.
    let unknown = GOOD.replace("a=ts-refclk", "a=was");
    let out = sdp(&["-", "--fix"], unknown.as_bytes());
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("only the sender knows"), "{}", text(&out.stderr));
    for rate in ["60000000/1", "9000"] {
        let out = sdp(&["-", "--fix"], GOOD.replace("60000/1001", rate).as_bytes());
        let (fixed, said) = (text(&out.stdout), text(&out.stderr));
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(fixed.contains(&format!("exactframerate={rate};")), "{fixed}");
        let left = said.split("only the sender knows").nth(1).expect("something is left");
        assert!(left.contains(&format!("the rate `{rate}` cannot be a frame rate")), "{said}");
    }
    let out = sdp(&["-", "--fix"], b"<html>");
    assert_eq!(out.status.code(), Some(2));
    assert!(out.stdout.is_empty());
}

#[test]
fn what_cannot_be_read_is_refused_with_cause_and_cure() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    std::fs::write(path("empty.sdp"), b"").expect("written");
    std::fs::write(path("big.sdp"), vec![b'a'; 3 << 20]).expect("written");
    std::fs::write(path("good.sdp"), GOOD).expect("written");
    assert_eq!(sdp(&[&path("good.sdp")], b"").status.code(), Some(0));
    let cases = [
        (path("missing.sdp"), 65, "cannot read the SDP"),
        (path(""), 65, "is a folder"),
        (path("empty.sdp"), 65, "is empty"),
        (path("big.sdp"), 65, "holds more than 1024 KiB"),
        ("rtsp://127.0.0.1/x".to_owned(), 64, "scheme rtsp:// is not supported"),
        ("http://".to_owned(), 64, "is not a URL"),
        (format!("http://{}/x.sdp", closed()), 69, "cannot fetch"),
        match cfg!(feature = "daemon") {
            true => (format!("https://{}/x.sdp", closed()), 69, "cannot fetch"),
            false => (format!("https://{}/x.sdp", closed()), 64, "built without HTTPS"),
        },
    ];
    for (from, status, words) in cases {
        for json in [false, true] {
            let args: &[&str] = if json { &[&from, "--json"] } else { &[&from] };
            let out = sdp(args, b"");
            let said = text(&out.stderr);
            assert_eq!(out.status.code(), Some(status), "{from}: {said}");
            assert!(said.contains(words) && said.contains("cure: "), "{from}: {said}");
            if json {
                let value: Value = serde_json::from_slice(&out.stdout).expect("JSON");
                assert_eq!(value["usable"], false);
                assert!(value["diagnostics"][0]["message"].as_str().is_some_and(|m| m.contains(words)), "{value}");
            }
        }
    }
    assert_eq!(sdp(&["-"], b"").status.code(), Some(65), "empty standard input");
}

/// A port of this machine that nobody listens on.
fn closed() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port")
}

/// Answers every request with `answer`, as often as asked.
fn server(times: usize, answer: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for _ in 0..times {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            // The other side closes early when it has read enough.
            let _ = stream.write_all(&answer);
        }
    });
    address
}

#[test]
fn over_http() {
    let ok = |body: &[u8]| {
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        )
        .into_bytes();
        answer.extend_from_slice(body);
        answer
    };
    let out = sdp(&[&format!("http://{}/x/manifest", server(1, ok(GOOD.as_bytes())))], b"");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("\"camera\""));
    let cases: [(Vec<u8>, i32, &str); 5] = [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(), 69, "HTTP status 404"),
        (
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
            69,
            "HTTP status 503",
        ),
        (b"lorem ipsum\r\n\r\n".to_vec(), 69, "cannot fetch"),
        (ok(b""), 65, "is empty"),
        (ok(&vec![b'x'; 3 << 20]), 65, "holds more than 1024 KiB"),
    ];
    for (answer, status, words) in cases {
        let out = sdp(&[&format!("http://{}/x.sdp", server(1, answer))], b"");
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{words}: {said}");
        assert!(said.contains(words) && said.contains("cure: "), "{said}");
    }
}
