//! How late groups of packets left: a histogram of constant size.

use serde::{Serialize, Serializer, ser::SerializeStruct};

/// Sub-buckets of a power of two: figures are right to 12.5 %.
const SUB: u32 = 8;
const BUCKETS: usize = 64 * SUB as usize;

/// Nanoseconds by which sends missed their time.
#[derive(Clone, Debug)]
pub struct Lateness {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    max: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Lateness { buckets: Box::new([0; BUCKETS]), count: 0, max: 0 }
    }
}

impl Lateness {
    /// One more; early counts as in time.
    pub fn add(&mut self, ns: i64) {
        let ns = u64::try_from(ns).unwrap_or(0);
        if let Some(bucket) = self.buckets.get_mut(bucket(ns)) {
            *bucket += 1;
        }
        self.count += 1;
        self.max = self.max.max(ns);
    }

    /// The lateness that this share (in 1/1000) of the sends did not exceed, in nanoseconds.
    pub fn permille(&self, share: u64) -> u64 {
        let wanted = (self.count * share).div_ceil(1000);
        let mut seen = 0;
        let found = self.buckets.iter().position(|n| {
            seen += n;
            seen >= wanted
        });
        found.map_or(self.max, ceiling).min(self.max)
    }

    /// The largest.
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// How many were counted.
    pub const fn count(&self) -> u64 {
        self.count
    }
}

impl Serialize for Lateness {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut s = serializer.serialize_struct("lateness", 5)?;
        let us = |ns: u64| (ns as f64 / 100.0).round() / 10.0;
        s.serialize_field("groups", &self.count)?;
        s.serialize_field("p50_us", &us(self.permille(500)))?;
        s.serialize_field("p99_us", &us(self.permille(990)))?;
        s.serialize_field("p999_us", &us(self.permille(999)))?;
        s.serialize_field("max_us", &us(self.max))?;
        s.end()
    }
}

fn bucket(ns: u64) -> usize {
    if ns < u64::from(SUB) {
        return ns as usize;
    }
    // The top bit, then the three below it.
    let power = ns.ilog2();
    let sub = (ns >> (power - 3)) as u32 & (SUB - 1);
    ((power - 2) * SUB + sub) as usize
}

/// The largest value of a bucket.
fn ceiling(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < u64::from(SUB) {
        return bucket;
    }
    let (power, sub) = (bucket / u64::from(SUB) + 2, bucket % u64::from(SUB));
    (((u64::from(SUB) + sub + 1) as u128) << (power - 3)).saturating_sub(1).min(u64::MAX.into()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_one_another() {
        for ns in (0..100_000).chain([u64::MAX / 3, u64::MAX]) {
            let b = bucket(ns);
            assert!(b < BUCKETS && ceiling(b) >= ns, "{ns}");
            assert!(b == 0 || ceiling(b - 1) < ns, "{ns}");
        }
    }

    #[test]
    fn percentiles() {
        let mut l = Lateness::default();
        for ns in 1..=1000 {
            l.add(ns);
        }
        l.add(-5);
        assert_eq!((l.count(), l.max()), (1001, 1000));
        assert!((500..=512).contains(&l.permille(500)), "{}", l.permille(500));
        assert_eq!(l.permille(1000), 1000);
        assert_eq!(Lateness::default().permille(990), 0);
    }
}
