//! The rings that an AF_XDP socket shares with the kernel: one side writes entries and moves `producer`, the other reads
//! them and moves `consumer`. Both count on for ever, modulo 2^32.
#![allow(unsafe_code)]

use crate::sync::AtomicU32;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// A ring's memory.
pub struct Shared<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
    _owner: Box<dyn Any + Send>,
}

// SAFETY: the memory belongs to the ring (through `_owner`), and its words are atomics or entries that only one side
// touches at a time.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T: Copy> Shared<T> {
    /// # Safety
    /// The pointers lead to memory that lives as long as `owner`: three words and `size` entries (a power of two), whose
    /// other side keeps to the ring's rules and accepts any `T` that is written, or writes valid ones.
    pub unsafe fn new(
        [producer, consumer, flags]: [NonNull<AtomicU32>; 3],
        entries: NonNull<T>,
        size: u32,
        owner: Box<dyn Any + Send>,
    ) -> Self {
        debug_assert!(size.is_power_of_two());
        Shared { producer, consumer, flags, entries, mask: size - 1, _owner: owner }
    }
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: promised to `new`.
        unsafe { self.producer.as_ref() }
    }
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }
    fn entry(&self, number: u32) -> NonNull<T> {
        // SAFETY: the mask keeps it among the entries.
        unsafe { self.entries.add((number & self.mask) as usize) }
    }
    const fn size(&self) -> u32 {
        self.mask + 1
    }
}

/// The reading side.
pub struct Consumer<T> {
    ring: Shared<T>,
    next: u32,
}

impl<T: Copy> Consumer<T> {
    /// Goes on where the ring stands.
    pub fn new(ring: Shared<T>) -> Self {
        let next = ring.consumer().load(Ordering::Relaxed);
        Consumer { ring, next }
    }
    /// How many entries are there.
    #[inline]
    pub fn ready(&self) -> u32 {
        self.ring.producer().load(Ordering::Acquire).wrapping_sub(self.next)
    }
    /// What is there, `most` at most. Entries that were read are given back when the guard is dropped.
    #[inline]
    pub fn take(&mut self, most: u32) -> Taken<'_, T> {
        // The other side never has more than the ring holds.
        let end = self.next.wrapping_add(self.ready().min(most).min(self.ring.size()));
        Taken { consumer: self, end }
    }
}

/// Entries that are being read.
#[must_use]
pub struct Taken<'a, T: Copy> {
    consumer: &'a mut Consumer<T>,
    end: u32,
}

impl<T: Copy> Iterator for Taken<'_, T> {
    type Item = T;
    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.consumer.next == self.end {
            return None;
        }
        // SAFETY: between `consumer` and `producer` the entry is ours, written before `producer` was moved (acquired).
        let entry = unsafe { self.consumer.ring.entry(self.consumer.next).as_ptr().read() };
        self.consumer.next = self.consumer.next.wrapping_add(1);
        Some(entry)
    }
}

impl<T: Copy> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        self.consumer.ring.consumer().store(self.consumer.next, Ordering::Release);
    }
}

/// The writing side.
pub struct Producer<T> {
    ring: Shared<T>,
    next: u32,
}

impl<T: Copy> Producer<T> {
    /// Goes on where the ring stands.
    pub fn new(ring: Shared<T>) -> Self {
        let next = ring.producer().load(Ordering::Relaxed);
        Producer { ring, next }
    }
    /// Room for entries. The other side sees what was written when the guard is dropped.
    #[inline]
    pub fn room(&mut self) -> Room<'_, T> {
        let used = self.next.wrapping_sub(self.ring.consumer().load(Ordering::Acquire));
        let left = self.ring.size().saturating_sub(used);
        Room { producer: self, left }
    }
    /// The kernel has stopped to look by itself and wants a call (`XDP_RING_NEED_WAKEUP`).
    #[inline]
    pub fn wants_call(&self) -> bool {
        // SAFETY: promised to `Shared::new`.
        let flags = unsafe { self.ring.flags.as_ref() }.load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// Entries that are being written.
#[must_use]
pub struct Room<'a, T: Copy> {
    producer: &'a mut Producer<T>,
    left: u32,
}

impl<T: Copy> Room<'_, T> {
    /// Entries that fit.
    #[inline]
    pub const fn left(&self) -> u32 {
        self.left
    }
    /// Writes one; `false` when the ring is full.
    #[inline]
    pub fn put(&mut self, entry: T) -> bool {
        if self.left == 0 {
            return false;
        }
        // SAFETY: the entry is ours until `producer` is moved past it.
        unsafe { self.producer.ring.entry(self.producer.next).as_ptr().write(entry) };
        self.producer.next = self.producer.next.wrapping_add(1);
        self.left -= 1;
        true
    }
}

