//! Cores that a thread may run on: `sched_getaffinity`, in which cgroups' cpusets show.
#![allow(unsafe_code)]

use std::collections::BTreeSet;

/// Bits of a set, as many as the largest kernels want.
const WORDS: usize = 8192 / 64;

/// Cores that this process may use: those of its first thread, which is pinned to none by this program. Empty where the
/// kernel does not say.
pub fn allowed() -> BTreeSet<usize> {
    // The first thread has the number of the process.
    of(i32::try_from(std::process::id()).unwrap_or(0))
}

/// Cores of a thread of this machine; 0: the calling one.
pub fn of(thread: i32) -> BTreeSet<usize> {
    let mut set = [0u64; WORDS];
    // SAFETY: the kernel writes at most as many octets as it is told.
    let rc = unsafe { libc::sched_getaffinity(thread, size_of_val(&set), set.as_mut_ptr().cast()) };
    if rc != 0 {
        return BTreeSet::new();
    }
    let bits = |(n, word): (usize, &u64)| {
        let word = *word;
        (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| n * 64 + bit)
    };
    set.iter().enumerate().flat_map(bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_pinned_has_one_core() {
        let all = of(0);
        let last = *all.last().unwrap();
        let pinned = std::thread::spawn(move || {
            crate::rx::wait::pin(last).unwrap();
            of(0)
        });
        assert_eq!(pinned.join().unwrap(), BTreeSet::from([last]));
        assert_eq!(of(0), all, "others are as they were");
        assert!(allowed().is_superset(&all) && of(i32::MAX).is_empty());
    }
}
