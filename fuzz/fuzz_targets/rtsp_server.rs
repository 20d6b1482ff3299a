#![no_main]
//! See `millstream_fuzz::rtsp_server`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::rtsp_server(data));
