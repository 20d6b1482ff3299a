#![no_main]
//! See `millstream_fuzz::cidr`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::cidr(data));
