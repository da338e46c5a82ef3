//! Thresholds: comparisons of metrics with values, joined by `and` and `or`.
//!
//! ```text
//! any        = all { ("or" | "||") all }
//! all        = comparison { ("and" | "&&") comparison }
//! comparison = "(" any ")" | name operator (number [unit] | class)
//! operator   = ">" | ">=" | "<" | "<=" | "==" | "!="
//! ```
//!
//! A value has the unit of its metric: `us`, `ms`, `s`, `min`, `h` for times; `kB`, `MB`, `GB`, `KiB`, `MiB`, `GiB` for
//! octets, with `/h` for growth; `kb/s`, `Mb/s`, `Gb/s` for bit rates; `/s` and `/h` for what is counted by time. A class of
//! ST 2110-21 is a word: `narrow`, `narrow_linear`, `wide`, `not_compliant`, `unknown`; it is the same or another.

use super::metric::{self, CLASSES, METRICS, Unit};
use std::fmt;
use std::str::FromStr;

/// A threshold as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    text: String,
    any: Vec<Vec<Term>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Term {
    Compare(Comparison),
    Any(Vec<Vec<Term>>),
}

#[derive(Clone, Debug, PartialEq)]
struct Comparison {
    name: String,
    operator: Operator,
    value: f64,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    More,
    AtLeast,
    Less,
    AtMost,
    Equal,
    Not,
}

const OPERATORS: [(&str, Operator); 6] = [
    (">=", Operator::AtLeast),
    ("<=", Operator::AtMost),
    ("==", Operator::Equal),
    ("!=", Operator::Not),
    (">", Operator::More),
    ("<", Operator::Less),
];

/// What is wrong with a threshold, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Counted in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.what)
    }
}

impl std::error::Error for Wrong {}

/// What a threshold says of some values.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// It is met; none where that hangs on a metric that was not measured.
    pub met: Option<bool>,
    /// The values that were compared.
    pub text: String,
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Threshold {
    /// Asks for the values by their names.
    pub fn evaluate(&self, value: impl Fn(&str) -> Option<f64>) -> Outcome {
        let mut texts = Vec::new();
        let met = any(&self.any, &value, &mut texts);
        Outcome { met, text: texts.join(", ") }
    }
}

type Value<'a> = &'a dyn Fn(&str) -> Option<f64>;

/// Kleene's logic: what was not measured decides nothing that others decide.
fn any(terms: &[Vec<Term>], value: Value<'_>, texts: &mut Vec<String>) -> Option<bool> {
    let mut out = Some(false);
    for all in terms {
        let mut both = Some(true);
        for term in all {
            let met = match term {
                Term::Any(inner) => any(inner, value, texts),
                Term::Compare(comparison) => comparison.met(value, texts),
            };
            both = match (both, met) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), met) => met,
                (None, _) => None,
            };
        }
        out = match (out, both) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), both) => both,
            (None, _) => None,
        };
    }
    out
}

impl Comparison {
    fn met(&self, value: Value<'_>, texts: &mut Vec<String>) -> Option<bool> {
        let Some(found) = value(&self.name) else {
            texts.push(format!("{} was not measured", self.name));
            return None;
        };
        texts.push(format!("{} is {}", self.name, metric::show(found, self.unit)));
        Some(match self.operator {
            Operator::More => found > self.value,
            Operator::AtLeast => found >= self.value,
            Operator::Less => found < self.value,
            Operator::AtMost => found <= self.value,
            Operator::Equal => found == self.value,
            Operator::Not => found != self.value,
        })
    }
}

