//! Files that reports go to: begun before the work, written after it, each whatever becomes of the others.

use super::say::say;
use gdmedia::error::Result;
use gdmedia::report::{Place, Report};
use std::path::{Path, PathBuf};

/// Reports that were asked for.
#[derive(Default)]
pub struct Reports(Vec<Place>);

impl Reports {
    /// Begins all of them.
    ///
    /// # Errors
    /// Those of [`Place::open`], for the first that cannot be begun.
    pub fn open(paths: &[PathBuf]) -> Result<Self> {
        paths.iter().map(|path| Place::open(path)).collect::<Result<_>>().map(Reports)
    }

    /// Writes all of them; `written` is told the name of each that could be.
    ///
    /// # Errors
    /// Those of [`Place::write`], of the first that could not be written; further ones are said.
    pub fn write(self, report: &Report, mut written: impl FnMut(&Path)) -> Result<()> {
        let mut first = Ok(());
        for place in self.0 {
            let path = place.path().to_owned();
            match place.write(report) {
                Ok(()) => written(&path),
                Err(error) if first.is_ok() => first = Err(error),
                Err(error) => say!("gdmedia: {error}"),
            }
        }
        first
    }
}
