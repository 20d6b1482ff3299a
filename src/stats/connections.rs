//! Figures of a protocol's connections, other than byte counts. The protocol defines the figures; this module has their
//! names for the API and `/metrics`.

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::types::{SessionRef, StreamKey, WorkerId};

/// Values in the order of a [`Catalogue`].
pub type Values = SmallVec<[u64; 8]>;

/// The names of a protocol's figures.
#[derive(Debug)]
pub struct Catalogue {
    /// Prefix of the metrics' names.
    pub name: &'static str,
    /// Texts for the number of connections: the suffix of the metric's name, the help text for all connections, and the
    /// help text for a single connection.
    pub counted: [&'static str; 3],
    /// Names of the counters.
    pub counters: &'static [&'static str],
    /// Number of counters, counted from the first, that are also shown for each connection.
    pub counters_of_each: usize,
    /// Suffixes of the gauges' names, with help texts.
    pub gauges: &'static [(&'static str, &'static str)],
}

/// Compares by name, which is unique.
impl PartialEq for Catalogue {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Catalogue {}

/// Figures about the packets of a publisher, measured where they arrive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reception {
    /// Number of packets sent by the publisher, according to their sequence numbers.
    pub expected: u64,
    /// Number of expected packets that were still missing when later packets arrived. Packets that were then
    /// retransmitted in time are included.
    pub lost: u64,
    /// Round-trip time, in milliseconds.
    pub rtt_ms: u64,
    /// Variation of transit times, in milliseconds.
    pub jitter_ms: u64,
}

/// The figures of one connection.
pub trait Figures: Debug + Send + Sync {
    /// Returns the names of the values.
    fn catalogue(&self) -> &'static Catalogue;
    /// Returns the values of the counters.
    fn counts(&self) -> Values;
    /// Returns the values of the gauges.
    fn gauges(&self) -> Values;
    /// Returns the figures as members of an object of the API.
    fn members(&self) -> serde_json::Map<String, serde_json::Value>;
    /// Returns figures about the peer's packets, measured where they arrive; `None` if the protocol does not see
    /// packets, as over TCP.
    fn reception(&self) -> Option<Reception> {
        None
    }
    /// Returns the figures of a viewer for Ant Media Server's list of clients, measured at `_wall_ms`, in Unix
    /// milliseconds. `None` if that list has no clients of this protocol.
    fn client(&self, _wall_ms: u64) -> Option<serde_json::Map<String, serde_json::Value>> {
        None
    }
}

/// The role of a connection in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Publishes the stream.
    Publisher,
    /// Plays the stream.
    Viewer,
    /// Sends the stream to another server.
    Push,
    /// Fetches the stream from another server.
    Pull,
}

impl Role {
    /// Returns the name in the API and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publisher => "publisher",
            Self::Viewer => "viewer",
            Self::Push => "push",
            Self::Pull => "pull",
        }
    }
}

/// The figures of one connection, with its role.
#[derive(Debug, Clone)]
pub struct ConnectionFigures {
    /// Stream of the connection.
    pub key: StreamKey,
    /// Role of the connection.
    pub role: Role,
    /// Address of the peer.
    pub peer: SocketAddr,
    /// Figures of the protocol.
    pub figures: Arc<dyn Figures>,
}

/// The name of a viewer. It is unique while the server runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ViewerName {
    /// Subscription of a viewer that has a connection of its own.
    Session(SessionRef),
    /// Lease of a viewer that watches by separate requests.
    Lease {
        /// Worker that counts the viewer.
        worker: WorkerId,
        /// Number of the lease.
        number: u64,
        /// Identity in the viewer's requests. It may be a credential.
        identity: Arc<str>,
    },
}

/// A viewer of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewerFigures {
    /// Name of the viewer.
    pub name: ViewerName,
    /// Address of the viewer.
    pub address: IpAddr,
    /// Name of the protocol under which the viewer is counted.
    pub protocol: &'static str,
    /// Seconds since the connection began, or since the first request.
    pub seconds: u64,
}

/// Totals of a protocol's connections, including ended ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Totals {
    /// Names of the counters.
    pub of: &'static Catalogue,
    /// Values of the counters.
    pub counts: Values,
}

impl Totals {
    /// Creates zero totals.
    #[must_use]
    pub fn new(of: &'static Catalogue) -> Self {
        Self { of, counts: SmallVec::from_elem(0, of.counters.len()) }
    }

    /// Adds a connection to the row of its protocol. The row is created if it is missing.
    pub fn add(rows: &mut Vec<Self>, figures: &dyn Figures) {
        let of = figures.catalogue();
        let at = rows.iter().position(|row| row.of == of).unwrap_or_else(|| {
            rows.push(Self::new(of));
            rows.len() - 1
        });
        let Some(row) = rows.get_mut(at) else { return };
        for (total, more) in row.counts.iter_mut().zip(figures.counts()) {
            *total = total.saturating_add(more);
        }
    }
}
