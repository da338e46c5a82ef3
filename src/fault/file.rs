//! The form of a plan in a TOML file: an array of tables for each kind of fault (docs/faults.md).

use super::text::{chance_of, octets_of, rate_of, share_of, time_of};
use super::{At, Chance, FaultPlan, Hold, LEGS, MAX_HOLD, Part, RULES, Rule, What, When};
use crate::config;
use crate::error::Result;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use std::fmt;
use toml::Spanned;

/// What a bucket holds when nobody says: a group of packets as senders send them.
const BUCKET: u32 = 65_536;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    seed: u64,
    restart: Vec<Spanned<Restart>>,
    kill: Vec<Spanned<Kill>>,
    loss: Vec<Spanned<Loss>>,
    corrupt: Vec<Spanned<Corrupt>>,
    duplicate: Vec<Spanned<Duplicate>>,
    rate: Vec<Spanned<Rate>>,
    delay: Vec<Spanned<Delay>>,
    reorder: Vec<Spanned<Reorder>>,
}

/// What a table is wrong in as a whole.
type Checked<T> = std::result::Result<T, &'static str>;

/// A table of a file.
trait Table {
    /// `None`: it never happens.
    fn rule(&self) -> Checked<Option<Rule>>;
}

/// A table with the keys that say when, and its own.
macro_rules! table {
    ($name:ident { $($(#[$attribute:meta])* $own:ident: $type:ty),* $(,)? }) => {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name {
            leg: Option<Number<{ LEGS as u64 - 1 }>>,
            from: Option<At>,
            until: Option<At>,
            repeat: Option<At>,
            chance: Option<Share>,
            every: Option<Number<{ u32::MAX as u64 }>>,
            packets: Option<Vec<u64>>,
            burst: Option<Number<{ MAX_HOLD as u64 }>>,
            $($(#[$attribute])* $own: $type),*
        }
        impl $name {
            /// `what` to the packets that the common keys name; without any of them at `chance`.
            fn rule_of(&self, what: What, chance: Chance) -> Checked<Option<Rule>> {
                let keys = Keys {
                    from: self.from, until: self.until, repeat: self.repeat, chance: self.chance.as_ref(),
                    every: self.every, packets: self.packets.as_deref(), burst: self.burst,
                };
                let leg = self.leg.map(|leg| leg.0 as u8);
                Ok(keys.when(chance)?.map(|when| Rule { what, leg, when }))
            }
        }
    };
}

table!(Restart { extended: Option<bool> });
table!(Kill {});
table!(Loss {});
table!(Corrupt { part: Option<PartName>, octets: Option<Number<9000>>, at: Option<Number<9000>> });
table!(Duplicate { within: Option<Number<{ MAX_HOLD as u64 }>> });
table!(Rate { bits: Bits, bucket: Option<Octets>, queue: Option<Octets> });
table!(Delay {
    by: Hold,
    jitter: Option<Time>,
    #[serde(rename = "keep-order", default)]
    keep_order: bool,
});
table!(Reorder { depth: Number<{ MAX_HOLD as u64 }> });

impl Table for Restart {
    fn rule(&self) -> Checked<Option<Rule>> {
        if self.leg.is_some() {
            return Err("a sender restarts on all legs: leave leg out");
        }
        if self.from.is_none() && self.chance.is_none() && self.every.is_none() && self.packets.is_none() {
            return Err("when does the sender restart? give from, every, packets or chance");
        }
        self.rule_of(What::Restart { extended: self.extended.unwrap_or(true) }, Chance::Opening)
    }
}

impl Table for Kill {
    fn rule(&self) -> Checked<Option<Rule>> {
        self.rule_of(What::Kill, Chance::Every(1))
    }
}

impl Table for Loss {
    fn rule(&self) -> Checked<Option<Rule>> {
        self.rule_of(What::Loss, Chance::Every(1))
    }
}

impl Table for Corrupt {
    fn rule(&self) -> Checked<Option<Rule>> {
        let octets = self.octets.map_or(1, |n| n.0 as u16);
        if octets == 0 {
            return Err("octets is at least 1");
        }
        let part = match self.part {
            Some(PartName::Rtp) => Part::Rtp,
            Some(PartName::Srd) => Part::Srd,
            Some(PartName::Samples) => Part::Samples,
            Some(PartName::Any) | None => Part::Any,
        };
        let at = self.at.map(|at| at.0 as u16);
        self.rule_of(What::Corrupt { part, octets, at }, Chance::Every(1))
    }
}

impl Table for Duplicate {
    fn rule(&self) -> Checked<Option<Rule>> {
        self.rule_of(What::Duplicate { within: self.within.map_or(0, |n| n.0 as u32) }, Chance::Every(1))
    }
}

impl Table for Rate {
    fn rule(&self) -> Checked<Option<Rule>> {
        let bucket = self.bucket.map_or(BUCKET, |o| o.0);
        if bucket == 0 {
            return Err("a bucket of no octets lets nothing pass");
        }
        if self.chance.is_some() || self.every.is_some() || self.packets.is_some() || self.burst.is_some() {
            return Err("a rate limit holds for all packets: leave chance, every, packets and burst out");
        }
        let queue = self.queue.map_or(0, |o| o.0);
        self.rule_of(What::Rate { bits: self.bits.0, bucket, queue }, Chance::Every(1))
    }
}

impl Table for Delay {
    fn rule(&self) -> Checked<Option<Rule>> {
        let jitter = self.jitter.map_or(0, |t| t.0);
        if (jitter > 0 || self.keep_order) && !matches!(self.by, Hold::Time(_)) {
            return Err("jitter and keep-order go with a delay in time, such as by = \"1ms\"");
        }
        self.rule_of(What::Delay { by: self.by, jitter, keep_order: self.keep_order }, Chance::Every(1))
    }
}

impl Table for Reorder {
    fn rule(&self) -> Checked<Option<Rule>> {
        if self.depth.0 == 0 {
            return Err("depth is at least 1");
        }
        self.rule_of(What::Reorder { depth: self.depth.0 as u32 }, Chance::Ratio(1, 10))
    }
}

/// The keys that say when.
struct Keys<'a> {
    from: Option<At>,
    until: Option<At>,
    repeat: Option<At>,
    chance: Option<&'a Share>,
    every: Option<Number<{ u32::MAX as u64 }>>,
    packets: Option<&'a [u64]>,
    burst: Option<Number<{ MAX_HOLD as u64 }>>,
}

impl Keys<'_> {
    fn when(&self, otherwise: Chance) -> Checked<Option<When>> {
        let length = |at: At| match at {
            At::Packet(n) | At::Time(n) => n,
        };
        let alike = |a: At, b: At| std::mem::discriminant(&a) == std::mem::discriminant(&b);
        if let (Some(from), Some(until)) = (self.from, self.until)
            && alike(from, until)
            && length(from) >= length(until)
        {
            return Err("until comes after from");
        }
        if let Some(repeat) = self.repeat {
            let (Some(from), Some(until)) = (self.from, self.until) else {
                return Err("what is repeated has from and until");
            };
            if !alike(from, until) || !alike(from, repeat) {
                return Err("from, until and repeat are all times or all packet numbers");
            }
            if length(repeat) < length(until) - length(from) {
                return Err("repeat is at least as long as from from to until");
            }
        }
        let chance = match (self.chance, self.every, self.packets) {
            (None, None, None) => otherwise,
            (Some(Share(None)), None, None) => return Ok(None),
            (Some(Share(Some(chance))), None, None) => chance.clone(),
            (None, Some(Number(0)), None) => return Err("every is at least 1"),
            (None, Some(n), None) => Chance::Every(n.0),
            (None, None, Some(packets)) => {
                let mut packets = packets.to_vec();
                packets.sort_unstable();
                packets.dedup();
                Chance::Packets(packets)
            }
            _ => return Err("of chance, every and packets only one can be"),
        };
        let burst = self.burst.map_or(1, |n| n.0 as u32);
        if burst == 0 {
            return Err("burst is at least 1");
        }
        Ok(Some(When { from: self.from, until: self.until, repeat: self.repeat, chance, burst }))
    }
}

impl FaultPlan {
    /// Reads the form of a file; `name` is said where it is wrong.
    ///
    /// # Errors
    /// It is not understood: the line, and what was probably meant.
    pub fn from_toml(name: &str, text: &str) -> Result<Self> {
        fn add<T: Table>(name: &str, text: &str, tables: &[Spanned<T>], rules: &mut Vec<Rule>) -> Result<()> {
            for table in tables {
                let wrong = |what| config::wrong(name, text, Some(table.span()), what).cure("see docs/faults.md");
                rules.extend(table.get_ref().rule().map_err(wrong)?);
            }
            Ok(())
        }
        let file: File = config::parse(name, text)?;
        let mut plan = FaultPlan { seed: file.seed, rules: Vec::new() };
        add(name, text, &file.restart, &mut plan.rules)?;
        add(name, text, &file.kill, &mut plan.rules)?;
        add(name, text, &file.loss, &mut plan.rules)?;
        add(name, text, &file.corrupt, &mut plan.rules)?;
        add(name, text, &file.duplicate, &mut plan.rules)?;
        add(name, text, &file.rate, &mut plan.rules)?;
        add(name, text, &file.delay, &mut plan.rules)?;
        add(name, text, &file.reorder, &mut plan.rules)?;
        if plan.rules.len() > RULES {
            let what = format!("{} rules; a plan has {RULES} at most", plan.rules.len());
            return Err(config::wrong(name, text, None, &what).cure("merge or leave out some"));
        }
        Ok(plan)
    }
}

/// A whole number up to `MOST`.
#[derive(Clone, Copy)]
struct Number<const MOST: u64>(u64);

impl<'de, const MOST: u64> Deserialize<'de> for Number<MOST> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let n = u64::deserialize(from)?;
        if n <= MOST { Ok(Number(n)) } else { Err(de::Error::custom(format!("{n} is too much: {MOST} at most"))) }
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PartName {
    Rtp,
    Srd,
    Samples,
    Any,
}

/// A chance that comes true, or none.
struct Share(Option<Chance>);
#[derive(Clone, Copy)]
struct Time(u64);
struct Bits(u64);
#[derive(Clone, Copy)]
struct Octets(u32);

/// A value that is a number or a text.
struct Words<T> {
    wanted: &'static str,
    number: fn(u64) -> Option<T>,
    text: fn(&str) -> Option<T>,
    float: fn(f64) -> Option<T>,
}

impl<T> Words<T> {
    fn found<E: de::Error>(&self, value: Option<T>, given: impl fmt::Display) -> std::result::Result<T, E> {
        value.ok_or_else(|| E::custom(format!("{given} is not understood: {} is wanted", self.wanted)))
    }
}

impl<T> Visitor<'_> for Words<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wanted)
    }
    fn visit_u64<E: de::Error>(self, n: u64) -> std::result::Result<T, E> {
        self.found((self.number)(n), n)
    }
    fn visit_i64<E: de::Error>(self, n: i64) -> std::result::Result<T, E> {
        self.found(u64::try_from(n).ok().and_then(self.number), n)
    }
    fn visit_f64<E: de::Error>(self, n: f64) -> std::result::Result<T, E> {
        self.found((self.float)(n), n)
    }
    fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<T, E> {
        self.found((self.text)(text), format_args!("'{text}'"))
    }
}

