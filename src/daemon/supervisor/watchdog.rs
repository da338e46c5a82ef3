//! Which receive loops move.

use super::super::unit::AllBeats;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// See above.
#[derive(Debug)]
pub struct Watchdog {
    /// A loop that stands still for so long is stuck.
    stuck: Duration,
    seen: BTreeMap<(String, u64), (u64, Instant)>,
}

impl Watchdog {
    pub fn new(stuck: Duration) -> Self {
        Watchdog { stuck, seen: BTreeMap::new() }
    }

    /// Receivers with one that has stood still for too long. One that has ended does not move, and need not: what comes after it,
    /// such as files that are finished or another flow that is opened, may take its time.
    pub fn look(&mut self, now: Instant, beats: &AllBeats) -> Vec<String> {
        self.seen.retain(|key, _| beats.get(key).is_some_and(|beats| !beats.have_ended()));
        let mut stuck = Vec::new();
        for (key, beats) in beats.iter().filter(|(_, beats)| !beats.have_ended()) {
            let count = beats.count();
            let (before, since) = self.seen.entry(key.clone()).or_insert((count, now));
            if *before != count {
                (*before, *since) = (count, now);
            } else if now.saturating_duration_since(*since) >= self.stuck {
                stuck.push(key.0.clone());
            }
        }
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::Beats;

    #[test]
    fn a_loop_that_stands_still_is_found() {
        let stuck = Duration::from_secs(5);
        let mut watchdog = Watchdog::new(stuck);
        let key = |id: &str| (id.to_owned(), 1);
        let mut beats = BTreeMap::from([(key("a"), Beats::default()), (key("b"), Beats::default())]);
        let begun = Instant::now();
        assert!(watchdog.look(begun, &beats).is_empty());
        assert!(watchdog.look(begun + stuck / 2, &beats).is_empty());
        assert_eq!(watchdog.look(begun + stuck, &beats), ["a", "b"]);
        beats[&key("a")].beat();
        assert_eq!(watchdog.look(begun + stuck, &beats), ["b"]);
        // One that has ended is not stuck, however long nothing takes its place; what does is watched anew.
        beats[&key("b")].end();
        assert!(watchdog.look(begun + stuck, &beats).is_empty());
        beats.insert(key("b"), Beats::default());
        assert!(watchdog.look(begun + stuck * 3 / 2, &beats).is_empty());
        assert_eq!(watchdog.look(begun + stuck * 3, &beats), ["a", "b"]);
        assert!(watchdog.look(begun + stuck * 3, &BTreeMap::new()).is_empty());
    }
}
