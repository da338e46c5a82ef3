//! One sequence of a sender, as several legs bring it.

use crate::time::Tai;
use crate::track::{Line, Sighting};

/// What is counted of a sequence, for one leg or for all of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) received: u64,
    pub(super) lost: u64,
    pub(super) late: u64,
    pub(super) duplicate: u64,
    pub(super) reordered: u64,
    /// Of the received: not the first copy.
    pub(super) redundant: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: Tally) {
        let Tally { received, lost, late, duplicate, reordered, redundant } = other;
        self.received += received;
        self.lost += lost;
        self.late += late;
        self.duplicate += duplicate;
        self.reordered += reordered;
        self.redundant += redundant;
    }
    /// Packets that came, in time or not. Each late one is lost, and not received.
    pub(super) const fn packets(&self) -> u64 {
        self.received + self.late + self.duplicate
    }
}

/// What a sequence is to the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// None.
    Free,
    /// It may be that of a sender that started anew. Its frames wait, unless nobody but the leg that showed it is there.
    Trial { held: bool },
    /// It is the flow.
    Current,
    /// It was, and legs that lag behind still bring its end until then.
    Former { until: Tai },
    /// That of a second sender.
    Refused,
}

/// Numbers after which the pace is measured anew.
const PACE: u64 = 1 << 14;
/// How far from its pace a sequence may be: the packets of a frame come with one timestamp.
const SLACK: i64 = 1 << 17;

#[derive(Debug)]
pub(super) struct Sequence {
    /// Its name; grows.
    pub(super) id: u64,
    pub(super) state: State,
    /// Arrival of its first packet.
    pub(super) began: Tai,
    /// A map of the numbers for each leg.
    pub(super) line: Line,
    pub(super) of: Vec<Tally>,
    /// After the merge: received, lost, late.
    pub(super) all: Tally,
    /// Numbers and timestamps of two packets before, to know its pace.
    paces: [(u64, u32); 2],
}

impl Sequence {
    pub(super) fn new(numbers: usize, legs: usize) -> Self {
        Sequence {
            id: 0,
            state: State::Free,
            began: Tai(0),
            line: Line::new(numbers, legs),
            of: vec![Tally::default(); legs],
            all: Tally::default(),
            paces: [(0, 0); 2],
        }
    }

    /// Begins with a packet that nobody has seen yet.
    pub(super) fn start(&mut self, id: u64, state: State, s: Sighting) {
        (self.id, self.state, self.began) = (id, state, s.arrival);
        let number = self.line.start(s);
        self.paces = [(number, s.timestamp); 2];
        self.forget();
    }

    /// Becomes the flow after all: what it brought before was not used, and this packet is its first.
    pub(super) fn start_again(&mut self, id: u64, number: u64, s: Sighting) {
        (self.id, self.began) = (id, s.arrival);
        self.line.numbers.start(number);
        self.line.note(s);
        self.paces = [(number, s.timestamp); 2];
        self.forget();
    }

    /// Forgets what was counted.
    pub(super) fn forget(&mut self) {
        self.of.fill(Tally::default());
        self.all = Tally::default();
    }

    /// What was counted, numbers that have not been decided being lost.
    pub(super) fn settle(&mut self) {
        for (leg, tally) in self.of.iter_mut().enumerate() {
            tally.lost += self.line.numbers.pending_in(leg);
        }
        self.all.lost += self.line.numbers.pending();
    }

    /// Nothing waits for numbers below `until` any more: those that a leg has not brought it has lost.
    pub(super) fn retire(&mut self, until: u64) {
        let of = &mut self.of;
        self.all.lost += self.line.numbers.decide(until, |leg, lost| {
            if let Some(tally) = of.get_mut(leg) {
                tally.lost += lost;
            }
        });
    }

    /// The flow began earlier than thought, with this number.
    pub(super) fn began_with(&mut self, number: u64) {
        let numbers = &mut self.line.numbers;
        let before = numbers.first.saturating_sub(number);
        if before == 0 {
            return;
        }
        if numbers.is_decided(number) {
            // So is what lies between.
            self.of.iter_mut().for_each(|tally| tally.lost += before);
            self.all.lost += before;
        }
        numbers.first = number;
    }

    /// A packet with a number above the highest; what it leaves behind is lost where it was not seen.
    #[inline]
    pub(super) fn advance(&mut self, number: u64, s: Sighting) {
        let of = &mut self.of;
        self.all.lost += self.line.numbers.advance(number, |leg, lost| {
            if let Some(tally) = of.get_mut(leg) {
                tally.lost += lost;
            }
        });
        self.line.note(s);
        if number - self.paces[1].0 >= PACE {
            self.paces = [self.paces[1], (number, s.timestamp)];
        }
    }

    /// Signed distance from the highest number to that of a packet by a leg that was not on this sequence, or was away
    /// from it; nothing when it is of another one. `tolerance` is how many ticks that leg may lie behind.
    ///
    /// Senders that count with 16 bits only come round within the window at high rates: then the timestamp says how often
    /// (ST 2022-7:2019 leaves the key open; sequence number and timestamp are one).
    pub(super) fn fit(&self, s: Sighting, tolerance: i64) -> Option<i64> {
        let line = &self.line;
        let ticks = i64::from(line.ticks(s.timestamp));
        if s.ssrc != line.ssrc || !line.in_time(s, tolerance) {
            return None;
        }
        let mut distance = line.distance(s.sequence);
        let ((number, timestamp), highest) = (self.paces[0], line.numbers.highest);
        let (packets, over) =
            (highest.saturating_sub(number) as i64, i64::from(line.timestamp.wrapping_sub(timestamp) as i32));
        if over > 0 && packets > 0 {
            let expected = (i128::from(ticks) * i128::from(packets) / i128::from(over)) as i64;
            if s.sequence >> 16 == 0 && line.next.wrapping_sub(1) >> 16 == 0 {
                let low = i64::from((s.sequence as u16).wrapping_sub(highest as u16) as i16);
                distance = low + ((expected - low + (1 << 15)) >> 16 << 16);
            }
            if (distance - expected).abs() > SLACK + expected.abs() / 4 {
                return None;
            }
        } else if distance.abs() > ticks.abs() * 89 + (1 << 16) {
            return None;
        }
        let same_way = match distance {
            0 => ticks == 0,
            1.. => ticks >= 0,
            _ => ticks <= 0,
        };
        same_way.then_some(distance)
    }

    /// # Panics
    /// When something was counted twice, or not at all.
    pub(super) fn check_invariants(&self) {
        let span = self.line.numbers.span();
        let Tally { received, lost, late, .. } = self.all;
        assert_eq!(span, received + lost + self.line.numbers.pending(), "{self:?}");
        assert!(late <= lost);
        let mut used = 0;
        for (leg, tally) in self.of.iter().enumerate() {
            assert_eq!(span, tally.received + tally.lost + self.line.numbers.pending_in(leg), "leg {leg}: {self:?}");
            assert!(tally.late <= tally.lost && tally.redundant <= tally.received, "leg {leg}: {tally:?}");
            used += tally.received - tally.redundant;
        }
        assert_eq!(used, received);
    }
}
