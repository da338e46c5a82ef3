//! `gdmedia soak`: receive for hours; judge by thresholds, against a baseline and against planned faults; report.

mod source;

use self::source::Source;
use super::play::{self, Follow, Now, Run, Start};
use super::reports::Reports;
use super::usage::wanted;
use super::{duration, same, say};
use gdmedia::error::{Error, Result};
use gdmedia::fault::FaultPlan;
use gdmedia::pipeline::meter::{LegTiming, Range};
use gdmedia::report::{Form, Report, Severity};
use gdmedia::soak::{
    Baseline, Judges, Record, Sample, Threshold, checkpoint, log::Logs, metric, process, record, summary,
};
use gdmedia::worker;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

/// Options of the verb: those of play, and these.
#[derive(clap::Args)]
#[group(id = "soak")]
pub struct Args {
    #[command(flatten)]
    play: play::Args,
    #[command(flatten)]
    own: Own,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Soak test")]
struct Own {
    /// Send the stream as well: the test pattern, or a capture again and again, to where the SDP says
    #[arg(long, value_name = "pattern|CAPTURE", conflicts_with = "pcap")]
    source: Option<String>,
    /// What comes before does not count
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    warm_up: Duration,
    /// The run has failed (exit code 2) where this holds at its end: lost>0, latency.complete.p99.9>2ms, rss.slope>10MiB/h
    #[arg(long, value_name = "EXPRESSION", value_parser = threshold)]
    fail_if: Vec<Threshold>,
    /// There is something to look at (exit code 1) where this holds
    #[arg(long, value_name = "EXPRESSION", value_parser = threshold)]
    warn_if: Vec<Threshold>,
    /// List the metrics that expressions may use
    #[arg(long)]
    metrics: bool,
    /// Write a report; its name ends in .json, .xml (JUnit), .html or .txt. May be given several times
    #[arg(long, value_name = "FILE")]
    report: Vec<PathBuf>,
    /// Fail where this run is worse than an earlier one: its report as JSON
    #[arg(long, value_name = "FILE.json")]
    baseline: Option<PathBuf>,
    /// Keep all that was measured in a file that survives a crash
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Between two checkpoints
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s", requires = "checkpoint")]
    checkpoint_every: Duration,
    /// Receive nothing: make the report of a run that left this checkpoint
    #[arg(long, value_name = "FILE", conflicts_with_all = ["checkpoint", "source", "histograms"])]
    from_checkpoint: Option<PathBuf>,
    /// Write latencies as logs of HdrHistogram into this folder, one for each hop
    #[arg(long, value_name = "FOLDER")]
    histograms: Option<PathBuf>,
}

fn threshold(text: &str) -> std::result::Result<Threshold, String> {
    text.parse().map_err(|wrong: gdmedia::soak::Wrong| {
        wanted(wrong, "write it like lost>0 or latency.complete.p99.9>2ms; gdmedia soak --metrics lists the names")
    })
}

impl Own {
    fn judges(&self) -> Result<Judges> {
        let baseline = self.baseline.as_deref().map(baseline).transpose()?;
        Ok(Judges { fail_if: self.fail_if.clone(), warn_if: self.warn_if.clone(), baseline })
    }
}

fn baseline(path: &Path) -> Result<(String, Baseline)> {
    Ok((path.display().to_string(), Baseline { metrics: Report::read(path, "soak")?.metrics }))
}

/// Runs the verb.
pub fn run(args: Args) -> Result<ExitCode> {
    let json = args.play.json();
    play::told(soak(args), json)
}

fn soak(args: Args) -> Result<ExitCode> {
    let Args { mut play, own } = args;
    if own.metrics {
        return list();
    }
    for path in &own.report {
        Form::of(path)?;
    }
    let judges = own.judges()?;
    let outputs: Vec<&Path> = own.report.iter().map(PathBuf::as_path).collect();
    if let Some(path) = &own.from_checkpoint {
        let inputs: Vec<&Path> = own.baseline.as_deref().into_iter().chain([path.as_path()]).collect();
        same::refuse(&inputs, &outputs)?;
        let record = checkpoint::read(path)?;
        return finish(&record, &judges, Reports::open(&own.report)?, play.json());
    }
    let capture = own.source.as_deref().filter(|s| *s != source::PATTERN).map(Path::new);
    let checkpoint = own.checkpoint.as_deref();
    let beside = checkpoint.map(checkpoint::beside);
    let inputs = [own.baseline.as_deref(), capture].into_iter().flatten().chain(play.inputs()).collect::<Vec<_>>();
    let outputs = outputs.into_iter().chain(checkpoint).chain(beside.as_deref()).chain(play.outputs());
    same::refuse(&inputs, &outputs.collect::<Vec<_>>())?;
    play.called("gdmedia soak");
    play.count_only_by_default();
    let reports = Reports::open(&own.report)?;
    let mut soak = Soak::new(own, judges, reports, play.fault()?, play.json());
    play::run_with(play, &mut soak)
}

/// Prints what expressions may use.
fn list() -> Result<ExitCode> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    for m in metric::METRICS {
        // Whoever reads may stop to.
        let _ = writeln!(out, "{:24} {}", m.name, m.meaning);
    }
    Ok(ExitCode::SUCCESS)
}

