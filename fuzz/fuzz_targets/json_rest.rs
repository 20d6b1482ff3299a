#![no_main]
//! See `millstream_fuzz::json_rest`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::json_rest(data));
