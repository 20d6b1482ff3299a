#![no_main]
//! See `millstream_fuzz::depack`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::depack(data));
