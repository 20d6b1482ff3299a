#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

crypto::needs_provider!();

mod config;
mod error;
mod event;
mod heads;
mod negotiate;
mod pacer;
mod peer;
mod probe;
mod receive;
mod redundancy;
mod send;
mod stats;
mod transport;

// Re-exports the foreign types of this crate's public signatures, so that programs need no other crate for
// them.
pub use bytes::Bytes;
pub use crypto::{NoEntropy, Seed};
pub use wire::Datagrams;
pub use {dtls, ice, media, rtp, sctp, sdp};

pub use config::{Config, IceMode};
pub use error::Error;
pub use event::{CloseReason, Event};
pub use negotiate::{
    LAYERS_MAX, MediaPreference, OFFERED_SECTIONS_MAX, SECTIONS_MAX, Section, SectionFormat, SectionId,
    SourcePair, describe_candidate, offered_formats, read_candidate,
};
pub use peer::{Peer, Queued};
pub use send::Track;
pub use stats::{SentStats, Stats, TransportStats};
