//! Format parameters (`a=fmtp`): items between semicolons, and what senders make of that.

use crate::diagnostic::{At, Findings, clip};
use crate::session::Attribute;
use std::collections::HashMap;

/// Names that a receiver knows; a slip around one of them can be repaired.
const KNOWN: &[&str] = &[
    "sampling",
    "depth",
    "width",
    "height",
    "exactframerate",
    "colorimetry",
    "PM",
    "SSN",
    "TP",
    "interlace",
    "segmented",
    "TCS",
    "RANGE",
    "PAR",
    "MAXUDP",
    "TROFF",
    "CMAX",
    "TSMODE",
    "TSDELAY",
    "channel-order",
    "DID_SDID",
    "VPID_Code",
    "TM",
    "DIT",
    "charset",
    "codecs",
    "profile",
    "level",
    "sublevel",
    "packetmode",
    "transmode",
];

/// One item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Param<'a> {
    pub name: &'a str,
    /// `None` for a flag.
    pub value: Option<&'a str>,
    pub at: At,
    pub value_at: At,
}

/// The parameters of one medium.
pub(crate) struct Params<'a> {
    items: Vec<Param<'a>>,
    /// The fmtp line; where there is none, what stands for it.
    pub at: At,
    pub present: bool,
}

impl<'a> Params<'a> {
    /// `lines` are the fmtp attributes of one payload type, with the offset at which the parameters start.
    pub fn read(lines: &[(&Attribute<'a>, usize)], fallback: At, f: &mut Findings) -> Params<'a> {
        let at = lines.first().map_or(fallback, |(a, _)| a.start());
        let mut params = Params { items: vec![], at, present: !lines.is_empty() };
        for (attribute, from) in lines {
            params.line(attribute, *from, f);
        }
        params.repeated(f);
        params
    }

    fn line(&mut self, attribute: &Attribute<'a>, from: usize, f: &mut Findings) {
        let text: &'a str = attribute.value;
        let mut at = from;
        let tight = text
            .as_bytes()
            .windows(2)
            .enumerate()
            .skip(from)
            .find(|(_, w)| w[0] == b';' && !matches!(w[1], b' ' | b';'));
        if let Some((here, _)) = tight {
            let what = "no blank after a semicolon".to_owned();
            f.note("separator-blank", "ST 2110-20:2022 7.1", attribute.at(here + 1), "fmtp", what, "read all the same");
        }
        let mut pieces = text.get(from..).unwrap_or("").split(';').peekable();
        while let Some(piece) = pieces.next() {
            let lead = piece.len() - piece.trim_start().len();
            let item = piece.trim();
            if item.is_empty() && pieces.peek().is_some() {
                let what = "an empty item between two semicolons".to_owned();
                f.deviates("empty-parameter", "RFC 8866 6.15", attribute.at(at), "fmtp", what, "ignored; delete one");
            } else if !item.is_empty() {
                self.item(attribute, item, at + lead, f);
            }
            at += piece.len() + 1;
        }
    }

    /// One item, or several whose separator was forgotten.
    fn item(&mut self, attribute: &Attribute<'a>, item: &'a str, at: usize, f: &mut Findings) {
        let mut start = 0;
        if item.contains([' ', ',']) {
            let mut boundary = false;
            for (offset, c) in item.char_indices() {
                if matches!(c, ' ' | ',') {
                    boundary = true;
                    continue;
                }
                if boundary && offset > start && starts_known(item.get(offset..).unwrap_or("")) {
                    let here = attribute.at(at + offset);
                    let what = format!("no ; before `{}`", clip(item.get(offset..).unwrap_or("")));
                    f.deviates(
                        "missing-separator",
                        "RFC 8866 6.15",
                        here,
                        "fmtp",
                        what,
                        "taken as a parameter of its own; write ; before it",
                    );
                    self.single(attribute, item.get(start..offset).unwrap_or(""), at + start, f);
                    start = offset;
                }
                boundary = false;
            }
        }
        self.single(attribute, item.get(start..).unwrap_or(""), at + start, f);
    }

    fn single(&mut self, attribute: &Attribute<'a>, item: &'a str, at: usize, f: &mut Findings) {
        // A comma at the end separates items that should have been separated by ;, except in a list of its own.
        let list = item.get(..4).is_some_and(|n| n.eq_ignore_ascii_case("DIT="));
        let item = if list { item.trim_end() } else { item.trim_end_matches([' ', ',']) };
        let here = attribute.at(at);
        let sign = item.find('=').or_else(|| {
            let colon = item.find(':')?;
            let name = item.get(..colon)?;
            is_known(name.trim()).then(|| {
                let what = format!("`{}`: a colon in place of =", clip(item));
                f.deviates(
                    "parameter-syntax",
                    "RFC 8866 6.15",
                    attribute.at(at + colon),
                    name.trim(),
                    what,
                    "read as =",
                );
                colon
            })
        });
        let Some(sign) = sign else {
            self.items.push(Param { name: item, value: None, at: here, value_at: here });
            return;
        };
        let name = item.get(..sign).unwrap_or("");
        let raw = item.get(sign + 1..).unwrap_or("");
        let mut value = raw.trim();
        if name.ends_with(' ') || raw.starts_with(' ') {
            let what = format!("blank around the = of {}", clip(name.trim()));
            f.deviates(
                "parameter-syntax",
                "RFC 8866 6.15",
                attribute.at(at + sign),
                name.trim(),
                what,
                "ignored; write name=value",
            );
        }
        let mut value_offset = sign + 1 + raw.len() - raw.trim_start().len();
        let bare = value.trim_matches(['"', '\'', '\u{201c}', '\u{201d}']);
        let bare = bare.trim_start_matches('=').trim();
        if bare.len() != value.len() {
            let what = format!("the value of {} is written as `{}`", clip(name.trim()), clip(value));
            let cure = format!("read as {}; write it without quotes", clip(bare));
            f.deviates(
                "parameter-syntax",
                "ST 2110-20:2022 7.1",
                attribute.at(at + value_offset),
                name.trim(),
                what,
                &cure,
            );
            value_offset += value.find(bare).unwrap_or(0);
            value = bare;
        }
        self.items.push(Param {
            name: name.trim(),
            value: Some(value),
            at: here,
            value_at: attribute.at(at + value_offset),
        });
    }

    fn repeated(&self, f: &mut Findings) {
        let mut seen: HashMap<String, Option<&str>> = HashMap::new();
        for item in &self.items {
            let name = item.name.to_ascii_lowercase();
            if name == "did_sdid" {
                continue;
            }
            match seen.get(&name) {
                Some(first) => {
                    let same = if *first == item.value { "the same value" } else { "another value" };
                    let what = format!("{} occurs again, with {same}", clip(item.name));
                    f.deviates(
                        "repeated-parameter",
                        "RFC 8866 6.15",
                        item.at,
                        item.name,
                        what,
                        "the first is used; delete the other",
                    );
                }
                None => {
                    seen.insert(name, item.value);
                }
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Param<'a>> {
        self.items.iter()
    }

    /// The first item of that name; case does not matter, and is reported.
    pub fn get(&self, name: &str, f: &mut Findings) -> Option<Param<'a>> {
        let item = self.peek(name)?;
        if item.name != name {
            let what = format!("`{}` in place of {name}", clip(item.name));
            f.deviates("parameter-case", "ST 2110-20:2022 7.1", item.at, name, what, "read as the latter");
        }
        Some(item)
    }

    /// The first item of that name, with a value that is not empty.
    pub fn value(&self, name: &str, f: &mut Findings) -> Option<(&'a str, Param<'a>)> {
        let item = self.get(name, f)?;
        match item.value {
            Some(value) if !value.is_empty() => Some((value, item)),
            _ => {
                let what = format!("{name} has no value");
                f.deviates(
                    "parameter-syntax",
                    "RFC 8866 6.15",
                    item.at,
                    name,
                    what,
                    "taken as absent; write name=value",
                );
                None
            }
        }
    }

    /// Without a word about it.
    pub fn peek(&self, name: &str) -> Option<Param<'a>> {
        self.items.iter().find(|p| p.name.eq_ignore_ascii_case(name)).copied()
    }

    /// Says which of the items are none of `names`.
    pub fn report_unknown(&self, names: &[&str], standard: &'static str, f: &mut Findings) {
        let unknown: Vec<&Param<'_>> =
            self.items.iter().filter(|p| !names.iter().any(|n| p.name.eq_ignore_ascii_case(n))).collect();
        let Some(first) = unknown.first() else { return };
        let list = unknown.iter().take(8).map(|p| clip(p.name)).collect::<Vec<_>>().join(", ");
        let ipmx = unknown.iter().any(|p| p.name.eq_ignore_ascii_case("IPMX") || p.name.starts_with("measured"));
        let of = if ipmx { " (IPMX)" } else { "" };
        let what = format!("not a parameter of this essence{of}: {list}");
        f.note("unknown-parameter", standard, first.at, first.name, what, "ignored");
    }
}

fn is_known(name: &str) -> bool {
    KNOWN.iter().any(|k| k.eq_ignore_ascii_case(name))
}

fn starts_known(text: &str) -> bool {
    let end = text.find(['=', ' ', ',', ';']).unwrap_or(text.len());
    let name = text.get(..end).unwrap_or("");
    let rest = text.get(end..).unwrap_or("").trim_start();
    let flag = name.eq_ignore_ascii_case("interlace") || name.eq_ignore_ascii_case("segmented");
    is_known(name) && (flag || rest.starts_with('='))
}
