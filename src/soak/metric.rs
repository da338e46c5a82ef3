//! Names that thresholds may use, with their units. The same names stand in reports.

use super::record::Record;
use crate::latency::Hop;
use crate::timing::Class;

/// What a number counts; values are kept in these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// How many.
    Count,
    /// How many a second.
    PerSecond,
    /// How many more an hour.
    PerHour,
    /// Nanoseconds.
    Time,
    /// Octets.
    Octets,
    /// Octets more an hour.
    OctetsPerHour,
    /// Bits a second.
    BitRate,
    /// A word of [`CLASSES`], by its place there.
    Class,
}

/// Classes of ST 2110-21, the better ones first; `unknown` where none can be given.
pub const CLASSES: [&str; 5] = ["unknown", "narrow", "narrow_linear", "wide", "not_compliant"];

/// The class of all legs, as [`Unit::Class`] has it: the worst. A leg that is not compliant is so whatever the others are; else
/// one of which nothing can be told makes the whole unknown.
pub fn class_of(legs: impl Iterator<Item = Option<Class>>) -> f64 {
    let place = |class: Option<Class>| match class {
        None => 0,
        Some(Class::Narrow) => 1,
        Some(Class::NarrowLinear) => 2,
        Some(Class::Wide) => 3,
        Some(Class::NotCompliant) => 4,
    };
    let places: Vec<u8> = legs.map(place).collect();
    let worst = places.iter().copied().max().unwrap_or(0);
    f64::from(if worst < 4 && places.contains(&0) { 0 } else { worst })
}

/// Which way is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
    /// It is as it is.
    Neither,
}

/// A metric, or a family of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// `N` stands for a leg's number, `HOP` for one of [`Hop`], `PP` for a percentile such as 99.9.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Which way is worse.
    pub better: Better,
    /// What it is.
    pub meaning: &'static str,
}

const fn m(name: &'static str, unit: Unit, better: Better, meaning: &'static str) -> Metric {
    Metric { name, unit, better, meaning }
}

use Better::{Higher, Lower, Neither};
use Unit::{BitRate, Count, Octets, OctetsPerHour, PerHour, PerSecond, Time};

/// All of them. Counters count from the end of the warm-up.
pub const METRICS: &[Metric] = &[
    m("received", Count, Neither, "packets that came in time, each counted once"),
    m("lost", Count, Lower, "packets that no leg brought in time"),
    m("late", Count, Lower, "packets that came too late"),
    m("duplicate", Count, Neither, "further copies of a packet"),
    m("reordered", Count, Neither, "packets that came after one with a higher number"),
    m("restarts", Count, Lower, "times that the sender began anew"),
    m("rejected", Count, Lower, "packets or segments that were not used"),
    m("kernel_dropped", Count, Lower, "packets that the socket had no room for: this machine's loss"),
    m("overwritten", Count, Lower, "packets that were overwritten in their ring before they were read"),
    m("frames.complete", Count, Neither, "frames with every octet"),
    m("frames.incomplete", Count, Lower, "frames that lack octets"),
    m("frames.torn", Count, Lower, "of these: with octets that were overwritten too soon"),
    m("frames.dropped", Count, Lower, "frames that were not handed on: no memory, or a sink was full"),
    m("frames.missing_octets", Octets, Lower, "octets that incomplete frames lack"),
    m("legN.received", Count, Neither, "packets that leg N brought in time"),
    m("legN.lost", Count, Lower, "packets that leg N did not bring in time"),
    m("legN.late", Count, Lower, "packets that leg N brought too late"),
    m("legN.duplicate", Count, Neither, "further copies by leg N itself"),
    m("legN.reordered", Count, Neither, "packets out of order on leg N"),
    m("legN.used", Count, Neither, "packets that leg N brought first"),
    m("legN.redundant", Count, Neither, "packets that another leg had brought before"),
    m("legN.foreign", Count, Lower, "packets of another sender on leg N"),
    m("latency.HOP.pPP", Time, Lower, "so many of 100 frames have no more; HOP: wire, complete, gpu, sink"),
    m("latency.HOP.mean", Time, Lower, "mean"),
    m("latency.HOP.min", Time, Neither, "shortest"),
    m("latency.HOP.max", Time, Lower, "longest"),
    m("latency.HOP.count", Count, Neither, "frames, with those that did not come"),
    m("fps", PerSecond, Higher, "frames a second, on average"),
    m("bit_rate", BitRate, Neither, "UDP payload, on average"),
    m("rss", Octets, Lower, "memory of this process at most"),
    m("rss.slope", OctetsPerHour, Lower, "its growth"),
    m("fds", Count, Lower, "open files of this process at most"),
    m("fds.slope", PerHour, Lower, "their growth"),
    m("gpu.memory", Octets, Lower, "memory of the GPU that this run uses at most"),
    m("gpu.memory.slope", OctetsPerHour, Lower, "its growth"),
    m("cpu", Count, Lower, "cores that the process keeps busy, on average"),
    m("ptp.offset", Time, Lower, "largest distance from the PTP master"),
    m("ptp.grandmaster_changes", Count, Lower, "times that another grandmaster took over"),
    m("ptp.unlocked", Count, Lower, "times that this machine stopped following PTP"),
    m("timing.cinst", Count, Lower, "largest CINST, of all legs (--timing, stamps of a card)"),
    m("timing.vrx", Count, Lower, "largest VRX, of all legs (--timing, stamps of a card)"),
    m(
        "timing.compliance",
        Unit::Class,
        Neither,
        "class by ST 2110-21, the worst of all legs (--timing; unknown without stamps of a card)",
    ),
    m("timing.fpt", Time, Lower, "latest first packet of a frame after N * TFRAME, of all legs (--timing)"),
    m("source.frames", Count, Neither, "frames that the own sender sent"),
    m("source.skipped", Count, Lower, "frames that the own sender left out, being late"),
    m("source.dropped", Count, Lower, "packets that the own sender could not send"),
    m("faults.removed", Count, Neither, "packets that the fault plan removed"),
    m("faults.mismatch", Count, Lower, "kinds of faults, by leg, of which others were found than planned"),
];

