//! Lines become a session and its media. The line grammar is `sdp-types`'; what it would refuse is repaired before.
//!
//! `sdp-types` keeps neither columns nor lines, so each of its attributes is paired again with the [`Line`] it came
//! from. What a receiver depends on (addresses, ports, payload types) is checked here, since the crate stops at the
//! first fault and says nothing of the second.

mod fields;

use crate::diagnostic::{At, Findings, clip};
use crate::lines::Line;
use crate::tokens::{Token, tokens};
use fields::{connection_line, media_line};
use std::net::IpAddr;

/// Media sections that are read.
pub(crate) const MAX_MEDIA: usize = 1024;

/// An attribute and where it stands.
pub(crate) struct Attribute<'a> {
    pub name: &'a str,
    /// Empty for a property attribute.
    pub value: &'a str,
    offset: usize,
    line: &'a Line,
}

impl<'a> Attribute<'a> {
    fn of(line: &'a Line) -> Attribute<'a> {
        let (name, value, offset) = match line.value.split_once(':') {
            Some((name, value)) => (name, value, name.len() + 1),
            None => (line.value.as_str(), "", line.value.len()),
        };
        Attribute { name: name.trim(), value, offset, line }
    }
    /// Where the octet at `offset` of the value stands.
    pub fn at(&self, offset: usize) -> At {
        self.line.at(self.offset + offset)
    }
    /// Where the name stands.
    pub fn start(&self) -> At {
        self.line.at(0)
    }
    /// Words of the value and where each stands.
    pub fn words(&self) -> Vec<Token<'a>> {
        tokens(self.value)
    }
}

/// What `c=` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    Missing,
    /// There is one, and no address can be read from it.
    Bad(At),
    Given {
        address: IpAddr,
        ttl: Option<u8>,
        at: At,
    },
}

/// What an `m=` line starts.
pub(crate) struct Medium<'a> {
    /// Where its `m=` line stands.
    pub at: At,
    pub media: String,
    /// `None` when it cannot be read; reported then.
    pub port: Option<u16>,
    pub port_at: At,
    pub proto: String,
    pub formats: Vec<(String, At)>,
    pub title: String,
    pub connection: Connection,
    pub bandwidth_kbps: Option<u32>,
    pub attributes: Vec<Attribute<'a>>,
}

/// What stands before the first `m=`.
pub(crate) struct Session<'a> {
    pub name: String,
    /// The value of `o=` where it is well formed.
    pub origin: Option<String>,
    pub connection: Connection,
    pub attributes: Vec<Attribute<'a>>,
    pub media: Vec<Medium<'a>>,
}

/// Which lines of the description belong where, and the text that `sdp-types` reads.
#[derive(Default)]
struct Plan<'a> {
    canonical: Vec<u8>,
    session: Vec<&'a Line>,
    media: Vec<Part<'a>>,
}

struct Part<'a> {
    m: &'a Line,
    port: Option<u16>,
    port_at: At,
    formats: Vec<(String, At)>,
    connection: Connection,
    attributes: Vec<&'a Line>,
    titled: bool,
}

