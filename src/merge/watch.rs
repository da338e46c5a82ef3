//! What is known of a leg besides its sequence.

use super::Settings;
use super::sequence::Tally;
use crate::stats::Skew;
use crate::time::Tai;
use crate::track::Track;

/// Which sequence a leg brings, and what is added to its numbers to have those of the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slot: u8,
    pub(super) delta: i64,
}

#[derive(Debug)]
pub(super) struct Leg {
    pub(super) track: Track,
    pub(super) at: Option<Place>,
    /// Where it was, while what it brings now is on trial.
    pub(super) before: Option<Place>,
    pub(super) trial: bool,
    /// Nothing is to be looked at but whether its packet is the next one.
    pub(super) plain: bool,
    /// The newest arrival of any datagram.
    pub(super) newest: Tai,
    /// The last packet of the sequence that it stands by.
    pub(super) heard: Tai,
    pub(super) last_arrival: Tai,
    /// It has brought a packet, ever.
    pub(super) began: bool,
    pub(super) silent: bool,
    /// It lies behind the window.
    pub(super) beyond: bool,
    /// The second sender that was spoken of.
    pub(super) announced: Option<u32>,
    pub(super) datagrams: u64,
    pub(super) foreign: u64,
    pub(super) restarts: u64,
    /// Of sequences that have ended.
    pub(super) ended: Tally,
    pub(super) skew: Skew,
}

impl Leg {
    pub(super) fn new(settings: &Settings) -> Self {
        Leg {
            track: Track::new(crate::track::WINDOW, settings.silence_ns),
            at: None,
            before: None,
            trial: false,
            plain: false,
            newest: Tai(0),
            heard: Tai(0),
            last_arrival: Tai(0),
            began: false,
            silent: false,
            beyond: false,
            announced: None,
            datagrams: 0,
            foreign: 0,
            restarts: 0,
            ended: Tally::default(),
            skew: Skew::default(),
        }
    }

    /// The sequence that it brings for good.
    pub(super) const fn stands_by(&self) -> Option<Place> {
        if self.trial { self.before } else { self.at }
    }

    /// After a silence: for how long was it silent?
    pub(super) fn is_back(&mut self, now: Tai) -> Option<i64> {
        std::mem::replace(&mut self.silent, false).then(|| now.since(self.last_arrival))
    }
}

/// When the first copies of some packets came.
#[derive(Debug)]
pub(super) struct Firsts(Vec<(u64, Tai)>);

impl Firsts {
    /// One packet in so many; a power of two.
    pub(super) const EVERY: u64 = 64;

    pub(super) fn new(numbers: usize) -> Self {
        Firsts(vec![(0, Tai(0)); Self::count(numbers)])
    }

    const fn count(numbers: usize) -> usize {
        let count = (numbers / Self::EVERY as usize).next_power_of_two();
        if count < 2 { 2 } else { count }
    }

    /// Octets of memory.
    pub(super) const fn octets(numbers: usize) -> usize {
        Self::count(numbers) * size_of::<(u64, Tai)>()
    }

    fn place(&mut self, number: u64) -> Option<&mut (u64, Tai)> {
        let mask = self.0.len() - 1;
        if number & (Self::EVERY - 1) == 0 { self.0.get_mut((number / Self::EVERY) as usize & mask) } else { None }
    }

    /// The first copy of a packet came.
    #[inline]
    pub(super) fn note(&mut self, number: u64, arrival: Tai) {
        if let Some(place) = self.place(number) {
            *place = (number, arrival);
        }
    }

    /// How long after its first copy a packet came; of those that are measured.
    #[inline]
    pub(super) fn skew(&mut self, number: u64, arrival: Tai) -> Option<i64> {
        let place = self.place(number)?;
        (place.0 == number).then(|| arrival.since(place.1))
    }
}
