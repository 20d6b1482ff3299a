#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod association;
mod config;
mod cookie;
mod crc;
mod dcep;
mod event;
mod inbound;
mod init;
mod outbound;
mod packet;
mod seq;
mod stats;

// Re-exports the foreign types of this crate's public signatures, so that programs need no other crate for
// them.
pub use bytes::Bytes;
pub use crypto::{NoEntropy, Seed};

pub use association::Association;
pub use config::{
    CHUNKS_PER_PACKET_MAX, CONTROL_CHUNKS_MAX, Config, FLIGHT_CHUNKS_MAX, GAPS_MAX, LABEL_BYTES_MAX,
    OVERHEAD_BYTES, RESETS_MAX, Remote, Role, TSN_AHEAD_MAX,
};
pub use event::{ChannelId, CloseReason, Event, Kind, OpenError, Opened, Options, Reliability, SendError};
pub use packet::seal;
pub use stats::{Directions, Stats};
