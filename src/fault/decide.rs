//! What happens to a packet: from the plan, its leg, number, time and size, and from nothing else.

use super::{At, Chance, FaultPlan, Hold, Rule, What, When};
use crate::time::Tai;

/// What happens to a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// Its number on its leg, from 0.
    pub index: u64,
    /// Why it does not go on.
    pub gone: Option<Gone>,
    /// It was doubled.
    pub duplicated: bool,
    /// Copies that the rate limit removed.
    pub limited: u8,
    /// The sender restarted with this packet.
    pub restarted: bool,
    /// Restarts of the sender before it.
    pub(super) generation: u64,
    /// Rules that corrupt it, a bit each.
    pub(super) corrupt: u32,
    copies: [Option<Hold>; 2],
}

/// Why a packet does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Its leg is dead.
    Killed,
    /// It is lost.
    Lost,
}

impl Fate {
    /// How long each copy that goes on is held.
    pub fn copies(&self) -> impl Iterator<Item = Hold> + use<> {
        self.copies.into_iter().flatten()
    }
    /// It goes on with other octets.
    pub fn alters(&self) -> bool {
        self.corrupt != 0 || self.generation > 0
    }
}

/// A plan at work: call [`Faults::decide`] once for each packet, in the order of arrival.
#[derive(Clone, Debug)]
pub struct Faults {
    pub(super) seed: u64,
    /// In the order in which they combine.
    pub(super) rules: Vec<Armed>,
    /// Packets seen of each leg.
    seen: Vec<u64>,
    begun: Option<Tai>,
    restarts: Restarts,
    pub(super) extended: bool,
}

/// A rule with what it remembers.
#[derive(Clone, Debug)]
pub(super) struct Armed {
    pub rule: Rule,
    /// Makes its dice other ones than those of other rules.
    pub salt: u64,
    /// By leg.
    states: Vec<State>,
}

/// What a rule remembers of a leg.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Packets of a burst that are still to come.
    left: u32,
    /// Which repetition last began.
    opened: Option<u64>,
    bucket: Option<Bucket>,
    /// When the last one that keeps its order goes on, since the first packet.
    last: u64,
}

/// Restarts of the sender. Legs carry the same packets, so a restart has a place in their numbers: a leg that is behind
/// comes to it when its packets do.
#[derive(Clone, Debug, Default)]
struct Restarts {
    count: u64,
    /// Sequence number of the first packet of the newest one.
    first: u16,
    /// Packets seen since.
    since: u32,
    /// How many of them each leg has come to.
    legs: Vec<u64>,
}

/// After so many packets a restart is over: none comes any more that was sent before it.
const SETTLED: u32 = 16_384;

impl Restarts {
    /// The packet's generation, and whether a new one begins with it.
    fn pass(&mut self, leg: usize, sequence: u16, hit: bool) -> (u64, bool) {
        let mut begins = false;
        if hit && let Some(own) = at(&mut self.legs, leg) {
            *own += 1;
            if *own > self.count {
                (self.count, self.first, self.since, begins) = (*own, sequence, 0, true);
            }
        }
        if self.count == 0 {
            return (0, false);
        }
        let earlier = self.since < SETTLED && (sequence.wrapping_sub(self.first) as i16) < 0;
        self.since = self.since.saturating_add(1);
        (self.count - u64::from(earlier), begins)
    }
}

/// A token bucket in bits times 10^9, so that nanoseconds times bits a second need no division.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: i128,
    time: u64,
}

const NANOS: i128 = 1_000_000_000;

impl Bucket {
    /// How long a packet waits for its tokens; none when it finds no room to wait.
    fn pass(&mut self, now: u64, octets: u16, bits: u64, bucket: u32, queue: u32) -> Option<u64> {
        let scaled = |octets: u32| i128::from(octets) * 8 * NANOS;
        let elapsed = now.saturating_sub(self.time);
        self.time = self.time.max(now);
        self.tokens = (self.tokens + i128::from(elapsed) * i128::from(bits)).min(scaled(bucket));
        let left = self.tokens - scaled(octets.into());
        if left < -scaled(queue) {
            return None;
        }
        self.tokens = left;
        let bits = i128::from(bits.max(1));
        Some(u64::try_from((-left).max(0).div_euclid(bits) + i128::from((-left).max(0) % bits > 0)).unwrap_or(u64::MAX))
    }
}

