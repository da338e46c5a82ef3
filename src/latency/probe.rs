//! What the threads that see frames send.

use super::{Media, Recorder};
use crate::error::Result;
use crate::frame::Frame;
use crate::mem::Space;
use crate::sink::{Next, Sink};
use crate::time::Tai;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Instant;

/// Numbers on their way; at 120 frames a second and four hops those of two seconds.
const UNDERWAY: usize = 1024;

/// What happened to a frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sample {
    Delivered { number: u64, timestamp: u32, first_arrival: Tai, last_arrival: Tai, at: Tai },
    Finished { number: u64, last_arrival: Tai, at: Tai },
    Taken { sink: u8, timestamp: u32, last_arrival: Tai, at: Tai },
    Changed(Media),
}

/// The end that threads have. Sending never waits: where nobody takes, it is counted.
#[derive(Clone, Debug)]
pub struct Probe {
    samples: SyncSender<Sample>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    begun: Instant,
    /// Nanoseconds that the clock of the arrivals is ahead of `begun`; `i64::MIN` before it was seen.
    ahead: AtomicI64,
    overflow: AtomicU64,
}

/// A probe, and where its numbers go.
pub fn channel(media: Media) -> (Probe, Recorder) {
    let (samples, receiver) = sync_channel(UNDERWAY);
    let shared = Shared { begun: Instant::now(), ahead: AtomicI64::new(i64::MIN), overflow: AtomicU64::new(0) };
    (Probe { samples, shared: Arc::new(shared) }, Recorder::new(receiver, media))
}

impl Probe {
    /// A frame was handed over at `at`, which is now.
    pub fn delivered(&self, number: u64, timestamp: u32, first_arrival: Tai, last_arrival: Tai, at: Tai) {
        let elapsed = self.shared.begun.elapsed().as_nanos() as i64;
        self.shared.ahead.store((at.0 as i64).wrapping_sub(elapsed), Relaxed);
        self.send(Sample::Delivered { number, timestamp, first_arrival, last_arrival, at });
    }
    /// A frame was finished, on a GPU.
    pub fn finished(&self, number: u64, last_arrival: Tai, at: Tai) {
        self.send(Sample::Finished { number, last_arrival, at });
    }
    /// A sink has taken a frame.
    pub fn taken(&self, sink: u8, timestamp: u32, last_arrival: Tai, at: Tai) {
        self.send(Sample::Taken { sink, timestamp, last_arrival, at });
    }
    /// From the next frame on they are those of another flow.
    pub fn changed(&self, media: Media) {
        self.send(Sample::Changed(media));
    }
    /// The clock of the arrivals, now, as far as it was seen; none for recordings.
    pub fn now(&self) -> Option<Tai> {
        let ahead = self.shared.ahead.load(Relaxed);
        (ahead != i64::MIN).then(|| Tai(ahead.wrapping_add(self.shared.begun.elapsed().as_nanos() as i64) as u64))
    }
    /// Numbers that were not sent, because nobody took those before.
    pub fn overflow(&self) -> u64 {
        self.shared.overflow.load(Relaxed)
    }

    fn send(&self, sample: Sample) {
        if self.samples.try_send(sample).is_err() {
            self.shared.overflow.fetch_add(1, Relaxed);
        }
    }
}

/// A sink that says when it has taken a frame.
pub struct Timed<F: Space> {
    inner: Box<dyn Sink<F>>,
    number: u8,
    probe: Probe,
}

impl<F: Space> Timed<F> {
    /// `inner`, the sink with this number.
    pub fn new(inner: Box<dyn Sink<F>>, number: u8, probe: Probe) -> Self {
        Timed { inner, number, probe }
    }
}

impl<F: Space> Sink<F> for Timed<F> {
    fn take(&mut self, frame: &Frame<F>) -> Result<Next> {
        let next = self.inner.take(frame)?;
        if let (Next::More, Some(now)) = (&next, self.probe.now()) {
            let meta = frame.meta();
            self.probe.taken(self.number, meta.timestamp, meta.last_arrival, now);
        }
        Ok(next)
    }
    fn idle(&mut self) -> Result<Next> {
        self.inner.idle()
    }
    fn finish(&mut self) -> Result<()> {
        self.inner.finish()
    }
    fn takes_windows(&self) -> bool {
        self.inner.takes_windows()
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nobody_takes_it_is_counted_and_nobody_waits() {
        let (probe, mut recorder) = channel(Media { rate: None, clock: None, clock_rate: 90_000 });
        assert_eq!(probe.now(), None);
        for n in 0..UNDERWAY as u64 + 7 {
            probe.delivered(n, 0, Tai(5), Tai(5), Tai(6));
        }
        assert_eq!(probe.overflow(), 7);
        assert!(probe.now().is_some_and(|now| now >= Tai(6)));
        recorder.drain();
        assert_eq!(recorder.interval(super::super::Hop::Complete).len(), UNDERWAY as u64);
    }
}
