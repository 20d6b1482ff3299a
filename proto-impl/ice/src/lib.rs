//! STUN (RFC 8489) and ICE (RFC 8445; trickle RFC 8838, consent RFC 7675, TCP framing RFC 4571) as sans-IO machines:
//! [`LiteAgent`] for a server that peers can reach, [`Agent`] for a client or for peers among each other, and [`Demux`] for
//! a port that many sessions share.
//!
//! Datagrams go in with the time and the [`Path`] they came by; events and datagrams come out by polling. The rooms, bottom
//! up: [`stun`] (messages), [`Candidate`] and [`Credentials`] (values), the agents. [`tcp`] cuts a stream into frames.
//!
//! Rules for an owner:
//!
//! - Drain after each input, or each batch of them: events until there are none, datagrams until there are none, then the
//!   deadline.
//! - What is no STUN is taken only from a path that [`LiteAgent::is_valid`] or [`Agent::is_valid`] knows, and sent only to
//!   the selected one. Both come as events too, for [`Demux::open`] and [`Demux::close`].
//! - No two agents have the same seed: passwords are drawn from it. [`Demux::insert`] tells when a user name fragment is
//!   taken.
//! - Passwords are secrets; [`Credentials`] does not print them.
//!
//! ```
//! use std::sync::Arc;
//! use crypto::Seed;
//! use ice::{Agent, Candidate, Config, Credentials, Event, LiteAgent, LiteConfig, Path, Transport};
//!
//! let now = netsim::Clock::new().now();
//! let (server, client) = ("192.0.2.1:8000".parse().unwrap(), "203.0.113.7:5000".parse().unwrap());
//! let mut lite = LiteAgent::new(now, Arc::new(LiteConfig::default()), &Seed::from_number(1));
//! let mut agent = Agent::new(now, Arc::new(Config::default()), &Seed::from_number(2));
//! // What the descriptions say.
//! lite.set_remote(now, agent.local().ufrag());
//! agent.set_remote(now, lite.local().clone(), true);
//! agent.add_local(now, client)?;
//! agent.add_remote(now, &Candidate::host(Transport::Udp, server, 65535))?;
//!
//! let mut out = Vec::new();
//! while let Some(transmit) = agent.poll_transmit(now, &mut out) {
//!     let path = Path::udp(transmit.path.remote, transmit.path.local);
//!     lite.handle_datagram(now, path, &out[out.len() - transmit.length..]);
//! }
//! assert_eq!(lite.poll_event(), Some(Event::Validated(Path::udp(server, client))));
//! assert_eq!(lite.poll_event(), Some(Event::Connected));
//! assert_eq!(lite.selected(), Some(Path::udp(server, client)));
//! # Ok::<(), ice::Error>(())
//! ```
//!
//! Not here: TURN, more than one component (RTCP is multiplexed, media is bundled), a lite agent with a lite peer,
//! passwords of long-term credentials, resolving of `.local` names.

#![forbid(unsafe_code)]

mod agent;
mod candidate;
mod credentials;
mod demux;
mod error;
mod event;
pub mod limits;
mod lite;
mod outbox;
mod path;
mod respond;
mod stats;
pub mod stun;
pub mod tcp;

// A program that embeds this crate needs no other for what stands in signatures.
pub use bytes::BytesMut;
pub use crypto::{NoEntropy, Seed};

pub use agent::{Agent, Config, Role};
pub use candidate::{COMPONENT, Candidate, CandidateKind, TcpType, Transport, pair_priority, priority};
pub use credentials::Credentials;
pub use demux::{Demux, DropReason, Kind, Route, classify};
pub use error::Error;
pub use event::{CloseReason, Event};
pub use lite::{LiteAgent, LiteConfig, Selection};
pub use path::{Path, Protocol, Transmit};
pub use stats::Stats;
