//! A protocol's entry in the [`super::registry`]: listeners, shared ports, settings, figures, URL schemes, sinks and
//! derived tracks. Features without a network protocol, such as recordings and derived audio, have an entry too.

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;

use super::derived::Derivation;
use super::first_bytes::{self, FirstBytes};
use super::http::Handler;
use super::ice_servers::{IceAsk, IceServer, MediaAddress};
use super::player::{LoadPlayer, PulledPlayer};
use super::publisher::LoadPublisher;
use super::pull::{Client, Patience};
use super::sinks::SinkKind;
use super::{Demux, FormatKind, Now, Session};
use crate::auth::url::{Url, UrlError};
use crate::config::{Section, ServerSettings};
use crate::http::Mount;
use crate::mail::{SessionSettings, Target, Transport};
use crate::stats::Catalogue;
use crate::types::{Lookup, StreamKey, WorkerId};

/// The parts of a protocol, apart from its sessions.
#[derive(Debug)]
pub(super) struct Protocol {
    /// The TCP listeners.
    pub(super) listeners: &'static [Listener],
    /// The settings.
    pub(super) section: &'static Section,
    /// The catalogue of the figures of the protocol's connections.
    pub(super) statistics: Option<&'static Catalogue>,
    /// The shared UDP ports.
    pub(super) ports: &'static [Port],
    /// Names that the ready line contains although this build lacks the feature.
    pub(super) absent: &'static [&'static str],
    /// The formats of the protocol's viewers.
    pub(super) formats: &'static [&'static FormatKind],
    /// The URL schemes that the protocol pushes to and pulls from.
    pub(super) schemes: &'static [Scheme],
    /// The paths that the protocol answers on the HTTP ports.
    pub(super) mounts: &'static [Mount<Handler>],
    /// The sinks, i.e. consumers of streams that are not connections.
    pub(super) sinks: &'static [&'static SinkKind],
    /// The tracks that the protocol's sessions derive from published ones.
    pub(super) derivations: &'static [&'static Derivation],
    /// The listener and the URL for encoders. The API shows those of the first protocol that has them.
    pub(super) publish: Option<Publish>,
    /// Makes the target of a room's view; `None` for protocols that make no views.
    pub(super) room_view: Option<fn(&StreamKey) -> Target>,
    /// Returns the ICE servers that the protocol runs for clients of other protocols.
    pub(super) ice_servers: Option<fn(&IceAsk<'_>) -> Vec<IceServer>>,
    /// Returns the addresses of this machine that the settings do not give and that must be looked up.
    pub(super) lookups: Option<fn(&ServerSettings) -> Vec<Lookup>>,
    /// Returns the addresses to which the protocol's peers send media, for TURN to relay to.
    pub(super) media: Option<fn(&SessionSettings) -> Vec<MediaAddress>>,
}

impl Protocol {
    /// An empty entry, from which each protocol takes the fields that it does not set.
    pub(super) const NONE: Self = Self {
        listeners: &[],
        section: &Section::NONE,
        statistics: None,
        ports: &[],
        absent: &[],
        formats: &[],
        schemes: &[],
        mounts: &[],
        sinks: &[],
        derivations: &[],
        publish: None,
        room_view: None,
        ice_servers: None,
        lookups: None,
        media: None,
    };
}

/// The security layer between a listener's sockets and its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// No security layer.
    Plain,
    /// TLS.
    Tls,
    /// TLS among the nodes of a cluster: both sides prove that they know its secret.
    Nodes,
    /// TLS for HTTP, negotiating the HTTP version by ALPN.
    TlsHttp,
}

/// The listener and the URL for encoders.
#[derive(Debug)]
pub(super) struct Publish {
    /// The listener that encoders connect to.
    pub(super) listener: &'static str,
    /// Makes the URL of a stream from host, port and stream key.
    pub(super) url: fn(&str, Option<u16>, &StreamKey) -> String,
}

/// An address to bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bind {
    /// The address; `None` for every address, IPv4 and IPv6.
    pub host: Option<IpAddr>,
    /// The port; 0 for any free one.
    pub port: u16,
    /// The key of the setting that gives the port.
    pub key: &'static str,
}

/// A TCP listener.
#[derive(Debug)]
pub struct Listener {
    /// The name in the ready line.
    pub name: &'static str,
    /// The security layer.
    pub security: Security,
    /// True if the listener serves the management API, so that no outgoing connection may go to it.
    pub manages: bool,
    /// True if publishers use the listener; a part of all connections is reserved for it.
    pub publishers: bool,
    /// The shared UDP port whose datagrams the listener's connections carry, if there is one. Each worker then listens
    /// at the port number of its UDP socket, and keeps the connections that it accepts, except those that belong to
    /// sessions of other workers ([`super::Carrier::hand_over`]).
    pub beside: Option<&'static str>,
    /// Role of the listener at ports that several protocols share.
    pub(super) first_bytes: FirstBytes,
    /// Returns the address; `None` if the listener is off. For a listener that belongs to a shared UDP port (`beside`),
    /// only on or off matters, because the listener uses the address of that port.
    pub(super) listen: fn(&ServerSettings) -> Option<Bind>,
    /// Creates the session of an accepted connection.
    pub(super) begin: fn(Now, SocketAddr, Seed) -> Box<dyn Session>,
}

