#![no_main]
//! See `millstream_fuzz::ingest_flv`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::ingest_flv(data));
