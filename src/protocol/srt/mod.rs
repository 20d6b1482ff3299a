//! SRT: publishers and viewers on UDP port 4200, pushes to other servers, pulls from them. The payload is MPEG-TS,
//! which the `srt` crate does not know.
//!
//! [`SrtPort`] separates the peers of the shared port, and [`session::SrtSession`] connects a connection of the `srt`
//! crate to the port and the hub. [`outbound::OutboundConnection`] is an outgoing connection on its own socket, or
//! one that waits there for its peer; [`SrtPush`] and [`SrtPull`] use it. [`super::ts`] converts payloads to access
//! units and back.
//!
//! A caller is handled in three steps:
//! 1. Induction: the port answers it and keeps no state.
//! 2. Conclusion: a session is made, which reads the stream id, checks the application's passphrase, and asks to
//!    publish or play; the caller's repetitions wait.
//! 3. Verdict: the answer to the conclusion is a connection, or a rejection code (docs/srt.md).

mod derivations;
mod load;
mod outbound;
mod pace;
mod packer;
mod port;
mod publishing;
mod pull;
mod push;
mod session;
mod settings;
mod statistics;
mod stream_id;
mod url;

use super::FormatKind;
use super::ts::TsPackage;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::srt::{CloseReason, Config, Connection, KeyLength, Passphrase, RejectReason};
use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;

use super::publisher::LoadPublisher;
use super::pull::{Client, Patience};
use super::row::{Addresses, LoadUse, Outbound, Port, Protocol, Request, Scheme, Sockets};
use super::{Now, Session};
use crate::auth::access::Secret;
use crate::config::AppSettings;
use crate::hub::{Pick, Selection};
use crate::mail::{NoSubscription, Refusal, Transport};
use crate::types::{Ingest, StreamKey};
use load::SrtLoad;
use port::SrtPort;
use pull::SrtPull;
use push::SrtPush;
use settings::SrtAppSettings;
use settings::SrtSettings;
use settings::is_playback_enabled;
use stream_id::{StreamRequest, with_via};
use url::{SrtAddress, SrtUrl};

/// Maximum time from the end of a stream to the shutdown message. A receiver that gets this message discards all data
/// that it still delays, so it is sent only when that data is due.
const GOODBYE_WITHIN: Duration = Duration::from_secs(1);
/// Margin added to the time at which the last delayed data is due, for paths with jitter.
const GOODBYE_MARGIN: Duration = Duration::from_millis(20);

/// The ingest of streams published over SRT.
const INGEST: Ingest = Ingest { publish_type: "SRT", name: "srt" };

/// Format of MPEG-TS packets.
static FORMAT: FormatKind = FormatKind {
    name: "ts",
    counted_as: None,
    is_enabled: is_playback_enabled,
    selection: SELECTION,
    package: |_| Some(Box::new(TsPackage::live())),
    is_given_up_by_close: false,
    is_for_nodes: false,
};

/// The tracks of pushes, including splice information and timed metadata; viewers may request others.
const SELECTION: Selection = Selection { data: Pick::All, ..Selection::EACH };

/// SRT's entry in the table of protocols ([`super::registry`]).
pub(super) static PROTOCOL: Protocol = Protocol {
    section: &settings::SECTION,
    statistics: Some(&statistics::CATALOGUE),
    formats: &[&FORMAT],
    ports: &[Port {
        name: "srt",
        publishers: true,
        of_each_worker: None,
        listen: settings::listen,
        demux: |ctx| Box::new(SrtPort::new(ctx)),
    }],
    schemes: &[Scheme {
        name: "srt",
        // The default port of Ant Media Server. Its documentation omits the port from URLs.
        default_port: 4200,
        pushes: true,
        pulls: true,
        copies: None,
        takes_credentials: false,
        load: LoadUse { sockets: Sockets::Datagrams, ..LoadUse::both("srt") },
        read: |url, scheme| {
            let SrtUrl { host, port, address } = SrtUrl::read(url, scheme.default_port)?;
            let transport = if address.listens { Transport::UdpListener } else { Transport::Udp };
            Ok(Outbound { host, port, transport, request: Box::new(address) })
        },
    }],
    ..Protocol::NONE
};

#[cfg(test)]
pub(super) fn figures_for_tests() -> Arc<dyn crate::stats::Figures> {
    Arc::new(statistics::SrtFigures(::srt::Stats::default()))
}

impl Request for SrtAddress {
    fn means(&self, port: u16, addresses: &Addresses, key: &StreamKey) -> bool {
        addresses.port("srt") == Some(port)
            && StreamRequest::parse(&self.stream_id)
                .is_ok_and(|asked| asked.app == *key.app && asked.id == *key.id)
    }

    fn push(&self, _now: Now, via: &[String], seed: Seed) -> Option<Box<dyn Session>> {
        let stream_id = with_via(&self.stream_id, via);
        Some(Box::new(SrtPush::new(Self { stream_id, ..self.clone() }, seed)))
    }

    fn pull(&self, _patience: Patience, seed: Seed) -> Option<Box<dyn Client>> {
        Some(Box::new(SrtPull::new(self, seed)))
    }

