//! How much memory of a GPU this process may use, all its streams together.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Octets in use and allowed. Code and contexts of the driver are not counted.
#[derive(Debug)]
pub struct Budget {
    used: AtomicUsize,
    limit: AtomicUsize,
}

impl Default for Budget {
    /// No limit.
    fn default() -> Self {
        Budget { used: AtomicUsize::new(0), limit: AtomicUsize::new(usize::MAX) }
    }
}

impl Budget {
    /// From now on so much is allowed; what is in use already stays.
    pub fn set_limit(&self, octets: usize) {
        self.limit.store(octets, Relaxed);
    }
    /// Octets in use.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }
    /// Takes so much, if it is allowed; else says what is in use and allowed.
    pub fn take(&self, octets: usize) -> Result<(), (usize, usize)> {
        let limit = self.limit.load(Relaxed);
        let more = |used: usize| used.checked_add(octets).filter(|sum| *sum <= limit);
        self.used.fetch_update(Relaxed, Relaxed, more).map(|_| ()).map_err(|used| (used, limit))
    }
    /// Gives back what was taken.
    pub fn give_back(&self, octets: usize) {
        self.used.fetch_sub(octets, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_may_be_taken_again() {
        let budget = Budget::default();
        assert_eq!(budget.take(100), Ok(()));
        budget.set_limit(150);
        assert_eq!(budget.take(51), Err((100, 150)));
        assert_eq!(budget.take(50), Ok(()));
        assert_eq!(budget.take(1), Err((150, 150)));
        budget.give_back(100);
        assert_eq!((budget.used(), budget.take(100)), (50, Ok(())));
        assert_eq!(budget.take(usize::MAX), Err((150, 150)), "sums that do not exist");
    }

    #[test]
    fn a_limit_below_what_is_in_use_takes_nothing_away() {
        let budget = Budget::default();
        budget.take(10).unwrap();
        budget.set_limit(5);
        assert_eq!(budget.used(), 10);
        assert_eq!(budget.take(0), Err((10, 5)));
        budget.give_back(10);
        assert_eq!(budget.take(5), Ok(()));
    }
}
