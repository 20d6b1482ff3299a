#![no_main]
//! See `millstream_fuzz::form`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::form(data));
