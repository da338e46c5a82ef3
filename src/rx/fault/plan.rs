//! Which fault happens to which packet: a pure function of seed, leg and number.

use crate::error::{Error, Kind};
use std::fmt;
use std::str::FromStr;

/// How often something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chance {
    /// Never.
    Never,
    /// At random, `a` times in `b`: `1/1000`.
    Ratio(u32, u32),
    /// Exactly at each `n`th packet, the first time at packet number `n - 1`: `every/1000`.
    Every(u64),
}

/// How long a packet is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Not at all.
    No,
    /// Until this many later packets have come.
    Packets(u32),
    /// Until a packet comes that arrives so many nanoseconds later.
    Time(u64),
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is not delivered.
    Remove,
    /// It is delivered.
    Once(Hold),
    /// It is delivered twice.
    Twice(Hold, Hold),
}

impl Decision {
    /// How long each copy that is delivered is held.
    pub fn copies(self) -> impl Iterator<Item = Hold> {
        let (first, second) = match self {
            Decision::Remove => (None, None),
            Decision::Once(hold) => (Some(hold), None),
            Decision::Twice(hold, again) => (Some(hold), Some(again)),
        };
        first.into_iter().chain(second)
    }
}

/// Faults and a seed. As text: `loss=1/1000,dup=1/500,reorder=32,delay=200us@1/100,leg=1,seed=7`, see [`FaultPlan::GRAMMAR`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// Packets that are removed.
    pub loss: Chance,
    /// Packets that are delivered twice. With `reorder` the second copy comes up to that many packets later.
    pub dup: Chance,
    /// Packets that are overtaken, and by how many packets at most.
    pub reorder: (Chance, u32),
    /// Packets that are delayed, and for how long; these are not also reordered.
    pub delay: (Chance, Hold),
    /// Only this leg, counted from 0; else all legs.
    pub leg: Option<u8>,
    /// Other seeds choose other packets.
    pub seed: u64,
}

impl FaultPlan {
    /// No fault.
    pub const NONE: FaultPlan = FaultPlan {
        loss: Chance::Never,
        dup: Chance::Never,
        reorder: (Chance::Never, 0),
        delay: (Chance::Never, Hold::No),
        leg: None,
        seed: 0,
    };

    /// The text form, for people.
    pub const GRAMMAR: &str = "loss=CHANCE, duplicate=CHANCE (or dup), reorder=PACKETS[@CHANCE] (chance 1/10 when not given), \
        delay=PACKETS|TIME[@CHANCE] (such as 200us; all packets when no chance is given), leg=0|1 (that leg alone), seed=N, joined by commas; \
        CHANCE is 1/1000, 0.001, 0.1% or every/1000";

    /// What happens to packet `index` of `leg`; both count from 0.
    #[inline]
    pub fn decide(&self, leg: u8, index: u64) -> Decision {
        if self.leg.is_some_and(|only| only != leg) {
            return Decision::Once(Hold::No);
        }
        let dice = |what: u64| mix(self.seed ^ mix(index.wrapping_mul(256).wrapping_add(u64::from(leg)) ^ mix(what)));
        let happens = |chance: Chance, what: u64| match chance {
            Chance::Never => false,
            Chance::Ratio(a, b) => below(dice(what), b) < a,
            Chance::Every(n) => n > 0 && (index + 1).is_multiple_of(n),
        };
        if happens(self.loss, 1) {
            return Decision::Remove;
        }
        let hold = if happens(self.delay.0, 2) {
            self.delay.1
        } else if self.reorder.1 > 0 && happens(self.reorder.0, 3) {
            Hold::Packets(1 + below(dice(4), self.reorder.1))
        } else {
            Hold::No
        };
        if !happens(self.dup, 5) {
            return Decision::Once(hold);
        }
        let again = match below(dice(6), self.reorder.1 + 1) {
            0 => Hold::No,
            n => Hold::Packets(n),
        };
        Decision::Twice(hold, again)
    }
}

/// A number below `n` from 64 random bits; 0 when `n` is 0.
fn below(random: u64, n: u32) -> u32 {
    (((random >> 32) * u64::from(n)) >> 32) as u32
}

/// The finaliser of SplitMix64: every input bit moves every output bit.
fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

