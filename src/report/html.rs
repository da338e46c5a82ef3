//! A report as one HTML file: nothing in it is asked of a server, and it follows the reader's light or dark.

use super::{Check, Report, Section, Severity, Table, escaped, plot};
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The report.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    // Writing into a string does not fail.
    let _ = page(&mut out, report);
    out
}

fn page(out: &mut String, report: &Report) -> std::fmt::Result {
    let title = escaped(&report.title);
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
    )?;
    let (class, word) = (class(report.verdict), report.verdict.text());
    write!(
        out,
        "<header class=\"{class}\">\n<p class=\"kind\">gdmedia {}</p>\n<h1>{title}</h1>\n\
         <p class=\"verdict\"><b class=\"badge\">{word}</b> {}</p>\n<p class=\"counts\">{}</p>\n</header>\n<main>\n",
        escaped(&report.kind),
        escaped(&report.summary),
        escaped(&report.verdict_text()),
    )?;
    checks(out, report)?;
    for part in &report.sections {
        section(out, part)?;
    }
    events(out, report)?;
    if !report.decisions.is_empty() {
        out.push_str("<section>\n<h2>Decisions</h2>\n<ul>\n");
        for decision in &report.decisions {
            writeln!(out, "<li>{}</li>", escaped(decision))?;
        }
        out.push_str("</ul>\n</section>\n");
    }
    if !report.environment.is_empty() {
        out.push_str("<section>\n<h2>Environment</h2>\n<dl>\n");
        for (name, value) in &report.environment {
            writeln!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escaped(name), escaped(value))?;
        }
        out.push_str("</dl>\n</section>\n");
    }
    write!(out, "</main>\n<div id=\"tip\" hidden></div>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n")
}

fn class(severity: Severity) -> &'static str {
    match severity {
        Severity::Pass => "pass",
        Severity::NotMeasurable => "open",
        Severity::Warning => "warn",
        Severity::Failure => "fail",
    }
}

/// The worst first; what is passed lies folded.
fn checks(out: &mut String, report: &Report) -> std::fmt::Result {
    let rows = |out: &mut String, wanted: &dyn Fn(Severity) -> bool| -> std::fmt::Result {
        let mut found: Vec<&Check> = report.checks.iter().filter(|c| wanted(c.severity)).collect();
        found.sort_by_key(|c| std::cmp::Reverse(c.severity));
        out.push_str("<ul class=\"checks\">\n");
        for check in found {
            let clause = match check.clause.is_empty() {
                true => String::new(),
                false => format!(" <cite>{}</cite>", escaped(&check.clause)),
            };
            writeln!(
                out,
                "<li class=\"{}\"><b class=\"badge\">{}</b><div><b>{}</b> <span class=\"group\">{}</span><p>{}{clause}</p></div></li>",
                class(check.severity),
                check.severity.text(),
                escaped(&check.name),
                escaped(&check.group),
                escaped(&check.message),
            )?;
        }
        out.push_str("</ul>\n");
        Ok(())
    };
    if report.checks.is_empty() {
        return Ok(());
    }
    let passed = report.count(Severity::Pass);
    out.push_str("<section>\n<h2>Checks</h2>\n");
    if passed < report.checks.len() {
        rows(out, &|s| s != Severity::Pass)?;
    }
    if passed > 0 {
        writeln!(out, "<details><summary>{passed} passed</summary>")?;
        rows(out, &|s| s == Severity::Pass)?;
        out.push_str("</details>\n");
    }
    out.push_str("</section>\n");
    Ok(())
}

fn section(out: &mut String, part: &Section) -> std::fmt::Result {
    write!(out, "<section>\n<h2>{}</h2>\n", escaped(&part.title))?;
    if !part.note.is_empty() {
        writeln!(out, "<p class=\"note\">{}</p>", escaped(&part.note))?;
    }
    if !part.facts.is_empty() {
        out.push_str("<dl>\n");
        for fact in &part.facts {
            let hint = match fact.hint.is_empty() {
                true => String::new(),
                false => format!(" <small>{}</small>", escaped(&fact.hint)),
            };
            writeln!(out, "<div><dt>{}</dt><dd>{}{hint}</dd></div>", escaped(&fact.name), escaped(&fact.value))?;
        }
        out.push_str("</dl>\n");
    }
    for table in &part.tables {
        table_html(out, table)?;
    }
    if !part.plots.is_empty() {
        out.push_str("<div class=\"plots\">\n");
        part.plots.iter().for_each(|p| out.push_str(&plot::figure(p)));
        out.push_str("</div>\n");
    }
    out.push_str("</section>\n");
    Ok(())
}

fn table_html(out: &mut String, table: &Table) -> std::fmt::Result {
    out.push_str("<div class=\"table\"><table>\n");
    if !table.title.is_empty() {
        writeln!(out, "<caption>{}</caption>", escaped(&table.title))?;
    }
    let row = |cells: &[String], tag: &str| {
        let cell = |(n, c): (usize, &String)| {
            let class = if table.numeric(n) { " class=\"n\"" } else { "" };
            format!("<{tag}{class}>{}</{tag}>", escaped(c))
        };
        let cells: String = cells.iter().enumerate().map(cell).collect();
        format!("<tr>{cells}</tr>\n")
    };
    write!(out, "<thead>{}</thead>\n<tbody>\n", row(&table.columns, "th"))?;
    table.rows.iter().for_each(|cells| out.push_str(&row(cells, "td")));
    out.push_str("</tbody>\n</table></div>\n");
    Ok(())
}

fn events(out: &mut String, report: &Report) -> std::fmt::Result {
    if report.events.is_empty() {
        return Ok(());
    }
    let more = match report.events_left_out {
        0 => String::new(),
        n => format!(" and {n} that are not listed"),
    };
    write!(out, "<section>\n<h2>Events</h2>\n<details><summary>{}{more}</summary>\n", report.events.len())?;
    out.push_str("<div class=\"table\"><table>\n<thead><tr><th>s</th><th>what</th><th>of</th></tr></thead>\n<tbody>\n");
    for event in &report.events {
        writeln!(
            out,
            "<tr class=\"{}\"><td>{:.6}</td><td>{}</td><td>{}</td></tr>",
            class(event.severity),
            event.at,
            escaped(&event.text),
            escaped(&event.group)
        )?;
    }
    out.push_str("</tbody>\n</table></div>\n</details>\n</section>\n");
    Ok(())
}
