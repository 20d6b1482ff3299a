#![no_main]
//! See `millstream_fuzz::server`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::server(data));