impl FromStr for FaultPlan {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut plan = FaultPlan::NONE;
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
                ("loss", None) => plan.loss = chance_of(value).ok_or_else(wrong)?,
                ("dup" | "duplicate", None) => plan.dup = chance_of(value).ok_or_else(wrong)?,
                ("reorder", chance) => {
                    let depth = amount.parse().ok().filter(|n| (1..=MAX_HOLD).contains(n)).ok_or_else(wrong)?;
                    plan.reorder = (chance.unwrap_or(Chance::Ratio(1, 10)), depth);
                }
                ("delay", chance) => {
                    plan.delay = (chance.unwrap_or(Chance::Every(1)), hold_of(amount).ok_or_else(wrong)?);
                }
                ("leg", None) => {
                    plan.leg = Some(value.parse().ok().filter(|n| *n < LEGS).ok_or_else(wrong)?);
                }
                ("seed", None) => plan.seed = value.parse().map_err(|_| wrong())?,
                _ => return Err(wrong()),
            }
        }
        Ok(plan)
    }
}

/// Legs of ST 2022-7, counted from 0.
const LEGS: u8 = 2;
/// Packets that one may be held for at most.
const MAX_HOLD: u32 = 10_000;

fn chance_of(text: &str) -> Option<Chance> {
    const PARTS: u32 = 100_000_000;
    if let Some(n) = text.strip_prefix("every/") {
        return n.parse().ok().filter(|n| *n > 0).map(Chance::Every);
    }
    let ratio = |a, b| if a == 0 { Chance::Never } else { Chance::Ratio(a, b) };
    if let Some((a, b)) = text.split_once('/') {
        let (a, b) = (a.parse().ok()?, b.parse().ok()?);
        return (b > 0 && a <= b).then(|| ratio(a, b));
    }
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    let part = number.parse::<f64>().ok()? * unit;
    (0.0..=1.0).contains(&part).then(|| ratio((part * f64::from(PARTS)).round() as u32, PARTS))
}

fn hold_of(text: &str) -> Option<Hold> {
    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    for (unit, ns) in units {
        if let Some(n) = text.strip_suffix(unit) {
            // "ns" also ends with "s", and then its number does not parse.
            let n = n.parse::<f64>().ok().filter(|n| *n > 0.0 && *n <= 3600e9)?;
            return Some(Hold::Time((n * f64::from(ns)).round() as u64));
        }
    }
    text.parse().ok().filter(|n| (1..=MAX_HOLD).contains(n)).map(Hold::Packets)
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Chance::Never => f.write_str("0/1"),
            Chance::Ratio(a, b) => write!(f, "{a}/{b}"),
            Chance::Every(n) => write!(f, "every/{n}"),
        }
    }
}

