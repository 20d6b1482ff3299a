//! RTSP: publishers and viewers on ports 5554 and 5555 (TLS), over the connection itself or with datagrams beside it;
//! pulls from other servers, and pushes to them.
//!
//! [`RtspSession`] connects the state machine of the `rtsp` crate to a connection and the hub; [`super::rtp_mapping`]
//! converts publishers' packets to access units, and [`package::RtspPackage`] cuts units into the packets that all
//! viewers share. [`pairs`] are the sockets of a session that uses datagrams. [`RtspPull`] and [`RtspPush`] are the
//! client side.

mod announce;
mod awaited;
mod line;
mod load;
mod package;
mod pairs;
mod publisher;
mod pull;
mod push;
mod request;
mod session;
mod settings;
mod url;
mod viewer;

use std::time::Instant;

use ::rtsp::Target;
use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;

use super::first_bytes::{FirstBytes, Guess};
use super::publisher::LoadPublisher;
use super::pull::{Client, Patience};
use super::row::{Addresses, Listener, LoadUse, Outbound, Protocol, Request, Scheme, Security};
use super::{Now, Session};
use crate::auth::url::{Url, UrlError};
use crate::mail::Transport;
use crate::types::{Ingest, StreamKey};
use load::RtspLoad;
pub use load::RtspMux;
use pull::RtspPull;
use push::RtspPush;
use request::key_of;
use session::RtspSession;
use url::RtspUrl;

/// The ingest of streams published over RTSP.
const INGEST: Ingest = Ingest { publish_type: "RTSP", name: "rtsp" };

/// Maximum length of a method, with the space after it.
const METHOD_BYTES_MAX: usize = 16;

/// Distinguishes requests from those of HTTP, which has OPTIONS too: the URL has the scheme of RTSP, or is `*` before
/// RTSP's version (RFC 2326 §6.1).
fn first_bytes(bytes: &[u8]) -> Guess {
    let Some(space) = bytes.iter().position(|byte| *byte == b' ') else {
        let is_method = bytes.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'_');
        return if is_method && bytes.len() < METHOD_BYTES_MAX { Guess::Unknown } else { Guess::No };
    };
    let behind = bytes.get(space.saturating_add(1)..).unwrap_or_default().to_ascii_lowercase();
    let by = [&b"rtsp"[..], b"* rtsp/"].map(|prefix| Guess::by_prefix(&behind, prefix));
    [Guess::Yes, Guess::Unknown].into_iter().find(|guess| by.contains(guess)).unwrap_or(Guess::No)
}

/// RTSP's entry in the table of protocols ([`super::registry`]).
pub(super) static PROTOCOL: Protocol = Protocol {
    listeners: &[
        Listener {
            name: "rtsp",
            security: Security::Plain,
            manages: false,
            publishers: true,
            beside: None,
            first_bytes: FirstBytes::Recognised(first_bytes),
            listen: settings::listen,
            begin: |now, peer, seed| Box::new(RtspSession::new(now, peer, Security::Plain, seed)),
        },
        Listener {
            name: "rtsps",
            security: Security::Tls,
            manages: false,
            publishers: true,
            beside: None,
            first_bytes: FirstBytes::Recognised(first_bytes),
            listen: settings::listen_tls,
            begin: |now, peer, seed| Box::new(RtspSession::new(now, peer, Security::Tls, seed)),
        },
    ],
    section: &settings::SECTION,
    formats: &[&package::FORMAT],
    schemes: &[
        Scheme {
            name: "rtsp",
            default_port: ::rtsp::uri::PORT,
            pushes: true,
            pulls: true,
            copies: None,
            takes_credentials: true,
            load: LoadUse::both("rtsp"),
            read: |url, scheme| outbound(url, scheme, Transport::Tcp),
        },
        Scheme {
            name: "rtsps",
            default_port: ::rtsp::uri::TLS_PORT,
            pushes: true,
            pulls: true,
            copies: None,
            takes_credentials: true,
            load: LoadUse::both("rtsp"),
            read: |url, scheme| outbound(url, scheme, Transport::Tls),
        },
    ],
    ..Protocol::NONE
};

fn outbound(url: &Url<'_>, scheme: &Scheme, transport: Transport) -> Result<Outbound, UrlError> {
    let url = RtspUrl::read(url, scheme.default_port)?;
    Ok(Outbound { host: url.host.clone(), port: url.port, transport, request: Box::new(url) })
}

impl Request for RtspUrl {
    fn means(&self, port: u16, addresses: &Addresses, key: &StreamKey) -> bool {
        [addresses.port("rtsp"), addresses.port("rtsps")].contains(&Some(port))
            && key_of(&Target::of_track(&self.uri)).as_ref() == Some(key)
    }

    fn push(&self, now: Now, via: &[String], seed: Seed) -> Option<Box<dyn Session>> {
        Some(Box::new(RtspPush::new(now, self, via, seed)))
    }

    fn pull(&self, patience: Patience, seed: Seed) -> Option<Box<dyn Client>> {
        Some(Box::new(RtspPull::new(self, patience, seed)))
    }

    fn publish(
        &self,
        now: Instant,
        patience: Patience,
        seed: Seed,
        heads: &[(TagKind, Bytes)],
    ) -> Option<Box<dyn LoadPublisher>> {
        Some(Box::new(RtspLoad::new(now, self, patience, seed, heads)))
    }
}
