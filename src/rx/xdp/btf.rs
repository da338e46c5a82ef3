//! The kernel's type information (BTF, linux/btf.h), as far as one question goes: which number has a function that programs
//! may call. Pure but for [`function`].
//!
//! ```text
//! header   magic 0xeb9f (2), version 1, flags, its length (4), then offset and length (4 each) of types and of strings,
//!          counted from the end of the header
//! type     offset of its name (4), info (4): members (16 bits) and kind (bits 24 to 28), size or type (4), and more
//!          by its kind; numbers count from 1
//! ```

use std::fs::File;
use std::io::{ErrorKind, Read};

/// Where the kernel shows its own.
pub const FILE: &str = "/sys/kernel/btf/vmlinux";
/// Octets that are read at most; kernels have 5 to 10 MiB.
const MOST: u64 = 64 << 20;

const MAGIC: u16 = 0xeb9f;
const FUNC: u32 = 12;

/// The number of a function of the running kernel; or why there is none, for people.
pub fn function(name: &str) -> Result<u32, String> {
    let mut octets = Vec::new();
    match File::open(FILE).and_then(|file| file.take(MOST).read_to_end(&mut octets)) {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(format!("the kernel has no BTF ({FILE})")),
        Err(e) => return Err(format!("the kernel's BTF ({FILE}) cannot be read: {e}")),
    }
    match find(&octets, name) {
        Some(Some(number)) => Ok(number),
        Some(None) => Err(format!("this kernel has no {name} (Linux 6.3 and later have)")),
        None => Err(format!("the kernel's BTF ({FILE}) is not understood")),
    }
}

/// The number of a function, none inside where there is no such function; none where these are no types, or of a kind that is
/// not known. Each type is looked at once.
pub fn find(octets: &[u8], name: &str) -> Option<Option<u32>> {
    if u16::from_ne_bytes(*octets.first_chunk()?) != MAGIC || *octets.get(2)? != 1 {
        return None;
    }
    let header = u32_at(octets, 4)? as usize;
    let part = |at: usize| {
        let (offset, len) = (u32_at(octets, at)? as usize, u32_at(octets, at + 4)? as usize);
        octets.get(header.checked_add(offset)?..)?.get(..len)
    };
    let (mut types, strings) = (part(8)?, part(16)?);
    let is_named = |at: u32| {
        let rest = strings.get(at as usize..).unwrap_or_default();
        rest.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    };
    let mut number = 0u32;
    while !types.is_empty() {
        number = number.checked_add(1)?;
        let (named, info) = (u32_at(types, 0)?, u32_at(types, 4)?);
        let kind = info >> 24 & 0x1f;
        if kind == FUNC && is_named(named) {
            return Some(Some(number));
        }
        types = types.get(12 + more(kind, info & 0xffff)?..)?;
    }
    Some(None)
}

/// Octets behind the first 12 of a type; none of a kind that is not known.
fn more(kind: u32, members: u32) -> Option<usize> {
    let each = members as usize;
    Some(match kind {
        // Pointer, forward, typedef, volatile, const, restrict, function, float, type tag.
        2 | 7..=12 | 16 | 18 => 0,
        // Integer, variable, declaration tag.
        1 | 14 | 17 => 4,
        // Array.
        3 => 12,
        // Structure, union, section, enumeration of 64 bits.
        4 | 5 | 15 | 19 => each * 12,
        // Enumeration, parameters.
        6 | 13 => each * 8,
        _ => return None,
    })
}

fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Types as words, and strings.
    fn btf(types: &[u32], strings: &[u8]) -> Vec<u8> {
        let mut out = Vec::from(0xeb9fu16.to_ne_bytes());
        out.extend([1, 0]);
        let len = 4 * types.len() as u32;
        for word in [24, 0, len, len, strings.len() as u32].iter().chain(types) {
            out.extend(word.to_ne_bytes());
        }
        out.extend(strings);
        out
    }

    const fn info(kind: u32, members: u32) -> u32 {
        kind << 24 | members
    }

    #[test]
    fn a_function_is_found_behind_types_of_every_kind() {
        // "", "int" at 1, "stamp" at 5, "stamps" at 11.
        let strings = b"\0int\0stamp\0stamps\0";
        let types = [
            // 1 integer of 32 bits, 2 pointer to it, 3 array.
            &[1, info(1, 0), 4, 32][..],
            &[0, info(2, 0), 1],
            &[0, info(3, 0), 0, 1, 1, 7],
            // 4 structure and 5 union of two members, 6 enumeration of three values.
            &[5, info(4, 2), 8, 1, 1, 0, 1, 1, 32],
            &[5, info(5, 2) | 1 << 31, 4, 1, 1, 0, 1, 1, 0],
            &[5, info(6, 3), 4, 1, 0, 1, 1, 1, 2],
            // 7 to 11.
            &[5, info(7, 0), 0],
            &[5, info(8, 0), 1],
            &[0, info(9, 0), 1],
            &[0, info(10, 0), 1],
            &[0, info(11, 0), 1],
            // 12 parameters of a function, 13 a variable, 14 a section with it, 15 a float.
            &[0, info(13, 2), 1, 1, 1, 1, 2],
            &[5, info(14, 0), 1, 1],
            &[5, info(15, 1), 4, 13, 0, 4],
            &[1, info(16, 0), 8],
            // 16 a function's declaration tag, 17 a type tag, 18 an enumeration of 64 bits.
            &[5, info(17, 0), 20, u32::MAX],
            &[5, info(18, 0), 1],
            &[5, info(19, 1), 8, 1, 0, 0],
            // 19 a function with a longer name, 20 the one that is wanted (info: global linkage).
            &[11, info(12, 1), 12],
            &[5, info(12, 1), 12],
        ]
        .concat();
        let octets = btf(&types, strings);
        assert_eq!(find(&octets, "stamp"), Some(Some(20)));
        assert_eq!(find(&octets, "stamps"), Some(Some(19)));
        for no_function in ["int", "sta", "", "stampss"] {
            assert_eq!(find(&octets, no_function), Some(None), "{no_function}");
        }
        for len in 0..octets.len() {
            assert_eq!(find(&octets[..len], "stamp"), None, "cut to {len}");
        }
    }

    #[test]
    fn what_is_not_understood_is_said_to_be_so() {
        let good = btf(&[1, info(12, 0), 0], b"\0f\0");
        assert_eq!(find(&good, "f"), Some(Some(1)));
        let changed = |at: usize, with: u8| {
            let mut octets = good.clone();
            octets[at] = with;
            find(&octets, "f")
        };
        assert_eq!((changed(0, 0), changed(2, 2)), (None, None), "another magic, another version");
        assert_eq!(find(&btf(&[1, info(20, 0), 0, 1, info(12, 0), 0], b"\0f\0"), "f"), None, "a kind of the future");
        assert_eq!(find(&btf(&[1, info(4, 9), 0], b"\0f\0"), "f"), None, "members beyond the end");
        assert_eq!(find(&btf(&[99, info(12, 0), 0], b"\0f\0"), "f"), Some(None), "a name beyond the end");
        assert_eq!(find(&btf(&[], b""), "f"), Some(None), "nothing in it");
        // An offset that would wrap.
        let mut octets = good.clone();
        octets[8..12].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(find(&octets, "f"), None);
    }

    /// By the kernel that runs here, if it has any.
    #[test]
    fn the_kernels_own_is_read() {
        match function("bpf_xdp_metadata_rx_timestamp") {
            Ok(number) => assert!(number > 1000, "{number}"),
            Err(why) => assert!(why.contains("no BTF") || why.contains("Linux 6.3"), "{why}"),
        }
        let none = function("no_such_function_anywhere").unwrap_err();
        assert!(none.contains("no BTF") || none.contains("this kernel has no no_such_function_anywhere"), "{none}");
    }

    proptest! {
        #[test]
        fn any_octets_are_read_without_harm(octets in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = find(&octets, "f");
        }

        /// The same with a header that is believed.
        #[test]
        fn any_types_are_read_without_harm(types in proptest::collection::vec(any::<u32>(), 0..100),
                                           strings in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = find(&btf(&types, &strings), "f");
        }

        /// Types of known kinds in any order: the number of the first function of that name.
        #[test]
        fn numbers_count_types(kinds in proptest::collection::vec((1u32..20, 0u32..4), 0..60)) {
            let mut types = Vec::new();
            for (kind, members) in &kinds {
                types.extend([if *kind == FUNC { 3 } else { 1 }, info(*kind, *members), 0]);
                types.extend(vec![7; more(*kind, *members).unwrap() / 4]);
            }
            types.extend([1, info(FUNC, 0), 0]);
            prop_assert_eq!(find(&btf(&types, b"\0f\0g\0"), "f"), Some(Some(kinds.len() as u32 + 1)));
        }
    }
}
