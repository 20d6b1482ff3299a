//! Clients of WHIP, of WHEP and of the SDK's socket for the load generator.
//!
//! 1. The UDP socket is open: the [`signal`] of the [`client`] begins. With [`request`]s, the client's offer is
//!    POSTed; with the messages of a [`socket`], the server requests the offer, or makes its own.
//! 2. The answer has arrived: the peer's state machine runs over the UDP socket. Once it is connected, the client is
//!    ready.
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
    let signalling = match scheme.load.segment {
        Some(super::SOCKET_SEGMENT) => Signalling::Messages,
        _ => Signalling::Requests,
    };
    let endpoint = Endpoint { signalling, authority, target: url.request_target() };
    Ok(Outbound { host, port, transport, request: Box::new(endpoint) })
}

/// The way in which a client and the server exchange session descriptions.
#[derive(Debug, Clone, Copy)]
enum Signalling {
    /// By the requests of WHIP and WHEP.
    Requests,
    /// By messages over the SDK's socket. The query of its URL names the participant's stream and its room.
    Messages,
}

/// An endpoint of WHIP or WHEP, or a signalling socket.
#[derive(Debug, Clone)]
struct Endpoint {
    signalling: Signalling,
    /// `Host` of the requests.
    authority: String,
    /// Path and query.
    target: String,
}

impl Endpoint {
    fn signal(&self, publishes: bool, seed: &Seed) -> Signal {
        match self.signalling {
            Signalling::Requests => Signal::Requests(Box::new(Requests::new(self.clone()))),
            Signalling::Messages => {
                let seed = seed.derive("socket", 0);
                Signal::Messages(Box::new(Messages::new(self.clone(), publishes, seed)))
            }
        }
    }
}

impl Request for Endpoint {
    /// Returns false, because these URLs are neither pushed to nor pulled from.
    fn means(&self, _port: u16, _addresses: &Addresses, _key: &StreamKey) -> bool {
        false
    }

    fn is_room(&self) -> bool {
        matches!(self.signalling, Signalling::Messages) && socket::names_room(&self.target)
    }

    fn play(&self, now: Instant, _patience: Patience, seed: Seed) -> Option<Box<dyn LoadPlayer>> {
        let signal = self.signal(false, &seed);
        Some(Box::new(match self.signalling {
            Signalling::Requests => RtcPlayer::of_endpoint(now, signal, seed),
            Signalling::Messages => RtcPlayer::of_socket(now, signal, seed),
        }?))
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
