//! A run as a report: checks, figures, tables, plots.

use super::baseline::{self, Baseline};
use super::faults;
use super::metric;
use super::record::{Point, Record};
use super::threshold::Threshold;
use crate::latency::Hop;
use crate::report::{self, Bin, Check, Fact, Line, MapCell, MapRow, Plot, Report, Section, Severity, Table};

/// What a run is held against.
#[derive(Clone, Debug, Default)]
pub struct Judges {
    /// When one is met, the run has failed.
    pub fail_if: Vec<Threshold>,
    /// When one is met, there is something to look at.
    pub warn_if: Vec<Threshold>,
    /// An earlier run, and the name of its file.
    pub baseline: Option<(String, Baseline)>,
}

impl Judges {
    /// Thresholds as they stand, for the status line: the worst that is met.
    pub fn worst(&self, record: &Record) -> Severity {
        let met =
            |list: &[Threshold]| list.iter().any(|t| t.evaluate(|name| metric::value(name, record)).met == Some(true));
        match (met(&self.fail_if), met(&self.warn_if)) {
            (true, _) => Severity::Failure,
            (false, true) => Severity::Warning,
            _ => Severity::Pass,
        }
    }

    fn checks(&self, record: &Record) -> Vec<Check> {
        let of = |(threshold, severity): (&Threshold, Severity)| {
            let outcome = threshold.evaluate(|name| metric::value(name, record));
            let (severity, message) = match outcome.met {
                Some(true) => (severity, outcome.text),
                Some(false) => (Severity::Pass, outcome.text),
                None => (Severity::Warning, format!("cannot be told: {}", outcome.text)),
            };
            Check { group: "thresholds".into(), name: threshold.to_string(), severity, message, clause: String::new() }
        };
        let fail = self.fail_if.iter().map(|t| (t, Severity::Failure));
        fail.chain(self.warn_if.iter().map(|t| (t, Severity::Warning))).map(of).collect()
    }
}

/// Everything about a run.
pub fn summary(record: &Record, judges: &Judges) -> Report {
    let mut out = Report::new("soak", format!("Soak test: {}", record.title));
    let measured = metric::all(record);
    out.metrics = measured.iter().map(|(name, _, value)| (name.clone(), *value)).collect();
    out.metrics.insert(baseline::MEASURED.into(), record.measured_s());
    out.check(whole(record));
    judges.checks(record).into_iter().for_each(|check| out.check(check));
    fault_checks(record).into_iter().for_each(|check| out.check(check));
    if let Some((_, baseline)) = &judges.baseline {
        baseline::compare(&out.metrics, baseline).into_iter().for_each(|check| out.check(check));
    }
    out.summary = sentence(record);
    out.sections = vec![
        figures(&measured),
        latencies(record),
        Section {
            title: "Over time".into(),
            note: format!("Points span up to {:.0} s.", record.points.iter().map(|p| p.seconds).fold(0.0, f64::max)),
            plots: plots(record),
            ..Section::default()
        },
    ];
    out.sections.extend(fault_section(record));
    if let Some((name, _)) = &judges.baseline {
        out.environment.push(("baseline".into(), name.clone()));
    }
    out.events.clone_from(&record.events);
    out.events_left_out = record.events_left_out;
    out.decisions.clone_from(&record.decisions);
    out.environment.extend(record.environment.iter().cloned());
    out
}

fn sentence(record: &Record) -> String {
    let warm_up =
        if record.warm_up_s > 0.0 { format!(" after a warm-up of {:.0} s", record.warm_up_s) } else { String::new() };
    let count = |name| record.counter(name).unwrap_or(0);
    let frames = count("frames.complete") + count("frames.incomplete");
    let (seconds, packets, lost) = (record.measured_s(), count("received"), count("lost"));
    format!("{seconds:.0} s{warm_up}: {frames} frames of {packets} packets, {lost} packets lost")
}

fn whole(record: &Record) -> Check {
    let (severity, message) = match (&record.ended, record.is_measuring()) {
        (_, false) => (Severity::Warning, "it ended before the warm-up was over: nothing was measured".into()),
        (None, _) => (
            Severity::Warning,
            format!("made from a checkpoint of {:.0} s: the run did not end by itself", record.elapsed_s),
        ),
        (Some(why), _) => (Severity::Pass, format!("{why}, after {:.0} s", record.elapsed_s)),
    };
    Check { group: "run".into(), name: "end".into(), severity, message, clause: String::new() }
}