impl Listener {
    /// Returns the address; `None` if the listener is off.
    #[must_use]
    pub fn listen(&self, server: &ServerSettings) -> Option<Bind> {
        (self.listen)(server)
    }

    /// Creates the session of an accepted connection.
    #[must_use]
    pub fn begin(
        &self,
        now: Now,
        server: &SessionSettings,
        peer: SocketAddr,
        seed: Seed,
    ) -> Box<dyn Session> {
        first_bytes::begin((now, server), self, peer, seed)
    }

    /// Creates a session of the listener's own protocol.
    pub(super) fn begin_own(&self, now: Now, peer: SocketAddr, seed: Seed) -> Box<dyn Session> {
        (self.begin)(now, peer, seed)
    }
}

/// The context of a shared port on one worker. All keys and certificates of a port come from its seeds, so that ports
/// need no files and simulations repeat.
#[derive(Debug, Clone, Copy)]
pub struct PortContext<'a> {
    /// Time at which the port opens.
    pub now: Now,
    /// The worker to which the port belongs.
    pub worker: WorkerId,
    /// The server's secret, the same on all workers.
    secret: &'a Seed,
}

impl<'a> PortContext<'a> {
    /// Makes the context of a worker's ports.
    #[must_use]
    pub const fn new(now: Now, worker: WorkerId, secret: &'a Seed) -> Self {
        Self { now, worker, secret }
    }

    /// Derives a seed that all workers share: a value made from it by one worker is valid at the others.
    #[must_use]
    pub fn shared_seed(&self, label: &str) -> Seed {
        self.secret.derive(label, 0)
    }

    /// Derives a seed of this worker alone.
    #[must_use]
    pub fn worker_seed(&self, label: &str) -> Seed {
        self.secret.derive(label, u64::from(self.worker.0))
    }
}

/// A UDP port shared by many peers.
#[derive(Debug)]
pub struct Port {
    /// The name in the ready line.
    pub name: &'static str,
    /// True if publishers use the port, as for a [`Listener`].
    pub publishers: bool,
    /// Returns true if the settings give each worker a port number of its own, counted up from the first; the ready
    /// line then lists all of them. `None` if all workers always share one number.
    pub(super) of_each_worker: Option<fn(&ServerSettings) -> bool>,
    /// Returns the address, as for a [`Listener`].
    pub(super) listen: fn(&ServerSettings) -> Option<Bind>,
    /// Creates the demultiplexer of the port.
    pub(super) demux: fn(&PortContext<'_>) -> Box<dyn Demux>,
}

impl Port {
    /// Returns the address; `None` if the port is off.
    #[must_use]
    pub fn listen(&self, server: &ServerSettings) -> Option<Bind> {
        (self.listen)(server)
    }

    /// True if each worker has a port number of its own.
    #[must_use]
    pub fn is_of_each_worker(&self, server: &ServerSettings) -> bool {
        self.of_each_worker.is_some_and(|of_each| of_each(server))
    }

    /// Creates the demultiplexer of the port on one worker.
    #[must_use]
    pub fn demux(&self, ctx: &PortContext<'_>) -> Box<dyn Demux> {
        (self.demux)(ctx)
    }
}

/// Compares the names of the ports, which are unique.
impl PartialEq for Port {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Port {}

/// The bound addresses by names of listeners and ports. Disabled ones are missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses(Vec<(&'static str, SocketAddr)>);

impl Addresses {
    /// Makes addresses with these ports, for tests and simulations.
    #[must_use]
    pub fn of(ports: &[(&'static str, u16)]) -> Self {
        Self(ports.iter().map(|(name, port)| (*name, SocketAddr::from(([0, 0, 0, 0], *port)))).collect())
    }

    /// Iterates over the addresses.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        self.0.iter().copied()
    }

    /// Adds an address.
    pub fn insert(&mut self, name: &'static str, address: SocketAddr) {
        self.0.push((name, address));
    }

    /// Returns the addresses of this name; several if each worker has one.
    pub fn all(&self, name: &str) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().filter(move |(of, _)| *of == name).map(|(_, address)| *address)
    }

    /// Returns the address of the listener or port of this name; the first one if each worker has one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<SocketAddr> {
        self.0.iter().find(|(of, _)| *of == name).map(|(_, address)| *address)
    }

