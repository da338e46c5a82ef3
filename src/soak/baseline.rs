//! An earlier run against this one.
//!
//! - A time is worse when it is more than 10 % and more than 50 us longer.
//! - Something that is counted is worse when there is any more of it; where the runs measured for different times, any
//!   more an hour.
//! - Growth (`.slope`) is worse when it is more than 10 % and more than 1 MiB (or 1 file) an hour steeper.
//! - Any other figure (memory, CPU, rates) is worse when it is more than 10 % worse.
//!
//! Only metrics that both have are compared, and only those of which less (or more) is better.

use super::metric::{self, Better, Unit};
use crate::report::{Check, Severity};
use std::collections::BTreeMap;

/// What was kept of the earlier run.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// Metrics by their names.
    pub metrics: BTreeMap<String, f64>,
}

/// The metric that says how long was measured.
pub const MEASURED: &str = "measured_s";

/// A time that is longer by less than so many nanoseconds is no worse.
const NEAR_NS: f64 = 50_000.0;

/// Every metric that is compared, as a check.
pub fn compare(now: &BTreeMap<String, f64>, baseline: &Baseline) -> Vec<Check> {
    let before = &baseline.metrics;
    let duration = |metrics: &BTreeMap<String, f64>| metrics.get(MEASURED).copied().filter(|s| *s > 0.0);
    let scale = match (duration(now), duration(before)) {
        (Some(a), Some(b)) if (a / b - 1.0).abs() > 0.01 => a / b,
        _ => 1.0,
    };
    let mut out = Vec::new();
    for (name, new) in now {
        let (Some(metric), Some(old)) = (metric::find(name), before.get(name)) else { continue };
        if metric.better == Better::Neither {
            continue;
        }
        let counted = metric.unit == Unit::Count && name != "cpu" && name != "fds" || name == "frames.missing_octets";
        let old = if counted { old * scale } else { *old };
        let by = if metric.better == Better::Lower { new - old } else { old - new };
        let near = match metric.unit {
            Unit::Time => NEAR_NS,
            Unit::OctetsPerHour => 1_048_576.0,
            Unit::PerHour => 1.0,
            // Scaled counts are no whole numbers.
            _ if counted && scale != 1.0 => 0.5,
            _ => 0.0,
        };
        let worse = if counted { by > near } else { by > near && by > 0.1 * old.abs() };
        let (new, old) = (metric::show(*new, metric.unit), metric::show(old, metric.unit));
        out.push(Check {
            group: "baseline".into(),
            name: name.clone(),
            severity: if worse { Severity::Failure } else { Severity::Pass },
            message: if worse { format!("{new}, it was {old}") } else { format!("{new}, was {old}") },
            clause: String::new(),
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worse(name: &str, old: f64, new: f64) -> bool {
        worse_over(name, old, new, (600.0, 600.0))
    }

    fn worse_over(name: &str, old: f64, new: f64, seconds: (f64, f64)) -> bool {
        let of = |value, s| BTreeMap::from([(name.to_owned(), value), (MEASURED.to_owned(), s)]);
        let checks = compare(&of(new, seconds.1), &Baseline { metrics: of(old, seconds.0) });
        assert_eq!(checks.len(), 1, "{name}");
        checks[0].severity == Severity::Failure
    }

    #[test]
    fn times_have_two_tolerances() {
        let name = "latency.sink.p99";
        assert!(!worse(name, 1_000_000.0, 1_100_000.0), "10 % and no more");
        assert!(worse(name, 1_000_000.0, 1_100_001.0));
        assert!(!worse(name, 100_000.0, 150_000.0), "50 us and no more");
        assert!(worse(name, 100_000.0, 150_001.0));
        assert!(!worse(name, 1_000_000.0, 10.0), "better");
    }

    #[test]
    fn counts_have_none() {
        assert!(worse("lost", 0.0, 1.0));
        assert!(!worse("lost", 3.0, 3.0));
        assert!(!worse("frames.dropped", 9.0, 3.0));
        // Three in ten minutes are six in twenty.
        assert!(!worse_over("lost", 3.0, 6.0, (600.0, 1200.0)));
        assert!(worse_over("lost", 3.0, 7.0, (600.0, 1200.0)));
    }

    #[test]
    fn growth_memory_and_rates() {
        assert!(!worse("rss.slope", 0.0, 1_048_576.0));
        assert!(worse("rss.slope", 0.0, 1_048_577.0));
        assert!(!worse("rss", 1e8, 1.1e8) && worse("rss", 1e8, 1.2e8));
        assert!(worse("fps", 50.0, 40.0) && !worse("fps", 50.0, 49.0));
        assert!(!worse("cpu", 1.0, 1.05) && worse("cpu", 1.0, 1.2));
    }

    #[test]
    fn what_is_not_judged_or_not_known_is_not_compared() {
        let of = |names: &[&str]| names.iter().map(|n| ((*n).to_owned(), 1.0)).collect::<BTreeMap<_, _>>();
        let checks =
            compare(&of(&["received", "reordered", "lost", "x"]), &Baseline { metrics: of(&["received", "x"]) });
        assert_eq!(checks, []);
    }
}
