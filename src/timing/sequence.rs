//! Sequence numbers of one or two legs: what is lost on each and on both, counted when nothing can come any more
//! (RFC 3550 appendix A.1, ST 2022-7:2019).

use super::Packet;
use super::measure::{Series, Stat};
use crate::stats::Skew;
use crate::time::Tai;
use serde::Serialize;

/// Legs of a flow at most.
pub const MAX_LEGS: usize = 8;
/// Sequence numbers that are remembered: of one leg, and of several, where the skew is bridged.
const ONE: usize = 1 << 14;
const SEVERAL: usize = 1 << 20;
/// Sequence numbers that share an arrival in [`Window::times`].
const RUN: usize = 64;
/// Packets that are late in a row before the sender is taken to have started anew.
const PATIENCE: u32 = 64;
/// The largest skew that ST 2022-7 has a class for (C, below 270 Mb/s).
const LARGEST_SKEW_NS: i64 = 450_000_000;
/// Gaps that are kept with their places.
const GAPS: usize = 512;

/// What one leg brought: `sent = received + lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LegCount {
    /// Packets of the flow, each counted once.
    pub received: u64,
    /// Packets that did not come by this leg.
    pub lost: u64,
    /// Further copies by this leg.
    pub duplicate: u64,
    /// Packets that came after one with a higher number.
    pub reordered: u64,
    /// Packets that came when they were given up.
    pub late: u64,
    /// Arrival minus that of the first copy, of other legs' packets.
    pub skew: Skew,
}

/// Packets that are missing in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// When the first packet behind it came, on the clock of the arrivals.
    pub at: Tai,
    /// Its first sequence number.
    pub first: u32,
    /// Packets.
    pub packets: u64,
}

/// What a packet is to its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// New on its leg; the number is its sequence number without wrap.
    New(i64),
    /// A copy that the same leg brought before.
    Duplicate,
    /// Came when it had been given up.
    Late,
}

/// A packet's number so far ahead that the next one has to confirm it.
#[derive(Clone, Copy, Debug)]
struct Jump {
    number: i64,
    leg: usize,
}

/// What is kept of a leg besides its counts.
#[derive(Clone, Debug)]
struct Leg {
    count: LegCount,
    /// Lowest and highest number that it brought since the sender began.
    span: Option<(i64, i64)>,
    last: Tai,
    losses: Series,
}

/// The sequence numbers of a flow.
#[derive(Clone, Debug)]
pub struct Window {
    legs: Vec<Leg>,
    /// Bit n of a number's entry: leg n brought it. A power of two of them.
    seen: Vec<u8>,
    /// Arrival of the first packet of each run of numbers, to place losses in time; sampled copies for the skew.
    times: Vec<Tai>,
    /// The lowest number of which something is remembered, the first one of all, and the one behind the highest.
    tail: i64,
    first: i64,
    head: Option<i64>,
    /// The extension moves with the low half.
    extended: bool,
    ssrc: u32,
    late_in_a_row: u32,
    jump: Option<Jump>,
    received: u64,
    lost: u64,
    restarts: u64,
    open_gap: Option<Gap>,
    gaps: Vec<Gap>,
    more_gaps: u64,
    losses: Series,
}

impl Window {
    /// Of a flow with so many legs; all memory it ever needs.
    pub fn new(legs: usize) -> Self {
        let legs = legs.clamp(1, MAX_LEGS);
        let numbers = if legs == 1 { ONE } else { SEVERAL };
        let losses = Series::new(1_000_000);
        let leg = Leg { count: LegCount::default(), span: None, last: Tai(0), losses: losses.clone() };
        Window {
            legs: vec![leg; legs],
            seen: vec![0; numbers],
            times: vec![Tai(0); numbers / RUN],
            tail: 0,
            first: 0,
            head: None,
            extended: true,
            ssrc: 0,
            late_in_a_row: 0,
            jump: None,
            received: 0,
            lost: 0,
            restarts: 0,
            open_gap: None,
            gaps: Vec::with_capacity(GAPS),
            more_gaps: 0,
            losses,
        }
    }

