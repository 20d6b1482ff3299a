//! DTLS 1.2 and 1.3 for WebRTC (RFC 6347, RFC 5246, RFC 5764, RFC 7627, RFC 5705, RFC 8422; RFC 9147, RFC 8446) as a sans-IO
//! machine: [`Connection`] for one end, client or server, and [`CookieVerifier`] for a port that unknown clients can reach.
//! [`Versions`] says which of the two are spoken.
//!
//! Datagrams go in with the time, events and datagrams come out by polling. The rooms, bottom up: `record` (heads,
//! protection, replays), `reassembly` and `flight` (messages from fragments and back, the timer), `handshake` (messages),
//! `v12` (their order, keys), `v13` (the same for DTLS 1.3, with its own records and flights), then the connection. `certificate` finds the key in one, [`Identity`] is one's own.
//!
//! Rules for an owner:
//!
//! - Nothing happens before [`Connection::start`], and what comes before is dropped: behind ICE, start when a pair is
//!   valid.
//! - The peer is who its fingerprint says, and nobody else: [`Connection::set_remote_fingerprints`]. It may be told
//!   later than the handshake begins; the peer's certificate waits for it. Chains, names and dates mean nothing.
//! - Drain after each input, or each batch of them: events until there are none, datagrams until
//!   [`Connection::poll_transmit`] says no, then the deadline.
//! - No two connections have the same seed: ephemeral keys are drawn from it.
//! - A handshake holds 80 KiB at most and some four as a rule; a connected session 0.6 (DTLS 1.3: 2), and two or three AEAD
//!   keys of the library.
//! - A handshake costs some 0.15 ms of arithmetic, in three or four calls.
//!
//! ```
//! use std::sync::Arc;
//! use crypto::Seed;
//! use dtls::{Config, Connection, Event, Identity};
//! use wire::Datagrams;
//!
//! let now = netsim::Clock::new().now();
//! let end = |number| {
//!     let identity = Arc::new(Identity::self_signed(&Seed::from_number(number)).unwrap());
//!     (Arc::new(Config { identity: Some(Arc::clone(&identity)), ..Config::default() }), identity.fingerprint())
//! };
//! let ((config_a, print_a), (config_b, print_b)) = (end(1), end(2));
//! let mut client = Connection::client(config_a, Seed::from_number(3));
//! let mut server = Connection::server(config_b, Seed::from_number(4));
//! client.set_remote_fingerprints(now, vec![print_b]);
//! server.set_remote_fingerprints(now, vec![print_a]);
//! client.start(now);
//! server.start(now);
//! let carry = |from: &mut Connection, to: &mut Connection| {
//!     let mut out = Datagrams::new();
//!     while from.poll_transmit(now, &mut out) {
//!         (0..out.len()).for_each(|n| to.handle_datagram(now, &mut out.get(n).to_vec()));
//!         out.clear();
//!     }
//! };
//! while !(client.is_connected() && server.is_connected()) {
//!     carry(&mut client, &mut server);
//!     carry(&mut server, &mut client);
//! }
//! let keys = |end: &mut Connection| match end.poll_event() {
//!     Some(Event::Connected(connected)) => connected.srtp,
//!     other => panic!("{other:?}"),
//! };
//! assert_eq!(keys(&mut client), keys(&mut server));
//! ```
//!
//! Not here: other versions, resumption, early data, connection ids, renegotiation, CBC, key exchange without ECDHE, SHA-1,
//! PSK.

#![forbid(unsafe_code)]

mod alert;
mod certificate;
mod config;
mod connection;
mod cookie;
mod der;
mod error;
mod event;
mod flight;
mod handshake;
mod put;
mod reassembly;
mod record;
mod srtp;
mod stats;
mod suite;
#[cfg(test)]
mod testing;
mod v12;
mod v13;

// A program that embeds this crate needs no other for what stands in signatures.
pub use crypto::{self, NoEntropy, PublicKey, Seed};
pub use wire::Datagrams;

pub use alert::AlertDescription;
pub use certificate::{Fingerprint, Identity, public_key};
pub use config::{Config, PeerCheck, Versions};
pub use connection::{Connection, Role};
pub use cookie::{Checked, CookieVerifier};
pub use error::{Error, Failure};
pub use event::{CloseReason, Connected, Event};
pub use handshake::MessageType;
pub use srtp::{SrtpKeys, SrtpProfile};
pub use stats::Stats;
pub use suite::CipherSuite;