pub(crate) fn read<'a>(lines: &'a [Line], f: &mut Findings) -> Option<Session<'a>> {
    let mut plan = Plan::default();
    let mut head = Head::default();
    plan.put(b'v', "0");
    let mut connection = Connection::Missing;
    let mut order = Order::default();
    let mut dropped = None;
    let mut too_many = false;
    for line in lines {
        if line.key == b'v' && head.version.is_some() {
            // Two descriptions in one file: what follows would overwrite the first one's session.
            let what = format!("a second description starts here (the first in line {})", head.version.unwrap_or(0));
            f.deviates(
                "second-description",
                "RFC 8866 5.1",
                line.start(),
                "v=",
                what,
                "only the first is read; give each its own file",
            );
            dropped = Some(line.number());
            break;
        }
        if line.key == b'm' {
            if plan.media.len() == MAX_MEDIA {
                too_many = true;
                let what = format!("more than {MAX_MEDIA} media");
                f.error("too-many-media", "", line.start(), "m=", what, "the rest is ignored; cut the description");
                break;
            }
            order = Order::default();
            let part = media_line(line, f);
            plan.put(b'm', &part.1);
            plan.media.push(part.0);
            continue;
        }
        let media = plan.media.last().map(|part| part.m.number());
        order.check(line, media, f);
        head.session_line_in_medium(line, media, f);
        match (line.key, plan.media.last_mut()) {
            (b'a', Some(part)) => {
                part.attributes.push(line);
                plan.attribute(line);
            }
            (b'a', None) => {
                plan.session.push(line);
                plan.attribute(line);
            }
            (b'c', part) => {
                let target = part.map_or(&mut connection, |part| &mut part.connection);
                if *target != Connection::Missing {
                    let what = "a second c= line".to_owned();
                    f.warn(
                        "repeated-line",
                        "RFC 8866 5.7",
                        line.start(),
                        "c=",
                        what,
                        "the first is used; delete the other",
                    );
                } else {
                    *target = connection_line(line, f);
                    if let Connection::Given { address, ttl, .. } = *target {
                        let family = if address.is_ipv4() { "IP4" } else { "IP6" };
                        let ttl = ttl.filter(|_| address.is_ipv4()).map_or(String::new(), |ttl| format!("/{ttl}"));
                        plan.put(b'c', &format!("IN {family} {address}{ttl}"));
                    }
                }
            }
            (b'b', _) => {
                if let Some(value) = bandwidth_line(line, f) {
                    plan.put(b'b', &value);
                }
            }
            (b'i', Some(part)) => {
                if !part.titled {
                    part.titled = true;
                    plan.put(b'i', &line.value);
                }
            }
            (_, Some(_)) => {}
            (_, None) => {
                if let Some(value) = head.line(line, f) {
                    plan.put(line.key, &value);
                }
            }
        }
    }
    if plan.media.is_empty() && head.version.is_none() {
        return None;
    }
    head.missing(lines, f);
    let _ = (dropped, too_many);
    let session = match sdp_types::Session::parse(&plan.canonical) {
        Ok(session) => session,
        Err(e) => {
            let what = format!("the description cannot be read: {e}");
            f.error("syntax", "RFC 8866 9", At::TEXT, "", what, "write it again from the sender");
            return None;
        }
    };
    Some(plan.assemble(session, connection))
}

impl<'a> Plan<'a> {
    fn put(&mut self, key: u8, value: &str) {
        self.canonical.push(key);
        self.canonical.push(b'=');
        self.canonical.extend_from_slice(value.as_bytes());
        self.canonical.extend_from_slice(b"\r\n");
    }

    fn attribute(&mut self, line: &Line) {
        self.put(b'a', &line.value);
    }

    fn assemble(self, typed: sdp_types::Session, connection: Connection) -> Session<'a> {
        let media = self.media.into_iter().zip(typed.medias).map(|(part, typed)| Medium {
            at: part.m.start(),
            media: typed.media,
            port: part.port,
            port_at: part.port_at,
            proto: typed.proto,
            formats: part.formats,
            title: short(typed.media_title.unwrap_or_default()),
            connection: part.connection,
            bandwidth_kbps: kbps(&typed.bandwidths),
            attributes: part.attributes.into_iter().map(Attribute::of).collect(),
        });
        let o = &typed.origin;
        let origin = (o.sess_id != "0" || o.sess_version != 0).then(|| {
            let user = o.username.as_deref().unwrap_or("-");
            format!("{user} {} {} {} {} {}", o.sess_id, o.sess_version, o.nettype, o.addrtype, o.unicast_address)
        });
        Session {
            media: media.collect(),
            name: short(typed.session_name),
            origin,
            connection,
            attributes: self.session.into_iter().map(Attribute::of).collect(),
        }
    }
}

/// `b=AS`, or `b=TIAS` (bit/s without headers) rounded up.
fn kbps(bandwidths: &[sdp_types::Bandwidth]) -> Option<u32> {
    let of = |name: &str| bandwidths.iter().find(|b| b.bwtype.eq_ignore_ascii_case(name)).map(|b| b.bandwidth);
    of("AS").or_else(|| of("TIAS").map(|bits| bits.div_ceil(1000))).and_then(|b| u32::try_from(b).ok())
}

/// Names go into every flow: one long name must not be copied a thousand times.
fn short(name: String) -> String {
    let name = name.trim();
    let mut end = name.len().min(256);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.get(..end).unwrap_or("").trim_end().to_owned()
}

/// Order of the lines (RFC 8866 5); the first one out of order is reported.
#[derive(Default)]
struct Order {
    highest: usize,
    of: u8,
    said: bool,
}

