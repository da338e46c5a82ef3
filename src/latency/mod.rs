//! Latency of frames, hop by hop, in HDR histograms that are free of coordinated omission.
//!
//! ```text
//! sender's RTP time --wire--> first packet ... last packet --complete--> handed over --sink--> a sink has taken it
//!                                              last packet --gpu--> on the GPU
//! ```
//!
//! [`Hop::Wire`] begins at the RTP time and ends with the arrival of the first packet; the other hops begin with the
//! arrival of the last packet. A frame that does not come is not left out: when the next one is through, it is recorded
//! with the time that has passed since it was expected by the media clock's grid, so that an outage of a second counts as
//! the frames of a second and not as one slow frame.
//!
//! The threads that see frames [send](Probe) a few numbers each; whoever prints or reports [takes](Recorder::drain) them.
//! Nothing is locked or allocated on the way.

mod grid;
mod probe;

pub use grid::Grid;
pub use probe::{Probe, Timed, channel};

use crate::sdp::Ratio;
use crate::time::{Alignment, MediaClock, Tai};
use hdrhistogram::Histogram;
use probe::Sample;
use std::sync::mpsc::Receiver;

/// A way that frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hop {
    /// RTP time to the arrival of the first packet: the sender, and the network; only where the timestamps are TAI.
    Wire,
    /// Last packet to the frame being handed to the queues of the sinks.
    Complete,
    /// Last packet to the frame being finished on the GPU; only where there is one.
    Gpu,
    /// Last packet to a sink having taken the frame: its call has returned. Of several sinks each counts.
    Sink,
}

impl Hop {
    /// All of them, in order.
    pub const ALL: [Hop; 4] = [Hop::Wire, Hop::Complete, Hop::Gpu, Hop::Sink];
    /// In metrics and files.
    pub const fn name(self) -> &'static str {
        match self {
            Hop::Wire => "wire",
            Hop::Complete => "complete",
            Hop::Gpu => "gpu",
            Hop::Sink => "sink",
        }
    }
}

/// Nanoseconds that a histogram tells apart by three digits, and counts as this where there are more: 2 hours.
const HIGHEST: u64 = 7_200_000_000_000;
/// Sinks whose frames are followed.
const SINKS: usize = 8;

/// An empty histogram of nanoseconds.
pub fn histogram() -> Histogram<u64> {
    // Only senseless bounds are refused, and these are constants.
    Histogram::new_with_bounds(1, HIGHEST, 3).unwrap_or_else(|_| unreachable!("bounds of a histogram"))
}

/// Figures of a histogram, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Figures {
    /// Frames, with those that did not come.
    pub count: u64,
    /// Shortest.
    pub min: u64,
    /// Mean.
    pub mean: f64,
    /// Half of the frames have less.
    pub p50: u64,
    /// 99 of 100.
    pub p99: u64,
    /// 999 of 1000.
    pub p999: u64,
    /// Longest.
    pub max: u64,
}

/// Figures of a histogram; none of an empty one.
pub fn figures(histogram: &Histogram<u64>) -> Option<Figures> {
    (!histogram.is_empty()).then(|| Figures {
        count: histogram.len(),
        min: histogram.min(),
        mean: histogram.mean(),
        p50: histogram.value_at_quantile(0.5),
        p99: histogram.value_at_quantile(0.99),
        p999: histogram.value_at_quantile(0.999),
        max: histogram.max(),
    })
}

/// How frames follow each other, and what their timestamps mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Media {
    /// Frames a second; none where the SDP does not say: then frames that do not come are not known.
    pub rate: Option<Ratio>,
    /// Relates timestamps to TAI; none where they run free.
    pub clock: Option<MediaClock>,
    /// Ticks a second of the timestamps.
    pub clock_rate: u32,
}

/// Latencies of one flow, since it was made and since they were taken last.
#[derive(Debug)]
pub struct Recorder {
    samples: Receiver<Sample>,
    media: Media,
    gpu: bool,
    hops: [Record; 4],
    grids: [Grid; 3 + SINKS],
    /// Timestamps of frames that are perhaps not finished.
    known: [(u64, u32); 64],
    latency_ns: Option<i64>,
    early: u64,
    recent: [Recent; 4],
}

#[derive(Debug)]
struct Record {
    interval: Histogram<u64>,
    total: Histogram<u64>,
}

/// Latencies since they were asked for last, in nanoseconds; see [`Recorder::take_recent`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recent {
    /// Frames, with those that did not come.
    pub count: u64,
    /// Of all together.
    pub sum: u64,
    /// Longest.
    pub max: u64,
}

impl Recent {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.sum = self.sum.saturating_add(ns);
        self.max = self.max.max(ns);
    }
    /// Of no frames there is none.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }
}

