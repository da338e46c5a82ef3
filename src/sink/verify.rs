//! `--verify`: reads the number that a test sender coded in each picture, and checks their order.

use super::{Next, Sink};
use crate::error::Result;
use crate::frame::Frame;
use crate::mem::{Host, Space};
use serde::Serialize;
use std::sync::{Arc, Mutex, PoisonError};

/// What the numbers in the pictures say. The first readable one is where counting begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Frames whose number is the one after that of the frame before (or the first).
    pub in_order: u64,
    /// Frames with the same number as the frame before.
    pub repeated: u64,
    /// Numbers that were jumped over.
    pub skipped: u64,
    /// Frames with a lower number than the frame before.
    pub backward: u64,
    /// Frames without a number that can be read, or overwritten in their ring while it was.
    pub unreadable: u64,
    /// The last number that was read.
    pub last: Option<u64>,
}

impl Verdict {
    /// Every frame came once, in order, and could be read; at least one came.
    pub fn clean(&self) -> bool {
        self.in_order > 0 && (self.repeated, self.skipped, self.backward, self.unreadable) == (0, 0, 0, 0)
    }

    /// One frame more, with the number that was read from it.
    pub fn add(&mut self, number: Option<u64>) {
        let Some(number) = number else {
            self.unreadable += 1;
            return;
        };
        match self.last {
            None => self.in_order += 1,
            Some(last) if number == last => self.repeated += 1,
            Some(last) if number < last => self.backward += 1,
            Some(last) if number == last + 1 => self.in_order += 1,
            Some(last) => self.skipped += number - last - 1,
        }
        self.last = Some(number);
    }
}

type Reader<F> = dyn FnMut(&Frame<F>) -> Option<u64> + Send;

/// A sink that reads the number in each picture with a function that knows the pattern.
pub struct Verify<F: Space = Host> {
    read: Box<Reader<F>>,
    verdict: Arc<Mutex<Verdict>>,
}

impl<F: Space> Verify<F> {
    /// `read` gives the number that is coded in a frame, or none.
    pub fn new(read: impl FnMut(&Frame<F>) -> Option<u64> + Send + 'static) -> Self {
        Verify { read: Box::new(read), verdict: Arc::default() }
    }
    /// Looks at the verdict from elsewhere while the sink runs, and after it.
    pub fn watch(&self) -> impl Fn() -> Verdict + Send + 'static {
        let verdict = self.verdict.clone();
        move || *verdict.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Space> Sink<F> for Verify<F> {
    fn take(&mut self, frame: &Frame<F>) -> Result<Next> {
        let number = (self.read)(frame).filter(|_| frame.intact());
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner).add(number);
        Ok(Next::More)
    }
    fn takes_windows(&self) -> bool {
        true
    }
    fn describe(&self) -> String {
        "frame numbers (verify)".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_disorder_is_counted() {
        let mut verdict = Verdict::default();
        for number in [Some(7), Some(8), Some(8), Some(12), None, Some(13), Some(3), Some(4)] {
            verdict.add(number);
        }
        let expected = Verdict { in_order: 4, repeated: 1, skipped: 3, backward: 1, unreadable: 1, last: Some(4) };
        assert_eq!(verdict, expected);
        assert!(!verdict.clean());
    }

    #[test]
    fn a_jump_does_not_count_as_in_order_and_nothing_is_not_clean() {
        let mut verdict = Verdict::default();
        assert!(!verdict.clean());
        (1..=3).for_each(|n| verdict.add(Some(n)));
        assert!(verdict.clean());
        verdict.add(Some(5));
        assert_eq!((verdict.in_order, verdict.skipped), (3, 1));
    }
}
