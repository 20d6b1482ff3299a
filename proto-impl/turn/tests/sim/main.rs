//! Clients and a server in virtual time: all answers, the data both ways, and what attackers get.

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
