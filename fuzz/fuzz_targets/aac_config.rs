#![no_main]
//! See `millstream_fuzz::aac_config`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::aac_config(data));
