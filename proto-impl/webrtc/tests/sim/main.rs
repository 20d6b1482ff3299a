//! Two peers over links that misbehave, in virtual time. `MILLSTREAM_SEEDS` runs each figure with so many seeds.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test"
)]

mod association;
mod basic;
mod data;
mod guard;
mod harness;
mod hijack;
mod keys;
mod loss;
mod narrow;
mod rebinding;
mod rooms;
mod waiting;