impl FromStr for Threshold {
    type Err = Wrong;
    fn from_str(text: &str) -> Result<Self, Wrong> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let any = parser.any()?;
        parser.blanks();
        if parser.at < text.len() {
            return Err(parser.wrong("and, or, or the end is wanted here"));
        }
        Ok(Threshold { text: text.trim().to_owned(), any })
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

/// Brackets within brackets at most.
const DEPTH: u32 = 32;

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }
    fn blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }
    fn wrong(&self, what: impl Into<String>) -> Wrong {
        let before = self.text.get(..self.at).unwrap_or_default();
        Wrong { column: before.chars().count() + 1, what: what.into() }
    }
    fn eat(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word);
        self.at += if found { word.len() } else { 0 };
        found
    }
    /// One of the words, and no part of a longer one.
    fn joint(&mut self, word: &str, sign: &str) -> bool {
        self.blanks();
        if self.eat(sign) {
            return true;
        }
        let whole = self.rest().strip_prefix(word).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()));
        self.at += if whole { word.len() } else { 0 };
        whole
    }

    fn any(&mut self) -> Result<Vec<Vec<Term>>, Wrong> {
        let mut out = vec![self.all()?];
        while self.joint("or", "||") {
            out.push(self.all()?);
        }
        Ok(out)
    }

    fn all(&mut self) -> Result<Vec<Term>, Wrong> {
        let mut out = vec![self.term()?];
        while self.joint("and", "&&") {
            out.push(self.term()?);
        }
        Ok(out)
    }

    fn term(&mut self) -> Result<Term, Wrong> {
        self.blanks();
        if !self.rest().starts_with('(') {
            return self.comparison().map(Term::Compare);
        }
        if self.depth == DEPTH {
            return Err(self.wrong("too many brackets"));
        }
        self.at += 1;
        self.depth += 1;
        let inner = self.any()?;
        self.depth -= 1;
        self.blanks();
        if self.eat(")") { Ok(Term::Any(inner)) } else { Err(self.wrong("a closing bracket is wanted here")) }
    }

    fn comparison(&mut self) -> Result<Comparison, Wrong> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let rest = self.rest();
        let name = rest.get(..rest.find(|c| !is_name(c)).unwrap_or(rest.len())).unwrap_or_default();
        if name.is_empty() {
            return Err(self.wrong("the name of a metric is wanted here, such as lost (--metrics lists them)"));
        }
        let Some(known) = metric::find(name) else {
            return Err(self.wrong(format!("no metric is called {name}{} (--metrics lists them)", meant(name))));
        };
        self.at += name.len();
        self.blanks();
        let sign = self.at;
        let Some((_, operator)) = OPERATORS.into_iter().find(|(sign, _)| self.eat(sign)) else {
            return Err(self.wrong("one of > >= < <= == != is wanted here"));
        };
        if known.unit == Unit::Class && !matches!(operator, Operator::Equal | Operator::Not) {
            self.at = sign;
            return Err(self.wrong("a class is the same or another: one of == != is wanted here"));
        }
        self.blanks();
        let value = if known.unit == Unit::Class { self.class()? } else { self.value(known.unit)? };
        Ok(Comparison { name: name.to_owned(), operator, value, unit: known.unit })
    }

    fn class(&mut self) -> Result<f64, Wrong> {
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let rest = self.rest();
        let word = rest.get(..rest.find(|c| !is_word(c)).unwrap_or(rest.len())).unwrap_or_default();
        let Some(place) = CLASSES.iter().position(|class| *class == word) else {
            return Err(self.wrong(format!("one of {} is wanted here", CLASSES.join(", "))));
        };
        self.at += word.len();
        Ok(place as f64)
    }

    fn value(&mut self, unit: Unit) -> Result<f64, Wrong> {
        let rest = self.rest();
        let digit = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
        let number = rest.get(..rest.find(|c| !digit(c)).unwrap_or(rest.len())).unwrap_or_default();
        let value: f64 = number.parse().map_err(|_| self.wrong("a number is wanted here"))?;
        self.at += number.len();
        let begin = self.at;
        self.blanks();
        let rest = self.rest();
        let letter = |c: char| c.is_alphabetic() || c == '/' || c == '%';
        let word = rest.get(..rest.find(|c| !letter(c)).unwrap_or(rest.len())).unwrap_or_default();
        // A word behind a blank is no unit of what has none.
        let apart = self.at > begin && factors(unit).is_empty();
        if word.is_empty() || word == "and" || word == "or" || apart {
            self.at = begin;
            // A number of things has no unit, and nothing is nothing.
            let plain = matches!(unit, Unit::Count | Unit::PerSecond | Unit::PerHour) || value == 0.0;
            return if plain { Ok(value) } else { Err(self.wrong(format!("a unit is wanted here: {}", units(unit)))) };
        }
        let Some(factor) = factors(unit).iter().find(|(name, _)| *name == word).map(|(_, factor)| *factor) else {
            return Err(self.wrong(format!("the unit {word} does not fit, {}", units(unit))));
        };
        self.at += word.len();
        Ok(value * factor)
    }
}

