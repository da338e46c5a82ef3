//! The form of a plan in one line, and numbers with units.

use super::{At, Chance, FaultCounters, FaultPlan, Hold, LEGS, MAX_HOLD, Part, Rule, What, When};
use crate::error::{Error, Kind};
use std::fmt;
use std::str::FromStr;

impl FaultPlan {
    /// The text form, for people.
    pub const GRAMMAR: &str = "loss=CHANCE, duplicate=CHANCE (or dup), reorder=PACKETS[@CHANCE] (chance 1/10 when not given), \
        delay=PACKETS|TIME[@CHANCE] (such as 200us; all packets when no chance is given), leg=0|1 (that leg alone), seed=N, joined by commas; \
        CHANCE is 1/1000, 0.001, 0.1% or every/1000; a FILE.toml (or @FILE) says more";
}

impl FromStr for FaultPlan {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut plan = FaultPlan::NONE;
        let (mut leg, mut depth, mut doubled) = (None, 0, None);
        let mut set = |what: What, chance: Option<Chance>| {
            plan.rules.retain(|rule: &Rule| rule.what.rank() != what.rank());
            plan.rules.extend(chance.map(|chance| Rule { what, leg: None, when: When::always(chance) }));
        };
        for item in text.split(',').map(str::trim).filter(|i| !i.is_empty()) {
            let wrong = || {
                Error::new(Kind::Usage, format!("fault '{item}' is not understood"))
                    .cure(format!("write: {}", FaultPlan::GRAMMAR))
            };
            let (name, value) = item.split_once('=').ok_or_else(wrong)?;
            let (amount, chance) = match value.split_once('@') {
                Some((amount, chance)) => (amount, Some(chance_of(chance).ok_or_else(wrong)?)),
                None => (value, None),
            };
            match (name.trim(), chance) {
                ("loss", None) => set(What::Loss, chance_of(value).ok_or_else(wrong)?),
                ("dup" | "duplicate", None) => doubled = chance_of(value).ok_or_else(wrong)?,
                ("reorder", chance) => {
                    depth = packets_of(amount).ok_or_else(wrong)?;
                    set(What::Reorder { depth }, chance.unwrap_or(Some(Chance::Ratio(1, 10))));
                }
                ("delay", chance) => {
                    let by = hold_of(amount).ok_or_else(wrong)?;
                    let what = What::Delay { by, jitter: 0, keep_order: false };
                    set(what, chance.unwrap_or(Some(Chance::Every(1))));
                }
                ("leg", None) => leg = Some(value.parse().ok().filter(|n| *n < LEGS).ok_or_else(wrong)?),
                ("seed", None) => plan.seed = value.parse().map_err(|_| wrong())?,
                _ => return Err(wrong()),
            }
        }
        // With reordering a second copy comes up to that many packets later.
        let double = |chance| Rule { what: What::Duplicate { within: depth }, leg: None, when: When::always(chance) };
        plan.rules.extend(doubled.map(double));
        plan.rules.sort_by_key(|rule| rule.what.rank());
        plan.rules.iter_mut().for_each(|rule| rule.leg = leg);
        Ok(plan)
    }
}

/// A chance; none inside where it never comes true.
pub(super) fn chance_of(text: &str) -> Option<Option<Chance>> {
    let ratio = |a, b| if a == 0 { None } else { Some(Chance::Ratio(a, b)) };
    if let Some(n) = text.strip_prefix("every/") {
        return n.parse().ok().filter(|n| *n > 0).map(|n| Some(Chance::Every(n)));
    }
    if let Some((a, b)) = text.split_once('/') {
        let (a, b) = (a.parse().ok()?, b.parse().ok()?);
        return (b > 0 && a <= b).then(|| ratio(a, b));
    }
    match text.strip_suffix('%') {
        Some(number) => share_of(number.parse::<f64>().ok()? * 0.01),
        None => share_of(text.parse().ok()?),
    }
}

/// A chance from 0 to 1.
pub(super) fn share_of(part: f64) -> Option<Option<Chance>> {
    const PARTS: u32 = 100_000_000;
    (0.0..=1.0).contains(&part).then(|| match (part * f64::from(PARTS)).round() as u32 {
        0 => None,
        a => Some(Chance::Ratio(a, PARTS)),
    })
}

fn packets_of(text: &str) -> Option<u32> {
    text.parse().ok().filter(|n| (1..=MAX_HOLD).contains(n))
}

fn hold_of(text: &str) -> Option<Hold> {
    time_of(text).filter(|ns| *ns > 0).map(Hold::Time).or_else(|| packets_of(text).map(Hold::Packets))
}

/// Nanoseconds from a time with its unit, up to an hour.
pub(super) fn time_of(text: &str) -> Option<u64> {
    const HOUR: f64 = 3600e9;
    // "ns" also ends with "s", and then its number does not parse.
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let ns = units.iter().find_map(|(unit, ns)| Some(text.strip_suffix(unit)?.trim().parse::<f64>().ok()? * ns))?;
    (0.0..=HOUR).contains(&ns).then(|| ns.round() as u64)
}

