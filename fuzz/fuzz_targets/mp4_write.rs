#![no_main]
//! See `millstream_fuzz::mp4_write`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::mp4_write(data));