/// A run that is followed.
struct Soak {
    own: Own,
    judges: Judges,
    reports: Reports,
    fault: Option<FaultPlan>,
    json: bool,
    record: Record,
    begun: Instant,
    remarks: usize,
    logs: Option<Logs>,
    written: Instant,
    source: Option<Source>,
    /// What cannot be measured was told.
    told: bool,
    /// The first thing that went wrong with files; told at the end, for the run is worth more than one of them.
    failure: Option<Error>,
}

impl Soak {
    fn new(own: Own, judges: Judges, reports: Reports, fault: Option<FaultPlan>, json: bool) -> Self {
        let now = Instant::now();
        Soak {
            own,
            judges,
            reports,
            fault,
            json,
            record: Record::default(),
            begun: now,
            remarks: 0,
            logs: None,
            written: now,
            source: None,
            told: false,
            failure: None,
        }
    }

    fn keep<T>(&mut self, result: Result<T>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }

    /// Takes an interval.
    fn take(&mut self, now: &mut Now<'_>, usage: process::Usage) {
        let elapsed = self.begun.elapsed();
        if let Some(mut logs) = self.logs.take() {
            let added = if self.record.is_measuring() {
                logs.add(now.latency, elapsed)
            } else {
                logs.skip(now.latency, elapsed)
            };
            self.logs = Some(logs);
            self.keep(added);
        }
        let seen = now.time.seen();
        let sample = Sample {
            seconds: elapsed.as_secs_f64(),
            counters: counters(now, &seen),
            usage,
            gpu_memory: now.gpu_memory,
            ptp_offset_ns: seen.ptp.ok().and_then(|state| state.offset_ns),
        };
        self.record.add(sample, now.latency);
        let at = self.record.elapsed_s;
        for remark in now.report.remarks.iter().skip(self.remarks) {
            self.record.event(at, Severity::Pass, "receiver", remark.clone());
        }
        self.remarks = now.report.remarks.len();
        for text in now.events {
            self.record.event(at, Severity::Warning, "run", text.clone());
        }
        let largest = |of: fn(&LegTiming) -> Option<Range>| now.timing.iter().filter_map(of).map(|r| r.max).max();
        for (name, value) in [
            ("timing.cinst", largest(|leg| leg.cinst)),
            ("timing.vrx", largest(|leg| leg.vrx)),
            ("timing.fpt", largest(|leg| leg.fpt_ns)),
        ] {
            value.into_iter().for_each(|value| self.record.set(name, value as f64));
        }
        if !now.timing.is_empty() {
            let classes = now.timing.iter().map(|leg| leg.class);
            self.record.set("timing.compliance", metric::class_of(classes));
        }
        if let Some(why) = now.timing.iter().find_map(|leg| leg.not_measurable.as_ref())
            && !std::mem::replace(&mut self.told, true)
        {
            self.record.decisions.push(format!("timing: CINST and VRX {why}"));
        }
        if let Some(sent) = self.source.as_ref().and_then(Source::ended) {
            source::note(&mut self.record, &sent);
        }
    }

    fn checkpoint(&mut self) {
        if let Some(path) = &self.own.checkpoint {
            let written = checkpoint::write(&self.record, path);
            self.written = Instant::now();
            self.keep(written);
        }
    }
}

impl Follow for Soak {
    fn begin(&mut self, run: &Run<'_>, start: &Start) -> Result<()> {
        self.begun = Instant::now();
        let wall = SystemTime::now();
        let since = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        self.record = Record::new(run.flow.name.clone(), since, self.own.warm_up.as_secs_f64());
        self.record.environment = environment();
        self.record.decisions = start.texts().collect();
        self.record.fault_plan = self.fault.as_ref().map(ToString::to_string);
        self.logs = self.own.histograms.as_deref().map(|folder| Logs::create(folder, wall)).transpose()?;
        self.source = self.own.source.as_deref().map(|from| Source::start(from, run)).transpose()?;
        self.checkpoint();
        // A file that cannot be written is told at once.
        self.failure.take().map_or(Ok(()), Err)
    }

    fn interval(&mut self, now: &mut Now<'_>) {
        self.take(now, process::usage());
        if self.written.elapsed() >= self.own.checkpoint_every {
            self.checkpoint();
        }
    }

    fn status(&self) -> Option<String> {
        let state = match self.judges.worst(&self.record) {
            _ if !self.record.is_measuring() => "warm-up",
            Severity::Failure => "FAIL",
            Severity::Warning => "warn",
            _ => "ok",
        };
        Some(format!("| {} {state}", clock(self.record.elapsed_s)))
    }

    fn failed(&self) -> bool {
        self.source.as_ref().is_some_and(Source::has_failed)
    }

