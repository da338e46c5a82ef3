//! Faults on purpose: which of them happens to which packet.
//!
//! A [`FaultPlan`] is what a person writes, in one line or as a TOML file (docs/faults.md). [`Faults`] decides from it and
//! from a packet's leg, number, time and size; it has no clock, no socket and no other chance than the plan's seed, so that
//! receivers and senders have one plan, and a run can be repeated. [`Held`] keeps the packets that others are let pass.
//!
//! # In which order faults combine
//!
//! As a packet would meet them: the sender restarts; the leg is dead; the packet is lost, corrupted, doubled; each copy goes
//! through the rate limit, is delayed, is overtaken. Every rule is drawn for every packet of its leg, whatever the others
//! did to it, so that one rule more or less changes nothing about the rest; only the rate limit counts what reaches it.
//! Times of several delays add up. A copy that is held by time is not also overtaken.

mod alter;
mod decide;
mod file;
mod held;
mod text;

pub use alter::Altered;
pub use decide::{Fate, Faults, Gone};
pub use held::{Due, HELD_AT_MOST, Held};

use crate::error::Result;
use serde::Serialize;
use std::path::Path;

/// Rules of a plan at most.
pub const RULES: usize = 32;
/// Legs of ST 2022-7, counted from 0.
const LEGS: u8 = 2;
/// Packets that one may be held for at most.
const MAX_HOLD: u32 = 10_000;

/// Faults and a seed. [`FaultPlan::GRAMMAR`] is the form in one line, docs/faults.md the one of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Other seeds choose other packets.
    pub seed: u64,
    /// What happens; 32 rules at most.
    pub rules: Vec<Rule>,
}

/// One fault, to which packets of which leg it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The fault.
    pub what: What,
    /// Only this leg, counted from 0; else all legs.
    pub leg: Option<u8>,
    /// To which packets.
    pub when: When,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The sender begins anew: another SSRC, sequence number and timestamp from here on, the same on all legs.
    Restart {
        /// Octets 12 and 13 are the high half of the sequence number (ST 2110-20 clause 6.1.4); else they stay as they are.
        extended: bool,
    },
    /// The leg is dead.
    Kill,
    /// The packet is lost.
    Loss,
    /// Octets are changed.
    Corrupt {
        /// Where.
        part: Part,
        /// How many, one after the other.
        octets: u16,
        /// The first of them, counted from the first of the part; else anywhere in it.
        at: Option<u16>,
    },
    /// The packet comes twice.
    Duplicate {
        /// The second one up to this many packets later.
        within: u32,
    },
    /// No more than a rate passes (a token bucket of UDP payload octets).
    Rate {
        /// Bits a second.
        bits: u64,
        /// Octets that may pass at once.
        bucket: u32,
        /// Octets that wait until they may pass; what finds no room is removed.
        queue: u32,
    },
    /// The packet comes later.
    Delay {
        /// By how much.
        by: Hold,
        /// And up to so many nanoseconds more.
        jitter: u64,
        /// Never before a packet of the leg that was in front of it.
        keep_order: bool,
    },
    /// The packet is overtaken.
    Reorder {
        /// By this many packets at most.
        depth: u32,
    },
}

/// A part of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The RTP header, with CSRCs and extension.
    Rtp,
    /// The payload header: extended sequence number and SRD headers (ST 2110-20 clause 6.1.4 and 6.2).
    Srd,
    /// What follows the RTP header and the SRD headers.
    Samples,
    /// All of it.
    Any,
}

/// To which packets of a leg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct When {
    /// From here on; else from the first packet on.
    pub from: Option<At>,
    /// Until before this; else to the end.
    pub until: Option<At>,
    /// After this, counted from `from`, the same again.
    pub repeat: Option<At>,
    /// To which of these packets.
    pub chance: Chance,
    /// Each time to this many packets one after the other.
    pub burst: u32,
}

impl When {
    /// All through, at this chance.
    pub const fn always(chance: Chance) -> Self {
        When { from: None, until: None, repeat: None, chance, burst: 1 }
    }
}

/// A place in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Packet number of the leg, from 0.
    Packet(u64),
    /// Nanoseconds since the first packet of any leg, on the clock of the arrivals; of a sender, on that of its schedule.
    Time(u64),
}

