//! What is kept of a run: counters, gauges, latencies, a time series and events, in bounded memory. It is what a
//! checkpoint holds, and all that a report needs.

use super::slope::Slope;
use crate::latency::{self, Figures, Hop, Recorder};
use crate::report::{Event, Severity};
use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// Version of checkpoints: rises when an older program could not read them.
pub const VERSION: u32 = 1;
/// Points of the time series at most; then two become one.
const POINTS: usize = 1200;
/// Events that are kept.
const EVENTS: usize = 2000;

/// Counters by their names.
pub type Counters = BTreeMap<String, u64>;

/// A run so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// [`VERSION`].
    pub version: u32,
    /// What was received.
    pub title: String,
    /// When it began, in seconds of UTC since 1970.
    pub begun_s: f64,
    /// Seconds since then.
    pub elapsed_s: f64,
    /// How long the warm-up is; what happens in it does not count.
    pub warm_up_s: f64,
    /// Why it ended; none while it runs.
    pub ended: Option<String>,
    /// Names and values: machine, options.
    pub environment: Vec<(String, String)>,
    /// What was decided at the start, and why.
    pub decisions: Vec<String>,
    /// The fault plan.
    pub fault_plan: Option<String>,
    /// The time series.
    pub points: Vec<Point>,
    /// What happened.
    pub events: Vec<Event>,
    /// Events that were not kept.
    pub events_left_out: u64,
    /// Seconds at which the warm-up was over.
    origin_s: Option<f64>,
    origin: Counters,
    latest: Counters,
    cpu: (f64, f64),
    slopes: BTreeMap<String, Slope>,
    gauges: BTreeMap<String, f64>,
    latencies: BTreeMap<Hop, Latency>,
    /// Intervals that a point of the series spans.
    stride: u64,
    /// Intervals in the last point.
    filled: u64,
    before: (f64, Counters),
}

/// What was measured in an interval.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Seconds since the beginning.
    pub seconds: f64,
    /// All counters, from the beginning.
    pub counters: Counters,
    /// Of the process.
    pub usage: super::process::Usage,
    /// Octets of the GPU's memory that the run uses.
    pub gpu_memory: Option<u64>,
    /// Nanoseconds from the PTP master.
    pub ptp_offset_ns: Option<i64>,
}

/// Some time of the series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Seconds since the beginning, at its end.
    pub t: f64,
    /// Seconds that it spans.
    pub seconds: f64,
    /// By how much counters grew that are drawn; those that did not are left out.
    pub grew: Counters,
    /// Gauges at its end, largest of what was merged.
    pub gauges: BTreeMap<String, f64>,
    /// Latencies in it.
    pub latency: BTreeMap<Hop, Spread>,
}

/// Latencies of a while, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Frames.
    pub count: u64,
    /// Shortest.
    pub min: u64,
    /// Mean.
    pub mean: f64,
    /// Longest.
    pub max: u64,
}

/// A histogram that is written as pairs of value and count.
#[derive(Clone, Debug)]
struct Latency(Histogram<u64>);

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.0.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())))
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let mut histogram = latency::histogram();
        for (value, count) in Vec::<(u64, u64)>::deserialize(d)? {
            histogram.saturating_record_n(value, count);
        }
        Ok(Latency(histogram))
    }
}

impl Record {
    /// Of a run that begins.
    pub fn new(title: String, begun_s: f64, warm_up_s: f64) -> Self {
        Record { version: VERSION, title, begun_s, warm_up_s, stride: 1, ..Record::default() }
    }

    /// An interval has ended. `latency` holds it in its intervals, and is reset when the warm-up is over.
    pub fn add(&mut self, sample: Sample, recorder: &mut Recorder) {
        let Sample { seconds, counters, usage, gpu_memory, ptp_offset_ns } = sample;
        self.elapsed_s = seconds;
        let spreads = Hop::ALL.iter().filter_map(|hop| Some((*hop, spread(recorder.interval(*hop))?))).collect();
        self.extend_series(seconds, &counters, spreads);
        self.latest = counters;
        if self.origin_s.is_none() {
            // The memory for what counts later is used from now on, so that it does not look like growth.
            for hop in Hop::ALL.into_iter().filter(|hop| !recorder.interval(*hop).is_empty()) {
                self.latencies.entry(hop).or_insert_with(|| {
                    let mut histogram = latency::histogram();
                    histogram.reset();
                    Latency(histogram)
                });
            }
            if seconds < self.warm_up_s {
                return;
            }
            // From here on it counts. What this interval holds belongs to the warm-up, unless there is none.
            if self.warm_up_s > 0.0 {
                self.origin = self.latest.clone();
                recorder.reset();
                self.origin_s = Some(seconds);
                self.cpu.0 = usage.cpu_seconds.unwrap_or(0.0);
            } else {
                self.origin_s = Some(0.0);
            }
        }
        for (hop, all) in Hop::ALL.iter().map(|hop| (*hop, recorder.interval(*hop))).filter(|(_, h)| !h.is_empty()) {
            let Latency(total) = self.latencies.entry(hop).or_insert_with(|| Latency(latency::histogram()));
            // Both have the same bounds.
            let _ = total.add(all);
        }
        self.cpu.1 = usage.cpu_seconds.unwrap_or(self.cpu.1);
        for (name, value) in [("rss", usage.rss), ("fds", usage.fds), ("gpu.memory", gpu_memory)] {
            if let Some(value) = value {
                self.slopes.entry(name.into()).or_default().add(seconds, value as f64);
                self.point_gauge(name, value as f64);
            }
        }
        if let Some(offset) = ptp_offset_ns {
            let size = offset.unsigned_abs() as f64;
            let largest = self.gauges.entry("ptp.offset".into()).or_default();
            *largest = largest.max(size);
            self.point_gauge("ptp.offset", size);
        }
    }