/// The metric that has this name, or to whose family it belongs.
pub fn find(name: &str) -> Option<Metric> {
    let family = if let Some((_, rest)) = leg(name) {
        format!("legN.{rest}")
    } else if let Some((_, what)) = latency(name) {
        if what.starts_with('p') { "latency.HOP.pPP".into() } else { format!("latency.HOP.{what}") }
    } else {
        name.to_owned()
    };
    METRICS.iter().find(|m| m.name == family).copied()
}

/// `leg1.lost`: the number and the rest.
pub fn leg(name: &str) -> Option<(usize, &str)> {
    let (number, rest) = name.strip_prefix("leg")?.split_once('.')?;
    Some((number.parse().ok()?, rest))
}

/// `latency.sink.p99.9`: the hop and what of it.
fn latency(name: &str) -> Option<(Hop, &str)> {
    let (hop, what) = name.strip_prefix("latency.")?.split_once('.')?;
    let hop = Hop::ALL.into_iter().find(|h| h.name() == hop)?;
    what.strip_prefix('p').is_none_or(|p| percentile(p).is_some()).then_some((hop, what))
}

fn percentile(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.parse().ok().filter(|p| plain && (0.0..=100.0).contains(p))
}

/// The value of a metric; none where it was not measured.
pub fn value(name: &str, record: &Record) -> Option<f64> {
    if let Some((hop, what)) = latency(name) {
        let histogram = record.histogram(hop).filter(|h| !h.is_empty())?;
        return Some(match what {
            "mean" => histogram.mean(),
            "min" => histogram.min() as f64,
            "max" => histogram.max() as f64,
            "count" => histogram.len() as f64,
            what => histogram.value_at_percentile(percentile(what.strip_prefix('p')?)?) as f64,
        });
    }
    match name {
        "fps" => Some(record.per_second("frames.complete")? + record.per_second("frames.incomplete")?),
        "bit_rate" => Some(record.per_second("octets")? * 8.0),
        "faults.mismatch" => Some(super::faults::compare(record)?.iter().filter(|f| !f.equal).count() as f64),
        _ => record.gauge(name).or_else(|| record.counter(name).map(|n| n as f64)),
    }
}

