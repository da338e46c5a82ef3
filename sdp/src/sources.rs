//! `a=source-filter` (RFC 4570): who may send to a destination.

use crate::SourceFilter;
use crate::diagnostic::{At, Findings, clip};
use crate::session::Attribute;
use crate::tokens;
use std::collections::HashMap;
use std::net::IpAddr;

const CLAUSE: &str = "RFC 4570 3";
const SHAPE: &str = "write source-filter: incl IN IP4 <destination> <source>";
/// Sources of one filter that are kept; Linux joins 10 by default.
const MOST: usize = 64;

/// One filter line.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// `None` for `*`.
    destination: Option<IpAddr>,
    include: bool,
    sources: Vec<IpAddr>,
    at: At,
    destination_at: At,
}

/// Reads one line; `None` when it filters nothing.
pub(crate) fn filter(a: &Attribute<'_>, f: &mut Findings) -> Option<Filter> {
    let words = a.words();
    let mut words = words.as_slice();
    let at = a.start();
    if !a.value.is_empty() && !a.value.starts_with(' ') {
        f.note(
            "source-filter-blank",
            CLAUSE,
            a.at(0),
            "source-filter",
            "no blank after `source-filter:`".to_owned(),
            "read all the same",
        );
    }
    if a.value.trim().contains("  ") {
        f.note("source-filter-blank", CLAUSE, a.at(0), "source-filter", "runs of blanks".to_owned(), "read as one");
    }
    let mut include = true;
    match words {
        [mode, rest @ ..] if !mode.text.contains(['.', ':', '*']) && !mode.text.eq_ignore_ascii_case("IN") => {
            words = rest;
            match mode.text.to_ascii_lowercase().as_str() {
                "incl" => {}
                "excl" => include = false,
                "inc" | "include" | "included" => {
                    let what = format!("`{}` in place of incl", mode.text);
                    f.deviates("source-filter", CLAUSE, a.at(mode.at), "source-filter", what, "read as the latter");
                }
                "exc" | "exclude" | "excluded" => {
                    include = false;
                    let what = format!("`{}` in place of excl", mode.text);
                    f.deviates("source-filter", CLAUSE, a.at(mode.at), "source-filter", what, "read as the latter");
                }
                _ => {
                    let what = format!("`{}` is neither incl nor excl", clip(mode.text));
                    f.deviates(
                        "source-filter",
                        CLAUSE,
                        a.at(mode.at),
                        "source-filter",
                        what,
                        "incl assumed; write incl",
                    );
                }
            }
        }
        _ => {
            let what = "neither incl nor excl is said".to_owned();
            f.deviates("source-filter", CLAUSE, at, "source-filter", what, "incl assumed; write incl");
        }
    }
    let (net, family): (usize, usize) = match words {
        [n, t, ..] if n.text.eq_ignore_ascii_case("IN") && is_family(t.text) => (1, 1),
        [n, ..] if n.text.eq_ignore_ascii_case("IN") => (1, 0),
        [t, ..] if t.text.len() > 1 && is_family(t.text) => (0, 1),
        _ => (0, 0),
    };
    if (net, family) != (1, 1) {
        let what = "`IN IP4` or `IN IP6` is not complete".to_owned();
        f.deviates("source-filter", CLAUSE, at, "source-filter", what, "taken from the addresses");
    }
    let said_family = words.get(net).filter(|_| family == 1).map(|w| w.text);
    let rest = words.get(net + family..).unwrap_or(&[]);
    let Some((destination, sources)) = rest.split_first() else {
        f.deviates(
            "source-filter",
            CLAUSE,
            at,
            "source-filter",
            "the filter names neither destination nor source".to_owned(),
            SHAPE,
        );
        return None;
    };
    let destination_at = a.at(destination.at);
    let host = destination.text.split('/').next().unwrap_or("");
    let target = match host {
        "*" => None,
        _ => match tokens::address(host, destination_at, "source-filter", f) {
            Some(address) => {
                if host.len() != destination.text.len() {
                    let what = format!("`{}`: a filter names the address alone", clip(destination.text));
                    f.deviates("source-filter", CLAUSE, destination_at, "source-filter", what, "the TTL is ignored");
                }
                Some(address)
            }
            None => {
                let what = format!("the destination `{}` is not an address", clip(destination.text));
                f.deviates(
                    "source-filter",
                    CLAUSE,
                    destination_at,
                    "source-filter",
                    what,
                    "the destination of c= is taken",
                );
                None
            }
        },
    };
    if sources.is_empty() {
        let what = "the filter names no source".to_owned();
        f.deviates(
            "source-filter-empty",
            CLAUSE,
            at,
            "source-filter",
            what,
            "ignored: any source is accepted; write the sender's address at its end",
        );
        return None;
    }
    let mut addresses = Vec::new();
    for word in sources.iter().take(MOST) {
        let source_at = a.at(word.at);
        let Some(address) = tokens::address(word.text, source_at, "source-filter", f) else {
            let (what, cure) = if tokens_is_name(word.text) {
                (format!("the source `{}` is a name", clip(word.text)), "names are not resolved; write its address")
            } else {
                (format!("the source `{}` is not an address", clip(word.text)), "ignored; write the sender's address")
            };
            f.deviates("source-filter", CLAUSE, source_at, "source-filter", what, cure);
            continue;
        };
        if address.is_multicast() || address.is_unspecified() {
            let what = format!("the source {address} cannot send");
            f.deviates(
                "source-filter",
                CLAUSE,
                source_at,
                "source-filter",
                what,
                "ignored; write the sender's unicast address",
            );
            continue;
        }
        if let Some(family) = said_family.filter(|t| *t != "*" && t.ends_with('4') != address.is_ipv4()) {
            let what = format!("the source {address} is not of the type {family}");
            f.deviates("source-filter", CLAUSE, source_at, "source-filter", what, "taken as it is");
        }
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if sources.len() > MOST {
        let what = format!("{} sources; {MOST} are kept", sources.len());
        f.warn("source-filter", CLAUSE, at, "source-filter", what, "name the senders of this flow only");
    }
    (!addresses.is_empty()).then_some(Filter { destination: target, include, sources: addresses, at, destination_at })
}

fn is_family(text: &str) -> bool {
    ["IP4", "IP6", "IPV4", "IPV6", "*"].iter().any(|t| t.eq_ignore_ascii_case(text))
}

fn tokens_is_name(text: &str) -> bool {
    crate::session::is_host_name(text)
}

/// Filters of the session, by destination.
#[derive(Default)]
pub(crate) struct SessionFilters {
    by_destination: HashMap<Option<IpAddr>, Vec<Filter>>,
}

impl SessionFilters {
    pub fn read(attributes: &[Attribute<'_>], f: &mut Findings) -> SessionFilters {
        let mut filters = SessionFilters::default();
        for a in attributes.iter().filter(|a| a.name == "source-filter") {
            if let Some(filter) = filter(a, f) {
                let same = filters.by_destination.entry(filter.destination).or_default();
                if same.len() < 4 {
                    same.push(filter);
                }
            }
        }
        filters
    }

    fn of(&self, destination: IpAddr) -> impl Iterator<Item = &Filter> {
        let wild = self.by_destination.get(&None);
        let exact = self.by_destination.get(&Some(destination));
        exact.or(wild).into_iter().flatten()
    }
}

/// What the filters of a medium, or else of the session, say of `destination`.
pub(crate) fn apply(own: &[Filter], session: &SessionFilters, destination: IpAddr, f: &mut Findings) -> SourceFilter {
    for filter in own.iter().filter(|filter| filter.destination.is_some_and(|d| d != destination)) {
        let named = filter.destination.map_or(String::new(), |d| d.to_string());
        let what = format!("the filter is for {named}, the c= line says {destination}");
        let cure = "its sources are used for the c= address; write the same address in both";
        f.deviates("source-filter-destination", CLAUSE, filter.destination_at, "source-filter", what, cure);
    }
    let mut include = Vec::new();
    let mut exclude = Vec::new();
    let filters: Vec<&Filter> = if own.is_empty() { session.of(destination).collect() } else { own.iter().collect() };
    for filter in &filters {
        let list = if filter.include { &mut include } else { &mut exclude };
        for source in &filter.sources {
            if source.is_ipv4() != destination.is_ipv4() {
                let what = format!("the source {source} is not of the family of {destination}");
                f.deviates("source-filter", CLAUSE, filter.at, "source-filter", what, "ignored");
            } else if list.len() < MOST && !list.contains(source) {
                list.push(*source);
            }
        }
    }
    match (include.is_empty(), exclude.is_empty()) {
        (false, true) => SourceFilter::Include(include),
        (true, false) => SourceFilter::Exclude(exclude),
        (true, true) => SourceFilter::Any,
        (false, false) => {
            let at = filters.first().map_or(At::TEXT, |filter| filter.at);
            let what = "incl and excl filters for one destination".to_owned();
            f.deviates("source-filter", CLAUSE, at, "source-filter", what, "the incl filter is used");
            SourceFilter::Include(include)
        }
    }
}
