//! What is wrong with a description, where, and what was assumed instead.

use serde::Serialize;
use std::collections::HashMap;

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

impl Severity {
    /// The word that people and JSON read.
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
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

/// A place in the text as it was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct At {
    pub line: u32,
    pub column: u32,
}

impl At {
    /// The text as a whole.
    pub const TEXT: At = At { line: 0, column: 0 };
    /// A line as a whole.
    pub const fn line(line: u32) -> At {
        At { line, column: 0 }
    }
}

/// How often one code is reported in full; what comes after is only counted.
const PER_CODE: u32 = 24;

/// Collects findings, and bounds how many there can be.
pub(crate) struct Findings {
    strict: bool,
    list: Vec<Diagnostic>,
    seen: HashMap<(&'static str, Severity), (u32, u32)>,
}

impl Findings {
    pub fn new(strict: bool) -> Self {
        Findings { strict, list: Vec::new(), seen: HashMap::new() }
    }

    /// Worth knowing.
    pub fn note(
        &mut self,
        code: &'static str,
        clause: &'static str,
        at: At,
        parameter: &str,
        what: String,
        cure: &str,
    ) {
        self.push(Severity::Note, code, clause, at, parameter, what, cure);
    }

    /// Suspicious, though no standard forbids it.
    pub fn warn(
        &mut self,
        code: &'static str,
        clause: &'static str,
        at: At,
        parameter: &str,
        what: String,
        cure: &str,
    ) {
        self.push(Severity::Warning, code, clause, at, parameter, what, cure);
    }

    /// Forbidden by `clause`, but a receiver can live with it: a warning, in strict mode an error.
    pub fn deviates(
        &mut self,
        code: &'static str,
        clause: &'static str,
        at: At,
        parameter: &str,
        what: String,
        cure: &str,
    ) {
        let severity = if self.strict { Severity::Error } else { Severity::Warning };
        self.push(severity, code, clause, at, parameter, what, cure);
    }

    /// No flow can be received because of it.
    pub fn error(
        &mut self,
        code: &'static str,
        clause: &'static str,
        at: At,
        parameter: &str,
        what: String,
        cure: &str,
    ) {
        self.push(Severity::Error, code, clause, at, parameter, what, cure);
    }

    #[allow(clippy::too_many_arguments)]
    fn push(
        &mut self,
        severity: Severity,
        code: &'static str,
        clause: &'static str,
        at: At,
        parameter: &str,
        message: String,
        cure: &str,
    ) {
        let (count, last) = self.seen.entry((code, severity)).or_default();
        *count += 1;
        *last = at.line;
        if *count <= PER_CODE {
            self.list.push(Diagnostic {
                severity,
                code,
                line: at.line,
                column: at.column,
                parameter: clip(parameter),
                message,
                cure: cure.to_owned(),
                clause,
            });
        }
    }

    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|d| d.severity == Severity::Error)
    }

    /// In the order of the text; what was only counted is said at the end.
    pub fn finish(mut self) -> Vec<Diagnostic> {
        self.list.sort_by_key(|d| (d.line, d.column));
        let mut more: Vec<_> = self.seen.iter().filter(|(_, (count, _))| *count > PER_CODE).collect();
        more.sort();
        for (&(code, severity), &(count, last)) in more {
            self.list.push(Diagnostic {
                severity,
                code,
                line: last,
                column: 0,
                parameter: String::new(),
                message: format!("{} more of `{code}`, the last one here", count - PER_CODE),
                cure: "mend the first ones and look again".to_owned(),
                clause: "",
            });
        }
        self.list
    }
}

/// A piece of the input, short enough to be quoted in a message.
pub(crate) fn clip(text: &str) -> String {
    const MOST: usize = 60;
    if text.len() <= MOST {
        return text.to_owned();
    }
    let mut end = MOST;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}
