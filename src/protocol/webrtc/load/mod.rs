//! WHIP and WHEP clients for the load generator.
//!
//! 1. The socket is there: the [`client`] makes its offer, and POSTs it over the byte stream.
//! 2. The answer: from here on the peer's machine runs over the socket. Connected, the client is ready.
//! 3. Players hand out frames; publishers cut the units of a clip as viewers of the server have them cut.
//! 4. `close` asks for another byte stream, over which the session is DELETEd.

mod client;
mod player;
mod publisher;

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
    let request = Box::new(Endpoint { authority, target: url.request_target() });
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
        Some(Box::new(RtcPlayer::new(now, self.clone(), seed)?))
    }

    fn publish(
        &self,
        now: Instant,
        _patience: Patience,
        seed: Seed,
        heads: &[(TagKind, Bytes)],
    ) -> Option<Box<dyn LoadPublisher>> {
        Some(Box::new(RtcPublisher::new(now, self.clone(), seed, heads)?))
    }
}
