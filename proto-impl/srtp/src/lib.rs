#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod derive;
mod error;
mod inbound;
mod outbound;
mod profile;
mod replay;
mod session;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

// A program that embeds this crate needs no other for what stands in signatures.
pub use rtp;
pub use wire::Datagrams;

pub use error::Error;
pub use inbound::{Inbound, InboundStats};
pub use outbound::Outbound;
pub use profile::{MasterKey, Profile};
pub use replay::WINDOW as REPLAY_WINDOW;

/// Maximum number of sources of a peer, which can invent any number of them.
pub const SOURCES_MAX: usize = 32;
/// Maximum number of sources of our own, ended ones included: a viewer of a room gets one or two from each participant,
/// who come and go.
pub const OWN_SOURCES_MAX: usize = 4096;
