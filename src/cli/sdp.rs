//! `gdmedia sdp`: what an SDP says, and what is wrong with it.

use super::load;
use gdmedia::error::{Error, Kind, Result};
use gdmedia::sdp::{self, Description, Diagnostic, Mode, Severity};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

/// Options of the verb.
#[derive(clap::Args)]
pub struct Args {
    /// File, `-` for standard input, or http:// URL of the SDP.
    #[arg(value_name = "FILE|-|URL")]
    from: String,
    /// Print JSON: usable, flows, diagnostics.
    #[arg(long)]
    json: bool,
    /// What a standard forbids is an error, even where a receiver can live with it.
    #[arg(long)]
    strict: bool,
}

/// Runs the verb. Exit status 0: nothing to complain of, 1: warnings, 2: errors.
pub fn run(args: Args) -> Result<ExitCode> {
    let text = match load::sdp_text(&args.from) {
        Ok(text) => text,
        Err(error) => {
            if args.json {
                print(&unreadable(&error))?;
            }
            return Err(error);
        }
    };
    let mode = if args.strict { Mode::Strict } else { Mode::Lenient };
    let description = sdp::parse(&text, mode);
    if args.json {
        print(&json(&description)?)?;
    } else {
        print(&human(&description, &text))?;
    }
    Ok(ExitCode::from(match description.worst() {
        None | Some(Severity::Note) => 0,
        Some(Severity::Warning) => 1,
        Some(Severity::Error) => 2,
    }))
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

fn json(description: &Description) -> Result<String> {
    let text = serde_json::to_string_pretty(description)
        .map_err(|e| Error::new(Kind::Internal, "cannot write the description as JSON").because(e))?;
    Ok(text + "\n")
}

/// The same shape for text that could not be had at all.
fn unreadable(error: &Error) -> String {
    let message = error.to_string();
    let message = message.split("\n  cure:").next().unwrap_or("");
    let value = serde_json::json!({
        "usable": false,
        "flows": [],
        "diagnostics": [{
            "severity": "error", "code": "cannot-read", "line": 0, "column": 0, "parameter": "",
            "message": message, "cure": error.cure_text(), "clause": "",
        }],
    });
    format!("{value:#}\n")
}

fn human(description: &Description, text: &[u8]) -> String {
    let mut out = String::new();
    for d in &description.diagnostics {
        finding(&mut out, d, text);
    }
    out
}

/// One finding as a compiler shows it: what, the line with a caret, the cure and the clause.
fn finding(out: &mut String, d: &Diagnostic, _text: &[u8]) {
    let _ = writeln!(out, "{}: {} [{}]", d.severity.as_str(), d.message, d.code);
    let _ = writeln!(out, "  cure: {}", d.cure);
}
