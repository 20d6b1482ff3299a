#![no_main]
//! See `millstream_fuzz::vp9_config`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::vp9_config(data));