/// Every metric that was measured, with its name; of latencies the percentiles that people ask for.
pub fn all(record: &Record) -> Vec<(String, Metric, f64)> {
    let mut names = Vec::new();
    for metric in METRICS {
        if metric.name == "latency.HOP.pPP" {
            names.extend(
                Hop::ALL
                    .iter()
                    .flat_map(|h| ["50", "90", "99", "99.9", "99.99"].map(|p| format!("latency.{}.p{p}", h.name()))),
            );
        } else if let Some(what) = metric.name.strip_prefix("latency.HOP.") {
            names.extend(Hop::ALL.iter().map(|h| format!("latency.{}.{what}", h.name())));
        } else if let Some(what) = metric.name.strip_prefix("legN.") {
            names.extend((0..record.legs()).map(|n| format!("leg{n}.{what}")));
        } else {
            names.push(metric.name.to_owned());
        }
    }
    let measured = |name: String| Some((find(&name)?, value(&name, record)?, name));
    names.into_iter().filter_map(measured).map(|(metric, value, name)| (name, metric, value)).collect()
}

/// A value as people write it.
pub fn show(value: f64, unit: Unit) -> String {
    let scaled = |steps: &[(f64, &str)], per: &str| {
        let (factor, name) =
            steps.iter().find(|(f, _)| value.abs() >= *f).or(steps.last()).copied().unwrap_or((1.0, ""));
        format!("{} {name}{per}", digits(value / factor))
    };
    const OCTETS: [(f64, &str); 4] = [(1073741824.0, "GiB"), (1048576.0, "MiB"), (1024.0, "KiB"), (1.0, "octets")];
    match unit {
        Unit::Count => digits(value),
        Unit::PerSecond => format!("{}/s", digits(value)),
        Unit::PerHour => format!("{}/h", digits(value)),
        Unit::Time => scaled(&[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")], ""),
        Unit::Octets => scaled(&OCTETS, ""),
        Unit::OctetsPerHour => scaled(&OCTETS, "/h"),
        Unit::Class => CLASSES.get(value as usize).copied().unwrap_or("unknown").to_owned(),
        Unit::BitRate => scaled(&[(1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"), (1.0, "b/s")], ""),
    }
}

fn digits(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_belong_to_families() {
        assert_eq!(find("lost").map(|m| m.unit), Some(Unit::Count));
        assert_eq!(find("leg1.lost").map(|m| m.name), Some("legN.lost"));
        assert_eq!(find("latency.complete.p99.9").map(|m| m.unit), Some(Unit::Time));
        assert_eq!(find("latency.sink.max").map(|m| m.better), Some(Better::Lower));
        for wrong in
            ["", "leg.lost", "legx.lost", "leg0.x", "latency.p99", "latency.gpu.p101", "latency.gpu.p1e1", "Lost"]
        {
            assert_eq!(find(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn values_are_written_with_their_unit() {
        for (value, unit, text) in [
            (3.0, Unit::Count, "3"),
            (49.95, Unit::PerSecond, "49.95/s"),
            (1_234_567.0, Unit::Time, "1.235 ms"),
            (900.0, Unit::Time, "900 ns"),
            (-2048.0, Unit::OctetsPerHour, "-2 KiB/h"),
            (0.0, Unit::Octets, "0 octets"),
            (2.5e9, Unit::BitRate, "2.5 Gb/s"),
            (0.0, Unit::Class, "unknown"),
            (4.0, Unit::Class, "not_compliant"),
            (-1.0, Unit::Class, "unknown"),
            (9.0, Unit::Class, "unknown"),
        ] {
            assert_eq!(show(value, unit), text);
        }
    }

    #[test]
    fn the_class_of_all_legs_is_the_worst() {
        use Class::{Narrow, NarrowLinear, NotCompliant, Wide};
        for (legs, word) in [
            (&[][..], "unknown"),
            (&[None], "unknown"),
            (&[Some(Narrow)], "narrow"),
            (&[Some(Narrow), Some(NarrowLinear)], "narrow_linear"),
            (&[Some(Wide), Some(NarrowLinear)], "wide"),
            (&[Some(Wide), None], "unknown"),
            (&[None, Some(NotCompliant)], "not_compliant"),
        ] {
            assert_eq!(show(class_of(legs.iter().copied()), Unit::Class), word, "{legs:?}");
        }
    }

    #[test]
    fn every_name_is_told_once() {
        let mut names: Vec<_> = METRICS.iter().map(|m| m.name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
