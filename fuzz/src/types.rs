//! The server's types that its control reads records with.

#[path = "../../src/types/time.rs"]
#[allow(dead_code, reason = "the server uses the rest")]
mod time;

pub(crate) use time::Now;
