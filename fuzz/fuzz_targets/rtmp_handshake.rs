#![no_main]
//! See `millstream_fuzz::rtmp_handshake`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::rtmp_handshake(data));