impl Order {
    fn check(&mut self, line: &Line, media: Option<u32>, f: &mut Findings) {
        let order: &[u8] = if media.is_some() { b"icbka" } else { b"vosiuepcbtzka" };
        let key = if line.key == b'r' { b't' } else { line.key };
        let Some(rank) = order.iter().position(|k| *k == key) else { return };
        if rank < self.highest && !self.said {
            self.said = true;
            let (late, early) = (char::from(key), char::from(self.of));
            let what = format!("the {late}= line stands after {early}=");
            f.deviates(
                "line-order",
                "RFC 8866 5",
                line.start(),
                &format!("{late}="),
                what,
                "read all the same; move it up",
            );
        }
        if rank >= self.highest {
            (self.highest, self.of) = (rank, key);
        }
    }
}

/// The session-level lines that occur once.
#[derive(Default)]
struct Head {
    version: Option<u32>,
    origin: bool,
    name: bool,
    time: bool,
    others: [bool; 5],
    misplaced: bool,
}

impl Head {
    fn session_line_in_medium(&mut self, line: &Line, media: Option<u32>, f: &mut Findings) {
        let Some(m) = media.filter(|_| b"vosuepcbtrz".contains(&line.key) && !b"cb".contains(&line.key)) else {
            return;
        };
        if line.key == b't' {
            self.time = true;
        }
        if !self.misplaced {
            let key = char::from(line.key);
            let what = format!("{key}= belongs to the session, not to the medium that starts in line {m}");
            f.deviates(
                "line-order",
                "RFC 8866 5",
                line.start(),
                &format!("{key}="),
                what,
                "ignored; move it before the first m=",
            );
        }
        self.misplaced = true;
    }

    /// The value that `sdp-types` is to read, if any.
    fn line(&mut self, line: &Line, f: &mut Findings) -> Option<String> {
        let value = line.value.as_str();
        let mut once = |seen: &mut bool, clause| {
            let first = !*seen;
            *seen = true;
            if !first {
                let what = format!("a second {}= line", char::from(line.key));
                f.deviates("repeated-line", clause, line.start(), "", what, "the first is used; delete the other");
            }
            first
        };
        match line.key {
            b'v' => {
                self.version = Some(line.number());
                if value.trim() != "0" {
                    let what = format!("SDP version `{}`; there is only 0", clip(value));
                    f.deviates("version", "RFC 8866 5.1", line.at(0), "v=", what, "read as version 0; write v=0");
                }
                None
            }
            b'o' => (once(&mut self.origin, "RFC 8866 5.2") && origin_line(line, f)).then(|| joined(value)),
            b's' => {
                if !once(&mut self.name, "RFC 8866 5.3") {
                    return None;
                }
                if value.is_empty() {
                    let what = "the session name is empty".to_owned();
                    f.deviates(
                        "session-name",
                        "RFC 8866 5.3",
                        line.start(),
                        "s=",
                        what,
                        "write s=- when there is none",
                    );
                }
                Some(value.to_owned())
            }
            b't' => {
                self.time = true;
                let words: Vec<&str> = value.split_ascii_whitespace().collect();
                let good = words.len() == 2 && words.iter().all(|w| w.parse::<u64>().is_ok());
                if !good {
                    let what = format!("`t={}` is not two numbers", clip(value));
                    f.deviates("time", "RFC 8866 5.9", line.at(0), "t=", what, "read as t=0 0 (permanent)");
                } else if words.first() != Some(&"0") || words.get(1) != Some(&"0") {
                    let what = format!("the session is announced for a time (t={})", clip(value));
                    f.note("time", "RFC 8866 5.9", line.at(0), "t=", what, "the times are ignored");
                }
                good.then(|| joined(value))
            }
            b'i' => once(&mut self.others[0], "RFC 8866 5.4").then(|| value.to_owned()),
            b'u' => once(&mut self.others[1], "RFC 8866 5.5").then(|| value.to_owned()),
            b'k' => {
                let what = "k= (a key) is obsolete and ignored".to_owned();
                f.note("obsolete-line", "RFC 8866 5.12", line.start(), "k=", what, "delete it");
                None
            }
            // Times and people: nothing for a receiver, and much for a grammar to stumble over.
            _ => None,
        }
    }

