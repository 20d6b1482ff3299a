//! The promises of the source tree about itself, read from its text: the rows of docs/robustness.md have their tests,
//! no comment cites a document that is not here, rooms use only rooms below them, protocols are named in their folders
//! only, types stay small.
//!
//! Nothing but std is used, so that it also runs by itself, from the repository's root:
//! `rustc --edition 2024 --test tests/tree/main.rs -o target/tree && target/tree`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that meets the unexpected stops"
)]

mod api;
mod borders;
mod citations;
mod code;
mod convention;
mod imports;
mod processes;
mod products;
mod protocols;
mod robustness;
mod shape;
mod source;
mod wall;
mod words;
