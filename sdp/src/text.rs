//! From octets to raw lines: encodings, line ends, and what the input is when it is no SDP.

use crate::diagnostic::{At, Findings};
use std::borrow::Cow;

/// A line as it stands in the text, without its end.
#[derive(Clone, Copy)]
pub(crate) struct Raw<'a> {
    /// From 1.
    pub number: u32,
    /// Column of the first octet, from 1.
    pub column: u32,
    pub octets: &'a [u8],
}

/// UTF-16 becomes UTF-8; everything else stays as it is.
pub(crate) fn decode<'a>(input: &'a [u8], f: &mut Findings) -> Cow<'a, [u8]> {
    let big = match input {
        [0xFE, 0xFF, ..] => true,
        [0xFF, 0xFE, ..] => false,
        [0, b'v', 0, b'=', ..] => true,
        [b'v', 0, b'=', 0, ..] => false,
        _ => return Cow::Borrowed(input),
    };
    let units = input.chunks_exact(2).map(|pair| match pair {
        [a, b] if big => u16::from_be_bytes([*a, *b]),
        [a, b] => u16::from_le_bytes([*a, *b]),
        _ => 0,
    });
    let text: String = char::decode_utf16(units).map(|c| c.unwrap_or('?')).filter(|c| *c != '\u{FEFF}').collect();
    f.deviates(
        "encoding",
        "RFC 8866 5",
        At::line(1),
        "",
        "the text is UTF-16, SDP is UTF-8".to_owned(),
        "read as UTF-16; save it as UTF-8 (columns count UTF-8 octets)",
    );
    Cow::Owned(text.into_bytes())
}

/// Cuts at LF, CR LF and lone CR. One pass.
pub(crate) fn raw_lines<'a>(text: &'a [u8], f: &mut Findings) -> Vec<Raw<'a>> {
    if let Some(lines) = escaped_lines(text, f) {
        return lines;
    }
    let (lines, lone_cr) = split(text);
    if lone_cr > 0 {
        f.deviates(
            "line-ends",
            "RFC 8866 9",
            At::line(1),
            "",
            format!("{lone_cr} line(s) end in CR alone"),
            "read as line ends; write CR LF",
        );
    }
    lines
}

/// The lines of a text as a person sees them, for quoting: what [`crate::Diagnostic::line`] counts.
pub fn physical_lines(input: &[u8]) -> Vec<String> {
    let decoded = decode(input, &mut Findings::new(false));
    split(&decoded).0.iter().map(|raw| String::from_utf8_lossy(raw.octets).into_owned()).collect()
}

/// Lines, and how many of them ended in CR alone.
fn split(text: &[u8]) -> (Vec<Raw<'_>>, u32) {
    let mut lines = Vec::new();
    let (mut start, mut at, mut number, mut lone_cr) = (0, 0, 1u32, 0u32);
    while at < text.len() {
        let end = match text[at] {
            b'\n' => 1,
            b'\r' if text.get(at + 1) == Some(&b'\n') => 2,
            b'\r' => {
                lone_cr += 1;
                1
            }
            _ => 0,
        };
        if end == 0 {
            at += 1;
            continue;
        }
        lines.push(Raw { number, column: 1, octets: &text[start..at] });
        number += 1;
        at += end;
        start = at;
    }
    if start < text.len() {
        lines.push(Raw { number, column: 1, octets: &text[start..] });
    }
    (lines, lone_cr)
}

/// An SDP copied out of a JSON string: its line ends are the characters `\r\n`.
fn escaped_lines<'a>(text: &'a [u8], f: &mut Findings) -> Option<Vec<Raw<'a>>> {
    let start = [&b"v=0\\r\\n"[..], b"v=0\\n"].iter().find_map(|mark| find(text, mark))?;
    let number = 1 + text[..start].iter().filter(|b| **b == b'\n').count() as u32;
    let before = text[..start].iter().rposition(|b| *b == b'\n').map_or(0, |p| p + 1);
    let end = start + text[start..].iter().position(|b| matches!(b, b'\n' | b'"')).unwrap_or(text.len() - start);
    let mut lines = Vec::new();
    let mut from = start;
    while from < end {
        let mut to = from;
        while to < end && !(text[to] == b'\\' && matches!(text.get(to + 1), Some(b'r' | b'n'))) {
            to += 1;
        }
        let column = (from - before) as u32 + 1;
        lines.push(Raw { number, column, octets: &text[from..to] });
        from = to;
        for escape in [&b"\\r"[..], b"\\n"] {
            if text[from..end].starts_with(escape) {
                from += escape.len();
            }
        }
    }
    f.deviates(
        "escaped-line-ends",
        "RFC 8866 9",
        At { line: number, column: (start - before) as u32 + 1 },
        "",
        "line ends are written as the characters \\r\\n, as in a JSON string".to_owned(),
        "read as line ends; take the SDP out of the JSON",
    );
    Some(lines)
}

fn find(text: &[u8], mark: &[u8]) -> Option<usize> {
    text.windows(mark.len()).position(|w| w == mark)
}

/// A name for input that holds no SDP line, and what to do instead.
pub(crate) fn what_is_it(input: &[u8]) -> (String, &'static str) {
    const SDP: &str = "give the SDP text of the sender; it starts with the line v=0";
    let trimmed = input.trim_ascii_start();
    let starts = |mark: &[u8]| input.starts_with(mark);
    let word = |mark: &str| trimmed.get(..mark.len()).is_some_and(|t| t.eq_ignore_ascii_case(mark.as_bytes()));
    if input.is_empty() {
        return ("the input is empty".to_owned(), "an SDP starts with the line v=0; copy it again from the sender");
    }
    if trimmed.is_empty() {
        return ("the input holds only blanks".to_owned(), SDP);
    }
    let captures: [&[u8]; 5] =
        [b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x0a\x0d\x0d\x0a"];
    if captures.iter().any(|c| starts(c)) {
        return ("this is a packet capture, not an SDP".to_owned(), "give it with --pcap, next to the SDP of the flow");
    }
    let kind = if word("<!doctype html") || word("<html") || word("<head") || word("<body") {
        "this is an HTML page"
    } else if word("<?xml") || word("<") {
        "this is XML or HTML"
    } else if word("{") || word("[") {
        "this is JSON"
    } else if word("#EXTM3U") {
        "this is an HLS playlist"
    } else if word("HTTP/") || word("RTSP/") {
        "this is an HTTP or RTSP answer without a body"
    } else if starts(b"\x1f\x8b") {
        "this is a gzip file"
    } else if starts(b"PK\x03\x04") {
        "this is a ZIP file"
    } else if starts(b"\x89PNG") || starts(b"\xff\xd8\xff") || starts(b"GIF8") {
        "this is a picture file"
    } else if starts(b"%PDF") {
        "this is a PDF file"
    } else if input.iter().take(4096).any(|b| *b < 9 || (14..32).contains(b)) {
        "this is a binary file"
    } else {
        "this is text without any line of an SDP"
    };
    (format!("{kind}, not an SDP"), SDP)
}