fn fault_checks(record: &Record) -> Vec<Check> {
    let check = |f: faults::Compared| {
        let own = if f.own > 0 { format!(" ({} of this machine among them)", f.own) } else { String::new() };
        Check {
            group: "faults".into(),
            name: format!("leg {} {}", f.leg, f.kind),
            severity: if f.equal { Severity::Pass } else { Severity::Warning },
            message: format!("planned {}, found {}{own}", f.planned, f.found),
            clause: String::new(),
        }
    };
    faults::compare(record).into_iter().flatten().map(check).collect()
}

fn fault_section(record: &Record) -> Option<Section> {
    let compared = faults::compare(record)?;
    let mut rows: Vec<Vec<String>> = compared
        .iter()
        .map(|f| vec![f.leg.to_string(), f.kind.into(), f.planned.to_string(), f.found.to_string()])
        .collect();
    for leg in 0..2 {
        let kinds = faults::beside(record, leg).into_iter();
        rows.extend(
            kinds.map(|(kind, n)| vec![leg.to_string(), format!("of which {kind}"), n.to_string(), String::new()]),
        );
    }
    let columns = ["Leg", "Kind", "Planned", "Found"].map(String::from).to_vec();
    Some(Section {
        title: "Faults on purpose".into(),
        note: format!(
            "Over the whole run, with the warm-up. Plan: {}",
            record.fault_plan.as_deref().unwrap_or_default()
        ),
        tables: vec![Table { title: String::new(), columns, rows }],
        ..Section::default()
    })
}

fn figures(measured: &[(String, metric::Metric, f64)]) -> Section {
    let fact = |(name, metric, value): &(String, metric::Metric, f64)| Fact {
        name: name.clone(),
        value: metric::show(*value, metric.unit),
        hint: metric.meaning.into(),
    };
    let told = |(name, ..): &&(String, metric::Metric, f64)| !name.starts_with("latency.");
    Section {
        title: "Figures".into(),
        note: "Counted from the end of the warm-up.".into(),
        facts: measured.iter().filter(told).map(fact).collect(),
        ..Section::default()
    }
}

/// Bins of a plot at most.
const BINS: usize = 48;

fn latencies(record: &Record) -> Section {
    let ms = |ns: u64| report::number(ns as f64 / 1e6);
    let row = |hop: &Hop| {
        let h = record.histogram(*hop).filter(|h| !h.is_empty())?;
        let mut cells = vec![hop.name().to_owned(), h.len().to_string(), ms(h.min()), report::number(h.mean() / 1e6)];
        cells.extend([0.5, 0.9, 0.99, 0.999, 0.9999].map(|q| ms(h.value_at_quantile(q))));
        cells.push(ms(h.max()));
        Some(cells)
    };
    let columns = ["Hop", "Frames", "Min", "Mean", "50 %", "90 %", "99 %", "99.9 %", "99.99 %", "Max"];
    let table = Table {
        title: "In milliseconds".into(),
        columns: columns.map(String::from).to_vec(),
        rows: Hop::ALL.iter().filter_map(row).collect(),
    };
    let note = "wire: RTP time to first packet; complete, gpu, sink: last packet to the frame being handed over, on the GPU, taken \
                by a sink. A frame that did not come counts with the time since it was expected.";
    Section {
        title: "Latency".into(),
        note: note.into(),
        tables: vec![table],
        plots: Hop::ALL.iter().filter_map(|hop| histogram(record, *hop)).collect(),
        ..Section::default()
    }
}