/// How often something happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chance {
    /// At random, `a` times in `b`: `1/1000`.
    Ratio(u32, u32),
    /// Exactly at each `n`th packet of the leg, the first time at packet number `n - 1`: `every/1000`.
    Every(u64),
    /// At these packet numbers of the leg, in rising order.
    Packets(Vec<u64>),
    /// At the first packet when the rule begins to hold.
    Opening,
}

/// How long a packet is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// Not at all.
    #[default]
    No,
    /// Until this many later packets of its leg have come.
    Packets(u32),
    /// For so many nanoseconds.
    Time(u64),
}

/// How often each fault was done.
///
/// `seen + duplicated = delivered + removed`, and packets that are still held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FaultCounters {
    /// Packets seen, all legs.
    pub seen: u64,
    /// Packets and copies that went on.
    pub delivered: u64,
    /// Packets and copies removed: the sum of the four below.
    pub removed: u64,
    /// Lost.
    pub lost: u64,
    /// On a leg that was dead.
    pub killed: u64,
    /// Over a rate limit.
    pub limited: u64,
    /// Overwritten by the network card before they could be copied to be changed.
    pub torn: u64,
    /// Packets doubled.
    pub duplicated: u64,
    /// Packets and copies that were delayed or overtaken.
    pub held: u64,
    /// Of these: let go early, because the stream paused or ended, or too many were held.
    pub hurried: u64,
    /// Packets whose octets were changed.
    pub corrupted: u64,
    /// Restarts of the sender.
    pub restarts: u64,
}

impl std::ops::Add for FaultCounters {
    type Output = FaultCounters;
    fn add(self, other: FaultCounters) -> FaultCounters {
        FaultCounters {
            seen: self.seen + other.seen,
            delivered: self.delivered + other.delivered,
            removed: self.removed + other.removed,
            lost: self.lost + other.lost,
            killed: self.killed + other.killed,
            limited: self.limited + other.limited,
            torn: self.torn + other.torn,
            duplicated: self.duplicated + other.duplicated,
            held: self.held + other.held,
            hurried: self.hurried + other.hurried,
            corrupted: self.corrupted + other.corrupted,
            restarts: self.restarts + other.restarts,
        }
    }
}

impl FaultCounters {
    /// Counts what was decided, without what is held: that is counted when it is.
    pub fn add(&mut self, fate: &Fate) {
        self.seen += 1;
        let removed = match fate.gone {
            Some(Gone::Killed) => &mut self.killed,
            Some(Gone::Lost) => &mut self.lost,
            None => &mut self.limited,
        };
        let count = if fate.gone.is_some() { 1 } else { u64::from(fate.limited) };
        *removed += count;
        self.removed += count;
        self.duplicated += u64::from(fate.duplicated);
        self.restarts += u64::from(fate.restarted);
    }
}

impl FaultPlan {
    /// No fault.
    pub const NONE: FaultPlan = FaultPlan { seed: 0, rules: Vec::new() };

    /// The plan that an option names: `FILE.toml` or `@FILE` is a file, anything else the form in one line.
    ///
    /// # Errors
    /// The file cannot be read; the plan is not understood.
    pub fn named(option: &str) -> Result<Self> {
        match Self::file_of(option) {
            Some(path) => FaultPlan::from_toml(&path.display().to_string(), &crate::config::text(path)?),
            None => option.parse(),
        }
    }

    /// The file that an option names, if it names one.
    pub fn file_of(option: &str) -> Option<&Path> {
        option.strip_prefix('@').or_else(|| option.ends_with(".toml").then_some(option)).map(Path::new)
    }

    /// Packets are changed, not only removed and moved: they have to be copied for that.
    pub fn alters(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.what, What::Restart { .. } | What::Corrupt { .. }))
    }
}

impl What {
    /// Its place in the order in which faults combine.
    const fn rank(&self) -> u64 {
        match self {
            What::Restart { .. } => 0,
            What::Kill => 1,
            What::Loss => 2,
            What::Corrupt { .. } => 3,
            What::Duplicate { .. } => 4,
            What::Rate { .. } => 5,
            What::Delay { .. } => 6,
            What::Reorder { .. } => 7,
        }
    }
}

#[cfg(test)]
mod tests;
