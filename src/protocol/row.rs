//! A protocol's row in the [`super::registry`]: listeners, shared ports, settings, figures, the URLs that streams are sent to
//! and fetched from, sinks and derived tracks. A part that speaks with nobody has a row, too: recordings, derived audio.

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;

use super::derived::Derivation;
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
use crate::types::{StreamKey, WorkerId};

/// The parts of a protocol besides its sessions.
#[derive(Debug)]
pub(super) struct Protocol {
    /// The TCP listeners.
    pub(super) listeners: &'static [Listener],
    /// The settings.
    pub(super) section: &'static Section,
    /// The figures that its connections have.
    pub(super) statistics: Option<&'static Catalogue>,
    /// The shared UDP ports.
    pub(super) ports: &'static [Port],
    /// Names that the ready line has although this build has nothing of theirs.
    pub(super) absent: &'static [&'static str],
    /// The formats of its viewers.
    pub(super) formats: &'static [&'static FormatKind],
    /// Schemes of the URLs that it pushes to and pulls from.
    pub(super) schemes: &'static [Scheme],
    /// Paths of the HTTP ports that it answers.
    pub(super) mounts: &'static [Mount<Handler>],
    /// Consumers of streams that are no connections.
    pub(super) sinks: &'static [&'static SinkKind],
    /// Tracks that it makes of published ones.
    pub(super) derivations: &'static [&'static Derivation],
    /// The listener and the URL that encoders publish to. The API shows those of the first protocol that has
    /// them.
    pub(super) publish: Option<Publish>,
    /// The servers of its own that help clients of other protocols to find a path.
    pub(super) ice_servers: Option<fn(&IceAsk<'_>) -> Vec<IceServer>>,
    /// The addresses that its peers send media to, where those can be reached through such a server.
    pub(super) media: Option<fn(&SessionSettings) -> Vec<MediaAddress>>,
}

impl Protocol {
    /// An empty row, to be extended.
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
        ice_servers: None,
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
    /// TLS for a peer that may ask which HTTP is spoken.
    TlsHttp,
}

/// The listener and the URL that encoders publish to.
#[derive(Debug)]
pub(super) struct Publish {
    /// The listener that they connect to.
    pub(super) listener: &'static str,
    /// The URL of a host, a port and a stream.
    pub(super) url: fn(&str, Option<u16>, &StreamKey) -> String,
}

/// An address to bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bind {
    /// The address; `None`: every one, IPv4 and IPv6.
    pub host: Option<IpAddr>,
    /// The port; 0: any free one.
    pub port: u16,
    /// The setting that names the port.
    pub key: &'static str,
}

/// A TCP listener.
#[derive(Debug)]
pub struct Listener {
    /// The name in the ready line.
    pub name: &'static str,
    /// The security layer.
    pub security: Security,
    /// Whether the management API is there: nobody makes this server connect to it.
    pub manages: bool,
    /// Whether publishers come here: a part of all connections is kept for them.
    pub publishers: bool,
    /// The shared port whose datagrams its connections carry: each worker listens at the number of its own UDP socket, and
    /// keeps the connections that it accepts.
    pub beside: Option<&'static str>,
    /// The address; `None`: it is off. Of one beside a port only that counts.
    pub(super) listen: fn(&ServerSettings) -> Option<Bind>,
    /// Creates the session of an accepted connection.
    pub(super) begin: fn(Now, SocketAddr, Seed) -> Box<dyn Session>,
}

impl Listener {
    /// The address; `None`: it is off.
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

/// The surroundings of a shared port on one worker.
#[derive(Debug, Clone, Copy)]
pub struct PortContext<'a> {
    /// The time at which the port opens.
    pub now: Now,
    /// The worker whose port it is.
    pub worker: WorkerId,
    /// The secret of the server: the same on all workers.
    pub secret: &'a Seed,
}

/// A UDP port that many peers share.
#[derive(Debug)]
pub struct Port {
    /// The name in the ready line.
    pub name: &'static str,
    /// Whether publishers come here, as of a [`Listener`].
    pub publishers: bool,
    /// Whether each worker has a port number of its own, counted from the first, so that what a peer sends comes to the
    /// worker that knows it.
    pub of_each_worker: bool,
    /// The address, as of a [`Listener`].
    pub(super) listen: fn(&ServerSettings) -> Option<Bind>,
    /// Creates the demultiplexer of its peers.
    pub(super) demux: fn(&PortContext<'_>) -> Box<dyn Demux>,
}

impl Port {
    /// The address; `None`: it is off.
    #[must_use]
    pub fn listen(&self, server: &ServerSettings) -> Option<Bind> {
        (self.listen)(server)
    }

