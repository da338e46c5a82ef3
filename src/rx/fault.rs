//! Faults on purpose, around any receiver: loss, duplicates, reordering, delay.
//!
//! What happens to a packet depends on the seed, its leg and its number on that leg alone ([`FaultPlan`]), so a run can be
//! repeated and a test can know beforehand what must be missing afterwards.

mod plan;

pub use plan::{Chance, Decision, FaultPlan, Hold};

use super::{Caps, Receiver, RxError};
use crate::error::Result;
use crate::ring::{Lease, Slot, SplitRing};
use crate::sdp::Leg;
use crate::stats::RxCounters;
use crate::time::Tai;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// Events that are kept at most; all are counted, and told to the observer.
const LOG: usize = 1 << 16;
/// Packets are held until others have passed them; after so many polls in a row that brought nothing they go on.
const IDLE: u32 = 1000;
/// Inner leases that one poll takes at most while all that they hold is removed or held.
const TRIES: usize = 64;
/// Token of a lease that needs no account.
const NONE: u32 = u32::MAX;

/// What was done to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It was removed.
    Removed,
    /// It was delivered twice.
    Duplicated,
    /// Others were let pass.
    Held,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What was done.
    pub done: Done,
    /// The leg of the packet.
    pub leg: u8,
    /// Its number on that leg, from 0, in the order of arrival.
    pub index: u64,
    /// Its first octets, from the RTP header on; zeros where it is shorter.
    pub header: [u8; 32],
}

/// How often each fault was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// Packets seen.
    pub seen: u64,
    /// Packets removed.
    pub removed: u64,
    /// Packets delivered twice.
    pub duplicated: u64,
    /// Packets, or second copies, that others were let pass.
    pub held: u64,
    /// Of these: let go early, because the stream paused or ended, or the receiver's memory ran out.
    pub hurried: u64,
}

type Observer = Box<dyn FnMut(&Event) + Send>;

/// A receiver whose packets suffer faults. Leases of the inner receiver are kept until the last of their packets has
/// been delivered and given back.
pub struct Fault<R> {
    inner: R,
    plan: FaultPlan,
    caps: Caps,
    /// Packets seen on each leg.
    indices: [u64; 256],
    /// Packets seen.
    seen: u64,
    /// Inner leases that are not given back yet, oldest first; the oldest has the number `oldest`.
    leases: VecDeque<Kept>,
    oldest: u64,
    /// Held until so many packets have been seen, or until a time.
    by_count: BinaryHeap<Reverse<Waiting>>,
    by_time: BinaryHeap<Reverse<Waiting>>,
    order: u64,
    /// For each lease that is out: which inner leases its slots belong to.
    out: VecDeque<(u32, Vec<u64>)>,
    token: u32,
    spare: Vec<(Vec<Slot>, Vec<u64>)>,
    idle: u32,
    starved: u64,
    ended: bool,
    log: Vec<Event>,
    observer: Option<Observer>,
    counters: FaultCounters,
}

/// An inner lease, and how many deliveries of its slots are not given back yet.
struct Kept {
    lease: Lease,
    pending: u64,
}

/// A packet that others are let pass.
struct Waiting {
    due: u64,
    order: u64,
    slot: Slot,
    /// Number of its inner lease.
    lease: u64,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Waiting {}
impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

impl<R: Receiver> Fault<R> {
    /// `inner` with the faults of `plan`.
    pub fn new(inner: R, plan: FaultPlan) -> Self {
        let starved = inner.counters().starved;
        let mut fault = Fault {
            inner,
            plan,
            caps: Caps::default(),
            indices: [0; 256],
            seen: 0,
            leases: VecDeque::new(),
            oldest: 0,
            by_count: BinaryHeap::new(),
            by_time: BinaryHeap::new(),
            order: 0,
            out: VecDeque::new(),
            token: 0,
            spare: Vec::new(),
            idle: 0,
            starved,
            ended: false,
            log: Vec::new(),
            observer: None,
            counters: FaultCounters::default(),
        };
        fault.read_caps();
        fault
    }

