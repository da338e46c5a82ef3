//! Time grows with the length of the text and no faster, whatever the text is made of.

use gdmedia_sdp::{MAX_OCTETS, Mode, parse};
use std::time::{Duration, Instant};

const HEAD: &str = "v=0\no=- 1 1 IN IP4 192.0.2.1\ns=x\nt=0 0\n";
const MEDIUM: &str = "m=video 5004 RTP/AVP 96\nc=IN IP4 239.1.1.1/64\na=rtpmap:96 raw/90000\n";

/// `piece` after `head`, as often as fits into `octets`; `#` in it becomes a running number.
fn text(head: &str, piece: &str, octets: usize) -> String {
    let mut text = head.to_owned();
    let mut n = 0;
    while text.len() + piece.len() + 8 < octets {
        text.push_str(&piece.replace('#', &n.to_string()));
        n += 1;
    }
    text
}

/// A megabyte takes a second at most, unoptimised and on a busy machine; what is quadratic takes many minutes.
const BOUND: Duration = Duration::from_secs(60);

#[test]
fn a_megabyte_of_anything_is_read_in_no_time() {
    let head = format!("{HEAD}{MEDIUM}");
    let filters = format!("a=source-filter: incl IN IP4 * {}\n", "192.0.2.1 192.0.2.2 ".repeat(400));
    let cases: Vec<(&str, String, &str)> = vec![
        ("media", HEAD.to_owned(), "m=video 5004 RTP/AVP 96\n"),
        (
            "media with clocks of the session",
            format!("{HEAD}{}", "a=ts-refclk:ptp=IEEE1588-2008:traceable\n".repeat(2000)),
            MEDIUM,
        ),
        ("media with filters of the session", format!("{HEAD}{}", filters.repeat(20)), MEDIUM),
        ("media with a long session name", format!("v=0\ns={}\n", "n".repeat(15_000)), MEDIUM),
        ("attributes", head.clone(), "a=x#:y\n"),
        ("attributes of the session", HEAD.to_owned(), "a=x#\n"),
        ("near misses of attributes", head.clone(), "a=ts_refclk:x\n"),
        ("mids", HEAD.to_owned(), "m=audio 5004 RTP/AVP 97\na=mid:same\n"),
        ("groups", format!("{HEAD}a=mid:1\n"), "a=group:DUP 1 2\n"),
        ("other groups", format!("{HEAD}a=mid:1\n"), "a=group:FID 1 2\n"),
        ("a group of many", format!("{HEAD}a=group:DUP "), "# "),
        ("sources", format!("{head}a=source-filter: incl IN IP4 239.1.1.1 "), "192.0.2.1 "),
        ("filters", head.clone(), "a=source-filter: incl IN IP4 239.1.1.1 10.0.0.1\n"),
        ("parameters", format!("{head}a=fmtp:96 "), "p#=1; "),
        ("fmtp lines", head.clone(), "a=fmtp:96 width=1\n"),
        ("rtpmaps", head.clone(), "a=rtpmap:96 raw/90000\n"),
        ("reference clocks", head.clone(), "a=ts-refclk:ptp=IEEE1588-2008:traceable\n"),
        ("folded lines", format!("{head}a=fmtp:96 width=1;\n"), " a=1;\n"),
        ("glued lines", format!("{head}a=fmtp:96 "), "a=mid:x"),
        (
            "DID_SDID",
            format!("{HEAD}m=video 5 RTP/AVP 96\na=rtpmap:96 smpte291/90000\na=fmtp:96 "),
            "DID_SDID={0x1,0x2};",
        ),
        (
            "channel groups",
            format!("{HEAD}m=audio 5 RTP/AVP 96\na=rtpmap:96 L24/48000/2\na=fmtp:96 channel-order=SMPTE2110.("),
            "ST,",
        ),
        ("c= lines", head.clone(), "c=IN IP4 239.1.1.1/64\n"),
        ("m= formats", format!("{HEAD}m=video 5004 RTP/AVP "), "96 "),
        ("blank lines", HEAD.to_owned(), "\n"),
        ("lone CR", HEAD.to_owned(), "\r"),
        ("comments", HEAD.to_owned(), "#\n"),
        ("NUL", HEAD.to_owned(), "\0"),
        ("equals", HEAD.to_owned(), "="),
        ("semicolons", format!("{head}a=fmtp:96 "), ";"),
        ("blanks", format!("{head}a=fmtp:96 "), " "),
        ("commas", format!("{head}a=fmtp:96 width=1"), ", "),
        ("one line", "v=0 s=x m=video ".to_owned(), "m=video 5 RTP/AVP 96 "),
        ("escaped line ends", "\"v=0\\n".to_owned(), "a=x\\n"),
        ("descriptions", String::new(), HEAD),
        ("no SDP", String::new(), "lorem ipsum dolor\n"),
    ];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for part in cases.chunks(cases.len().div_ceil(threads)) {
            scope.spawn(|| {
                part.iter().for_each(|(name, head, piece)| read_in_no_time(name, &text(head, piece, MAX_OCTETS)))
            });
        }
    });
}

fn read_in_no_time(name: &str, text: &str) {
    let start = Instant::now();
    for mode in [Mode::Lenient, Mode::Strict] {
        let d = parse(text.as_bytes(), mode);
        assert!(d.diagnostics.len() < 4000, "{name}: {} findings", d.diagnostics.len());
        let octets: usize = d.diagnostics.iter().map(|d| d.message.len() + d.parameter.len()).sum();
        assert!(octets < 1 << 20, "{name}: {octets} octets of messages");
        if d.usable {
            let _ = d.corrected();
        }
    }
    let took = start.elapsed();
    println!("{:>8.1} ms  {name}", took.as_secs_f64() * 1e3);
    assert!(took < BOUND, "{name}: {took:?}");
}

#[test]
fn what_is_larger_is_refused_unread() {
    for octet in [b'a', b'\n', 0, b'='] {
        let big = vec![octet; 100_000_000];
        let start = Instant::now();
        let d = parse(&big, Mode::Lenient);
        assert!(!d.usable && d.diagnostics.len() == 1 && d.diagnostics[0].code == "too-large");
        assert!(start.elapsed() < BOUND);
    }
}
