//! Faults on purpose, around any receiver: what a [`FaultPlan`] says happens to the packets that it receives.
//!
//! What happens to a packet depends on the plan, its leg, its number on that leg and its arrival alone, so a run over a
//! capture can be repeated, and a test can know beforehand what must be missing afterwards.

mod copies;

pub use crate::fault::{At, Chance, FaultCounters, FaultPlan, Hold, Part, Rule, What, When};

use super::{Caps, Receiver, RxError};
use crate::error::{Error, Kind, Result};
use crate::fault::{Due, Fate, Faults, Held};
use crate::mem::Host;
use crate::ring::{Lease, Slot, SplitRing};
use crate::sdp::Leg;
use crate::stats::RxCounters;
use crate::time::Tai;
use copies::Copies;
use std::collections::VecDeque;
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
    /// Octets of it were changed.
    Corrupted,
    /// It was the first one of a sender that restarted.
    Restarted,
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
    /// Its first octets as they came, from the RTP header on; zeros where it is shorter.
    pub header: [u8; 32],
}

type Observer = Box<dyn FnMut(&Event) + Send>;

/// A receiver whose packets suffer faults. Leases of the inner receiver are kept until the last of their packets has
/// been delivered and given back. Where octets are to be changed, packets are copied first into a ring of its own, for
/// those of the inner receiver belong to it; its leases go back at once then.
pub struct Fault<R: Receiver> {
    inner: R,
    plan: FaultPlan,
    faults: Faults,
    caps: Caps,
    copies: Option<Copies<R::Mem>>,
    /// One that the copies had no room for yet.
    waiting: Option<Lease>,
    /// Inner leases that are not done with yet, oldest first; the oldest has the number `oldest`.
    leases: VecDeque<Kept>,
    oldest: u64,
    held: Held<Delivery>,
    /// For each lease that is out: which inner leases its slots belong to.
    out: VecDeque<(u32, Vec<u64>)>,
    token: u32,
    spare: Vec<(Vec<Slot>, Vec<u64>)>,
    idle: u32,
    starved: u64,
    ended: bool,
    log: Vec<Event>,
    observer: Option<Observer>,
    /// By leg.
    counters: Vec<FaultCounters>,
}

/// An inner lease, and how many deliveries of its slots are not given back yet.
struct Kept {
    /// None where it went back when its packets had been copied.
    lease: Option<Lease>,
    pending: u64,
    /// Where the copies of its packets end.
    end: u64,
}

/// A packet that others are let pass, and the number of its inner lease.
struct Delivery {
    slot: Slot,
    lease: u64,
}

impl<R: Receiver<Mem = Host>> Fault<R> {
    /// `inner` with the faults of `plan`.
    ///
    /// # Errors
    /// No memory for the copies of packets that are to be changed.
    pub fn new(inner: R, plan: FaultPlan) -> Result<Self> {
        let copies = if plan.alters() { Some(Copies::new()?) } else { None };
        Ok(Self::build(inner, plan, copies))
    }
}

impl<R: Receiver> Fault<R> {
    /// The same for a receiver whose memory the CPU need not read: nothing is changed in it.
    ///
    /// # Errors
    /// The plan corrupts packets or restarts the sender.
    pub fn unaltered(inner: R, plan: FaultPlan) -> Result<Self> {
        if plan.alters() {
            let what = "the fault plan changes octets, and those of this receiver lie in memory of the GPU";
            return Err(Error::new(Kind::Usage, what)
                .cure("leave corrupt and restart out of the plan, or receive into memory of the host (--gpu off)"));
        }
        Ok(Self::build(inner, plan, None))
    }

