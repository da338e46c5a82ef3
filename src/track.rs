//! The sequence of one flow: which packet is new, reordered, a copy, late, or the first of a sender that started anew.
//!
//! Numbers are 32 bits long (RFC 4175, extended sequence number). Senders that leave the extension at zero, or move it a
//! little before or after the wrap of the low half, are followed by their low 16 bits (RFC 3550, A.1).
//!
//! RFC 3550 suspects a jump of 3000 packets; at ST 2110-20 rates that is 3 ms. Here a jump is loss when the RTP timestamp
//! and the arrival agree with it, else the packet is taken for the first of a new sequence *on trial*: the old state is
//! kept, and when the old sequence goes on, the intruder was a stray. Likewise what lies behind is a late packet when its
//! timestamp and arrival agree with that. A recording that is played in a loop with its numbers begins anew each time.

mod line;
mod numbers;

pub(crate) use self::line::Line;
pub(crate) use self::numbers::Numbers;
use crate::stats::{PacketCounters, Reason};
use crate::time::Tai;

/// What the headers of a packet say about its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Synchronisation source.
    pub ssrc: u32,
    /// Extended sequence number above, RTP sequence number below.
    pub sequence: u32,
    /// RTP timestamp.
    pub timestamp: u32,
    /// When it came.
    pub arrival: Tai,
}

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// With the highest number so far; those between were not seen (yet).
    New,
    /// After one with a higher number, and not seen before.
    Reordered,
    /// Seen before.
    Duplicate,
    /// So old that it has been counted as lost.
    Late,
    /// The first of a new sequence, on trial.
    Restart {
        /// Another trial was on; its packets were strays.
        aborted: bool,
    },
    /// New in the old sequence: what came on trial were strays.
    Returned,
    /// Of the old sequence, behind its end, while another is on trial.
    Straggler,
    /// Of another sender; counted, not to be used.
    Foreign,
}

/// Packets that a window of sequence numbers holds by default: more than 10 ms of 2160p59.94, the skew of class A of
/// ST 2022-7.
pub const WINDOW: usize = 16_384;

/// Packets of a new sequence after which it is no longer on trial.
const CONFIRM: u32 = 64;
/// Packets of a trial after which its sender, when the old one comes back, is known as a second sender.
const STRANGER: u32 = 8;
/// When an old sequence is said to go on, its timestamps have moved like its arrivals, up to this (half a second).
const IN_TIME: i64 = 45_000;
/// A late packet is younger than this many packets.
const MAX_LATE: i64 = 1 << 20;

/// A sender that has been recognised as not ours.
#[derive(Clone, Copy, Debug)]
struct Stranger {
    ssrc: u32,
    sequence: u32,
    strikes: u32,
}

/// Packets that were there before, one after the other and with nothing new between: a recording that is played again?
#[derive(Clone, Copy, Debug, Default)]
struct Again {
    next: u32,
    count: u32,
    /// Packets that were received then.
    received: u64,
}

/// Follows the sequence of one flow and counts.
#[derive(Clone, Debug)]
pub struct Track {
    line: Line,
    /// The sequence before, while the present one is on trial.
    before: Line,
    /// Packets on trial; 0 when none is.
    trial: u32,
    /// As they were before the trial.
    saved: PacketCounters,
    counters: PacketCounters,
    stranger: Option<Stranger>,
    again: Again,
    /// A sender that was silent for so long may be replaced by a known stranger.
    silence_ns: i64,
    started: bool,
    disorder: u64,
    /// Numbers of sequences that have ended.
    ended: u64,
    last: u64,
}

impl Track {
    /// `window` numbers are remembered (rounded up to a power of two); a sender that is silent for `silence_ns` may be
    /// replaced by one that has been recognised as a second one.
    pub fn new(window: usize, silence_ns: u64) -> Self {
        Track {
            line: Line::new(window, 1),
            before: Line::new(window, 1),
            trial: 0,
            saved: PacketCounters::default(),
            counters: PacketCounters::default(),
            stranger: None,
            again: Again::default(),
            silence_ns: i64::try_from(silence_ns).unwrap_or(i64::MAX),
            started: false,
            disorder: 0,
            ended: 0,
            last: 0,
        }
    }

