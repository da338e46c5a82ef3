//! The lenient pre-pass: raw lines become `<letter>=<value>` lines, each of which still knows where it came from.
//!
//! `sdp-types` refuses a whole description for a comment or a folded line; what follows repairs such things first and
//! says so. Everything here is one pass over the text.

use crate::diagnostic::{At, Findings, clip};
use crate::text::Raw;

/// Longest line that is read: no essence needs a tenth of it.
pub(crate) const MAX_LINE: usize = 16 * 1024;

/// Type letters of RFC 8866.
pub(crate) const LETTERS: &[u8] = b"vosiuepcbtrzkam";

/// Attributes that a continuation or a glued line can be recognised by.
const ATTRIBUTES: &[&str] = &[
    "ts-refclk:",
    "mediaclk:",
    "source-filter:",
    "rtpmap:",
    "fmtp:",
    "ptime:",
    "maxptime:",
    "mid:",
    "group:",
    "framerate:",
    "framecount:",
    "ssrc:",
    "extmap:",
];

/// One line of the description.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub key: u8,
    pub value: String,
    /// Where parts of `value` stand in the text: offset in `value`, line, column. Never empty, offsets rise.
    spans: Vec<(usize, u32, u32)>,
}

impl Line {
    fn new(key: u8, value: &str, number: u32, column: u32) -> Line {
        Line { key, value: value.to_owned(), spans: vec![(0, number, column)] }
    }
    /// Where the octet at `offset` of the value stands.
    pub fn at(&self, offset: usize) -> At {
        let after = self.spans.partition_point(|s| s.0 <= offset);
        let &(from, line, column) = self.spans.get(after.saturating_sub(1)).unwrap_or(&(0, 0, 0));
        At { line, column: column + offset.saturating_sub(from) as u32 }
    }
    /// Where the line starts.
    pub fn start(&self) -> At {
        At { line: self.number(), column: 1 }
    }
    pub fn number(&self) -> u32 {
        self.spans.first().map_or(0, |s| s.1)
    }
    fn join(&mut self, more: &str, number: u32, column: u32) {
        self.value.push(' ');
        self.spans.push((self.value.len(), number, column));
        self.value.push_str(more);
    }
}