impl fmt::Display for FaultPlan {
    /// The text form; parsing it gives the same plan.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.loss != Chance::Never {
            write!(f, "loss={},", self.loss)?;
        }
        if self.dup != Chance::Never {
            write!(f, "dup={},", self.dup)?;
        }
        if self.reorder.1 > 0 {
            write!(f, "reorder={}@{},", self.reorder.1, self.reorder.0)?;
        }
        match self.delay {
            (chance, Hold::Packets(n)) => write!(f, "delay={n}@{chance},")?,
            (chance, Hold::Time(ns)) => write!(f, "delay={ns}ns@{chance},")?,
            (_, Hold::No) => {}
        }
        if let Some(leg) = self.leg {
            write!(f, "leg={},", leg)?;
        }
        write!(f, "seed={}", self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_text_form_is_understood() {
        let plan: FaultPlan = "loss=1/1000, dup=every/500,reorder=32,delay=200us@1/100,leg=1,seed=7".parse().unwrap();
        let want = FaultPlan {
            loss: Chance::Ratio(1, 1000),
            dup: Chance::Every(500),
            reorder: (Chance::Ratio(1, 10), 32),
            delay: (Chance::Ratio(1, 100), Hold::Time(200_000)),
            leg: Some(1),
            seed: 7,
        };
        assert_eq!(plan, want);
        assert_eq!("duplicate=1/5".parse::<FaultPlan>().unwrap(), "dup=1/5".parse().unwrap());
        assert_eq!("leg=0".parse::<FaultPlan>().unwrap().leg, Some(0));
        assert_eq!("".parse::<FaultPlan>().unwrap(), FaultPlan::NONE);
        for (text, hold) in [
            ("5", Hold::Packets(5)),
            ("1.5ms", Hold::Time(1_500_000)),
            ("80ns", Hold::Time(80)),
            ("2s", Hold::Time(2_000_000_000)),
        ] {
            assert_eq!(format!("delay={text}").parse::<FaultPlan>().unwrap().delay, (Chance::Every(1), hold));
        }
        for (text, parts) in [("0.001", 100_000), ("0.1%", 100_000), ("1", 100_000_000)] {
            assert_eq!(format!("loss={text}").parse::<FaultPlan>().unwrap().loss, Chance::Ratio(parts, 100_000_000));
        }
    }

    #[test]
    fn other_text_is_refused_with_the_grammar() {
        for text in [
            "loss",
            "loss=",
            "loss=2/1",
            "loss=1/0",
            "loss=-1",
            "loss=101%",
            "loss=NaN",
            "loss=1/10@1/2",
            "every=3",
            "reorder=0",
            "reorder=10001",
            "delay=0",
            "delay=-1ms",
            "delay=1h",
            "delay=inf s",
            "leg=2",
            "leg=-1",
            "leg=257",
            "seed=x",
            "dup=every/0",
        ] {
            let error = text.parse::<FaultPlan>().expect_err(text);
            assert_eq!(error.kind(), Kind::Usage, "{text}");
            assert!(error.to_string().contains(text) && error.cure_text().contains("reorder=PACKETS"), "{error}");
        }
    }

    #[test]
    fn chances_come_true_as_often_as_they_say() {
        let plan: FaultPlan = "loss=1/100,dup=1/50,seed=3".parse().unwrap();
        let (mut removed, mut twice) = (0, 0);
        for index in 0..100_000 {
            match plan.decide(0, index) {
                Decision::Remove => removed += 1,
                Decision::Twice(..) => twice += 1,
                Decision::Once(hold) => assert_eq!(hold, Hold::No),
            }
        }
        // Binomial: 1000 +- 5 * 31, 1980 +- 5 * 44.
        assert!((840..=1160).contains(&removed), "{removed}");
        assert!((1760..=2200).contains(&twice), "{twice}");
        assert_eq!("loss=0,dup=0/5".parse::<FaultPlan>().unwrap(), FaultPlan::NONE);
        let plan: FaultPlan = "loss=every/4".parse().unwrap();
        let gone: Vec<u64> = (0..12).filter(|i| plan.decide(0, *i) == Decision::Remove).collect();
        assert_eq!(gone, [3, 7, 11]);
        let plan: FaultPlan = "loss=1,leg=1".parse().unwrap();
        assert_eq!((plan.decide(0, 0), plan.decide(1, 0)), (Decision::Once(Hold::No), Decision::Remove));
    }

    fn chances() -> impl Strategy<Value = Chance> {
        prop_oneof![
            Just(Chance::Never),
            (1_u32..=50, 50_u32..1000).prop_map(|(a, b)| Chance::Ratio(a, b)),
            (1_u64..1000).prop_map(Chance::Every),
        ]
    }

    proptest! {
        #[test]
        fn text_and_plan_are_the_same(
            loss in chances(), dup in chances(), reorder in (chances(), 1_u32..100), delay in (chances(), 1_u64..10_000_000),
            leg in proptest::option::of(0_u8..LEGS), seed: u64, which in 0_u8..4,
        ) {
            let plan = FaultPlan {
                loss, dup, leg, seed,
                reorder: if which & 1 == 0 { (Chance::Never, 0) } else { reorder },
                delay: if which & 2 == 0 { (Chance::Never, Hold::No) } else { (delay.0, Hold::Time(delay.1)) },
            };
            prop_assert_eq!(plan.to_string().parse::<FaultPlan>().unwrap(), plan);
        }

        #[test]
        fn any_text_is_taken_or_refused(text in "[a-z]{0,7}=?[0-9a-z./%@,=-]{0,20}") {
            let _ = text.parse::<FaultPlan>();
        }

        #[test]
        fn decisions_depend_on_nothing_else_and_keep_their_bounds(seed: u64, leg: u8, index: u64, depth in 1_u32..100) {
            let plan = FaultPlan {
                loss: Chance::Ratio(1, 10), dup: Chance::Ratio(1, 5), reorder: (Chance::Ratio(1, 2), depth), seed, ..FaultPlan::NONE
            };
            let decision = plan.decide(leg, index);
            prop_assert_eq!(decision, plan.decide(leg, index));
            for hold in decision.copies() {
                prop_assert!(matches!(hold, Hold::No) || matches!(hold, Hold::Packets(n) if (1..=depth).contains(&n)));
            }
        }
    }
}