    /// Returns the port of the listener of this name.
    #[must_use]
    pub fn port(&self, name: &str) -> Option<u16> {
        self.get(name).map(|address| address.port())
    }
}

/// A scheme of URLs to which streams are pushed, or from which they are pulled.
#[derive(Debug)]
pub(super) struct Scheme {
    /// The scheme as written in a URL.
    pub(super) name: &'static str,
    /// The default port.
    pub(super) default_port: u16,
    /// True if streams can be pushed to URLs of the scheme.
    pub(super) pushes: bool,
    /// True if streams can be pulled from URLs of the scheme. If false, only the load generator plays such URLs.
    pub(super) pulls: bool,
    /// Makes the target of a stream at a node with this host and port, if copies can be fetched by this scheme. Only
    /// the operator's settings name such URLs, which need no credentials.
    pub(super) copies: Option<fn(&str, u16, &StreamKey) -> Target>,
    /// True if a user and a password may precede the host.
    pub(super) takes_credentials: bool,
    /// The load generator's use of the scheme.
    pub(super) load: LoadUse,
    /// Parses a URL.
    pub(super) read: fn(&Url<'_>, &Self) -> Result<Outbound, UrlError>,
}

impl Scheme {
    /// Parses a URL of this scheme.
    pub(super) fn target(&self, url: &Url<'_>) -> Result<Target, UrlError> {
        if url.authority.contains('@') && !self.takes_credentials {
            return Err(UrlError::Credentials);
        }
        let Outbound { host, port, transport, request } = (self.read)(url, self)?;
        Ok(Target::new(self.name, (host, port), transport, Arc::new(request)))
    }
}

/// The load generator's use of a scheme's URLs.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadUse {
    /// Name of the protocol.
    pub(super) protocol: &'static str,
    /// True if the load generator plays such URLs.
    pub(super) plays: bool,
    /// True if the load generator publishes to such URLs.
    pub(super) publishes: bool,
    /// The kinds of sockets of a connection.
    pub(super) sockets: Sockets,
    /// A segment that such a URL's path must have, if protocols share a scheme.
    pub(super) segment: Option<&'static str>,
    /// An extension that such a URL's path must have, if protocols share a scheme.
    pub(super) ending: Option<&'static str>,
}

impl LoadUse {
    /// Neither plays nor publishes.
    pub(super) const fn none(protocol: &'static str) -> Self {
        Self { plays: false, ..Self::plays(protocol) }
    }

    /// Plays over a byte stream.
    pub(super) const fn plays(protocol: &'static str) -> Self {
        Self {
            protocol,
            plays: true,
            publishes: false,
            sockets: Sockets::Stream,
            segment: None,
            ending: None,
        }
    }

    /// Plays and publishes over a byte stream.
    pub(super) const fn both(protocol: &'static str) -> Self {
        Self { publishes: true, ..Self::plays(protocol) }
    }

    /// True if a URL of the scheme fits this use.
    pub(super) fn takes(&self, url: &Url<'_>) -> bool {
        let path = url.path();
        self.segment.is_none_or(|segment| path.split('/').any(|of_url| of_url == segment))
            && self.ending.is_none_or(|ending| path.to_ascii_lowercase().ends_with(ending))
    }

    /// Number of conditions on a URL. Among uses that fit a URL, the one with most conditions is chosen.
    pub(super) fn demands(&self) -> usize {
        usize::from(self.segment.is_some()) + usize::from(self.ending.is_some())
    }
}

/// The kinds of sockets of a connection of the load generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sockets {
    /// A byte stream.
    Stream,
    /// A UDP socket connected to the server.
    Datagrams,
    /// A byte stream, and a UDP socket negotiated over it.
    StreamAndDatagrams,
}

/// A URL parsed by its protocol.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) transport: Transport,
    pub(super) request: Box<dyn Request>,
}

/// The part of a target that only its protocol understands.
pub(super) trait Request: Debug + Send + Sync {
    /// True if this request asks for the stream `key` of this server, in case it is sent to port `port` of a server
    /// that has these addresses.
    fn means(&self, port: u16, addresses: &Addresses, key: &StreamKey) -> bool;
    /// Makes the session of a push, if the protocol has pushes. `via` lists the streams through which this one was
    /// forwarded, and ends with this stream itself.
    fn push(&self, _now: Now, _via: &[String], _seed: Seed) -> Option<Box<dyn Session>> {
        None
    }
    /// Makes the session of a pull that needs no server, such as the view of a room.
    fn session(&self) -> Option<Box<dyn Session>> {
        None
    }
    /// Makes the client of a pull, if the protocol has pulls.
    fn pull(&self, _patience: Patience, _seed: Seed) -> Option<Box<dyn Client>> {
        None
    }
    /// True if publishers and players of the load generator meet in a room.
    fn is_room(&self) -> bool {
        false
    }
    /// Makes a player for the load generator: by default the client of a pull.
    fn play(&self, now: Instant, patience: Patience, seed: Seed) -> Option<Box<dyn LoadPlayer>> {
        Some(Box::new(PulledPlayer::new(now, self.pull(patience, seed)?)))
    }
    /// Makes a publisher for the load generator, if the protocol has one, of a stream that begins with these parameter
    /// sets (FLV bodies).
    fn publish(
        &self,
        _now: Instant,
        _patience: Patience,
        _seed: Seed,
        _heads: &[(TagKind, Bytes)],
    ) -> Option<Box<dyn LoadPublisher>> {
        None
    }
}
