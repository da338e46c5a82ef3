//! What this process uses, from procfs.

use std::path::Path;

/// What was read; absent where procfs does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Octets of memory that it holds (RSS).
    pub rss: Option<u64>,
    /// Open files.
    pub fds: Option<u64>,
    /// Seconds of CPU time that it has used.
    pub cpu_seconds: Option<f64>,
}

/// Of this process, now.
pub fn usage() -> Usage {
    Usage {
        rss: std::fs::read_to_string("/proc/self/status").ok().and_then(|text| rss(&text)),
        fds: fds(Path::new("/proc/self/fd")),
        cpu_seconds: std::fs::read_to_string("/proc/self/stat").ok().and_then(|text| cpu(&text)),
    }
}

fn rss(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// The one that the counting itself has open does not count.
fn fds(folder: &Path) -> Option<u64> {
    Some((std::fs::read_dir(folder).ok()?.count() as u64).saturating_sub(1))
}

/// User and system time, fields 14 and 15 of /proc/PID/stat, in ticks of 10 ms (USER_HZ is 100 on every Linux). The name
/// before them may hold blanks and brackets.
fn cpu(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let ticks = |text: Option<&str>| text?.parse::<u64>().ok();
    Some((ticks(fields.next())? + ticks(fields.next())?) as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_procfs() {
        assert_eq!(rss("VmPeak:\t 10 kB\nVmRSS:\t    2048 kB\n"), Some(2 << 20));
        assert_eq!(rss("VmPeak: 1 kB"), None);
        assert_eq!(cpu("12 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0"), Some(2.0));
        assert_eq!(cpu("12 (a"), None);
    }

    #[test]
    fn this_process() {
        let before = usage();
        assert!(before.rss.is_some_and(|n| n > 1 << 20) && before.fds.is_some_and(|n| n >= 3));
        assert!(before.cpu_seconds.is_some_and(|s| s >= 0.0));
    }
}