/// Bits a second, such as `1.5Gb/s`.
pub(super) fn rate_of(text: &str) -> Option<u64> {
    let number = text.strip_suffix("b/s")?.trim();
    let units = [("k", 1e3), ("M", 1e6), ("G", 1e9), ("", 1.0)];
    let bits =
        units.iter().find_map(|(unit, bits)| Some(number.strip_suffix(unit)?.trim().parse::<f64>().ok()? * bits));
    bits.filter(|bits| (1.0..=1e12).contains(bits)).map(|bits| bits.round() as u64)
}

/// Octets, such as `64kB`.
pub(super) fn octets_of(text: &str) -> Option<u32> {
    let number = text.strip_suffix('B')?.trim();
    let units = [("k", 1e3), ("M", 1e6), ("", 1.0)];
    let octets = units.iter().find_map(|(unit, n)| Some(number.strip_suffix(unit)?.trim().parse::<f64>().ok()? * n));
    octets.filter(|n| (0.0..=1e9).contains(n)).map(|n| n.round() as u32)
}

/// A number in the largest unit in which it is whole.
fn with_unit(f: &mut fmt::Formatter<'_>, n: u64, units: &[(&str, u64)], end: &str) -> fmt::Result {
    let found = units.iter().find(|(_, size)| n > 0 && n.is_multiple_of(*size));
    match found {
        Some((unit, size)) => write!(f, "{}{unit}{end}", n / size),
        None => write!(f, "{n}{}{end}", units.last().map_or("", |(unit, _)| unit)),
    }
}

fn time(f: &mut fmt::Formatter<'_>, ns: u64) -> fmt::Result {
    with_unit(f, ns, &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)], "")
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Packet(n) => write!(f, "packet {n}"),
            At::Time(ns) => time(f, *ns),
        }
    }
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Chance::Ratio(a, b) => write!(f, "{a}/{b}"),
            Chance::Every(n) => write!(f, "every/{n}"),
            Chance::Packets(list) => write!(f, "{} packets", list.len()),
            Chance::Opening => f.write_str("once"),
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Hold::No => f.write_str("0"),
            Hold::Packets(n) => n.fmt(f),
            Hold::Time(ns) => time(f, ns),
        }
    }
}

impl fmt::Display for Rule {
    /// As in the form of one line, with what that has not in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let When { from, until, repeat, chance, burst } = &self.when;
        match &self.what {
            What::Restart { .. } => write!(f, "restart={chance}")?,
            What::Kill => write!(f, "kill={chance}")?,
            What::Loss => write!(f, "loss={chance}")?,
            What::Corrupt { part, octets, at } => {
                let part = match part {
                    Part::Rtp => "rtp",
                    Part::Srd => "srd",
                    Part::Samples => "samples",
                    Part::Any => "any",
                };
                write!(f, "corrupt={octets} {part}")?;
                at.iter().try_for_each(|at| write!(f, " at {at}"))?;
                write!(f, "@{chance}")?;
            }
            What::Duplicate { .. } => write!(f, "dup={chance}")?,
            What::Rate { bits, bucket, queue } => {
                f.write_str("rate=")?;
                with_unit(f, *bits, &[("G", 1_000_000_000), ("M", 1_000_000), ("k", 1_000), ("", 1)], "b/s")?;
                write!(f, " (bucket {bucket}, queue {queue} octets)")?;
            }
            What::Delay { by, jitter, keep_order } => {
                write!(f, "delay={by}")?;
                if *jitter > 0 {
                    f.write_str(" to +")?;
                    time(f, *jitter)?;
                }
                f.write_str(if *keep_order { " in order" } else { "" })?;
                write!(f, "@{chance}")?;
            }
            What::Reorder { depth } => write!(f, "reorder={depth}@{chance}")?,
        }
        if *burst > 1 {
            write!(f, " (bursts of {burst})")?;
        }
        from.iter().try_for_each(|at| write!(f, " (from {at})"))?;
        until.iter().try_for_each(|at| write!(f, " (until {at})"))?;
        repeat.iter().try_for_each(|at| write!(f, " (again after {at})"))
    }
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leg = self.rules.first().and_then(|rule| rule.leg);
        let one_leg = self.rules.iter().all(|rule| rule.leg == leg);
        for (n, rule) in self.rules.iter().enumerate() {
            write!(f, "{}{rule}", if n == 0 { "" } else { "," })?;
            rule.leg.iter().filter(|_| !one_leg).try_for_each(|leg| write!(f, " (leg {leg})"))?;
        }
        leg.iter().filter(|_| one_leg).try_for_each(|leg| write!(f, ",leg={leg}"))?;
        if self.rules.is_empty() {
            return write!(f, "seed={}", self.seed);
        }
        if self.seed == 0 { Ok(()) } else { write!(f, ",seed={}", self.seed) }
    }
}

impl fmt::Display for FaultCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultCounters { seen, removed, duplicated, held, .. } = self;
        write!(f, "of {seen} packets {removed} removed, {duplicated} doubled, {held} held back")?;
        let more = [
            (self.corrupted, "corrupted"),
            (self.restarts, "restarts of the sender"),
            (self.killed, "of the removed on a dead leg"),
            (self.limited, "of the removed over the rate limit"),
            (self.torn, "of the removed overwritten before they were copied"),
            (self.hurried, "of the held let go early"),
        ];
        more.iter().filter(|(n, _)| *n > 0).try_for_each(|(n, what)| write!(f, ", {n} {what}"))
    }
}
