//! Two agents over links that misbehave, in virtual time. `MILLSTREAM_SEEDS` sets with how many seeds the lossy runs are
//! made.

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