    /// A packet of the flow. Legs beyond those the window was made for count as the last one.
    #[inline]
    pub fn push(&mut self, p: &Packet) -> Fate {
        let leg = usize::from(p.leg).min(self.legs.len() - 1);
        if self.head.is_none() || p.ssrc != self.ssrc {
            self.restart(p);
        }
        let number = self.unwrap(p);
        let head = self.head.unwrap_or(number);
        if number >= head {
            if number - head >= self.reach() && !self.confirmed(number, leg, p.arrival) {
                return Fate::Late;
            }
            self.advance(number, p.arrival);
        } else if number < self.tail {
            return self.too_late(number, leg, p);
        }
        self.jump = None;
        self.late_in_a_row = 0;
        self.take(number, leg, p.arrival)
    }

    fn take(&mut self, number: i64, leg: usize, arrival: Tai) -> Fate {
        let at = self.place(number);
        let (entry, bit, leg) = (&mut self.seen[at], 1u8 << leg, &mut self.legs[leg]);
        if *entry & bit != 0 {
            leg.count.duplicate += 1;
            return Fate::Duplicate;
        }
        if *entry == 0 {
            self.received += 1;
        } else if at.is_multiple_of(RUN) {
            leg.count.skew.add(arrival.since(self.times[at / RUN]));
        }
        *entry |= bit;
        leg.count.received += 1;
        leg.last = leg.last.max(arrival);
        let (low, high) = leg.span.unwrap_or((number, number));
        leg.count.reordered += u64::from(number < high);
        leg.span = Some((low.min(number), high.max(number)));
        Fate::New(number)
    }

    /// The flow has ended: what is still missing is lost. A leg that lagged behind when the capture ended, by no more than
    /// the largest skew of ST 2022-7, has not lost what it did not bring any more.
    pub fn finish(&mut self) {
        let Some(head) = self.head else { return };
        let end = self.legs.iter().map(|l| l.last).max().unwrap_or_default();
        for leg in &mut self.legs {
            if let Some((_, high)) = &mut leg.span
                && end.since(leg.last) > LARGEST_SKEW_NS
            {
                *high = head;
            }
        }
        self.retire(head);
        self.close_gap();
    }

    /// Counts of a leg.
    pub fn leg(&self, leg: usize) -> LegCount {
        self.legs.get(leg).map(|l| l.count).unwrap_or_default()
    }
    /// Packets that came by any leg, each counted once.
    pub fn received(&self) -> u64 {
        self.received
    }
    /// Packets that no leg brought.
    pub fn lost(&self) -> u64 {
        self.lost
    }
    /// Times that the sender started anew.
    pub fn restarts(&self) -> u64 {
        self.restarts.saturating_sub(1)
    }
    /// Where packets are missing on all legs: the first gaps, and how many more there are.
    pub fn gaps(&self) -> (&[Gap], u64) {
        (&self.gaps, self.more_gaps)
    }
    /// Packets over time that no leg brought.
    pub fn losses(&self) -> &Series {
        &self.losses
    }
    /// Packets over time that a leg did not bring.
    pub fn leg_losses(&self, leg: usize) -> Option<&Series> {
        self.legs.get(leg).map(|l| &l.losses)
    }

    /// Numbers that are remembered: a run less than there is room for, as a run's arrival is that of one of them.
    fn reach(&self) -> i64 {
        (self.seen.len() - RUN) as i64
    }

    fn place(&self, number: i64) -> usize {
        number as usize & (self.seen.len() - 1)
    }

    /// The number without wrap. The extension counts while it moves as RFC 4175 has it: some senders leave it 0.
    fn unwrap(&mut self, p: &Packet) -> i64 {
        let Some(head) = self.head else { return 0 };
        let near = head + i64::from((p.sequence.wrapping_sub(head as u16)) as i16);
        let Some(high) = p.extended.filter(|_| self.extended) else { return near };
        let whole = u32::from(high) << 16 | u32::from(p.sequence);
        if near as u32 == whole {
            return near;
        }
        if ((head - 1) >> 16) as u16 == high && (near >> 16) as u16 != high {
            // The low half has wrapped and the extension has not moved.
            self.extended = false;
            return near;
        }
        head + i64::from(whole.wrapping_sub(head as u32) as i32)
    }

    fn restart(&mut self, p: &Packet) {
        if let Some(head) = self.head {
            self.retire(head);
            self.close_gap();
        }
        self.restarts += 1;
        self.late_in_a_row = 0;
        self.ssrc = p.ssrc;
        // Beyond all numbers of before, so that they never meet; the low 32 bits are the packet's.
        let rounds = (self.head.unwrap_or(0) >> 32) + 1;
        let number = (rounds << 32) + (i64::from(p.extended.unwrap_or(0)) << 16 | i64::from(p.sequence));
        self.seen.fill(0);
        for leg in &mut self.legs {
            leg.span = None;
        }
        let at = self.place(number);
        self.times[at / RUN] = p.arrival;
        (self.tail, self.first, self.head) = (number, number, Some(number));
    }