macro_rules! words {
    ($($name:ty: $wanted:literal, $number:expr, $text:expr, $float:expr;)+) => { $(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
                from.deserialize_any(Words { wanted: $wanted, number: $number, text: $text, float: $float })
            }
        }
    )+ };
}

words! {
    At: "a packet number, or a time such as \"2s\"", |n| Some(At::Packet(n)), |text| time_of(text).map(At::Time), |_| None;
    Share: "a chance such as \"1/1000\", \"0.1%\" or 0.001", |n| share_of(n as f64).map(Share), |text| chance_of(text).map(Share),
        |part| share_of(part).map(Share);
    Hold: "a number of packets up to 10000, or a time such as \"5ms\"",
        |n| u32::try_from(n).ok().filter(|n| (1..=MAX_HOLD).contains(n)).map(Hold::Packets),
        |text| time_of(text).map(Hold::Time), |_| None;
    Time: "a time such as \"200us\"", |_| None, |text| time_of(text).map(Time), |_| None;
    Bits: "a rate such as \"1.5Gb/s\"", |_| None, |text| rate_of(text).map(Bits), |_| None;
    Octets: "a number of octets, or a text such as \"64kB\"", |n| u32::try_from(n).ok().map(Octets), |text| octets_of(text).map(Octets),
        |_| None;
}
