//! One row a rule: a slip in a description that is otherwise right, and what must be said of it, where.

use gdmedia_sdp::{Description, Essence, Mode, Severity, SourceFilter, parse};

/// Lines are counted from 1; line 9 is the fmtp line.
const VIDEO: &str = "\
v=0
o=- 1 1 IN IP4 192.0.2.1
s=camera
t=0 0
m=video 5004 RTP/AVP 96
c=IN IP4 239.1.1.1/64
a=source-filter: incl IN IP4 239.1.1.1 192.0.2.1
a=rtpmap:96 raw/90000
a=fmtp:96 sampling=YCbCr-4:2:2; width=1920; height=1080; exactframerate=60000/1001; depth=10; TCS=SDR; colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN
a=ts-refclk:ptp=IEEE1588-2008:08-00-11-FF-FE-22-33-44:127
a=mediaclk:direct=0
";
const AUDIO: &str = "\
v=0
o=- 1 1 IN IP4 192.0.2.1
s=stage box
t=0 0
m=audio 5004 RTP/AVP 97
c=IN IP4 239.1.1.2/64
a=source-filter: incl IN IP4 239.1.1.2 192.0.2.1
a=rtpmap:97 L24/48000/8
a=fmtp:97 channel-order=SMPTE2110.(51,ST)
a=ptime:1
a=ts-refclk:ptp=IEEE1588-2008:08-00-11-FF-FE-22-33-44:127
a=mediaclk:direct=0
";
const ANC: &str = "\
v=0
o=- 1 1 IN IP4 192.0.2.1
s=captions
t=0 0
m=video 5006 RTP/AVP 100
c=IN IP4 239.1.1.3/64
a=source-filter: incl IN IP4 239.1.1.3 192.0.2.1
a=rtpmap:100 smpte291/90000
a=fmtp:100 SSN=ST2110-40:2018; exactframerate=25; DID_SDID={0x61,0x02}
a=ts-refclk:ptp=IEEE1588-2008:08-00-11-FF-FE-22-33-44:127
a=mediaclk:direct=0
";
const PAIR: &str = "\
v=0
o=- 1 1 IN IP4 192.0.2.1
s=pair
t=0 0
a=group:DUP one two
m=audio 5004 RTP/AVP 97
c=IN IP4 239.1.1.1/64
a=source-filter: incl IN IP4 239.1.1.1 192.0.2.1
a=rtpmap:97 L24/48000/2
a=ptime:1
a=ts-refclk:ptp=IEEE1588-2008:08-00-11-FF-FE-22-33-44:127
a=mediaclk:direct=0
a=mid:one
m=audio 5004 RTP/AVP 97
c=IN IP4 239.1.2.1/64
a=source-filter: incl IN IP4 239.1.2.1 192.0.3.1
a=rtpmap:97 L24/48000/2
a=ptime:1
a=ts-refclk:ptp=IEEE1588-2008:08-00-11-FF-FE-22-33-44:127
a=mediaclk:direct=0
a=mid:two
";

/// Replacements, each made once.
type Changes = &'static [(&'static str, &'static str)];

const N: Severity = Severity::Note;
const W: Severity = Severity::Warning;
const E: Severity = Severity::Error;

fn read(text: &str) -> Description {
    parse(text.as_bytes(), Mode::Lenient)
}

#[test]
fn the_descriptions_without_a_slip_are_silent() {
    for text in [VIDEO, AUDIO, ANC, PAIR] {
        for text in [text.to_owned(), text.replace('\n', "\r\n")] {
            let d = read(&text);
            assert!(d.usable && d.diagnostics.is_empty(), "{:#?}", d.diagnostics);
            let d = parse(text.as_bytes(), Mode::Strict);
            assert!(d.usable && d.diagnostics.is_empty(), "{:#?}", d.diagnostics);
        }
    }
}

/// Replaces `from` by `to` and expects this finding at this line and, where it is not 0, column; and no graver one.
#[track_caller]
fn row(base: &str, from: &str, to: &str, severity: Severity, code: &str, line: u32, column: u32) -> Description {
    assert!(base.contains(from), "{from:?} is not in the text");
    let text = base.replacen(from, to, 1);
    let d = read(&text);
    let hit = |d: &&gdmedia_sdp::Diagnostic| {
        d.code == code && d.line == line && d.severity == severity && (column == 0 || d.column == column)
    };
    let found = d.diagnostics.iter().find(hit);
    assert!(found.is_some(), "{from:?} -> {to:?}: no {code} at {line}:{column} in {:#?}", d.diagnostics);
    assert!(d.worst() <= Some(severity), "{from:?} -> {to:?}: graver: {:#?}", d.diagnostics);
    assert_eq!(d.usable, severity < E, "{from:?} -> {to:?}: usable");
    d
}

#[test]
fn text_and_lines() {
    let rows: &[(&str, &str, Severity, &str, u32, u32)] = &[
        ("v=0", "\u{feff}v=0", W, "encoding", 1, 1),
        ("v=0", "HTTP/1.1 200 OK\nContent-Type: application/sdp\n\nv=0", W, "text-before-sdp", 1, 0),
        ("v=0", "```\nv=0", W, "text-before-sdp", 1, 0),
        ("t=0 0\n", "t=0 0\n\n", W, "blank-line", 5, 0),
        ("t=0 0\n", "t=0 0\n# the camera\n", W, "comment", 5, 0),
        ("t=0 0\n", "t=0 0\nnonsense here\n", W, "not-a-line", 5, 1),
        ("t=0 0\n", "t=0 0\ny=unknown\n", W, "unknown-letter", 5, 1),
        ("t=0 0", "  t=0 0", W, "indented-line", 4, 1),
        ("t=0 0", "T=0 0", W, "letter-case", 4, 1),
        ("t=0 0", "t = 0 0", W, "blank-around-equals", 4, 2),
        ("t=0 0", "t:0 0", W, "colon-for-equals", 4, 2),
        ("t=0 0", "t=0\t0", W, "tab", 4, 0),
        ("t=0 0", "t=0 \u{1}0", W, "control-character", 4, 0),
        ("a=mediaclk", "mediaclk", W, "missing-letter", 11, 1),
        ("; depth=10;", "; \n  depth=10;", W, "folded-line", 10, 3),
        ("TP=2110TPN\n", "TP=2110TPN a=ts-refclk:ptp=IEEE1588-2008:traceable\n", W, "glued-lines", 9, 0),
        ("TP=2110TPN\n", "TP=2110TPN;ts-refclk:ptp=IEEE1588-2008:traceable\n", W, "glued-lines", 9, 0),
    ];
    for &(from, to, severity, code, line, column) in rows {
        let d = row(VIDEO, from, to, severity, code, line, column);
        assert_eq!(d.flows.len(), 1, "{to}");
        assert!(matches!(&d.flows[0].essence, Essence::Video(v) if v.width == 1920), "{to}");
    }
    // What carries no information for a receiver is silent.
    for (from, to) in [("TP=2110TPN\n", "TP=2110TPN; \n"), ("direct=0\n", "direct=0\n\n\n"), ("direct=0\n", "direct=0")]
    {
        assert!(read(&VIDEO.replacen(from, to, 1)).diagnostics.is_empty(), "{to:?}");
    }
}

