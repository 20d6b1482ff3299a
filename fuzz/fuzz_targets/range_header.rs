#![no_main]
//! See `millstream_fuzz::range_header`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::range_header(data));
