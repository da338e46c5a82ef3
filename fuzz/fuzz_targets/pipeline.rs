//! The pipeline as a whole: packets of two legs to frames, in virtual time.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| gdmedia::fuzzing::pipeline(octets));
