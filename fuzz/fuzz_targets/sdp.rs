//! SDP: any octets in both modes, what is usable written and read again.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| gdmedia_sdp::fuzzing::sdp(octets));
