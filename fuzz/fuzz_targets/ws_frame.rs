#![no_main]
//! See `millstream_fuzz::ws_frame`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::ws_frame(data));
