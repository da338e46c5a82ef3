//! ARP and IGMP as a host without a kernel answers them.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| gdmedia::fuzzing::igmp_arp(octets));
