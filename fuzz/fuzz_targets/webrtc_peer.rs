#![no_main]
//! See `millstream_fuzz::webrtc_peer`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::webrtc_peer(data));
