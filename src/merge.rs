//! The legs of a flow as one (ST 2022-7): which packet is the first copy, which leg brought what, and which sequence is the
//! flow when a sender starts anew or another one appears.
//!
//! Each leg is followed by itself ([`crate::track`]). What one leg shows, another one may contradict: a sequence that
//! appears on a leg is on trial until the one before has ended on all legs, and refused when that goes on for longer than
//! legs may lie apart.

mod class;
mod one;
mod sequence;
mod several;
mod watch;

pub use class::Class;

use self::one::One;
use self::several::Several;
use crate::event::{Event, Queue, What};
use crate::stats::{LegCounters, PacketCounters};
use crate::time::Tai;
use crate::track::{Numbers, Sighting, Verdict, WINDOW};
use std::time::Duration;

/// Legs of a flow at most. ST 2022-7 speaks of two or more; nobody has more than a few.
pub const MAX_LEGS: u8 = 8;

/// What a merge has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// From 1 to [`MAX_LEGS`].
    pub legs: u8,
    /// Numbers of packets that are remembered.
    pub numbers: usize,
    /// How far legs may lie apart.
    pub window: Duration,
    /// A sender that is silent for so long, in nanoseconds, may be replaced by another one.
    pub silence_ns: u64,
}

impl Settings {
    /// Octets of memory for numbers, of everything that a merge has.
    pub fn octets(&self) -> usize {
        let (legs, map) = (usize::from(self.legs.max(1)), Numbers::map_octets(self.numbers));
        match legs {
            1 => 2 * map,
            _ => {
                let tracks = 2 * legs * Numbers::map_octets(WINDOW);
                several::sequences(legs) * legs * map + watch::Firsts::octets(self.numbers) + tracks
            }
        }
    }
}

/// The legs of a flow.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // There is one of them, and it is looked at for every packet.
pub enum Merge {
    /// There is only one.
    One(One),
    /// There are more.
    Several(Box<Several>),
}

/// A sequence of the flow: the name of its place, which another one may have later, and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Less than [`Merge::places`].
    pub place: u8,
    /// Grows from sequence to sequence.
    pub id: u64,
}

impl Merge {
    /// All memory is taken here.
    pub fn new(settings: Settings) -> Self {
        let settings = Settings { legs: settings.legs.clamp(1, MAX_LEGS), ..settings };
        match settings.legs {
            1 => Merge::One(One::new(&settings)),
            _ => Merge::Several(Box::new(Several::new(&settings))),
        }
    }

    /// A datagram has come by a leg. Gives the clock by which frames wait: the number of packets where there is one leg,
    /// else the arrival, in nanoseconds, up to which every leg that is alive has been looked at.
    #[inline]
    pub fn arrives(&mut self, leg: u8, at: Tai) -> u64 {
        match self {
            Merge::One(one) => one.arrives(at),
            Merge::Several(several) => several.arrives(several.place_of(leg), at),
        }
    }

    /// Judges a packet and counts it. Copies that another leg brought before are duplicates.
    #[inline]
    pub fn see(&mut self, leg: u8, s: Sighting) -> Verdict {
        match self {
            Merge::One(one) => one.see(s),
            Merge::Several(several) => several.see(several.place_of(leg), s),
        }
    }

    /// The packet judged last turned out to be of no use any more: its frame has closed without it.
    pub fn too_late(&mut self, verdict: Verdict) {
        match self {
            Merge::One(one) => one.track.too_late(verdict),
            Merge::Several(several) => several.too_late(),
        }
    }

    /// Frames of a sequence that are over held the numbers below `until`: what a leg has not brought of them it has lost. Nothing
    /// where there is one leg.
    pub fn retire(&mut self, id: u64, until: u64) {
        if let Merge::Several(several) = self {
            several.retire(id, until);
        }
    }

    /// Is the packet judged last of another sequence than the one before it, or has something been decided about
    /// sequences? Then [`Merge::take_change`] and [`Merge::next_dropped`] are to be called.
    #[inline]
    pub fn has_changed(&self) -> bool {
        match self {
            Merge::One(one) => one.changed,
            Merge::Several(several) => several.has_changed(),
        }
    }
    /// The same, once.
    pub fn take_change(&mut self) -> bool {
        match self {
            Merge::One(one) => std::mem::replace(&mut one.changed, false),
            Merge::Several(several) => several.take_change(),
        }
    }
    /// The name of a sequence that was another sender's: its frames are nobody's.
    pub fn next_dropped(&mut self) -> Option<u64> {
        match self {
            Merge::One(one) => one.dropped.take(),
            Merge::Several(several) => several.next_dropped(),
        }
    }

