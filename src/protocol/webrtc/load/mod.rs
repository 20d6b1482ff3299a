//! Clients of WHIP, of WHEP and of the SDK's socket for the load generator.
//!
//! 1. The UDP socket is open: the [`signal`] of the [`client`] begins. With [`request`]s, the client's offer is
//!    POSTed; with the messages of a [`socket`], the server requests the offer, or makes its own.
//! 2. The answer has arrived: the peer's machine runs over the UDP socket. Once it is connected, the client is ready.
//! 3. Players emit frames; publishers cut the units of a clip as the server does for its viewers.
//! 4. `close` ends the session: by a DELETE over another byte stream, or by a message.

mod client;
mod player;
mod publisher;
mod request;
mod signal;
mod socket;

use std::time::Instant;

use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;

use crate::auth::url::{self, Url, UrlError};
use crate::mail::Transport;
use crate::protocol::player::LoadPlayer;
use crate::protocol::publisher::LoadPublisher;
use crate::protocol::pull::Patience;
use crate::protocol::row::{Addresses, Outbound, Request, Scheme};
use crate::types::StreamKey;
use player::RtcPlayer;
use publisher::RtcPublisher;
use request::Requests;
use signal::Signal;
use socket::Messages;

/// Parses the URL of an endpoint.
pub(super) fn read(url: &Url<'_>, scheme: &Scheme) -> Result<Outbound, UrlError> {
    outbound(url, scheme, Transport::Tcp)
}

/// Parses the URL of an endpoint over TLS.
pub(super) fn read_tls(url: &Url<'_>, scheme: &Scheme) -> Result<Outbound, UrlError> {
    outbound(url, scheme, Transport::Tls)
}

fn outbound(url: &Url<'_>, scheme: &Scheme, transport: Transport) -> Result<Outbound, UrlError> {
    let (host, port) = url.host_and_port(scheme.default_port)?;
    let authority = url::authority(&host, port, scheme.default_port);
    let endpoint = Endpoint { authority, target: url.request_target() };
    let request: Box<dyn Request> = match scheme.load.segment {
        Some(super::SOCKET_SEGMENT) => Box::new(Socket(endpoint)),
        _ => Box::new(endpoint),
    };
    Ok(Outbound { host, port, transport, request })
}

/// An endpoint of WHIP or WHEP.
#[derive(Debug, Clone)]
struct Endpoint {
    /// `Host` of the requests.
    authority: String,
    /// Path and query.
    target: String,
}

impl Request for Endpoint {
    /// Returns false, because these URLs are neither pushed to nor pulled from.
    fn means(&self, _port: u16, _addresses: &Addresses, _key: &StreamKey) -> bool {
        false
    }

    fn play(&self, now: Instant, _patience: Patience, seed: Seed) -> Option<Box<dyn LoadPlayer>> {
        Some(Box::new(RtcPlayer::of_endpoint(
            now,
            Signal::Requests(Box::new(Requests::new(self.clone()))),
            seed,
        )?))
    }

    fn publish(
        &self,
        now: Instant,
        _patience: Patience,
        seed: Seed,
        heads: &[(TagKind, Bytes)],
    ) -> Option<Box<dyn LoadPublisher>> {
        let signal = Signal::Requests(Box::new(Requests::new(self.clone())));
        Some(Box::new(RtcPublisher::new(now, signal, seed, heads)?))
    }
}

/// A signalling socket, whose query names the participant's stream and its room.
#[derive(Debug, Clone)]
struct Socket(Endpoint);

impl Socket {
    fn signal(&self, publishes: bool, seed: &Seed) -> Signal {
        let seed = seed.derive("socket", 0);
        Signal::Messages(Box::new(Messages::new(self.0.clone(), publishes, seed)))
    }
}

impl Request for Socket {
    /// Returns false, because these URLs are neither pushed to nor pulled from.
    fn means(&self, _port: u16, _addresses: &Addresses, _key: &StreamKey) -> bool {
        false
    }

    fn is_room(&self) -> bool {
        socket::names_room(&self.0.target)
    }

    fn play(&self, now: Instant, _patience: Patience, seed: Seed) -> Option<Box<dyn LoadPlayer>> {
        let signal = self.signal(false, &seed);
        Some(Box::new(RtcPlayer::of_socket(now, signal, seed)?))
    }

    fn publish(
        &self,
        now: Instant,
        _patience: Patience,
        seed: Seed,
        heads: &[(TagKind, Bytes)],
    ) -> Option<Box<dyn LoadPublisher>> {
        let signal = self.signal(true, &seed);
        Some(Box::new(RtcPublisher::new(now, signal, seed, heads)?))
    }
}
