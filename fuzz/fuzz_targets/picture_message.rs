#![no_main]
//! See `millstream_fuzz::picture_message`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::picture_message(data));
