//! `gdmedia doctor`: what this machine has for an SDP, what is missing, and what to do about it.

use super::load;
use gdmedia::doctor::advice::{Advice, Helps};
use gdmedia::doctor::report::About;
use gdmedia::doctor::{Finding, Here, Report, Request, Root, SCHEMA, State, Verdict, examine};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::sdp::Mode;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of the verb.
#[derive(clap::Args)]
pub struct Args {
    /// SDP of a stream that is to be received here: file, `-`, http:// or https:// URL; several times: all at once
    #[arg(long, value_name = "FILE|-|URL")]
    sdp: Vec<String>,
    /// Interface, by name or address; twice: one for each leg of ST 2022-7
    #[arg(long, value_name = "NAME|ADDRESS")]
    interface: Vec<String>,
    /// The packets come from this capture rather than from the network
    #[arg(long, value_name = "FILE", requires = "sdp")]
    pcap: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the JSON Schema of --json
    #[arg(long, exclusive = true)]
    schema: bool,
}

/// Runs the verb. Exit status 0: good, 1: could be better, 2: the SDP cannot be received here.
pub fn run(args: Args) -> Result<ExitCode> {
    if args.schema {
        print(SCHEMA)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut request = Request { interfaces: args.interface, capture: args.pcap, ..Request::default() };
    for name in args.sdp {
        let text = load::sdp_text(&name)?;
        request.sdps.push((name, gdmedia::sdp::parse(&text, Mode::Lenient)));
    }
    let report = examine(&request, &Root::new("/"), &Here);
    if args.json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|e| Error::new(Kind::Internal, "cannot write the report as JSON").because(e))?;
        print(&(text + "\n"))?;
    } else {
        print(&text(&report))?;
    }
    Ok(ExitCode::from(report.exit))
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever reads has seen enough, as with `| head`.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(Error::new(Kind::Output, "cannot write to standard output").because(e)),
        Ok(()) => Ok(()),
    }
}

fn text(report: &Report) -> String {
    let mut out = String::new();
    for section in &report.sections {
        let title = match section.about {
            About::Machine => "Machine".to_owned(),
            About::Flow => format!("SDP {}", printable(&section.name)),
            About::Interface => format!("Interface {}", section.name),
            About::WaysIn => "Ways in".to_owned(),
            About::ToTheGpu => "To the GPU".to_owned(),
        };
        // Writing into a string does not fail.
        let _ = writeln!(out, "{title}");
        for (names, finding) in grouped(&section.findings) {
            let _ = finding_text(&mut out, &names, finding);
        }
        out.push('\n');
    }
    let _ = advice_text(&mut out, &report.recommendation, report.verdict);
    out
}

/// What has no meaning here, for one and the same reason, takes one line.
fn grouped(findings: &[Finding]) -> Vec<(String, &Finding)> {
    let mut out: Vec<(String, &Finding)> = Vec::new();
    for f in findings {
        match out.last_mut() {
            Some((names, last)) if f.state == State::NotApplicable && last.state == f.state && last.text == f.text => {
                let _ = write!(names, ", {}", f.id);
            }
            _ => out.push((f.id.to_owned(), f)),
        }
    }
    out
}

fn finding_text(out: &mut String, names: &str, f: &Finding) -> std::fmt::Result {
    let state = match f.state {
        _ if f.blocks => "BLOCKS",
        State::Good => "good",
        State::CouldBeBetter => "better",
        State::Missing => "missing",
        State::NotApplicable => "-",
        State::NotKnown => "?",
    };
    let gap = if names.len() > 19 { "  " } else { "" };
    writeln!(out, "  {state:<8}{names:<20}{gap}{}", printable(&f.text))?;
    if !f.gives.is_empty() {
        writeln!(out, "{:30}for: {}", "", f.gives)?;
    }
    for (word, commands) in [("fix", &f.fix), ("see", &f.see)] {
        commands.iter().try_for_each(|command| writeln!(out, "{:30}{word}: {}", "", printable(command)))?;
    }
    Ok(())
}

fn advice_text(out: &mut String, advice: &Advice, verdict: Verdict) -> std::fmt::Result {
    let word = match verdict {
        Verdict::Good => "good",
        Verdict::CouldBeBetter => "could be better",
        Verdict::CannotReceive => "cannot be received here",
    };
    writeln!(out, "Recommendation: {word}")?;
    writeln!(out, "  {}", printable(&advice.summary))?;
    if let Some(l) = advice.latency {
        writeln!(
            out,
            "  a frame takes up to {:.1} ms to arrive, then up to {} ms until the receiver looks (--sleep), then {:.0} us (p50, measured on loopback)",
            l.frame_ms,
            l.sleep_ms,
            l.finish_ms * 1e3
        )?;
    }
    for load in advice.loads.iter().filter(|l| l.wanted > 0 && l.capacity.is_some()) {
        writeln!(out, "  carried: {}", load.words())?;
    }
    for t in &advice.techniques {
        let helps = match t.helps {
            Helps::Yes => "helps",
            Helps::Little => "little",
            Helps::Cannot => "cannot",
            Helps::NotKnown => "?",
        };
        writeln!(out, "  {helps:<8}{:<20}{}", t.name, printable(&t.reason))?;
    }
    Ok(())
}

/// Text of a stranger, without what could move the cursor.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