    /// Judges a packet and counts it.
    #[inline]
    pub fn see(&mut self, s: Sighting) -> Verdict {
        if self.goes_on(s) { Verdict::New } else { self.see_other(s) }
    }

    /// Is it the next packet in order, as nearly all are? Then it is counted; else [`Track::see_other`] judges it.
    #[inline]
    pub(crate) fn goes_on(&mut self, s: Sighting) -> bool {
        if s.sequence == self.line.next && s.ssrc == self.line.ssrc && self.started && self.trial == 0 {
            self.newest(self.line.numbers.highest + 1, s);
            return true;
        }
        false
    }

    /// With the highest number so far.
    #[inline]
    fn newest(&mut self, number: u64, s: Sighting) {
        self.counters.lost += self.line.numbers.advance(number, |_, _| {});
        self.line.note(s);
        self.line.numbers.set(0, number);
        self.counters.received += 1;
        self.last = number;
    }

    /// The first packet of a sequence.
    fn start(&mut self, s: Sighting) {
        self.last = self.line.start(s);
        self.line.numbers.set(0, self.last);
        self.counters.received += 1;
    }

    /// Judges a packet that is not the next one.
    #[cold]
    #[inline(never)]
    pub(crate) fn see_other(&mut self, s: Sighting) -> Verdict {
        if !self.started {
            self.started = true;
            self.start(s);
            return Verdict::New;
        }
        if self.is_stranger(s) {
            return Verdict::Foreign;
        }
        if self.trial > 0 {
            // The old sequence first: when it goes on, the new one was a stray.
            let distance = self.before.distance(s.sequence);
            if s.ssrc == self.before.ssrc && self.before.goes_on(s, distance) && self.before.in_time(s, IN_TIME) {
                self.give_up_trial();
                return match self.follow(s) {
                    Some(Verdict::New) => Verdict::Returned,
                    Some(other) => other,
                    None => self.foreign(),
                };
            }
            // A straggler of the old sequence says nothing about which of the two goes on.
            let comes_late = self.before.late_by(s) <= self.silence_ticks();
            if s.ssrc == self.before.ssrc && comes_late && self.before.holds(s, distance) {
                self.last = self.before.numbers.highest.wrapping_add_signed(distance);
                let seen = self.before.numbers.set(0, self.last);
                for c in [&mut self.counters, &mut self.saved] {
                    c.lost += u64::from(!seen);
                    c.late += u64::from(!seen);
                    c.duplicate += u64::from(seen);
                }
                return Verdict::Straggler;
            }
        }
        if let Some(verdict) = self.follow(s) {
            if self.trial > 0 {
                self.trial += 1;
                if self.trial >= CONFIRM {
                    self.confirm();
                }
            }
            return verdict;
        }
        self.disorder += 1;
        if self.trial > 1 {
            return self.foreign();
        }
        let aborted = self.trial == 1;
        if aborted {
            self.give_up_trial();
        }
        std::mem::swap(&mut self.line, &mut self.before);
        self.saved = self.counters;
        self.trial = 1;
        self.start(s);
        Verdict::Restart { aborted }
    }

    /// The verdict within the present sequence; nothing when the packet does not belong to it.
    fn follow(&mut self, s: Sighting) -> Option<Verdict> {
        let distance = self.line.distance(s.sequence);
        let ticks = self.line.ticks(s.timestamp);
        if s.ssrc != self.line.ssrc {
            // Another source that takes over where the first one stopped.
            if !(1..=16).contains(&distance) || !(0..=9_000).contains(&ticks) {
                return None;
            }
        }
        if distance == 1 || self.line.goes_on(s, distance) {
            self.newest(self.line.numbers.highest.wrapping_add_signed(distance), s);
            self.disorder += u64::from(distance != 1);
            return Some(Verdict::New);
        }
        // Numbers that are not higher come with times that are not later.
        if distance > 0 || distance <= -MAX_LATE || !self.line.is_before(s) {
            return None;
        }
        let number = self.line.numbers.highest.wrapping_add_signed(distance);
        // What is as late as that is no packet of a flow that began earlier than thought.
        let late = self.line.late_by(s) > self.silence_ticks();
        let below = number < self.line.numbers.floor() || late && number < self.line.numbers.first;
        if below || self.line.numbers.set(0, number) {
            if self.is_played_again(s, late) {
                return None;
            }
            self.last = number;
            // A copy, or late: late only while there is loss that no late packet accounts for.
            if below && self.counters.late < self.counters.lost {
                self.counters.late += 1;
                return Some(Verdict::Late);
            }
            self.counters.duplicate += 1;
            return Some(Verdict::Duplicate);
        }
        self.last = number;
        // Reordered at the very beginning: the flow began earlier than thought.
        self.line.numbers.first = self.line.numbers.first.min(number);
        self.disorder += 1;
        self.counters.received += 1;
        self.counters.reordered += 1;
        Some(Verdict::Reordered)
    }

