//! One leg's queue: what is handed to the device and what comes back. The hot path.
#![allow(unsafe_code)]

use super::library::{self, Completion, Device, Failure, Flow, Rule, Stamping};
use super::slots::{BATCH, Slots};
use crate::rx::card::Stamps;
use crate::time::Tai;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Completions that are taken at once.
pub const TAKEN: usize = 64;

/// A device's counter in nanoseconds. It comes round as often as its bits say.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// Nanoseconds of a tick, with 32 bits behind the point.
    scale: u64,
    /// Bits of a stamp that do not count.
    unused: u32,
    last: Option<u64>,
    ticks: u64,
}

impl Counter {
    /// One of `khz`, of whose stamps the bits of `mask` count; none where it does not say how fast it is.
    pub fn new(khz: u64, mask: u64) -> Option<Self> {
        let scale = (1_000_000_u128 << 32).checked_div(khz.into())?;
        let unused = if mask == 0 { 0 } else { mask.leading_zeros() };
        Some(Counter { scale: u64::try_from(scale).ok()?, unused, last: None, ticks: 0 })
    }
    /// The time of a stamp. Stamps come nearly in order.
    #[inline]
    pub fn nanos(&mut self, stamp: u64) -> u64 {
        match self.last.replace(stamp) {
            // As it is: some run on the time of day.
            None => self.ticks = stamp << self.unused >> self.unused,
            Some(last) => {
                let step = (stamp.wrapping_sub(last) << self.unused).cast_signed() >> self.unused;
                self.ticks = self.ticks.wrapping_add_signed(step);
            }
        }
        ((u128::from(self.ticks) * u128::from(self.scale)) >> 32) as u64
    }
}

/// The stamps of a leg.
pub struct Clock {
    /// Where they are ticks.
    counter: Option<Counter>,
    pub stamps: Stamps,
}

impl Clock {
    /// For what a queue gives; none where it gives nothing of use.
    pub fn new(of: Stamping, device: &Device, tai_offset: i64) -> Option<Self> {
        let limits = device.limits();
        let counter = match of {
            Stamping::None => return None,
            Stamping::Ticks => Some(Counter::new(limits.clock_khz, limits.stamp_mask)?),
            Stamping::Nanos => None,
        };
        Some(Clock { counter, stamps: Stamps::new(tai_offset, true) })
    }
    /// A run of packets was read at `now`: their stamps become nanoseconds, and the clock is told of the last one.
    #[inline]
    pub fn read(&mut self, run: &mut [Completion], now: Tai) {
        let mut last = 0;
        for one in run.iter_mut().filter(|one| one.status == 0 && one.stamp != 0) {
            if let Some(counter) = &mut self.counter {
                one.stamp = counter.nanos(one.stamp);
            }
            last = one.stamp;
        }
        self.stamps.read(last, now);
    }
}

/// One leg's queue.
pub struct Feed {
    // Rules end before the queue: fields are dropped in this order.
    flows: Vec<Flow>,
    queue: library::Queue,
    pub slots: Slots,
    pub clock: Option<Clock>,
    /// What is complete and not looked at yet: `taken` of them.
    run: Box<[Completion; TAKEN]>,
    taken: usize,
    pub device: Arc<Device>,
    /// Nothing comes by it any more: the device has gone, or the queue is given up.
    pub gone: bool,
    /// Why it was given up.
    pub ended: Option<String>,
    /// Resets of the queue, and those since the last good packet.
    pub resets: u64,
    pub vain: u32,
    /// Packets that were too long for their slots.
    pub too_long: u64,
    /// Why the device took no more entries, the first time.
    pub refused: Option<i32>,
    /// What the device counted as dropped when it was opened, and since.
    pub before: u64,
    pub dropped: u64,
}

impl Feed {
    pub fn new(queue: library::Queue, slots: Slots, device: Arc<Device>, clock: Option<Clock>, before: u64) -> Self {
        Feed {
            flows: Vec::new(),
            queue,
            slots,
            clock,
            run: Box::new([Completion::default(); TAKEN]),
            taken: 0,
            device,
            gone: false,
            ended: None,
            resets: 0,
            vain: 0,
            too_long: 0,
            refused: None,
            before,
            dropped: 0,
        }
    }

