#![no_main]
//! See `millstream_fuzz::store_recover`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::store_recover(data));
