//! The table of protocols and of features such as recordings. Each has one entry, declared in its own folder.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::LazyLock;

use super::derived::Derivation;
use super::http::Handler;
use super::ice_servers::{IceAsk, IceServer, MediaAddress};
use super::row::{Addresses, Listener, Port, Protocol, Publish, Scheme};
use super::sinks::{BlobRoot, SinkKind};
use super::{
    Format, audio, hls, http, http_live, preview, proxied, recording, relay, room_view, rtmp, rtsp, srt,
    turn, udp, webrtc,
};
use crate::config::{Schema, ServerSettings};
use crate::http::Mount;
use crate::mail::{SessionSettings, Target};
use crate::stats::Catalogue;
use crate::types::{Lookup, StreamKey};

/// The entries.
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
    &preview::PROTOCOL,
    &relay::PROTOCOL,
    &room_view::PROTOCOL,
    &turn::PROTOCOL,
    #[cfg(test)]
    &super::samples::file_sink::PROTOCOL,
];

/// The keys of all settings: those of the protocols and those of the server itself.
static SCHEMA: LazyLock<Schema> =
    LazyLock::new(|| Schema::new(PROTOCOLS.iter().map(|protocol| protocol.section)));

impl Listener {
    /// Returns all listeners.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        PROTOCOLS.iter().flat_map(|protocol| protocol.listeners)
    }

    /// Returns the listener of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().find(|listener| listener.name == name)
    }
}

impl Port {
    /// Returns all ports.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        PROTOCOLS.iter().flat_map(|protocol| protocol.ports)
    }

    /// True if each worker may have a port of this name.
    #[must_use]
    pub fn is_listed(name: &str) -> bool {
        Self::all().any(|port| port.name == name && port.of_each_worker.is_some())
    }
}

impl Format {
    /// Returns the names under which formats count their viewers separately.
    pub fn counts() -> impl Iterator<Item = &'static str> + Clone {
        PROTOCOLS.iter().flat_map(|protocol| protocol.formats).filter_map(|kind| kind.counted_as)
    }

    /// Returns the format of each kind, with its usual tracks.
    #[cfg(test)]
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        PROTOCOLS.iter().flat_map(|protocol| protocol.formats).map(|kind| Self::new(kind, 0))
    }

    /// Returns the format of the kind with this name, with its usual tracks.
    #[must_use]
    pub fn find(name: &str, variant: u64) -> Option<Self> {
        let mut kinds = PROTOCOLS.iter().flat_map(|protocol| protocol.formats);
        kinds.find(|kind| kind.name == name).map(|kind| Self::new(kind, variant))
    }
}

/// Returns the HTTP mounts of all protocols.
pub(super) fn mounts() -> impl Iterator<Item = &'static Mount<Handler>> {
    PROTOCOLS.iter().flat_map(|protocol| protocol.mounts)
}

/// Returns the kinds of sinks.
pub(super) fn sinks() -> impl Iterator<Item = &'static SinkKind> {
    PROTOCOLS.iter().flat_map(|protocol| protocol.sinks).copied()
}

/// Returns the folders beside `streams` that sinks publish blobs in.
pub(super) fn blob_roots() -> impl Iterator<Item = &'static BlobRoot> {
    sinks().filter_map(|kind| kind.root)
}

/// Returns the derivations, each with its number, which stays the same as long as the entries of [`PROTOCOLS`] keep
/// their order.
pub(super) fn derivations() -> impl Iterator<Item = (u8, &'static Derivation)> {
    (0..).zip(PROTOCOLS.iter().flat_map(|protocol| protocol.derivations).copied())
}

/// Returns the URL schemes of all protocols.
pub(super) fn schemes() -> impl Iterator<Item = &'static Scheme> {
    PROTOCOLS.iter().flat_map(|protocol| protocol.schemes)
}

/// Returns the target of the view of a room.
pub(super) fn room_view(room: &StreamKey) -> Option<Target> {
    PROTOCOLS.iter().find_map(|protocol| protocol.room_view).map(|target| target(room))
}

/// Returns the names of listeners, ports and missing features in the order of the ready line.
pub fn listener_names() -> impl Iterator<Item = &'static str> {
    let absent = PROTOCOLS.iter().flat_map(|protocol| protocol.absent).copied();
    let listeners = Listener::all().filter(|listener| listener.beside.is_none());
    listeners.map(|listener| listener.name).chain(Port::all().map(|port| port.name)).chain(absent)
}

/// Returns the ICE servers run by this process.
pub(super) fn ice_servers(ask: &IceAsk<'_>) -> Vec<IceServer> {
    PROTOCOLS.iter().filter_map(|protocol| protocol.ice_servers).flat_map(|servers| servers(ask)).collect()
}

/// Returns the addresses of this machine that must be looked up because the settings do not give them.
pub fn lookups(server: &ServerSettings) -> BTreeSet<Lookup> {
    PROTOCOLS.iter().filter_map(|protocol| protocol.lookups).flat_map(|lookups| lookups(server)).collect()
}

/// Returns the addresses to which peers send media.
pub(super) fn media_addresses(server: &SessionSettings) -> Vec<MediaAddress> {
    PROTOCOLS.iter().filter_map(|protocol| protocol.media).flat_map(|media| media(server)).collect()
}

/// Returns the catalogues of connection figures, one for each protocol that has them.
pub fn catalogues() -> impl Iterator<Item = &'static Catalogue> {
    PROTOCOLS.iter().filter_map(|protocol| protocol.statistics)
}

/// Returns the keys of all settings.
#[must_use]
pub fn schema() -> &'static Schema {
    &SCHEMA
}

/// Returns the URL to which an encoder publishes a stream.
#[must_use]
pub fn publish_url(host: &str, addresses: &Addresses, key: &StreamKey) -> String {
    publish().map_or_else(String::new, |publish| (publish.url)(host, addresses.port(publish.listener), key))
}

/// Returns the address to which encoders publish: the unspecified one, unless the listener has an address of its own.
#[must_use]
pub fn publish_address(addresses: &Addresses) -> Option<IpAddr> {
    addresses.get(publish()?.listener).map(|address| address.ip())
}

/// Returns the port to which encoders publish.
#[must_use]
pub fn publish_port(addresses: &Addresses) -> Option<u16> {
    addresses.port(publish()?.listener)
}

fn publish() -> Option<&'static Publish> {
    PROTOCOLS.iter().find_map(|protocol| protocol.publish.as_ref())
}

/// Returns the secret shared by the nodes of a cluster; `None` if this server exchanges no streams with others.
#[must_use]
pub fn node_secret(server: &ServerSettings) -> Option<&str> {
    relay::secret_of(server)
}

/// Returns the name of the cluster, which nodes compare.
#[must_use]
pub fn cluster_name(server: &ServerSettings) -> &str {
    relay::cluster_of(server)
}
