#![no_main]
//! See `millstream_fuzz::srt_handshake`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::srt_handshake(data));
