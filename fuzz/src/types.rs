//! The server's types that are needed to read its records.

#[path = "../../src/types/time.rs"]
#[allow(dead_code, reason = "the server uses the rest")]
mod time;

pub(crate) use time::Now;
