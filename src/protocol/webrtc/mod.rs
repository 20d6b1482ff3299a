//! WebRTC: publishers and viewers over ICE, DTLS and SRTP, reached by WHIP and WHEP ([`mod@whip`]) and by the WebSocket
//! of Ant Media's SDK ([`signalling`]).
//!
//! ```text
//!     POST /{app}/whip/{id} --> http session --SpawnAt--> RtcPort --> RtcSession
//!                       answer <--------- FromSession ----------------/   |
//!     UDP datagram --> RtcPort (fragment, path) ---------------------> Peer --> Ingest --> hub
//!     hub --> RtcPackage (packets, cut once) --> Viewer --> Peer (numbers, keys) --> UDP datagrams
//! ```
//!
//! All workers share one UDP port (`super::steering`). With `webrtc.port_per_worker`, each worker has its own port and
//! announces that port to its clients, so that media arrives at the worker that has the session. The state machines are
//! in the crate `webrtc` and in the crates that it uses. The server adds the routing of datagrams ([`port`]), the
//! permissions of a peer ([`session`]), the choice of codecs ([`negotiation`]), times and configurations of frames
//! ([`ingest`]), packets shared by viewers ([`package`]), the beginning of a viewer ([`viewer`]), the choice of its
//! rendition ([`layers`]), and viewers that get all streams of a main track over one peer ([`room`]).

mod candidates;
mod codecs;
mod data;
mod extensions;
mod ice_servers;
mod info;
mod ingest;
mod layers;
mod load;
mod messages;
mod negotiation;
mod pace;
mod package;
mod patience;
mod playout;
mod port;
mod room;
mod session;
mod settings;
mod sharing;
mod signalling;
mod statistics;
mod tcp;
mod viewer;
mod way;
mod whip;

use super::FormatKind;
use super::first_bytes::FirstBytes;
use super::http::Handler;
use super::row::{Listener, LoadUse, Port, Protocol, Scheme, Security, Sockets};
use crate::http::{BodyKind, Cors, Method, Methods, Mount};
use crate::hub::Selection;
use crate::types::Ingest;
use package::RtcPackage;
use port::RtcPort;

/// The name of the shared port.
const PORT: &str = "webrtc";

/// The ingest of streams published over WebRTC.
const INGEST: Ingest = Ingest { publish_type: "WebRTC", name: "webrtc" };

/// Format of packets shared by all viewers.
static FORMAT: FormatKind = FormatKind {
    name: "webrtc",
    counted_as: Some("webrtc"),
    is_enabled: settings::is_enabled,
    selection: Selection::DEFAULT,
    package: |_| Some(Box::new(RtcPackage::default())),
    is_given_up_by_close: false,
    is_for_nodes: false,
};

/// The uses of the URLs of WHIP and WHEP by the load generator.
const WHIP: LoadUse = LoadUse { plays: false, publishes: true, segment: Some("whip"), ..of_load("whip") };
const WHEP: LoadUse = LoadUse { segment: Some("whep"), ..of_load("whep") };
/// The path segment of the SDK's socket, and the load generator's use of it: as participants of rooms.
const SOCKET_SEGMENT: &str = "websocket";
const ROOM: LoadUse = LoadUse { publishes: true, segment: Some(SOCKET_SEGMENT), ..of_load("room") };

const fn of_load(protocol: &'static str) -> LoadUse {
    LoadUse { sockets: Sockets::StreamAndDatagrams, ..LoadUse::plays(protocol) }
}

/// Makes a scheme for the load generator only: streams are neither pushed nor pulled over WebRTC.
const fn scheme(name: &'static str, default_port: u16, tls: bool, load: LoadUse) -> Scheme {
    Scheme {
        name,
        default_port,
        pushes: false,
        pulls: false,
        copies: None,
        takes_credentials: false,
        load,
        read: if tls { load::read_tls } else { load::read },
    }
}

/// WebRTC's row in [`super::registry`].
pub(super) static PROTOCOL: Protocol = Protocol {
    listeners: &[Listener {
        name: "webrtc-tcp",
        security: Security::Plain,
        manages: false,
        publishers: true,
        beside: Some(PORT),
        first_bytes: FirstBytes::Own,
        listen: settings::listen_tcp,
        begin: |now, _, _| Box::new(tcp::carrier(now)),
    }],
    section: &settings::SECTION,
    statistics: Some(&statistics::CATALOGUE),
    formats: &[&FORMAT],
    schemes: &[
        scheme("http", 80, false, WHIP),
        scheme("https", 443, true, WHIP),
        scheme("http", 80, false, WHEP),
        scheme("https", 443, true, WHEP),
        scheme("ws", 80, false, ROOM),
        scheme("wss", 443, true, ROOM),
    ],
    ports: &[Port {
        name: PORT,
        publishers: true,
        of_each_worker: Some(settings::is_of_each_worker),
        listen: settings::listen,
        demux: |ctx| Box::new(RtcPort::new(ctx)),
    }],
    // An endpoint of each stream, the URLs of sessions, and signalling sockets.
    mounts: &[
        whip("/{any}/whip/{id}", whip::ENDPOINT, whip::OFFERS, whip::publish),
        whip("/{any}/whip/{id}/", whip::ENDPOINT, whip::OFFERS, whip::publish),
        whip("/{any}/whip/{id}/{session}", whip::SESSION, whip::FRAGMENTS, whip::session),
        whip("/{any}/whep/{id}", whip::ENDPOINT, whip::OFFERS, whip::play),
        whip("/{any}/whep/{id}/", whip::ENDPOINT, whip::OFFERS, whip::play),
        whip("/{any}/whep/{id}/{session}", whip::SESSION, whip::FRAGMENTS, whip::session),
        whip("/{any}/whep/{id}/{session}/layer", extensions::RESOURCE, extensions::CHOICES, whip::layer),
        Mount {
            path: "/{app}/websocket",
            methods: Methods::These(&[Method::Get, Method::Head]),
            body: BodyKind::Any,
            cors: Cors::ANYONE,
            handler: signalling::open,
        },
    ],
    lookups: Some(settings::lookups),
    media: Some(port::media_addresses),
    ..Protocol::NONE
};

const fn whip(path: &'static str, methods: Methods, body: BodyKind, handler: Handler) -> Mount<Handler> {
    Mount { path, methods, body, cors: whip::CORS, handler }
}

#[cfg(test)]
pub(super) fn figures_for_tests() -> std::sync::Arc<dyn crate::stats::Figures> {
    std::sync::Arc::new(statistics::RtcFigures::of(::webrtc::Stats::default(), &[], &[], 0))
}

#[cfg(test)]
mod tests;
