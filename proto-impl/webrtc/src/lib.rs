//! A WebRTC peer as a sans-IO machine: ICE, DTLS, SRTP and RTP put together, and negotiated with offers and answers.
//!
//! A [`Peer`] is one session with one transport: everything is bundled, RTCP shares its port. It takes an offer and gives an
//! answer, or the other way round; then datagrams go in with the time and the path they came by, and events, datagrams and
//! the next deadline come out by polling. What it receives are whole frames; what it sends are packets of a [`Track`],
//! which cuts every unit once for all peers that get it.
//!
//! ```text
//!     datagram -> ICE, DTLS, SRTP -> sources, repair, frames -> Event::Frame
//!     Track -> Peer::send -> numbers, repair, SRTP -> datagrams
//! ```
//!
//! Rules for an owner:
//!
//! - Drain after each input, or each batch of them: events until there are none, datagrams until there are none, then the
//!   deadline.
//! - On a shared port, [`Event::PathOpened`], [`Event::PathClosed`] and [`Peer::local_fragment`] are for an `ice::Demux`.
//!   Nothing but STUN is taken from a path that is not validated, and no media before the peer has shown the certificate
//!   that its description announced.
//! - No two peers have the same seed: keys and passwords are drawn from it.
//! - What is sent goes out when it is drained; a burst of frames beyond a tenth of a second of the stream is spread.
//! - Streams come as they are: what the path carries ([`Peer::estimate`]) bounds repairs and bursts, and tells the owner
//!   which of several renditions to send; [`Peer::probe`] finds out whether it carries more.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use crypto::Seed;
//! use ice::Path;
//! use media::codec::Codec;
//! use sdp::{Description, Direction, MediaKind};
//! use webrtc::{Config, Event, IceMode, Peer, MediaPreference, offered_formats};
//! use wire::Datagrams;
//!
//! let now = netsim::Clock::new().now();
//! let anchor = rtp::NtpAnchor::new(now, Duration::from_secs(1_770_000_000));
//! let identity = |n| Arc::new(dtls::Identity::self_signed(&Seed::from_number(n)).unwrap());
//! let (here, there) = ("203.0.113.7:5000".parse().unwrap(), "192.0.2.1:8000".parse().unwrap());
//! let server = IceMode::Lite { config: Arc::default(), addresses: vec![there] };
//! let server = Arc::new(Config::new(server, identity(1)));
//! let client = Arc::new(Config::new(IceMode::Full(Arc::default()), identity(2)));
//! let mut client = Peer::new(now, client, anchor, Seed::from_number(3))?;
//! let mut server = Peer::new(now, server, anchor, Seed::from_number(4))?;
//!
//! // What a client offers, and a server answers, as text.
//! client.add_local(now, here).unwrap();
//! let sends = MediaPreference { direction: Direction::SendOnly, formats: offered_formats(Codec::H264, 96), msid: None };
//! let offer = client.offer(&[(MediaKind::Video, sends)])?.write();
//! let offer = Description::read(offer.as_bytes()).unwrap();
//! let takes = MediaPreference { direction: Direction::RecvOnly, formats: offered_formats(Codec::H264, 96), msid: None };
//! let answer = server.handle_offer(now, &offer, |_, _| Some(takes.clone()))?.write();
//! client.handle_answer(now, &Description::read(answer.as_bytes()).unwrap())?;
//!
//! let carry = |from: &mut Peer, to: &mut Peer| {
//!     let mut out = Datagrams::new();
//!     while let Some(path) = from.poll_transmit(now, |_| None, &mut out) {
//!         let path = Path::udp(path.remote, path.local);
//!         (0..out.len()).for_each(|n| to.handle_datagram(now, path, &mut out.get(n).to_vec()));
//!         out.clear();
//!     }
//! };
//! let mut connected = 0;
//! while connected < 2 {
//!     carry(&mut client, &mut server);
//!     carry(&mut server, &mut client);
//!     for peer in [&mut client, &mut server] {
//!         while let Some(event) = peer.poll_event() {
//!             connected += usize::from(event == Event::Connected);
//!         }
//!     }
//! }
//! assert_eq!(client.media_path(), Some(Path::udp(here, there)));
//! # Ok::<(), webrtc::Error>(())
//! ```
//!
//! Data channels ([`Peer::take_data`], [`Peer::open_channel`]) run beside media, or alone: an association of [`sctp`] over the DTLS
//! of the session.
//!
//! Not here: TURN, sections without bundle.

#![forbid(unsafe_code)]

mod config;
mod error;
mod event;
mod heads;
mod negotiate;
mod pacer;
mod peer;
mod probe;
mod receive;
mod redundancy;
mod send;
mod stats;
mod transport;

// A program that embeds this crate needs no other for what stands in signatures.
pub use bytes::Bytes;
pub use crypto::{NoEntropy, Seed};
pub use wire::Datagrams;
pub use {dtls, ice, media, rtp, sctp, sdp};

pub use config::{Config, IceMode};
pub use error::Error;
pub use event::{CloseReason, Event};
pub use negotiate::{
    LAYERS_MAX, MediaPreference, OFFERED_SECTIONS_MAX, SECTIONS_MAX, Section, SectionFormat, SectionId,
    SourcePair, describe_candidate, offered_formats, read_candidate,
};
pub use peer::{Peer, Queued};
pub use send::{SentUnit, Track};
pub use stats::{SentStats, Stats, TransportStats};
