#![no_main]
//! See `millstream_fuzz::srtp_rtp_rtcp`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::srtp_rtp_rtcp(data));
