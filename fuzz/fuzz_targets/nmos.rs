//! NMOS: bodies of PATCHes and bulk requests, transport files, and what they stage and activate.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| gdmedia_nmos::fuzzing::patch(octets));
