#![no_main]
//! See `millstream_fuzz::webrtc_offer`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::webrtc_offer(data));
