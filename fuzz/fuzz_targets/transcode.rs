#![no_main]
//! See `millstream_fuzz::transcode`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::transcode(data));
