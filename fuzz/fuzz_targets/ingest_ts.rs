#![no_main]
//! See `millstream_fuzz::ingest_ts`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::ingest_ts(data));
