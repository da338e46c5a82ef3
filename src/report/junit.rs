//! A report as JUnit XML, as test systems read it: a suite for each group, a test case for each check.

use super::{Report, Severity, escaped};
use std::fmt::Write;

/// The report; failures are failures, what is not measurable is skipped, warnings are passed with their text.
pub fn render(report: &Report) -> String {
    let mut groups: Vec<&str> = Vec::new();
    for check in &report.checks {
        if !groups.contains(&check.group.as_str()) {
            groups.push(&check.group);
        }
    }
    let (failures, skipped) = (report.count(Severity::Failure), report.count(Severity::NotMeasurable));
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let name = escaped(&report.title);
    let tests = report.checks.len();
    // Writing into a string does not fail.
    let _ = writeln!(
        out,
        "<testsuites name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\">"
    );
    for group in groups {
        let of = |s: Severity| report.checks.iter().filter(|c| c.group == group && c.severity == s).count();
        let tests = report.checks.iter().filter(|c| c.group == group).count();
        let (failures, skipped) = (of(Severity::Failure), of(Severity::NotMeasurable));
        let group_name = escaped(group);
        let _ = writeln!(
            out,
            "  <testsuite name=\"{group_name}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\" time=\"0\">"
        );
        for check in report.checks.iter().filter(|c| c.group == group) {
            let (name, message) = (escaped(&check.name), escaped(&check.message));
            let clause = if check.clause.is_empty() { String::new() } else { format!(" [{}]", escaped(&check.clause)) };
            let _ = write!(out, "    <testcase classname=\"{group_name}\" name=\"{name}\" time=\"0\">");
            let _ = match check.severity {
                Severity::Failure => {
                    write!(out, "<failure message=\"{message}\" type=\"failure\">{message}{clause}</failure>")
                }
                Severity::NotMeasurable => write!(out, "<skipped message=\"{message}\"/>"),
                Severity::Warning => write!(out, "<system-out>warning: {message}{clause}</system-out>"),
                Severity::Pass => write!(out, "<system-out>{message}{clause}</system-out>"),
            };
            out.push_str("</testcase>\n");
        }
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}
