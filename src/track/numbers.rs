//! A window of the last numbers of a sequence: which of them were seen, by each of several.

/// The last numbers up to the highest: a bit for each, in one map for each of those who see them.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    /// The highest number, and the lowest of interest.
    pub(crate) highest: u64,
    pub(crate) first: u64,
    /// What is not marked below it has been counted as lost.
    decided: u64,
    /// Words of a map less one; a power of two less one.
    mask: usize,
    /// The maps one after the other, each a ring of words.
    bits: Vec<u64>,
}

impl Numbers {
    /// At least `window` numbers, rounded up to a power of two, in `maps` maps.
    pub(crate) fn new(window: usize, maps: usize) -> Self {
        let words = Self::map_octets(window) / 8;
        // The highest lies far above the window, so that nothing that is subtracted from it underflows.
        let highest = 1 << 40;
        Numbers { highest, first: highest, decided: 0, mask: words - 1, bits: vec![0; words * maps.max(1)] }
    }

    /// Octets of one map.
    pub(crate) fn map_octets(window: usize) -> usize {
        window.div_ceil(64).next_power_of_two().max(2) * 8
    }

    /// How many numbers it holds.
    pub(crate) fn len(&self) -> u64 {
        (self.mask as u64 + 1) << 6
    }

    /// Numbers from the first to the highest.
    pub(crate) fn span(&self) -> u64 {
        self.highest - self.first + 1
    }

    /// Begins anew with `number`, of which nobody has seen anything.
    pub(crate) fn start(&mut self, number: u64) {
        // Only what was used: a flood of strays must not clear whole windows.
        let (low, high) = (self.floor().max(self.first) >> 6, self.highest >> 6);
        for map in self.bits.chunks_mut(self.mask + 1) {
            for word in low..=high {
                if let Some(bits) = map.get_mut(word as usize & self.mask) {
                    *bits = 0;
                }
            }
        }
        (self.highest, self.first, self.decided) = (number, number, 0);
    }

    /// Is it counted already what is lost of the numbers up to this one?
    pub(crate) fn is_decided(&self, number: u64) -> bool {
        number < self.decided
    }

    /// The lowest number of interest of which it is not decided whether it is lost.
    fn undecided(&self) -> u64 {
        self.first.max(self.decided)
    }

    /// What is below `until` and has not come is lost: how many numbers are marked in no map, and by `each` in every one? They
    /// stay in the window.
    pub(crate) fn decide(&mut self, until: u64, mut each: impl FnMut(usize, u64)) -> u64 {
        let (low, until) = (self.undecided().max(self.floor()), until.min(self.highest + 1));
        if until <= low {
            return 0;
        }
        self.decided = until;
        let words = low >> 6..((until - 1) >> 6) + 1;
        for map in 0..self.bits.len() / (self.mask + 1) {
            let of = |word| {
                unseen(self.bits.get(self.at(map, word << 6)).copied().unwrap_or(u64::MAX), word, low, until - 1)
            };
            each(map, words.clone().map(of).sum());
        }
        words.map(|word| unseen(self.union(word), word, low, until - 1)).sum()
    }

    #[inline]
    fn at(&self, map: usize, number: u64) -> usize {
        map * (self.mask + 1) + ((number >> 6) as usize & self.mask)
    }

    /// Marks a number of the window in a map; was it marked before?
    #[inline]
    pub(crate) fn set(&mut self, map: usize, number: u64) -> bool {
        let at = self.at(map, number);
        let bit = 1u64 << (number & 63);
        let Some(word) = self.bits.get_mut(at) else { return true };
        let was = *word & bit != 0;
        *word |= bit;
        was
    }

    /// Is a number of the window marked in any map?
    #[inline]
    pub(crate) fn any(&self, number: u64) -> bool {
        self.union(number >> 6) & 1u64 << (number & 63) != 0
    }

    /// What is marked in any map, of one word.
    #[inline]
    fn union(&self, word: u64) -> u64 {
        let at = word as usize & self.mask;
        self.bits.iter().skip(at).step_by(self.mask + 1).fold(0, |all, bits| all | bits)
    }

    /// The lowest number that the window holds.
    #[inline]
    pub(crate) fn floor(&self) -> u64 {
        ((self.highest >> 6) - self.mask as u64) << 6
    }

    /// Moves the window up to `number`. How many numbers left it that are marked in no map? `each` gets for every map how
    /// many left it that are not marked there.
    #[inline]
    pub(crate) fn advance(&mut self, number: u64, each: impl FnMut(usize, u64)) -> u64 {
        let (from, to) = (self.highest >> 6, number >> 6);
        if from == to {
            self.highest = number;
            return 0;
        }
        self.turn(from, to, number, each)
    }

