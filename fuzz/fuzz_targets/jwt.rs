#![no_main]
//! See `millstream_fuzz::jwt`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::jwt(data));
