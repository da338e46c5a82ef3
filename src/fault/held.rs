//! Packets that others are let pass.

use crate::time::Tai;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Packets that are held at most, all legs and faults together.
pub const HELD_AT_MOST: usize = 1 << 16;

/// Until when a packet is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Until this packet of its leg has gone by.
    Packet(u64),
    /// Until this time.
    Time(Tai),
}

/// What is held, in order of what is due first.
#[derive(Debug)]
pub struct Held<T> {
    by_packet: Vec<BinaryHeap<Reverse<Waiting<T>>>>,
    by_time: BinaryHeap<Reverse<Waiting<T>>>,
    count: usize,
    order: u64,
}

/// Ordered by when it is due, then by when it came.
#[derive(Debug)]
struct Waiting<T> {
    due: u64,
    order: u64,
    leg: u8,
    what: T,
}

impl<T> PartialEq for Waiting<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl<T> Eq for Waiting<T> {}
impl<T> PartialOrd for Waiting<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Waiting<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

impl<T> Default for Held<T> {
    fn default() -> Self {
        Held { by_packet: Vec::new(), by_time: BinaryHeap::new(), count: 0, order: 0 }
    }
}

impl<T> Held<T> {
    /// Holds a packet of `leg`. When too many are held, the one that is due first comes back at once.
    pub fn push(&mut self, leg: u8, due: Due, what: T) -> Option<(u8, T)> {
        self.order += 1;
        let order = self.order;
        let waiting = |due| Reverse(Waiting { due, order, leg, what });
        match due {
            Due::Time(at) => self.by_time.push(waiting(at.0)),
            Due::Packet(number) => {
                if self.by_packet.len() <= usize::from(leg) {
                    self.by_packet.resize_with(usize::from(leg) + 1, BinaryHeap::new);
                }
                self.by_packet.get_mut(usize::from(leg))?.push(waiting(number));
            }
        }
        self.count += 1;
        if self.count <= HELD_AT_MOST { None } else { self.pop() }
    }

    /// How many are held.
    pub const fn len(&self) -> usize {
        self.count
    }
    /// None is.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// When the next one is due that waits for a time.
    pub fn next_time(&self) -> Option<Tai> {
        self.by_time.peek().map(|Reverse(w)| Tai(w.due))
    }

    /// One that is due at `now`, and since when.
    pub fn due_at(&mut self, now: Tai) -> Option<(u8, Tai, T)> {
        self.next_time().filter(|due| *due <= now)?;
        let Reverse(w) = self.by_time.pop()?;
        self.count -= 1;
        Some((w.leg, Tai(w.due), w.what))
    }

    /// One that is due now that packet `index` of `leg` has gone by.
    pub fn due_behind(&mut self, leg: u8, index: u64) -> Option<T> {
        let heap = self.by_packet.get_mut(usize::from(leg))?;
        heap.peek().filter(|Reverse(w)| w.due <= index)?;
        let Reverse(w) = heap.pop()?;
        self.count -= 1;
        Some(w.what)
    }

    /// The next one, due or not: those that wait for packets first.
    pub fn pop(&mut self) -> Option<(u8, T)> {
        let heap = self.by_packet.iter_mut().find(|heap| !heap.is_empty()).unwrap_or(&mut self.by_time);
        let Reverse(w) = heap.pop()?;
        self.count -= 1;
        Some((w.leg, w.what))
    }
}
