#![no_main]
//! See `millstream_fuzz::turn`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| millstream_fuzz::turn(data));
