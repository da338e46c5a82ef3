//! Checkpoints: a record as a file that is whole at every instant, also when the process is killed while it writes.

use super::record::{Record, VERSION};
use crate::error::{Error, Kind, Result};
use crate::report::replace;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// The name under which the next one is written, in the same folder so that it can be renamed.
pub fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// Writes a checkpoint: under another name first, to the disk, then in its place.
///
/// # Errors
/// The file cannot be written.
pub fn write(record: &Record, path: &Path) -> Result<()> {
    let beside = beside(path);
    // Piece by piece: all of it at once would be memory that grows with the run.
    let put = |file: &File| {
        let mut out = BufWriter::with_capacity(1 << 16, file);
        serde_json::to_writer(&mut out, record)?;
        out.flush()
    };
    let written = File::create(&beside).and_then(|file| put(&file).and_then(|()| replace(&file, &beside, path)));
    written.map_err(|e| {
        Error::new(Kind::Output, format!("cannot write the checkpoint {}", path.display()))
            .because(e)
            .cure("check the folder, its permissions and the space on the disk")
    })
}

#[derive(serde::Deserialize)]
struct Head {
    version: u32,
}

/// Reads a checkpoint.
///
/// # Errors
/// It cannot be read, is none, or was written by another version.
pub fn read(path: &Path) -> Result<Record> {
    let cannot = || Error::new(Kind::Data, format!("{} is no checkpoint of a soak test", path.display()));
    let text = fs::read(path).map_err(|e| {
        let cure = "check the name, and that it may be read";
        Error::new(Kind::Data, format!("cannot read the checkpoint {}", path.display())).because(e).cure(cure)
    })?;
    let other = |e| cannot().because(e).cure("give the file that --checkpoint wrote");
    // First: what another version has besides may be anything.
    let Head { version } = serde_json::from_slice(&text).map_err(other)?;
    if version != VERSION {
        let what = format!("{} has version {version}, not {VERSION}", path.display());
        return Err(Error::new(Kind::Data, what).cure("make the report with the gdmedia that wrote it"));
    }
    serde_json::from_slice(&text).map_err(other)
}
