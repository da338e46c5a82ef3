//! PTP: messages of the network, and answers to management requests.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| gdmedia::fuzzing::ptp(octets));
