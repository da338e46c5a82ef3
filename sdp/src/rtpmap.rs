//! Which payload type of a medium is received, and what `a=rtpmap` and `a=fmtp` say of it.

use crate::diagnostic::{At, Findings, clip};
use crate::essence::foreign;
use crate::medium::Own;
use crate::session::{Attribute, Medium};

const CLAUSE: &str = "RFC 8866 6.6";

/// The payload type that is received.
pub(crate) struct Choice {
    /// `None` when it cannot be read; reported then.
    pub payload_type: Option<u8>,
    /// The one that the rtpmap is written for, where it differs.
    mapped: Option<u8>,
    /// Empty when nothing says what is carried.
    pub encoding: String,
    pub clock_rate: u32,
    pub channels: Option<u32>,
    /// Where the rtpmap stands.
    pub at: Option<At>,
}

/// `a=rtpmap:<payload type> <encoding>/<clock>[/<channels>]`
struct Map {
    payload_type: Option<u8>,
    encoding: String,
    clock: Option<u32>,
    channels: Option<u32>,
    at: At,
    encoding_at: At,
}

/// What ST 2110 carries, and the clock where there is only one.
fn clock_of(encoding: &str) -> Option<Option<u32>> {
    Some(match encoding.to_ascii_lowercase().as_str() {
        "raw" | "smpte291" | "jxsv" | "vc2" => Some(90_000),
        "smpte2022-6" => Some(27_000_000),
        "l16" | "l24" | "am824" | "st2110-41" | "ttml+xml" => None,
        _ => return None,
    })
}

pub(crate) fn choose(medium: &Medium<'_>, own: &Own<'_, '_>, f: &mut Findings) -> Choice {
    let maps: Vec<Map> = own.all("rtpmap").into_iter().filter_map(|a| map(a, f)).collect();
    let mut by_type: [Option<&Map>; 128] = [None; 128];
    for map in &maps {
        let Some(slot) = map.payload_type.and_then(|pt| by_type.get_mut(usize::from(pt))) else { continue };
        match slot {
            Some(first) => {
                let same = first.encoding.eq_ignore_ascii_case(&map.encoding)
                    && first.clock == map.clock
                    && first.channels == map.channels;
                let which = if same { "the same" } else { "another" };
                let what =
                    format!("a second rtpmap for payload type {}, with {which} meaning", map.payload_type.unwrap_or(0));
                f.deviates("repeated-rtpmap", CLAUSE, map.at, "rtpmap", what, "the first is used; delete the other");
            }
            None => *slot = Some(map),
        }
    }
    let formats: Vec<Option<u8>> =
        medium.formats.iter().map(|(text, _)| text.parse().ok().filter(|pt| *pt < 128)).collect();
    let mapped = |pt: &u8| by_type.get(usize::from(*pt)).copied().flatten();
    let known: Vec<u8> = formats.iter().flatten().copied().collect();
    let st2110 = known.iter().find(|pt| mapped(pt).is_some_and(|m| clock_of(&m.encoding).is_some()));
    let described = st2110.or_else(|| known.iter().find(|pt| mapped(pt).is_some()));
    if let Some(&pt) = described {
        if st2110.is_some() && known.len() > 1 {
            let what = format!("{} payload types in one medium; ST 2110 has one", known.len());
            f.deviates(
                "several-payload-types",
                "ST 2110-10:2022 8.1",
                medium.at,
                "m=",
                what,
                &format!("{pt} is received"),
            );
        }
        if let Some(map) = mapped(&pt) {
            check_range(pt, medium, &map.encoding, f);
            return finish(Some(pt), map, f);
        }
    }
    let bad = medium.formats.iter().zip(&formats).find(|(_, pt)| pt.is_none()).map(|(word, _)| word);
    let rtp = foreign::transport(&medium.proto, "").is_none();
    if let Some(map) = maps.first() {
        let (pt, what, at) = match (known.first(), map.payload_type, bad) {
            (Some(&pt), Some(other), _) => {
                (Some(pt), format!("the m= line has payload type {pt}, the rtpmap {other}"), map.at)
            }
            (Some(&pt), None, _) => (Some(pt), "the rtpmap has no payload type".to_owned(), map.at),
            (None, Some(other), Some((text, at))) => {
                (Some(other), format!("`{}` is not a payload type", clip(text)), *at)
            }
            (None, Some(other), None) => (Some(other), "the m= line has no payload type".to_owned(), medium.at),
            (None, None, _) => (None, "no line gives the payload type".to_owned(), medium.at),
        };
        match pt {
            Some(pt) => {
                let cure = match map.payload_type.filter(|o| *o != pt) {
                    Some(other) => format!(
                        "{pt} is received and the rtpmap used for it; if nothing arrives, write {other} in the m= line"
                    ),
                    None => format!("{pt} is received; write it in m=, rtpmap and fmtp"),
                };
                f.deviates("payload-type", CLAUSE, at, "rtpmap", what, &cure);
                check_range(pt, medium, &map.encoding, f);
            }
            None => f.error("payload-type", CLAUSE, at, "m=", what, "write it in m=, rtpmap and fmtp, for example 96"),
        }
        return finish(pt, map, f);
    }
    let plain = Choice {
        payload_type: known.first().copied(),
        mapped: None,
        encoding: String::new(),
        clock_rate: 0,
        channels: None,
        at: None,
    };
    if !rtp {
        return plain;
    }
    if let Some((text, at)) = bad.filter(|_| known.is_empty()) {
        let what = format!("`{}` is not a payload type (0 to 127)", clip(text));
        f.error("payload-type", "RFC 8866 5.14", *at, "m=", what, "write it in m=, rtpmap and fmtp, for example 96");
    } else if known.is_empty() {
        let what = "the m= line has no payload type".to_owned();
        f.error(
            "payload-type",
            "RFC 8866 5.14",
            medium.at,
            "m=",
            what,
            "write it in m=, rtpmap and fmtp, for example 96",
        );
    }
    if let Some((encoding, clock)) = known.iter().find_map(|pt| foreign::static_type(*pt)) {
        let channels = match (encoding, known.first()) {
            ("L16", Some(10)) => Some(2),
            _ => Some(1),
        };
        return Choice { encoding: encoding.to_owned(), clock_rate: clock, channels, ..plain };
    }
    if let Some((encoding, sign)) = guess(own) {
        let what = format!("no rtpmap; {sign} in fmtp says that it is {encoding}");
        let pt = plain.payload_type.unwrap_or(96);
        f.deviates(
            "missing-rtpmap",
            CLAUSE,
            At { column: 0, ..medium.at },
            "rtpmap",
            what,
            &format!("write a=rtpmap:{pt} {encoding}/90000"),
        );
        return Choice { encoding: encoding.to_owned(), clock_rate: 90_000, ..plain };
    }
    let pt = plain.payload_type.map_or("the payload type".to_owned(), |pt| format!("payload type {pt}"));
    let what = format!("no rtpmap: nothing says what {pt} carries");
    let cure = "write for example a=rtpmap:96 raw/90000 and the fmtp line of the sender";
    f.error("missing-rtpmap", CLAUSE, At { column: 0, ..medium.at }, "rtpmap", what, cure);
    plain
}

