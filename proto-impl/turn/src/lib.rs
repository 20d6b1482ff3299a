#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

crypto::needs_provider!();

mod allocation;
mod allowance;
mod attribute;
mod config;
mod credentials;
mod endpoint;
mod error;
pub mod limits;
mod nonce;
mod peers;
mod quotas;
mod request;
mod respond;
pub mod stream;

// Re-exports the foreign types of this crate's public signatures, so that programs need no other crate for
// them.
pub use bytes::BytesMut;
pub use crypto::{NoEntropy, Seed};

pub use allocation::{Allocation, Bandwidth, CloseReason, Destination, Event, Stats, Transmit};
pub use attribute::{Family, channel_data, method};
pub use config::{Caps, Config};
pub use credentials::Credentials;
pub use endpoint::{Client, DropReason, Endpoint, EndpointStats, Incoming, Route};
pub use error::Error;
pub use peers::{Peer, Peers};
