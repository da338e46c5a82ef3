//! Faults that were planned against what was found. Over the whole run, with its warm-up: a packet that was removed just
//! before the end of the warm-up counts as lost just after it.

use super::record::Record;
use serde::Serialize;

/// A kind of fault on a leg.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// The leg.
    pub leg: usize,
    /// The kind.
    pub kind: &'static str,
    /// What the plan did.
    pub planned: u64,
    /// What the receiver found.
    pub found: u64,
    /// Of what it found: what this machine did and not the plan (a socket without room, the own sender).
    pub own: u64,
    /// They are the same, without `own`.
    pub equal: bool,
}

/// Kinds that a receiver counts one by one: packets that it lacks, copies that it has too many, senders that began anew.
/// What is delayed, overtaken or corrupted may be found in several ways or not at all, and is told beside.
pub fn compare(record: &Record) -> Option<Vec<Compared>> {
    record.fault_plan.as_ref()?;
    let legs = (0..2).filter(|leg| record.whole(&format!("faults.leg{leg}.seen")).is_some_and(|n| n > 0));
    let all = |name: &str| record.whole(name).unwrap_or(0);
    let own = all("kernel_dropped") + record.gauge("source.dropped").map_or(0, |n| n as u64);
    let mut out = Vec::new();
    for leg in legs {
        let planned = |kind: &str| all(&format!("faults.leg{leg}.{kind}"));
        // With one leg the sequence of the flow is that of the leg.
        let found = |name: &str| record.whole(&format!("leg{leg}.{name}")).unwrap_or_else(|| all(name));
        let mut add = |kind, planned: u64, found: u64, own: u64| {
            let equal = planned <= found && found <= planned + own;
            out.push(Compared { leg, kind, planned, found, own, equal });
        };
        // What came too late was lost as well, and no plan removed it.
        add("removed", planned("removed"), found("lost").saturating_sub(found("late")), own);
        add("duplicated", planned("duplicated"), found("duplicate"), 0);
        if leg == 0 {
            add("restarts", planned("restarts"), all("restarts"), 0);
        }
    }
    Some(out)
}

/// What is told beside: kind, and how often the plan did it on a leg.
pub fn beside(record: &Record, leg: usize) -> Vec<(&'static str, u64)> {
    let kinds = ["lost", "killed", "limited", "held", "hurried", "corrupted"];
    let count = |kind: &'static str| record.whole(&format!("faults.leg{leg}.{kind}")).map(|n| (kind, n));
    kinds.into_iter().filter_map(count).filter(|(_, n)| *n > 0).collect()
}
