//! Reports of what was measured: plain values in, text out. `analyze` and `soak` fill the same [`Report`].
//!
//! | form | for | module |
//! | --- | --- | --- |
//! | text | a terminal | [`text`] |
//! | JSON | programs; its shape is that of [`Report`], its version [`SCHEMA`] | [`Report::json`] |
//! | JUnit XML | test systems: a test case for every check | [`junit`] |
//! | HTML | people: one file with its plots, which asks nothing of any server | [`html`] |
//!
//! JSON has no numbers that are infinite or none. Where one came out so, it is left out with what it belongs to.

pub mod html;
pub mod junit;
mod place;
mod plot;
mod read;
pub mod text;

pub use place::Place;
pub(crate) use place::replace;

use crate::error::{Error, Kind, Result};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::path::Path;

/// Version of the JSON: rises when something is renamed or removed, or means something else.
pub const SCHEMA: u32 = 1;

/// How bad something is, the best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// As it should be.
    #[default]
    Pass,
    /// Could not be judged, and why is said.
    NotMeasurable,
    /// Something to look at.
    Warning,
    /// A standard, or a threshold, is not met.
    Failure,
}

impl Severity {
    /// For people.
    pub const fn text(self) -> &'static str {
        match self {
            Severity::Pass => "pass",
            Severity::NotMeasurable => "not measurable",
            Severity::Warning => "warning",
            Severity::Failure => "failure",
        }
    }
    /// Exit status of a program whose worst finding this is: 0, 1 for warnings, 2 for failures.
    pub const fn exit_code(self) -> u8 {
        match self {
            Severity::Pass | Severity::NotMeasurable => 0,
            Severity::Warning => 1,
            Severity::Failure => 2,
        }
    }
}

/// A report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The verb that made it: `analyze`, `soak`.
    pub kind: String,
    /// Its heading.
    pub title: String,
    /// One sentence: what came out.
    pub summary: String,
    /// The worst of the checks.
    pub verdict: Severity,
    /// What was judged.
    pub checks: Vec<Check>,
    /// Numbers by name, for comparisons: `flow0.leg0.vrx_gapped.max`.
    #[serde(serialize_with = "finite_metrics")]
    pub metrics: BTreeMap<String, f64>,
    /// Figures, tables and plots.
    pub sections: Vec<Section>,
    /// What happened, in the order of time.
    #[serde(serialize_with = "finite")]
    pub events: Vec<Event>,
    /// Events that were left out because there were too many.
    pub events_left_out: u64,
    /// What was decided on the way, and why.
    pub decisions: Vec<String>,
    /// Where and with what it was made: names and values.
    pub environment: Vec<(String, String)>,
}

/// One thing that was judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What it belongs to: a flow, a leg, the run.
    pub group: String,
    /// Its name.
    pub name: String,
    /// What came out.
    pub severity: Severity,
    /// What was found, and why that is so judged.
    pub message: String,
    /// The clause of a standard, where there is one; else empty.
    pub clause: String,
}

/// A part of the report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// A sentence below it; may be empty.
    pub note: String,
    /// Figures: name, value with unit.
    pub facts: Vec<Fact>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Plots.
    pub plots: Vec<Plot>,
}

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// What it is.
    pub name: String,
    /// With its unit.
    pub value: String,
    /// What it means, or what it is held against; may be empty.
    pub hint: String,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Its heading.
    pub title: String,
    /// Headings of its columns.
    pub columns: Vec<String>,
    /// Rows, with a cell for each column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A column of numbers, which belongs on the right: its cells are numbers, or have nothing to say.
    fn numeric(&self, column: usize) -> bool {
        let number = |cell: &String| cell.parse::<f64>().is_ok() || matches!(cell.as_str(), "" | "-");
        !self.rows.is_empty() && self.rows.iter().all(|row| row.get(column).is_none_or(number))
    }
}

