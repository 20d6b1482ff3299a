#![no_main]
//! See `millstream_fuzz::sdp`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::sdp(data));