    fn point_gauge(&mut self, name: &str, value: f64) {
        if let Some(point) = self.points.last_mut() {
            let gauge = point.gauges.entry(name.into()).or_insert(value);
            *gauge = gauge.max(value);
        }
    }

    fn extend_series(&mut self, t: f64, counters: &Counters, latency: BTreeMap<Hop, Spread>) {
        let (before_t, before) = std::mem::replace(&mut self.before, (t, counters.clone()));
        let grew = counters.iter().filter(|(name, _)| is_plotted(name)).filter_map(|(name, now)| {
            let by = now.saturating_sub(before.get(name).copied().unwrap_or(0));
            (by > 0).then(|| (name.clone(), by))
        });
        let point = Point { t, seconds: t - before_t, grew: grew.collect(), gauges: BTreeMap::new(), latency };
        match self.points.last_mut().filter(|_| self.filled < self.stride) {
            Some(last) => last.merge(point),
            None => {
                self.points.push(point);
                self.filled = 0;
            }
        }
        self.filled += 1;
        if self.points.len() > POINTS {
            // Pairs become one; the last one, which was just begun, has no partner yet.
            let mut all = std::mem::take(&mut self.points).into_iter();
            while let Some(mut point) = all.next() {
                if let Some(next) = all.next() {
                    point.merge(next);
                }
                self.points.push(point);
            }
            self.stride *= 2;
        }
    }

    /// Something happened.
    pub fn event(&mut self, at: f64, severity: Severity, group: &str, text: String) {
        if self.events.len() < EVENTS {
            self.events.push(Event { at, severity, group: group.into(), text });
        } else {
            self.events_left_out += 1;
        }
    }

    /// A figure that is known by itself, such as what the own sender sent.
    pub fn set(&mut self, name: &str, value: f64) {
        self.gauges.insert(name.into(), value);
    }

    /// The warm-up is over.
    pub const fn is_measuring(&self) -> bool {
        self.origin_s.is_some()
    }
    /// Seconds that count.
    pub fn measured_s(&self) -> f64 {
        self.origin_s.map_or(0.0, |origin| self.elapsed_s - origin)
    }
    /// A counter since the end of the warm-up; none that is not counted here, or before that.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.origin_s?;
        Some(self.latest.get(name)?.saturating_sub(self.origin.get(name).copied().unwrap_or(0)))
    }
    /// A counter from the beginning, with the warm-up.
    pub fn whole(&self, name: &str) -> Option<u64> {
        self.latest.get(name).copied()
    }
    /// Legs that were counted.
    pub fn legs(&self) -> usize {
        self.latest.keys().filter_map(|name| Some(super::metric::leg(name)?.0 + 1)).max().unwrap_or(0)
    }
    /// A counter a second, since the end of the warm-up.
    pub fn per_second(&self, name: &str) -> Option<f64> {
        let seconds = self.measured_s();
        (seconds > 0.0).then_some(self.counter(name)? as f64 / seconds)
    }
    /// What is no counter: memory, its growth, and what was set.
    pub fn gauge(&self, name: &str) -> Option<f64> {
        if let Some(base) = name.strip_suffix(".slope") {
            return self.slopes.get(base)?.per_hour();
        }
        if name == "cpu" {
            let seconds = self.measured_s();
            return (seconds > 0.0 && self.cpu.1 > 0.0).then_some((self.cpu.1 - self.cpu.0) / seconds);
        }
        self.slopes.get(name).and_then(Slope::max).or_else(|| self.gauges.get(name).copied())
    }
    /// Latencies of a hop since the end of the warm-up.
    pub fn histogram(&self, hop: Hop) -> Option<&Histogram<u64>> {
        self.latencies.get(&hop).map(|Latency(histogram)| histogram)
    }
    /// The same as figures.
    pub fn figures(&self, hop: Hop) -> Option<Figures> {
        self.histogram(hop).and_then(latency::figures)
    }
}

