//! Captures: pcap, pcapng, gzip, every link layer, and the survey of what they hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| gdmedia::fuzzing::capture(octets));
