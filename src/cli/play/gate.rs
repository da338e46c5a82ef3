//! What stands between the pipelines of a run and its sinks: one flow's frames pass at a time.

use super::sinks::Offers;
use gdmedia::frame::Frame;
use gdmedia::latency::{Media, Probe};
use gdmedia::mem::Space;
use gdmedia::pipeline::{Deliver, Observe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts what is delivered, ends the run after `--frames`, and goes from one flow to the next at a whole frame.
pub struct Gate {
    /// Frames that are delivered at most.
    limit: u64,
    delivered: AtomicU64,
    reached: AtomicBool,
    pub probe: Probe,
    door: Mutex<Door>,
}

/// Whose frames pass. Pipelines are numbered as they are begun.
#[derive(Debug)]
struct Door {
    open: Option<u32>,
    next: Option<Next>,
}

/// A flow that is to follow.
#[derive(Clone, Copy, Debug)]
struct Next {
    line: u32,
    media: Media,
    when: When,
    /// A frame has come that it could begin with.
    came: bool,
}

/// When a flow follows the one before.
#[cfg_attr(not(feature = "daemon"), allow(dead_code, reason = "there is one flow then"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// With its first whole frame.
    Whole,
    /// With any frame.
    Any,
    /// When it is told to: its frames only say that they come.
    Told,
}

impl Door {
    /// May this frame pass? The media of its flow where it is the first one.
    fn admits(&mut self, line: u32, complete: bool) -> (bool, Option<Media>) {
        if self.open == Some(line) {
            return (true, None);
        }
        let Some(next) = self.next.as_mut().filter(|next| next.line == line) else { return (false, None) };
        next.came |= complete || next.when == When::Any;
        if !next.came || next.when == When::Told {
            return (false, None);
        }
        let media = next.media;
        (self.open, self.next) = (Some(line), None);
        (true, Some(media))
    }
}

impl Gate {
    /// Open for the first pipeline, number 0.
    pub fn new(limit: Option<u64>, probe: Probe) -> Self {
        Gate {
            limit: limit.unwrap_or(u64::MAX),
            delivered: 0.into(),
            reached: AtomicBool::new(limit == Some(0)),
            probe,
            door: Mutex::new(Door { open: Some(0), next: None }),
        }
    }

    /// Frames that were delivered.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }
    /// So many have been delivered as there were to be.
    pub fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    /// What pipeline `line` calls when a frame is finished.
    pub fn observe(self: Arc<Self>) -> Observe {
        Box::new(move |f| self.probe.finished(f.number, f.last_arrival, f.at))
    }

    /// What pipeline `line` calls with every frame.
    pub fn deliver<F: Space>(self: Arc<Self>, line: u32, offers: Offers<F>, stop: Arc<AtomicBool>) -> Deliver<F> {
        Box::new(move |frame: Frame<F>, now| {
            // Held until the frame is in the queues: no frame of another flow comes between.
            let mut door = self.lock();
            let (admitted, changed) = door.admits(line, frame.meta().complete);
            let nth = self.delivered.load(Ordering::Relaxed);
            if !admitted || nth >= self.limit {
                return;
            }
            if let Some(media) = changed {
                self.probe.changed(media);
            }
            if let Some(now) = now {
                let meta = frame.meta();
                self.probe.delivered(meta.number, meta.timestamp, meta.first_arrival, meta.last_arrival, now);
            }
            offers.offer(frame, || stop.load(Ordering::Relaxed));
            self.delivered.store(nth + 1, Ordering::Relaxed);
            if nth + 1 >= self.limit {
                self.reached.store(true, Ordering::Relaxed);
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Door> {
        // It is whole at every instant.
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "daemon")]
impl Gate {
    /// Pipeline `line` is to follow.
    pub fn expect(&self, line: u32, media: Media, when: When) {
        self.lock().next = Some(Next { line, media, when, came: false });
    }
    /// No frame passes but those of `line`, whatever they are like.
    pub fn take_over(&self, line: u32, media: Media) {
        let mut door = self.lock();
        if door.open != Some(line) {
            *door = Door { open: None, next: Some(Next { line, media, when: When::Any, came: false }) };
        }
    }
    /// It is not, after all.
    pub fn expect_none(&self) {
        self.lock().next = None;
    }
    /// Frames of `line` pass.
    pub fn is_open(&self, line: u32) -> bool {
        self.lock().open == Some(line)
    }
    /// The one that is to follow has brought a frame that it can begin with.
    pub fn has_come(&self) -> bool {
        self.lock().next.is_some_and(|next| next.came)
    }
    /// No frame passes until another pipeline follows.
    pub fn shut(&self) {
        self.lock().open = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MEDIA: Media = Media { rate: None, clock: None, clock_rate: 90_000 };

    proptest! {
        /// Whatever the order: no frame of the old flow after one of the new, which begins whole.
        #[test]
        fn flows_do_not_mix(frames in prop::collection::vec((0..2u32, any::<bool>()), 1..60), expected in 0..60usize) {
            let mut door = Door { open: Some(0), next: None };
            let mut passed = Vec::new();
            for (n, (line, complete)) in frames.iter().enumerate() {
                if n == expected {
                    door.next = Some(Next { line: 1, media: MEDIA, when: When::Whole, came: false });
                }
                let (admitted, changed) = door.admits(*line, *complete);
                prop_assert_eq!(changed.is_some(), admitted && *line == 1 && !passed.iter().any(|(l, _)| *l == 1));
                if admitted {
                    passed.push((*line, *complete));
                }
            }
            prop_assert!(passed.is_sorted_by_key(|(line, _)| *line));
            prop_assert!(passed.iter().find(|(line, _)| *line == 1).is_none_or(|(_, complete)| *complete));
            let old = frames.iter().take_while(|(line, _)| *line == 0).count();
            prop_assert!(passed.iter().filter(|(line, _)| *line == 0).count() >= old);
        }
    }

    #[test]
    fn a_flow_may_begin_with_any_frame_or_wait_until_it_is_told() {
        let mut door = Door { open: Some(0), next: None };
        let next = |when| Some(Next { line: 1, media: MEDIA, when, came: false });
        door.next = next(When::Told);
        assert!(!door.admits(1, true).0 && door.next.unwrap().came && door.admits(0, false).0);
        door.open = None;
        assert!(!door.admits(0, true).0, "shut");
        door.next = next(When::Any);
        assert!(door.admits(1, false).0 && !door.admits(0, true).0);
        assert!(!door.admits(2, true).0, "nobody expects it");
    }
}
