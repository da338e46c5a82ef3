//! The merge alone against sets of numbers, whatever order packets come in.

use gdmedia::merge::{Merge, Settings};
use gdmedia::time::Tai;
use gdmedia::track::{Sighting, Verdict};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

/// What a leg has brought.
#[derive(Default)]
struct Model {
    next: u32,
    seen: BTreeSet<u32>,
    used: u64,
    duplicates: u64,
    strangers: u64,
}

struct World {
    merge: Merge,
    legs: [Model; 2],
    /// Of any leg.
    all: BTreeSet<u32>,
    first: u32,
    now: u64,
}

impl World {
    fn new(first: u32) -> Self {
        let window = Duration::from_millis(10);
        let merge = Merge::new(Settings { legs: 2, numbers: 4096, window, silence_ns: 33_000_000 });
        let mut world =
            World { merge, legs: Default::default(), all: BTreeSet::new(), first, now: 1_700_000_000_000_000_000 };
        (0..2).for_each(|leg| world.bring_next(leg));
        world
    }

    fn see(&mut self, leg: usize, s: Sighting) -> Verdict {
        self.now += 10_000;
        self.merge.arrives(leg as u8, s.arrival);
        let verdict = self.merge.see(leg as u8, s);
        self.merge.take_change();
        while self.merge.next_dropped().is_some() {}
        self.merge.check_invariants();
        verdict
    }

    fn bring(&mut self, leg: usize, n: u32) {
        let (sequence, timestamp) = (self.first.wrapping_add(n), 5_000u32.wrapping_add(n));
        let newest = self.all.last().is_none_or(|last| n > *last);
        let verdict = self.see(leg, Sighting { ssrc: 7, sequence, timestamp, arrival: Tai(self.now) });
        let expected = match (self.all.insert(n), newest) {
            (false, _) => Verdict::Duplicate,
            (true, true) => Verdict::New,
            (true, false) => Verdict::Reordered,
        };
        assert_eq!(verdict, expected, "packet {n} by leg {leg}");
        let model = &mut self.legs[leg];
        model.used += u64::from(expected != Verdict::Duplicate);
        model.duplicates += u64::from(!model.seen.insert(n));
    }

    fn bring_next(&mut self, leg: usize) {
        let n = self.legs[leg].next;
        self.legs[leg].next += 1;
        self.bring(leg, n);
    }

    fn stranger(&mut self, leg: usize, what: u32) {
        let s = Sighting {
            ssrc: 0x8000_0000 | what,
            sequence: what.wrapping_mul(0x9e37_79b9),
            timestamp: what.wrapping_mul(0x85eb_ca6b),
            arrival: Tai(self.now),
        };
        self.see(leg, s);
        self.legs[leg].strangers += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_each_leg_brought_is_counted(
        first in prop_oneof![any::<u32>(), u32::MAX - 200..=u32::MAX, 65_400u32..65_536],
        steps in prop::collection::vec((0usize..2, 0u32..100, 0u32..8), 1..300),
    ) {
        let mut world = World::new(first);
        for (leg, kind, amount) in steps {
            // Legs lie up to 200 packets apart.
            let leg = if world.legs[leg].next > world.legs[1 - leg].next + 200 { 1 - leg } else { leg };
            let next = world.legs[leg].next;
            match kind {
                0..70 => world.bring_next(leg),
                70..80 => world.legs[leg].next += amount,
                80..88 => {
                    let again = world.legs[leg].seen.iter().rev().nth(amount as usize).copied();
                    again.into_iter().for_each(|n| world.bring(leg, n));
                }
                88..94 => {
                    // The packet after those that come next, and these in the wrong order.
                    for n in (next..next + amount).rev() {
                        world.bring(leg, n);
                    }
                    world.legs[leg].next += amount;
                }
                _ => world.stranger(leg, amount * 977 + next),
            }
        }
        // What was on trial was strays.
        for leg in 0..2 {
            world.legs[leg].next = world.legs.iter().map(|l| l.next).max().unwrap() + 1;
            world.bring_next(leg);
        }
        world.merge.finish();
        world.merge.check_invariants();
        let c = world.merge.counters();
        let sent = u64::from(world.all.last().unwrap() - world.all.first().unwrap() + 1);
        prop_assert_eq!((c.received, c.received + c.lost, c.late, c.restarts), (world.all.len() as u64, sent, 0, 0));
        for (l, model) in world.merge.legs().iter().zip(&world.legs) {
            let received = model.seen.len() as u64;
            prop_assert_eq!((l.received, l.received + l.lost, l.late), (received, sent, 0), "{:?}", l);
            prop_assert_eq!((l.used, l.redundant), (model.used, received - model.used));
            prop_assert_eq!((l.duplicate, l.foreign), (model.duplicates, model.strangers), "{:?}", l);
        }
    }

    /// Anything at all: nothing is counted twice, and nothing forgotten.
    #[test]
    fn invariants_hold_whatever_comes(
        steps in prop::collection::vec((0u8..3, 0u32..4, -40i32..60, 0u32..400, 0u64..20_000, 0u8..40), 1..250),
    ) {
        let window = Duration::from_millis(2);
        let mut merge = Merge::new(Settings { legs: 3, numbers: 128, window, silence_ns: 5_000_000 });
        let (mut sequences, mut timestamps) = ([u32::MAX - 20, 70_000, 0, 9], [5u32, 1 << 30, 77, 9]);
        let mut now = 1_700_000_000_000_000_000;
        for (leg, sender, step, ticks, pause, odd) in steps {
            now += pause * 1_000;
            let at = sender as usize;
            (sequences[at], timestamps[at]) = (sequences[at].wrapping_add_signed(step), timestamps[at].wrapping_add(ticks));
            let s = Sighting { ssrc: sender / 2, sequence: sequences[at], timestamp: timestamps[at], arrival: Tai(now) };
            merge.arrives(leg, s.arrival);
            let verdict = merge.see(leg, s);
            if odd < 8 {
                merge.too_late(verdict);
            }
            match odd {
                38 => merge.tick(Tai(now)),
                39 => merge.finish(),
                _ => {}
            }
            merge.check_invariants();
        }
        merge.finish();
        merge.check_invariants();
        let c = merge.counters();
        for l in merge.legs() {
            prop_assert_eq!(l.received + l.lost, c.received + c.lost);
            prop_assert_eq!(l.used + l.redundant, l.received);
        }
        let used: u64 = merge.legs().iter().map(|l| l.used).sum();
        prop_assert_eq!(used, c.received);
    }
}
