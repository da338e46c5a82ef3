//! Captures: analysed, and reported on in every form.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| gdmedia::fuzzing::analyze(octets));
