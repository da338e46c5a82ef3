//! Failures at start, and refusals of requests.

use serde_json::{Value, json};
use std::fmt;

/// Something cannot be set up: what, why, and what to do about it.
#[derive(Debug)]
pub struct Error {
    what: String,
    cure: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(what: impl Into<String>, cure: impl Into<String>) -> Error {
        Error { what: what.into(), cure: cure.into(), source: None }
    }
    pub(crate) fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        self.source = Some(source.into());
        self
    }
    /// What can be done about it.
    pub fn cure(&self) -> &str {
        &self.cure
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|s| s as _)
    }
}

/// Why a request is refused: an HTTP status of 400 or more, and a text for the controller's user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub code: u16,
    /// What is wrong, and where it can be told, what would be right.
    pub error: String,
}

impl Refusal {
    pub(crate) fn new(code: u16, error: impl Into<String>) -> Refusal {
        Refusal { code, error: error.into() }
    }
    /// The request itself is wrong.
    pub(crate) fn bad(error: impl Into<String>) -> Refusal {
        Refusal::new(400, error)
    }
    /// The body that every NMOS API has for an error (IS-04 and IS-05, "APIs", "Error Codes & Responses").
    pub fn body(&self) -> Value {
        json!({ "code": self.code, "error": self.error, "debug": null })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.error)
    }
}
