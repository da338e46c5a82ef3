//! Faults on purpose to what is sent, so that a receiver elsewhere can be tested with a known network.

use super::live::Report;
use super::pace::{Clock, Gather, Packets};
use super::socket::Outlet;
use crate::error::Result;
use crate::fault::{Due, FaultCounters, FaultPlan, Faults, HELD_AT_MOST, Held, Hold};
use crate::time::Tai;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A plan at work on packets that leave at times of a schedule. What happens to a packet depends on the plan, its leg, its
/// number and that time alone, so a file is the same every time.
#[derive(Debug)]
pub struct Impaired {
    faults: Faults,
    held: Held<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    work: Vec<u8>,
    /// When the last packet was to leave.
    last: Tai,
    counters: FaultCounters,
}

/// Where packets go: leg, time, octets from the RTP header on.
pub type Emit<'a> = &'a mut dyn FnMut(u8, Tai, &[u8]) -> Result<()>;

impl Impaired {
    /// A plan. `extended`: octets 12 and 13 are the high half of the sequence number.
    pub fn new(plan: &FaultPlan, extended: bool) -> Self {
        Impaired {
            faults: Faults::new(plan).with_extended(extended),
            held: Held::default(),
            spare: Vec::new(),
            work: Vec::new(),
            last: Tai(0),
            counters: FaultCounters::default(),
        }
    }

    /// What was done so far.
    pub const fn counters(&self) -> FaultCounters {
        self.counters
    }
    /// When the next one leaves of those that are delayed.
    pub fn next_time(&self) -> Option<Tai> {
        self.held.next_time()
    }

    /// The next packet of `leg`, which was to leave at `at`: emits what leaves then, in order of time.
    ///
    /// # Errors
    /// Those of `emit`.
    pub fn packet(&mut self, leg: u8, at: Tai, octets: &[u8], emit: Emit<'_>) -> Result<()> {
        self.let_go(at, emit)?;
        self.last = at;
        let sequence = octets.get(2..4).map_or(0, |o| u16::from_be_bytes([o[0], o[1]]));
        let size = u16::try_from(octets.len()).unwrap_or(u16::MAX);
        let fate = self.faults.decide(leg, at, size, sequence);
        self.counters.add(&fate);
        self.work.clear();
        self.work.extend_from_slice(octets);
        if fate.alters() && fate.copies().next().is_some() {
            self.counters.corrupted += u64::from(self.faults.alter(&fate, leg, &mut self.work).corrupted);
        }
        for hold in fate.copies() {
            let due = match hold {
                Hold::No => {
                    self.counters.delivered += 1;
                    emit(leg, at, &self.work)?;
                    continue;
                }
                Hold::Packets(n) => Due::Packet(fate.index + u64::from(n)),
                Hold::Time(ns) => Due::Time(Tai(at.0.saturating_add(ns))),
            };
            let mut copy = self.spare.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(&self.work);
            self.counters.held += 1;
            if let Some((leg, early)) = self.held.push(leg, due, copy) {
                self.counters.hurried += 1;
                self.emit(leg, at, early, emit)?;
            }
        }
        while let Some(copy) = self.held.due_behind(leg, fate.index) {
            self.emit(leg, at, copy, emit)?;
        }
        Ok(())
    }

    /// Emits what was delayed until `now` or before.
    ///
    /// # Errors
    /// Those of `emit`.
    pub fn let_go(&mut self, now: Tai, emit: Emit<'_>) -> Result<()> {
        while let Some((leg, due, copy)) = self.held.due_at(now) {
            self.emit(leg, due, copy, emit)?;
        }
        Ok(())
    }

    /// No packet comes any more: emits all that is held; what waits for packets leaves now, what waits for a time then.
    ///
    /// # Errors
    /// Those of `emit`.
    pub fn finish(&mut self, emit: Emit<'_>) -> Result<()> {
        for leg in 0..=u8::MAX {
            while let Some(copy) = self.held.due_behind(leg, u64::MAX) {
                self.counters.hurried += 1;
                self.emit(leg, self.last, copy, emit)?;
            }
        }
        self.let_go(Tai(u64::MAX), emit)
    }

