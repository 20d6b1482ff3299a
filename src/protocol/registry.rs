//! The list of protocols: one row each, declared in the protocol's own folder.

use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use crypto::Seed;

use super::outbound::Scheme;
use super::{Demux, FormatKind, Now, Session, http, http_live, planned, rtmp, srt};
use crate::config::{Schema, Section, ServerSettings};
use crate::stats::Catalogue;
use crate::types::{StreamKey, WorkerId};

/// The protocols of this build.
pub(super) static PROTOCOLS: [&Protocol; 6] = [
    &http::PROTOCOL,
    &rtmp::PROTOCOL,
    &planned::RTSP_PROTOCOL,
    &planned::WEBRTC_PROTOCOL,
    &srt::PROTOCOL,
    &http_live::PROTOCOL,
];

/// The keys of all protocols, and the server's own.
static SCHEMA: LazyLock<Schema> =
    LazyLock::new(|| Schema::new(PROTOCOLS.iter().map(|protocol| protocol.section)));

/// What a protocol brings to the server beside its sessions.
#[derive(Debug)]
pub(super) struct Protocol {
    /// Its TCP listeners.
    pub(super) listeners: &'static [Listener],
    /// Its settings.
    pub(super) section: &'static Section,
    /// The figures that its connections have.
    pub(super) statistics: Option<&'static Catalogue>,
    /// Its UDP ports that many peers share.
    pub(super) ports: &'static [Port],
    /// Names that the ready line has although this build has nothing of theirs.
    pub(super) absent: &'static [&'static str],
    /// The formats of its viewers.
    pub(super) formats: &'static [&'static FormatKind],
    /// Schemes of the URLs that it pushes to and pulls from.
    pub(super) schemes: &'static [Scheme],
    /// How encoders publish. The API shows the first protocol that has it.
    pub(super) publish: Option<Publish>,
}

impl Protocol {
    /// Nothing; a row says what it has.
    pub(super) const NONE: Self = Self {
        listeners: &[],
        section: &Section::NONE,
        statistics: None,
        ports: &[],
        absent: &[],
        formats: &[],
        schemes: &[],
        publish: None,
    };
}

/// What lies between a listener's sockets and its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// Nothing.
    Plain,
    /// TLS.
    Tls,
    /// TLS for a peer that may ask which HTTP is spoken.
    TlsHttp,
}

/// How encoders publish.
#[derive(Debug)]
pub(super) struct Publish {
    /// To which listener.
    pub(super) listener: &'static str,
    /// The URL of a host, a port and a stream.
    pub(super) url: fn(&str, Option<u16>, &StreamKey) -> String,
}

/// What is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bind {
    /// The address; `None`: every one, IPv4 and IPv6.
    pub host: Option<IpAddr>,
    /// The port; 0: any free one.
    pub port: u16,
}

/// A TCP listener.
#[derive(Debug)]
pub struct Listener {
    /// In the ready line.
    pub name: &'static str,
    /// What secures it.
    pub security: Security,
    /// Whether the management API is there: nobody makes this server connect to it.
    pub manages: bool,
    /// Where it listens; `None`: it is off.
    pub(super) listen: fn(&ServerSettings) -> Option<Bind>,
    /// Creates the session of an accepted connection.
    pub(super) begin: fn(Now, SocketAddr, Seed) -> Box<dyn Session>,
}

impl Listener {
    /// All of them.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        PROTOCOLS.iter().flat_map(|protocol| protocol.listeners)
    }

    /// The listener of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().find(|listener| listener.name == name)
    }

    /// Where it listens; `None`: it is off.
    #[must_use]
    pub fn listen(&self, server: &ServerSettings) -> Option<Bind> {
        (self.listen)(server)
    }

    /// Creates the session of an accepted connection.
    #[must_use]
    pub fn begin(&self, now: Now, peer: SocketAddr, seed: Seed) -> Box<dyn Session> {
        (self.begin)(now, peer, seed)
    }
}

/// A UDP port that many peers share.
#[derive(Debug)]
pub struct Port {
    /// In the ready line.
    pub name: &'static str,
    /// Where it is, as of a [`Listener`].
    pub(super) listen: fn(&ServerSettings) -> Option<Bind>,
    /// Creates what tells its peers apart.
    pub(super) demux: fn(Now, WorkerId, &Seed) -> Box<dyn Demux>,
}

impl Port {
    /// All of them.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        PROTOCOLS.iter().flat_map(|protocol| protocol.ports)
    }

    /// Where it is; `None`: it is off.
    #[must_use]
    pub fn listen(&self, server: &ServerSettings) -> Option<Bind> {
        (self.listen)(server)
    }

    /// What tells its peers apart. `secret` is the same for all workers of the server.
    #[must_use]
    pub fn demux(&self, now: Now, worker: WorkerId, secret: &Seed) -> Box<dyn Demux> {
        (self.demux)(now, worker, secret)
    }
}

/// Names are unique.
impl PartialEq for Port {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Port {}

/// Where the server listens, as bound, by the names of listeners and ports. What is off is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses(Vec<(&'static str, SocketAddr)>);

impl Addresses {
    /// Ports of no particular address; for tests and simulations.
    #[must_use]
    pub fn of(ports: &[(&'static str, u16)]) -> Self {
        Self(ports.iter().map(|(name, port)| (*name, SocketAddr::from(([0, 0, 0, 0], *port)))).collect())
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        self.0.iter().copied()
    }

    /// Adds one.
    pub fn insert(&mut self, name: &'static str, address: SocketAddr) {
        self.0.push((name, address));
    }

    /// Where the listener or port of that name is.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<SocketAddr> {
        self.0.iter().find(|(of, _)| *of == name).map(|(_, address)| *address)
    }

    /// The port of that listener.
    #[must_use]
    pub fn port(&self, name: &str) -> Option<u16> {
        self.get(name).map(|address| address.port())
    }
}

/// The kind of format with this name.
pub(super) fn format(name: &str) -> Option<&'static FormatKind> {
    PROTOCOLS.iter().flat_map(|protocol| protocol.formats).find(|kind| kind.name == name).copied()
}

/// The names of the ready line, in its order.
pub fn listener_names() -> impl Iterator<Item = &'static str> {
    let absent = PROTOCOLS.iter().flat_map(|protocol| protocol.absent).copied();
    Listener::all().map(|listener| listener.name).chain(Port::all().map(|port| port.name)).chain(absent)
}

/// What the connections of protocols have figures of.
pub fn catalogues() -> impl Iterator<Item = &'static Catalogue> {
    PROTOCOLS.iter().filter_map(|protocol| protocol.statistics)
}

/// All known keys of the settings.
#[must_use]
pub fn schema() -> &'static Schema {
    &SCHEMA
}

/// The address that an encoder publishes a stream to.
#[must_use]
pub fn publish_url(host: &str, addresses: &Addresses, key: &StreamKey) -> String {
    publish().map_or_else(String::new, |publish| (publish.url)(host, addresses.port(publish.listener), key))
}

/// The port of that address.
#[must_use]
pub fn publish_port(addresses: &Addresses) -> Option<u16> {
    addresses.port(publish()?.listener)
}

fn publish() -> Option<&'static Publish> {
    PROTOCOLS.iter().find_map(|protocol| protocol.publish.as_ref())
}
