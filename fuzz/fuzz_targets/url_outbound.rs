#![no_main]
//! See `millstream_fuzz::url_outbound`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::url_outbound(data));
