//! Rings that are overwritten in time: writes and reads in any order.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| gdmedia::fuzzing::rings(octets));
