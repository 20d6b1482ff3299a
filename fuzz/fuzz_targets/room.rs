#![no_main]
//! See `millstream_fuzz::room`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::room(data));
