//! Growth: the slope of the line that lies nearest to all values (least squares), in constant memory.

use serde::{Deserialize, Serialize};

/// Values over time. Sums are kept relative to the first value, so that nothing cancels out over days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slope {
    count: u64,
    first: (f64, f64),
    mean: (f64, f64),
    /// Sums of squares of times, and of products, about the means.
    squares: f64,
    products: f64,
    last: f64,
    max: f64,
}

impl Slope {
    /// One value at a time in seconds.
    pub fn add(&mut self, seconds: f64, value: f64) {
        if self.count == 0 {
            self.first = (seconds, value);
            self.max = value;
        }
        self.count += 1;
        (self.last, self.max) = (value, self.max.max(value));
        // Welford's way, of two variables.
        let (t, v) = (seconds - self.first.0, value - self.first.1);
        let n = self.count as f64;
        let dt = t - self.mean.0;
        self.mean.0 += dt / n;
        self.mean.1 += (v - self.mean.1) / n;
        self.squares += dt * (t - self.mean.0);
        self.products += dt * (v - self.mean.1);
    }

    /// By how much it grows in an hour; none of fewer than three values, or of values at one time.
    pub fn per_hour(&self) -> Option<f64> {
        (self.count >= 3 && self.squares > 0.0).then(|| self.products / self.squares * 3600.0)
    }
    /// The largest value; none without any.
    pub fn max(&self) -> Option<f64> {
        (self.count > 0).then_some(self.max)
    }
    /// The last value; none without any.
    pub fn last(&self) -> Option<f64> {
        (self.count > 0).then_some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_has_its_slope() {
        let mut slope = Slope::default();
        assert_eq!((slope.per_hour(), slope.max()), (None, None));
        // 1 octet a second on top of 2^40, over ten days.
        for n in 0..864_000u32 {
            slope.add(1e9 + f64::from(n), 1_099_511_627_776.0 + f64::from(n));
        }
        assert!((slope.per_hour().unwrap() - 3600.0).abs() < 1e-6);
        assert_eq!(slope.max(), Some(1_099_511_627_776.0 + 863_999.0));
    }

    #[test]
    fn a_peak_is_no_growth() {
        let mut slope = Slope::default();
        for n in 0..101 {
            slope.add(f64::from(n), if n == 50 { 1000.0 } else { 10.0 });
        }
        assert!(slope.per_hour().unwrap().abs() < 1e-6);
        assert_eq!((slope.max(), slope.last()), (Some(1000.0), Some(10.0)));
    }

    proptest! {
        #[test]
        fn as_the_formula_has_it(values in proptest::collection::vec(-1e6f64..1e6, 3..60)) {
            let mut slope = Slope::default();
            for (t, v) in values.iter().enumerate() {
                slope.add(t as f64, *v);
            }
            let n = values.len() as f64;
            let (st, sv) = ((0..values.len()).sum::<usize>() as f64, values.iter().sum::<f64>());
            let stv: f64 = values.iter().enumerate().map(|(t, v)| t as f64 * v).sum();
            let stt: f64 = (0..values.len()).map(|t| (t * t) as f64).sum();
            let want = (n * stv - st * sv) / (n * stt - st * st) * 3600.0;
            prop_assert!((slope.per_hour().unwrap() - want).abs() <= want.abs() * 1e-9 + 1e-3);
        }
    }
}
