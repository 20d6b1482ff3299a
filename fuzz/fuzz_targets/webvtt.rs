#![no_main]
//! See `millstream_fuzz::webvtt`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::webvtt(data));
