#![no_main]
//! See `millstream_fuzz::relay`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::relay(data));