    fn emit(&mut self, leg: u8, at: Tai, copy: Vec<u8>, emit: Emit<'_>) -> Result<()> {
        self.counters.delivered += 1;
        emit(leg, at, &copy)?;
        if self.spare.len() < HELD_AT_MOST {
            self.spare.push(copy);
        }
        Ok(())
    }
}

/// Packets that leave together by one leg.
#[derive(Debug, Default)]
struct Batch {
    octets: Vec<u8>,
    places: Vec<Range<usize>>,
}

impl Packets for Batch {
    fn count(&self) -> usize {
        self.places.len()
    }
    fn pieces<'a>(&'a self, index: usize, give: &mut dyn FnMut(&'a [u8])) {
        if let Some(place) = self.places.get(index) {
            give(self.octets.get(place.clone()).unwrap_or_default());
        }
    }
}

/// Delayed packets whose times lie within this leave together, at its end.
const TOGETHER: Duration = Duration::from_micros(100);

/// Faults between a sender that works in real time and its sockets.
#[derive(Debug)]
pub(super) struct Between {
    impaired: Impaired,
    /// By leg.
    batches: Vec<Batch>,
    /// Legs whose packets count as sent in the report.
    counted: usize,
}

impl Between {
    pub fn new(plan: &FaultPlan, extended: bool, legs: usize, counted: usize) -> Self {
        let batches = (0..legs).map(|_| Batch::default()).collect();
        Between { impaired: Impaired::new(plan, extended), batches, counted }
    }

    pub const fn counters(&self) -> FaultCounters {
        self.impaired.counters()
    }

    /// A packet that was to leave by `leg` at `at`.
    pub fn packet(&mut self, leg: u8, at: Tai, octets: &[u8]) -> Result<()> {
        let batches = &mut self.batches;
        self.impaired.packet(leg, at, octets, &mut |leg, _, octets| collect(batches, leg, octets))
    }

    /// Sends what leaves now.
    pub fn post(&mut self, gather: &mut Gather, outlets: &[Outlet], report: &mut Report) -> Result<()> {
        for (leg, (batch, outlet)) in self.batches.iter_mut().zip(outlets).enumerate() {
            if batch.places.is_empty() {
                continue;
            }
            let (packets, octets) = report.send_by(gather, leg, outlet, batch)?;
            if leg < self.counted {
                report.packets += packets;
                report.octets += octets;
            }
            batch.octets.clear();
            batch.places.clear();
        }
        Ok(())
    }

    /// Sends what was delayed, each at its time, as far as that lies before `until`.
    pub fn post_until(
        &mut self,
        until: Tai,
        clock: &Clock,
        gather: &mut Gather,
        outlets: &[Outlet],
        report: &mut Report,
        stop: &AtomicBool,
    ) -> Result<()> {
        while let Some(at) = self.impaired.next_time().filter(|at| *at < until && !stop.load(Ordering::Relaxed)) {
            let now = clock.wait((at + TOGETHER).min(until));
            let batches = &mut self.batches;
            // A signal may have ended the wait.
            self.impaired.let_go(now.max(at).min(until), &mut |leg, _, octets| collect(batches, leg, octets))?;
            self.post(gather, outlets, report)?;
        }
        Ok(())
    }

    /// Sends all that is held: what waits for a time then, but at once after a stop.
    pub fn finish(
        &mut self,
        clock: &Clock,
        gather: &mut Gather,
        outlets: &[Outlet],
        report: &mut Report,
        stop: &AtomicBool,
    ) -> Result<()> {
        self.post_until(Tai(u64::MAX), clock, gather, outlets, report, stop)?;
        let batches = &mut self.batches;
        self.impaired.finish(&mut |leg, _, octets| collect(batches, leg, octets))?;
        self.post(gather, outlets, report)?;
        report.faults = Some(self.counters());
        Ok(())
    }
}

