//! `gdmedia analyze`: the flows of a capture, what is lost of them, and their timing.

use super::held::Held;
use super::reports::Reports;
use super::say::say;
use super::{load, same, stop};
use gdmedia::analyze::{Options, analyze};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::report::{Form, Report, text};
use gdmedia::sdp::{self, Mode, Severity};
use gdmedia::timing::buckets::{Method, Tvd};
use gdmedia::timing::{Rules, Source};
use gdmedia::wire::capture::Capture;
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Options of the verb.
#[derive(clap::Args)]
pub struct Args {
    /// The capture: pcap or pcapng, gzipped or not
    #[arg(value_name = "CAPTURE")]
    capture: PathBuf,
    /// SDP of what should be in it: file, `-`, http:// or https:// URL; may be given several times
    #[arg(long, value_name = "FILE|-|URL")]
    sdp: Vec<String>,
    /// Write a report; its suffix says in which form: .json, .xml (JUnit), .html, .txt; may be given several times
    #[arg(long, value_name = "FILE")]
    report: Vec<PathBuf>,
    /// Print the report as JSON instead of text
    #[arg(long)]
    json: bool,
    /// Print the checks that passed too
    #[arg(long)]
    all: bool,
    /// Who stamped the packets: a card or a tap on the wire, or software; auto: judged by what can be seen
    #[arg(long, value_enum, default_value = "auto")]
    trust: Trust,
    /// Seconds from the capture's clock to TAI: 37 when it ran on UTC. Without it a distance of 37 s is found and named
    #[arg(long, value_name = "SECONDS", default_value_t = 0, allow_negative_numbers = true)]
    tai_offset: i64,
    /// How buckets are reckoned: as ST 2110-21 has it, or as EBU LIST does
    #[arg(long, value_enum, default_value = "standard")]
    method: MethodArg,
    /// Where the first read of a frame is reckoned from: the epoch, or the first packet of the first frame
    #[arg(long, value_enum, default_value = "epoch")]
    tvd: TvdArg,
    #[command(flatten)]
    held: Held,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Trust {
    Auto,
    Hardware,
    Software,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum MethodArg {
    Standard,
    List,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum TvdArg {
    Epoch,
    First,
}

/// Runs the verb. Exit status 0: nothing to complain of, 1: warnings, 2: failures.
pub fn run(args: Args) -> Result<ExitCode> {
    // Before hours of reading: what the reports are to be, and that none of them takes the capture's place.
    for path in &args.report {
        Form::of(path)?;
    }
    let outputs: Vec<&Path> = args.report.iter().map(PathBuf::as_path).collect();
    let mut inputs = vec![args.capture.as_path()];
    inputs.extend(args.sdp.iter().map(Path::new).chain(args.held.file()));
    same::refuse(&inputs, &outputs)?;
    let mut options = Options {
        flows: Vec::new(),
        source: match args.trust {
            Trust::Auto => Source::Capture,
            Trust::Hardware => Source::Hardware,
            Trust::Software => Source::Software,
        },
        rules: Rules {
            method: match args.method {
                MethodArg::Standard => Method::Standard,
                MethodArg::List => Method::List,
            },
            tvd: match args.tvd {
                TvdArg::Epoch => Tvd::Epoch,
                TvdArg::First => Tvd::FirstPacket,
            },
            limits: args.held.limits()?,
        },
        tai_offset: args.tai_offset,
    };
    for from in &args.sdp {
        options.flows.extend(flows(from)?);
    }
    let reports = Reports::open(&args.report)?;
    let mut capture = Capture::open_ahead(&args.capture)?;
    let stop = stop::install()?;
    let mut bar = Bar::new(&args.capture, capture.gzip());
    let analysis = analyze(&mut capture, &options, &mut |octets| {
        bar.show(octets);
        !stop.load(Ordering::Relaxed)
    });
    bar.clear();
    let report = analysis?.report();
    // First, so that it is there whatever becomes of the files.
    let printed = print(&report, &args);
    let written = reports.write(&report, |path| say!("report: {}", path.display()));
    printed.and(written)?;
    Ok(ExitCode::from(report.verdict.exit_code()))
}

fn print(report: &Report, args: &Args) -> Result<()> {
    let out = std::io::stdout();
    let style = text::Style { colour: out.is_terminal() && std::env::var_os("NO_COLOR").is_none(), all: args.all };
    let text = if args.json { report.json()? } else { text::render(report, style) };
    let mut out = out.lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever reads has seen enough, as with `| head`.
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::new(Kind::Output, "cannot write to standard output")
                .because(e)
                .cure("is there room where it goes to?"))
        }
        _ => Ok(()),
    }
}

/// The flows of an SDP, those that no receiver here takes too.
fn flows(from: &str) -> Result<Vec<sdp::Flow>> {
    let description = sdp::parse(&load::sdp_text(from)?, Mode::Lenient);
    if description.flows.is_empty() {
        let worst = description.diagnostics.iter().find(|d| d.severity == Severity::Error);
        let (why, cure) = worst.map_or(("", "see gdmedia sdp"), |d| (d.message.as_str(), d.cure.as_str()));
        return Err(Error::new(Kind::Data, format!("no flow in {from}: {why}")).cure(cure));
    }
    Ok(description.flows)
}

/// How far it is, on a terminal.
struct Bar {
    /// Octets of the file, where it is as long as what is read.
    total: Option<u64>,
    begun: Instant,
    shown: Option<Instant>,
    terminal: bool,
}

impl Bar {
    fn new(path: &Path, gzip: bool) -> Self {
        let total = std::fs::metadata(path).ok().map(|m| m.len()).filter(|n| !gzip && *n > 0);
        Bar { total, begun: Instant::now(), shown: None, terminal: std::io::stderr().is_terminal() }
    }
    fn show(&mut self, octets: u64) {
        let now = Instant::now();
        let due = self.shown.map_or(self.begun + Duration::from_millis(300), |s| s + Duration::from_millis(100));
        if !self.terminal || now < due {
            return;
        }
        self.shown = Some(now);
        let rate = octets as f64 / 1e9 / now.duration_since(self.begun).as_secs_f64();
        let mut out = std::io::stderr().lock();
        let _ = match self.total {
            Some(total) => {
                const WIDTH: u64 = 30;
                let (part, percent) = ((octets * WIDTH / total).min(WIDTH), (octets * 100 / total).min(100));
                let (done, left) = ("#".repeat(part as usize), "-".repeat((WIDTH - part) as usize));
                write!(out, "\r[{done}{left}] {percent:3} %, {rate:.2} GB/s ")
            }
            None => write!(out, "\r{:.1} MB, {rate:.2} GB/s ", octets as f64 / 1e6),
        };
        let _ = out.flush();
    }
    fn clear(&self) {
        if self.shown.is_some() {
            let mut out = std::io::stderr().lock();
            let _ = write!(out, "\r\x1b[K").and_then(|()| out.flush());
        }
    }
}
