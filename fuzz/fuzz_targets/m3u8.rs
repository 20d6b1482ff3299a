#![no_main]
//! See `millstream_fuzz::m3u8`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::m3u8(data));
