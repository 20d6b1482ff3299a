#![no_main]
//! See `millstream_fuzz::scte35`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::scte35(data));