    fn build(inner: R, plan: FaultPlan, copies: Option<Copies<R::Mem>>) -> Self {
        let starved = inner.counters().starved;
        let mut fault = Fault {
            inner,
            faults: Faults::new(&plan),
            plan,
            caps: Caps::default(),
            copies,
            waiting: None,
            leases: VecDeque::new(),
            oldest: 0,
            held: Held::default(),
            out: VecDeque::new(),
            token: 0,
            spare: Vec::new(),
            idle: 0,
            starved,
            ended: false,
            log: Vec::new(),
            observer: None,
            counters: Vec::new(),
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
    /// How many faults there were, on all legs.
    pub fn fault_counters(&self) -> FaultCounters {
        self.counters.iter().fold(FaultCounters::default(), |sum, leg| sum + *leg)
    }
    fn count(&mut self, leg: u8) -> &mut FaultCounters {
        let leg = usize::from(leg);
        if self.counters.len() <= leg {
            self.counters.resize(leg + 1, FaultCounters::default());
        }
        &mut self.counters[leg]
    }
    /// The receiver inside.
    pub fn inner(&self) -> &R {
        &self.inner
    }

    fn read_caps(&mut self) {
        self.caps = self.inner.caps().clone();
        self.caps.notes.push(format!("warning: faults are injected on purpose: {}", self.plan));
        if self.copies.is_some() {
            self.caps.notes.push("packets are copied, so that their octets can be changed".into());
        }
    }

    /// Takes an inner lease apart: what is delivered at once goes to `slots`, and the number of its lease to `from`.
    fn pass(&mut self, lease: Lease, slots: &mut Vec<Slot>, from: &mut Vec<u64>) {
        let number = self.oldest + self.leases.len() as u64;
        let mut pending = 0;
        for slot in lease.slots() {
            self.let_go(slot.arrival, slots, from);
            let sequence = self.inner.ring().head(slot).get(2..4).map_or(0, |o| u16::from_be_bytes([o[0], o[1]]));
            let fate = self.faults.decide(slot.leg, slot.arrival, slot.octets, sequence);
            self.count(slot.leg).add(&fate);
            let delivered = self.altered(&fate, slot);
            for hold in fate.copies() {
                let Some(slot) = delivered else {
                    self.count(slot.leg).torn += 1;
                    self.count(slot.leg).removed += 1;
                    continue;
                };
                pending += 1;
                let due = match hold {
                    Hold::No => {
                        slots.push(slot);
                        from.push(number);
                        continue;
                    }
                    Hold::Packets(n) => Due::Packet(fate.index + u64::from(n)),
                    Hold::Time(ns) => Due::Time(Tai(slot.arrival.0.saturating_add(ns))),
                };
                self.count(slot.leg).held += 1;
                if let Some((leg, early)) = self.held.push(slot.leg, due, Delivery { slot, lease: number }) {
                    self.count(leg).hurried += 1;
                    deliver(early, None, slots, from);
                }
            }
            while let Some(delivery) = self.held.due_behind(slot.leg, fate.index) {
                deliver(delivery, Some(slot.arrival), slots, from);
            }
        }
        let end = self.copies.as_ref().map_or(0, Copies::end);
        // What was copied is not needed any more.
        let lease = if self.copies.is_some() {
            self.inner.release(lease);
            None
        } else {
            Some(lease)
        };
        self.leases.push_back(Kept { lease, pending, end });
    }

    /// The slot that is delivered in place of `slot`; none where it was overwritten before it was copied.
    fn altered(&mut self, fate: &Fate, slot: &Slot) -> Option<Slot> {
        self.note(fate, slot);
        let Some(copies) = self.copies.as_mut().filter(|_| fate.copies().next().is_some()) else { return Some(*slot) };
        let (copy, octets) = copies.copy(self.inner.ring(), slot)?;
        if fate.alters() {
            let done = self.faults.alter(fate, slot.leg, octets);
            if done.corrupted {
                self.count(slot.leg).corrupted += 1;
                self.tell(Done::Corrupted, fate.index, slot);
            }
        }
        Some(copy)
    }

    /// Delivers what waited for a time that has come.
    fn let_go(&mut self, now: Tai, slots: &mut Vec<Slot>, from: &mut Vec<u64>) {
        while let Some((_, due, delivery)) = self.held.due_at(now) {
            deliver(delivery, Some(due), slots, from);
        }
    }

    /// Delivers all that is held, now.
    fn hurry(&mut self, slots: &mut Vec<Slot>, from: &mut Vec<u64>) {
        while let Some((leg, delivery)) = self.held.pop() {
            self.count(leg).hurried += 1;
            deliver(delivery, None, slots, from);
        }
    }

    fn note(&mut self, fate: &Fate, slot: &Slot) {
        let held = fate.copies().next().is_some_and(|hold| hold != Hold::No);
        let events = [
            (fate.restarted, Done::Restarted),
            (fate.copies().next().is_none(), Done::Removed),
            (fate.duplicated, Done::Duplicated),
            (held, Done::Held),
        ];
        for (_, done) in events.into_iter().filter(|(happened, _)| *happened) {
            self.tell(done, fate.index, slot);
        }
    }

    fn tell(&mut self, done: Done, index: u64, slot: &Slot) {
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
        let polled = self.waiting.take().map_or_else(|| self.inner.poll(), Ok);
        // Stamps of a card may cease to come.
        self.caps.stamps = self.inner.caps().stamps;
        match polled {
            Ok(lease) if lease.is_empty() => {
                self.inner.release(lease);
                if let Some(now) = self.inner.now() {
                    self.let_go(now, slots, from);
                }
                self.idle = self.idle.saturating_add(1);
                let starved = self.inner.counters().starved;
                if starved != self.starved || self.idle >= IDLE {
                    (self.starved, self.idle) = (starved, 0);
                    self.hurry(slots, from);
                }
                Ok(false)
            }
            Ok(lease) if self.copies.as_ref().is_some_and(|copies| !copies.have_room(lease.slots())) => {
                self.hurry(slots, from);
                if self.leases.is_empty() {
                    self.inner.release(lease);
                    return Err(RxError::Failed(Error::new(
                        Kind::Internal,
                        "a batch of packets is too large to be copied",
                    )));
                }
                self.waiting = Some(lease);
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
                if let Some(copies) = &mut self.copies {
                    copies.free_to(kept.end);
                }
                if let Some(lease) = kept.lease {
                    self.inner.release(lease);
                }
            }
        }
    }
}

/// Delivers what was held; it arrives at `at`, or did when it came.
fn deliver(delivery: Delivery, at: Option<Tai>, slots: &mut Vec<Slot>, from: &mut Vec<u64>) {
    slots.push(Slot { arrival: at.unwrap_or(delivery.slot.arrival), ..delivery.slot });
    from.push(delivery.lease);
}

impl<R: Receiver> Receiver for Fault<R> {
    type Mem = R::Mem;

    fn ring(&self) -> &SplitRing<Self::Mem> {
        self.copies.as_ref().map_or_else(|| self.inner.ring(), Copies::ring)
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
        for slot in &slots {
            self.count(slot.leg).delivered += 1;
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
    fn dropped(&self, leg: u8) -> u64 {
        self.inner.dropped(leg)
    }
    fn faults(&self) -> &[FaultCounters] {
        &self.counters
    }
    fn finish(&mut self, remarks: &mut Vec<String>) -> Result<()> {
        remarks.push(format!("fault plan: {}", self.fault_counters()));
        self.inner.finish(remarks)
    }

    fn take_events(&mut self, events: &mut Vec<crate::event::Event>) {
        self.inner.take_events(events);
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
