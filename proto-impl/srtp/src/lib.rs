#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

crypto::needs_provider!();

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

// Re-exports the foreign types of this crate's public signatures, so that programs need no other crate for
// them.
pub use rtp;
pub use wire::Datagrams;

pub use error::Error;
pub use inbound::{Inbound, InboundStats};
pub use outbound::Outbound;
pub use profile::{MasterKey, Profile};
pub use replay::WINDOW as REPLAY_WINDOW;

/// Maximum number of a peer's sources, since a peer may make up any number of them.
pub const SOURCES_MAX: usize = 32;
/// Maximum number of our own sources, including ended ones: a viewer of a room gets one or two from each
/// participant, and participants come and go.
pub const OWN_SOURCES_MAX: usize = 4096;
