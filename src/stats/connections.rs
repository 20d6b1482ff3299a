//! Figures that the connections of a protocol have beyond their bytes. The protocol defines them; here they have
//! names for the API and `/metrics`.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::types::{SessionRef, StreamKey};

/// Values in the order of a [`Catalogue`].
pub type Values = SmallVec<[u64; 8]>;

/// The figures of a protocol's connections.
#[derive(Debug)]
pub struct Catalogue {
    /// Begins the names of its metrics.
    pub name: &'static str,
    /// The counted thing: the end of the metrics' names, and the help texts of all connections and of one.
    pub counted: [&'static str; 3],
    /// The counters.
    pub counters: &'static [&'static str],
    /// The number of counters, from the first, that are shown for each connection too.
    pub counters_of_each: usize,
    /// The figures of the moment: the ends of their names, and the help.
    pub gauges: &'static [(&'static str, &'static str)],
}

/// There is one of a name.
impl PartialEq for Catalogue {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Catalogue {}

/// The figures of the arrival of a publisher's packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reception {
    /// Packets that the publisher has sent, as far as their numbers show.
    pub expected: u64,
    /// The number of expected packets that were missing when later ones came; some of those came again in
    /// time.
    pub lost: u64,
    /// Round trip, in milliseconds.
    pub rtt_ms: u64,
    /// The variation of the times on the way, in milliseconds.
    pub jitter_ms: u64,
}

/// The figures of one connection.
pub trait Figures: Debug + Send + Sync {
    /// Names the values.
    fn catalogue(&self) -> &'static Catalogue;
    /// The values of the counters.
    fn counts(&self) -> Values;
    /// The values of the gauges.
    fn gauges(&self) -> Values;
    /// The figures as members of an object of the API.
    fn members(&self) -> serde_json::Map<String, serde_json::Value>;
    /// The figures of the arrival of the peer's packets; `None` where the transport hides them.
    fn reception(&self) -> Option<Reception> {
        None
    }
    /// The figures of a viewer as the reference lists the clients of a stream, measured at this time in milliseconds since
    /// 1970; `None` for a protocol whose clients it does not list.
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
    /// The role in the API and in metrics.
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

/// The figures of a connection.
#[derive(Debug, Clone)]
pub struct ConnectionFigures {
    /// The stream that it belongs to.
    pub key: StreamKey,
    /// The role.
    pub role: Role,
    /// The peer's address.
    pub peer: SocketAddr,
    /// The figures.
    pub figures: Arc<dyn Figures>,
}

/// A viewer of a stream with a connection of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewerFigures {
    /// The viewer's subscription.
    pub session: SessionRef,
    /// The viewer's address.
    pub peer: SocketAddr,
    /// The protocol of the connection.
    pub protocol: &'static str,
    /// Seconds since the connection began.
    pub seconds: u64,
}

/// The totals of a protocol's connections, including those that have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Totals {
    /// The names of the counters.
    pub of: &'static Catalogue,
    /// The values of the counters.
    pub counts: Values,
}

impl Totals {
    /// Creates totals of zero.
    #[must_use]
    pub fn new(of: &'static Catalogue) -> Self {
        Self { of, counts: SmallVec::from_elem(0, of.counters.len()) }
    }

    /// Adds a connection to the row of its protocol, which is made when it is new.
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