#[test]
fn encodings_and_line_ends() {
    let utf16: Vec<u8> = std::iter::once(0xFEFFu16).chain(VIDEO.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let mut texts = vec![utf16, VIDEO.replace('\n', "\r").into_bytes(), VIDEO.trim().replace('\n', " ").into_bytes()];
    texts.push(
        format!("{{\"data\": \"{}\", \"type\": \"application/sdp\"}}", VIDEO.replace('\n', "\\r\\n")).into_bytes(),
    );
    texts.push(VIDEO.replace("camera", "cam\u{e9}ra").chars().map(|c| c as u8).collect());
    let codes = ["encoding", "line-ends", "line-ends", "escaped-line-ends", "encoding"];
    for (text, code) in texts.iter().zip(codes) {
        let d = parse(text, Mode::Lenient);
        assert!(d.usable, "{code}: {:#?}", d.diagnostics);
        assert_eq!(d.diagnostics.iter().map(|d| d.code).collect::<Vec<_>>(), [code]);
        assert_eq!(d.worst(), Some(W));
    }
    // Escaped: the column is that of the one line there is.
    let escaped = VIDEO.replace("width=1920", "width=wide").replace('\n', "\\n");
    let d = parse(escaped.as_bytes(), Mode::Lenient);
    let at = escaped.find("wide").expect("there") as u32 + 1;
    assert!(d.diagnostics.iter().any(|d| d.code == "bad-size" && (d.line, d.column) == (1, at)));
}

#[test]
fn input_that_is_no_sdp_is_named() {
    let cases: [(&[u8], &str); 11] = [
        (b"", "empty"),
        (b" \r\n ", "blanks"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"<?xml version=\"1.0\"?>", "XML"),
        (b"{\"a\": 1}", "JSON"),
        (b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0", "capture"),
        (b"\x0a\x0d\x0d\x0a\x1c\0\0\0", "capture"),
        (b"\x89PNG\r\n\x1a\n", "picture"),
        (b"\x1f\x8b\x08\0\0", "gzip"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "binary"),
        (b"hello world", "text"),
    ];
    for (input, word) in cases {
        let d = parse(input, Mode::Lenient);
        assert!(!d.usable && d.flows.is_empty());
        assert_eq!(d.diagnostics.len(), 1, "{word}: {:?}", d.diagnostics);
        assert_eq!((d.diagnostics[0].code, d.diagnostics[0].severity), ("not-sdp", E));
        assert!(d.diagnostics[0].message.contains(word), "{:?} lacks {word}", d.diagnostics[0].message);
    }
    let d = read("v=0\no=- 1 1 IN IP4 192.0.2.1\ns=x\nt=0 0\n");
    assert_eq!(d.diagnostics.iter().map(|d| d.code).collect::<Vec<_>>(), ["no-media"]);
}

#[test]
fn session_lines() {
    let rows: &[(&str, &str, Severity, &str, u32, u32)] = &[
        ("v=0\n", "", W, "missing-line", 1, 0),
        ("v=0", "v=1", W, "version", 1, 3),
        ("o=- 1 1 IN IP4 192.0.2.1\n", "", W, "missing-line", 1, 0),
        ("s=camera\n", "", W, "missing-line", 1, 0),
        ("t=0 0\n", "", W, "missing-line", 1, 0),
        ("s=camera", "s=", W, "session-name", 3, 1),
        ("s=camera\nt=0 0", "t=0 0\ns=camera", W, "line-order", 4, 1),
        ("s=camera", "s=camera\ns=again", W, "repeated-line", 4, 1),
        ("t=0 0", "t=now forever", W, "time", 4, 3),
        ("t=0 0", "t=2873397496 2873404696", N, "time", 4, 3),
        ("o=- 1 1 IN IP4 192.0.2.1", "o=- 1 IN IP4 192.0.2.1", W, "origin", 2, 3),
        ("o=- 1 1 IN IP4 192.0.2.1", "o=- one 1 IN IP4 192.0.2.1", W, "origin", 2, 5),
        ("o=- 1 1 IN IP4 192.0.2.1", "o=- 1 1 IN IP6 192.0.2.1", W, "origin", 2, 12),
        ("o=- 1 1 IN IP4 192.0.2.1", "o=- 1 1 IN IP4 10.xx.1.2", W, "origin", 2, 16),
        ("a=mediaclk:direct=0\n", "a=mediaclk:direct=0\nt=0 0\n", W, "line-order", 12, 1),
        ("a=mediaclk:direct=0\n", "a=mediaclk:direct=0\nv=0\nm=video 1 RTP/AVP 96\n", W, "second-description", 12, 1),
        ("c=IN", "b=AS:fast\nc=IN", W, "bandwidth", 6, 3),
    ];
    for &(from, to, severity, code, line, column) in rows {
        row(VIDEO, from, to, severity, code, line, column);
    }
    for good in ["o=camera 18446744073709551615 1 IN IP4 camera.example.com", "o=- 0 0 IN IP6 2001:db8::1"] {
        assert!(read(&VIDEO.replace("o=- 1 1 IN IP4 192.0.2.1", good)).diagnostics.is_empty(), "{good}");
    }
    assert!(read(&VIDEO.replace("s=camera", "s= ")).diagnostics.is_empty());
}

#[test]
fn media_lines() {
    let rows: &[(&str, &str, Severity, &str, u32, u32)] = &[
        ("m=video 5004", "m=video 70000", E, "port", 5, 9),
        ("m=video 5004", "m=video port", E, "port", 5, 9),
        ("m=video 5004", "m=video -1", E, "port", 5, 9),
        ("m=video 5004", "m=video 0", E, "port", 5, 9),
        ("m=video 5004 RTP", "m=video RTP", E, "port", 5, 9),
        ("m=video 5004", "m=video 5004/2", W, "port", 5, 9),
        ("m=video 5004", "m=video 80", N, "port", 5, 9),
        ("m=video", "m=Video", W, "media-type", 5, 3),
        ("m=video", "m=vidoe", W, "media-type", 5, 3),
        ("m=video", "m=audio", W, "media-type", 5, 1),
        ("RTP/AVP 96", "rtp/avp 96", W, "protocol", 5, 14),
        ("RTP/AVP 96", "96", W, "protocol", 5, 9),
        ("RTP/AVP 96", "RTP/AVP", W, "payload-type", 5, 1),
        ("RTP/AVP 96", "RTP/AVP 200", W, "payload-type", 5, 22),
        ("RTP/AVP 96", "RTP/AVP 97", W, "payload-type", 8, 3),
        ("RTP/AVP 96", "RTP/AVP 96 97", W, "several-payload-types", 5, 1),
    ];
    for &(from, to, severity, code, line, column) in rows {
        row(VIDEO, from, to, severity, code, line, column);
    }
    let low = VIDEO.replace("AVP 96", "AVP 72").replace(":96 ", ":72 ");
    let d = read(&low);
    assert!(d.diagnostics.iter().any(|d| d.code == "payload-type-range" && d.line == 5 && d.column == 22));
    let out = VIDEO.replace("AVP 96", "AVP 200").replace(":96 ", ":200 ");
    let d = read(&out);
    assert!(!d.usable && d.diagnostics.iter().any(|d| d.code == "payload-type" && d.severity == E));
    // The m= line decides which packets are taken.
    assert_eq!(read(&VIDEO.replace("AVP 96", "AVP 97")).flows[0].payload_type, 97);
}

#[test]
fn connections() {
    let rows: &[(&str, &str, Severity, &str, u32, u32)] = &[
        ("c=IN IP4 239.1.1.1/64\n", "", W, "missing-connection", 5, 0),
        ("239.1.1.1/64", "239.1.1.1", W, "ttl", 6, 10),
        ("239.1.1.1/64", "239.1.1.1/300", W, "ttl", 6, 10),
        ("239.1.1.1/64", "239.1.1.1/0", W, "ttl", 6, 10),
        ("239.1.1.1/64", "239.1.1.1/x", W, "ttl", 6, 10),
        ("239.1.1.1/64", "239.1.1.1 /64", W, "address", 6, 20),
        ("239.1.1.1/64", "239.1.1.1/64/1", N, "ttl", 6, 10),
        ("239.1.1.1/64", "239.1.1.1/64/3", W, "address-count", 6, 10),
        ("239.1.1.1/64", "239.001.001.001/64", W, "address", 6, 10),
        ("239.1.1.1/64", "239.1.1.1:5004", W, "address", 6, 10),
        ("239.1.1.1/64", "239.x.x.x/64", E, "address", 6, 10),
        ("239.1.1.1/64", "239.1.1.256/64", E, "address", 6, 10),
        ("239.1.1.1/64", "239.1.1/64", E, "address", 6, 10),
        ("239.1.1.1/64", "cam.example.com", E, "address", 6, 10),
        ("c=IN IP4 239.1.1.1/64", "c=IN IP4", E, "address", 6, 3),
        ("c=IN IP4", "c=IN IPV4", W, "address-type", 6, 6),
        ("c=IN IP4", "c=in ip4", W, "address-type", 6, 6),
        ("c=IN IP4", "c=IN", W, "address-type", 6, 3),
        ("c=IN IP4", "c=IN IP6", W, "address-type", 6, 6),
        ("c=IN IP4 ", "c=", W, "address-type", 6, 3),
        ("c=IN IP4 239.1.1.1/64", "c=IN IP4 239.1.1.1/64\nc=IN IP4 239.9.9.9/64", W, "repeated-line", 7, 1),
    ];
    for &(from, to, severity, code, line, column) in rows {
        let d = row(VIDEO, from, to, severity, code, line, column);
        if severity < E && code != "missing-connection" {
            assert_eq!(d.flows[0].legs[0].destination.to_string(), "239.1.1.1", "{to}");
        }
    }
    for (group, code) in
        [("224.0.0.5", "reserved-group"), ("224.0.1.9", "reserved-group"), ("250.1.1.1", "reserved-address")]
    {
        let d = read(&VIDEO.replace("239.1.1.1", group));
        assert!(d.usable && d.diagnostics.iter().any(|d| d.code == code && d.line == 6), "{group}");
    }
    let unicast = VIDEO.replace("239.1.1.1/64", "192.0.2.7").replace("239.1.1.1", "192.0.2.7");
    assert!(read(&unicast).diagnostics.is_empty());
    let d = read(&unicast.replace("c=IN IP4 192.0.2.7", "c=IN IP4 192.0.2.7/24"));
    assert_eq!(d.diagnostics.iter().map(|d| (d.code, d.line)).collect::<Vec<_>>(), [("ttl", 6)]);
    let six =
        VIDEO.replace("IP4 239.1.1.1/64", "IP6 ff3e::1").replace("IP4 239.1.1.1 192.0.2.1", "IP6 ff3e::1 2001:db8::1");
    assert!(read(&six).diagnostics.is_empty(), "{:#?}", read(&six).diagnostics);
    let d = read(&six.replace("c=IN IP6 ff3e::1", "c=IN IP6 ff3e::1/64/2"));
    assert!(d.diagnostics.iter().any(|d| d.code == "ttl" && d.line == 6), "IPv6 has no TTL");
}

#[test]
fn source_filters() {
    let line = "a=source-filter: incl IN IP4 239.1.1.1 192.0.2.1";
    let cases: &[(&str, Severity, &str, &str)] = &[
        ("a=source-filter:incl IN IP4 239.1.1.1 192.0.2.1", N, "source-filter-blank", "192.0.2.1"),
        ("a=source-filter: incl  IN  IP4   239.1.1.1  192.0.2.1", N, "source-filter-blank", "192.0.2.1"),
        ("a=source-filter: incl IN IP4 239.1.1.1", W, "source-filter-empty", ""),
        ("a=source-filter: incl IN IP4 239.1.1.2 192.0.2.1", W, "source-filter-destination", "192.0.2.1"),
        ("a=source-filter: include IN IP4 239.1.1.1 192.0.2.1", W, "source-filter", "192.0.2.1"),
        ("a=source-filter: IN IP4 239.1.1.1 192.0.2.1", W, "source-filter", "192.0.2.1"),
        ("a=source-filter: incl 239.1.1.1 192.0.2.1", W, "source-filter", "192.0.2.1"),
        ("a=source-filter: incl IN IP4 239.1.1.1/64 192.0.2.1", W, "source-filter", "192.0.2.1"),
        ("a=source-filter: incl IN IP4 239.1.1.1 239.2.2.2", W, "source-filter", ""),
        ("a=source-filter: incl IN IP4 239.1.1.1 192.0.2.300", W, "source-filter", ""),
        ("a=source-filter: incl IN * 239.1.1.1 cam.example.com", W, "source-filter", ""),
        ("a=source_filter: incl IN IP4 239.1.1.1 192.0.2.1", W, "attribute-name", "192.0.2.1"),
        ("a=recvonly", N, "no-source-filter", ""),
    ];
    for &(to, severity, code, source) in cases {
        let at = if code == "no-source-filter" { 5 } else { 7 };
        let d = row(VIDEO, line, to, severity, code, at, 0);
        let want = match source {
            "" => SourceFilter::Any,
            source => SourceFilter::Include(vec![source.parse().expect("address")]),
        };
        assert_eq!(d.flows[0].legs[0].sources, want, "{to}");
    }
    for (to, want) in [
        (
            "a=source-filter: incl IN IP4 * 192.0.2.1",
            SourceFilter::Include(vec!["192.0.2.1".parse().expect("address")]),
        ),
        (
            "a=source-filter: excl IN IP4 239.1.1.1 192.0.2.9",
            SourceFilter::Exclude(vec!["192.0.2.9".parse().expect("address")]),
        ),
        (
            "a=source-filter: incl IN IP4 239.1.1.1 192.0.2.1 192.0.2.2",
            SourceFilter::Include(vec!["192.0.2.1".parse().expect("address"), "192.0.2.2".parse().expect("address")]),
        ),
    ] {
        let d = read(&VIDEO.replace(line, to));
        assert!(d.diagnostics.is_empty(), "{to}: {:#?}", d.diagnostics);
        assert_eq!(d.flows[0].legs[0].sources, want);
    }
    // Session level: for every medium without its own, by destination or `*`.
    for target in ["239.1.1.1", "*"] {
        let moved = VIDEO
            .replace(&format!("{line}\n"), "")
            .replace("t=0 0\n", &format!("t=0 0\na=source-filter: incl IN IP4 {target} 192.0.2.1\n"));
        let d = read(&moved);
        assert!(d.diagnostics.is_empty(), "{target}: {:#?}", d.diagnostics);
        assert_ne!(d.flows[0].legs[0].sources, SourceFilter::Any);
    }
}

#[test]
fn rtpmap_and_fmtp_lines() {
    let rows: &[(&str, &str, Severity, &str, u32, u32)] = &[
        ("a=rtpmap:96 raw/90000\n", "", W, "missing-rtpmap", 5, 0),
        ("raw/90000", "raw/48000", W, "rtpmap-clock", 8, 13),
        ("raw/90000", "raw", W, "rtpmap-clock", 8, 13),
        ("raw/90000", "raw/fast", W, "rtpmap", 8, 13),
        ("raw/90000", "raw / 90000", W, "rtpmap", 8, 10),
        ("rtpmap:96 raw/90000", "rtpmap:raw/90000", W, "rtpmap", 8, 10),
        ("rtpmap", "rtmap", W, "attribute-name", 8, 3),
        ("rtpmap", "RTPMAP", W, "attribute-name", 8, 3),
        ("a=rtpmap:96 raw/90000", "a=rtpmap:96 raw/90000\na=rtpmap:96 raw/90000", W, "repeated-rtpmap", 9, 3),
        ("a=fmtp:96", "a=fmtp:97", W, "fmtp-payload-type", 9, 8),
        ("a=fmtp:96 ", "a=fmtp: ", W, "fmtp-payload-type", 9, 8),
        ("a=fmtp", "a=ftmp", W, "attribute-name", 9, 3),
        ("; TP=2110TPN\n", "\na=fmtp:96 TP=2110TPN\n", W, "repeated-fmtp", 10, 3),
        ("; depth=10", " depth=10", W, "missing-separator", 9, 84),
        ("; depth=10", ", depth=10", W, "missing-separator", 9, 85),
        ("; depth=10", ";; depth=10", W, "empty-parameter", 9, 84),
        ("width=1920", "width = 1920", W, "parameter-syntax", 9, 39),
        ("width=1920", "width:1920", W, "parameter-syntax", 9, 38),
        ("width=1920", "width=\"1920\"", W, "parameter-syntax", 9, 39),
        ("width=1920", "Width=1920", W, "parameter-case", 9, 33),
        ("width=1920", "width=1920; width=1280", W, "repeated-parameter", 9, 45),
        ("width=1920", "width=1920; lens=wide", N, "unknown-parameter", 9, 45),
        ("; depth", ";depth", N, "separator-blank", 9, 84),
    ];
    for &(from, to, severity, code, line, column) in rows {
        let d = row(VIDEO, from, to, severity, code, line, column);
        assert!(matches!(&d.flows[0].essence, Essence::Video(v) if (v.width, v.depth.bits()) == (1920, 10)), "{to}");
        assert_eq!(d.flows[0].clock_rate, 90_000);
    }
}

#[test]
fn video_parameters() {
    let rows: &[(&str, &str, Severity, &str, u32)] = &[
        ("sampling=YCbCr-4:2:2; ", "", E, "missing-parameter", 3),
        ("sampling=YCbCr-4:2:2; ", "sampling=; ", E, "missing-parameter", 3),
        ("depth=10; ", "depth; ", E, "missing-parameter", 3),
        ("depth=10; ", "depth=; ", E, "missing-parameter", 3),
        ("width=1920; ", "", E, "missing-parameter", 3),
        ("exactframerate=60000/1001; ", "", W, "missing-parameter", 3),
        ("colorimetry=BT709; ", "", W, "missing-parameter", 3),
        ("PM=2110GPM; ", "", W, "missing-parameter", 3),
        ("SSN=ST2110-20:2017; ", "", W, "missing-parameter", 3),
        ("; TP=2110TPN", "", W, "missing-parameter", 3),
        ("YCbCr-4:2:2", "YCbCr4:2:2", W, "unknown-value", 20),
        ("YCbCr-4:2:2", "ycbcr-4:2:2", W, "unknown-value", 20),
        ("YCbCr-4:2:2", "YUV-4:2:2", W, "unknown-value", 20),
        ("YCbCr-4:2:2", "4:2:2", W, "unknown-value", 20),
        ("YCbCr-4:2:2", "BGRA", E, "unknown-value", 20),
        ("YCbCr-4:2:2", "YCbCr-4:1:1", E, "unknown-value", 20),
        ("YCbCr-4:2:2", "colourful", E, "unknown-value", 20),
        ("depth=10", "depth=10bit", W, "unknown-value", 91),
        ("depth=10", "depth=9", E, "unknown-value", 91),
        ("width=1920", "width=0", E, "bad-size", 39),
        ("width=1920", "width=-1920", E, "bad-size", 39),
        ("width=1920", "width=40000", E, "bad-size", 39),
        ("width=1920", "width=wide", E, "bad-size", 39),
        ("width=1920", "width=1920px", W, "unknown-value", 39),
        ("width=1920", "width=1919", W, "odd-size", 39),
        ("60000/1001", "59.94", W, "framerate", 73),
        ("60000/1001", "6000/1001", W, "framerate-unusual", 73),
        ("60000/1001", "0", W, "framerate", 73),
        ("60000/1001", "60/0", W, "framerate", 73),
        ("BT709", "BT.709", W, "unknown-value", 116),
        ("BT709", "BT709-2", W, "unknown-value", 116),
        ("BT709", "Rec709", W, "unknown-value", 116),
        ("BT709", "nice", W, "unknown-value", 116),
        ("TCS=SDR", "TCS=hdr", W, "unknown-value", 99),
        ("TCS=SDR", "TCS=sdr", W, "value-case", 99),
        ("TCS=SDR", "TCS=LINEAR", W, "tcs-depth", 99),
        ("TCS=SDR", "TCS=PQ", W, "tcs-colorimetry", 115),
        ("PM=2110GPM", "PM=GPM", W, "unknown-value", 126),
        ("PM=2110GPM", "PM=2110XPM", W, "unknown-value", 126),
        ("SSN=ST2110-20:2017", "SSN=ST2110-20:2021", W, "ssn", 139),
        ("SSN=ST2110-20:2017", "SSN=ST2110-20:2022", N, "ssn", 139),
        ("TP=2110TPN", "TP=TPN", W, "unknown-value", 158),
        ("TP=2110TPN", "TP=2110TPX", W, "unknown-value", 158),
        ("TP=2110TPN", "TP=2110TPN; interlaced", W, "flag", 167),
        ("TP=2110TPN", "TP=2110TPN; progressive", W, "flag", 167),
        ("TP=2110TPN", "TP=2110TPN; interlace=0", W, "flag", 167),
        ("TP=2110TPN", "TP=2110TPN; segmented", W, "flag", 167),
        ("TP=2110TPN", "TP=2110TPN; interlace", W, "interlace-rate", 73),
        ("TP=2110TPN", "TP=2110TPN; RANGE=WIDE", W, "unknown-value", 173),
        ("TP=2110TPN", "TP=2110TPN; PAR=1", W, "par", 171),
        ("TP=2110TPN", "TP=2110TPN; PAR=0:1", W, "par", 171),
        ("TP=2110TPN", "TP=2110TPN; PAR=12/11", W, "par", 171),
        ("TP=2110TPN", "TP=2110TPN; MAXUDP=9000", W, "maxudp", 174),
        ("TP=2110TPN", "TP=2110TPN; MAXUDP=100", W, "maxudp", 174),
        ("TP=2110TPN", "TP=2110TPN; MAXUDP=big", W, "maxudp", 174),
        ("TP=2110TPN", "TP=2110TPN; MAXUDP=8960", N, "maxudp", 167),
        ("TP=2110TPN", "TP=2110TPN; TROFF=-1", W, "bad-number", 173),
        ("TP=2110TPN", "TP=2110TPN; TROFF=20000", W, "troff", 173),
        ("TP=2110TPN", "TP=2110TPN; CMAX=0", W, "bad-number", 172),
        ("TP=2110TPN", "TP=2110TPN; TSMODE=OLD", W, "unknown-value", 174),
        ("TP=2110TPN", "TP=2110TPN; TSDELAY=soon", W, "bad-number", 175),
    ];
    for &(from, to, severity, code, column) in rows {
        row(VIDEO, from, to, severity, code, 9, column);
    }
    // A second slip does not hide the first; both are needed for these.
    let two: &[(Changes, Severity, &str)] = &[
        (&[("YCbCr-4:2:2", "YCbCr-4:2:0"), ("depth=10", "depth=16")], E, "no-pgroup"),
        (&[("YCbCr-4:2:2", "XYZ"), ("BT709", "XYZ")], E, "no-pgroup"),
        (
            &[("YCbCr-4:2:2", "YCbCr-4:2:0"), ("TP=2110TPN", "TP=2110TPN; interlace"), ("60000/1001", "25")],
            E,
            "interlaced-420",
        ),
        (&[("YCbCr-4:2:2", "YCbCr-4:2:0"), ("height=1080", "height=1081")], W, "odd-size"),
        (&[("YCbCr-4:2:2", "KEY"), ("BT709", "ALPHA"), ("2110-20:2017", "2110-20:2022")], W, "key-tcs"),
        (&[("YCbCr-4:2:2", "KEY"), ("TCS=SDR; ", "")], W, "key-alpha"),
        (&[("YCbCr-4:2:2", "KEY"), ("TCS=SDR; ", ""), ("BT709", "ALPHA")], W, "ssn"),
        (&[("PM=2110GPM", "PM=2110BPM"), ("TP=2110TPN", "TP=2110TPN; MAXUDP=8960")], W, "maxudp"),
        (&[("PM=2110GPM", "PM=2110BPM"), ("depth=10", "depth=16")], W, "bpm-pgroup"),
        (&[("BT709", "BT2100"), ("TP=2110TPN", "TP=2110TPN; RANGE=FULLPROTECT")], W, "range"),
        (
            &[("height=1080", "height=720"), ("60000/1001", "25"), ("TP=2110TPN", "TP=2110TPN; interlace")],
            W,
            "interlaced-720",
        ),
    ];
    for (changes, severity, code) in two {
        let text = changes.iter().fold(VIDEO.to_owned(), |text, (from, to)| text.replacen(from, to, 1));
        let d = read(&text);
        let hit = d.diagnostics.iter().find(|d| d.code == *code && d.severity == *severity && d.line == 9);
        assert!(hit.is_some(), "{changes:?}: {:#?}", d.diagnostics);
        assert_eq!(d.usable, *severity < E, "{changes:?}");
    }
    // And these are right as they are.
    let right: &[Changes] = &[
        &[("TP=2110TPN", "TP=2110TPW; MAXUDP=1460")],
        &[("60000/1001", "30000/1001"), ("TP=2110TPN", "TP=2110TPN; interlace")],
        &[("60000/1001", "24000/1001"), ("TP=2110TPN", "TP=2110TPNL; interlace; segmented; RANGE=FULL; PAR=12:11")],
        &[("YCbCr-4:2:2", "KEY"), ("TCS=SDR; ", ""), ("BT709", "ALPHA"), ("2110-20:2017", "2110-20:2022")],
        &[("YCbCr-4:2:2", "RGB"), ("depth=10", "depth=16f"), ("TCS=SDR", "TCS=LINEAR"), ("BT709", "ST2065-1")],
        &[("TP=2110TPN", "TP=2110TPN; TROFF=638; CMAX=4; TSMODE=SAMP; TSDELAY=0")],
        &[("BT709", "BT2100"), ("TCS=SDR", "TCS=HLG")],
    ];
    for changes in right {
        let text = changes.iter().fold(VIDEO.to_owned(), |text, (from, to)| text.replacen(from, to, 1));
        let d = read(&text);
        assert!(d.usable && d.diagnostics.is_empty(), "{changes:?}: {:#?}", d.diagnostics);
    }
}

#[test]
fn clocks() {
    let line = "ptp=IEEE1588-2008:08-00-11-FF-FE-22-33-44:127";
    let rows: &[(&str, Severity, &str, u32)] = &[
        ("ptp=traceable", W, "ts-refclk", 17),
        ("ptp=IEEE1588-2008", W, "ts-refclk", 17),
        ("ptp=IEEE1588-2007:08-00-11-FF-FE-22-33-44:127", W, "ts-refclk", 17),
        ("ptp=IEEE1588-2008:08-00-11-FF-FE-22-33-44", W, "ptp-domain", 31),
        ("ptp=IEEE1588-2008:08-00-11-FF-FE-22-33-44:200", W, "ptp-domain", 55),
        ("ptp=IEEE1588-2008:08-00-11-FF-FE-22-33-44:00", N, "ptp-domain", 55),
        ("ptp=IEEE1588-2008:08-00-11-ff-fe-22-33-44:127", N, "hex-case", 31),
        ("ptp=IEEE1588-2008:08 00 11 FF FE 22 33 44:127", W, "hex-form", 31),
        ("ptp=IEEE1588-2008:08:00:11:FF:FE:22:33:44:127", W, "hex-form", 31),
        ("ptp=IEEE1588-2008:080011FFFE223344:127", W, "hex-form", 31),
        ("ptp=IEEE1588-2008:08-00-11-22-33-44:127", W, "ptp-grandmaster", 31),
        ("ptp=IEEE1588-2008:zz-00-11-FF-FE-22-33-44:127", W, "ptp-grandmaster", 31),
        ("ptp=IEEE1588-2008:00-00-00-00-00-00-00-00:0", W, "ptp-grandmaster", 31),
        ("localmac=40-a3-6b-a0-2b-d2", N, "hex-case", 13),
        ("localmac=40:A3:6B:A0:2B:D2", W, "hex-form", 13),
        ("localmac=40-A3-6B", W, "ts-refclk", 13),
        ("ntp=/traceable/", W, "ts-refclk", 13),
        ("local", W, "ts-refclk", 13),
        ("sundial", W, "ts-refclk", 13),
    ];
    for &(to, severity, code, column) in rows {
        let column = if column == 17 { 17 } else { column };
        row(VIDEO, line, to, severity, code, 10, column);
    }
    for right in
        ["ptp=IEEE1588-2008:traceable", "localmac=40-A3-6B-A0-2B-D2", "ptp=IEEE1588-2019:08-00-11-FF-FE-22-33-44:0"]
    {
        let d = read(&VIDEO.replace(line, right));
        assert!(d.diagnostics.is_empty(), "{right}: {:#?}", d.diagnostics);
    }
    row(VIDEO, "a=ts-refclk:ptp=IEEE1588-2008:08-00-11-FF-FE-22-33-44:127\n", "", W, "missing-ts-refclk", 5, 0);
    row(VIDEO, "a=mediaclk:direct=0\n", "", W, "missing-mediaclk", 5, 0);
    row(VIDEO, "a=ts-refclk", "a=tsrefclk", W, "attribute-name", 10, 3);
    let rows: &[(&str, Severity, &str)] = &[
        ("mediaclk:direct", W, "mediaclk"),
        ("mediaclk:direct=7", W, "mediaclk-offset"),
        ("mediaclk:direct=x", W, "mediaclk"),
        ("mediaclk:direct=0 rate=90000", N, "mediaclk-rate"),
        ("mediaclk:direct=0 rate=48000", W, "mediaclk-rate"),
        ("mediaclk:id=MDA6NjA= sender", N, "mediaclk"),
        ("mediaclk:wall", W, "mediaclk"),
    ];
    for &(to, severity, code) in rows {
        row(VIDEO, "mediaclk:direct=0", to, severity, code, 11, 0);
    }
    row(AUDIO, "mediaclk:direct=0", "mediaclk:direct=2911906980", N, "mediaclk-offset", 12, 12);
    assert!(read(&VIDEO.replace("direct=0", "sender")).diagnostics.is_empty());
}

#[test]
fn audio() {
    let rows: &[(&str, &str, Severity, &str, u32, u32)] = &[
        ("a=ptime:1\n", "", W, "missing-ptime", 9, 0),
        ("ptime:1", "ptime:0", W, "ptime", 10, 9),
        ("ptime:1", "ptime:short", W, "ptime", 10, 9),
        ("ptime:1", "ptime:1ms", W, "ptime", 10, 9),
        ("ptime:1", "ptime:0,125", W, "ptime", 10, 9),
        ("ptime:1", "ptime:125", W, "ptime", 10, 9),
        ("ptime:1", "ptime:2", W, "packet-size", 10, 9),
        ("ptime:1", "ptime:0.5", W, "ptime-unusual", 10, 9),
        ("ptime:1", "ptime:1\na=framecount:6", W, "framecount", 11, 14),
        ("ptime:1", "ptime:1\na=maxptime:0.125", W, "maxptime", 11, 12),
        ("L24/48000/8", "L24/48000/0", E, "channels", 8, 3),
        ("L24/48000/8", "L24/48000", W, "channels", 8, 3),
        ("L24/48000/8", "L24/32000/8", W, "sampling-rate", 8, 3),
        ("L24/48000/8", "L24/48000/6", W, "channel-order", 9, 25),
        ("L24/48000/8", "L24//8", W, "rtpmap-clock", 8, 13),
        ("SMPTE2110.(51,ST)", "SMPTE2110.(51,XX)", W, "channel-order", 9, 25),
        ("SMPTE2110.(51,ST)", "51,ST", W, "channel-order", 9, 25),
        ("SMPTE2110.(51,ST)", "SMPTE2110.51", W, "channel-order", 9, 25),
        ("SMPTE2110.(51,ST)", "SMPTE2110.(51)", N, "channel-order", 9, 25),
        ("SMPTE2110.(51,ST)", "SVIP.(ST)", N, "channel-order", 9, 25),
        ("m=audio", "m=video", W, "media-type", 5, 1),
    ];
    for &(from, to, severity, code, line, column) in rows {
        row(AUDIO, from, to, severity, code, line, column);
    }
    let samples = |text: &str| match &read(text).flows[0].essence {
        Essence::Audio(a) | Essence::Aes3(a) => a.samples_per_packet,
        other => panic!("{other:?}"),
    };
    for (ptime, n) in [("1", 48), ("1.000", 48), ("0.125", 6), ("0.12", 6), ("0.25", 12), ("0.333", 16), ("125", 6)] {
        assert_eq!(samples(&AUDIO.replace("ptime:1", &format!("ptime:{ptime}"))), Some(n), "{ptime}");
    }
    let am824 = AUDIO.replace("L24/48000/8", "AM824/48000/6").replace("(51,ST)", "(AES3,AES3,AES3)");
    assert!(read(&am824).diagnostics.is_empty(), "{:#?}", read(&am824).diagnostics);
    row(&am824, "ptime:1", "ptime:0.125", W, "ptime-form", 10, 9);
    row(&am824, "AM824/48000/6", "AM824/48000/7", W, "channels", 8, 3);
    let cd = AUDIO.replace("L24/48000/8", "L16/44100/8").replace("ptime:1", "ptime:1.08843537415");
    assert!(read(&cd).diagnostics.is_empty(), "{:#?}", read(&cd).diagnostics);
    assert_eq!(samples(&cd), Some(48));
}

#[test]
fn data_and_compressed() {
    let fmtp = "a=fmtp:100 SSN=ST2110-40:2018; exactframerate=25; DID_SDID={0x61,0x02}";
    let rows: &[(&str, &str, Severity, &str, u32, u32)] = &[
        (fmtp, "a=recvonly", W, "missing-parameter", 8, 0),
        (fmtp, "a=fmtp:100", W, "missing-parameter", 9, 3),
        ("exactframerate=25; ", "", W, "missing-parameter", 9, 3),
        ("SSN=ST2110-40:2018; ", "", W, "missing-parameter", 9, 3),
        ("ST2110-40:2018", "ST2110-40:2017", W, "ssn", 9, 16),
        ("{0x61,0x02}", "{0x61,0xZZ}", W, "did-sdid", 9, 60),
        ("{0x61,0x02}", "{0x161,0x02}", W, "did-sdid", 9, 60),
        ("{0x61,0x02}", "0x61,0x02", W, "did-sdid", 9, 60),
        ("{0x61,0x02}", "{0x61,0x02}; VPID_Code=300", W, "vpid-code", 9, 83),
        ("{0x61,0x02}", "{0x61,0x02}; VPID_Code=0x85", W, "vpid-code", 9, 83),
        ("{0x61,0x02}", "{0x61,0x02}; TM=SLOW", W, "unknown-value", 9, 76),
        ("{0x61,0x02}", "{0x61,0x02}; TM=CTM", W, "ssn", 9, 16),
        ("m=video", "m=application", W, "media-type", 5, 1),
    ];
    for &(from, to, severity, code, line, column) in rows {
        row(ANC, from, to, severity, code, line, column);
    }
    let fast = ANC
        .replace("m=video", "m=application")
        .replace("smpte291/90000", "ST2110-41/48000")
        .replace("SSN=ST2110-40:2018; exactframerate=25; DID_SDID={0x61,0x02}", "SSN=ST2110-41:2024; DIT=100,3FF000");
    assert!(read(&fast).diagnostics.is_empty(), "{:#?}", read(&fast).diagnostics);
    row(&fast, "3FF000", "400000", W, "dit", 9, 40);
    row(&fast, "3FF000", "FFFFFFFFFFFFFFFFFFFF", W, "dit", 9, 40);
    row(&fast, "3FF000", "", W, "dit", 9, 40);
    row(&fast, "3FF000", "xyz", W, "dit", 9, 40);
    let xs = VIDEO
        .replace("raw/90000", "jxsv/90000")
        .replace("a=source", "b=AS:600000\na=source")
        .replace("PM=2110GPM; SSN=ST2110-20:2017", "packetmode=0; SSN=ST2110-22:2019");
    let d = read(&xs);
    assert!(d.usable && d.diagnostics.is_empty(), "{:#?}", d.diagnostics);
    row(&xs, "b=AS:600000\n", "", W, "missing-bandwidth", 9, 0);
    row(&xs, "packetmode=0; ", "", W, "missing-parameter", 10, 3);
    row(&xs, "exactframerate=60000/1001; ", "", W, "missing-parameter", 10, 3);
    row(&xs, "a=mediaclk", "a=framerate:29.97\na=mediaclk", W, "framerate-contradiction", 12, 0);
    row(&xs, "a=mediaclk", "a=framerate:59.94\na=mediaclk", N, "framerate-twice", 12, 0);
}

#[test]
fn redundancy() {
    let d = read(PAIR);
    assert_eq!(d.flows.len(), 1);
    assert_eq!(d.flows[0].legs.iter().map(|l| l.mid.as_deref()).collect::<Vec<_>>(), [Some("one"), Some("two")]);
    let rows: &[(&str, &str, &str, u32, usize, usize)] = &[
        // slip, code, line, flows, legs of the first
        ("a=mid:two", "a=mid:two;", "mid", 21, 1, 2),
        ("a=mid:two", "a=mid:TWO", "group-mid", 5, 1, 2),
        ("a=mid:two", "a=mid:three", "group-mid", 5, 2, 1),
        ("a=mid:two", "a=mid:one", "repeated-mid", 21, 2, 1),
        ("DUP one two", "DUP one two three", "group-mid", 5, 1, 2),
        ("DUP one two", "dup one two", "group", 5, 1, 2),
        ("DUP one two", "DUP one", "group", 5, 2, 1),
        ("a=group:DUP one two", "a=group:DUP one two\na=group:DUP one two", "group-mid", 6, 1, 2),
        ("a=mid:one\nm=audio 5004 RTP/AVP 97", "a=mid:one\nm=audio 5004 RTP/AVP 98", "group-differs", 5, 2, 1),
        (
            "L24/48000/2\na=ptime:1\na=ts-refclk:ptp=IEEE1588-2008:08-00-11-FF-FE-22-33-44:127\na=mediaclk:direct=0\na=mid:two",
            "L24/48000/4\na=ptime:1\na=ts-refclk:ptp=IEEE1588-2008:08-00-11-FF-FE-22-33-44:127\na=mediaclk:direct=0\na=mid:two",
            "group-differs",
            5,
            2,
            1,
        ),
        ("239.1.2.1/64", "239.1.1.1.1/64", "group-leg", 5, 2, 1),
        ("a=mid:one\n", "a=mid:one\na=group:DUP one two\n", "group-level", 14, 1, 2),
    ];
    for &(from, to, code, line, flows, legs) in rows {
        assert!(PAIR.contains(from), "{from}");
        let d = read(&PAIR.replacen(from, to, 1));
        assert!(d.diagnostics.iter().any(|d| d.code == code && d.line == line), "{to}: {:#?}", d.diagnostics);
        assert!(d.usable);
        assert_eq!((d.flows.len(), d.flows[0].legs.len()), (flows, legs), "{to}");
    }
    let same = PAIR.replace("239.1.2.1", "239.1.1.1").replace("192.0.3.1", "192.0.2.1");
    let d = read(&same);
    assert!(d.diagnostics.iter().any(|d| d.code == "group-same-leg" && d.line == 5));
    assert_eq!((d.flows.len(), d.flows[0].legs.len()), (1, 1));
    let unnamed = PAIR.replace("a=mid:one\n", "").replace("a=mid:two\n", "");
    let d = read(&unnamed);
    assert_eq!((d.flows.len(), d.flows[0].legs.len()), (1, 2));
    assert_eq!(d.diagnostics.iter().map(|d| (d.code, d.line)).collect::<Vec<_>>(), [("group-mid", 5)]);
    // Two sources of the same packets in one medium (RFC 7104 3.2).
    let one = AUDIO.replace("239.1.1.2 192.0.2.1", "239.1.1.2 192.0.2.1 192.0.3.1") + "a=ssrc-group:DUP 1 2\n";
    let d = read(&one);
    assert!(d.diagnostics.is_empty(), "{:#?}", d.diagnostics);
    assert_eq!((d.flows.len(), d.flows[0].legs.len()), (1, 2));
}

#[test]
fn what_is_not_st2110_is_named() {
    let cases = [
        ("H264/90000", "H.264"),
        ("MP2T/90000", "transport stream"),
        ("opus/48000/2", "Opus"),
        ("VP8/90000", "VP8"),
        ("L20/48000/2", "20-bit"),
        ("H265/90000", "HEVC"),
        ("x-lidar/90000", "x-lidar"),
    ];
    for (map, word) in cases {
        let d = read(&VIDEO.replace("raw/90000", map).replace("TP=2110TPN", "tx-mode=SRST"));
        assert!(!d.usable);
        let of = |code: &str| d.diagnostics.iter().find(|d| d.code == code).map(|d| (d.line, d.message.clone()));
        let (line, message) = of("foreign").expect("named");
        assert!(line == 5 && message.contains(word), "{message}");
        let (line, message) = of("no-st2110-flow").expect("summed up");
        assert!(line == 0 && message.contains(word), "{message}");
    }
    for (proto, word) in [
        ("RTP/SAVP 96", "SRTP"),
        ("UDP/TLS/RTP/SAVPF 96", "WebRTC"),
        ("TCP usb", "TCP"),
        ("UDP mp2t", "transport stream"),
    ] {
        let d = read(&VIDEO.replace("RTP/AVP 96", proto));
        assert!(
            !d.usable && d.diagnostics.iter().any(|d| d.code == "foreign" && d.message.contains(word)),
            "{:#?}",
            d.diagnostics
        );
    }
    let d = read(&VIDEO.replace("raw/90000", "SMPTE2022-6/27000000"));
    assert!(!d.usable && matches!(d.flows[0].essence, Essence::Sdi2022_6));
    let d = read(&VIDEO.replace("a=mediaclk", "a=privacy:protocol=RTP; mode=AES-128-CTR\na=mediaclk"));
    assert_eq!(d.diagnostics.iter().map(|d| (d.code, d.line)).collect::<Vec<_>>(), [("encrypted", 11)]);
    assert_eq!(d.refusal(&d.flows[0]), Some("its payload is encrypted"));
    // Beside a flow that can be received, a foreign one is a warning.
    let d = read(&format!("{VIDEO}m=audio 5000 RTP/AVP 0\nc=IN IP4 239.1.1.9/64\n"));
    assert!(d.usable && d.worst() == Some(W) && d.usable_flows().count() == 1);
}

#[test]
fn strict_mode_makes_errors_of_what_is_forbidden() {
    let forbidden = VIDEO.replace("; TP=2110TPN", "");
    let d = parse(forbidden.as_bytes(), Mode::Strict);
    assert_eq!(d.diagnostics.iter().map(|d| (d.code, d.severity)).collect::<Vec<_>>(), [("missing-parameter", E)]);
    assert!(!d.usable && d.flows[0].usable, "placed all the same, judged otherwise");
    let odd = VIDEO.replace("60000/1001", "17");
    let d = parse(odd.as_bytes(), Mode::Strict);
    assert_eq!(d.diagnostics.iter().map(|d| (d.code, d.severity)).collect::<Vec<_>>(), [("framerate-unusual", W)]);
    assert!(d.usable);
}

#[test]
fn media_level_holds_over_session_level() {
    let text = VIDEO.replace("t=0 0\n", "c=IN IP4 239.9.9.9/1\nt=0 0\na=ts-refclk:ptp=IEEE1588-2008:traceable\n");
    let d = read(&text);
    assert_eq!(d.flows[0].legs[0].destination.to_string(), "239.1.1.1");
    assert!(matches!(&d.flows[0].reference_clocks[..], [gdmedia_sdp::ReferenceClock::Ptp { domain: Some(127), .. }]));
    let text = text
        .replace("c=IN IP4 239.1.1.1/64\n", "")
        .replace("a=ts-refclk:ptp=IEEE1588-2008:08-00-11-FF-FE-22-33-44:127\n", "");
    let d = read(&text);
    assert_eq!(d.flows[0].legs[0].destination.to_string(), "239.9.9.9");
    assert!(matches!(&d.flows[0].reference_clocks[..], [gdmedia_sdp::ReferenceClock::Ptp { grandmaster: None, .. }]));
}

#[test]
fn expected_rates_are_those_of_the_standards() {
    // ST 2110-21 worked values: packets of a frame and a second.
    let cases: &[(Changes, u32, f64)] = &[
        (&[], 4320, 258_941.06),
        (&[("PM=2110GPM", "PM=2110BPM")], 4115, 246_653.35),
        (&[("60000/1001", "25"), ("TP=2110TPN", "TP=2110TPN; interlace")], 4320, 108_000.0),
        (&[("width=1920", "width=3840"), ("height=1080", "height=2160")], 17280, 1_035_764.24),
        (&[("width=1920", "width=1280"), ("height=1080", "height=720"), ("60000/1001", "50")], 2880, 144_000.0),
        (
            &[("60000/1001", "25"), ("PM=2110GPM", "PM=2110BPM"), ("TP=2110TPN", "TP=2110TPN; interlace")],
            4116,
            102_900.0,
        ),
    ];
    for (changes, packets, a_second) in cases {
        let text = changes.iter().fold(VIDEO.to_owned(), |text, (from, to)| text.replacen(from, to, 1));
        let e = read(&text).flows[0].estimate().expect("known");
        assert_eq!(e.packets_per_frame, Some(*packets), "{changes:?}");
        assert!((e.packets_per_second - a_second).abs() < 0.5, "{changes:?}: {}", e.packets_per_second);
    }
    // 1080p59.94: 5 184 000 octets of samples, 4320 x 48 octets of headers, 8 bits, 60000/1001.
    let e = read(VIDEO).flows[0].estimate().expect("known");
    assert!((e.bits_per_second - (5_184_000.0 + 4320.0 * 48.0) * 8.0 * 60000.0 / 1001.0).abs() < 1.0);
    let e = read(AUDIO).flows[0].estimate().expect("known");
    assert!((e.packets_per_second - 1000.0).abs() < 1e-6);
    assert!((e.bits_per_second - (48.0 * 8.0 * 3.0 + 40.0) * 8000.0).abs() < 1e-3);
}

/// Found by fuzzing: a mark of ST 2110 in the parameters of another payload type made a codec of a broken name.
#[test]
fn a_private_codec_is_known_by_its_own_parameters() {
    let other = VIDEO.replace("raw/90000", "x-codec/90000").replace("a=fmtp:96", "a=fmtp:96 profile=1\r\na=fmtp:97");
    assert!(!read(&other).usable);
    let own = VIDEO.replace("raw/90000", "x-codec/90000").replace("a=source", "b=AS:1000\na=source");
    assert!(matches!(&read(&own).flows[0].essence, Essence::CompressedVideo(v) if v.encoding == "x-codec"));
    assert!(!read(&own.replace("x-codec", "x=codec")).usable);
}
