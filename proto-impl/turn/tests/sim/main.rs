//! Simulations of clients and a server in virtual time: all responses, data in both directions, and attackers.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_imports,
    reason = "a test"
)]

mod codes;
mod hostile;
mod relaying;
mod streams;
mod world;