    /// The sequence of the packet judged last.
    pub fn sequence(&self) -> Sequence {
        match self {
            Merge::One(one) => Sequence { place: one.slot, id: one.id() },
            Merge::Several(several) => {
                let (place, id) = several.seen();
                Sequence { place, id }
            }
        }
    }
    /// The place of the sequence that is the flow, whatever is on trial.
    pub fn settled(&self) -> u8 {
        match self {
            Merge::One(one) if one.track.on_trial() => one.slot ^ 1,
            Merge::One(one) => one.slot,
            Merge::Several(several) => several.settled(),
        }
    }
    /// Places of sequences.
    pub fn places(&self) -> usize {
        match self {
            Merge::One(_) => 2,
            Merge::Several(several) => several.sequences(),
        }
    }
    /// Are the frames of this sequence to wait until it is decided whose it is? Only where another leg still brings the one
    /// before.
    pub fn is_held(&self, id: u64) -> bool {
        match self {
            Merge::One(_) => false,
            Merge::Several(several) => several.is_held(id),
        }
    }
    /// Is a sequence on trial, of a flow of one leg?
    pub fn on_trial(&self) -> bool {
        matches!(self, Merge::One(one) if one.track.on_trial())
    }
    /// The unwrapped number of the packet that was judged last.
    pub fn number(&self) -> u64 {
        match self {
            Merge::One(one) => one.track.number(),
            Merge::Several(several) => several.number(),
        }
    }
    /// How many numbers of `from .. to` of a sequence no leg has brought (yet); for one leg none.
    pub fn unseen(&self, id: u64, from: u64, to: u64) -> u64 {
        match self {
            Merge::One(_) => 0,
            Merge::Several(several) => several.unseen(id, from, to),
        }
    }
    /// Grows whenever a packet that is no copy is not the next one in order.
    pub fn disorder(&self) -> u64 {
        match self {
            Merge::One(one) => one.track.disorder(),
            Merge::Several(several) => several.disorder(),
        }
    }

    /// To be called about once a frame, with the time: looks which legs are silent.
    pub fn tick(&mut self, now: Tai) {
        if let Merge::Several(several) = self {
            several.tick(now);
        }
    }

    /// No packet will come any more: what is missing is lost. Another sequence may follow.
    pub fn finish(&mut self) {
        match self {
            Merge::One(one) => one.finish(),
            Merge::Several(several) => several.finish(),
        }
    }

    /// What has been counted after the merge. Numbers that are missing count as lost once they have left the window.
    pub fn counters(&self) -> PacketCounters {
        match self {
            Merge::One(one) => one.counters(),
            Merge::Several(several) => several.counters(),
        }
    }
    /// What has been counted of each leg.
    pub fn legs(&self) -> Vec<LegCounters> {
        match self {
            Merge::One(one) => vec![one.legs()],
            Merge::Several(several) => (0..several.legs.len()).map(|leg| several.leg(leg)).collect(),
        }
    }

    /// Arrival of the last packet of the flow by a leg; none before the first.
    pub fn last_arrival(&self, leg: u8) -> Option<Tai> {
        match self {
            Merge::One(one) => one.last_arrival(),
            Merge::Several(several) => several.last_arrival(several.place_of(leg)),
        }
    }

    /// Something happened.
    pub fn happened(&mut self, at: Tai, what: What) {
        self.queue().push(at, what);
    }
    /// Appends to `out` what has happened since the call before.
    pub fn take_events(&mut self, out: &mut Vec<Event>) {
        self.queue().take(out);
    }
    /// Events that were not kept, because there were too many.
    pub fn missed_events(&self) -> u64 {
        match self {
            Merge::One(one) => one.events.missed(),
            Merge::Several(several) => several.events.missed(),
        }
    }
    fn queue(&mut self) -> &mut Queue {
        match self {
            Merge::One(one) => &mut one.events,
            Merge::Several(several) => &mut several.events,
        }
    }

    /// For tests and fuzzing.
    ///
    /// # Panics
    /// When the state contradicts itself: a fault of this module.
    pub fn check_invariants(&self) {
        match self {
            Merge::One(one) => one.track.check_invariants(),
            Merge::Several(several) => several.check_invariants(),
        }
    }
}
