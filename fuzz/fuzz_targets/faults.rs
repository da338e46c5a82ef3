//! Plans of faults, in one line and as TOML files, and what they do to packets.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| gdmedia::fuzzing::faults(octets));
