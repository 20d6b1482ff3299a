#![no_main]
//! See `millstream_fuzz::hevc_config`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::hevc_config(data));
