#![no_main]
//! See `millstream_fuzz::hls_client`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::hls_client(data));
