#![no_main]
//! See `millstream_fuzz::rtsp_client`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::rtsp_client(data));
