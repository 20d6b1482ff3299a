//! TURN (RFC 8656): clients that cannot reach a media port reach it through this server, over UDP, TCP or TLS.
//!
//! ```text
//!     client --UDP--> TurnPort --> TurnSession --UDP, own socket on loopback--> media port of a worker
//!     client --TCP, TLS--> StreamCarrier --> TurnPort
//! ```
//!
//! The state machines are in the crate `turn`. The server adds the routing of datagrams ([`port`]), the socket of an
//! allocation ([`session`]), messages in byte streams ([`tcp`]), and its addresses with credentials for clients
//! ([`offer`]). docs/decisions.md explains why each allocation has a socket of its own.

mod offer;
mod port;
mod session;
mod settings;
mod statistics;
mod tcp;

use super::first_bytes::FirstBytes;
use super::row::{Listener, Port, Protocol, Security};

/// Names of the ports in the ready line.
const PORT: &str = "turn";
const TCP: &str = "turn-tcp";
const TLS: &str = "turns";

/// TURN's entry in [`super::registry`].
pub(super) static PROTOCOL: Protocol = Protocol {
    listeners: &[
        listener(TCP, Security::Plain, settings::listen),
        listener(TLS, Security::Tls, settings::listen_tls),
    ],
    section: &settings::SECTION,
    statistics: Some(&statistics::CATALOGUE),
    ports: &[Port {
        name: PORT,
        publishers: true,
        of_each_worker: None,
        listen: settings::listen,
        demux: |ctx| Box::new(port::TurnPort::new(ctx)),
    }],
    ice_servers: Some(offer::servers),
    ..Protocol::NONE
};

#[cfg(test)]
pub(super) fn figures_for_tests() -> std::sync::Arc<dyn crate::stats::Figures> {
    std::sync::Arc::new(statistics::TurnFigures(::turn::Stats::default()))
}

const fn listener(
    name: &'static str,
    security: Security,
    listen: fn(&crate::config::ServerSettings) -> Option<super::row::Bind>,
) -> Listener {
    Listener {
        name,
        security,
        manages: false,
        publishers: true,
        beside: None,
        first_bytes: FirstBytes::Recognised(tcp::first_bytes),
        listen,
        begin: |now, _, _| Box::new(tcp::carrier(now)),
    }
}
