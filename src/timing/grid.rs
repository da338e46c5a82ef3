//! Equally spaced instants in exact arithmetic: how many of them have passed.

use crate::time::Tai;

/// The instants `origin + (phase + k * step) / scale` nanoseconds, k = 0, 1, 2 ...
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    origin: Tai,
    phase: i128,
    step: i128,
    scale: i128,
}

impl Grid {
    /// A step or a scale that is not positive counts as 1.
    pub(super) fn new(origin: Tai, phase: i128, step: i128, scale: i128) -> Self {
        Grid { origin, phase, step: step.max(1), scale: scale.max(1) }
    }

    /// The same instants, counted from the last one that is not after `at`: numbers stay small.
    pub(super) fn rebased(self, at: Tai) -> Self {
        let passed = self.reached(at);
        Grid { origin: at, phase: -(self.ahead(at) - (passed - 1) * self.step), ..self }
    }

    /// Instants of the same spacing, the first of which is `at`.
    pub(super) fn started_at(self, at: Tai) -> Self {
        Grid { origin: at, phase: 0, ..self }
    }

    /// Instants that are not after `t`; negative before the first one, as if there were some before it.
    #[inline]
    pub(super) fn reached(&self, t: Tai) -> i128 {
        floor_div(self.ahead(t), self.step) + 1
    }

    /// Instants before `t`, likewise.
    #[inline]
    pub(super) fn passed(&self, t: Tai) -> i128 {
        floor_div(self.ahead(t) - 1, self.step) + 1
    }

    /// From the first instant to `t` in steps, cut towards zero, after one step has been added: as EBU LIST counts reads.
    pub(super) fn cut_towards_zero(&self, t: Tai) -> i128 {
        (self.ahead(t) + self.step) / self.step
    }

    /// From the first instant to `t`, in parts of a nanosecond.
    #[inline]
    fn ahead(&self, t: Tai) -> i128 {
        (i128::from(t.0) - i128::from(self.origin.0)) * self.scale - self.phase
    }
}

/// Nearly all packets need no 128-bit division.
#[inline]
fn floor_div(n: i128, by: i128) -> i128 {
    match (i64::try_from(n), i64::try_from(by)) {
        (Ok(n), Ok(by)) if by > 0 => i128::from(n.div_euclid(by)),
        _ => n.div_euclid(by.max(1)),
    }
}

/// Greatest common divisor.
pub(super) fn gcd(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.abs().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn instants_by_hand() {
        // 1003 1/3, 1006 2/3, 1010, ...: three parts a nanosecond.
        let g = Grid::new(Tai(1000), 10, 10, 3);
        let count = |t| (g.passed(Tai(t)), g.reached(Tai(t)));
        assert_eq!([1003, 1004, 1006, 1007].map(count), [(0, 0), (1, 1), (1, 1), (2, 2)]);
        assert_eq!([1010, 1011].map(count), [(2, 3), (3, 3)]);
        // As if there were one at 1000, which is reached then and not before.
        assert_eq!(count(1000), (-1, 0));
        assert_eq!(count(999), (-1, -1));
        assert_eq!(g.cut_towards_zero(Tai(1003)), 0);
    }

    proptest! {
        #[test]
        fn counting_one_by_one_says_the_same(phase in 0i128..1000, step in 1i128..500, scale in 1i128..40, at in 0u64..100) {
            let g = Grid::new(Tai(5000), phase, step, scale);
            let t = Tai(5000 + at);
            let instants = (0..).map(|k| phase + k * step).take_while(|x| *x <= i128::from(at) * scale);
            let (mut reached, mut passed) = (0i128, 0i128);
            for x in instants {
                reached += 1;
                passed += i128::from(x < i128::from(at) * scale);
            }
            prop_assert_eq!(g.reached(t).max(0), reached);
            prop_assert_eq!(g.passed(t).max(0), passed);
        }

        #[test]
        fn rebasing_moves_the_count_and_nothing_else(phase in 0i128..1000, step in 1i128..500, scale in 1i128..40, from in 0u64..1000, at in 0u64..1000) {
            let g = Grid::new(Tai(5000), phase, step, scale);
            let (from, t) = (Tai(5000 + from), Tai(6000 + at));
            let r = g.rebased(from);
            prop_assert_eq!(r.reached(from), 1);
            prop_assert_eq!(g.reached(t) - g.reached(from), r.reached(t) - r.reached(from));
        }
    }
}
