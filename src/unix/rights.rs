//! Capabilities of this process (capabilities(7)).
#![allow(unsafe_code)]

/// `_LINUX_CAPABILITY_VERSION_3` of linux/capability.h: two words for each set.
const VERSION: u32 = 0x2008_0522;

/// `__user_cap_header_struct`: the version, and whose they are; 0 is the calling thread.
const HEADER: [u32; 2] = [VERSION, 0];

/// `__user_cap_data_struct`, of 32 capabilities: those that are effective, permitted, inheritable.
type Sets = [u32; 3];
const EFFECTIVE: usize = 0;
const PERMITTED: usize = 1;

/// Takes up the capabilities that the calling thread may have; threads that it begins afterwards have them too.
///
/// A program whose file has capabilities (`setcap CAPS+p gdmedia`) begins with those of them that its surroundings allow, and has to
/// take them up by itself. With `+ep` it would have them at once, but would not begin at all where one of them is not allowed: so one
/// file would not do for containers that allow different ones.
pub fn raise() {
    let Some(mut sets) = get() else { return };
    if sets.iter().any(|sets| sets[EFFECTIVE] != sets[PERMITTED]) {
        sets.iter_mut().for_each(|sets| sets[EFFECTIVE] = sets[PERMITTED]);
        set(&sets);
    }
}

fn get() -> Option<[Sets; 2]> {
    let mut header = HEADER;
    let mut sets = [Sets::default(); 2];
    // SAFETY: capget(2) of version 3 reads a header and writes two sets; both live until it returns.
    let result = unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) };
    (result == 0).then_some(sets)
}

/// Where that is refused they stay as they are, and what needs one says so.
fn set(sets: &[Sets; 2]) {
    let mut header = HEADER;
    // SAFETY: capset(2) of version 3 reads a header and two sets; both live until it returns.
    unsafe { libc::syscall(libc::SYS_capset, header.as_mut_ptr(), sets.as_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_permitted_is_taken_up_and_no_more() {
        let line = |name: &str| {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
            u64::from_str_radix(&line, 16).unwrap()
        };
        // Capabilities are a thread's own.
        let test = move || {
            let mut sets = get().unwrap();
            let permitted = line("CapPrm:");
            // Of CAP_NET_RAW and CAP_NET_ADMIN the first goes for good, and all are laid down.
            sets[0][PERMITTED] &= !(1 << 13);
            sets.iter_mut().for_each(|sets| sets[EFFECTIVE] = 0);
            set(&sets);
            assert_eq!((line("CapPrm:"), line("CapEff:")), (permitted & !(1 << 13), 0));
            raise();
            assert_eq!(line("CapEff:"), permitted & !(1 << 13));
            raise();
            assert_eq!((line("CapPrm:"), line("CapEff:")), (permitted & !(1 << 13), permitted & !(1 << 13)));
        };
        std::thread::spawn(test).join().unwrap();
    }
}
