#![no_main]
//! See `millstream_fuzz::mp4_index`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::mp4_index(data));