/// The element of a list that grows as it is needed; a leg is an octet, so there are 256 at most.
fn at<T: Clone + Default>(list: &mut Vec<T>, leg: usize) -> Option<&mut T> {
    if list.len() <= leg {
        list.resize(leg + 1, T::default());
    }
    list.get_mut(leg)
}

impl Faults {
    /// A plan, from its beginning.
    pub fn new(plan: &FaultPlan) -> Self {
        let mut counts = [0_u64; 8];
        let arm = |rule: &Rule| {
            let rank = rule.what.rank();
            let nth = counts.get_mut(rank as usize).map_or(0, |n| {
                *n += 1;
                *n
            });
            Armed { rule: rule.clone(), salt: rank << 16 | nth << 8, states: Vec::new() }
        };
        let mut rules: Vec<Armed> = plan.rules.iter().take(super::RULES).map(arm).collect();
        rules.sort_by_key(|armed| armed.rule.what.rank());
        let extended = !rules.iter().any(|a| matches!(a.rule.what, What::Restart { extended: false }));
        Faults { seed: plan.seed, rules, seen: Vec::new(), begun: None, restarts: Restarts::default(), extended }
    }

    /// Whether octets 12 and 13 are the high half of the sequence number, where the one who asks knows.
    #[must_use]
    pub fn with_extended(mut self, extended: bool) -> Self {
        self.extended &= extended;
        self
    }

    /// What happens to the next packet of `leg`, which came at `at`, has so many octets from the RTP header on and that
    /// sequence number (its low half).
    pub fn decide(&mut self, leg: u8, at: Tai, octets: u16, sequence: u16) -> Fate {
        let begun = *self.begun.get_or_insert(at);
        let now = u64::try_from(at.since(begun)).unwrap_or(0);
        let place = usize::from(leg);
        let index = self::at(&mut self.seen, place).map_or(0, |n| {
            *n += 1;
            *n - 1
        });
        let mut fate = Fate { index, copies: [Some(Hold::No), None], ..Fate::default() };
        let (mut restart, mut doubled) = (false, false);
        for (number, armed) in self.rules.iter_mut().enumerate() {
            let Armed { rule, salt, states } = armed;
            if rule.leg.is_some_and(|only| only != leg) {
                continue;
            }
            // All legs have one sender.
            let dice = Dice { seed: self.seed, salt: *salt, leg: if rule.what.rank() == 0 { 0 } else { leg }, index };
            let Some(state) = self::at(states, place) else { continue };
            if !rule.when.hits(state, now, dice) {
                continue;
            }
            match rule.what {
                What::Restart { .. } => restart = true,
                What::Kill => fate.gone = Some(Gone::Killed),
                What::Loss => fate.gone = fate.gone.or(Some(Gone::Lost)),
                What::Corrupt { .. } => fate.corrupt |= 1 << number,
                What::Duplicate { within } if !doubled => {
                    doubled = true;
                    fate.copies[1] = Some(match dice.below(2, within.saturating_add(1)) {
                        0 => Hold::No,
                        n => Hold::Packets(n),
                    });
                }
                What::Duplicate { .. } => {}
                What::Rate { bits, bucket, queue } if fate.gone.is_none() => {
                    let full = Bucket { tokens: i128::MAX / 2, time: now };
                    let tokens = state.bucket.get_or_insert(full);
                    for copy in fate.copies.iter_mut().filter(|copy| copy.is_some()) {
                        match tokens.pass(now, octets, bits, bucket, queue) {
                            Some(wait) => *copy = copy.map(|hold| later(hold, wait)),
                            None => {
                                *copy = None;
                                fate.limited += 1;
                            }
                        }
                    }
                }
                What::Rate { .. } => {}
                What::Delay { by: Hold::Time(ns), jitter, keep_order } => {
                    for (copy, draw) in fate.copies.iter_mut().zip([3, 4]) {
                        let mut more = ns.saturating_add(dice.up_to(draw, jitter));
                        if keep_order && copy.is_some() && fate.gone.is_none() {
                            let waits = if let Some(Hold::Time(ns)) = *copy { ns } else { 0 };
                            let before = now.saturating_add(waits);
                            state.last = state.last.max(before.saturating_add(more));
                            more = state.last - before;
                        }
                        *copy = copy.map(|hold| later(hold, more));
                    }
                }
                What::Delay { by, .. } => {
                    for copy in &mut fate.copies {
                        *copy = copy.map(|hold| behind(hold, by));
                    }
                }
                What::Reorder { depth } => {
                    let by = Hold::Packets(1 + dice.below(2, depth));
                    if fate.copies[0] == Some(Hold::No) {
                        fate.copies[0] = Some(by);
                    }
                }
            }
        }
        (fate.generation, fate.restarted) = self.restarts.pass(place, sequence, restart);
        fate.duplicated = doubled && fate.gone.is_none();
        if fate.gone.is_some() {
            fate.copies = [None; 2];
        }
        fate
    }
}

