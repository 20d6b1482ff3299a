#![no_main]
//! See `millstream_fuzz::avc_config`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::avc_config(data));
