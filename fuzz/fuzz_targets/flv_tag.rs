#![no_main]
//! See `millstream_fuzz::flv_tag`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::flv_tag(data));