fn collect(batches: &mut [Batch], leg: u8, octets: &[u8]) -> Result<()> {
    if let Some(batch) = batches.get_mut(usize::from(leg)) {
        let begin = batch.octets.len();
        batch.octets.extend_from_slice(octets);
        batch.places.push(begin..batch.octets.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(number: u16) -> Vec<u8> {
        let mut octets = crate::wire::rtp::emit(false, 96, number, 1000, 7).to_vec();
        octets.extend_from_slice(&[0; 28]);
        octets
    }

    /// What leaves of `count` packets, one each microsecond on each of two legs: leg, time in us, sequence number.
    fn run(plan: &FaultPlan, count: u16) -> (Vec<(u8, u64, u16)>, FaultCounters) {
        let mut impaired = Impaired::new(plan, true);
        let mut out = Vec::new();
        let mut emit = |leg, at: Tai, o: &[u8]| {
            out.push((leg, at.0 / 1000, u16::from_be_bytes([o[2], o[3]])));
            Ok(())
        };
        for number in 0..count {
            for leg in 0..2 {
                impaired.packet(leg, Tai(u64::from(number) * 1000), &packet(number), &mut emit).unwrap();
            }
        }
        impaired.finish(&mut emit).unwrap();
        assert!(impaired.held.is_empty());
        (out, impaired.counters())
    }

    #[test]
    fn delayed_packets_leave_at_their_time_and_in_its_order() {
        let plan = FaultPlan::from_toml("p", "[[delay]]\nby = '1500ns'\npackets = [1]\nleg = 1").unwrap();
        let (out, counters) = run(&plan, 4);
        assert_eq!(out, [(0, 0, 0), (1, 0, 0), (0, 1, 1), (0, 2, 2), (1, 2, 2), (1, 2, 1), (0, 3, 3), (1, 3, 3)]);
        assert_eq!(counters, FaultCounters { seen: 8, delivered: 8, held: 1, ..FaultCounters::default() });
    }

    #[test]
    fn overtaken_packets_leave_behind_those_of_their_leg() {
        let plan = "delay=2,leg=0".parse().unwrap();
        let (out, counters) = run(&plan, 3);
        assert_eq!(out, [(1, 0, 0), (1, 1, 1), (0, 2, 0), (1, 2, 2), (0, 2, 1), (0, 2, 2)]);
        assert_eq!((counters.held, counters.hurried), (3, 2));
    }

    #[test]
    fn a_restart_comes_on_both_legs_with_the_same_packet() {
        let plan = FaultPlan::from_toml("p", "seed = 3\n[[restart]]\nfrom = 5").unwrap();
        let (out, counters) = run(&plan, 8);
        assert_eq!(counters.restarts, 1);
        let legs = [0, 1].map(|leg| out.iter().filter(|o| o.0 == leg).map(|o| o.2).collect::<Vec<_>>());
        assert_eq!(legs[0], legs[1]);
        assert_eq!(legs[0][..5], [0, 1, 2, 3, 4]);
        assert_eq!(legs[0][6].wrapping_sub(legs[0][5]), 1);
        assert_ne!(legs[0][5], 5);
    }

    proptest! {
        #[test]
        fn what_was_done_is_what_is_counted(seed in 0..1_u64 << 63, count in 1_u16..400, depth in 1_u32..40, queue in 0_u32..3000) {
            let text = format!(
                "seed = {seed}\n[[loss]]\nchance = '1/9'\nburst = 3\n[[kill]]\nleg = 1\nfrom = 20\nuntil = 40\n\
                 [[duplicate]]\nchance = '1/7'\nwithin = {depth}\n[[reorder]]\ndepth = {depth}\n\
                 [[rate]]\nbits = '300Mb/s'\nbucket = 400\nqueue = {queue}\n[[delay]]\nby = '3us'\njitter = '9us'\nchance = '1/3'"
            );
            let plan = FaultPlan::from_toml("p", &text).unwrap();
            let (out, c) = run(&plan, count);
            prop_assert_eq!(c.seen, 2 * u64::from(count));
            prop_assert_eq!(c.delivered, out.len() as u64);
            prop_assert_eq!(c.seen + c.duplicated, c.delivered + c.removed);
            prop_assert_eq!(c.removed, c.lost + c.killed + c.limited + c.torn);
            prop_assert!(out.is_sorted_by_key(|o| o.1), "in order of time");
            prop_assert_eq!(run(&plan, count), (out, c), "same seed, same result");
        }
    }
}
