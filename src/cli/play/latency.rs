//! How long frames take from the arrival of their last packet to the sinks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Written by the receiving thread, taken by the one that prints.
#[derive(Debug, Default)]
pub struct Latency {
    count: AtomicU64,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

/// One interval's figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Latency {
    /// One frame; a clock that went back counts as 0.
    pub fn add(&self, ns: i64) {
        let ns = u64::try_from(ns).unwrap_or(0);
        self.count.fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(ns, Relaxed);
        self.max_ns.fetch_max(ns, Relaxed);
    }

    /// Figures since the last call; none when no frame came.
    pub fn take(&self) -> Option<Figures> {
        let count = self.count.swap(0, Relaxed);
        let figures = Figures { count, sum_ns: self.sum_ns.swap(0, Relaxed), max_ns: self.max_ns.swap(0, Relaxed) };
        (count > 0).then_some(figures)
    }
}

impl Figures {
    /// Mean, in microseconds.
    pub fn mean_us(&self) -> f64 {
        self.sum_ns as f64 / self.count as f64 / 1e3
    }
    /// Largest, in microseconds.
    pub fn max_us(&self) -> f64 {
        self.max_ns as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_was_added_once() {
        let latency = Latency::default();
        assert_eq!(latency.take(), None);
        for ns in [1000, 3000, -5] {
            latency.add(ns);
        }
        let figures = latency.take().unwrap();
        assert_eq!((figures.count, figures.max_us()), (3, 3.0));
        assert!((figures.mean_us() - 4.0 / 3.0).abs() < 1e-9);
        assert_eq!(latency.take(), None);
    }
}