/// What a report draws over time. The rest is left out of the series, whose own memory would else look like a leak.
fn is_plotted(name: &str) -> bool {
    let whole = ["octets", "frames.complete", "frames.incomplete", "frames.dropped", "lost", "kernel_dropped"];
    let of_leg = |name: &str| super::metric::leg(name).map(|(_, what)| what == "lost");
    let planned = name.strip_prefix("faults.").and_then(super::metric::leg).map(|(_, what)| what == "removed");
    whole.contains(&name) || of_leg(name) == Some(true) || planned == Some(true)
}

fn spread(histogram: &Histogram<u64>) -> Option<Spread> {
    let f = latency::figures(histogram)?;
    Some(Spread { count: f.count, min: f.min, mean: f.mean, max: f.max })
}

impl Point {
    /// The next point, added to this one.
    fn merge(&mut self, next: Point) {
        (self.t, self.seconds) = (next.t, self.seconds + next.seconds);
        for (name, by) in next.grew {
            *self.grew.entry(name).or_default() += by;
        }
        for (name, value) in next.gauges {
            let gauge = self.gauges.entry(name).or_insert(value);
            *gauge = gauge.max(value);
        }
        for (hop, next) in next.latency {
            let own = self.latency.entry(hop).or_insert(next);
            if *own != next {
                let count = own.count + next.count;
                own.mean = (own.mean * own.count as f64 + next.mean * next.count as f64) / count.max(1) as f64;
                (own.count, own.min, own.max) = (count, own.min.min(next.min), own.max.max(next.max));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::{Media, channel};
    use crate::time::Tai;

    fn sample(seconds: f64, lost: u64) -> Sample {
        let counters = Counters::from([("lost".into(), lost), ("frames.complete".into(), 50 * seconds as u64)]);
        Sample { seconds, counters, ..Sample::default() }
    }

    #[test]
    fn the_warm_up_does_not_count() {
        let (probe, mut recorder) = channel(Media { rate: None, clock: None, clock_rate: 90_000 });
        let mut record = Record::new("x".into(), 0.0, 2.0);
        for second in 1..=6u64 {
            probe.delivered(second, 0, Tai(5), Tai(5), Tai(5 + second * 1_000_000));
            recorder.drain();
            record.add(sample(second as f64, 10 * second), &mut recorder);
            recorder.next_interval();
        }
        // From 2 s on.
        assert_eq!((record.counter("lost"), record.whole("lost"), record.measured_s()), (Some(40), Some(60), 4.0));
        assert_eq!(record.per_second("frames.complete"), Some(50.0));
        assert_eq!(record.figures(Hop::Complete).map(|f| (f.count, (f.min + 50_000) / 1_000_000)), Some((4, 3)));
        assert_eq!(record.counter("unknown"), None);
    }

    #[test]
    fn the_series_is_bounded_and_loses_nothing() {
        let (_probe, mut recorder) = channel(Media { rate: None, clock: None, clock_rate: 90_000 });
        let mut record = Record::new("x".into(), 0.0, 0.0);
        for second in 1..=10_000u64 {
            record.add(sample(second as f64, 3 * second), &mut recorder);
        }
        assert!(record.points.len() <= POINTS, "{}", record.points.len());
        assert_eq!(record.points.iter().filter_map(|p| p.grew.get("lost")).sum::<u64>(), 30_000);
        assert!((record.points.iter().map(|p| p.seconds).sum::<f64>() - 10_000.0).abs() < 1e-6);
        assert!(record.points.windows(2).all(|p| p[0].t < p[1].t));
    }

    #[test]
    fn a_checkpoint_is_the_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c");
        let (probe, mut recorder) = channel(Media { rate: None, clock: None, clock_rate: 90_000 });
        let mut record = Record::new("x".into(), 0.0, 0.0);
        for second in 1..=5u64 {
            probe.delivered(second, 0, Tai(5), Tai(5), Tai(5 + second * 1_000_000));
            recorder.drain();
            record.add(sample(second as f64, second), &mut recorder);
            recorder.next_interval();
        }
        record.event(1.0, Severity::Warning, "run", "something".into());
        super::super::checkpoint::write(&record, &path).unwrap();
        let read = super::super::checkpoint::read(&path).unwrap();
        assert_eq!(read.figures(Hop::Complete), record.figures(Hop::Complete));
        assert_eq!((read.counter("lost"), &read.points, &read.events), (Some(5), &record.points, &record.events));
        std::fs::write(&path, serde_json::to_string(&Record { version: VERSION + 1, ..record }).unwrap()).unwrap();
        assert!(super::super::checkpoint::read(&path).unwrap_err().to_string().contains("version"));
        // Of another version everything else may be different.
        std::fs::write(&path, format!("{{\"version\":{},\"other\":[]}}", VERSION + 1)).unwrap();
        assert!(super::super::checkpoint::read(&path).unwrap_err().to_string().contains("has version"));
    }
}