/// The essence whose parameters the fmtp line has.
fn guess(own: &Own<'_, '_>) -> Option<(&'static str, &'static str)> {
    let has = |mark: &str| own.all("fmtp").iter().any(|a| a.value.contains(mark));
    if has("packetmode=") {
        Some(("jxsv", "packetmode"))
    } else if has("DID_SDID=") || has("VPID_Code=") {
        Some(("smpte291", "DID_SDID or VPID_Code"))
    } else if has("sampling=") && has("depth=") && !has("profile") {
        Some(("raw", "sampling"))
    } else {
        None
    }
}

fn check_range(pt: u8, medium: &Medium<'_>, encoding: &str, f: &mut Findings) {
    if pt >= 96 || clock_of(encoding).is_none() {
        return;
    }
    let at = medium.formats.iter().find(|(text, _)| text.parse() == Ok(pt)).map_or(medium.at, |(_, at)| *at);
    let what = match pt {
        72..=76 => format!("payload type {pt} cannot be told from RTCP"),
        _ => format!("payload type {pt} is not dynamic (96 to 127)"),
    };
    f.deviates(
        "payload-type-range",
        "ST 2110-10:2022 6.2",
        at,
        "m=",
        what,
        "received as written; let the sender use 96 to 127",
    );
}

fn finish(pt: Option<u8>, map: &Map, f: &mut Findings) -> Choice {
    let mut clock_rate = map.clock.unwrap_or(0);
    let encoding = map.encoding.as_str();
    match clock_of(encoding) {
        Some(Some(right)) if clock_rate != right => {
            let what = match map.clock {
                Some(clock) => format!("the clock of {encoding} is {clock} Hz in the rtpmap"),
                None => format!("the rtpmap gives no clock for {encoding}"),
            };
            f.deviates(
                "rtpmap-clock",
                CLAUSE,
                map.encoding_at,
                "rtpmap",
                what,
                &format!("{right} assumed; write {encoding}/{right}"),
            );
            clock_rate = right;
        }
        Some(None) if clock_rate == 0 => {
            let right = if encoding.to_ascii_lowercase().starts_with("ttml") { 1000 } else { 48_000 };
            let what = format!("the rtpmap gives no clock for {encoding}");
            f.deviates(
                "rtpmap-clock",
                CLAUSE,
                map.encoding_at,
                "rtpmap",
                what,
                &format!("{right} assumed; write {encoding}/<rate>"),
            );
            clock_rate = right;
        }
        _ => {}
    }
    Choice {
        payload_type: pt,
        mapped: map.payload_type.filter(|p| Some(*p) != pt),
        encoding: map.encoding.clone(),
        clock_rate,
        channels: map.channels,
        at: Some(map.at),
    }
}

