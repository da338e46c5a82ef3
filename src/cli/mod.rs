//! The command line: one file a verb.

mod load;
mod play;
mod sdp;
mod send;
mod stop;

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
}

/// Runs the program.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            let help = matches!(e.kind(), clap::error::ErrorKind::DisplayHelp | clap::error::ErrorKind::DisplayVersion);
            return ExitCode::from(if help { 0 } else { gdmedia::Kind::Usage.exit_code() });
        }
    };
    let result = match cli.verb {
        None => play::run(cli.play),
        Some(Verb::Play(args)) => play::run(args),
        Some(Verb::Sdp(args)) => sdp::run(args),
        Some(Verb::Send(args)) => send::run(args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("gdmedia: {error}");
        ExitCode::from(error.kind().exit_code())
    })
}
