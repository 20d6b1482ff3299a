#![no_main]
//! See `millstream_fuzz::dtls_record`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::dtls_record(data));
