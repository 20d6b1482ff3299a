//! A WebRTC peer as a sans-IO machine: ICE, DTLS, SRTP, RTP and their negotiation put together.
#![forbid(unsafe_code)]

mod config;
mod error;
mod event;
mod negotiate;
mod peer;
mod receive;
mod send;
mod stats;
mod transport;

pub use config::{Config, IceMode};
pub use error::Error;
pub use event::{CloseReason, Event};
pub use negotiate::{
    SECTIONS_MAX, Section, SectionFormat, SectionId, SourcePair, Wish, describe_candidate, offered_formats,
    read_candidate,
};
pub use peer::Peer;
pub use send::Track;
pub use stats::{Stats, TransportStats};
