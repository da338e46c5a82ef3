//! What the timing of a sender is held against, where that is not what the standards say.

use gdmedia::error::Result;
use gdmedia::timing::limits::Limits;
use std::path::{Path, PathBuf};

/// Options of verbs that judge timing.
#[derive(Clone, clap::Args)]
pub struct Held {
    /// Limits of timing in place of the standards': a table [limits] in a TOML file (docs/timing.md)
    #[arg(long, value_name = "FILE.toml")]
    limits: Option<PathBuf>,
    /// One limit of timing, such as cmax=6 or fpt_us=0..700; may be given several times, and goes before --limits
    #[arg(long = "limit", value_name = "KEY=VALUE")]
    limit: Vec<String>,
}

impl Held {
    /// All of them, the standards' where nothing else is said.
    ///
    /// # Errors
    /// Those of [`Limits::read`] and [`Limits::set`].
    pub fn limits(&self) -> Result<Limits> {
        let mut limits = Limits::default();
        if let Some(path) = &self.limits {
            limits.read(path)?;
        }
        self.limit.iter().try_for_each(|text| limits.set(text))?;
        Ok(limits)
    }
    /// The file that is read.
    pub fn file(&self) -> Option<&Path> {
        self.limits.as_deref()
    }
    /// None was given.
    pub fn is_empty(&self) -> bool {
        self.limits.is_none() && self.limit.is_empty()
    }
}
