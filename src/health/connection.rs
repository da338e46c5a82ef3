//! What the packets say.

use super::{Found, Health, Inputs, LegState};
use crate::stats::LegCounters;
use std::fmt::Write;
use std::time::Duration;

/// What was seen of the packets before.
#[derive(Debug, Default)]
pub(super) struct Connection {
    before: Counts,
    /// When the connection was healthy for the last time: messages count from there.
    base: Counts,
    begun: Duration,
    /// When packets came for the last time.
    moved: Duration,
    silent: bool,
    legs: Vec<LegState>,
    /// When a leg brought some for the last time.
    legs_moved: Vec<Duration>,
}

#[derive(Clone, Debug, Default)]
struct Counts {
    received: u64,
    lost: u64,
    late: u64,
    kernel_dropped: u64,
    legs: Vec<LegCounters>,
}

impl Connection {
    pub fn begin(&mut self, now: Duration) {
        (self.begun, self.moved) = (now, now);
        self.legs_moved.iter_mut().for_each(|moved| *moved = now);
    }
    /// No leg brings anything.
    pub const fn silent(&self) -> bool {
        self.silent
    }
    pub fn legs(&self) -> &[LegState] {
        &self.legs
    }

    /// `good`: what is reported is healthy.
    pub fn judge(&mut self, now: Duration, inputs: &Inputs<'_>, silence: Duration, good: bool) -> Found {
        let counts = Counts {
            received: inputs.packets.received,
            lost: inputs.packets.lost,
            late: inputs.packets.late,
            kernel_dropped: inputs.rx.kernel_dropped,
            legs: inputs.legs.to_vec(),
        };
        if counts.received > self.before.received {
            self.moved = now;
        }
        self.silent = now.saturating_sub(self.moved) >= silence;
        self.see_legs(now, &counts, silence);
        if good {
            self.base.clone_from(&self.before);
        }
        let found = self.found(now, &counts);
        self.before = counts;
        found
    }

    fn see_legs(&mut self, now: Duration, counts: &Counts, silence: Duration) {
        let brought = |leg: &LegCounters| leg.received + leg.late + leg.duplicate;
        let begun = self.begun;
        self.legs_moved.resize(counts.legs.len(), begun);
        for (n, (leg, moved)) in counts.legs.iter().zip(&mut self.legs_moved).enumerate() {
            if brought(leg) > self.before.legs.get(n).map_or(0, brought) {
                *moved = now;
            }
        }
        let speaks = |moved: &Duration| now.saturating_sub(*moved) < silence;
        let speaking = self.legs_moved.iter().filter(|moved| speaks(moved)).count();
        let state = |moved: &Duration| match speaks(moved) {
            false => LegState::Silent,
            true if speaking > 1 => LegState::Protected,
            true => LegState::Unprotected,
        };
        self.legs.clear();
        self.legs.extend(self.legs_moved.iter().map(state));
    }

    fn found(&self, now: Duration, counts: &Counts) -> Found {
        if self.silent {
            let message = match counts.received {
                0 => format!("no packet has come for {}", seconds(now.saturating_sub(self.begun))),
                _ => format!("no packets for {}", seconds(now.saturating_sub(self.moved))),
            };
            return (Health::Unhealthy, Some(message));
        }
        let base = &self.base;
        if counts.lost > self.before.lost {
            let lost = counts.lost.saturating_sub(base.lost);
            let by = if counts.legs.len() > 1 { ", by every leg" } else { "" };
            let mut message = format!("{} lost{by}", packets(lost));
            let late = counts.late.saturating_sub(base.late);
            if late > 0 {
                let _ = write!(message, ", {late} came too late");
            }
            let dropped = counts.kernel_dropped.saturating_sub(base.kernel_dropped);
            if dropped > 0 {
                let _ = write!(message, ", {dropped} dropped by this machine's socket buffer");
            }
            return (Health::Unhealthy, Some(message));
        }
        if counts.legs.len() < 2 {
            return (Health::Healthy, None);
        }
        let mut parts = Vec::new();
        for (n, leg) in counts.legs.iter().enumerate() {
            let lost = |counts: &Counts| counts.legs.get(n).map_or(0, |leg| leg.lost);
            if self.legs.get(n) == Some(&LegState::Silent) {
                let since = self.legs_moved.get(n).map_or(now, |moved| now.saturating_sub(*moved));
                parts.push(format!("leg {n} has brought nothing for {}", seconds(since)));
            } else if leg.lost > lost(&self.before) {
                parts.push(format!(
                    "leg {n} lost {}, brought by another leg",
                    packets(leg.lost.saturating_sub(lost(base)))
                ));
            }
        }
        if self.legs.contains(&LegState::Unprotected) {
            parts.push("unprotected".into());
        }
        match parts.is_empty() {
            true => (Health::Healthy, None),
            false => (Health::PartiallyHealthy, Some(parts.join("; "))),
        }
    }
}

pub(super) fn packets(n: u64) -> String {
    if n == 1 { "1 packet".into() } else { format!("{n} packets") }
}

pub(super) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