    fn missing(&self, lines: &[Line], f: &mut Findings) {
        let first = lines.first().map_or(At::TEXT, Line::start);
        let lacks = [
            (self.version.is_some(), "v=", "RFC 8866 5.1", "v=0 assumed; the first line is v=0"),
            (
                self.origin,
                "o=",
                "RFC 8866 5.2",
                "not needed to receive; write o=- <id> <version> IN IP4 <address of the sender>",
            ),
            (self.name, "s=", "RFC 8866 5.3", "not needed to receive; write s=<name> or s=-"),
            (self.time, "t=", "RFC 8866 5.9", "t=0 0 assumed (permanent); write it"),
        ];
        for (there, letter, clause, cure) in lacks {
            if !there {
                f.deviates(
                    "missing-line",
                    clause,
                    At { column: 0, ..first },
                    letter,
                    format!("there is no {letter} line"),
                    cure,
                );
            }
        }
        if let Some(line) = lines.first().filter(|l| l.key != b'v' && self.version.is_some()) {
            f.deviates(
                "line-order",
                "RFC 8866 5",
                line.start(),
                "v=",
                "v=0 is not the first line".to_owned(),
                "read all the same; move it up",
            );
        }
    }
}

fn joined(value: &str) -> String {
    value.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether `sdp-types` can read it; nothing in it matters to a receiver.
fn origin_line(line: &Line, f: &mut Findings) -> bool {
    const CURE: &str = "not needed to receive; write o=<user or -> <id> <version> IN IP4 <address>";
    let words = line.words();
    if words.len() != 6 {
        let what = format!("o= has {} fields in place of 6", words.len());
        f.deviates("origin", "RFC 8866 5.2", line.at(0), "o=", what, CURE);
        return false;
    }
    let mut readable = true;
    for word in words.get(1..3).unwrap_or(&[]) {
        if !word.text.bytes().all(|b| b.is_ascii_digit()) {
            let what = format!("`{}` in o= is not a number", clip(word.text));
            f.deviates("origin", "RFC 8866 5.2", line.at(word.at), "o=", what, CURE);
            readable = false;
        }
    }
    readable &= words.get(2).is_some_and(|w| w.text.parse::<u64>().is_ok());
    let [.., net, family, address] = words.as_slice() else { return false };
    if net.text != "IN" || !matches!(family.text, "IP4" | "IP6") {
        let what = format!("`{} {}` in o= is neither IN IP4 nor IN IP6", clip(net.text), clip(family.text));
        f.deviates("origin", "RFC 8866 5.2", line.at(net.at), "o=", what, CURE);
        readable = false;
    }
    match address.text.parse::<IpAddr>() {
        Ok(ip) if ip.is_ipv4() != (family.text == "IP4") => {
            let what = format!("o= says {} and gives the address {ip}", clip(family.text));
            f.deviates("origin", "RFC 8866 5.2", line.at(family.at), "o=", what, CURE);
        }
        Ok(_) => {}
        // Host names are allowed; their last label is never a number and has no odd characters.
        Err(_) if is_host_name(address.text) => {}
        Err(_) => {
            let what = format!("`{}` in o= is no address", clip(address.text));
            f.deviates("origin", "RFC 8866 5.2", line.at(address.at), "o=", what, CURE);
        }
    }
    readable
}

/// A host name of the grammar's FQDN: letters, digits, `-` and `.`, and not something that tried to be an address.
pub(crate) fn is_host_name(text: &str) -> bool {
    let last = text.trim_end_matches('.').rsplit('.').next().unwrap_or("");
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
        && last.bytes().any(|b| b.is_ascii_alphabetic())
        && !text.starts_with(|c: char| c.is_ascii_digit())
}

fn bandwidth_line(line: &Line, f: &mut Findings) -> Option<String> {
    let parts = line.value.split_once(':').map(|(kind, value)| (kind.trim(), value.trim()));
    let number = parts.and_then(|(_, value)| value.parse::<u64>().ok());
    if let (Some((kind, _)), Some(number)) = (parts, number)
        && !kind.is_empty()
    {
        return Some(format!("{kind}:{number}"));
    }
    let what = format!("`b={}` is not <type>:<kbit/s as an integer>", clip(&line.value));
    f.deviates("bandwidth", "RFC 8866 5.8", line.at(0), "b=", what, "ignored; write for example b=AS:2600000");
    None
}

impl Line {
    /// Words of the value and where each starts in it.
    pub fn words(&self) -> Vec<Token<'_>> {
        tokens(&self.value)
    }
}