const fn factors(unit: Unit) -> &'static [(&'static str, f64)] {
    const KIB: f64 = 1024.0;
    match unit {
        Unit::Count | Unit::Class => &[],
        Unit::PerSecond => &[("/s", 1.0)],
        Unit::PerHour => &[("/h", 1.0), ("/s", 3600.0)],
        Unit::Time => &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9)],
        Unit::Octets => &[
            ("B", 1.0),
            ("kB", 1e3),
            ("MB", 1e6),
            ("GB", 1e9),
            ("KiB", KIB),
            ("MiB", KIB * KIB),
            ("GiB", KIB * KIB * KIB),
        ],
        Unit::OctetsPerHour => &[
            ("B/h", 1.0),
            ("kB/h", 1e3),
            ("MB/h", 1e6),
            ("GB/h", 1e9),
            ("KiB/h", KIB),
            ("MiB/h", KIB * KIB),
            ("GiB/h", KIB * KIB * KIB),
        ],
        Unit::BitRate => &[("b/s", 1.0), ("kb/s", 1e3), ("Mb/s", 1e6), ("Gb/s", 1e9)],
    }
}

fn units(unit: Unit) -> String {
    let names: Vec<_> = factors(unit).iter().map(|(name, _)| *name).filter(|n| n.is_ascii()).collect();
    if names.is_empty() { "it is a plain number".into() } else { format!("one of {}", names.join(", ")) }
}

