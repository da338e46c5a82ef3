//! The command line: one file a verb.

mod analyze;
#[cfg(feature = "daemon")]
mod daemon;
mod doctor;
mod export;
mod held;
mod load;
mod manual;
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
use std::sync::LazyLock;

/// What `--version` says: with what it was built, which says which backends and sinks there may be.
static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    let features = [
        ("cuda", cfg!(feature = "cuda")),
        ("daemon", cfg!(feature = "daemon")),
        ("gst", cfg!(feature = "gst")),
        ("preview", cfg!(feature = "preview")),
        ("dpdk", cfg!(feature = "dpdk")),
        ("rivermax", cfg!(feature = "rivermax")),
        ("rivermax-stand-in", cfg!(feature = "rivermax-stand-in")),
        ("verbs", cfg!(feature = "verbs")),
    ];
    let names: Vec<&str> = features.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    let names = if names.is_empty() { "none".into() } else { names.join(", ") };
    format!("{}\nfeatures: {names}", env!("CARGO_PKG_VERSION"))
});

/// Receives SMPTE ST 2110 and shows, writes or counts it. `gdmedia --sdp FILE` is short for `gdmedia play FILE`.
#[derive(Parser)]
#[command(name = "gdmedia", version, long_version = LONG_VERSION.as_str())]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
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
    /// Run many receivers around the clock, as a configuration says, and show and steer them over HTTP.
    #[cfg(feature = "daemon")]
    Daemon(daemon::Args),
    /// Hand AF_XDP sockets to receivers that run without rights.
    XdpHelper(xdp_helper::Args),
    /// Write man pages.
    #[command(hide = true)]
    Man(manual::Man),
    /// Write completions for bash, zsh and fish.
    #[command(hide = true)]
    Completions(manual::Completions),
}

/// Runs the program.
pub fn main() -> ExitCode {
    // Before there is another thread, which would not have them.
    gdmedia::rights::raise();
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
        #[cfg(feature = "daemon")]
        Some(Verb::Daemon(args)) => daemon::run(args),
        Some(Verb::XdpHelper(args)) => xdp_helper::run(&args),
        Some(Verb::Man(args)) => manual::man(&args, <Cli as clap::CommandFactory>::command()),
        Some(Verb::Completions(args)) => manual::completions(&args, <Cli as clap::CommandFactory>::command()),
    };
    result.unwrap_or_else(|error| {
        say::say!("gdmedia: {error}");
        ExitCode::from(error.kind().exit_code())
    })
}

/// A time with its unit: `500us`, `20ms`, `1.5s`, `10min`, `2h`; a bare number is in seconds.
fn duration(text: &str) -> Result<std::time::Duration, String> {
    gdmedia::time::duration(text).map_err(|why| usage::wanted(why, "write a time like 500us, 30s or 2h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
