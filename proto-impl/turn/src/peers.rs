//! Peer addresses that clients may reach.

use std::net::{IpAddr, SocketAddr};

use crate::attribute::Family;
use crate::limits::PEERS_MAX;

/// A peer address that clients may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Address announced to clients.
    pub told: SocketAddr,
    /// Address that the peer's datagrams are sent to and received from.
    pub real: SocketAddr,
}

/// All peer addresses that clients may reach. Requests for any other address are answered with 403.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peers(Vec<Peer>);

impl Peers {
    /// Creates a list of up to [`PEERS_MAX`] addresses; further ones are ignored.
    #[must_use]
    pub fn new(peers: impl IntoIterator<Item = Peer>) -> Self {
        Self(peers.into_iter().take(PEERS_MAX).collect())
    }

    /// True if clients may reach at least one port of this IP address.
    pub(crate) fn allows(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|peer| peer.told.ip() == ip)
    }

    /// Returns the real address of an announced one; `None` if clients may not reach it.
    pub(crate) fn real(&self, told: SocketAddr) -> Option<SocketAddr> {
        self.0.iter().find(|peer| peer.told == told).map(|peer| peer.real)
    }

    /// Iterates over the announced addresses of a peer with this real address.
    pub(crate) fn told(&self, real: SocketAddr) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().filter(move |peer| peer.real == real).map(|peer| peer.told)
    }

    /// Returns the first peer of a family; `None` if there is none.
    #[must_use]
    pub fn first(&self, family: Family) -> Option<Peer> {
        self.0.iter().find(|peer| Family::of(peer.told) == family).copied()
    }
}