    /// A number beyond the window counts when the next one follows it: one damaged header is no loss of millions.
    fn confirmed(&mut self, number: i64, leg: usize, arrival: Tai) -> bool {
        match self.jump.replace(Jump { number, leg }) {
            Some(jump) if (1..=64).contains(&(number - jump.number)) => {
                self.advance(jump.number, arrival);
                self.take(jump.number, jump.leg, arrival);
                true
            }
            _ => false,
        }
    }

    fn too_late(&mut self, number: i64, leg: usize, p: &Packet) -> Fate {
        // Another leg may begin with older packets than the first one.
        if number < self.first && self.legs.len() > 1 {
            return Fate::Late;
        }
        self.legs[leg].count.late += 1;
        self.late_in_a_row += 1;
        if self.late_in_a_row >= PATIENCE {
            self.restart(p);
        }
        Fate::Late
    }

    /// Makes `number` the highest; what falls out of the window is counted.
    fn advance(&mut self, number: i64, now: Tai) {
        let window = self.reach();
        let head = self.head.unwrap_or(number);
        let end = number + 1;
        self.retire((end - window).min(head));
        if end - window > head {
            // Numbers that were never in the window.
            self.missing_run(head, end - window - head, now);
            self.tail = end - window;
        }
        for n in head.max(end - window)..end {
            let at = self.place(n);
            if at.is_multiple_of(RUN) {
                self.times[at / RUN] = now;
            }
        }
        self.head = Some(end);
    }

    /// Counts what is missing before `until`.
    fn retire(&mut self, until: i64) {
        let all = ((1u16 << self.legs.len()) - 1) as u8;
        while self.tail < until {
            let at = self.place(self.tail);
            let entry = std::mem::take(&mut self.seen[at]);
            if entry == all {
                self.close_gap();
            } else {
                self.missing(entry, self.times[at / RUN]);
            }
            self.tail += 1;
        }
    }

    fn missing(&mut self, entry: u8, at: Tai) {
        let number = self.tail;
        let one = Stat::of(1);
        for (n, leg) in self.legs.iter_mut().enumerate() {
            // Before its first packet a leg has not begun, behind its last one it may only lag.
            if entry & (1 << n) == 0 && leg.span.is_some_and(|(low, high)| (low..=high).contains(&number)) {
                leg.count.lost += 1;
                leg.losses.add(at, &one);
            }
        }
        if entry != 0 {
            self.close_gap();
            return;
        }
        self.lost += 1;
        self.losses.add(at, &one);
        match &mut self.open_gap {
            Some(gap) => gap.packets += 1,
            None => self.open_gap = Some(Gap { at, first: number as u32, packets: 1 }),
        }
    }

    fn missing_run(&mut self, first: i64, packets: i64, at: Tai) {
        let run = Stat::of(packets);
        let packets = packets.max(0) as u64;
        self.lost += packets;
        self.losses.add(at, &run);
        for leg in self.legs.iter_mut().filter(|l| l.span.is_some()) {
            leg.count.lost += packets;
            leg.losses.add(at, &run);
        }
        match &mut self.open_gap {
            Some(gap) => gap.packets += packets,
            None => self.open_gap = Some(Gap { at, first: first as u32, packets }),
        }
    }

