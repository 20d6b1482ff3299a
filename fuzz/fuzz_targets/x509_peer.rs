#![no_main]
//! See `millstream_fuzz::x509_peer`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::x509_peer(data));
