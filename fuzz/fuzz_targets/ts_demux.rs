#![no_main]
//! See `millstream_fuzz::ts_demux`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::ts_demux(data));
