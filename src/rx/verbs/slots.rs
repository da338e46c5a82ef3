//! Who has which slot of a leg's ring. Pure.
//!
//! ```text
//! free -> posted (the device writes there) -> held (leased) -> free
//! ```

/// Slots that are handed to the device at once.
pub const BATCH: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Posted,
    Held,
}

/// The slots of one leg, which are those from `first` on of a ring.
#[derive(Debug)]
pub struct Slots {
    first: u32,
    states: Vec<State>,
    free: Vec<u32>,
    posted: usize,
    /// Entries that the device's queue takes.
    most: usize,
}

impl Slots {
    /// `count` free slots, `most` of which may be posted at a time.
    pub fn new(first: u32, count: usize, most: usize) -> Self {
        // The first one is posted first.
        let free = (first..).take(count).collect::<Vec<_>>().into_iter().rev().collect();
        Slots { first, states: vec![State::Free; count], free, posted: 0, most: most.min(count) }
    }
    fn state(&mut self, slot: u32) -> Option<&mut State> {
        self.states.get_mut(slot.checked_sub(self.first)? as usize)
    }
    /// Slots that the device has.
    pub const fn posted(&self) -> usize {
        self.posted
    }
    /// It is worth a call to hand more over: a batch of them, or the device has few.
    pub fn wants(&self) -> bool {
        let room = (self.most - self.posted).min(self.free.len());
        room >= BATCH.min(self.most.div_ceil(4)) || room > 0 && self.posted < self.most / 2
    }
    /// Takes slots to hand over.
    pub fn take(&mut self, to: &mut [u32; BATCH]) -> usize {
        let mut count = 0;
        for place in to.iter_mut() {
            if self.posted >= self.most {
                break;
            }
            let Some(slot) = self.free.pop() else { break };
            if let Some(state) = self.state(slot) {
                *state = State::Posted;
            }
            self.posted += 1;
            *place = slot;
            count += 1;
        }
        count
    }
    /// The device did not take them.
    pub fn not_taken(&mut self, slots: &[u32]) {
        for slot in slots.iter().rev() {
            if let Some(state) = self.state(*slot).filter(|state| **state == State::Posted) {
                *state = State::Free;
                self.posted -= 1;
                self.free.push(*slot);
            }
        }
    }
    /// The device is done with one. `false`: it did not have it.
    #[inline]
    pub fn complete(&mut self, slot: u32) -> bool {
        match self.state(slot) {
            Some(state) if *state == State::Posted => {
                *state = State::Held;
                self.posted -= 1;
                true
            }
            _ => false,
        }
    }
    /// Nobody reads it any more. `false`: nobody did, or it is none of these.
    #[inline]
    pub fn give(&mut self, slot: u32) -> bool {
        match self.state(slot) {
            Some(state) if *state == State::Held => {
                *state = State::Free;
                self.free.push(slot);
                true
            }
            _ => false,
        }
    }
    /// The device has forgotten all that it had.
    pub fn forget(&mut self) {
        for (state, slot) in self.states.iter_mut().zip(self.first..) {
            if *state == State::Posted {
                *state = State::Free;
                self.free.push(slot);
            }
        }
        self.posted = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn slots_go_round_and_none_is_in_two_hands() {
        let mut slots = Slots::new(100, 10, 4);
        let mut batch = [0; BATCH];
        assert!(slots.wants());
        assert_eq!((slots.take(&mut batch), &batch[..4]), (4, &[100, 101, 102, 103][..]));
        assert!(!slots.wants() && slots.take(&mut batch) == 0, "the queue is full");
        assert!(slots.complete(101) && !slots.complete(101) && !slots.complete(99) && !slots.complete(104));
        assert!(!slots.give(100) && slots.give(101) && !slots.give(101) && !slots.give(110));
        assert_eq!((slots.posted(), slots.take(&mut batch), batch[0]), (3, 1, 101));
        slots.forget();
        assert_eq!((slots.posted(), slots.free.len()), (0, 10));
    }

    proptest! {
        /// Whatever is taken, refused, completed, given back and forgotten: each slot is in one place.
        #[test]
        fn every_slot_is_in_one_place(count in 1usize..200, most in 1usize..200, first in 0u32..1000,
                                      steps in proptest::collection::vec((0u8..5, 0usize..100), 0..300)) {
            let mut slots = Slots::new(first, count, most);
            let (mut device, mut held) = (VecDeque::new(), VecDeque::new());
            let mut batch = [0; BATCH];
            for (step, n) in steps {
                match step {
                    0 => {
                        let taken = slots.take(&mut batch);
                        prop_assert!(taken <= most);
                        device.extend(&batch[..taken]);
                    }
                    1 => {
                        let taken = slots.take(&mut batch);
                        let kept = n.min(taken);
                        device.extend(&batch[..kept]);
                        slots.not_taken(&batch[kept..taken]);
                    }
                    2 => for slot in device.drain(..n.min(device.len())) {
                        prop_assert!(slots.complete(slot));
                        held.push_back(slot);
                    },
                    3 => for slot in held.drain(..n.min(held.len())) {
                        prop_assert!(slots.give(slot));
                    },
                    _ if n < 10 => {
                        slots.forget();
                        device.clear();
                    }
                    _ => {}
                }
                prop_assert_eq!(slots.posted(), device.len());
                let mut all: Vec<u32> = device.iter().chain(&held).chain(&slots.free).copied().collect();
                all.sort_unstable();
                prop_assert_eq!(all, (first..first + count as u32).collect::<Vec<_>>());
            }
        }
    }
}
