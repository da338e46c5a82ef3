//! Video packets, raw and nearly right, through the depacketiser.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| gdmedia::fuzzing::depacketise(octets));
