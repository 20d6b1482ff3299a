#![no_main]
//! See `millstream_fuzz::webm_index`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::webm_index(data));
