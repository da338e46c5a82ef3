//! Prometheus text format 0.0.4: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::fmt::Write as _;

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Summary,
}

/// A page of metrics that is being written.
#[derive(Debug, Default)]
pub(super) struct Text {
    pub out: String,
    name: &'static str,
}

/// `label="value"`.
pub(super) type Label<'a> = (&'a str, &'a str);

impl Text {
    /// What follows are samples of this metric.
    pub fn metric(&mut self, name: &'static str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Summary => "summary",
        };
        self.name = name;
        // A help text has no quotes to be escaped, other than a label's value.
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = write!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }
    /// One of them.
    pub fn sample(&mut self, labels: &[Label<'_>], value: f64) {
        self.part("", labels, value);
    }
    /// A whole number, which is written as it is.
    pub fn count(&mut self, labels: &[Label<'_>], value: u64) {
        self.begin("", labels);
        let _ = writeln!(self.out, " {value}");
    }
    /// `_sum`, `_count` of a summary.
    pub fn part(&mut self, suffix: &str, labels: &[Label<'_>], value: f64) {
        self.begin(suffix, labels);
        let _ = if value.is_nan() {
            writeln!(self.out, " NaN")
        } else if value.is_infinite() {
            writeln!(self.out, " {}Inf", if value > 0.0 { '+' } else { '-' })
        } else {
            writeln!(self.out, " {value}")
        };
    }
    fn begin(&mut self, suffix: &str, labels: &[Label<'_>]) {
        self.out.push_str(self.name);
        self.out.push_str(suffix);
        for (n, (name, value)) in labels.iter().enumerate() {
            self.out.push(if n == 0 { '{' } else { ',' });
            self.out.push_str(name);
            self.out.push_str("=\"");
            for c in value.chars() {
                match c {
                    '\\' => self.out.push_str("\\\\"),
                    '"' => self.out.push_str("\\\""),
                    '\n' => self.out.push_str("\\n"),
                    c => self.out.push(c),
                }
            }
            self.out.push('"');
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_format_says() {
        let mut text = Text::default();
        text.metric("a_total", Kind::Counter, "Back\\slash,\nline.");
        text.count(&[], u64::MAX);
        text.count(&[("path", "C:\\DIR"), ("error", "Cannot find \"FILE\"\n")], 3);
        text.metric("b", Kind::Summary, "B.");
        text.part("_sum", &[("q", "")], 0.25);
        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e21].into_iter().for_each(|value| text.sample(&[], value));
        let wanted = "# HELP a_total Back\\\\slash,\\nline.\n# TYPE a_total counter\na_total 18446744073709551615\n\
                      a_total{path=\"C:\\\\DIR\",error=\"Cannot find \\\"FILE\\\"\\n\"} 3\n# HELP b B.\n# TYPE b summary\n\
                      b_sum{q=\"\"} 0.25\nb NaN\nb +Inf\nb -Inf\nb 1000000000000000000000\n";
        assert_eq!(text.out, wanted);
    }
}
