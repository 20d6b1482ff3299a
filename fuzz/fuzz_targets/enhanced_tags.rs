#![no_main]
//! See `millstream_fuzz::enhanced_tags`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::enhanced_tags(data));
