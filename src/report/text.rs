//! A report on a terminal.

use super::{Check, Report, Severity, Table};
use std::fmt::Write;

/// How it may look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// ANSI colours.
    pub colour: bool,
    /// Every check; else only those that are not passed.
    pub all: bool,
}

/// The report as text; plots are left out.
pub fn render(report: &Report, style: Style) -> String {
    let mut out = String::new();
    // Writing into a string does not fail.
    let _ = write_report(&mut out, report, style);
    out
}

fn write_report(out: &mut String, report: &Report, style: Style) -> std::fmt::Result {
    writeln!(out, "{}", bold(&line(&report.title), style))?;
    for section in &report.sections {
        writeln!(out, "\n{}", bold(&line(&section.title), style))?;
        if !section.note.is_empty() {
            writeln!(out, "  {}", line(&section.note))?;
        }
        let width = section.facts.iter().map(|f| f.name.chars().count()).max().unwrap_or(0);
        for fact in &section.facts {
            write!(out, "  {:width$}  {}", line(&fact.name), line(&fact.value))?;
            match fact.hint.is_empty() {
                true => writeln!(out)?,
                false => writeln!(out, "  ({})", line(&fact.hint))?,
            }
        }
        for table in &section.tables {
            write_table(out, table)?;
        }
        for check in report.checks.iter().filter(|c| c.group == section.title) {
            write_check(out, check, style)?;
        }
    }
    let elsewhere = |c: &&Check| !report.sections.iter().any(|s| s.title == c.group);
    if report.checks.iter().any(|c| elsewhere(&c) && (style.all || c.severity != Severity::Pass)) {
        writeln!(out)?;
        for check in report.checks.iter().filter(elsewhere) {
            write_check(out, check, style)?;
        }
    }
    if !report.events.is_empty() {
        writeln!(out, "\n{}", bold("Events", style))?;
        const SHOWN: usize = 12;
        for event in report.events.iter().take(SHOWN) {
            writeln!(out, "  {:>12.6} s  {}: {}", event.at, line(&event.group), line(&event.text))?;
        }
        let more = report.events.len().saturating_sub(SHOWN) as u64 + report.events_left_out;
        if more > 0 {
            writeln!(out, "  and {more} more")?;
        }
    }
    let word = coloured(report.verdict.text(), report.verdict, style);
    writeln!(out, "\n{word}: {}", line(&report.summary))?;
    writeln!(out, "{}", report.verdict_text())
}

fn write_check(out: &mut String, check: &Check, style: Style) -> std::fmt::Result {
    if check.severity == Severity::Pass && !style.all {
        return Ok(());
    }
    let clause = if check.clause.is_empty() { String::new() } else { format!(" [{}]", line(&check.clause)) };
    let word = coloured(check.severity.text(), check.severity, style);
    writeln!(out, "  {word}: {}: {}{clause}", line(&check.name), line(&check.message))
}

fn write_table(out: &mut String, table: &Table) -> std::fmt::Result {
    let columns = table.columns.len();
    let cell = |row: &[String], n: usize| row.get(n).map(|c| line(c)).unwrap_or_default();
    let rows = std::iter::once(&table.columns).chain(&table.rows);
    let widths: Vec<usize> =
        (0..columns).map(|n| rows.clone().map(|r| cell(r, n).chars().count()).max().unwrap_or(0)).collect();
    if !table.title.is_empty() {
        writeln!(out, "  {}", line(&table.title))?;
    }
    for row in rows {
        let mut text = String::from("   ");
        for (n, width) in widths.iter().enumerate() {
            let gap = if n == 0 { " " } else { "  " };
            let _ = match table.numeric(n) {
                false => write!(text, "{gap}{:width$}", cell(row, n)),
                true => write!(text, "{gap}{:>width$}", cell(row, n)),
            };
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}

/// What came from a network may hold anything: it stays on its line and commands no terminal.
fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn bold(text: &str, style: Style) -> String {
    if style.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
}

fn coloured(text: &str, severity: Severity, style: Style) -> String {
    let code = match severity {
        Severity::Pass => 32,
        Severity::NotMeasurable => 36,
        Severity::Warning => 33,
        Severity::Failure => 31,
    };
    if style.colour { format!("\x1b[1;{code}m{text}\x1b[0m") } else { text.to_owned() }
}