    fn close_gap(&mut self) {
        let Some(gap) = self.open_gap.take() else { return };
        if self.gaps.len() < GAPS {
            self.gaps.push(gap);
        } else {
            self.more_gaps += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(n: u32, leg: u8, at: u64) -> Packet {
        let (sequence, extended) = (n as u16, Some((n >> 16) as u16));
        let (marker, second) = (false, false);
        Packet { arrival: Tai(at), timestamp: 0, sequence, extended, ssrc: 7, marker, second, leg, ancillary: None }
    }

    #[test]
    fn losses_are_placed() {
        let mut w = Window::new(1);
        for n in (0..200_000u32).filter(|n| !(70_000..70_010).contains(n) && *n != 131_072) {
            w.push(&packet(n, 0, u64::from(n) * 1000));
        }
        w.finish();
        let (gaps, more) = w.gaps();
        assert_eq!((w.received(), w.lost(), w.leg(0).lost, more), (199_989, 11, 11, 0));
        assert_eq!(gaps.iter().map(|g| (g.first, g.packets)).collect::<Vec<_>>(), [(70_000, 10), (131_072, 1)]);
        // To a run of 64 packets.
        assert!((69_936_000..=70_016_000).contains(&gaps[0].at.0), "{:?}", gaps[0]);
        assert_eq!(w.losses().buckets().iter().map(Stat::sum).sum::<i128>(), 11);
    }

    #[test]
    fn a_jump_of_millions_counts_when_it_is_confirmed() {
        let mut w = Window::new(1);
        for n in [10, 11, 12, 5_000_000, 13, 14] {
            w.push(&packet(n, 0, 1));
        }
        assert_eq!((w.received(), w.lost()), (5, 0), "a damaged header");
        for n in [5_000_000, 5_000_001, 5_000_002] {
            w.push(&packet(n, 0, 2));
        }
        w.finish();
        assert_eq!((w.received(), w.lost()), (8, 5_000_000 - 15));
    }

    #[test]
    fn an_extension_that_stays_zero_is_not_believed() {
        let mut w = Window::new(1);
        for n in 65_000..200_000u32 {
            w.push(&Packet { extended: Some(0), ..packet(n, 0, 1) });
        }
        w.finish();
        assert_eq!((w.received(), w.lost(), w.restarts()), (135_000, 0, 0));
    }

    #[test]
    fn a_sender_that_starts_anew_loses_nothing() {
        let mut w = Window::new(1);
        (90_000..100_000).for_each(|n| {
            w.push(&packet(n, 0, 1));
        });
        (0..1000).for_each(|n| {
            w.push(&Packet { ssrc: 8, ..packet(n, 0, 1) });
        });
        assert_eq!((w.lost(), w.restarts()), (0, 1));
        // With the same SSRC the first few are late, and then it is believed.
        (30_000..60_000).for_each(|n| {
            w.push(&Packet { ssrc: 9, ..packet(n, 0, 1) });
        });
        (35_000..35_200).for_each(|n| {
            w.push(&Packet { ssrc: 9, ..packet(n, 0, 1) });
        });
        assert_eq!((w.lost(), w.restarts(), w.leg(0).late), (0, 3, u64::from(PATIENCE)));
    }

    #[test]
    fn two_legs() {
        let mut w = Window::new(2);
        // The second leg begins five packets earlier in the numbers, 50 later in time, and lacks every tenth.
        let mut packets: Vec<Packet> = (1000..50_000).map(|n| packet(n, 0, u64::from(n) * 1000)).collect();
        packets.retain(|p| p.sequence != 4000 && p.sequence != 5000);
        packets.extend((995..49_950).filter(|n| n % 10 != 0).map(|n| packet(n, 1, u64::from(n) * 1000 + 50_000)));
        packets.sort_by_key(|p| p.arrival);
        packets.iter().for_each(|p| {
            w.push(p);
        });
        w.finish();
        let (a, b) = (w.leg(0), w.leg(1));
        assert_eq!((a.received, a.lost, w.lost(), w.received()), (48_998, 2, 2, 48_998));
        assert_eq!((b.lost, b.late, b.duplicate), (4894, 0, 0), "1010, 1020 ... 49940");
        assert_eq!((b.skew.min_ns, b.skew.max_ns, a.skew.samples), (50_000, 50_000, 0));
    }

    proptest! {
        /// Against a set of numbers.
        #[test]
        fn counts_agree_with_a_set(begin: u32, order in prop::collection::vec((0u32..200, 0u8..2), 1..400), wide: bool) {
            let mut w = Window::new(2);
            let mut seen = std::collections::HashMap::<u32, u8>::new();
            let mut duplicates = 0u64;
            let lowest = order[0].0;
            for (k, leg) in order {
                let mut p = packet(begin.wrapping_add(k), leg, 1);
                p.extended = p.extended.filter(|_| wide);
                w.push(&p);
                if k < lowest {
                    continue;
                }
                let entry = seen.entry(k).or_default();
                duplicates += u64::from(*entry & (1 << leg) != 0);
                *entry |= 1 << leg;
            }
            w.finish();
            let highest = seen.keys().max().copied().unwrap();
            prop_assert_eq!(w.received(), seen.len() as u64);
            prop_assert_eq!(w.lost(), u64::from(highest - lowest) + 1 - seen.len() as u64);
            prop_assert_eq!(w.leg(0).duplicate + w.leg(1).duplicate, duplicates);
        }
    }
}
