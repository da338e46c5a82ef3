//! `a=ts-refclk` and `a=mediaclk` (RFC 7273, ST 2110-10).

use crate::diagnostic::{At, Findings, clip};
use crate::session::Attribute;
use crate::tokens::{eui, tokens};
use crate::{MediaClock, ReferenceClock};

const CLAUSE: &str = "ST 2110-10:2022 8.2";
const SHAPE: &str = "write ptp=IEEE1588-2008:<XX-XX-XX-XX-XX-XX-XX-XX>:<domain>, ptp=IEEE1588-2008:traceable or localmac=<XX-XX-XX-XX-XX-XX>";
/// Clocks of one flow that are kept; a description for a million clocks is no description.
const MOST: usize = 8;

pub(crate) fn reference_clocks(attributes: &[&Attribute<'_>], f: &mut Findings) -> Vec<ReferenceClock> {
    attributes.iter().take(MOST).filter_map(|a| reference_clock(a, f)).collect()
}

fn reference_clock(a: &Attribute<'_>, f: &mut Findings) -> Option<ReferenceClock> {
    let value = a.value.trim();
    let lead = a.value.len() - a.value.trim_start().len();
    if lead > 0 {
        f.deviates("blank-in-attribute", CLAUSE, a.at(0), "ts-refclk", "blank after the colon".to_owned(), "ignored");
    }
    let at = a.at(lead);
    let (kind, rest) = value.split_once('=').map_or((value, None), |(k, r)| (k.trim(), Some(r.trim())));
    let other = || Some(ReferenceClock::Other { text: text_of(value) });
    match (kind.to_ascii_lowercase().as_str(), rest) {
        ("ptp", Some(rest)) => ptp(rest, a.at(lead + value.len() - rest.len()), f),
        ("localmac", Some(rest)) => match eui(rest, 6) {
            Some(mac) => {
                case(rest, &mac, "MAC address", at, f);
                Some(ReferenceClock::LocalMac { mac })
            }
            None => {
                let what = format!("`{}` is not a MAC address", clip(rest));
                f.deviates("ts-refclk", CLAUSE, at, "ts-refclk", what, SHAPE);
                other()
            }
        },
        ("ntp", Some(_)) | ("gps" | "gal" | "glonass" | "local" | "private", _) => {
            let what = format!("the reference clock `{}` is not one of ST 2110", clip(value));
            f.deviates(
                "ts-refclk",
                CLAUSE,
                at,
                "ts-refclk",
                what,
                "RTP times are not compared with PTP; write ptp= or localmac=",
            );
            other()
        }
        ("", _) => {
            f.deviates("ts-refclk", CLAUSE, at, "ts-refclk", "ts-refclk is empty".to_owned(), SHAPE);
            None
        }
        _ => {
            let what = format!("`{}` is not a reference clock", clip(value));
            f.deviates("ts-refclk", CLAUSE, at, "ts-refclk", what, SHAPE);
            other()
        }
    }
}

fn ptp(rest: &str, at: At, f: &mut Findings) -> Option<ReferenceClock> {
    let (version, server) = rest.split_once(':').map_or((rest, None), |(v, s)| (v.trim(), Some(s.trim())));
    if version.eq_ignore_ascii_case("traceable") {
        let what = "`ptp=traceable` lacks the version of PTP (the form of the 2017 edition)".to_owned();
        f.deviates("ts-refclk", CLAUSE, at, "ts-refclk", what, "read as ptp=IEEE1588-2008:traceable; write that");
        return Some(ReferenceClock::Ptp { version: "IEEE1588-2008".to_owned(), grandmaster: None, domain: None });
    }
    let known = ["IEEE1588-2002", "IEEE1588-2008", "IEEE1588-2019", "IEEE802.1AS-2011"];
    let matched = known.iter().find(|k| k.eq_ignore_ascii_case(version));
    if matched != Some(&version) {
        let what = format!("`{}` is not a version of PTP", clip(version));
        let cure = "read as written; write IEEE1588-2008";
        f.deviates("ts-refclk", CLAUSE, at, "ts-refclk", what, cure);
    } else if version != "IEEE1588-2008" && version != "IEEE1588-2019" {
        let what = format!("{version} is not the clock of ST 2110 (IEEE1588-2008)");
        f.deviates("ts-refclk", CLAUSE, at, "ts-refclk", what, "RTP times may not compare with the local PTP clock");
    }
    let version = matched.map_or_else(|| text_of(version), |m| (*m).to_owned());
    let Some(server) = server.filter(|s| !s.is_empty()) else {
        f.deviates("ts-refclk", CLAUSE, at, "ts-refclk", "no grandmaster after the version".to_owned(), SHAPE);
        return Some(ReferenceClock::Other { text: text_of(&format!("ptp={rest}")) });
    };
    let server_at = At { column: at.column + (rest.len() - server.len()) as u32, ..at };
    if server.eq_ignore_ascii_case("traceable") {
        return Some(ReferenceClock::Ptp { version, grandmaster: None, domain: None });
    }
    let (grandmaster, domain) = split_domain(server);
    let Some(id) = grandmaster_id(grandmaster, server_at, f) else {
        return Some(ReferenceClock::Other { text: text_of(&format!("ptp={rest}")) });
    };
    let no_domain = version.starts_with("IEEE802");
    let domain_at = At { column: server_at.column + grandmaster.len() as u32 + 1, ..server_at };
    let domain = match domain {
        None if no_domain => None,
        None => {
            let what = "the PTP domain is missing".to_owned();
            f.deviates(
                "ptp-domain",
                CLAUSE,
                server_at,
                "ts-refclk",
                what,
                "unknown; write it after the grandmaster, for example :127",
            );
            None
        }
        Some(text) => domain_number(text, domain_at, f),
    };
    Some(ReferenceClock::Ptp { version, grandmaster: Some(id), domain })
}

/// The identity may itself be written with colons: the domain is what follows its sixteen digits.
fn split_domain(server: &str) -> (&str, Option<&str>) {
    let mut digits = 0;
    for (at, b) in server.bytes().enumerate() {
        if b == b':' && digits >= 16 {
            return (server.get(..at).unwrap_or(""), server.get(at + 1..));
        }
        digits += usize::from(b.is_ascii_hexdigit());
    }
    if digits > 16 || !server.contains('-') {
        return (server, None);
    }
    match server.rsplit_once(':') {
        Some((id, domain)) => (id, Some(domain)),
        None => (server, None),
    }
}

fn grandmaster_id(text: &str, at: At, f: &mut Findings) -> Option<String> {
    let Some(id) = eui(text, 8) else {
        let what = match eui(text, 6) {
            Some(_) => format!("the grandmaster `{}` has 6 octets in place of 8", clip(text)),
            None => format!("`{}` is not the identity of a grandmaster (8 octets XX-XX-…)", clip(text)),
        };
        f.deviates(
            "ptp-grandmaster",
            CLAUSE,
            at,
            "ts-refclk",
            what,
            "taken as unknown; write its 8 octets in hexadecimal with dashes",
        );
        return None;
    };
    case(text, &id, "grandmaster identity", at, f);
    if id == "00-00-00-00-00-00-00-00" {
        let what = "the grandmaster is all zero: the sender was not locked when it wrote this".to_owned();
        f.warn(
            "ptp-grandmaster",
            CLAUSE,
            at,
            "ts-refclk",
            what,
            "taken as written; look at the PTP state of the sender",
        );
    }
    Some(id)
}

fn case(text: &str, right: &str, what: &str, at: At, f: &mut Findings) {
    if text == right {
        return;
    }
    if text.eq_ignore_ascii_case(right) {
        f.note("hex-case", CLAUSE, at, "ts-refclk", format!("the {what} is in lower case"), "read as upper case");
    } else {
        let what = format!("the {what} `{}` is not written with dashes", clip(text));
        f.deviates("hex-form", CLAUSE, at, "ts-refclk", what, &format!("read as {right}"));
    }
}

fn domain_number(text: &str, at: At, f: &mut Findings) -> Option<u8> {
    let number = text.strip_prefix("domain-nmbr=").unwrap_or(text).trim();
    match number.parse::<u8>() {
        Ok(domain) if domain <= 127 => {
            if text != domain.to_string() {
                let what = format!("the PTP domain is written as `{}`", clip(text));
                f.note("ptp-domain", CLAUSE, at, "ts-refclk", what, &format!("read as {domain}"));
            }
            Some(domain)
        }
        _ => {
            let what = format!("`{}` is not a PTP domain (0 to 127)", clip(text));
            f.deviates("ptp-domain", CLAUSE, at, "ts-refclk", what, "taken as unknown");
            None
        }
    }
}

/// Clock rate and whether the essence demands offset 0 (all but AES67 audio).
pub(crate) fn media_clock(a: &Attribute<'_>, clock_rate: u32, zero: bool, f: &mut Findings) -> MediaClock {
    const CLAUSE: &str = "ST 2110-10:2022 8.3";
    let words = tokens(a.value);
    let words = words.as_slice();
    let at = a.at(words.first().map_or(0, |w| w.at));
    let (first, rest) = words.split_first().map_or(("", words), |(w, rest)| (w.text.trim_end_matches(';'), rest));
    let (name, value) = first.split_once('=').map_or((first, None), |(n, v)| (n, Some(v)));
    let clock = match (name.to_ascii_lowercase().as_str(), value) {
        ("direct", None | Some("")) => {
            let what = "`direct` without its offset".to_owned();
            f.deviates("mediaclk", CLAUSE, at, "mediaclk", what, "read as direct=0; write that");
            MediaClock::Direct { offset: 0 }
        }
        ("direct", Some(value)) => match value.parse::<u64>() {
            Ok(offset) => {
                if offset != 0 {
                    let what = format!("RTP timestamps are offset by {offset}");
                    let cure = "the offset is applied; ST 2110 demands direct=0";
                    match zero {
                        true => f.deviates("mediaclk-offset", CLAUSE, at, "mediaclk", what, cure),
                        false => f.note("mediaclk-offset", CLAUSE, at, "mediaclk", what, cure),
                    }
                }
                MediaClock::Direct { offset }
            }
            Err(_) => {
                let what = format!("the offset `{}` is not a number", clip(value));
                f.deviates("mediaclk", CLAUSE, at, "mediaclk", what, "read as direct=0; write that");
                MediaClock::Direct { offset: 0 }
            }
        },
        ("sender", _) => MediaClock::Sender,
        ("id", Some(_)) if rest.iter().any(|w| w.text == "sender") => {
            let what = "the sender's clock has an id".to_owned();
            f.note("mediaclk", CLAUSE, at, "mediaclk", what, "the id is ignored; read as mediaclk:sender");
            return MediaClock::Sender;
        }
        ("ieee1722", Some(_)) => MediaClock::Other { text: text_of(a.value.trim()) },
        _ => {
            let what = format!("`{}` is not a media clock", clip(a.value.trim()));
            f.deviates(
                "mediaclk",
                CLAUSE,
                at,
                "mediaclk",
                what,
                "taken as unknown; write mediaclk:direct=0 or mediaclk:sender",
            );
            return MediaClock::Other { text: text_of(a.value.trim()) };
        }
    };
    for word in rest {
        let rate =
            word.text.strip_prefix("rate=").and_then(|r| r.split('/').next()).and_then(|r| r.parse::<u32>().ok());
        match rate {
            Some(rate) if rate == clock_rate => {
                let what = "`rate=` repeats the clock rate of the rtpmap".to_owned();
                f.note(
                    "mediaclk-rate",
                    "RFC 7273 5.2",
                    a.at(word.at),
                    "mediaclk",
                    what,
                    "ignored; ST 2110 writes direct=0 alone",
                );
            }
            Some(rate) => {
                let what = format!("`rate={rate}` contradicts the rtpmap ({clock_rate} Hz)");
                f.deviates("mediaclk-rate", "RFC 7273 5.2", a.at(word.at), "mediaclk", what, "the rtpmap is used");
            }
            None => {
                let what = format!("`{}` after the media clock", clip(word.text));
                f.deviates("mediaclk", CLAUSE, a.at(word.at), "mediaclk", what, "ignored");
            }
        }
    }
    clock
}

fn text_of(value: &str) -> String {
    let mut end = value.len().min(256);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    value.get(..end).unwrap_or("").to_owned()
}
