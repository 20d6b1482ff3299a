#![no_main]
//! See `millstream_fuzz::rtsp_message`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::rtsp_message(data));