/// Reads the raw lines; what is no line of an SDP is skipped and reported.
pub(crate) fn read(raws: &[Raw<'_>], f: &mut Findings) -> Vec<Line> {
    let mut reader =
        Reader { lines: Vec::new(), before: None, blank: Vec::new(), pending: Vec::new(), comments: Vec::new() };
    for raw in raws {
        reader.take(raw, f);
    }
    reader.finish(f)
}

struct Reader {
    lines: Vec<Line>,
    /// First line and number of lines before the SDP.
    before: Option<(u32, u32, String)>,
    /// Blank lines inside the text, and those that may be its end.
    blank: Vec<u32>,
    pending: Vec<u32>,
    comments: Vec<u32>,
}

impl Reader {
    fn take(&mut self, raw: &Raw<'_>, f: &mut Findings) {
        let Some((text, column)) = clean(raw, self.lines.is_empty(), f) else { return };
        let body = text.trim();
        // A session name of one blank says "no name"; it is not empty.
        let body = if body == "s=" && text.trim_start() != body { "s= " } else { body };
        if body.is_empty() {
            if !self.lines.is_empty() {
                self.pending.push(raw.number);
            }
            return;
        }
        let indent = text.len() - text.trim_start().len();
        let column = column + indent as u32;
        self.blank.append(&mut self.pending);
        if body.starts_with(['#', '/']) || (body.starts_with(';') && !self.continues(body)) {
            self.comments.push(raw.number);
            return;
        }
        if let Some(parts) = whole_sdp_in_one_line(body, f, raw.number) {
            for (offset, part) in parts {
                self.line(part, column + offset as u32, raw, false, f);
            }
            return;
        }
        self.line(body, column, raw, indent > 0, f);
    }

    /// `body` has no blanks at either end and is not empty.
    fn line(&mut self, body: &str, column: u32, raw: &Raw<'_>, indented: bool, f: &mut Findings) {
        let here = At { line: raw.number, column };
        if let Some((key, value_at)) = key_of(body, here, f) {
            if indented {
                f.deviates(
                    "indented-line",
                    "RFC 8866 5",
                    At { line: raw.number, column: 1 },
                    "",
                    "blanks stand before the type letter".to_owned(),
                    "ignored; a line starts with its letter",
                );
            }
            self.push(key, body, value_at, raw.number, column, f);
        } else if self.continues(body) {
            let Some(last) = self.lines.last_mut() else { return };
            f.deviates(
                "folded-line",
                "RFC 8866 5",
                here,
                "",
                format!("this line continues line {}: SDP has no continuation lines", last.number()),
                "joined to the line before; write it in one line",
            );
            if last.value.ends_with('\\') {
                last.value.pop();
            }
            if last.value.len() + body.len() >= MAX_LINE {
                too_long(here, last.value.len() + body.len(), f);
                return;
            }
            // Only what is new is looked at: a line folded a thousand times must not be read a thousand times.
            let cuts = glue(body, last.value.starts_with("fmtp:"));
            let first = cuts.first().map_or(body.len(), |c| c.0);
            last.join(body.get(..first).unwrap_or(body), raw.number, column);
            let whole = Line::new(b'a', body, raw.number, column);
            self.cut(&whole, &cuts, f);
        } else if ATTRIBUTES.iter().any(|a| body.starts_with(a)) && !self.lines.is_empty() {
            f.deviates(
                "missing-letter",
                "RFC 8866 5.13",
                here,
                "a=",
                format!("`{}` is an attribute without its a=", clip(body)),
                "read as an attribute; put a= before it",
            );
            self.unglue(Line::new(b'a', body, raw.number, column), f);
        } else if self.lines.is_empty() {
            self.before.get_or_insert((raw.number, 0, clip(body))).1 += 1;
        } else {
            f.deviates(
                "not-a-line",
                "RFC 8866 5",
                here,
                "",
                format!("`{}` is not of the form <letter>=<value>", clip(body)),
                "ignored; delete the line or complete it",
            );
        }
    }

    fn push(&mut self, key: u8, body: &str, value_at: usize, number: u32, column: u32, f: &mut Findings) {
        let at = At { line: number, column };
        if self.lines.is_empty() && key != b'v' && !matches!(key, b'o' | b's' | b't' | b'm' | b'c' | b'a' | b'i') {
            self.before.get_or_insert((number, 0, clip(body))).1 += 1;
            return;
        }
        if !LETTERS.contains(&key) {
            f.deviates(
                "unknown-letter",
                "RFC 8866 5",
                at,
                "",
                format!("SDP has no line type `{}=`", char::from(key)),
                "ignored",
            );
            return;
        }
        let value = body.get(value_at..).unwrap_or("");
        let line = Line::new(key, value, number, column + value_at as u32);
        if key == b'a' { self.unglue(line, f) } else { self.lines.push(line) }
    }

    /// Another attribute at the end of an attribute line: its line end was lost.
    fn unglue(&mut self, mut line: Line, f: &mut Findings) {
        let known = ["fmtp:", "rtpmap:", "ts-refclk:", "mediaclk:", "source-filter:", "mid:", "ptime:"];
        let cuts = match known.iter().any(|a| line.value.starts_with(a)) {
            true => glue(&line.value, line.value.starts_with("fmtp:")),
            false => Vec::new(),
        };
        let Some(&(first, _)) = cuts.first() else {
            self.lines.push(line);
            return;
        };
        let whole = line.clone();
        line.value.truncate(first);
        line.value.truncate(line.value.trim_end().len());
        self.lines.push(line);
        self.cut(&whole, &cuts, f);
    }

    /// Takes what stands after each cut as a line of its own.
    fn cut(&mut self, whole: &Line, cuts: &[(usize, usize)], f: &mut Findings) {
        let ends = cuts.iter().skip(1).map(|c| c.0).chain([whole.value.len()]);
        for (&(cut, from), end) in cuts.iter().zip(ends) {
            let part = whole.value.get(from..end).unwrap_or("").trim_end();
            let at = whole.at(from);
            f.deviates(
                "glued-lines",
                "RFC 8866 5",
                whole.at(cut),
                part.split(':').next().unwrap_or(""),
                format!("`a={}` stands on the line of another attribute", clip(part)),
                "read as a line of its own; put a line end before it",
            );
            self.lines.push(Line::new(b'a', part, at.line, at.column));
        }
    }

    /// Whether a line without a type letter belongs to the one before.
    fn continues(&self, body: &str) -> bool {
        let Some(last) = self.lines.last().filter(|l| l.key == b'a') else { return false };
        let fmtp = last.value.starts_with("fmtp");
        let parameters =
            body.contains(['=', ';']) || ["interlace", "segmented"].iter().any(|flag| body.eq_ignore_ascii_case(flag));
        last.value.ends_with('\\')
            || (fmtp
                && (parameters || last.value.ends_with([';', ',']))
                && !ATTRIBUTES.iter().any(|a| body.starts_with(a)))
    }

    fn finish(self, f: &mut Findings) -> Vec<Line> {
        if let Some((first, count, what)) = self.before.filter(|_| !self.lines.is_empty()) {
            f.deviates(
                "text-before-sdp",
                "RFC 8866 5",
                At::line(first),
                "",
                format!("{count} line(s) before the SDP, the first is `{what}`"),
                "ignored; an SDP starts with v=0",
            );
        }
        for (code, lines, what, cure) in [
            ("blank-line", self.blank, "blank", "ignored; delete them"),
            ("comment", self.comments, "comment", "ignored; SDP has no comments, delete them"),
        ] {
            if let Some(first) = lines.first() {
                let list: Vec<String> = lines.iter().take(8).map(u32::to_string).collect();
                let more = if lines.len() > 8 { " …" } else { "" };
                let plural = if lines.len() > 1 { "s" } else { "" };
                f.deviates(
                    code,
                    "RFC 8866 5",
                    At::line(*first),
                    "",
                    format!("{what} line{plural} {}{more} inside the description", list.join(", ")),
                    cure,
                );
            }
        }
        self.lines
    }
}

/// Where other attributes start inside `value`: where to cut, and where the attribute's name starts.
fn glue(value: &str, fmtp: bool) -> Vec<(usize, usize)> {
    let mut cuts: Vec<(usize, usize)> = Vec::new();
    for (at, c) in value.char_indices().skip(4) {
        let rest = value.get(at..).unwrap_or("");
        if c == 'a' && rest.strip_prefix("a=").is_some_and(|r| ATTRIBUTES.iter().any(|a| r.starts_with(a))) {
            cuts.push((at, at + 2));
        } else if fmtp
            && matches!(c, 't' | 'm')
            && (rest.starts_with("ts-refclk:") || rest.starts_with("mediaclk:"))
            && cuts.last().is_none_or(|c| c.1 != at)
        {
            cuts.push((at, at));
        }
    }
    cuts
}

fn too_long(at: At, octets: usize, f: &mut Findings) {
    let what = format!("the line has {octets} octets; at most {MAX_LINE} are read");
    f.error("line-too-long", "", At::line(at.line), "", what, "ignored; shorten it");
}

/// Type letter and offset of the value; repairs case, blanks around `=`, and `:` in place of `=`.
fn key_of(body: &str, at: At, f: &mut Findings) -> Option<(u8, usize)> {
    let octets = body.as_bytes();
    let &letter = octets.first()?;
    if !letter.is_ascii_alphabetic() {
        return None;
    }
    let key = letter.to_ascii_lowercase();
    let blanks = octets.iter().skip(1).take_while(|b| **b == b' ').count();
    let sign = *octets.get(1 + blanks)?;
    if sign == b':' && blanks == 0 && LETTERS.contains(&key) {
        f.deviates(
            "colon-for-equals",
            "RFC 8866 5",
            At { column: at.column + 1, ..at },
            "",
            format!("`{}:` in place of `{}=`", char::from(letter), char::from(key)),
            "read as the latter",
        );
        return Some((key, 2));
    }
    if sign != b'=' {
        return None;
    }
    if letter != key {
        f.deviates(
            "letter-case",
            "RFC 8866 5",
            at,
            "",
            format!("the type letter `{}` is upper case", char::from(letter)),
            "read as lower case",
        );
    }
    let mut value_at = 2 + blanks;
    // `s= ` and other free text may start with a blank; elsewhere it is a slip.
    let lead = octets.iter().skip(value_at).take_while(|b| **b == b' ').count();
    if body == "s= " {
        return Some((key, value_at));
    }
    if (blanks > 0 || lead > 0) && LETTERS.contains(&key) {
        f.deviates(
            "blank-around-equals",
            "RFC 8866 5",
            At { column: at.column + 1, ..at },
            "",
            format!("blank around the = of the {}= line", char::from(key)),
            "ignored; write letter, =, value without blanks between",
        );
        value_at += lead;
    }
    Some((key, value_at))
}

/// All line ends lost: `v=0 o=- 1 1 IN IP4 … m=video …` in one line.
fn whole_sdp_in_one_line<'a>(body: &'a str, f: &mut Findings, number: u32) -> Option<Vec<(usize, &'a str)>> {
    if !body.starts_with("v=0 ") || !body.contains(" m=") {
        return None;
    }
    let octets = body.as_bytes();
    let mut starts: Vec<usize> = octets
        .windows(3)
        .enumerate()
        .filter(|(_, w)| w[0] == b' ' && LETTERS.contains(&w[1]) && w[2] == b'=')
        .map(|(at, _)| at + 1)
        .collect();
    starts.insert(0, 0);
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([body.len()]).collect();
    f.deviates(
        "line-ends",
        "RFC 8866 5",
        At { line: number, column: 1 },
        "",
        "the whole description stands in one line".to_owned(),
        "cut before each <letter>=; write one line each",
    );
    Some(starts.iter().zip(ends).map(|(&from, to)| (from, body[from..to].trim())).collect())
}

