//! Reports that were written before, read again.

use super::{Report, SCHEMA};
use crate::error::{Error, Kind, Result};
use serde_json::Value;
use std::io::Read;
use std::path::Path;

/// No report is larger than this.
const MAX_OCTETS: u64 = 256 << 20;

impl Report {
    /// Reads a report that was written as JSON to a file, and that a certain verb made.
    ///
    /// # Errors
    /// The file cannot be read, or holds something else: what it is, and how to get a report.
    pub fn read(path: &Path, kind: &str) -> Result<Report> {
        let name = path.display();
        let mut octets = Vec::new();
        std::fs::File::open(path).and_then(|file| file.take(MAX_OCTETS + 1).read_to_end(&mut octets)).map_err(|e| {
            let failed = if e.kind() == std::io::ErrorKind::PermissionDenied { Kind::Permission } else { Kind::Data };
            Error::new(failed, format!("cannot read the report {name}"))
                .because(e)
                .cure("check the name, and that it may be read")
        })?;
        let other = |what: &str, cure: String| Err(Error::new(Kind::Data, format!("{name} is {what}")).cure(cure));
        let wanted = format!("give a file that gdmedia {kind} --report NAME.json wrote");
        if octets.len() as u64 > MAX_OCTETS {
            return other("larger than any report", wanted);
        }
        let begins = |text: &str| octets.trim_ascii_start().starts_with(text.as_bytes());
        if octets.trim_ascii().is_empty() {
            return other("empty", wanted);
        }
        if begins("<?xml") || begins("<testsuite") {
            return other("a report as JUnit XML", wanted);
        }
        if begins("<!DOCTYPE") || begins("<html") {
            return other("a report as HTML", wanted);
        }
        let value: Value = match serde_json::from_slice(&octets) {
            Ok(value) => value,
            Err(e) if begins("{") => {
                return Err(Error::new(Kind::Data, format!("{name} is damaged: it is no JSON"))
                    .because(e)
                    .cure(wanted));
            }
            Err(_) => return other("no JSON", wanted),
        };
        if value.get("stride").is_some() && value.get("elapsed_s").is_some() {
            return other(
                "a checkpoint of a soak test, not a report",
                format!("make its report first: gdmedia soak --from-checkpoint {name} --report NAME.json"),
            );
        }
        let (Some(schema), Some(made_by)) =
            (value.get("schema").and_then(Value::as_u64), value.get("kind").and_then(Value::as_str))
        else {
            return other("no report of gdmedia", wanted);
        };
        if schema != u64::from(SCHEMA) {
            let cure = "make it again with this version, or compare with the gdmedia that wrote it".to_owned();
            return other(&format!("a report of schema {schema}; this version reads schema {SCHEMA}"), cure);
        }
        if made_by != kind {
            return other(&format!("a report of gdmedia {made_by}, not of gdmedia {kind}"), wanted);
        }
        serde_json::from_value(value)
            .map_err(|e| Error::new(Kind::Data, format!("{name} is a damaged report")).because(e).cure("make it again"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Form, render};

    #[test]
    fn what_a_file_is_instead_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.json");
        let report = Report::new("soak", "x");
        let other = Report { schema: SCHEMA + 1, ..report.clone() };
        let of = |report: &Report, form| render(report, form).unwrap();
        for (text, says) in [
            (of(&report, Form::Junit), "JUnit XML"),
            (of(&report, Form::Html), "as HTML"),
            (of(&report, Form::Text), "no JSON"),
            (of(&other, Form::Json), "of schema 2; this version reads schema 1"),
            (of(&Report::new("analyze", "x"), Form::Json), "a report of gdmedia analyze, not of gdmedia soak"),
            (of(&report, Form::Json)[..40].to_owned(), "is damaged"),
            ("{\"schema\":1,\"kind\":\"soak\"}".into(), "damaged report"),
            ("{\"version\":1,\"elapsed_s\":1,\"stride\":1}".into(), "--from-checkpoint"),
            ("{}".into(), "no report of gdmedia"),
            ("[1]".into(), "no report of gdmedia"),
            (" \n".into(), "empty"),
        ] {
            std::fs::write(&path, &text).unwrap();
            let error = Report::read(&path, "soak").unwrap_err();
            assert!(error.to_string().contains(says) && error.to_string().contains("old.json"), "{text}: {error}");
            assert!(error.kind() == Kind::Data && !error.cure_text().is_empty(), "{error}");
        }
        std::fs::write(&path, of(&report, Form::Json)).unwrap();
        assert_eq!(Report::read(&path, "soak").unwrap(), report);
        let error = Report::read(&folder.path().join("none.json"), "soak").unwrap_err();
        assert!(error.to_string().contains("none.json") && !error.cure_text().is_empty(), "{error}");
    }
}
