//! SRT 1.5 in live mode (draft-sharabayko-srt-01; libsrt's documents where the draft is silent) as sans-IO machines:
//! [`Connection`] for one end, caller or listener, and [`Endpoint`] for a port at which callers come in.
//!
//! Datagrams go in with the time, events and datagrams come out by polling. The rooms, bottom up: [`packet`],
//! [`handshake`], `km` and `cipher` (key material, AES-CTR), `arq` (buffers, losses, delivery in time), `congestion`,
//! `pacing`, then the connection. [`streamid`] reads the standard form of a stream id.
//!
//! The payload is opaque: that it is MPEG-TS is known to the user of this crate only.
//!
//! Rules for an owner:
//!
//! - An [`Endpoint`] and the connections of its port belong together: [`Endpoint::insert`] when [`Connection::incoming`]
//!   is made, before the verdict; [`Endpoint::remove`] when [`Event::Closed`] has come and nothing is left to send. A
//!   connection that calls out has a socket of its own, or is inserted too; its owner compares addresses.
//! - Drain after each input, or each batch of them: events until there are none, datagrams until
//!   [`Connection::poll_transmit`] says no, then the deadline. A connection that only sends moves its deadline about four
//!   times a second; one that receives moves it with the packets.
//! - [`Connection::send`] stamps a message with its time. The receiver plays them back at these distances.
//! - No two connections have the same seed and the same [`SocketId`]: keys are drawn from both.
//! - Memory: about one kilobyte before media. A sender holds shares of its payload until they are acknowledged, a
//!   receiver a copy of what came until it is due; both give their room back.
//! - A passphrase costs a millisecond for each verdict and each call ([`Connection::accept`],
//!   [`Connection::caller`]): PBKDF2. Only callers who have proven their address get so far, and the owner limits how many.
//! - What is sent again is at most a quarter of what is sent, with five seconds' share kept for bad times. A path that
//!   loses 20 % needs `overhead_percent: 50`.
//!
//! ```
//! use std::sync::Arc;
//! use crypto::Seed;
//! use srt::{Config, Connection, Endpoint, Event, Route, SocketId};
//! use wire::Datagrams;
//!
//! let (now, seed) = (netsim::Clock::new().now(), Seed::from_number(7));
//! let config = Arc::new(Config::default());
//! let from = "192.0.2.1:5000".parse().unwrap();
//! let mut port = Endpoint::new(now, &seed);
//! let mut caller = Connection::caller(now, Arc::clone(&config), SocketId(1), "live/stream", &seed);
//! let mut listener = None;
//! let mut out = Datagrams::new();
//! while !caller.is_connected() {
//!     // What the caller sends comes in at the port; what the port and the listener send goes back.
//!     out.clear();
//!     caller.poll_transmit(now, &mut out);
//!     let datagram = out.get(0).to_vec();
//!     let mut reply = Vec::new();
//!     match port.route(now, from, &datagram, &mut reply) {
//!         Route::New(incoming) => {
//!             assert_eq!(incoming.stream_id(), Some("live/stream"));
//!             port.insert(SocketId(2), from, incoming.peer_socket(), "a viewer");
//!             let mut connection = Connection::incoming(now, *incoming, SocketId(2), &seed);
//!             connection.accept(now, Arc::clone(&config));
//!             out.clear();
//!             connection.poll_transmit(now, &mut out);
//!             caller.handle_datagram(now, out.get(0));
//!             listener = Some(connection);
//!         }
//!         _ => caller.handle_datagram(now, &reply),
//!     }
//! }
//! assert!(matches!(listener.unwrap().poll_event(), Some(Event::Connected(_))));
//! ```
//!
//! With [`Config::adapts`] a sender slows down before the queues of a narrow path overflow; [`Connection::is_behind`] tells its
//! owner to hold back what it may still leave out.
//!
//! Differences from libsrt, on purpose: the cookie has a secret; loss reports follow each loss instead of a common
//! interval; a packet that is lost twice goes out twice; keys change only when the peer knows the next one; a stream that
//! jumps out of the window is followed instead of ended; the overhead limits what is sent again also without a bandwidth;
//! fewer ACKACKs.
//!
//! Not here: file mode, rendezvous, bonding (groups are refused), packet filters (refused), AES-GCM, the
//! handshake of version 4.

#![forbid(unsafe_code)]

mod arq;
mod cipher;
mod config;
mod congestion;
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

// A program that embeds this crate needs no other for what stands in signatures.
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
pub use incoming::Incoming;
pub use km::{KeyMaterial, KmError};
pub use packet::SocketId;
pub use reject::RejectReason;
pub use seq::Seq;
pub use stats::Stats;
