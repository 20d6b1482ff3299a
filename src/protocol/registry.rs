//! The list of protocols, and of parts beside them such as recordings: one row each, declared in its own folder.

use std::net::IpAddr;
use std::sync::LazyLock;

use super::derived::Derivation;
use super::http::Handler;
use super::ice_servers::{IceAsk, IceServer, MediaAddress};
use super::row::{Addresses, Listener, Port, Protocol, Publish, Scheme};
use super::sinks::SinkKind;
use super::{
    Format, audio, hls, http, http_live, proxied, recording, relay, rtmp, rtsp, srt, turn, udp, webrtc,
};
use crate::config::{Schema, ServerSettings};
use crate::http::Mount;
use crate::mail::SessionSettings;
use crate::stats::Catalogue;
use crate::types::StreamKey;

/// The rows of this build.
pub(super) static PROTOCOLS: &[&Protocol] = &[
    &http::PROTOCOL,
    &rtmp::PROTOCOL,
    &rtsp::PROTOCOL,
    &srt::PROTOCOL,
    &udp::PROTOCOL,
    &webrtc::PROTOCOL,
    &http_live::PROTOCOL,
    &hls::PROTOCOL,
    &proxied::PROTOCOL,
    &audio::PROTOCOL,
    &recording::PROTOCOL,
    &relay::PROTOCOL,
    &turn::PROTOCOL,
    #[cfg(test)]
    &super::samples::file_sink::PROTOCOL,
];

/// The keys of all protocols, and the server's own.
static SCHEMA: LazyLock<Schema> =
    LazyLock::new(|| Schema::new(PROTOCOLS.iter().map(|protocol| protocol.section)));

impl Listener {
    /// All listeners.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        PROTOCOLS.iter().flat_map(|protocol| protocol.listeners)
    }

    /// The listener of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().find(|listener| listener.name == name)
    }
}

impl Port {
    /// All ports.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        PROTOCOLS.iter().flat_map(|protocol| protocol.ports)
    }

    /// Whether each worker has a port of this name.
    #[must_use]
    pub fn is_of_each_worker(name: &str) -> bool {
        Self::all().any(|port| port.name == name && port.of_each_worker)
    }
}

impl Format {
    /// The counts of viewers that formats have of their own.
    pub fn counts() -> impl Iterator<Item = &'static str> + Clone {
        PROTOCOLS.iter().flat_map(|protocol| protocol.formats).filter_map(|kind| kind.counted_as)
    }

    /// The default tracks in a variant of the kind with this name.
    #[must_use]
    pub fn find(name: &str, variant: u64) -> Option<Self> {
        let mut kinds = PROTOCOLS.iter().flat_map(|protocol| protocol.formats);
        kinds.find(|kind| kind.name == name).map(|kind| Self::new(kind, variant))
    }
}

/// The paths of the HTTP ports that protocols answer.
pub(super) fn mounts() -> impl Iterator<Item = &'static Mount<Handler>> {
    PROTOCOLS.iter().flat_map(|protocol| protocol.mounts)
}

/// The kinds of sinks.
pub(super) fn sinks() -> impl Iterator<Item = &'static SinkKind> {
    PROTOCOLS.iter().flat_map(|protocol| protocol.sinks).copied()
}

/// The kinds of derived tracks, each with its number: the same as long as the rows keep their order.
pub(super) fn derivations() -> impl Iterator<Item = (u8, &'static Derivation)> {
    (0..).zip(PROTOCOLS.iter().flat_map(|protocol| protocol.derivations).copied())
}

/// The URL schemes of all protocols.
pub(super) fn schemes() -> impl Iterator<Item = &'static Scheme> {
    PROTOCOLS.iter().flat_map(|protocol| protocol.schemes)
}

/// The names of the ready line, in its order.
pub fn listener_names() -> impl Iterator<Item = &'static str> {
    let absent = PROTOCOLS.iter().flat_map(|protocol| protocol.absent).copied();
    let listeners = Listener::all().filter(|listener| listener.beside.is_none());
    listeners.map(|listener| listener.name).chain(Port::all().map(|port| port.name)).chain(absent)
}

/// The servers of this process that help a client to find a path.
pub(super) fn ice_servers(ask: &IceAsk<'_>) -> Vec<IceServer> {
    PROTOCOLS.iter().filter_map(|protocol| protocol.ice_servers).flat_map(|servers| servers(ask)).collect()
}

/// The addresses that peers send media to.
pub(super) fn media_addresses(server: &SessionSettings) -> Vec<MediaAddress> {
    PROTOCOLS.iter().filter_map(|protocol| protocol.media).flat_map(|media| media(server)).collect()
}

/// The catalogues of the protocols whose connections have figures.
pub fn catalogues() -> impl Iterator<Item = &'static Catalogue> {
    PROTOCOLS.iter().filter_map(|protocol| protocol.statistics)
}

/// The keys of all settings.
#[must_use]
pub fn schema() -> &'static Schema {
    &SCHEMA
}

/// The address that an encoder publishes a stream to.
#[must_use]
pub fn publish_url(host: &str, addresses: &Addresses, key: &StreamKey) -> String {
    publish().map_or_else(String::new, |publish| (publish.url)(host, addresses.port(publish.listener), key))
}

/// The address that encoders connect to: that of all interfaces, unless the listener has one of its own.
#[must_use]
pub fn publish_address(addresses: &Addresses) -> Option<IpAddr> {
    addresses.get(publish()?.listener).map(|address| address.ip())
}

/// The port of that address.
#[must_use]
pub fn publish_port(addresses: &Addresses) -> Option<u16> {
    addresses.port(publish()?.listener)
}

fn publish() -> Option<&'static Publish> {
    PROTOCOLS.iter().find_map(|protocol| protocol.publish.as_ref())
}

/// The secret that the nodes of a cluster share; `None`: this server is sent no streams of others.
#[must_use]
pub fn node_secret(server: &ServerSettings) -> Option<&str> {
    relay::secret_of(server)
}

/// The name of the cluster, which nodes tell each other.
#[must_use]
pub fn cluster_name(server: &ServerSettings) -> &str {
    relay::cluster_of(server)
}
