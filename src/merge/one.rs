//! A flow of one leg: its track says everything.

use super::Settings;
use crate::event::{Queue, What};
use crate::stats::{LegCounters, PacketCounters, Reason};
use crate::time::Tai;
use crate::track::{Sighting, Track, Verdict};

#[derive(Debug)]
pub struct One {
    pub(super) track: Track,
    /// Datagrams that came.
    pub(super) datagrams: u64,
    /// Packets of sequences that go on: what does not go on, or is of nobody, ends no frame however much of it comes.
    passed: u64,
    /// The sequence that is followed: its place, and its name. The other place is that of the one before, while the present
    /// one is on trial.
    pub(super) slot: u8,
    pub(super) ids: [u64; 2],
    next_id: u64,
    /// Frames of this sequence are nobody's.
    pub(super) dropped: Option<u64>,
    pub(super) changed: bool,
    began: bool,
    /// The second sender that was spoken of.
    announced: Option<u32>,
    pub(super) events: Queue,
}

impl One {
    pub(super) fn new(settings: &Settings) -> Self {
        One {
            track: Track::new(settings.numbers, settings.silence_ns),
            datagrams: 0,
            passed: 0,
            slot: 0,
            ids: [0; 2],
            next_id: 1,
            dropped: None,
            changed: false,
            began: false,
            announced: None,
            events: Queue::default(),
        }
    }

    pub(super) const fn id(&self) -> u64 {
        self.ids[(self.slot & 1) as usize]
    }

    #[inline]
    pub(super) fn see(&mut self, s: Sighting) -> Verdict {
        if self.track.goes_on(s) {
            self.passed += 1;
            return Verdict::New;
        }
        let verdict = self.see_other(s);
        self.passed += u64::from(!matches!(verdict, Verdict::Restart { .. } | Verdict::Foreign));
        verdict
    }

    #[cold]
    #[inline(never)]
    fn see_other(&mut self, s: Sighting) -> Verdict {
        let (trial, restarts, from) = (self.track.on_trial(), self.track.counters().restarts, self.track.ssrc());
        let before = if trial { self.track.ssrc_before() } else { from };
        let verdict = self.track.see_other(s);
        if !self.began {
            self.began = true;
            self.events.push(s.arrival, What::LegBegan { leg: 0, ssrc: s.ssrc });
            return verdict;
        }
        let (leg, to) = (0, s.ssrc);
        match verdict {
            Verdict::Restart { aborted } => {
                if aborted {
                    self.dropped = Some(self.id());
                } else {
                    self.slot ^= 1;
                }
                self.ids[usize::from(self.slot & 1)] = self.name();
                self.changed = true;
            }
            Verdict::Returned => {
                self.dropped = Some(self.id());
                self.slot ^= 1;
                self.changed = true;
            }
            Verdict::Foreign if self.announced != Some(s.ssrc) => {
                self.announced = Some(s.ssrc);
                self.events.push(s.arrival, What::SecondSender { leg, ssrc: s.ssrc });
            }
            _ if self.track.counters().restarts != restarts => {
                // One that was known as a second sender took over.
                let switched = self.announced.take_if(|ssrc| *ssrc == to).is_some();
                let from = before;
                let what = if switched { What::Switched { leg, from, to } } else { What::Restarted { leg, from, to } };
                self.events.push(s.arrival, what);
            }
            Verdict::New if !trial && from != to => self.events.push(s.arrival, What::Switched { leg, from, to }),
            _ => {}
        }
        verdict
    }

    fn name(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    pub(super) fn finish(&mut self) {
        self.track.finish();
        self.ids[usize::from(self.slot & 1)] = self.name();
        self.changed = true;
    }

    pub(super) fn counters(&self) -> PacketCounters {
        *self.track.counters()
    }

    pub(super) fn legs(&self) -> LegCounters {
        let c = self.track.counters();
        LegCounters {
            datagrams: self.datagrams,
            received: c.received,
            lost: c.lost,
            late: c.late,
            duplicate: c.duplicate,
            reordered: c.reordered,
            used: c.received,
            redundant: 0,
            restarts: c.restarts,
            foreign: c.rejected.get(Reason::Ssrc),
            last_arrival: self.last_arrival(),
            ..LegCounters::default()
        }
    }

    pub(super) fn last_arrival(&self) -> Option<Tai> {
        self.began.then(|| self.track.last_arrival())
    }

    pub(super) const fn arrives(&mut self, _at: Tai) -> u64 {
        self.datagrams += 1;
        self.passed + 1
    }
}
