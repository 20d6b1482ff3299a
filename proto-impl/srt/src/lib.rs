//! SRT 1.5 in live mode (draft-sharabayko-srt-01; libsrt's documents where the draft is silent) as sans-IO machines:
//! [`Connection`] for one end, caller or listener, and [`Endpoint`] for a port at which callers come in.
//!
//! Datagrams go in with the time, events and datagrams come out by polling. The rooms, bottom up: [`packet`],
//! [`handshake`], `km` and `cipher` (key material, AES-CTR), `arq` (buffers, losses, delivery in time), `pacing`, then
//! the connection. [`streamid`] reads the standard form of a stream id.
//!
//! The payload is opaque: that it is MPEG-TS is said by whoever uses this.
//!
//! It does not know: file mode, rendezvous, bonding (groups are refused), packet filters (refused), AES-GCM, the
//! handshake of version 4.

#![forbid(unsafe_code)]

mod arq;
mod cipher;
mod config;
mod connection;
mod cookie;
mod endpoint;
mod event;
pub mod handshake;
mod incoming;
mod km;
mod pacing;
pub mod packet;
mod reject;
mod seq;
mod stats;
pub mod streamid;

pub use config::{
    Config, KeyLength, PASSPHRASE_BYTES_MAX, PASSPHRASE_BYTES_MIN, PAYLOAD_BYTES, Passphrase,
    PassphraseLength, STREAM_ID_BYTES_MAX,
};
pub use connection::Connection;
pub use endpoint::{DropReason, Endpoint, Route};
pub use event::{CloseReason, Connected, Event, SendError};
pub use incoming::Incoming;
pub use km::{KeyMaterial, KmError};
pub use packet::SocketId;
pub use reject::RejectReason;
pub use seq::Seq;
pub use stats::Stats;
