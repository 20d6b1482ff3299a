//! RTMP 1.0 (Adobe, December 2012) as sans-IO machines: [`Server`] for one accepted connection, [`Client`] for a
//! push or a pull.
//!
//! Bytes go in with the time, events and bytes come out by polling. The rooms, bottom up: [`handshake`] (§5.2),
//! [`chunk`] (§5.3), `link` (§5.4 and §6: control messages, acknowledgements), `command` (§7.2), then the two
//! machines. [`key`] is the one place that knows how a publish or play name becomes a stream key.
//!
//! Media that the owner packages itself shares a connection with a machine's own messages at message boundaries:
//! both are written with [`chunk::write_message`] and [`CHUNK_SIZE_OUT`], and every message starts with a full
//! header, so neither depends on what the other wrote.
//!
//! Not here: codecs, RTMPE, RTMPT, shared objects.

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

// A program that embeds this crate needs no other for what stands in signatures.
pub use bytes::{Bytes, BytesMut};
pub use crypto::{NoEntropy, Random, Seed};
pub use flv;
pub use wire::SendQueue;

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

/// The chunk size that both machines announce and write with, as SRS does: a second of audio or most inter frames
/// is one chunk.
pub const CHUNK_SIZE_OUT: usize = 60_000;
