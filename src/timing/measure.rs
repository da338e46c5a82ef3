//! What is kept of a measure: extremes and mean, a histogram, and a series for plots, all of bounded size.

use crate::time::Tai;
use serde::Serialize;
use serde::ser::SerializeStruct;

/// Extremes and mean of a measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Values.
    pub count: u64,
    /// The smallest; 0 of none.
    pub min: i64,
    /// The largest; 0 of none.
    pub max: i64,
    sum: i128,
}

impl Stat {
    /// Of one value.
    pub fn of(value: i64) -> Self {
        Stat { count: 1, min: value, max: value, sum: i128::from(value) }
    }
    /// One more value.
    #[inline]
    pub fn add(&mut self, value: i64) {
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        }
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum += i128::from(value);
        self.count += 1;
    }
    /// All values of another.
    pub fn merge(&mut self, other: &Stat) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.count += other.count;
    }
    /// All values together.
    pub fn sum(&self) -> i128 {
        self.sum
    }
    /// The mean; 0 of none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }
}

impl Serialize for Stat {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_struct("Stat", 4)?;
        out.serialize_field("count", &self.count)?;
        out.serialize_field("min", &self.min)?;
        out.serialize_field("max", &self.max)?;
        out.serialize_field("mean", &self.mean())?;
        out.end()
    }
}

/// Buckets of a series at most.
const BUCKETS: usize = 512;

/// A measure over time. When its buckets are used up, each two become one: extremes stay, detail goes.
#[derive(Clone, Debug)]
pub struct Series {
    begin: Option<Tai>,
    /// Nanoseconds of a bucket.
    width: u64,
    buckets: Vec<Stat>,
}

impl Series {
    /// Buckets of `width` nanoseconds at first.
    pub fn new(width: u64) -> Self {
        Series { begin: None, width: width.max(1), buckets: Vec::new() }
    }
    /// What was measured at `at`. What lies before the first one counts as of its time.
    pub fn add(&mut self, at: Tai, values: &Stat) {
        let begin = *self.begin.get_or_insert(at);
        let after = at.0.saturating_sub(begin.0);
        while after / self.width >= BUCKETS as u64 {
            self.halve();
        }
        let index = (after / self.width) as usize;
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, Stat::default());
        }
        if let Some(bucket) = self.buckets.get_mut(index) {
            bucket.merge(values);
        }
    }
    fn halve(&mut self) {
        let count = self.buckets.len();
        for n in 0..count.div_ceil(2) {
            let mut pair = self.buckets.get(2 * n).copied().unwrap_or_default();
            if let Some(other) = self.buckets.get(2 * n + 1) {
                pair.merge(other);
            }
            if let Some(place) = self.buckets.get_mut(n) {
                *place = pair;
            }
        }
        self.buckets.truncate(count.div_ceil(2));
        self.width = self.width.saturating_mul(2);
    }
    /// When the first bucket begins.
    pub fn begin(&self) -> Option<Tai> {
        self.begin
    }
    /// Nanoseconds of a bucket.
    pub fn width(&self) -> u64 {
        self.width
    }
    /// The buckets from [`Series::begin`] on; empty ones have a count of 0.
    pub fn buckets(&self) -> &[Stat] {
        &self.buckets
    }
}

/// A measure: over all, and over time.
#[derive(Clone, Debug)]
pub struct Measure {
    /// Over all.
    pub all: Stat,
    /// Over time.
    pub series: Series,
}

impl Measure {
    /// Its series begins with buckets of `width` nanoseconds.
    pub fn new(width: u64) -> Self {
        Measure { all: Stat::default(), series: Series::new(width) }
    }
    /// One more value.
    pub fn add(&mut self, at: Tai, value: i64) {
        self.merge(at, &Stat::of(value));
    }
    /// Values that belong to one instant (the packets of a frame).
    pub fn merge(&mut self, at: Tai, values: &Stat) {
        if values.count > 0 {
            self.all.merge(values);
            self.series.add(at, values);
        }
    }
}

