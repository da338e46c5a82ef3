//! Recordings: header, index, slots, and the scan of what has none.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| gdmedia::fuzzing::record(octets));
