//! What a thread may do beyond what its user may (capabilities(7)).
#![allow(unsafe_code)]

use std::io;

/// `CAP_DAC_OVERRIDE` and `CAP_DAC_READ_SEARCH`: files of whichever user.
#[cfg(feature = "daemon")]
pub const FILES: u64 = 1 << 1 | 1 << 2;

/// `struct __user_cap_header_struct` of linux/capability.h.
#[repr(C)]
struct Header {
    version: u32,
    /// 0: the calling thread.
    thread: libc::c_int,
}

/// `struct __user_cap_data_struct`: 32 capabilities, of which there are two such sets.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;

/// Takes up the capabilities that the calling thread may have; threads that it begins afterwards have them too. Where that is
/// refused they stay as they are, and what needs one says so.
///
/// A program whose file has capabilities (`setcap CAPS+p gdmedia`) begins with those of them that its surroundings allow, and has to
/// take them up by itself. With `+ep` it would have them at once, but would not begin at all where one of them is not allowed: so one
/// file would not do for containers that allow different ones.
pub fn raise() {
    let Ok(before) = get() else { return };
    let _ = set(before, before.map(|set| Data { effective: set.permitted, ..set }));
}

/// The calling thread, and all that it begins from now on, keep no more of their capabilities than these. Other threads are as they
/// were: threads have their own, unlike what the C library makes of user ids.
///
/// # Errors
/// The kernel refuses it, as where a filter for system calls has no `capset`; then all is as before.
#[cfg(feature = "preview")]
pub fn keep(wanted: u64) -> io::Result<()> {
    let before = get()?;
    let mut sets = before;
    for (set, wanted) in sets.iter_mut().zip([wanted as u32, (wanted >> 32) as u32]) {
        set.permitted &= wanted;
        set.effective &= wanted;
        // No program is begun by such a thread.
        set.inheritable = 0;
    }
    set(before, sets)
}

/// For a thread that needs none: where it cannot give them up it goes on with them.
#[cfg(feature = "preview")]
pub fn none() {
    let _ = keep(0);
}

/// Is this process one of root (user id 0, as far as it is seen from here)?
#[cfg(feature = "daemon")]
pub fn is_root() -> bool {
    // SAFETY: takes nothing, and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

fn get() -> io::Result<[Data; 2]> {
    let mut header = Header { version: VERSION, thread: 0 };
    let mut sets = [Data::default(); 2];
    // SAFETY: both point to what capget(2) expects of this version, two sets; it writes nothing else.
    match unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) } {
        0 => Ok(sets),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set(before: [Data; 2], sets: [Data; 2]) -> io::Result<()> {
    if sets == before {
        return Ok(());
    }
    let mut header = Header { version: VERSION, thread: 0 };
    // SAFETY: as in `get`; capset(2) only reads both.
    match unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Permitted, effective and inheritable ones of the calling thread.
    fn mine() -> [u64; 3] {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        ["CapPrm:", "CapEff:", "CapInh:"].map(|name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        })
    }

    #[cfg(feature = "preview")]
    #[test]
    fn a_thread_gives_up_its_own_and_no_other() {
        let before = mine();
        let theirs = |wanted: u64| {
            let work = move || {
                keep(wanted).unwrap();
                // And those that it begins.
                [mine(), std::thread::spawn(mine).join().unwrap()]
            };
            std::thread::spawn(work).join().unwrap()
        };
        assert_eq!(theirs(0), [[0; 3]; 2]);
        // CAP_DAC_OVERRIDE, and CAP_PERFMON, which is above the 32nd.
        for wanted in [1 << 1, 1 << 38] {
            let kept = [before[0] & wanted, before[1] & wanted, 0];
            assert_eq!(theirs(wanted), [kept; 2]);
        }
        assert_eq!(mine(), before);
    }

    #[test]
    fn what_is_permitted_is_taken_up_and_no_more() {
        // Capabilities are a thread's own.
        let test = move || {
            let [permitted, ..] = mine();
            // CAP_NET_RAW goes for good, and all others are laid down.
            let (before, left) = (get().unwrap(), permitted & !(1 << 13));
            let mut sets = before;
            sets[0].permitted &= !(1 << 13);
            sets.iter_mut().for_each(|set| set.effective = 0);
            set(before, sets).unwrap();
            assert_eq!(mine()[..2], [left, 0]);
            for _ in 0..2 {
                raise();
                assert_eq!(mine()[..2], [left, left]);
            }
        };
        std::thread::spawn(test).join().unwrap();
    }
}
