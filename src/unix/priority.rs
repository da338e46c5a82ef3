//! How the operating system shares cores among threads.
#![allow(unsafe_code)]

/// What a thread is set back by whose work can wait: it runs when others leave a core free, and does not starve.
const NICE: i32 = 10;

/// The calling thread gives way to others. Where that is refused, or it does so already, it stays as it is.
pub fn lower() {
    // SAFETY: calls with plain numbers; 0 is the calling thread on Linux.
    unsafe {
        if libc::getpriority(libc::PRIO_PROCESS, 0) < NICE {
            libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_calling_thread_is_set_back() {
        let nice = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // The 19th field; the name before may have blanks, but not this bracket behind it.
            let fields = stat.rsplit(") ").next().unwrap();
            fields.split(' ').nth(16).unwrap().parse::<i32>().unwrap()
        };
        let before = nice();
        let theirs = std::thread::spawn(move || {
            lower();
            nice()
        });
        assert_eq!(theirs.join().unwrap(), NICE.max(before));
        assert_eq!(nice(), before);
    }
}
