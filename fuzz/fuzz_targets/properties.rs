#![no_main]
//! See `millstream_fuzz::properties`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::properties(data));
