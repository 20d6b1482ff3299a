#![no_main]
//! See `millstream_fuzz::segmenter`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::segmenter(data));
