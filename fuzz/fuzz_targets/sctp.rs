#![no_main]
//! See `millstream_fuzz::sctp`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::sctp(data));