/// A picture of numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "plot", rename_all = "snake_case")]
pub enum Plot {
    /// Lines over time, each with its extremes.
    Series {
        /// Its heading.
        title: String,
        /// Of the values.
        unit: String,
        /// One line for each name.
        lines: Vec<Line>,
        /// Values to hold them against.
        #[serde(serialize_with = "finite")]
        limits: Vec<Limit>,
    },
    /// How often each value came.
    Histogram {
        /// Its heading.
        title: String,
        /// Of the values.
        unit: String,
        /// In the order of their values.
        #[serde(serialize_with = "finite")]
        bins: Vec<Bin>,
        /// Values to hold them against.
        #[serde(serialize_with = "finite")]
        limits: Vec<Limit>,
    },
    /// Amounts over time, a row for each name: where losses lie.
    Map {
        /// Its heading.
        title: String,
        /// Of the amounts.
        unit: String,
        /// Seconds that the picture spans.
        #[serde(serialize_with = "finite_or_zero")]
        seconds: f64,
        /// The rows.
        rows: Vec<MapRow>,
    },
}

/// A line of a series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// In the order of time.
    #[serde(serialize_with = "finite")]
    pub points: Vec<Point>,
}

/// Some time of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Seconds since the beginning.
    pub t: f64,
    /// The smallest value in this time.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The largest.
    pub max: f64,
}

/// A value to hold others against.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// Its name.
    pub name: String,
    /// In the unit of the plot.
    pub value: f64,
}

/// A bin of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Its first value.
    pub from: f64,
    /// The first value beyond it.
    pub to: f64,
    /// How often.
    pub count: u64,
}

/// A row of a map.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MapRow {
    /// Its name.
    pub name: String,
    /// What there is, in the order of time; times without anything are left out.
    #[serde(serialize_with = "finite")]
    pub cells: Vec<MapCell>,
}

/// Some time of a map's row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MapCell {
    /// Seconds since the beginning.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// How much.
    pub amount: f64,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds since the beginning.
    pub at: f64,
    /// How bad it is.
    pub severity: Severity,
    /// What it happened to.
    pub group: String,
    /// What.
    pub text: String,
}

impl Report {
    /// An empty one.
    pub fn new(kind: impl Into<String>, title: impl Into<String>) -> Self {
        Report { schema: SCHEMA, kind: kind.into(), title: title.into(), ..Report::default() }
    }

    /// Adds a check, and makes the verdict at least as bad.
    pub fn check(&mut self, check: Check) {
        self.verdict = self.verdict.max(check.severity);
        self.checks.push(check);
    }

    /// How many checks came out so.
    pub fn count(&self, severity: Severity) -> usize {
        self.checks.iter().filter(|c| c.severity == severity).count()
    }

    /// The verdict and how many checks there were, in words.
    pub fn verdict_text(&self) -> String {
        let several = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let mut parts = Vec::new();
        for (severity, what) in [(Severity::Failure, "failure"), (Severity::Warning, "warning")] {
            if self.count(severity) > 0 {
                parts.push(several(self.count(severity), what));
            }
        }
        if self.count(Severity::NotMeasurable) > 0 {
            parts.push(format!("{} not measurable", self.count(Severity::NotMeasurable)));
        }
        parts.push(format!("{} passed", self.count(Severity::Pass)));
        parts.join(", ")
    }

    /// A report as JSON.
    ///
    /// # Errors
    /// None that is known: numbers that JSON does not have are left out.
    pub fn json(&self) -> Result<String> {
        serde_json::to_string_pretty(self)
            .map(|text| text + "\n")
            .map_err(|e| Error::new(Kind::Internal, "cannot write the report as JSON").because(e))
    }