impl<T: Copy> Drop for Room<'_, T> {
    fn drop(&mut self) {
        self.producer.ring.producer().store(self.producer.next, Ordering::Release);
    }
}

/// Rings without a kernel: both ends.
#[cfg(test)]
pub(super) mod mock {
    use super::*;

    struct Memory<T> {
        words: [AtomicU32; 3],
        entries: Vec<std::cell::UnsafeCell<T>>,
    }
    // SAFETY: entries are handed over by the atomics.
    unsafe impl<T: Send> Send for Memory<T> {}
    // SAFETY: as above.
    unsafe impl<T: Send> Sync for Memory<T> {}

    /// A ring whose counts begin at `start`.
    pub fn ring<T: Copy + Send + 'static>(size: u32, start: u32, nothing: T) -> (Producer<T>, Consumer<T>) {
        let words = [start, start, 0].map(AtomicU32::new);
        let entries = (0..size).map(|_| nothing.into()).collect();
        let memory = std::sync::Arc::new(Memory { words, entries });
        let shared = || {
            let words = [0, 1, 2].map(|i: usize| NonNull::from(&memory.words[i]));
            let entries = NonNull::new(memory.entries.as_ptr().cast_mut().cast::<T>()).unwrap();
            // SAFETY: the memory is kept by the owner.
            unsafe { Shared::new(words, entries, size, Box::new(memory.clone())) }
        };
        (Producer::new(shared()), Consumer::new(shared()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn entries_are_seen_when_the_guard_is_dropped_and_not_before() {
        let (mut producer, mut consumer) = mock::ring(4, u32::MAX - 1, 0u64);
        let mut room = producer.room();
        assert_eq!(room.left(), 4);
        assert!((10..14).all(|n| room.put(n)));
        assert!(!room.put(14), "full");
        assert_eq!(consumer.take(9).count(), 0);
        drop(room);
        let mut taken = consumer.take(3);
        assert_eq!((taken.next(), taken.next()), (Some(10), Some(11)));
        assert_eq!(producer.room().left(), 0, "not given back yet");
        drop(taken);
        assert_eq!(producer.room().left(), 2);
        assert_eq!(consumer.take(9).collect::<Vec<_>>(), [12, 13], "what was not read stays");
    }

    proptest! {
        /// Against a queue: whatever is put comes out once and in order, and never more than the ring holds, also where the
        /// counts pass 2^32.
        #[test]
        fn a_ring_is_a_queue(bits in 0u32..6, start in prop_oneof![Just(0), (u32::MAX - 40)..=u32::MAX],
                             steps in proptest::collection::vec((any::<bool>(), 0u32..40), 0..200)) {
            let size = 1u32 << bits;
            let (mut producer, mut consumer) = mock::ring(size, start, 0u64);
            let (mut model, mut number) = (VecDeque::new(), 0u64);
            for (put, count) in steps {
                if put {
                    let mut room = producer.room();
                    prop_assert_eq!(room.left() as usize, size as usize - model.len());
                    for _ in 0..count {
                        let fits = model.len() < size as usize;
                        prop_assert_eq!(room.put(number), fits);
                        if fits {
                            model.push_back(number);
                            number += 1;
                        }
                    }
                } else {
                    let taken: Vec<u64> = consumer.take(count).collect();
                    let wanted: Vec<u64> = model.drain(..model.len().min(count as usize)).collect();
                    prop_assert_eq!(taken, wanted);
                }
            }
        }
    }
}

/// `make loom`: what one side writes before it moves a ring on is there when the other side sees that, in every order.
#[cfg(all(test, gdmedia_loom))]
mod models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    /// Places that are handed over by number: loom fails where two threads may touch one at a time.
    fn places() -> Arc<[UnsafeCell<()>; 2]> {
        Arc::new([(), ()].map(UnsafeCell::new))
    }

    #[test]
    fn loom_what_is_handed_over_and_given_back_has_one_owner() {
        loom::model(|| {
            let (mut producer, mut consumer) = mock::ring(2, u32::MAX, 0u32);
            let mine = places();
            let seen = mine.clone();
            let writer = loom::thread::spawn(move || {
                let mut put = 0;
                // The third one goes where the first one was, if that was given back in time.
                for n in 0..3 {
                    let mut room = producer.room();
                    if room.left() > 0 {
                        mine[n as usize % 2].with_mut(|_| ());
                        put += u32::from(room.put(n));
                    } else {
                        break;
                    }
                }
                put
            });
            let mut taken = 0;
            for _ in 0..2 {
                for n in consumer.take(2) {
                    seen[n as usize % 2].with(|_| ());
                    assert_eq!(n, taken);
                    taken += 1;
                }
            }
            let put = writer.join().unwrap();
            taken += consumer.take(9).count() as u32;
            assert_eq!(taken, put);
        });
    }
}
