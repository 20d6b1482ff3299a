#![no_main]
//! See `millstream_fuzz::av1_config`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::av1_config(data));
