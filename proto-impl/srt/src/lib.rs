#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

crypto::needs_provider!();

mod arq;
mod cipher;
mod config;
mod congestion;
mod connection;
mod cookie;
mod endpoint;
mod event;
mod filter;
pub mod handshake;
mod incoming;
mod km;
mod pacing;
pub mod packet;
mod reject;
mod seq;
mod stats;
pub mod streamid;

// Re-exported because public signatures use them: a user of this crate needs no other dependency.
pub use bytes::Bytes;
pub use crypto::{NoEntropy, Seed};
pub use wire::{Datagrams, Reader, Truncated};

pub use config::{
    Config, KeyLength, PASSPHRASE_BYTES_MAX, PASSPHRASE_BYTES_MIN, PAYLOAD_BYTES, Passphrase,
    PassphraseLength, STREAM_ID_BYTES_MAX,
};
pub use connection::Connection;
pub use endpoint::{DropReason, Endpoint, Route};
pub use event::{CloseReason, Connected, Event, SendError};
pub use filter::{ArqLevel, FecSettings, FilterSyntax, Layout, PacketFilter};
pub use incoming::Incoming;
pub use km::{KeyMaterial, KmError};
pub use packet::SocketId;
pub use reject::RejectReason;
pub use seq::Seq;
pub use stats::{FilterStats, Stats};
