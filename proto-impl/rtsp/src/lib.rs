//! RTSP 1.0 (RFC 2326 as it is spoken, RFC 7826 where that is clearer) as sans-IO machines: [`Server`] for one accepted
//! connection, [`Client`] for a push or a pull.
//!
//! Bytes go in with the time, events and bytes come out by polling. The rooms, bottom up: [`Request`], [`Response`] and
//! the [`Reader`] that cuts a byte stream into them (§4 to §7, §10.12), the fields that have a grammar of their own
//! ([`Transport`], [`auth`], [`uri`]), `link` (a connection's counters and way out), then the two machines. What RTP
//! carries is opaque; of a session description only the sections and their `control` are looked at.
//!
//! # The machine
//!
//! A connection carries one session: a presentation of some tracks, played or recorded. The owner of a [`Server`] is
//! asked for each step and answers with a verb; meanwhile the machine reads no further, so that answers keep the order
//! of the requests, and what a client pipelines is held up to [`Config::held_bytes_max`]:
//!
//! | event | verbs |
//! |---|---|
//! | [`Event::Describe`] | `accept_describe`, `challenge`, `reject` |
//! | [`Event::Announce`] | `accept_announce`, `challenge`, `reject` |
//! | [`Event::Setup`] | `accept_setup`, `reject` |
//! | [`Event::Play`] | `accept_play`, `reject` |
//! | [`Event::Record`] | `accept_record`, `reject` |
//!
//! `OPTIONS`, `PAUSE`, `TEARDOWN`, `GET_PARAMETER` and `SET_PARAMETER` are answered by the machine.
//!
//! A track is named by its index in the description, never by a number in a URL: `SETUP` is matched with the `control`
//! attributes as text, because clients append them as text, ffmpeg even behind the query.
//!
//! **Frames and messages share the connection.** The owner writes frames of media itself: the four bytes of
//! [`frame_head`], then the packet, without a copy. What `poll_transmit` gives may stand before or behind a frame and never
//! inside of one: whoever has written a part of a frame finishes it first. The answer to `PLAY` must be written before
//! the first frame, because clients expect it there.
//!
//! **Where media goes.** `destination` and `source` of a `Transport` are shown and never obeyed. The owner sends datagrams to
//! the address of the connection's peer, at the ports that the peer named.
//!
//! **Datagrams go around the machine.** RTP and RTCP that come by UDP are the owner's; it tells the machine of them with
//! [`Server::keep_alive`], so that a session that only sends media does not end. [`Client::media_progress`] is called for
//! frames and datagrams alike: whether one is media of the stream is not seen here.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Instant;
//!
//! use crypto::Seed;
//! use rtsp::{Config, Event, Server, Status};
//! use wire::SendQueue;
//!
//! let now = Instant::now();
//! let mut server = Server::new(now, Arc::new(Config::default()), Seed::from_number(1));
//! server.handle_bytes(now, b"DESCRIBE rtsp://h/live/s RTSP/1.0\r\nCSeq: 2\r\n\r\n")?;
//! while let Some(event) = server.poll_event() {
//!     if let Event::Describe(request) = event {
//!         assert_eq!(request.target.path, "live/s");
//!         server.reject(now, Status::NOT_FOUND);
//!     }
//! }
//! let mut out = SendQueue::new();
//! assert!(server.poll_transmit(&mut out));
//! assert!(out.take_all().starts_with(b"RTSP/1.0 404 Not Found\r\nCSeq: 2\r\n"));
//! # Ok::<(), rtsp::Error>(())
//! ```
//!
//! Not here: RTSP over HTTP, multicast, an SRTP profile, sessions that span connections.

#![forbid(unsafe_code)]

pub mod auth;
mod client;
mod config;
mod error;
mod event;
pub mod limits;
mod link;
mod message;
mod presentation;
mod reader;
mod rtp_info;
mod server;
mod status;
#[cfg(test)]
mod testing;
mod timers;
mod transport;
pub mod uri;

// A program that embeds this crate needs no other for what stands in signatures.
pub use bytes::Bytes;
pub use crypto::{NoEntropy, Seed};
pub use sdp;
pub use wire::SendQueue;

pub use client::Client;
pub use config::{ClientConfig, Config};
pub use error::{Error, Limit, Violation};
pub use event::{
    AnnounceRequest, ClientEvent, CloseReason, Event, Frame, RtpInfo, SetupRequest, Stats, StreamRequest,
    Timer, TrackSetup,
};
pub use link::frame_head;
pub use message::{Headers, Method, Request, Response, SessionHeader};
pub use reader::{Item, Reader};
pub use server::Server;
pub use status::Status;
pub use transport::{BadTransport, Channels, Lower, Mode, Ports, Transport};
pub use uri::{Target, Uri};
