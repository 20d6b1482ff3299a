//! RTMP: publishers and players on port 1935, and pushes to other servers.
//!
//! [`RtmpSession`] connects the state machine of the `rtmp` crate to a socket and the hub; [`super::flv_mapping`]
//! converts its messages to access units, [`egress::RtmpPackage`] converts units to the chunks that all viewers share,
//! and [`RtmpPush`] and [`RtmpPull`] are the client side.

mod egress;
mod load;
mod publishing;
mod pull;
mod push;
mod refusals;
mod session;
mod settings;
mod url;

use std::time::Instant;

use ::rtmp::{ClientConfig, FourCcs};
use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;
use media::Codec;

use super::first_bytes::{FirstBytes, Guess};
use super::publisher::LoadPublisher;
use super::pull::{Client, Patience};
use super::row::{Addresses, Listener, LoadUse, Outbound, Protocol, Publish, Request, Scheme, Security};
use super::{Now, Session};
use crate::auth::url::{Url, UrlError};
use crate::mail::Transport;
use crate::types::{Ingest, StreamKey};
use load::RtmpLoad;
use pull::RtmpPull;
use push::RtmpPush;
use session::RtmpSession;
use settings::is_playback_enabled;
use url::RtmpUrl;

/// Default port of `rtmp` URLs.
const DEFAULT_PORT: u16 = 1935;

/// The ingest of streams published over RTMP.
const INGEST: Ingest = Ingest { publish_type: "RTMP", name: "rtmp" };

/// The first byte of a handshake (Adobe's RTMP specification, §5.2.2).
const VERSION: u8 = 3;

fn first_bytes(bytes: &[u8]) -> Guess {
    Guess::by_prefix(bytes, &[VERSION])
}

/// RTMP's entry in the table of protocols ([`super::registry`]).
pub(super) static PROTOCOL: Protocol = Protocol {
    listeners: &[
        Listener {
            name: "rtmp",
            security: Security::Plain,
            manages: false,
            publishers: true,
            beside: None,
            first_bytes: FirstBytes::Recognised(first_bytes),
            listen: settings::listen,
            begin: |now, peer, seed| Box::new(RtmpSession::new(now, peer, seed)),
        },
        Listener {
            name: "rtmps",
            security: Security::Tls,
            manages: false,
            publishers: true,
            beside: None,
            first_bytes: FirstBytes::Recognised(first_bytes),
            listen: settings::listen_tls,
            begin: |now, peer, seed| Box::new(RtmpSession::new(now, peer, seed)),
        },
    ],
    section: &settings::SECTION,
    formats: &[&egress::FORMAT],
    schemes: &[
        Scheme {
            name: "rtmp",
            default_port: DEFAULT_PORT,
            pushes: true,
            pulls: true,
            copies: None,
            takes_credentials: false,
            load: LoadUse::both("rtmp"),
            read: |url, scheme| outbound(url, scheme, Transport::Tcp),
        },
        Scheme {
            name: "rtmps",
            default_port: 443,
            pushes: true,
            pulls: true,
            copies: None,
            takes_credentials: false,
            load: LoadUse::both("rtmp"),
            read: |url, scheme| outbound(url, scheme, Transport::Tls),
        },
    ],
    publish: Some(Publish { listener: "rtmp", url: publish_url }),
    ..Protocol::NONE
};

fn outbound(url: &Url<'_>, scheme: &Scheme, transport: Transport) -> Result<Outbound, UrlError> {
    let url = RtmpUrl::read(url, scheme.default_port)?;
    Ok(Outbound { host: url.host.clone(), port: url.port, transport, request: Box::new(url) })
}

impl Request for RtmpUrl {
    fn means(&self, port: u16, addresses: &Addresses, key: &StreamKey) -> bool {
        [addresses.port("rtmp"), addresses.port("rtmps")].contains(&Some(port))
            && self.app.split('/').next() == Some(&*key.app)
            && self.stream_id() == &*key.id
    }

    fn push(&self, now: Now, via: &[String], seed: Seed) -> Option<Box<dyn Session>> {
        Some(Box::new(RtmpPush::new(now, self, via, seed)))
    }

    fn pull(&self, patience: Patience, seed: Seed) -> Option<Box<dyn Client>> {
        Some(Box::new(RtmpPull::new(self, patience, seed)))
    }

    fn publish(
        &self,
        now: Instant,
        patience: Patience,
        seed: Seed,
        _heads: &[(TagKind, Bytes)],
    ) -> Option<Box<dyn LoadPublisher>> {
        Some(Box::new(RtmpLoad::new(now, self, patience, seed)))
    }
}

/// Returns `rtmp://host[:port]/app/id`; the port is omitted if it is the default.
fn publish_url(host: &str, port: Option<u16>, key: &StreamKey) -> String {
    match port {
        None | Some(DEFAULT_PORT) => format!("rtmp://{host}/{key}"),
        Some(port) => format!("rtmp://{host}:{port}/{key}"),
    }
}

/// Returns the configuration of a client, for a push or a pull.
fn client_config(url: &RtmpUrl) -> ClientConfig {
    ClientConfig {
        app: url.app.clone(),
        tc_url: url.tc_url.clone(),
        stream: url.name.clone(),
        four_ccs: forwarded(),
        digest: true,
        ..ClientConfig::default()
    }
}

/// Like [`client_config`], with the caller's timeouts.
fn patient_config(url: &RtmpUrl, patience: Patience) -> ClientConfig {
    ClientConfig {
        handshake_timeout: patience.handshake,
        ready_timeout: patience.ready,
        stall_timeout: patience.stall,
        ..client_config(url)
    }
}

/// The FourCCs that this server forwards, to be announced to peers.
pub(super) fn forwarded() -> FourCcs {
    Codec::ALL.into_iter().filter_map(Codec::four_cc).fold(FourCcs::NONE, FourCcs::with)
}