    /// Calls `observer` at each fault.
    pub fn observe(&mut self, observer: impl FnMut(&Event) + Send + 'static) {
        self.observer = Some(Box::new(observer));
    }
    /// The first 65 536 faults.
    pub fn log(&self) -> &[Event] {
        &self.log
    }
    /// How many faults there were.
    pub fn fault_counters(&self) -> FaultCounters {
        self.counters
    }
    /// The receiver inside.
    pub fn inner(&self) -> &R {
        &self.inner
    }

    fn read_caps(&mut self) {
        self.caps = self.inner.caps().clone();
        self.caps.notes.push(format!("warning: faults are injected on purpose: {}", self.plan));
    }

    /// Takes an inner lease apart: what is delivered at once goes to `slots`, and the number of its lease to `from`.
    fn pass(&mut self, lease: Lease, slots: &mut Vec<Slot>, from: &mut Vec<u64>) {
        let number = self.oldest + self.leases.len() as u64;
        let mut pending = 0;
        for &slot in lease.slots() {
            let index = self.indices[usize::from(slot.leg)];
            self.indices[usize::from(slot.leg)] += 1;
            self.seen += 1;
            self.let_go(|w| w.due <= slot.arrival.0, true, None, slots, from);
            let decision = self.plan.decide(slot.leg, index);
            self.note(&decision, &slot, index);
            for hold in decision.copies() {
                pending += 1;
                let (heap, due) = match hold {
                    Hold::No => {
                        slots.push(slot);
                        from.push(number);
                        continue;
                    }
                    Hold::Packets(n) => (&mut self.by_count, self.seen + u64::from(n)),
                    Hold::Time(ns) => (&mut self.by_time, slot.arrival.0.saturating_add(ns)),
                };
                self.counters.held += 1;
                self.order += 1;
                heap.push(Reverse(Waiting { due, order: self.order, slot, lease: number }));
            }
            let seen = self.seen;
            self.let_go(|w| w.due <= seen, false, Some(slot.arrival), slots, from);
        }
        self.leases.push_back(Kept { lease, pending });
    }

    /// Delivers held packets from the top of a heap while they are `due`; they arrive at `at`, or when they are due.
    fn let_go(
        &mut self,
        due: impl Fn(&Waiting) -> bool,
        by_time: bool,
        at: Option<Tai>,
        slots: &mut Vec<Slot>,
        from: &mut Vec<u64>,
    ) {
        let heap = if by_time { &mut self.by_time } else { &mut self.by_count };
        while heap.peek().is_some_and(|Reverse(w)| due(w)) {
            let Some(Reverse(w)) = heap.pop() else { return };
            slots.push(Slot { arrival: at.unwrap_or(Tai(w.due)), ..w.slot });
            from.push(w.lease);
        }
    }

    /// Delivers all that is held, now.
    fn hurry(&mut self, slots: &mut Vec<Slot>, from: &mut Vec<u64>) {
        for by_time in [false, true] {
            let before = slots.len();
            let heap = if by_time { &mut self.by_time } else { &mut self.by_count };
            let mut rest: Vec<Waiting> = std::mem::take(heap).into_iter().map(|Reverse(w)| w).collect();
            rest.sort_unstable();
            for w in rest {
                slots.push(w.slot);
                from.push(w.lease);
            }
            self.counters.hurried += (slots.len() - before) as u64;
        }
    }

    fn note(&mut self, decision: &Decision, slot: &Slot, index: u64) {
        self.counters.seen += 1;
        let done = match decision {
            Decision::Remove => Done::Removed,
            Decision::Twice(..) => Done::Duplicated,
            Decision::Once(Hold::No) => return,
            Decision::Once(_) => Done::Held,
        };
        match done {
            Done::Removed => self.counters.removed += 1,
            Done::Duplicated => self.counters.duplicated += 1,
            Done::Held => {}
        }
        if self.log.len() >= LOG && self.observer.is_none() {
            return;
        }
        let mut header = [0; 32];
        for (to, octet) in header.iter_mut().zip(self.inner.ring().head(slot)) {
            *to = *octet;
        }
        let event = Event { done, leg: slot.leg, index, header };
        if self.log.len() < LOG {
            self.log.push(event);
        }
        if let Some(observer) = &mut self.observer {
            observer(&event);
        }
    }

