#![no_main]
//! See `millstream_fuzz::rtmp_client`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::rtmp_client(data));