/// A copy that is held so, and longer by a time.
fn later(hold: Hold, ns: u64) -> Hold {
    match (hold, ns) {
        (hold, 0) => hold,
        (Hold::Time(before), ns) => Hold::Time(before.saturating_add(ns)),
        (_, ns) => Hold::Time(ns),
    }
}

/// A copy that is held so, and let pass as many packets as `by` says.
fn behind(hold: Hold, by: Hold) -> Hold {
    match (hold, by) {
        (Hold::Packets(a), Hold::Packets(b)) => Hold::Packets(a.max(b)),
        (Hold::No, by) => by,
        (hold, _) => hold,
    }
}

impl When {
    /// Whether it is this packet's turn.
    fn hits(&self, state: &mut State, now: u64, dice: Dice) -> bool {
        let Some(round) = self.round(dice.index, now) else {
            state.left = 0;
            return false;
        };
        if state.left > 0 {
            state.left -= 1;
            return true;
        }
        let hit = match &self.chance {
            Chance::Ratio(a, b) => dice.below(1, *b) < *a,
            Chance::Every(n) => *n > 0 && (dice.index + 1).is_multiple_of(*n),
            Chance::Packets(list) => list.binary_search(&dice.index).is_ok(),
            Chance::Opening => state.opened != Some(round),
        };
        state.opened = Some(round);
        if hit {
            state.left = self.burst.saturating_sub(1);
        }
        hit
    }

    /// The repetition in which a packet lies.
    fn round(&self, index: u64, now: u64) -> Option<u64> {
        let place = |at: At| match at {
            At::Packet(n) => (index, n),
            At::Time(ns) => (now, ns),
        };
        let mut round = 0;
        let mut back = 0;
        if let Some(from) = self.from {
            let (here, from) = place(from);
            let since = here.checked_sub(from)?;
            if let Some(At::Packet(length) | At::Time(length)) = self.repeat.filter(|_| since > 0) {
                round = since.checked_div(length).unwrap_or(0);
                back = round * length;
            }
        }
        if let Some(until) = self.until {
            let (here, until) = place(until);
            if here - back.min(here) >= until {
                return None;
            }
        }
        Some(round)
    }
}

/// The chances of one packet in one rule.
#[derive(Clone, Copy)]
pub(super) struct Dice {
    pub seed: u64,
    pub salt: u64,
    pub leg: u8,
    pub index: u64,
}

impl Dice {
    /// 64 random bits; `draw` tells draws for one packet apart.
    pub fn bits(self, draw: u64) -> u64 {
        let packet = self.index.wrapping_mul(256).wrapping_add(u64::from(self.leg));
        mix(self.seed ^ mix(packet ^ mix(self.salt | draw)))
    }
    /// A number below `n`; 0 when `n` is 0.
    pub fn below(self, draw: u64, n: u32) -> u32 {
        (((self.bits(draw) >> 32) * u64::from(n)) >> 32) as u32
    }
    /// A number from 0 to `most`.
    fn up_to(self, draw: u64, most: u64) -> u64 {
        ((u128::from(self.bits(draw)) * (u128::from(most) + 1)) >> 64) as u64
    }
}

/// The finaliser of SplitMix64: every input bit moves every output bit.
pub(super) fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