/// A name that is nearly this one.
fn meant(name: &str) -> String {
    let near = METRICS.iter().map(|m| (strsim::damerau_levenshtein(name, m.name), m.name)).min();
    near.filter(|(far, best)| far * 2 <= best.len()).map_or_else(String::new, |(_, best)| format!("; {best}?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn met(text: &str, values: &[(&str, f64)]) -> Option<bool> {
        let threshold: Threshold = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        threshold.evaluate(|name| values.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)).met
    }

    #[test]
    fn comparisons() {
        for (text, value, want) in [
            ("lost>0", 0.0, false),
            ("lost > 0", 1.0, true),
            ("lost>=1", 1.0, true),
            ("lost<1", 1.0, false),
            ("lost<=1", 1.0, true),
            ("lost==3", 3.0, true),
            ("lost!=3", 3.0, false),
        ] {
            assert_eq!(met(text, &[("lost", value)]), Some(want), "{text} of {value}");
        }
    }

    #[test]
    fn units_scale() {
        for (text, name, value, want) in [
            ("latency.complete.p99.9>2ms", "latency.complete.p99.9", 2_000_001.0, true),
            ("latency.complete.p99.9>2ms", "latency.complete.p99.9", 2_000_000.0, false),
            ("latency.sink.max>=1.5 s", "latency.sink.max", 1.5e9, true),
            ("rss>1GiB", "rss", 1073741825.0, true),
            ("rss.slope>10MiB/h", "rss.slope", 10485760.0, false),
            ("bit_rate<1Gb/s", "bit_rate", 9e8, true),
            ("fds.slope > 1/h", "fds.slope", 2.0, true),
            ("fps<49.9", "fps", 50.0, false),
            ("latency.wire.min>0", "latency.wire.min", 1.0, true),
        ] {
            assert_eq!(met(text, &[(name, value)]), Some(want), "{text} of {value}");
        }
    }

    #[test]
    fn classes_are_words() {
        for (text, value, want) in [
            ("timing.compliance==wide", 3.0, true),
            ("timing.compliance == wide", 2.0, false),
            ("timing.compliance!=narrow", 1.0, false),
            ("timing.compliance!=narrow", 0.0, true),
            ("timing.compliance==not_compliant or timing.compliance==unknown", 4.0, true),
            ("timing.compliance==narrow_linear and timing.compliance!=wide", 2.0, true),
        ] {
            assert_eq!(met(text, &[("timing.compliance", value)]), Some(want), "{text} of {value}");
        }
        assert_eq!(met("timing.compliance==wide", &[]), None, "without --timing");
        let outcome = "timing.compliance!=narrow".parse::<Threshold>().unwrap().evaluate(|_| Some(3.0));
        assert_eq!((outcome.met, outcome.text.as_str()), (Some(true), "timing.compliance is wide"));
    }

    #[test]
    fn and_binds_closer_than_or_and_brackets_closest() {
        let values = [("lost", 1.0), ("late", 0.0), ("rejected", 0.0)];
        assert_eq!(met("lost>0 or late>0 and rejected>0", &values), Some(true));
        assert_eq!(met("(lost>0 || late>0) && rejected>0", &values), Some(false));
        assert_eq!(met("lost>0and late==0", &values), Some(true));
    }

    #[test]
    fn what_was_not_measured_decides_nothing_that_others_decide() {
        let values = [("lost", 1.0)];
        assert_eq!(met("rss>1GiB", &values), None);
        assert_eq!(met("rss>1GiB or lost>0", &values), Some(true));
        assert_eq!(met("rss>1GiB or lost>1", &values), None);
        assert_eq!(met("rss>1GiB and lost>1", &values), Some(false));
        assert_eq!(met("rss>1GiB and lost>0", &values), None);
        let threshold: Threshold = "rss>1GiB and lost>0".parse().unwrap();
        let outcome = threshold.evaluate(|name| (name == "lost").then_some(7.0));
        assert_eq!(outcome.text, "rss was not measured, lost is 7");
    }

    #[test]
    fn errors_name_their_column() {
        for (text, column, words) in [
            ("", 1, "name of a metric"),
            ("lost", 5, "> >= <"),
            ("lost>", 6, "a number"),
            ("lost>>0", 6, "a number"),
            ("lost>0 late>0", 8, "and, or"),
            ("lsot>0", 1, "lost?"),
            ("lost>0 and 3", 12, "no metric is called 3"),
            ("latency.complete.p99>2", 23, "a unit is wanted here: one of ns, us, ms"),
            ("latency.complete.p99>2MiB", 23, "MiB does not fit"),
            ("lost>2ms", 7, "plain number"),
            ("(lost>0", 8, "closing bracket"),
            ("lost>0)", 7, "and, or"),
            ("µ>0", 1, "name of a metric"),
            ("rss > 1 GB µ", 12, "and, or"),
            ("timing.compliance==", 20, "one of unknown, narrow, narrow_linear, wide, not_compliant"),
            ("timing.compliance==Wide", 20, "one of unknown"),
            ("timing.compliance==narrow-linear", 20, "one of unknown"),
            ("timing.compliance!=3", 20, "one of unknown"),
            ("timing.compliance>wide", 18, "== !="),
            ("timing.compliance<= wide", 18, "== !="),
            ("lost==wide", 7, "a number"),
        ] {
            let wrong = text.parse::<Threshold>().unwrap_err();
            assert!(wrong.column == column && wrong.what.contains(words), "{text}: {wrong}");
        }
        assert!("(".repeat(1000).parse::<Threshold>().is_err());
    }

    proptest! {
        #[test]
        fn anything_is_read_without_harm(text in "[a-z0-9.<>=!()&| µ/]{0,60}") {
            let _ = text.parse::<Threshold>();
        }

        #[test]
        fn what_is_printed_is_read_again(n in 0u32..1000, op in 0usize..6) {
            let text = format!("lost{}{n}", OPERATORS[op].0);
            let threshold: Threshold = text.parse().unwrap();
            prop_assert_eq!(threshold.to_string().parse::<Threshold>().unwrap(), threshold);
        }
    }
}
