#![no_main]
//! See `millstream_fuzz::http2`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::http2(data));
