//! `gdmedia record`: receive a flow and record its frames; check recordings; measure a disk.

use super::{play, say};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::record::read::{self, Known};
use gdmedia::record::{Found, Recording, Segment};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of the verb: those of play, and these.
#[derive(clap::Args)]
#[group(id = "recording")]
pub struct Args {
    #[command(flatten)]
    play: play::Args,
    #[command(flatten)]
    own: Own,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Recording")]
struct Own {
    /// The folder that gets the recording
    #[arg(long, value_name = "FOLDER", conflicts_with = "record")]
    to: Option<PathBuf>,
    /// Receive nothing: read every frame of a recording, and give segments that were not finished their index
    #[arg(long, value_name = "FILE|FOLDER", conflicts_with_all = ["to", "record"])]
    check: Option<PathBuf>,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<ExitCode> {
    let Args { mut play, own } = args;
    if let Some(path) = &own.check {
        return check(path, play.json());
    }
    if let Some(folder) = own.to {
        play.record_to(folder);
    }
    if !play.records() {
        return Err(Error::new(Kind::Usage, "where to? no folder is given for the recording")
            .cure("gdmedia record --sdp stream.sdp --to FOLDER"));
    }
    play.count_only_by_default();
    play::run(play)
}

/// Reads every slot.
fn check(path: &Path, json: bool) -> Result<ExitCode> {
    let mut all = Found::default();
    let mut frames = 0;
    for segment in Recording::open(path)?.segments() {
        let file = Path::new(segment.name());
        let made = segment.known() == Known::Scan;
        if made {
            read::mend(file)?;
        }
        let segment = Segment::open(file)?;
        let found = segment.check(|_, _| {});
        frames += segment.entries().len();
        let end = segment.end().map_or("was not finished", |end| end.text());
        if json {
            say::say!("{}", json!({ "type": "segment", "file": file, "index_made": made, "end": end, "found": found }));
        } else {
            let index = if made { ", index made" } else { "" };
            say::say!(
                "{}: {} frames good, {} damaged, {} never written whole{index}; {end}",
                file.display(),
                found.good,
                found.damaged,
                found.empty
            );
        }
        all.add(found);
    }
    let sound = all.damaged + all.empty == 0;
    if json {
        say::say!("{}", json!({ "type": "summary", "slots": frames, "found": all }));
    } else {
        say::say!(
            "{} of {frames} frames good, {} incomplete as they came; {} left out while it was recorded",
            all.good,
            all.incomplete,
            all.left_out
        );
        all.first.iter().for_each(|first| say::say!("  {first}"));
    }
    Ok(ExitCode::from(if sound { 0 } else { 2 }))
}
