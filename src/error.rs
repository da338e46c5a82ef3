//! Errors that a person reads: what failed, and what to do about it. The hot path has none, it has counters.

use std::fmt;

/// What kind of failure it is; each has its exit code (`sysexits` habit).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// No media before the time that `--wait` allows.
    NoMedia,
    /// The command line is wrong.
    Usage,
    /// The SDP or the capture is not usable.
    Data,
    /// A backend, an interface, an address, a device or a plug-in is not available.
    Unavailable,
    /// Output failed: disk full, broken pipe.
    Output,
    /// The operating system refuses.
    Permission,
    /// A fault of this program.
    Internal,
}

impl Kind {
    /// The exit code of the process.
    pub const fn exit_code(self) -> u8 {
        match self {
            Kind::NoMedia => 3,
            Kind::Usage => 64,
            Kind::Data => 65,
            Kind::Unavailable => 69,
            Kind::Internal => 70,
            Kind::Output => 74,
            Kind::Permission => 77,
        }
    }
}

/// A failure with its cause and its cure.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    what: String,
    cure: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// `what` names what failed and on what: "UDP port 5004 on 127.0.0.1 is in use".
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Error { kind, what: what.into(), cure: String::new(), source: None }
    }
    /// What the user can do about it, one sentence.
    #[must_use]
    pub fn cure(mut self, cure: impl Into<String>) -> Self {
        self.cure = cure.into();
        self
    }
    /// The error beneath.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
    /// Its kind.
    pub const fn kind(&self) -> Kind {
        self.kind
    }
    /// What failed and why, without the cure, for where a line is all there is.
    pub fn in_one_line(&self) -> String {
        self.to_string().lines().next().unwrap_or_default().to_owned()
    }
    /// What can be done about it; empty when nothing is known.
    pub fn cure_text(&self) -> &str {
        &self.cure
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        if !self.cure.is_empty() {
            write!(f, "\n  cure: {}", self.cure)?;
        }
        Ok(())
    }
}

impl From<gdmedia_convert::format::Unsupported> for Error {
    fn from(e: gdmedia_convert::format::Unsupported) -> Error {
        Error::new(Kind::Usage, e.to_string()).cure(e.cure())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}
