//! Simulations of two associations over bad links, in virtual time.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test"
)]

mod basic;
mod channels;
mod harness;
mod hostile;
mod loss;