/// Text of a raw line with octets that no SDP line may hold replaced one for one, so that columns stay; and the column
/// of its first octet. `None` when the line is too long to be read.
fn clean(raw: &Raw<'_>, first: bool, f: &mut Findings) -> Option<(String, u32)> {
    let (mut octets, mut column) = (raw.octets, raw.column);
    let here = At::line(raw.number);
    if first && let Some(rest) = octets.strip_prefix(b"\xef\xbb\xbf") {
        f.deviates(
            "encoding",
            "RFC 8866 5",
            At { line: raw.number, column: 1 },
            "",
            "a byte order mark stands before the text".to_owned(),
            "ignored; save as UTF-8 without BOM",
        );
        (octets, column) = (rest, column + 3);
    }
    if octets.len() > MAX_LINE {
        too_long(here, octets.len(), f);
        return None;
    }
    while let [rest @ .., 0] = octets {
        octets = rest;
    }
    let text_line = matches!(octets, [b's' | b'i' | b'u' | b'e' | b'p', b'=', ..]);
    let mut control = false;
    let mut tab = false;
    let mut cleaned = octets.to_vec();
    for octet in &mut cleaned {
        match *octet {
            b'\t' => {
                tab |= !text_line;
                *octet = b' ';
            }
            0..=31 | 127 => {
                control = true;
                *octet = b' ';
            }
            _ => {}
        }
    }
    if tab && !octets.trim_ascii().is_empty() {
        f.deviates("tab", "RFC 8866 9", here, "", "tab in place of a blank".to_owned(), "read as a blank");
    }
    if control {
        let cure = "read as blanks; delete them";
        f.deviates("control-character", "RFC 8866 9", here, "", "NUL or control characters".to_owned(), cure);
    }
    let text = match String::from_utf8(cleaned) {
        Ok(text) => text,
        Err(e) => {
            let octets: Vec<u8> = e.into_bytes().iter().map(|b| if b.is_ascii() { *b } else { b'?' }).collect();
            f.deviates(
                "encoding",
                "RFC 8866 5",
                here,
                "",
                "the line is not UTF-8".to_owned(),
                "other octets are read as ?; save the text as UTF-8",
            );
            String::from_utf8(octets).unwrap_or_default()
        }
    };
    // Blanks that web pages and word processors insert; two and three octets each.
    let text = if text.is_ascii() { text } else { text.replace('\u{a0}', "  ").replace('\u{200b}', "   ") };
    Some((text, column))
}
