#![no_main]
//! See `millstream_fuzz::dtls_handshake`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::dtls_handshake(data));
