#![no_main]
//! See `millstream_fuzz::amf0`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::amf0(data));