    fn publish(
        &self,
        now: Instant,
        _patience: Patience,
        seed: Seed,
        _heads: &[(TagKind, Bytes)],
    ) -> Option<Box<dyn LoadPublisher>> {
        Some(Box::new(SrtLoad::new(now, self, seed)))
    }
}

/// Returns the configuration of a connection by the server's settings.
fn config(server: &SrtSettings, latency: Option<Duration>, passphrase: Option<&Secret>) -> Config {
    let latency = latency.unwrap_or(server.latency).min(server.latency_max);
    Config {
        latency,
        latency_max: server.latency_max,
        // The settings reader and the URL parser have checked the length of the passphrase.
        passphrase: passphrase.and_then(|secret| Passphrase::new(secret.reveal()).ok()),
        key_length: key_length(server.key_bytes),
        packet_filter: server.packet_filter,
        adapts: true,
        ..Config::default()
    }
}

const fn key_length(bytes: u8) -> KeyLength {
    match bytes {
        24 => KeyLength::Bytes24,
        32 => KeyLength::Bytes32,
        _ => KeyLength::Bytes16,
    }
}

/// Returns the configuration for callers of this application.
fn config_of_app(server: &SrtSettings, app: &AppSettings) -> Arc<Config> {
    let SrtAppSettings { latency, passphrase, .. } = SrtAppSettings::of(app);
    Arc::new(config(server, *latency, passphrase.as_ref().or(server.passphrase.as_ref())))
}

/// Returns the configuration of a connection to an address.
fn config_of_address(server: &SrtSettings, address: &SrtAddress) -> Arc<Config> {
    let config = config(server, address.latency, address.passphrase.as_ref());
    Arc::new(Config {
        key_length: address.key_bytes.map_or(config.key_length, key_length),
        packet_filter: address.packet_filter.unwrap_or(config.packet_filter),
        ..config
    })
}

/// True if the connection accepts another unit, which may be large. On a full path units stay in the ring, where a
/// viewer that is too far behind skips them.
fn has_room(connection: &Connection) -> bool {
    !connection.is_behind() && connection.send_room() > connection.queued_bytes()
}

/// Returns the time at which a connection is closed if its stream ends now.
fn goodbye_at(now: Instant, stats: ::srt::Stats) -> Instant {
    now + Duration::from_millis(stats.ms_snd_tsb_pd_delay.into()).min(GOODBYE_WITHIN) + GOODBYE_MARGIN
}

/// Describes the reason why a connection has ended, for logs and states.
fn words(reason: CloseReason) -> String {
    match reason {
        CloseReason::Local => "closed here".to_owned(),
        CloseReason::Peer => "the peer said goodbye".to_owned(),
        CloseReason::Idle => "the peer is silent".to_owned(),
        CloseReason::ConnectTimeout => "no answer".to_owned(),
        CloseReason::Rejected(why) => format!("the peer refuses: {why}"),
        CloseReason::Refused(why) => format!("refused: {why}"),
        other => format!("{other:?}"),
    }
}

/// Sends a message. The caller has checked that there is room; if there is none, the connection counts the message as
/// dropped.
fn send(connection: &mut Connection, now: Instant, payload: Bytes) {
    if let Err(error) = connection.send(now, payload) {
        tracing::trace!(%error, "payload not sent");
    }
}

/// Returns the rejection code of docs/srt.md for a refusal.
const fn refusal_code(refusal: &Refusal) -> RejectReason {
    match refusal {
        Refusal::NoApplication => RejectReason::NOTFOUND,
        Refusal::InUse | Refusal::Loop => RejectReason::CONFLICT,
        Refusal::NotAllowed(_) => RejectReason::FORBIDDEN,
        Refusal::Denied(denial) => denial_code(denial),
        Refusal::Resources => RejectReason::OVERLOAD,
        Refusal::Draining => RejectReason::DOWN,
    }
}

/// Describes why a call was refused before its stream was asked for, for the log.
fn refusal_words(code: RejectReason) -> Cow<'static, str> {
    match code {
        RejectReason::NOTFOUND => "no such application".into(),
        RejectReason::BADSECRET => "the passphrase is wrong".into(),
        RejectReason::UNSECURE => "one side has a passphrase, and the other has none".into(),
        RejectReason::FILTER => "the packet filter contradicts srt.packet_filter".into(),
        RejectReason::BAD_REQUEST => "the stream id is missing, or cannot be read".into(),
        RejectReason::BAD_MODE => "the mode of the stream id is neither publish nor request".into(),
        other => other.to_string().into(),
    }
}

const fn no_subscription_code(why: &NoSubscription) -> RejectReason {
    match why {
        NoSubscription::NotFound => RejectReason::NOTFOUND,
        NoSubscription::Disabled => RejectReason::BAD_MODE,
        NoSubscription::Denied(denial) => denial_code(denial),
        NoSubscription::Draining | NoSubscription::Resources => RejectReason::OVERLOAD,
    }
}

const fn denial_code(denial: &crate::auth::access::Denial) -> RejectReason {
    if denial.is_of_credentials() { RejectReason::UNAUTHORIZED } else { RejectReason::FORBIDDEN }
}
