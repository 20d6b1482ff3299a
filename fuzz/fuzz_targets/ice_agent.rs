#![no_main]
//! See `millstream_fuzz::ice_agent`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::ice_agent(data));
