//! The process, by the names that every Prometheus client has.

use super::text::{Kind, Text};
use crate::unix::memory;
use std::fs;
use std::sync::OnceLock;

pub(super) fn write(text: &mut Text) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let Some(Process { cpu, started, memory, resident }) = read(&stat, ticks(), memory::page() as f64) else { return };
    text.metric("process_cpu_seconds_total", Kind::Counter, "CPU time of all threads, in seconds.");
    text.sample(&[], cpu);
    text.metric("process_resident_memory_bytes", Kind::Gauge, "Memory in RAM.");
    text.sample(&[], resident);
    text.metric("process_virtual_memory_bytes", Kind::Gauge, "Address space.");
    text.sample(&[], memory);
    static BOOT: OnceLock<Option<f64>> = OnceLock::new();
    if let Some(boot) = BOOT.get_or_init(boot) {
        text.metric("process_start_time_seconds", Kind::Gauge, "When the process started, seconds since 1970.");
        text.sample(&[], boot + started);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        text.metric("process_open_fds", Kind::Gauge, "Open files.");
        // One of them is the folder that is being read.
        text.count(&[], open.count().saturating_sub(1) as u64);
    }
}

#[derive(Debug, PartialEq)]
struct Process {
    cpu: f64,
    /// Since the machine started.
    started: f64,
    memory: f64,
    resident: f64,
}

/// Of `/proc/self/stat` (proc(5)): fields are counted from 1, and the second one may hold anything in its brackets.
fn read(stat: &str, ticks: f64, page: f64) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |n: usize| fields.get(n - 3)?.parse::<f64>().ok();
    Some(Process {
        cpu: (field(14)? + field(15)?) / ticks,
        started: field(22)? / ticks,
        memory: field(23)?,
        resident: field(24)? * page,
    })
}

/// When the machine started, seconds since 1970. It is read once: where the clock is set, what has started starts no other time.
fn boot() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

/// A second of `/proc` has so many on Linux, on every machine that this is built for (`getconf CLK_TCK`).
fn ticks() -> f64 {
    100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_proc_5_says() {
        let stat =
            "7 (a) b (c)) S 1 7 7 0 -1 4194304 10 11 12 13 250 50 0 0 20 0 9 0 4321 8192000 300 18446744073709551615 1";
        let wanted = Process { cpu: 3.0, started: 43.21, memory: 8_192_000.0, resident: 1_228_800.0 };
        assert_eq!(read(stat, 100.0, 4096.0), Some(wanted));
        assert_eq!(read("7 (a) S 1", 100.0, 4096.0), None);
        assert_eq!(read("", 100.0, 4096.0), None);
    }
}
