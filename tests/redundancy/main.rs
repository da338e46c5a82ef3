//! Legs of one flow (ST 2022-7) in virtual time: whatever any leg brings in time is in the frame, and every counter is
//! that of a model which knows what was sent.

mod changes;
mod properties;
mod restarts;
#[path = "../support/mod.rs"]
mod support;
mod table;

/// splitmix64: a seed says everything.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    /// True with a chance of `n` in a million.
    fn ppm(&mut self, n: u64) -> bool {
        self.below(1_000_000) < n
    }
}