fn histogram(record: &Record, hop: Hop) -> Option<Plot> {
    let h = record.histogram(hop).filter(|h| !h.is_empty())?;
    // What lies beyond is in the last bin: a few stalls would squeeze the rest into the first.
    let end = h.value_at_quantile(0.999).saturating_mul(5) / 4;
    let width = (end / BINS as u64).max(1);
    let bin = |n: u64| {
        let (from, to) = (n * width, (n + 1) * width);
        let last = n + 1 == BINS as u64;
        let count = h.count_between(from, if last { u64::MAX } else { to - 1 });
        Bin { from: from as f64 / 1e6, to: to as f64 / 1e6, count }
    };
    Some(Plot::Histogram {
        title: format!("{} (the last bin holds all that is longer)", hop.name()),
        unit: "ms".into(),
        bins: (0..BINS as u64).map(bin).collect(),
        limits: Vec::new(),
    })
}

fn plots(record: &Record) -> Vec<Plot> {
    let points = &record.points;
    let mut out = Vec::new();
    let lines = Hop::ALL.iter().map(|hop| Line {
        name: hop.name().into(),
        points: points.iter().filter_map(|p| latency_point(p, *hop)).collect(),
    });
    out.push(series("Latency", "ms", lines));
    let per_second = |name: &str, factor: f64, shown: &str| Line {
        name: shown.into(),
        points: points
            .iter()
            .filter(|p| p.seconds > 0.0)
            .map(|p| flat(p.t, grew(p, name) * factor / p.seconds))
            .collect(),
    };
    out.push(series("Rate", "Mb/s", [per_second("octets", 8e-6, "UDP payload")]));
    out.push(series(
        "Frames",
        "frames/s",
        [
            per_second("frames.complete", 1.0, "complete"),
            per_second("frames.incomplete", 1.0, "incomplete"),
            per_second("frames.dropped", 1.0, "dropped"),
        ],
    ));
    let gauge = |name: &str, factor: f64, shown: &str| Line {
        name: shown.into(),
        points: points.iter().filter_map(|p| Some(flat(p.t, p.gauges.get(name)? * factor))).collect(),
    };
    const MIB: f64 = 1.0 / 1_048_576.0;
    out.push(series("Memory", "MiB", [gauge("rss", MIB, "process"), gauge("gpu.memory", MIB, "GPU")]));
    out.push(series("Open files", "files", [gauge("fds", 1.0, "files")]));
    out.push(series("Distance from the PTP master", "us", [gauge("ptp.offset", 1e-3, "offset")]));
    out.retain(|plot| !matches!(plot, Plot::Series { lines, .. } if lines.is_empty()));
    out.push(loss_map(record));
    out
}

fn series(title: &str, unit: &str, lines: impl IntoIterator<Item = Line>) -> Plot {
    let lines = lines.into_iter().filter(|line| !line.points.is_empty()).collect();
    Plot::Series { title: title.into(), unit: unit.into(), lines, limits: Vec::new() }
}

fn flat(t: f64, value: f64) -> report::Point {
    report::Point { t, min: value, mean: value, max: value }
}

fn grew(point: &Point, name: &str) -> f64 {
    point.grew.get(name).map_or(0.0, |n| *n as f64)
}

fn latency_point(point: &Point, hop: Hop) -> Option<report::Point> {
    let l = point.latency.get(&hop)?;
    Some(report::Point { t: point.t, min: l.min as f64 / 1e6, mean: l.mean / 1e6, max: l.max as f64 / 1e6 })
}

/// Packets that were lost, on each leg and on all, and what the plan removed.
fn loss_map(record: &Record) -> Plot {
    let mut names = vec![("lost".to_owned(), "lost".to_owned())];
    for leg in 0..record.legs() {
        names.push((format!("leg{leg}.lost"), format!("lost on leg {leg}")));
        names.push((format!("faults.leg{leg}.removed"), format!("planned on leg {leg}")));
    }
    names.push(("kernel_dropped".into(), "socket without room".into()));
    let row = |(name, shown): (String, String)| {
        let cell = |p: &Point| MapCell { from: p.t - p.seconds, to: p.t, amount: grew(p, &name) };
        let cells: Vec<_> = record.points.iter().map(cell).filter(|c| c.amount > 0.0).collect();
        MapRow { name: shown, cells }
    };
    let rows = names.into_iter().map(row).enumerate().filter(|(n, row)| *n == 0 || !row.cells.is_empty());
    Plot::Map {
        title: "Loss".into(),
        unit: "packets".into(),
        seconds: record.elapsed_s,
        rows: rows.map(|(_, row)| row).collect(),
    }
}
