#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod chunk;
mod client;
mod command;
mod config;
mod error;
mod event;
mod four_cc;
pub mod handshake;
pub mod key;
mod link;
mod message;
mod rate;
mod server;
#[cfg(test)]
mod testing;
mod timers;

// Re-exported because public signatures use them: a user of this crate needs no other dependency.
pub use bytes::{Bytes, BytesMut};
pub use crypto::{NoEntropy, Random, Seed};
pub use flv;
pub use wire::{Gather, SendQueue};

pub use client::{Client, ClientEvent};
pub use config::{ClientConfig, Config};
pub use error::{Error, Limit, Violation};
pub use event::{
    CloseReason, ConnectRequest, Event, PlayRequest, PlayTracks, PublishMode, PublishRequest, Rejection,
    Stats, Timer, Verb,
};
pub use four_cc::FourCcs;
pub use key::Target;
pub use message::{MediaKind, MediaMessage};
pub use server::Server;

/// Chunk size that client and server announce and use, as SRS does. A second of audio, or nearly every inter frame,
/// fits one chunk.
pub const CHUNK_SIZE_OUT: usize = 60_000;
