//! Simulations of two agents over bad links, in virtual time. `MILLSTREAM_SEEDS` sets the number of seeds for the lossy
//! runs.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test"
)]

mod basic;
mod harness;
mod hostile;
mod loss;
mod moves;
