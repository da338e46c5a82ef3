//! Input from people who mean harm: forged packets beside the true stream, descriptions that ask for terabytes, captures that
//! lie about lengths. Memory and work stay bounded, nothing panics, and the true stream stays whole.

#[path = "../common/mod.rs"]
mod common;
#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

mod captures;
mod descriptions;
mod packets;

/// The program (`gdmedia` in `command`) with so much address space, in MiB; none under a sanitizer, which needs all of it.
fn bounded(mib: u64, command: &str) -> Option<common::Output> {
    if std::env::var_os("GDMEDIA_SANITIZED").is_some() {
        println!("skipped: a sanitizer bears no limit of memory");
        return None;
    }
    let begun = Instant::now();
    let output = common::shell(&format!("ulimit -v {}; {}", mib * 1024, command.replace("gdmedia", common::program())));
    // None of this is work: a machine that stalls gets half a minute.
    assert!(begun.elapsed() < Duration::from_secs(30), "{command}: {:?}", begun.elapsed());
    assert!((0..=99).contains(&output.code), "{command}: ended with {}: {}", output.code, output.stderr);
    for word in ["panicked", "memory allocation"] {
        assert!(!output.stderr.contains(word), "{command}: {}", output.stderr);
    }
    Some(output)
}
