//! The status of one domain over time: its delay, its message, its transition counter.

use super::Health;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Machine {
    health: Health,
    message: Option<String>,
    transitions: u64,
    /// Since when it has been PartiallyHealthy or better, and Healthy, without a break; none while it is not.
    better: [Option<Duration>; 2],
}

const LEVELS: [Health; 2] = [Health::PartiallyHealthy, Health::Healthy];

impl Machine {
    pub const fn health(&self) -> Health {
        self.health
    }
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }
    pub const fn transitions(&self) -> u64 {
        self.transitions
    }

    /// Changes at once and does not count it: activation and deactivation.
    pub fn set(&mut self, health: Health) {
        self.health = health;
        self.message = None;
        self.forget();
    }
    /// What has been seen until now does not make it more healthy.
    pub fn forget(&mut self) {
        self.better = [None; 2];
    }
    /// Counter and message.
    pub fn reset(&mut self) {
        self.transitions = 0;
        self.message = None;
    }

    /// This is how it is `now`. `held`: it does not become less healthy yet.
    pub fn see(&mut self, now: Duration, seen: Health, message: Option<String>, held: bool, delay: Duration) {
        if seen == Health::Neutral || self.health == Health::Neutral {
            // At once, and not counted; but for the time after an activation.
            if seen != self.health && !(held && seen > Health::Healthy) {
                self.set(seen);
                self.message = message;
            }
            return;
        }
        for (since, level) in self.better.iter_mut().zip(LEVELS) {
            *since = if seen <= level { Some(since.unwrap_or(now)) } else { None };
        }
        if seen > self.health {
            if !held {
                self.health = seen;
                self.transitions += 1;
                self.message = message;
            }
        } else if seen == self.health && seen > Health::Healthy {
            self.message = message;
        } else {
            let long_enough = |since: &Option<Duration>| since.is_some_and(|since| now.saturating_sub(since) >= delay);
            let best = LEVELS.into_iter().zip(&self.better).filter(|(_, since)| long_enough(since)).map(|(l, _)| l);
            if let Some(best) = best.min().filter(|best| *best < self.health) {
                self.health = best;
                self.message = match best {
                    Health::Healthy => self.message.take().map(|before| format!("Previously: {before}")),
                    _ => message.or(self.message.take()),
                };
            }
        }
    }
}
