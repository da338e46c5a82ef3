//! One sequence that is followed: its numbers, and whether a packet belongs to it.

use super::{Numbers, Sighting};
use crate::time::Tai;

/// A jump is believed to be loss when the timestamp moved by less than this (a minute at 90 kHz).
const MAX_OUTAGE: i32 = 60 * 90_000;
/// What is far away in numbers belongs to a sequence when its timestamp moved like its arrival, up to so many ticks (2 s).
const ALIKE: i64 = 2 * 90_000;
/// So few numbers are loss whatever the timestamps say, which may have jumped at that moment.
const FEW: i64 = 256;
/// No essence has more packets a tick of 90 kHz (8 million a second).
const MAX_PER_TICK: i64 = 89;
/// How far from the wrap of the low half an extension may move.
const WRAP_SLACK: u16 = 4096;

/// One sequence that is followed.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) ssrc: u32,
    /// The number after the highest, as the sender writes it when it goes on in order.
    pub(crate) next: u32,
    /// Timestamp and arrival of the highest.
    pub(crate) timestamp: u32,
    pub(crate) arrival: Tai,
    pub(crate) numbers: Numbers,
}

impl Line {
    /// At least `window` numbers are remembered, in `maps` maps.
    pub(crate) fn new(window: usize, maps: usize) -> Self {
        Line { ssrc: 0, next: 0, timestamp: 0, arrival: Tai(0), numbers: Numbers::new(window, maps) }
    }

    /// Begins anew with a packet, and gives its number. Nobody has seen it yet.
    pub(crate) fn start(&mut self, s: Sighting) -> u64 {
        // Far from zero, so that nothing that is subtracted from it underflows.
        let number = 1 << 40 | u64::from(s.sequence);
        self.numbers.start(number);
        self.note(s);
        number
    }

    /// A packet is the highest now.
    #[inline]
    pub(crate) fn note(&mut self, s: Sighting) {
        self.ssrc = s.ssrc;
        self.next = s.sequence.wrapping_add(1);
        self.timestamp = s.timestamp;
        self.arrival = s.arrival;
    }

    /// Signed distance from the highest number to a packet's.
    pub(crate) fn distance(&self, sequence: u32) -> i64 {
        let highest = self.numbers.highest;
        let low = i64::from((sequence as u16).wrapping_sub(highest as u16) as i16);
        let extension = (sequence >> 16) as u16;
        let expected = (highest.wrapping_add_signed(low) >> 16) as u16;
        if extension == expected {
            return low;
        }
        // Did not move at the wrap: never does, or will a little later.
        let last = self.next.wrapping_sub(1);
        if extension == (last >> 16) as u16 {
            return low;
        }
        // Moved a little before the wrap.
        let long = i64::from(sequence.wrapping_sub(highest as u32) as i32);
        let near_wrap = (sequence as u16).wrapping_add(WRAP_SLACK) < 2 * WRAP_SLACK;
        if near_wrap && low.abs() < i64::from(WRAP_SLACK) && (long - low).abs() == 1 << 16 {
            return low;
        }
        long
    }

    /// Ticks from the highest packet's timestamp.
    pub(crate) fn ticks(&self, timestamp: u32) -> i32 {
        timestamp.wrapping_sub(self.timestamp) as i32
    }

    /// Does a packet `distance` numbers ahead belong to this sequence, with loss between?
    pub(crate) fn goes_on(&self, s: Sighting, distance: i64) -> bool {
        let ticks = self.ticks(s.timestamp);
        if distance <= 0 || !(0..MAX_OUTAGE).contains(&ticks) {
            return false;
        }
        let most = (i64::from(ticks) * MAX_PER_TICK + (1 << 16)).max(self.numbers.len() as i64);
        distance <= FEW || distance <= most && self.in_time(s, ALIKE)
    }

    /// Did timestamp and arrival move alike, up to so many ticks?
    pub(crate) fn in_time(&self, s: Sighting, tolerance: i64) -> bool {
        self.late_by(s).saturating_abs() < tolerance
    }

    /// Ticks by which a packet comes later than its timestamp says, beside the highest.
    pub(crate) fn late_by(&self, s: Sighting) -> i64 {
        let elapsed = s.arrival.since(self.arrival) / 1_000_000 * 90;
        elapsed.saturating_sub(i64::from(self.ticks(s.timestamp)))
    }

    /// Is a packet that is not ahead one of before, that comes now? Not one of a recording that is played again.
    pub(crate) fn is_before(&self, s: Sighting) -> bool {
        (-MAX_OUTAGE..=0).contains(&self.ticks(s.timestamp)) && self.in_time(s, ALIKE)
    }

    /// Does the window hold the number of a packet that is not ahead?
    pub(crate) fn holds(&self, s: Sighting, distance: i64) -> bool {
        let numbers = &self.numbers;
        self.is_before(s)
            && distance <= 0
            && numbers.highest.wrapping_add_signed(distance) >= numbers.floor().max(numbers.first)
    }
}