    fn end(&mut self, now: &mut Now<'_>, why: &str) -> Result<ExitCode> {
        // What the process uses when most of it is gone says nothing of the run.
        if let Some(source) = self.source.take() {
            let sent = source.stop();
            self.take(now, process::Usage::default());
            match sent {
                Ok(sent) => source::note(&mut self.record, &sent),
                Err(error) => self.keep::<()>(Err(error)),
            }
        } else {
            self.take(now, process::Usage::default());
        }
        self.record.ended = Some(why.to_owned());
        self.checkpoint();
        let done = finish(&self.record, &self.judges, std::mem::take(&mut self.reports), self.json);
        self.failure.take().map_or(done, Err)
    }
}

/// Says what came out, and writes the reports: in this order, so that it is said whatever becomes of the files.
fn finish(record: &Record, judges: &Judges, reports: Reports, json: bool) -> Result<ExitCode> {
    let report = summary(record, judges);
    if json {
        let checks: Vec<_> = report.checks.iter().filter(|c| c.severity > Severity::Pass).collect();
        say::say!(
            "{}",
            serde_json::json!({
                "type": "soak", "verdict": report.verdict, "summary": report.summary, "checks": checks, "metrics": report.metrics,
            })
        );
    } else {
        say::say!("{:>8}  {}; {}", "soak", report.summary, report.verdict_text());
        for check in report.checks.iter().filter(|c| c.severity > Severity::Pass) {
            say::say!("{:>8}  {}: {}: {}", check.severity.text(), check.group, check.name, check.message);
        }
    }
    reports.write(&report, |path| {
        if !json {
            say::say!("{:>8}  {}", "report", path.display());
        }
    })?;
    Ok(ExitCode::from(report.verdict.exit_code()))
}

/// Every counter by its name, from the beginning.
fn counters(now: &Now<'_>, seen: &gdmedia::ptp::Seen) -> record::Counters {
    let worker::Report { rx, packets, frames, faults, legs, .. } = now.report;
    let mut out = record::Counters::new();
    let mut add = |name: String, value: u64| out.insert(name, value);
    for (name, value) in [
        ("datagrams", rx.datagrams),
        ("octets", rx.octets),
        ("kernel_dropped", rx.kernel_dropped),
        ("overwritten", rx.overwritten),
        ("received", packets.received),
        ("lost", packets.lost),
        ("late", packets.late),
        ("duplicate", packets.duplicate),
        ("reordered", packets.reordered),
        ("restarts", packets.restarts),
        ("rejected", packets.rejected.total() + rx.rejected.total()),
        ("frames.complete", frames.complete),
        ("frames.incomplete", frames.incomplete),
        ("frames.torn", frames.torn),
        ("frames.dropped", frames.dropped + now.sinks.dropped()),
        ("frames.missing_octets", frames.missing_octets),
        ("ptp.grandmaster_changes", seen.grandmaster_changes),
        ("ptp.unlocked", seen.unlocked),
    ] {
        add(name.into(), value);
    }
    // One leg is the flow.
    for (n, leg) in legs.iter().enumerate().filter(|_| legs.len() > 1) {
        for (name, value) in [
            ("received", leg.received),
            ("lost", leg.lost),
            ("late", leg.late),
            ("duplicate", leg.duplicate),
            ("reordered", leg.reordered),
            ("used", leg.used),
            ("redundant", leg.redundant),
            ("foreign", leg.foreign),
        ] {
            add(format!("leg{n}.{name}"), value);
        }
    }
    for (n, leg) in faults.iter().enumerate() {
        for (name, value) in [
            ("seen", leg.seen),
            ("removed", leg.removed),
            ("lost", leg.lost),
            ("killed", leg.killed),
            ("limited", leg.limited),
            ("duplicated", leg.duplicated),
            ("held", leg.held),
            ("hurried", leg.hurried),
            ("corrupted", leg.corrupted),
            ("restarts", leg.restarts),
        ] {
            add(format!("faults.leg{n}.{name}"), value);
        }
    }
    if !faults.is_empty() {
        add("faults.removed".into(), faults.iter().map(|leg| leg.removed).sum());
    }
    out
}

/// Where it runs.
fn environment() -> Vec<(String, String)> {
    let text = |path: &str| std::fs::read_to_string(path).map(|t| t.trim().to_owned()).unwrap_or_default();
    let cpu = text("/proc/cpuinfo")
        .lines()
        .find_map(|l| Some(l.strip_prefix("model name")?.trim_start_matches([' ', '\t', ':']).to_owned()));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let mut out = vec![
        ("gdmedia".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("kernel".into(), text("/proc/sys/kernel/osrelease")),
        ("cores".into(), cores.to_string()),
        ("cpu".into(), cpu.unwrap_or_default()),
        ("command".into(), std::env::args().collect::<Vec<_>>().join(" ")),
    ];
    out.retain(|(_, value)| !value.is_empty());
    out
}

/// `1:02:03`.
fn clock(seconds: f64) -> String {
    let s = seconds as u64;
    if s < 3600 {
        format!("{}:{:02}", s / 60, s % 60)
    } else {
        format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_as_on_a_clock() {
        assert_eq!([super::clock(9.9), super::clock(75.0), super::clock(3723.0)], ["0:09", "1:15", "1:02:03"]);
    }
}