    fn turn(&mut self, from: u64, to: u64, number: u64, mut each: impl FnMut(usize, u64)) -> u64 {
        let words = self.mask as u64 + 1;
        // Up to the highest so far; nothing above it was ever in the window.
        let (first, highest) = (self.undecided(), self.highest);
        let mut lost = 0;
        for word in from + 1..=to.min(from + words) {
            // The word that leaves holds the numbers of `words` words before.
            let (at, leaves) = (word as usize & self.mask, word - words);
            lost += unseen(self.union(word), leaves, first, highest);
            for (map, bits) in self.bits.iter_mut().skip(at).step_by(words as usize).enumerate() {
                each(map, unseen(*bits, leaves, first, highest));
                *bits = 0;
            }
        }
        // What was jumped over: numbers above the highest so far that are below the window already.
        self.highest = number;
        let low = first.max(highest + 1);
        let jumped = self.floor().saturating_sub(low);
        if jumped > 0 {
            (0..self.bits.len() / words as usize).for_each(|map| each(map, jumped));
        }
        lost + jumped
    }

    /// Numbers of the window that are marked in no map.
    pub(crate) fn pending(&self) -> u64 {
        self.unmarked(self.undecided(), self.highest + 1)
    }

    /// Numbers of the window that are not marked in one map.
    pub(crate) fn pending_in(&self, map: usize) -> u64 {
        self.words()
            .map(|word| {
                let bits = self.bits.get(self.at(map, word << 6)).copied().unwrap_or(u64::MAX);
                unseen(bits, word, self.undecided(), self.highest)
            })
            .sum()
    }

    /// Numbers of `from .. to`, as far as the window holds them, that are marked in no map.
    pub(crate) fn unmarked(&self, from: u64, to: u64) -> u64 {
        let (first, last) = (from.max(self.first), to.saturating_sub(1).min(self.highest));
        let words = self.words();
        let range = words.start.max(first >> 6)..words.end.min((last >> 6) + 1);
        range.map(|word| unseen(self.union(word), word, first, last)).sum()
    }

    fn words(&self) -> std::ops::Range<u64> {
        self.floor() >> 6..(self.highest >> 6) + 1
    }
}

/// Unmarked numbers of a word of the window, as far as they lie in `first ..= highest`.
fn unseen(bits: u64, word: u64, first: u64, highest: u64) -> u64 {
    let base = word << 6;
    if base + 63 < first || base > highest {
        return 0;
    }
    let mut zeros = !bits;
    if first > base {
        zeros &= u64::MAX << (first - base);
    }
    if highest < base + 63 {
        zeros &= u64::MAX >> (63 - (highest - base));
    }
    u64::from(zeros.count_ones())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        /// Two maps against two sets of numbers.
        #[test]
        fn agrees_with_sets(window in 1usize..500, steps in prop::collection::vec((0u64..700, 0u64..90, 0usize..2), 1..60)) {
            let mut numbers = Numbers::new(window, 2);
            let begin = numbers.highest + 17;
            numbers.start(begin);
            let mut sets = [BTreeSet::new(), BTreeSet::new()];
            let (mut lost, mut each) = (0, [0; 2]);
            for (n, (back, ahead, map)) in steps.into_iter().enumerate() {
                let number = if ahead < 60 { numbers.highest + ahead * ahead / 20 } else { numbers.highest - back.min(numbers.highest - begin) };
                if number > numbers.highest {
                    lost += numbers.advance(number, |map, n| each[map] += n);
                }
                if number >= numbers.floor() {
                    let (seen, new) = (sets.iter().any(|set| set.contains(&number)), sets[map].insert(number));
                    prop_assert_eq!(numbers.any(number), seen);
                    prop_assert_eq!(numbers.set(map, number), !new);
                    // What was counted as lost and comes all the same is counted back by whoever marks it.
                    if numbers.is_decided(number) {
                        each[map] -= u64::from(new);
                        lost -= u64::from(!seen);
                    }
                }
                if n % 3 == 2 {
                    lost += numbers.decide(numbers.highest + 5 - back.min(200), |map, n| each[map] += n);
                }
                let all = begin..=numbers.highest;
                let in_none = |n: &u64| sets.iter().all(|set| !set.contains(n));
                prop_assert_eq!(lost + numbers.pending(), all.clone().filter(in_none).count() as u64);
                for map in 0..2 {
                    let absent = all.clone().filter(|n| !sets[map].contains(n)).count() as u64;
                    prop_assert_eq!(each[map] + numbers.pending_in(map), absent);
                }
            }
        }
    }
}
