//! The command line: one file a verb.

mod analyze;
mod doctor;
mod export;
mod held;
mod load;
mod play;
mod record;
mod reports;
mod same;
mod say;
mod sdp;
mod send;
mod soak;
mod stop;
mod usage;
mod xdp_helper;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Receives SMPTE ST 2110 and shows, writes or counts it. `gdmedia --sdp FILE` is short for `gdmedia play FILE`.
#[derive(Parser)]
#[command(name = "gdmedia", version, args_conflicts_with_subcommands = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    play: play::Args,
}

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of it, for a moment")]
enum Verb {
    /// Receive a flow: show, write and count it.
    Play(play::Args),
    /// Read an SDP file: what it says, and what is wrong with it.
    Sdp(sdp::Args),
    /// Send a test stream, or replay a capture.
    Send(send::Args),
    /// Receive a flow and record its frames as they are; check recordings; say what a disk holds.
    Record(record::Args),
    /// Write a recording as a file of other programs: y4m, raw, PNG, MOV.
    Export(export::Args),
    /// Receive for hours, judge it by thresholds, and write a report.
    Soak(soak::Args),
    /// Look through a capture: its flows, what is lost of them, and their timing by ST 2110-21.
    Analyze(analyze::Args),
    /// Look at this machine: what it has for an SDP, what is missing, and what to do about it. Changes nothing.
    Doctor(doctor::Args),
    /// Hand AF_XDP sockets to receivers that run without rights.
    XdpHelper(xdp_helper::Args),
}

/// Runs the program.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let help = matches!(e.kind(), clap::error::ErrorKind::DisplayHelp | clap::error::ErrorKind::DisplayVersion);
            if help || e.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
                let _ = e.print();
            } else if std::env::args_os().any(|arg| arg == "--json") {
                play::usage_error(&usage::explained(&e));
            } else {
                say::say!("{}", usage::explained(&e).trim_end());
            }
            return ExitCode::from(if help { 0 } else { gdmedia::Kind::Usage.exit_code() });
        }
    };
    // What the libraries below have to say; the program's own words are printed by the verbs.
    let level = std::env::var("GDMEDIA_LOG").ok().and_then(|v| v.parse().ok()).unwrap_or(tracing::Level::WARN);
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).without_time().init();
    let result = match cli.verb {
        None => play::run(cli.play),
        Some(Verb::Play(args)) => play::run(args),
        Some(Verb::Sdp(args)) => sdp::run(args),
        Some(Verb::Send(args)) => send::run(args),
        Some(Verb::Record(args)) => record::run(args),
        Some(Verb::Export(args)) => export::run(args),
        Some(Verb::Soak(args)) => soak::run(args),
        Some(Verb::Analyze(args)) => analyze::run(args),
        Some(Verb::Doctor(args)) => doctor::run(args),
        Some(Verb::XdpHelper(args)) => xdp_helper::run(&args),
    };
    result.unwrap_or_else(|error| {
        say::say!("gdmedia: {error}");
        ExitCode::from(error.kind().exit_code())
    })
}

/// No time that somebody gives is longer.
const LONGEST: std::time::Duration = std::time::Duration::from_secs(36_525 * 86_400);

/// A time with its unit: `500us`, `20ms`, `1.5s`, `10min`, `2h`; a bare number is in seconds.
fn duration(text: &str) -> Result<std::time::Duration, String> {
    let wrong = |why: &str| usage::wanted(why, "write a time like 500us, 30s or 2h");
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(wrong(&format!("unknown unit {unit:?}: us, ms, s, min, h or d"))),
    };
    let number: f64 = number.parse().map_err(|_| wrong("a number with its unit is wanted"))?;
    let time = std::time::Duration::try_from_secs_f64(number * scale).map_err(|e| wrong(&e.to_string()))?;
    // Far from where the clock of a computer ends.
    if time > LONGEST { Err(wrong("more than a hundred years")) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn durations() {
        for (text, wanted) in [
            ("500us", Duration::from_micros(500)),
            ("20ms", Duration::from_millis(20)),
            ("1.5s", Duration::from_millis(1500)),
            ("7", Duration::from_secs(7)),
            ("2h", Duration::from_secs(7200)),
            ("0", Duration::ZERO),
        ] {
            assert_eq!(duration(text), Ok(wanted), "{text}");
        }
        for text in ["", "s", "-1s", "1 fortnight", "1e400", "9999999999999999999999d", "500000000000d", "1.2.3s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
