//! The server as a library, so that tests, benches and the simulator link the same code as `main`.
//!
//! ARCHITECTURE.md is the map. In one line: `socket -> io -> session -> hub -> session -> io -> socket`, with control
//! at the side.

pub mod auth;
pub mod bench;
pub mod cli;
pub mod config;
pub mod control;
pub mod directory;
pub mod disk;
pub mod http;
pub mod hub;
pub mod import;
pub mod io;
pub mod jobs;
pub mod mail;
pub mod protocol;
pub mod stats;
pub mod store;
pub mod types;
pub mod worker;

#[cfg(test)]
mod tests;
