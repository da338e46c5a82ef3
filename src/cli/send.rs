//! `gdmedia send`.

use super::stop;
use std::process::ExitCode;

/// Options of the verb.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the verb.
pub fn run(_args: Args) -> gdmedia::error::Result<ExitCode> {
    let _stop = stop::install()?;
    Ok(ExitCode::SUCCESS)
}
