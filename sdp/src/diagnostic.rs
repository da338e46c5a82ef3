//! What is wrong with a description, where, and what was assumed instead.

use serde::Serialize;

/// How much a finding matters to a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// A deviation; the receiver can go on with what was assumed.
    Warning,
    /// The flow cannot be received as described.
    Error,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// How much it matters.
    pub severity: Severity,
    /// Stable identifier, for example `fmtp-missing-parameter`.
    pub code: &'static str,
    /// Line in the text as it was given, from 1; 0 when the whole text is meant.
    pub line: u32,
    /// Column in octets, from 1; 0 when the whole line is meant.
    pub column: u32,
    /// The parameter or attribute that is concerned, empty when none is.
    pub parameter: String,
    /// What is wrong.
    pub message: String,
    /// What was assumed, or what to do.
    pub cure: String,
    /// Where the rule stands, for example `ST 2110-20:2017 7.2`.
    pub clause: &'static str,
}
