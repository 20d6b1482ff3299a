#![no_main]
//! See `millstream_fuzz::rtp_feedback`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::rtp_feedback(data));