    /// So many packets in a row that were there before, later than any that is delayed: nobody sends these twice but who plays
    /// a recording in a loop.
    fn is_played_again(&mut self, s: Sighting, late: bool) -> bool {
        let received = self.counters.received;
        let goes_on = s.sequence == self.again.next && received == self.again.received;
        let count = if late && goes_on { self.again.count + 1 } else { u32::from(late) };
        self.again = Again { next: s.sequence.wrapping_add(1), count, received };
        count >= CONFIRM && self.trial == 0
    }

    const fn silence_ticks(&self) -> i64 {
        self.silence_ns / 1_000_000 * 90
    }

    /// The packet judged last turned out to be of no use any more: its frame has closed without it.
    pub fn too_late(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Reordered => self.counters.reordered -= 1,
            Verdict::New | Verdict::Returned | Verdict::Restart { .. } => {}
            Verdict::Duplicate | Verdict::Late | Verdict::Straggler | Verdict::Foreign => return,
        }
        self.counters.received -= 1;
        self.counters.lost += 1;
        self.counters.late += 1;
    }

    fn is_stranger(&mut self, s: Sighting) -> bool {
        let Some(stranger) = &mut self.stranger else { return false };
        let near = (s.sequence.wrapping_sub(stranger.sequence) as i32).unsigned_abs() < WINDOW as u32;
        if s.ssrc != stranger.ssrc || stranger.strikes < 2 || (s.ssrc == self.line.ssrc && !near) {
            return false;
        }
        if s.arrival.since(self.line.arrival) > self.silence_ns {
            // Ours has gone: this one may have its place.
            self.stranger = None;
            return false;
        }
        stranger.sequence = s.sequence;
        self.counters.rejected.add(Reason::Ssrc);
        true
    }

    fn foreign(&mut self) -> Verdict {
        self.counters.rejected.add(Reason::Ssrc);
        Verdict::Foreign
    }

    /// The old sequence again; what came on trial is counted as another sender's.
    fn give_up_trial(&mut self) {
        let strikes = match self.stranger {
            Some(known) if known.ssrc == self.line.ssrc => known.strikes,
            _ => 0,
        };
        let strikes = if self.trial >= STRANGER { 2 } else { strikes + 1 };
        self.stranger = Some(Stranger { ssrc: self.line.ssrc, sequence: self.line.next, strikes });
        std::mem::swap(&mut self.line, &mut self.before);
        let rejected = self.counters.rejected;
        self.counters = PacketCounters { rejected, ..self.saved };
        for _ in 0..self.trial {
            self.counters.rejected.add(Reason::Ssrc);
        }
        self.trial = 0;
    }

    fn confirm(&mut self) {
        self.counters.lost += self.before.numbers.pending();
        self.counters.restarts += 1;
        self.ended += self.before.numbers.span();
        self.trial = 0;
    }

    /// No packet will come any more: what is missing is lost. Another sequence may follow.
    pub fn finish(&mut self) {
        match self.trial {
            0 => {}
            1 => self.give_up_trial(),
            _ => self.confirm(),
        }
        if self.started {
            self.counters.lost += self.line.numbers.pending();
            self.ended += self.line.numbers.span();
            self.started = false;
            self.stranger = None;
        }
    }

    /// Is a new sequence on trial?
    #[inline]
    pub fn on_trial(&self) -> bool {
        self.trial > 0
    }

    /// What has been counted so far. Numbers that are missing count as lost once they have left the window.
    pub fn counters(&self) -> &PacketCounters {
        &self.counters
    }

    /// To count what else is wrong with packets of this flow.
    pub fn counters_mut(&mut self) -> &mut PacketCounters {
        &mut self.counters
    }

    /// The unwrapped number of the packet that was judged last.
    #[inline]
    pub fn number(&self) -> u64 {
        self.last
    }

    /// Synchronisation source of the sequence; and of the one before, while this one is on trial.
    pub(crate) const fn ssrc(&self) -> u32 {
        self.line.ssrc
    }
    pub(crate) const fn ssrc_before(&self) -> u32 {
        self.before.ssrc
    }
    /// The highest number of the sequence before, while this one is on trial.
    pub(crate) const fn highest_before(&self) -> u64 {
        self.before.numbers.highest
    }
    /// Arrival of the packet with the highest number.
    pub(crate) const fn last_arrival(&self) -> Tai {
        self.line.arrival
    }

    /// Grows whenever a packet that is no copy is not the next one in order.
    pub fn disorder(&self) -> u64 {
        self.disorder
    }

    /// Numbers that senders have used, as far as can be told: received, lost, and not yet decided.
    pub fn sent(&self) -> u64 {
        let before = if self.trial > 0 { self.before.numbers.span() } else { 0 };
        let line = if self.started { self.line.numbers.span() } else { 0 };
        self.ended + before + line
    }

    /// Numbers of which it is not decided whether they are lost.
    pub fn undecided(&self) -> u64 {
        let before = if self.trial > 0 { self.before.numbers.pending() } else { 0 };
        before + if self.started { self.line.numbers.pending() } else { 0 }
    }

    /// `sent = received + lost`, whatever came.
    ///
    /// # Panics
    /// When that does not hold: a fault of this module.
    pub fn check_invariants(&self) {
        let c = &self.counters;
        assert_eq!(self.sent(), c.received + c.lost + self.undecided(), "{c:?}");
        assert!(c.late <= c.lost, "{c:?}");
        assert!(c.reordered <= c.received, "{c:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(sequence: u32, timestamp: u32) -> Sighting {
        Sighting { ssrc: 1, sequence, timestamp, arrival: Tai(u64::from(timestamp) * 11_111) }
    }
    /// The verdicts on packets of one frame.
    fn judge(track: &mut Track, sequences: &[u32]) -> Vec<Verdict> {
        sequences
            .iter()
            .map(|s| {
                let verdict = track.see(packet(*s, 100));
                track.check_invariants();
                verdict
            })
            .collect()
    }

    #[test]
    fn new_reordered_duplicate_lost() {
        use Verdict::*;
        let mut t = Track::new(128, 0);
        let verdicts = judge(&mut t, &[65_534, 65_535, 65_537, 65_536, 65_536, 65_540, 65_533]);
        assert_eq!(verdicts, [New, New, New, Reordered, Duplicate, New, Reordered]);
        assert_eq!((t.sent(), t.undecided()), (8, 2));
        t.finish();
        t.check_invariants();
        let c = t.counters();
        assert_eq!((c.received, c.lost, c.reordered, c.duplicate, c.late), (6, 2, 2, 1, 0));
    }

    #[test]
    fn what_leaves_the_window_is_lost_and_then_late() {
        let mut t = Track::new(128, 0);
        // Two numbers are missing; after 200 packets they have left the window.
        let mut numbers: Vec<u32> = (0..200).filter(|n| *n != 5 && *n != 9).collect();
        judge(&mut t, &numbers);
        assert_eq!((t.counters().lost, t.undecided()), (2, 0));
        assert_eq!(judge(&mut t, &[5, 9]), [Verdict::Late, Verdict::Late]);
        // Nothing is missing that a third could be.
        assert_eq!(judge(&mut t, &[7]), [Verdict::Duplicate]);
        assert_eq!((t.counters().lost, t.counters().late), (2, 2));
        // A gap of more than the window.
        numbers = (1000..1010).collect();
        judge(&mut t, &numbers);
        t.finish();
        assert_eq!((t.counters().received, t.counters().lost), (208, 802));
    }

    #[test]
    fn too_late_for_its_frame() {
        let mut t = Track::new(128, 0);
        let verdict = judge(&mut t, &[1, 3, 2])[2];
        t.too_late(verdict);
        t.check_invariants();
        assert_eq!(judge(&mut t, &[2]), [Verdict::Duplicate]);
        t.finish();
        let c = t.counters();
        assert_eq!((c.received, c.lost, c.late, c.reordered, c.duplicate), (2, 1, 1, 0, 1));
    }

    #[test]
    fn an_outage_of_a_second_is_loss() {
        let mut t = Track::new(WINDOW, 0);
        t.see(packet(0, 0));
        assert_eq!(t.see(packet(1_000_000, 90_000)), Verdict::New);
        assert_eq!(t.see(packet(1_000_001, 90_000)), Verdict::New);
        t.finish();
        t.check_invariants();
        assert_eq!((t.counters().lost, t.counters().restarts), (999_999, 0));
    }

    #[test]
    fn a_jump_that_time_does_not_bear_out_is_a_restart() {
        let mut t = Track::new(WINDOW, 0);
        t.see(packet(0, 0));
        assert_eq!(t.see(packet(1_000_000, 1501)), Verdict::Restart { aborted: false });
        assert_eq!(t.see(packet(1_000_001, 1501)), Verdict::New);
        assert!(t.on_trial());
        t.finish();
        t.check_invariants();
        assert_eq!((t.counters().received, t.counters().lost, t.counters().restarts), (3, 0, 1));
    }

    #[test]
    fn a_stray_leaves_nothing_behind() {
        let mut t = Track::new(WINDOW, 0);
        judge(&mut t, &[10, 11]);
        assert_eq!(t.see(packet(0x5555_0000, 7)), Verdict::Restart { aborted: false });
        assert_eq!(t.see(packet(0x7777_0000, 9)), Verdict::Restart { aborted: true });
        assert_eq!(t.see(packet(13, 100)), Verdict::Returned);
        assert_eq!(t.see(packet(12, 100)), Verdict::Reordered);
        t.finish();
        t.check_invariants();
        let c = t.counters();
        assert_eq!((c.received, c.lost, c.restarts, c.rejected.get(Reason::Ssrc)), (4, 0, 0, 2));
    }

    #[test]
    fn a_straggler_of_the_old_sequence_does_not_end_a_trial() {
        let mut t = Track::new(WINDOW, 0);
        judge(&mut t, &[10, 12]);
        t.see(packet(0x5555_0000, 7_000));
        assert_eq!(t.see(packet(11, 100)), Verdict::Straggler);
        assert_eq!(t.see(packet(0x5555_0001, 7_000)), Verdict::New);
        t.finish();
        t.check_invariants();
        let c = t.counters();
        assert_eq!((c.received, c.lost, c.late, c.restarts), (4, 1, 1, 1));
    }

    #[test]
    fn sixteen_bits_only() {
        let mut t = Track::new(WINDOW, 0);
        for n in 0..200_000u32 {
            assert_eq!(t.see(packet(n & 0xffff, n / 100)), Verdict::New);
        }
        t.finish();
        assert_eq!((t.counters().received, t.counters().lost, t.counters().restarts), (200_000, 0, 0));
    }

    proptest! {
        #[test]
        fn sent_is_received_and_lost(
            window in 1usize..300,
            steps in prop::collection::vec((-40i64..60, 0u32..40, 0u8..60), 1..400),
        ) {
            let mut t = Track::new(window, 1_000_000);
            let (mut sequence, mut timestamp) = (u32::MAX - 50, 5u32);
            for (step, ticks, odd) in steps {
                let mut s = packet(sequence.wrapping_add_signed(step as i32), timestamp);
                match odd {
                    0 => s.ssrc = 2,
                    1 => s.sequence = s.sequence.rotate_left(9),
                    2 => s.timestamp = s.timestamp.wrapping_sub(1 << 30),
                    _ => {}
                }
                let verdict = t.see(s);
                if odd == 3 {
                    t.too_late(verdict);
                }
                t.check_invariants();
                if step > 0 {
                    (sequence, timestamp) = (sequence.wrapping_add(step as u32), timestamp + ticks);
                }
            }
            t.finish();
            t.check_invariants();
            prop_assert_eq!(t.sent(), t.counters().received + t.counters().lost);
        }
    }
}
