#![no_main]
//! See `millstream_fuzz::http_client`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::http_client(data));
