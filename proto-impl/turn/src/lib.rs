//! A TURN server (RFC 8656) as sans-IO machines: [`Endpoint`] for the port that all clients share, [`Allocation`] for one
//! client, [`stream`] for clients over TCP and TLS.
//!
//! 1. A request of an unknown client comes to [`Endpoint::route`]. Without credentials it is answered with a realm and a
//!    nonce (401), and nothing is kept: a nonce is computed from the client's address ([`Config`]), and answers to
//!    clients that have shown nothing are limited ([`limits`]).
//! 2. An Allocate request with credentials and within the quotas is a [`Route::New`]. The owner makes an [`Allocation`] of the
//!    [`Incoming`], and names it to the endpoint ([`Endpoint::insert`]).
//! 3. The allocation asks for a relayed address ([`Event::Bind`]). The owner opens a socket and says [`Allocation::bound`]; then
//!    the client is answered.
//! 4. The client asks for permissions and channels, and sends by ChannelData or Send indications. What comes from a peer
//!    goes back as ChannelData or Data indications.
//! 5. A Refresh of zero, or the end of its lifetime, is the end: [`Event::Closed`], and [`Endpoint::remove`] by the owner.
//!
//! The server is no open relay: [`Peers`] lists the addresses that clients may reach. Each has the address that clients know
//! and the one that datagrams are sent to, since a server behind a translator of addresses may not reach itself by its
//! public one.
//!
//! Credentials are ephemeral (draft-uberti-behave-turn-rest-00): [`Credentials`].
//!
//! Not here: relayed TCP (RFC 6062), mobility (RFC 8016), reserved ports (EVEN-PORT is refused with 508), two families in one
//! allocation, MESSAGE-INTEGRITY-SHA256, ICMP errors of peers.

#![forbid(unsafe_code)]

mod allocation;
mod allowance;
mod attribute;
mod config;
mod credentials;
mod endpoint;
mod error;
pub mod limits;
mod nonce;
mod peers;
mod quotas;
mod request;
mod respond;
pub mod stream;

// A program that embeds this crate needs no other for what stands in signatures.
pub use bytes::BytesMut;
pub use crypto::{NoEntropy, Seed};

pub use allocation::{Allocation, Bandwidth, CloseReason, Destination, Event, Stats, Transmit};
pub use attribute::{Family, channel_data, method};
pub use config::{Caps, Config};
pub use credentials::Credentials;
pub use endpoint::{Client, DropReason, Endpoint, EndpointStats, Incoming, Route};
pub use error::Error;
pub use peers::{Peer, Peers};
