//! Reads Prometheus' text format 0.0.4 by its rules, and complains about whatever breaks one:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>, and for names
//! <https://prometheus.io/docs/practices/naming/>.

#![allow(dead_code, reason = "each user needs a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

type Labels = BTreeMap<String, String>;

pub struct Page {
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<String, Vec<(Labels, f64)>>,
}

impl Page {
    pub fn samples(&self, name: &str) -> &[(Labels, f64)] {
        self.samples.get(name).map(Vec::as_slice).unwrap_or_default()
    }
    /// Of the sample with exactly these labels.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels: Labels = labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        self.samples(name).iter().find(|(of, _)| *of == labels).map(|(_, value)| *value)
    }
    /// Those that there are, by name and kind.
    pub fn names(&self) -> &BTreeMap<String, String> {
        &self.kinds
    }
    /// All counters, by their series.
    pub fn counters(&self) -> BTreeMap<String, f64> {
        let counter = |name: &String| self.kinds.get(name).is_some_and(|kind| kind == "counter");
        let all = self.samples.iter().filter(|(name, _)| counter(name));
        all.flat_map(|(name, samples)| samples.iter().map(move |(labels, value)| (format!("{name}{labels:?}"), *value)))
            .collect()
    }
}

const LABELS: [&str; 18] = [
    "receiver",
    "leg",
    "reason",
    "state",
    "sink",
    "domain",
    "hop",
    "quantile",
    "version",
    "label",
    "format",
    "backend",
    "processor",
    "core",
    "node",
    "gm",
    "interface",
    "gpu",
];

pub fn read(text: &str) -> Page {
    assert!(text.ends_with('\n'), "the last line has an end");
    let mut page = Page { kinds: BTreeMap::new(), samples: BTreeMap::new() };
    let (mut helps, mut series, mut done) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(helps.insert(name.to_owned()), "{name} has two helps");
            assert!(help.ends_with('.') && help.len() > 5, "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(helps.contains(name), "{name} has its help before its type");
            assert!(["counter", "gauge", "summary"].contains(&kind), "{line}");
            assert!(page.kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} has two types");
            assert!(done.insert(std::mem::replace(&mut current, name.to_owned())), "{name} comes in pieces");
            name_is_sound(name, kind);
        } else {
            assert!(!line.starts_with('#') && !line.is_empty(), "{line:?}");
            let (name, labels, value) = sample(line);
            let plain = if page.kinds[&current] == "summary" {
                name.strip_suffix("_sum").or(name.strip_suffix("_count")).unwrap_or(&name)
            } else {
                &name
            };
            assert_eq!(plain, current, "samples stand below their type");
            assert!(series.insert((name.clone(), labels.clone())), "twice: {line}");
            for label in labels.keys() {
                assert!(LABELS.contains(&label.as_str()) || label == "gm", "{label}");
            }
            assert!(page.kinds[&current] != "counter" || value >= 0.0, "{line}");
            page.samples.entry(name).or_default().push((labels, value));
        }
    }
    page
}

fn name_is_sound(name: &str, kind: &str) {
    assert!(name.starts_with("gdmedia_") || name.starts_with("process_"), "{name}");
    assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name}");
    assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
    for unit in [
        "_ms",
        "_us",
        "_ns",
        "_milliseconds",
        "_microseconds",
        "_nanoseconds",
        "_octets",
        "_bits",
        "_kilobytes",
        "_percent",
    ] {
        assert!(!name.contains(&format!("{unit}_")) && !name.ends_with(unit), "{name} is in no base unit");
    }
}

/// `name{label="value",...} 1.5`
fn sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("{line}"));
    let (name, mut rest) = line.split_at(end);
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            let (mut value, mut chars) = (String::new(), after.char_indices());
            let end = loop {
                match chars.next().unwrap_or_else(|| panic!("{line}")) {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next() {
                        Some((_, 'n')) => '\n',
                        Some((_, c @ ('\\' | '"'))) => c,
                        other => panic!("{other:?} in {line}"),
                    }),
                    (_, c) => value.push(c),
                }
            };
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            rest = &after[end + 1..];
            match rest.split_at(1) {
                (",", more) => rest = more,
                ("}", more) => {
                    rest = more;
                    break;
                }
                _ => panic!("{line}"),
            }
        }
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line}"));
    (name.to_owned(), labels, value.parse().unwrap_or_else(|_| panic!("{line}")))
}

/// Where it is installed, or where scripts/setup lays it.
pub fn promtool() -> Option<PathBuf> {
    let laid = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target/promtool/usr/bin/promtool");
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join("promtool")).chain([laid]).find(|file| file.is_file())
}