    /// Reads a report that was written as JSON.
    ///
    /// # Errors
    /// It is none, or of a schema that is not known.
    pub fn from_json(text: &str) -> Result<Report> {
        let report: Report = serde_json::from_str(text).map_err(|e| {
            Error::new(Kind::Data, "this is no report of gdmedia")
                .because(e)
                .cure("give a file that --report NAME.json wrote")
        })?;
        if report.schema != SCHEMA {
            return Err(Error::new(Kind::Data, format!("the report has schema {}, not {SCHEMA}", report.schema))
                .cure("make it again with this version"));
        }
        Ok(report)
    }
}

/// The forms that files have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `.json`
    Json,
    /// `.xml`
    Junit,
    /// `.html`, `.htm`
    Html,
    /// `.txt`
    Text,
}

impl Form {
    /// By the suffix of a file's name.
    ///
    /// # Errors
    /// Another suffix, or none.
    pub fn of(path: &Path) -> Result<Form> {
        let suffix = path.extension().map(|s| s.to_string_lossy().to_ascii_lowercase());
        Ok(match suffix.as_deref() {
            Some("json") => Form::Json,
            Some("xml") => Form::Junit,
            Some("html" | "htm") => Form::Html,
            Some("txt") => Form::Text,
            _ => {
                return Err(Error::new(Kind::Usage, format!("{}: no form of a report by this name", path.display()))
                    .cure("let it end in .json, .xml (JUnit), .html or .txt"));
            }
        })
    }
}

/// A report in one of the forms.
///
/// # Errors
/// Those of [`Report::json`].
pub fn render(report: &Report, form: Form) -> Result<String> {
    Ok(match form {
        Form::Json => report.json()?,
        Form::Junit => junit::render(report),
        Form::Html => html::render(report),
        Form::Text => text::render(report, text::Style::default()),
    })
}

/// Writes a report to a file in the form of its name: under another name first, then in its place, so that there is never
/// half of one. Where the work before it takes long, [`Place`] says at its beginning whether this will do.
///
/// # Errors
/// Those of [`Place::open`] and [`Place::write`].
pub fn write(report: &Report, path: &Path) -> Result<()> {
    Place::open(path)?.write(report)
}

/// Its numbers are such as JSON has.
trait Finite {
    fn is_finite(&self) -> bool;
}

macro_rules! finite {
    ($($t:ident: $($field:ident),+;)+) => { $(impl Finite for $t {
        fn is_finite(&self) -> bool {
            [$(self.$field),+].iter().all(|n: &f64| n.is_finite())
        }
    })+ };
}

finite! {
    Point: t, min, mean, max;
    Limit: value;
    Bin: from, to;
    MapCell: from, to, amount;
    Event: at;
}

fn finite<T: Finite + Serialize, S: Serializer>(all: &[T], s: S) -> std::result::Result<S::Ok, S::Error> {
    s.collect_seq(all.iter().filter(|one| one.is_finite()))
}

fn finite_metrics<S: Serializer>(all: &BTreeMap<String, f64>, s: S) -> std::result::Result<S::Ok, S::Error> {
    s.collect_map(all.iter().filter(|(_, n)| n.is_finite()))
}

fn finite_or_zero<S: Serializer>(n: &f64, s: S) -> std::result::Result<S::Ok, S::Error> {
    s.serialize_f64(if n.is_finite() { *n } else { 0.0 })
}

/// Text for markup: the characters that XML and HTML give a meaning, and those that XML 1.0 does not have.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A number for people: three significant digits and more where it is large, no zeros behind.
pub fn number(value: f64) -> String {
    let size = value.abs();
    let digits = match size {
        0.0 => 0,
        s if s >= 1000.0 => 0,
        s if s >= 100.0 => 1,
        s if s >= 10.0 => 2,
        s if s >= 0.1 => 3,
        s if s >= 0.01 => 4,
        s if s >= 0.001 => 5,
        _ => 6,
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    match text {
        // Small ones would be cut to nothing.
        "0" | "-0" if size > 0.0 => format!("{value:.1e}"),
        "-0" => "0".into(),
        text => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
