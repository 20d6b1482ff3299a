#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

crypto::needs_provider!();

mod agent;
mod candidate;
mod credentials;
mod demux;
mod error;
mod event;
pub mod limits;
mod lite;
mod outbox;
mod path;
mod respond;
mod stats;
pub mod stun;
pub mod tcp;

// Re-exports the foreign types of this crate's public signatures, so that programs need no other crate for
// them.
pub use bytes::BytesMut;
pub use crypto::{NoEntropy, Seed};

pub use agent::{Agent, Config, Role};
pub use candidate::{COMPONENT, Candidate, CandidateKind, TcpType, Transport, pair_priority, priority};
pub use credentials::{Credentials, Tag};
pub use demux::{Demux, DropReason, Kind, Route, classify};
pub use error::Error;
pub use event::{CloseReason, Event};
pub use lite::{LiteAgent, LiteConfig, Selection};
pub use path::{Path, Protocol, Transmit};
pub use stats::Stats;
