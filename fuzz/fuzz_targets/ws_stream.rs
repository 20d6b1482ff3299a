#![no_main]
//! See `millstream_fuzz::ws_stream`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::ws_stream(data));