    /// One inner lease; says whether there may be more.
    fn step(&mut self, slots: &mut Vec<Slot>, from: &mut Vec<u64>) -> std::result::Result<bool, RxError> {
        if self.ended {
            return Err(RxError::End);
        }
        match self.inner.poll() {
            Ok(lease) if lease.is_empty() => {
                self.inner.release(lease);
                self.idle = self.idle.saturating_add(1);
                let starved = self.inner.counters().starved;
                if starved != self.starved || self.idle >= IDLE {
                    (self.starved, self.idle) = (starved, 0);
                    self.hurry(slots, from);
                }
                Ok(false)
            }
            Ok(lease) => {
                self.idle = 0;
                self.pass(lease, slots, from);
                Ok(true)
            }
            Err(e) => {
                self.ended = matches!(e, RxError::End);
                self.hurry(slots, from);
                if self.ended && !slots.is_empty() { Ok(false) } else { Err(e) }
            }
        }
    }

    /// Gives inner leases back, oldest first, as far as nothing of them is needed any more.
    fn give_back(&mut self) {
        while self.leases.front().is_some_and(|kept| kept.pending == 0) {
            if let Some(kept) = self.leases.pop_front() {
                self.oldest += 1;
                self.inner.release(kept.lease);
            }
        }
    }
}

impl<R: Receiver> Receiver for Fault<R> {
    type Mem = R::Mem;

    fn ring(&self) -> &SplitRing<Self::Mem> {
        self.inner.ring()
    }

    fn poll(&mut self) -> std::result::Result<Lease, RxError> {
        let (mut slots, mut from) = self.spare.pop().unwrap_or_default();
        let mut result = Ok(true);
        for _ in 0..TRIES {
            result = self.step(&mut slots, &mut from);
            if !slots.is_empty() || !matches!(result, Ok(true)) {
                break;
            }
        }
        self.give_back();
        if slots.is_empty() {
            self.spare.push((slots, from));
            return result.map(|_| Lease::new(Vec::new(), NONE));
        }
        self.token = if self.token == NONE - 1 { 0 } else { self.token + 1 };
        self.out.push_back((self.token, from));
        Ok(Lease::new(slots, self.token))
    }

    fn release(&mut self, lease: Lease) {
        let Lease { mut slots, token } = lease;
        let Some(place) = self.out.iter().position(|(t, _)| *t == token) else { return };
        if let Some((_, mut from)) = self.out.remove(place) {
            for number in from.drain(..) {
                let kept = number.checked_sub(self.oldest).and_then(|i| self.leases.get_mut(i as usize));
                if let Some(kept) = kept {
                    kept.pending = kept.pending.saturating_sub(1);
                }
            }
            slots.clear();
            self.spare.push((slots, from));
        }
        self.give_back();
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn join(&mut self, leg: u8, what: &Leg) -> Result<()> {
        self.inner.join(leg, what)?;
        self.read_caps();
        Ok(())
    }

    fn counters(&self) -> RxCounters {
        self.inner.counters()
    }
    fn finish(&mut self, remarks: &mut Vec<String>) -> Result<()> {
        let FaultCounters { seen, removed, duplicated, held, .. } = self.fault_counters();
        remarks
            .push(format!("fault plan: of {seen} packets {removed} removed, {duplicated} doubled, {held} held back"));
        self.inner.finish(remarks)
    }

    fn now(&self) -> Option<Tai> {
        self.inner.now()
    }
    fn wait(&mut self, at_most: Duration) -> bool {
        self.inner.wait(at_most)
    }
}

#[cfg(test)]
mod tests;
