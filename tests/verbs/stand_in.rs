//! The stand-in's own test: a program in C that makes the header's calls, with the address and undefined behaviour sanitizers.

use std::path::Path;
use std::process::Command;

#[test]
fn the_stand_in_is_as_the_header_wants_it() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verbs/stand-in");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("verbs-stand-in");
    let mut make = Command::new("make");
    make.arg("-C").arg(sources).arg(format!("OUT={}", out.display())).args(["library", "check"]);
    // What was meant for this program, not for that one.
    for name in ["ASAN_OPTIONS", "CARGO_MAKEFLAGS", "LD_PRELOAD", "LSAN_OPTIONS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"] {
        make.env_remove(name);
    }
    let output = make.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said.lines().filter(|line| line.starts_with("skipped")).for_each(|line| println!("{line}"));
    assert!(said.contains("the stand-in is as the header wants it"), "{said}");
}