/// Linear bins of the same width in each power of two.
const SUB: u64 = 32;
/// Values are cut to 40 bits: 18 minutes in nanoseconds.
const BITS: u32 = 40;
const BINS: usize = (2 * SUB + (BITS as u64 - 6) * SUB) as usize;

/// How often each value came: exact below 64, within 3 % above.
#[derive(Clone, Debug)]
pub struct Histogram {
    bins: Vec<u64>,
    /// Values below zero.
    pub below: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { bins: vec![0; BINS], below: 0 }
    }
}

impl Histogram {
    /// One more value.
    #[inline]
    pub fn add(&mut self, value: i64) {
        let Ok(value) = u64::try_from(value) else {
            self.below += 1;
            return;
        };
        let value = value.min((1 << BITS) - 1);
        let index = if value < 2 * SUB {
            value
        } else {
            let shift = u64::from(58 - value.leading_zeros());
            2 * SUB + (shift - 1) * SUB + (value >> shift) - SUB
        };
        if let Some(bin) = self.bins.get_mut(index as usize) {
            *bin += 1;
        }
    }
    /// The bins that hold something: first value, first value beyond, how many.
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.bins.iter().enumerate().filter(|(_, n)| **n > 0).map(|(index, n)| {
            let index = index as u64;
            if index < 2 * SUB {
                return (index, index + 1, *n);
            }
            let (shift, place) = ((index - 2 * SUB) / SUB + 1, (index - 2 * SUB) % SUB + SUB);
            (place << shift, (place + 1) << shift, *n)
        })
    }
    /// Values, those below zero included.
    pub fn count(&self) -> u64 {
        self.below + self.bins.iter().sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_series_keeps_extremes_when_it_grows_coarser() {
        let mut m = Measure::new(10);
        for n in 0..100_000u64 {
            m.add(Tai(1000 + n), if n == 77_777 { 1_000 } else { (n % 7) as i64 });
        }
        let buckets = m.series.buckets();
        assert!(buckets.len() <= BUCKETS && buckets.len() > BUCKETS / 4);
        assert_eq!(buckets.iter().map(|b| b.count).sum::<u64>(), 100_000);
        assert_eq!((m.all.min, m.all.max, m.all.count), (0, 1_000, 100_000));
        let at = 77_777 / m.series.width() as usize;
        assert_eq!(buckets[at].max, 1_000);
        assert!(buckets.iter().enumerate().all(|(n, b)| n == at || b.max <= 6));
        assert_eq!(m.series.begin(), Some(Tai(1000)));
    }

    #[test]
    fn histogram_by_hand() {
        let mut h = Histogram::default();
        for v in [0, 1, 1, 63, 64, 65, 66, 127, 128, -5, i64::MAX] {
            h.add(v);
        }
        let bins: Vec<_> = h.bins().collect();
        assert_eq!(
            &bins[..7],
            [(0, 1, 1), (1, 2, 2), (63, 64, 1), (64, 66, 2), (66, 68, 1), (126, 128, 1), (128, 132, 1)]
        );
        assert_eq!((bins[7].1, bins.len(), h.below, h.count()), (1 << 40, 8, 1, 11));
    }

    proptest! {
        #[test]
        fn every_value_lies_in_its_bin(value in 0i64..1 << 40) {
            let mut h = Histogram::default();
            h.add(value);
            let (from, to, n) = h.bins().next().unwrap();
            prop_assert!(n == 1 && (from..to).contains(&(value as u64)));
            prop_assert!((to - from) * 32 <= from.max(32));
        }

        #[test]
        fn a_merged_stat_is_that_of_all_values(values in prop::collection::vec(-1000i64..1000, 1..50), cut in 0usize..50) {
            let stat = |v: &[i64]| { let mut s = Stat::default(); v.iter().for_each(|v| s.add(*v)); s };
            let (a, b) = values.split_at(cut.min(values.len()));
            let mut both = stat(a);
            both.merge(&stat(b));
            prop_assert_eq!(both, stat(&values));
            prop_assert_eq!(both.min, *values.iter().min().unwrap());
        }
    }
}
