//! A flow of several legs: their sequences are joined to one.
//!
//! Each leg has a track of its own, which says what its packets are among themselves. The numbers of a leg lie at a fixed
//! distance from those of the sequence that it brings; where a leg starts anew, that distance is found again, or its
//! packets are those of another sequence.

use super::Settings;
use super::sequence::{Sequence, State, Tally};
use super::watch::{Firsts, Leg, Place};
use crate::event::{Queue, What};
use crate::stats::{LegCounters, PacketCounters, Reason};
use crate::time::Tai;
use crate::track::{Sighting, Verdict};

/// A jump of a leg's numbers after which it is asked again where it lies in its sequence.
const LOOK_AGAIN: u64 = 4096;
/// Arrivals that go back by more come of a clock that was set.
const CLOCK_SET: i64 = 1_000_000_000;

/// Packets that came too late by the leg that was looked at first, as far as they are remembered; a power of two.
const LATE: u64 = 256;

/// How the packet before was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// Not as one of the flow in time.
    No,
    /// The first copy; it came in time.
    First { reordered: bool },
    /// Another leg brought it before.
    Redundant { reordered: bool },
}

/// The packet before.
#[derive(Clone, Copy, Debug)]
struct Seen {
    leg: usize,
    slot: u8,
    id: u64,
    number: u64,
    counted: Counted,
}

#[derive(Debug)]
pub struct Several {
    pub(super) legs: Vec<Leg>,
    sequences: Vec<Sequence>,
    /// The one that is the flow; none before the first packet.
    current: Option<u8>,
    /// Sequences on trial.
    trials: u32,
    next_id: u64,
    seen: Seen,
    /// The sequence of the last packet that was used.
    entered: u64,
    firsts: Firsts,
    /// Sequences and numbers of some packets whose first copies came too late, by the low bits of the numbers.
    late: Vec<(u64, u64)>,
    window_ns: i64,
    silence_ns: i64,
    /// What is counted of sequences that have ended.
    ended: Tally,
    restarts: u64,
    disorder: u64,
    /// Their frames are nobody's.
    dropped: Vec<u64>,
    changed: bool,
    pub(super) events: Queue,
}

