//! Which pgroups of a frame have been placed: one bit each, in the order of the wire-format frame.

use crate::plan::Missing;

#[derive(Debug)]
pub(super) struct Coverage {
    words: Vec<u64>,
    total: u32,
    remaining: u32,
    /// Words that are not 0 lie from the first to the second, so that a frame of few packets is soon cleared.
    used: (usize, usize),
}

const UNUSED: (usize, usize) = (usize::MAX, 0);

impl Coverage {
    pub(super) fn new(total: u32) -> Self {
        Coverage { words: vec![0; (total as usize).div_ceil(64)], total, remaining: total, used: UNUSED }
    }

    pub(super) fn clear(&mut self) {
        if self.remaining != self.total {
            self.words.get_mut(self.used.0..=self.used.1).unwrap_or_default().fill(0);
            (self.remaining, self.used) = (self.total, UNUSED);
        }
    }

    /// Pgroups that have not been placed.
    #[inline]
    pub(super) fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Marks `len` pgroups from `at` on; how many of them are new? The range must lie in the frame.
    #[inline]
    pub(super) fn fill(&mut self, at: u32, len: u32) -> u32 {
        let end = at + len;
        if len == 0 || end > self.total {
            return 0;
        }
        let (first, last) = ((at >> 6) as usize, ((end - 1) >> 6) as usize);
        let Some(words) = self.words.get_mut(first..=last) else { return 0 };
        self.used = (self.used.0.min(first), self.used.1.max(last));
        let head = u64::MAX << (at & 63);
        let tail = u64::MAX >> (63 - ((end - 1) & 63));
        let new = match words {
            [word] => fill_word(word, head & tail),
            [a, middle @ .., z] => {
                let mut new = fill_word(a, head) + fill_word(z, tail);
                for word in middle {
                    // Whole words: nearly always empty before.
                    new += if *word == 0 { 64 } else { word.count_zeros() };
                    *word = u64::MAX;
                }
                new
            }
            [] => 0,
        };
        self.remaining -= new;
        new
    }

    /// Appends what is missing to `out`, run by run, rows in order.
    pub(super) fn missing(&self, row_pgroups: u32, pgroup_octets: u32, out: &mut Vec<Missing>) {
        if self.remaining == 0 {
            return;
        }
        let mut at = 0;
        while let Some(gap) = self.next(at, false) {
            let end = self.next(gap, true).unwrap_or(self.total);
            // The run, cut at the ends of rows.
            let mut from = gap;
            while from < end {
                let row = from / row_pgroups;
                let to = end.min((row + 1) * row_pgroups);
                out.push(Missing {
                    row,
                    octet: (from - row * row_pgroups) * pgroup_octets,
                    len: (to - from) * pgroup_octets,
                });
                from = to;
            }
            at = end;
        }
    }

    /// The first pgroup from `at` on that is placed, or is not.
    fn next(&self, at: u32, placed: bool) -> Option<u32> {
        let invert = if placed { 0 } else { u64::MAX };
        let mut index = (at >> 6) as usize;
        let mut word = (self.words.get(index)? ^ invert) & (u64::MAX << (at & 63));
        while word == 0 {
            index += 1;
            word = self.words.get(index)? ^ invert;
        }
        let found = (index as u32) << 6 | word.trailing_zeros();
        (found < self.total).then_some(found)
    }

    pub(super) fn check_invariants(&self) {
        let placed: u32 = self.words.iter().map(|w| w.count_ones()).sum();
        assert_eq!(placed + self.remaining, self.total);
        let used = self.used.0..=self.used.1;
        assert!(self.words.iter().enumerate().all(|(n, word)| *word == 0 || used.contains(&n)));
    }
}

#[inline]
fn fill_word(word: &mut u64, mask: u64) -> u32 {
    let new = mask & !*word;
    *word |= mask;
    new.count_ones()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_are_merged_and_cut_at_rows() {
        // Three rows of 70 pgroups of 5 octets.
        let mut c = Coverage::new(210);
        assert_eq!(c.fill(0, 10), 10);
        assert_eq!(c.fill(5, 10), 5);
        assert_eq!(c.fill(60, 5), 5);
        assert_eq!(c.fill(150, 60), 60);
        let mut out = vec![];
        c.missing(70, 5, &mut out);
        let m = |row, octet, len| Missing { row, octet, len };
        assert_eq!(out, [m(0, 75, 225), m(0, 325, 25), m(1, 0, 350), m(2, 0, 50)]);
        assert_eq!(c.fill(0, 210), 130);
        assert_eq!((c.remaining(), c.fill(100, 50)), (0, 0));
        out.clear();
        c.missing(70, 5, &mut out);
        assert!(out.is_empty());
        // Beyond the frame nothing happens.
        assert_eq!((c.fill(209, 2), c.fill(3, 0)), (0, 0));
    }

    proptest! {
        #[test]
        fn agrees_with_a_set(total in 1u32..700, row in 1u32..90, runs in prop::collection::vec((0u32..700, 0u32..300), 0..12)) {
            let total = total.div_ceil(row) * row;
            let mut c = Coverage::new(total);
            let mut set = vec![false; total as usize];
            for (at, len) in runs {
                if at + len > total { continue }
                let part = &mut set[at as usize..(at + len) as usize];
                let new = part.iter().filter(|b| !**b).count() as u32;
                part.fill(true);
                prop_assert_eq!(c.fill(at, len), new);
                c.check_invariants();
            }
            let mut out = vec![];
            c.missing(row, 1, &mut out);
            let mut again = vec![true; total as usize];
            for (n, m) in out.iter().enumerate() {
                prop_assert!(m.len > 0 && m.octet + m.len <= row);
                again[(m.row * row + m.octet) as usize..][..m.len as usize].fill(false);
                if let Some(next) = out.get(n + 1) {
                    prop_assert!((next.row, next.octet) > (m.row, m.octet + m.len));
                }
            }
            prop_assert_eq!(again, set);
        }
    }
}