impl Recorder {
    fn new(samples: Receiver<Sample>, media: Media) -> Self {
        let record = |_| Record { interval: histogram(), total: histogram() };
        Recorder {
            samples,
            media,
            gpu: false,
            hops: Hop::ALL.map(record),
            grids: std::array::from_fn(|_| Grid::new(media.rate, media.clock_rate)),
            known: [(u64::MAX, 0); 64],
            latency_ns: None,
            early: 0,
            recent: Default::default(),
        }
    }

    /// Frames are finished on a GPU.
    pub fn set_gpu(&mut self, gpu: bool) {
        self.gpu = gpu;
    }

    /// Takes what the threads have sent since the last call.
    pub fn drain(&mut self) {
        while let Ok(sample) = self.samples.try_recv() {
            self.take(sample);
        }
    }

    fn take(&mut self, sample: Sample) {
        match sample {
            Sample::Delivered { number, timestamp, first_arrival, last_arrival, at } => {
                if let Some(place) = self.known.get_mut((number % 64) as usize) {
                    *place = (number, timestamp);
                }
                if let Some(clock) = self.media.clock {
                    let latency_ns = clock.unwrap(timestamp, first_arrival).latency_ns;
                    self.latency_ns = Some(latency_ns);
                    if Alignment::judge(latency_ns) == Alignment::Aligned {
                        self.early += u64::from(latency_ns < 0);
                        self.record(Hop::Wire, 0, timestamp, first_arrival, latency_ns);
                    }
                }
                self.record(Hop::Complete, 1, timestamp, last_arrival, at.since(last_arrival));
            }
            Sample::Finished { number, last_arrival, at } => {
                let known = self.known.get((number % 64) as usize).filter(|(n, _)| *n == number);
                if let (true, Some((_, timestamp))) = (self.gpu, known.copied()) {
                    self.record(Hop::Gpu, 2, timestamp, last_arrival, at.since(last_arrival));
                }
            }
            Sample::Changed(media) => {
                self.media = media;
                self.grids = std::array::from_fn(|_| Grid::new(media.rate, media.clock_rate));
                self.known = [(u64::MAX, 0); 64];
                self.latency_ns = None;
            }
            Sample::Taken { sink, timestamp, last_arrival, at } => {
                let place = 3 + usize::from(sink).min(SINKS - 1);
                self.record(Hop::Sink, place, timestamp, last_arrival, at.since(last_arrival));
            }
        }
    }

    fn record(&mut self, hop: Hop, grid: usize, timestamp: u32, expected: Tai, ns: i64) {
        let ns = u64::try_from(ns).unwrap_or(0);
        let histogram = &mut self.hops[hop as usize].interval;
        let recent = &mut self.recent[hop as usize];
        histogram.saturating_record(ns);
        recent.add(ns);
        let Some(grid) = self.grids.get_mut(grid) else { return };
        for delay in grid.missing(timestamp, expected, ns) {
            histogram.saturating_record(delay);
            recent.add(delay);
        }
    }

    /// The end, on the clock of the arrivals: frames that are overdue are recorded with the delay that they have so far.
    pub fn finish(&mut self, now: Option<Tai>) {
        self.drain();
        let Some(now) = now else { return };
        for (n, grid) in self.grids.iter_mut().enumerate() {
            let hop = match n {
                0 => Hop::Wire,
                1 => Hop::Complete,
                2 => Hop::Gpu,
                _ => Hop::Sink,
            };
            for delay in grid.overdue(now) {
                self.hops[hop as usize].interval.saturating_record(delay);
            }
        }
    }

    /// Forgets what was recorded, not where the grid stands: the warm-up is over.
    pub fn reset(&mut self) {
        self.drain();
        for record in &mut self.hops {
            record.interval.reset();
            record.total.reset();
        }
        self.early = 0;
    }