    /// Creates the demultiplexer of the port on one worker.
    #[must_use]
    pub fn demux(&self, ctx: &PortContext<'_>) -> Box<dyn Demux> {
        (self.demux)(ctx)
    }
}

/// Names are unique.
impl PartialEq for Port {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Port {}

/// The bound addresses, by the names of listeners and ports. What is off is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses(Vec<(&'static str, SocketAddr)>);

impl Addresses {
    /// Ports of no particular address; for tests and simulations.
    #[must_use]
    pub fn of(ports: &[(&'static str, u16)]) -> Self {
        Self(ports.iter().map(|(name, port)| (*name, SocketAddr::from(([0, 0, 0, 0], *port)))).collect())
    }

    /// Iterates over the addresses.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        self.0.iter().copied()
    }

    /// Adds one.
    pub fn insert(&mut self, name: &'static str, address: SocketAddr) {
        self.0.push((name, address));
    }

    /// The addresses of that name: several where each worker has one.
    pub fn all(&self, name: &str) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().filter(move |(of, _)| *of == name).map(|(_, address)| *address)
    }

    /// The address of the listener or port of that name; the first one where each worker has its own.
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

/// A scheme of URLs that streams are sent to or fetched from.
#[derive(Debug)]
pub(super) struct Scheme {
    /// The scheme as written in a URL.
    pub(super) name: &'static str,
    /// The port when the URL has none.
    pub(super) default_port: u16,
    /// Whether streams are sent there.
    pub(super) pushes: bool,
    /// Whether streams are fetched from there; else only the load generator plays them.
    pub(super) pulls: bool,
    /// The target of a stream at a node with this host and port, where copies are fetched from there. Only the operator's settings name such
    /// URLs, which ask for no credentials.
    pub(super) copies: Option<fn(&str, u16, &StreamKey) -> Target>,
    /// Whether a user and a password may stand before the host.
    pub(super) takes_credentials: bool,
    /// The use of such a URL by the load generator.
    pub(super) load: LoadUse,
    /// Reads a URL.
    pub(super) read: fn(&Url<'_>, &Self) -> Result<Outbound, UrlError>,
}

impl Scheme {
    /// Reads a URL of this scheme.
    pub(super) fn target(&self, url: &Url<'_>) -> Result<Target, UrlError> {
        if url.authority.contains('@') && !self.takes_credentials {
            return Err(UrlError::Credentials);
        }
        let Outbound { host, port, transport, request } = (self.read)(url, self)?;
        Ok(Target::new(self.name, (host, port), transport, Arc::new(request)))
    }
}

/// The use of a scheme's URLs by the load generator.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadUse {
    /// The name of what is spoken.
    pub(super) protocol: &'static str,
    /// Whether it plays.
    pub(super) plays: bool,
    /// Whether it publishes.
    pub(super) publishes: bool,
    /// The sockets of a connection.
    pub(super) sockets: Sockets,
    /// A segment that the paths of such URLs have, where protocols share a scheme.
    pub(super) segment: Option<&'static str>,
    /// The ending of those paths, where protocols share a scheme.
    pub(super) ending: Option<&'static str>,
}

impl LoadUse {
    /// Nothing.
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

    /// Whether a URL of the scheme is meant.
    pub(super) fn takes(&self, url: &Url<'_>) -> bool {
        let path = url.path();
        self.segment.is_none_or(|segment| path.split('/').any(|of_url| of_url == segment))
            && self.ending.is_none_or(|ending| path.to_ascii_lowercase().ends_with(ending))
    }

    /// The number of demands that it makes of a URL. Of the uses that take a URL, the most demanding is
    /// meant.
    pub(super) fn demands(&self) -> usize {
        usize::from(self.segment.is_some()) + usize::from(self.ending.is_some())
    }
}

/// The sockets of a connection of the load generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sockets {
    /// A byte stream.
    Stream,
    /// A UDP socket that is connected to the server.
    Datagrams,
    /// A byte stream, and a UDP socket for what is agreed on over it.
    StreamAndDatagrams,
}

/// A URL as its protocol has read it.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) transport: Transport,
    pub(super) request: Box<dyn Request>,
}

/// The part of a URL that is requested of its server.
pub(super) trait Request: Debug + Send + Sync {
    /// Whether a server of our kind with these addresses would understand `key`, when asked at `port`.
    fn means(&self, port: u16, addresses: &Addresses, key: &StreamKey) -> bool;
    /// The session of a push, where there are any; `via` are the streams that this one went through, itself last.
    fn push(&self, _now: Now, _via: &[String], _seed: Seed) -> Option<Box<dyn Session>> {
        None
    }
    /// The client of a pull, where there are any.
    fn pull(&self, _patience: Patience, _seed: Seed) -> Option<Box<dyn Client>> {
        None
    }
    /// A player of the load generator: the client of a pull, where there is one.
    fn play(&self, now: Instant, patience: Patience, seed: Seed) -> Option<Box<dyn LoadPlayer>> {
        Some(Box::new(PulledPlayer::new(now, self.pull(patience, seed)?)))
    }
    /// A publisher of the load generator, where there are any: of a stream that begins with these parameter sets as bodies of
    /// FLV.
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