impl Several {
    pub(super) fn new(settings: &Settings) -> Self {
        let legs = usize::from(settings.legs);
        let sequences = (0..sequences(legs)).map(|_| Sequence::new(settings.numbers, legs)).collect();
        let nanos = |d: std::time::Duration| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX / 4);
        let window_ns = nanos(settings.window);
        let silence = i64::try_from(settings.silence_ns).unwrap_or(i64::MAX / 4);
        Several {
            legs: (0..legs).map(|_| Leg::new(settings)).collect(),
            sequences,
            current: None,
            trials: 0,
            next_id: 1,
            seen: Seen { leg: 0, slot: 0, id: 0, number: 0, counted: Counted::No },
            entered: 0,
            firsts: Firsts::new(settings.numbers),
            late: vec![(0, 0); LATE as usize],
            window_ns,
            silence_ns: silence.max(window_ns),
            ended: Tally::default(),
            restarts: 0,
            disorder: 0,
            dropped: Vec::with_capacity(2 * legs + 2),
            changed: false,
            events: Queue::default(),
        }
    }

    /// A leg that is not among them is taken for the last one.
    #[inline]
    pub(super) fn place_of(&self, leg: u8) -> usize {
        usize::from(leg).min(self.legs.len() - 1)
    }

    /// A datagram has come. Up to which arrival have all legs that are alive been looked at?
    // A call of its own, as `see` is: the way of flows of one leg is to stay as short as it is.
    #[inline(never)]
    pub(super) fn arrives(&mut self, leg: usize, at: Tai) -> u64 {
        let Some(l) = self.legs.get_mut(leg) else { return 0 };
        l.datagrams += 1;
        if at >= l.newest {
            l.newest = at;
        } else if l.newest.since(at) > CLOCK_SET {
            self.legs.iter_mut().for_each(|l| l.newest = at);
        }
        let top = self.legs.iter().fold(0, |top, l| l.newest.0.max(top));
        let alive = top.saturating_sub(self.window_ns as u64);
        self.legs.iter().fold(top, |low, l| if l.newest.0 >= alive { l.newest.0.min(low) } else { low })
    }

    #[inline(never)]
    pub(super) fn see(&mut self, leg: usize, s: Sighting) -> Verdict {
        let Some(l) = self.legs.get_mut(leg) else { return Verdict::Foreign };
        let next = l.track.number() + 1;
        let verdict = l.track.see(s);
        match l.at {
            Some(place) if l.plain && verdict == Verdict::New && l.track.number() == next => {
                l.heard = s.arrival;
                self.accept(leg, place, s, verdict)
            }
            _ => self.see_other(leg, s, verdict, next),
        }
    }

    #[cold]
    #[inline(never)]
    fn see_other(&mut self, leg: usize, s: Sighting, verdict: Verdict, next: u64) -> Verdict {
        self.seen.counted = Counted::No;
        let Some(l) = self.legs.get_mut(leg) else { return Verdict::Foreign };
        let mut place = l.at;
        match verdict {
            Verdict::Foreign => {
                self.second_sender(leg, s);
                return verdict;
            }
            Verdict::Straggler => place = l.before,
            Verdict::Returned => {
                let left = l.at.take();
                l.at = l.before.take();
                place = l.at;
                l.trial = false;
                self.leave(left, s.arrival);
            }
            Verdict::Restart { aborted } => {
                let left = if aborted { l.at.take() } else { None };
                if !aborted {
                    l.before = l.at;
                }
                l.trial = true;
                self.leave(left, s.arrival);
                place = self.begin(leg, s);
            }
            Verdict::New if place.is_none() => {
                place = self.begin(leg, s);
                let first = self.legs.get_mut(leg).is_some_and(|l| !std::mem::replace(&mut l.began, true));
                if first {
                    self.events.push(s.arrival, What::LegBegan { leg: leg as u8, ssrc: s.ssrc });
                }
            }
            Verdict::New if l.track.number() > next + LOOK_AGAIN => {
                // After so long a gap a sender of 16 bits may have come round unseen.
                let number = l.track.number();
                if let Some(p) = &mut l.at
                    && let Some(delta) = delta(self.sequences.get(usize::from(p.slot)), s, number, self.window_ns)
                {
                    p.delta = delta;
                }
                place = l.at;
            }
            // Late for the leg is not late for the flow, whose window is larger.
            Verdict::New | Verdict::Reordered | Verdict::Duplicate | Verdict::Late => {}
        }
        let Some(l) = self.legs.get_mut(leg) else { return Verdict::Foreign };
        if let Some(silent_ns) = l.is_back(s.arrival) {
            self.events.push(s.arrival, What::LegBack { leg: leg as u8, silent_ns });
        }
        let confirmed = l.trial && !l.track.on_trial();
        if confirmed {
            l.trial = false;
            let left = l.before.take();
            let moved = left.map(|p| p.slot) != l.at.map(|p| p.slot);
            l.restarts += u64::from(moved);
            self.leave(left, s.arrival);
        }
        let Some(l) = self.legs.get_mut(leg) else { return Verdict::Foreign };
        l.plain = !l.trial && l.at.is_some();
        if !l.trial {
            l.heard = s.arrival;
        }
        match place {
            Some(place) => self.accept(leg, place, s, verdict),
            None => Verdict::Foreign,
        }
    }

    /// Counts a packet in the sequence that its leg brings.
    #[inline]
    fn accept(&mut self, leg: usize, place: Place, s: Sighting, verdict: Verdict) -> Verdict {
        let (Some(l), Some(sequence)) = (self.legs.get_mut(leg), self.sequences.get_mut(usize::from(place.slot)))
        else {
            return Verdict::Foreign;
        };
        l.last_arrival = s.arrival;
        let number = l.track.number().wrapping_add_signed(place.delta);
        let other = self.current != Some(place.slot);
        self.seen = Seen { leg, slot: place.slot, id: sequence.id, number, counted: Counted::No };
        if other && !self.accepts(leg, place.slot, s, number) {
            return Verdict::Foreign;
        }
        self.changed |= self.entered != self.seen.id;
        self.entered = self.seen.id;
        let Some(sequence) = self.sequences.get_mut(usize::from(place.slot)) else { return Verdict::Foreign };
        let highest = sequence.line.numbers.highest;
        if number > highest {
            self.disorder += u64::from(number != highest + 1);
            let from = sequence.line.ssrc;
            sequence.advance(number, s);
            sequence.line.numbers.set(leg, number);
            sequence.all.received += 1;
            if let Some(tally) = sequence.of.get_mut(leg) {
                tally.received += 1;
            }
            self.firsts.note(number, s.arrival);
            self.seen.counted = Counted::First { reordered: false };
            if from != s.ssrc {
                // Another source that goes on where the first one stopped.
                self.events.push(s.arrival, What::Switched { leg: leg as u8, from, to: s.ssrc });
            }
            if self.trials > 0 && !other {
                self.refuse_trials(leg, s.arrival);
            }
            return Verdict::New;
        }
        let reordered = matches!(verdict, Verdict::Reordered | Verdict::Straggler | Verdict::Late);
        self.accept_behind(leg, s, number, reordered)
    }

    /// A packet whose number is not above the highest: nearly all of a leg that lies behind.
    #[inline]
    fn accept_behind(&mut self, leg: usize, s: Sighting, number: u64, reordered: bool) -> Verdict {
        let slot = self.seen.slot;
        let Some(sequence) = self.sequences.get_mut(usize::from(slot)) else { return Verdict::Foreign };
        let Some(tally) = sequence.of.get_mut(leg) else { return Verdict::Foreign };
        let first = sequence.line.numbers.first;
        if number < first && sequence.line.late_by(s) > self.silence_ns / 1_000_000 * 90 {
            // As late as that it does not show that the flow began earlier than thought.
            below(tally);
            return Verdict::Late;
        }
        if number < sequence.line.numbers.floor() {
            below(tally);
            self.lies_behind(leg, s);
            return Verdict::Late;
        }
        if number < first {
            sequence.began_with(number);
        }
        let Some(tally) = sequence.of.get_mut(leg) else { return Verdict::Foreign };
        let numbers = &mut sequence.line.numbers;
        let seen = numbers.any(number);
        if numbers.set(leg, number) {
            tally.duplicate += 1;
            return Verdict::Duplicate;
        }
        if numbers.is_decided(number) {
            // It was counted as lost. Whether it is too late is judged by its arrival: it may have been read late.
            tally.lost -= 1;
            sequence.all.lost -= u64::from(!seen);
            if tally.late > tally.lost {
                // What was taken for it was a copy.
                (tally.late, tally.duplicate) = (tally.late - 1, tally.duplicate + 1);
            }
        }
        tally.received += 1;
        tally.reordered += u64::from(reordered);
        if seen && self.late.get((number & (LATE - 1)) as usize) == Some(&(sequence.id, number)) {
            // The first copy to be looked at came too late; this one, of a leg that is looked at later, may be in time.
            sequence.all.lost -= 1;
            sequence.all.late -= 1;
        } else if seen {
            tally.redundant += 1;
            self.seen.counted = Counted::Redundant { reordered };
            if let Some(skew) = self.firsts.skew(number, s.arrival) {
                self.measured(leg, s.arrival, skew);
            }
            return Verdict::Duplicate;
        }
        if seen {
            // Only once.
            self.late.get_mut((number & (LATE - 1)) as usize).into_iter().for_each(|late| *late = (0, 0));
        }
        sequence.all.received += 1;
        self.firsts.note(number, s.arrival);
        self.seen.counted = Counted::First { reordered };
        if number == numbers.highest {
            // The first of its sequence.
            return Verdict::New;
        }
        self.disorder += 1;
        Verdict::Reordered
    }

    /// The packet before came too late for its frame.
    pub(super) fn too_late(&mut self) {
        let counted = std::mem::replace(&mut self.seen.counted, Counted::No);
        let Some(sequence) = self.sequences.get_mut(usize::from(self.seen.slot)) else { return };
        let Some(tally) = sequence.of.get_mut(self.seen.leg) else { return };
        let (first, reordered) = match counted {
            Counted::No => return,
            Counted::First { reordered } => (true, reordered),
            Counted::Redundant { reordered } => (false, reordered),
        };
        tally.received -= 1;
        tally.reordered -= u64::from(reordered);
        tally.redundant -= u64::from(!first);
        tally.lost += 1;
        tally.late += 1;
        if first {
            sequence.all.received -= 1;
            sequence.all.lost += 1;
            sequence.all.late += 1;
            if let Some(late) = self.late.get_mut((self.seen.number & (LATE - 1)) as usize) {
                *late = (self.seen.id, self.seen.number);
            }
        }
    }

    /// Frames of a sequence that are over held the numbers below `until`.
    pub(super) fn retire(&mut self, id: u64, until: u64) {
        let counts = |s: &Sequence| s.id == id && !matches!(s.state, State::Free | State::Refused);
        if let Some(sequence) = self.sequences.iter_mut().find(|s| counts(s)) {
            sequence.retire(until);
        }
    }

    // Sequences: found, begun, left, decided upon.

    /// Where the packets of a leg belong that begins, or starts anew.
    fn begin(&mut self, leg: usize, s: Sighting) -> Option<Place> {
        let l = self.legs.get(leg)?;
        let number = l.track.number();
        // What it has brought already it does not begin with: that is a recording which is played again.
        let left = l.before.filter(|_| l.trial);
        let brought = left.map(|p| (p.slot, l.track.highest_before().wrapping_add_signed(p.delta)));
        let fits = |(slot, sequence): (usize, &Sequence)| {
            let delta = delta(Some(sequence).filter(|s| s.state != State::Free), s, number, self.window_ns)?;
            let is_new = |(of, highest)| usize::from(of) != slot || number.wrapping_add_signed(delta) > highest;
            brought.is_none_or(is_new).then_some((slot, delta))
        };
        let found = self.sequences.iter().enumerate().find_map(fits);
        let place = match found {
            Some((slot, delta)) => Place { slot: slot as u8, delta },
            None => {
                let slot = self.sequences.iter().position(|sequence| sequence.state == State::Free)?;
                let state = match self.current {
                    None => State::Current,
                    Some(current) => State::Trial { held: self.stand_by(current, Some(leg), s.arrival) },
                };
                self.trials += u32::from(state != State::Current);
                if state == State::Current {
                    self.current = Some(slot as u8);
                }
                let id = self.name();
                self.sequences.get_mut(slot)?.start(id, state, s);
                self.changed = true;
                Place { slot: slot as u8, delta: 0 }
            }
        };
        self.legs.get_mut(leg)?.at = Some(place);
        Some(place)
    }

    fn name(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// A leg is no longer on a sequence: when nobody is, it is over.
    fn leave(&mut self, place: Option<Place>, now: Tai) {
        let Some(Place { slot, .. }) = place else { return };
        let used = |p: Option<Place>| p.is_some_and(|p| p.slot == slot);
        if self.legs.iter().any(|l| used(l.at) || used(l.before)) {
            return;
        }
        if self.current != Some(slot) {
            self.end(slot);
        } else if let Some(next) = (0..self.sequences.len() as u8).find(|other| self.is_next(*other)) {
            self.adopt(next, now);
        }
    }

    /// May it be the flow from now on, with all that was counted of it? One that was refused begins with its next packet.
    fn is_next(&self, slot: u8) -> bool {
        let refused = self.sequences.get(usize::from(slot)).is_none_or(|s| s.state == State::Refused);
        !refused && self.is_settled(slot)
    }

    /// Nothing comes of a sequence any more.
    fn end(&mut self, slot: u8) {
        let Some(sequence) = self.sequences.get_mut(usize::from(slot)) else { return };
        match std::mem::replace(&mut sequence.state, State::Free) {
            State::Free | State::Refused => {}
            State::Trial { .. } => {
                self.trials -= 1;
                self.disown(slot);
            }
            State::Current | State::Former { .. } => self.close_account(slot),
        }
    }

    /// A sequence turned out to be another sender's.
    fn disown(&mut self, slot: u8) {
        let Some(sequence) = self.sequences.get_mut(usize::from(slot)) else { return };
        for (leg, tally) in self.legs.iter_mut().zip(&sequence.of) {
            leg.foreign += tally.packets();
        }
        sequence.forget();
        self.dropped.push(sequence.id);
        self.changed = true;
    }

    /// What is missing of a sequence of the flow is lost.
    fn close_account(&mut self, slot: u8) {
        let Some(sequence) = self.sequences.get_mut(usize::from(slot)) else { return };
        sequence.settle();
        for (leg, tally) in self.legs.iter_mut().zip(&sequence.of) {
            leg.ended.add(*tally);
        }
        self.ended.add(sequence.all);
        sequence.forget();
    }

    /// Is a packet of a sequence that is not the flow to be used?
    #[cold]
    #[inline(never)]
    fn accepts(&mut self, leg: usize, slot: u8, s: Sighting, number: u64) -> bool {
        let Some(sequence) = self.sequences.get_mut(usize::from(slot)) else { return false };
        match sequence.state {
            State::Free => return false,
            State::Current => return true,
            State::Former { until } if s.arrival <= until => return true,
            State::Former { .. } => {
                // It goes on: there are two senders.
                self.close_account(slot);
                if let Some(sequence) = self.sequences.get_mut(usize::from(slot)) {
                    sequence.state = State::Refused;
                }
            }
            State::Trial { .. } => {
                if self.is_agreed(slot) || (self.is_settled(slot) && self.is_free(s.arrival)) {
                    self.adopt(slot, s.arrival);
                }
                return true;
            }
            State::Refused => {}
        }
        if self.is_settled(slot) && self.is_free(s.arrival) {
            self.adopt(slot, s.arrival);
            let id = self.name();
            if let Some(sequence) = self.sequences.get_mut(usize::from(slot)) {
                sequence.start_again(id, number, s);
                self.seen.id = id;
            }
            return true;
        }
        self.second_sender(leg, s);
        let Some(sequence) = self.sequences.get_mut(usize::from(slot)) else { return false };
        if number > sequence.line.numbers.highest {
            sequence.advance(number, s);
        }
        false
    }

    /// Has a leg brought a sequence for so long that it is no stray?
    fn is_settled(&self, slot: u8) -> bool {
        self.legs.iter().any(|l| !l.trial && l.at.is_some_and(|p| p.slot == slot))
    }

    /// Do two legs show a sequence that is on trial, one of them for some time?
    fn is_agreed(&self, slot: u8) -> bool {
        self.is_settled(slot) && self.legs.iter().filter(|l| l.at.is_some_and(|p| p.slot == slot)).count() > 1
    }

    /// Does nobody bring the flow any more?
    fn is_free(&self, now: Tai) -> bool {
        self.current.is_none_or(|current| !self.stand_by(current, None, now))
    }

    /// Does a leg, but for one, bring a sequence or come back to it?
    fn stand_by(&self, slot: u8, but: Option<usize>, now: Tai) -> bool {
        let mut legs = self.legs.iter().enumerate().filter(|(n, _)| Some(*n) != but);
        legs.any(|(_, l)| l.stands_by().is_some_and(|p| p.slot == slot) && now.since(l.heard) <= self.silence_ns)
    }

    /// The flow is this sequence from now on.
    fn adopt(&mut self, slot: u8, now: Tai) {
        let was = self.sequences.get(usize::from(slot)).map(|sequence| sequence.state);
        let old = self.current.replace(slot);
        let leg = self.legs.iter().position(|l| l.at.is_some_and(|p| p.slot == slot)).unwrap_or(0) as u8;
        let ssrc = |slot: Option<u8>| slot.and_then(|s| self.sequences.get(usize::from(s))).map_or(0, |s| s.line.ssrc);
        let (from, to) = (ssrc(old), ssrc(Some(slot)));
        let on_trial = matches!(was, Some(State::Trial { .. }));
        self.trials -= u32::from(on_trial);
        // One that was known as a second sender took over.
        let known = self.legs.iter_mut().filter_map(|l| l.announced.take_if(|ssrc| *ssrc == to)).count() > 0;
        let what =
            if on_trial && !known { What::Restarted { leg, from, to } } else { What::Switched { leg, from, to } };
        self.events.push(now, what);
        if let Some(sequence) = self.sequences.get_mut(usize::from(slot)) {
            sequence.state = State::Current;
        }
        self.restarts += 1;
        self.changed = true;
        let Some(old) = old else { return };
        let used = |p: Option<Place>| p.is_some_and(|p| p.slot == old);
        if self.legs.iter().any(|l| used(l.at) || used(l.before)) {
            let until = Tai(now.0.saturating_add(self.window_ns as u64));
            if let Some(sequence) = self.sequences.get_mut(usize::from(old)) {
                sequence.state = State::Former { until };
            }
        } else {
            self.end(old);
        }
    }

    /// The flow went on: what has been on trial for longer than a leg may lie behind is another sender's.
    #[cold]
    #[inline(never)]
    fn refuse_trials(&mut self, leg: usize, now: Tai) {
        if self.legs.get(leg).is_none_or(|l| l.trial) {
            return;
        }
        for slot in 0..self.sequences.len() {
            let Some(sequence) = self.sequences.get_mut(slot) else { return };
            if !matches!(sequence.state, State::Trial { .. }) || now.since(sequence.began) <= self.window_ns {
                continue;
            }
            sequence.state = State::Refused;
            let ssrc = sequence.line.ssrc;
            self.trials -= 1;
            self.disown(slot as u8);
            if let Some(n) = self.legs.iter().position(|l| l.at.is_some_and(|p| usize::from(p.slot) == slot)) {
                self.announce(n, ssrc, now);
            }
        }
    }

    // What is told.

    fn second_sender(&mut self, leg: usize, s: Sighting) {
        if let Some(l) = self.legs.get_mut(leg) {
            l.foreign += 1;
        }
        self.announce(leg, s.ssrc, s.arrival);
    }

    /// Once for each sender.
    fn announce(&mut self, leg: usize, ssrc: u32, now: Tai) {
        let Some(l) = self.legs.get_mut(leg) else { return };
        if l.announced.replace(ssrc) != Some(ssrc) {
            self.events.push(now, What::SecondSender { leg: leg as u8, ssrc });
        }
    }

    /// A packet lies so far behind that nobody knows when its first copy came: its timestamp says how far.
    fn lies_behind(&mut self, leg: usize, s: Sighting) {
        let Some(sequence) = self.current.and_then(|slot| self.sequences.get(usize::from(slot))) else { return };
        let ticks = i64::from(sequence.line.ticks(s.timestamp));
        let skew = s.arrival.since(sequence.line.arrival).saturating_sub(ticks * 1_000_000 / 90);
        self.beyond(leg, s.arrival, skew);
    }

    #[cold]
    fn measured(&mut self, leg: usize, now: Tai, skew: i64) {
        if let Some(l) = self.legs.get_mut(leg) {
            l.skew.add(skew);
        }
        self.beyond(leg, now, skew);
    }

    fn beyond(&mut self, leg: usize, now: Tai, skew_ns: i64) {
        let Some(l) = self.legs.get_mut(leg) else { return };
        let beyond = skew_ns > self.window_ns;
        if beyond && !l.beyond {
            let window_ns = self.window_ns;
            self.events.push(now, What::SkewBeyondWindow { leg: leg as u8, skew_ns, window_ns });
        }
        l.beyond = beyond;
    }

    /// Looks which legs are silent, and whether a sequence may take the place of one that has ended. To be called about
    /// once a frame.
    pub(super) fn tick(&mut self, now: Tai) {
        let heard = |l: &Leg| l.began && now.since(l.last_arrival) <= self.silence_ns;
        if !self.legs.iter().any(heard) {
            return;
        }
        for (n, l) in self.legs.iter_mut().enumerate() {
            if l.began && !l.silent && now.since(l.last_arrival) > self.silence_ns {
                (l.silent, l.plain) = (true, false);
                self.events.push(now, What::LegSilent { leg: n as u8 });
            }
        }
    }

    // What is asked.

    pub(super) const fn take_change(&mut self) -> bool {
        std::mem::replace(&mut self.changed, false)
    }
    pub(super) const fn has_changed(&self) -> bool {
        self.changed
    }
    pub(super) fn next_dropped(&mut self) -> Option<u64> {
        self.dropped.pop()
    }
    pub(super) const fn seen(&self) -> (u8, u64) {
        (self.seen.slot, self.seen.id)
    }
    pub(super) const fn number(&self) -> u64 {
        self.seen.number
    }
    pub(super) const fn disorder(&self) -> u64 {
        self.disorder
    }
    /// The flow's.
    pub(super) fn settled(&self) -> u8 {
        self.current.unwrap_or(self.seen.slot)
    }
    pub(super) fn is_held(&self, id: u64) -> bool {
        self.sequences.iter().any(|s| s.id == id && s.state == State::Trial { held: true })
    }
    /// Numbers of `from .. to` that no leg has brought (yet).
    pub(super) fn unseen(&self, id: u64, from: u64, to: u64) -> u64 {
        let sequence = self.sequences.iter().find(|s| s.id == id && s.state != State::Free);
        sequence.map_or(0, |s| s.line.numbers.unmarked(from, to))
    }
    pub(super) fn sequences(&self) -> usize {
        self.sequences.len()
    }

    /// No packet will come any more.
    pub(super) fn finish(&mut self) {
        for slot in 0..self.sequences.len() as u8 {
            let Some(sequence) = self.sequences.get(usize::from(slot)) else { continue };
            if !matches!(sequence.state, State::Trial { .. }) {
                continue;
            }
            let went_on = self.current.and_then(|c| self.sequences.get(usize::from(c)));
            let went_on = went_on.is_some_and(|c| c.line.arrival.since(sequence.began) > self.window_ns);
            if went_on || sequence.all.received < 2 {
                self.end(slot);
            } else {
                self.adopt(slot, sequence.line.arrival);
            }
        }
        for slot in 0..self.sequences.len() as u8 {
            self.end(slot);
        }
        self.current = None;
        self.seen.counted = Counted::No;
        for leg in &mut self.legs {
            leg.track.finish();
            (leg.at, leg.before, leg.trial, leg.plain) = (None, None, false, false);
        }
    }

    /// Of sequences of the flow, or that may become it.
    fn counted(&self) -> impl Iterator<Item = &Sequence> {
        self.sequences.iter().filter(|s| !matches!(s.state, State::Free | State::Refused))
    }

    pub(super) fn counters(&self) -> PacketCounters {
        let mut all = self.ended;
        self.counted().for_each(|s| all.add(s.all));
        let mut counters = PacketCounters {
            received: all.received,
            lost: all.lost,
            late: all.late,
            restarts: self.restarts,
            ..PacketCounters::default()
        };
        for leg in 0..self.legs.len() {
            let of = self.leg(leg);
            counters.duplicate += of.duplicate;
            counters.reordered += of.reordered;
            counters.rejected.0[Reason::Ssrc as usize] += of.foreign;
        }
        counters
    }

    pub(super) fn leg(&self, leg: usize) -> LegCounters {
        let Some(l) = self.legs.get(leg) else { return LegCounters::default() };
        let mut t = l.ended;
        self.counted().filter_map(|s| s.of.get(leg)).for_each(|tally| t.add(*tally));
        LegCounters {
            datagrams: l.datagrams,
            received: t.received,
            lost: t.lost,
            late: t.late,
            duplicate: t.duplicate,
            reordered: t.reordered,
            used: t.received - t.redundant,
            redundant: t.redundant,
            restarts: l.restarts,
            foreign: l.foreign,
            skew: l.skew,
            last_arrival: self.last_arrival(leg),
        }
    }

    pub(super) fn last_arrival(&self, leg: usize) -> Option<Tai> {
        self.legs.get(leg).filter(|l| l.began).map(|l| l.last_arrival)
    }

    /// # Panics
    /// When the state contradicts itself.
    pub(super) fn check_invariants(&self) {
        for (slot, sequence) in self.sequences.iter().enumerate() {
            let on = |p: Option<Place>| p.is_some_and(|p| usize::from(p.slot) == slot);
            let used = self.legs.iter().any(|l| on(l.at) || on(l.before));
            match sequence.state {
                State::Free => assert!(!used, "a leg is on a sequence that has ended"),
                State::Current => assert_eq!(self.current.map(usize::from), Some(slot)),
                _ => assert!(used, "nobody is on {sequence:?}"),
            }
        }
        self.counted().for_each(Sequence::check_invariants);
        let trials = self.sequences.iter().filter(|s| matches!(s.state, State::Trial { .. })).count();
        assert_eq!(trials, self.trials as usize);
        self.legs.iter().for_each(|l| assert_eq!(l.trial, l.track.on_trial()));
    }
}

/// Sequences of so many legs: each is on one, and remembers one while the next is on trial; one is the flow; one is to be
/// begun.
pub(super) const fn sequences(legs: usize) -> usize {
    2 * legs + 2
}

/// Older than the window: late while there is loss that no late packet accounts for, else a copy.
fn below(tally: &mut Tally) {
    let late = tally.late < tally.lost;
    tally.late += u64::from(late);
    tally.duplicate += u64::from(!late);
}

/// From a leg's number to that of the sequence, where its packet fits.
fn delta(sequence: Option<&Sequence>, s: Sighting, number: u64, window_ns: i64) -> Option<i64> {
    let sequence = sequence?;
    // A leg may lie a second behind and be known as a leg, too late though it is.
    let tolerance = 90_000 + window_ns / 1_000_000 * 180;
    let distance = sequence.fit(s, tolerance)?;
    Some(sequence.line.numbers.highest.wrapping_add_signed(distance).wrapping_sub(number) as i64)
}
