#![no_main]
//! See `millstream_fuzz::stun`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::stun(data));
