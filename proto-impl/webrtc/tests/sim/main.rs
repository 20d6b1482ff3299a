//! Simulations of two peers over bad links, in virtual time. `MILLSTREAM_SEEDS` sets the number of seeds per
//! test.

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
#[path = "../liar/mod.rs"]
mod liar;
mod lies;
mod loss;
mod narrow;
mod rebinding;
mod rooms;
mod sends;
mod waiting;
