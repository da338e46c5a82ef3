//! `gdmedia export`: a recording as a file of other programs.

use super::{same, say, stop};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::record::Recording;
use gdmedia::record::export::{Exported, Part, export};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of the verb.
#[derive(clap::Args)]
pub struct Args {
    /// The recording: a .gdr file, or the folder of one
    #[arg(value_name = "FILE|FOLDER")]
    recording: PathBuf,
    /// Where to, and how: FILE.y4m, .raw, .mov, .png (one frame, or all where the name has %d or %06d), or - for y4m on standard output
    #[arg(long, value_name = "FILE|-")]
    to: PathBuf,
    /// Begin with this frame of the recording, counted from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
    /// So many frames at most
    #[arg(long, value_name = "N")]
    frames: Option<u64>,
    /// Report as one JSON object on standard error
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<ExitCode> {
    let Args { recording: from, to, first, frames, json } = args;
    let stop = stop::install()?;
    if !Recording::is_at(&from) && !from.exists() {
        return Err(Error::new(Kind::Data, format!("there is no {}", from.display()))
            .cure("check the name and the folder you are in"));
    }
    let recording = Recording::open(&from)?;
    let inputs: Vec<&Path> = recording.segments().iter().map(|segment| Path::new(segment.name())).collect();
    same::refuse(&inputs, &[&to])?;
    let Exported { frames, damaged, first: wrong } = export(&recording, &to, Part { first, frames }, &stop)?;
    let remarks = recording.remarks();
    if json {
        say::say!(
            "{}",
            json!({ "type": "summary", "to": to, "frames": frames, "damaged": damaged, "first_damaged": wrong, "remarks": remarks })
        );
        return Ok(ExitCode::SUCCESS);
    }
    say::say!("wrote {frames} frames to {}", to.display());
    if damaged > 0 {
        say::say!("{damaged} damaged frames were left out; the first: {}", wrong.unwrap_or_default());
    }
    remarks.iter().for_each(|remark| say::say!("{remark}"));
    Ok(ExitCode::SUCCESS)
}