    /// The histogram since the last [`Recorder::next_interval`].
    pub fn interval(&self, hop: Hop) -> &Histogram<u64> {
        &self.hops[hop as usize].interval
    }
    /// The histogram of all intervals that have ended.
    pub fn total(&self, hop: Hop) -> &Histogram<u64> {
        &self.hops[hop as usize].total
    }
    /// What was recorded since this was asked last, whatever the intervals are: for who looks more often.
    pub fn take_recent(&mut self, hop: Hop) -> Recent {
        std::mem::take(&mut self.recent[hop as usize])
    }
    /// Ends the interval.
    pub fn next_interval(&mut self) {
        for record in &mut self.hops {
            // Both have the same bounds.
            let _ = record.total.add(&record.interval);
            record.interval.reset();
        }
    }
    /// From the RTP time to the arrival, of the last frame; also where that shows that the clocks do not fit.
    pub fn rtp_latency_ns(&self) -> Option<i64> {
        self.latency_ns
    }
    /// Frames that came before their RTP time; counted as no latency at all.
    pub fn early(&self) -> u64 {
        self.early
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIFTY: Ratio = Ratio { num: 50, den: 1 };
    const MS: u64 = 1_000_000;

    fn recorder() -> (Probe, Recorder) {
        channel(Media { rate: Some(FIFTY), clock: Some(MediaClock::VIDEO), clock_rate: 90_000 })
    }

    /// Frame `n` of 50 a second, whose first packet comes 1 ms after its RTP time and whose last one 15 ms later.
    fn deliver(probe: &Probe, n: u64, delay: u64) {
        let media = Tai(1_700_000_000_000_000_000 + n * 20 * MS);
        let first = Tai(media.0 + MS);
        let last = Tai(first.0 + 15 * MS);
        probe.delivered(n, MediaClock::VIDEO.rtp(media), first, last, Tai(last.0 + delay));
    }

    fn values(histogram: &Histogram<u64>) -> Vec<u64> {
        histogram.iter_recorded().flat_map(|v| vec![v.value_iterated_to() / MS; v.count_at_value() as usize]).collect()
    }

    #[test]
    fn hops_are_measured_from_the_wire() {
        let (probe, mut recorder) = recorder();
        recorder.set_gpu(true);
        for n in 0..4 {
            deliver(&probe, n, 2 * MS);
            let last = Tai(1_700_000_000_000_000_000 + n * 20 * MS + 16 * MS);
            probe.finished(n, last, Tai(last.0 + 3 * MS));
            probe.taken(0, MediaClock::VIDEO.rtp(Tai(last.0 - 16 * MS)), last, Tai(last.0 + 5 * MS));
        }
        recorder.drain();
        for (hop, ms) in [(Hop::Wire, 1), (Hop::Complete, 2), (Hop::Gpu, 3), (Hop::Sink, 5)] {
            let found = figures(recorder.interval(hop)).unwrap();
            assert_eq!((found.count, found.p50 / MS, found.max / MS), (4, ms, ms), "{hop:?}");
        }
        recorder.next_interval();
        assert_eq!(figures(recorder.interval(Hop::Sink)), None);
        assert_eq!(recorder.total(Hop::Sink).len(), 4);
        recorder.reset();
        assert_eq!(recorder.total(Hop::Sink).len(), 0);
    }

    /// Another flow's timestamps and frame rate are no gap of the one before.
    #[test]
    fn another_flow_begins_a_new_grid_and_the_figures_go_on() {
        let (probe, mut recorder) = recorder();
        deliver(&probe, 0, 2 * MS);
        probe.changed(Media { rate: Some(Ratio { num: 25, den: 1 }), clock: None, clock_rate: 90_000 });
        deliver(&probe, 500, 2 * MS);
        deliver(&probe, 502, 2 * MS);
        recorder.drain();
        assert_eq!(values(recorder.interval(Hop::Complete)), [2, 2, 2]);
        assert_eq!(recorder.interval(Hop::Wire).len(), 1, "of the flow whose clock is known");
    }

    #[test]
    fn frames_that_do_not_come_are_recorded_with_their_delay() {
        let (probe, mut recorder) = recorder();
        deliver(&probe, 0, 2 * MS);
        // 1, 2 and 3 do not come; 4 is through 2 ms after its last packet.
        deliver(&probe, 4, 2 * MS);
        recorder.drain();
        let recent = recorder.take_recent(Hop::Complete);
        assert_eq!((recent.count, recent.max / MS, recent.mean()), (5, 62, Some(26.0 * MS as f64)));
        assert_eq!((recorder.take_recent(Hop::Complete), Recent::default().mean()), (Recent::default(), None));
        assert_eq!(values(recorder.interval(Hop::Complete)), [2, 2, 22, 42, 62]);
        assert_eq!(values(recorder.interval(Hop::Wire)), [1, 1, 21, 41, 61]);
    }

    #[test]
    fn frames_that_are_overdue_at_the_end_count() {
        let (probe, mut recorder) = recorder();
        deliver(&probe, 0, 2 * MS);
        // The last packet came at 16 ms; those of the next were expected at 36, 56 and 76.
        recorder.finish(Some(Tai(1_700_000_000_000_000_000 + 80 * MS)));
        assert_eq!(values(recorder.interval(Hop::Complete)), [2, 4, 24, 44]);
    }

    #[test]
    fn clocks_that_do_not_fit_give_no_latency_of_the_wire() {
        let (probe, mut recorder) = recorder();
        let media = Tai(1_700_000_000_000_000_000);
        let late = Tai(media.0 + 37_000_600_000);
        probe.delivered(0, MediaClock::VIDEO.rtp(media), late, late, late);
        recorder.drain();
        assert!(recorder.interval(Hop::Wire).is_empty());
        assert_eq!(recorder.rtp_latency_ns().map(Alignment::judge), Some(Alignment::Utc));
    }
}