fn map(a: &Attribute<'_>, f: &mut Findings) -> Option<Map> {
    const SHAPE: &str = "write a=rtpmap:<payload type> <encoding>/<clock>, for example a=rtpmap:96 raw/90000";
    let value = a.value;
    let text = value.trim_start();
    let lead = value.len() - text.len();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    // `2110` in front of an encoding is not a payload type, a number before a blank is.
    let numbered = rest.is_empty() || rest.starts_with(' ') || (1..=3).contains(&digits);
    let (number, rest) = if numbered { (number, rest) } else { ("", text) };
    let payload_type = number.parse::<u8>().ok().filter(|pt| *pt < 128);
    if payload_type.is_none() {
        let what = match number {
            "" => "the rtpmap has no payload type".to_owned(),
            _ => format!("payload type {} is beyond 127", clip(number)),
        };
        f.deviates("rtpmap", CLAUSE, a.at(lead), "rtpmap", what, "that of the m= line is taken");
    }
    let encoding_at = a.at(lead + number.len() + (rest.len() - rest.trim_start().len()));
    let rest = rest.trim().trim_end_matches(';');
    let bare: String = rest.chars().filter(|c| *c != ' ').collect();
    if bare.len() != rest.len()
        || lead > 0
        || (digits > 0 && numbered && !text.get(digits..).unwrap_or("").starts_with(' '))
    {
        let what = format!("`{}`: blanks where none belong, or none where one does", clip(value));
        f.deviates("rtpmap", CLAUSE, a.at(0), "rtpmap", what, SHAPE);
    }
    let mut parts = bare.split('/');
    let encoding = parts.next().unwrap_or("").chars().take(64).collect::<String>();
    if encoding.is_empty() {
        let what = format!("`a=rtpmap:{}` names no encoding", clip(value));
        f.deviates("rtpmap", CLAUSE, a.at(0), "rtpmap", what, SHAPE);
        return None;
    }
    let clock = parts.next().filter(|t| !t.is_empty());
    let rate = clock.and_then(|t| t.parse::<u32>().ok()).filter(|r| *r > 0);
    if let Some(text) = clock.filter(|_| rate.is_none()) {
        f.deviates(
            "rtpmap",
            CLAUSE,
            encoding_at,
            "rtpmap",
            format!("the clock `{}` is not a rate in Hz", clip(text)),
            SHAPE,
        );
    }
    let channels = parts.next().filter(|t| !t.is_empty());
    let count = channels.and_then(|t| t.parse::<u32>().ok()).filter(|n| *n <= 65535);
    if let Some(text) = channels.filter(|_| count.is_none()) {
        let what = format!("`{}` is not a number of channels", clip(text));
        f.deviates("rtpmap", CLAUSE, encoding_at, "rtpmap", what, SHAPE);
    }
    Some(Map { payload_type, encoding, clock: rate, channels: count, at: a.start(), encoding_at })
}

/// The fmtp lines of the chosen payload type, and where the parameters start in each.
pub(crate) fn fmtp<'a, 'b>(own: &Own<'a, 'b>, choice: &Choice, f: &mut Findings) -> Vec<(&'b Attribute<'a>, usize)> {
    let mut matching = Vec::new();
    let mut others = Vec::new();
    for a in own.all("fmtp") {
        let lead = a.value.len() - a.value.trim_start().len();
        let text = a.value.trim_start();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let pt = text.get(..digits).and_then(|d| d.parse::<u8>().ok());
        let after = text.get(digits..).unwrap_or("");
        let from = lead + digits + (after.len() - after.trim_start_matches([' ', ';']).len());
        match pt {
            Some(pt) if Some(pt) == choice.payload_type => matching.push((a, from)),
            Some(_) => others.push((a, from, pt)),
            None => {
                let what = "the fmtp line has no payload type".to_owned();
                f.deviates(
                    "fmtp-payload-type",
                    "RFC 8866 6.15",
                    a.at(0),
                    "fmtp",
                    what,
                    "taken for the one of the m= line",
                );
                matching.push((a, lead));
            }
        }
    }
    if matching.is_empty() {
        let mapped = others.iter().filter(|(_, _, pt)| *pt == choice.mapped && pt.is_some());
        matching = mapped.map(|(a, from, _)| (*a, *from)).collect();
        if let Some((a, from, pt)) = others.first().filter(|_| matching.is_empty()) {
            let what = format!("fmtp is written for payload type {}, the m= line has another", pt.unwrap_or(0));
            f.deviates("fmtp-payload-type", "RFC 8866 6.15", a.at(0), "fmtp", what, "taken for the one of the m= line");
            matching.push((*a, *from));
        }
    }
    if let Some((a, _)) = matching.get(1) {
        let what = "a second fmtp line for the same payload type".to_owned();
        f.deviates("repeated-fmtp", "RFC 8866 6.15", a.start(), "fmtp", what, "read as one; join them");
    }
    matching
}