    /// Rules are there.
    pub const fn is_attached(&self) -> bool {
        !self.flows.is_empty()
    }
    /// Begins to receive: all rules, or none.
    pub fn attach(&mut self, rules: &[Rule]) -> Result<(), Failure> {
        for rule in rules {
            match self.queue.attach(rule) {
                Ok(flow) => self.flows.push(flow),
                Err(why) => {
                    self.flows.clear();
                    return Err(why);
                }
            }
        }
        Ok(())
    }
    /// Begins and ends to receive, and forgets what came.
    pub fn attempt(&mut self, rules: &[Rule]) -> Result<(), Failure> {
        self.attach(rules)?;
        self.flows.clear();
        while self.poll(TAKEN)? > 0 {
            for one in self.run.iter().take(self.taken) {
                let _ = self.slots.complete(one.slot) && self.slots.give(one.slot);
            }
            self.taken = 0;
        }
        self.replenish();
        Ok(())
    }
    /// Receives no more.
    pub fn detach(&mut self) {
        self.flows.clear();
    }

    /// Takes what is complete, at most so many; how many there are in the run.
    #[inline]
    pub fn poll(&mut self, most: usize) -> Result<usize, Failure> {
        if self.taken == 0 {
            let most = most.min(TAKEN);
            self.taken = self.queue.poll(self.run.get_mut(..most).unwrap_or_default())?;
        }
        Ok(self.taken)
    }
    /// The run that was polled.
    #[inline]
    pub fn run(&mut self) -> (&mut [Completion], &mut Slots, Option<&mut Clock>) {
        let taken = std::mem::take(&mut self.taken);
        (self.run.get_mut(..taken).unwrap_or_default(), &mut self.slots, self.clock.as_mut())
    }
    /// Hands free slots to the device, in batches.
    #[inline]
    pub fn replenish(&mut self) {
        while self.slots.wants() {
            let mut batch = [0; BATCH];
            let count = self.slots.take(&mut batch);
            let batch = batch.get(..count).unwrap_or_default();
            // SAFETY: slots lie in the planes that the queue was made with, and those that are free are read by nobody.
            let (posted, error) = unsafe { self.queue.post(batch) };
            if posted < count {
                self.slots.not_taken(batch.get(posted..).unwrap_or_default());
                self.refused.get_or_insert(error);
                return;
            }
        }
    }
    /// The queue is in error, or does not say.
    pub fn in_error(&mut self) -> bool {
        self.queue.in_error()
    }
    /// After an error: the queue forgets what it had, and begins anew.
    pub fn reset(&mut self) -> Result<(), Failure> {
        self.resets += 1;
        self.vain += 1;
        self.queue.reset()?;
        // What was taken of it and not looked at is of slots that are handed out anew.
        self.taken = 0;
        self.slots.forget();
        self.replenish();
        Ok(())
    }
    /// What to wait on until something is complete; none where there is something already.
    pub fn arm(&mut self) -> Result<Option<RawFd>, Failure> {
        let fd = self.queue.arm()?;
        // What was complete before is not told.
        Ok(fd.filter(|_| self.poll(TAKEN).map_or(true, |taken| taken == 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_become_nanoseconds_and_come_round() {
        // 1 GHz, all bits.
        let mut counter = Counter::new(1_000_000, u64::MAX).unwrap();
        let first = counter.nanos(1 << 40);
        assert_eq!(counter.nanos((1 << 40) + 1500) - first, 1500);
        assert_eq!(counter.nanos((1 << 40) + 1400).wrapping_sub(first), 1400, "one that is a little early");
        // 156.25 MHz, 6.4 ns a tick, of 20 bits.
        let mut counter = Counter::new(156_250, 0xf_ffff).unwrap();
        let first = counter.nanos(0xf_fff0);
        let step = counter.nanos(0x10) - first;
        assert!((204..=205).contains(&step), "32 ticks of 6.4 ns are 204.8: {step}");
        assert!(Counter::new(0, u64::MAX).is_none(), "it does not say");
    }
}
