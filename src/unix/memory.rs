//! Memory as the kernel hands it out.
#![allow(unsafe_code)]

/// Octets of a page; 4096 where nobody says it.
pub fn page() -> u64 {
    // SAFETY: takes a number, and gives one.
    let octets = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(octets).ok().filter(|octets| *octets > 0).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_page_is_what_the_kernel_says_of_its_mappings() {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let line = maps.lines().find_map(|line| line.strip_prefix("KernelPageSize:")).unwrap();
        let kib: u64 = line.trim().split(' ').next().unwrap().parse().unwrap();
        assert_eq!(super::page(), kib * 1024);
    }
}
