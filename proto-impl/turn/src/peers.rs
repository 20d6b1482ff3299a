//! The addresses that clients may reach.

use std::net::{IpAddr, SocketAddr};

use crate::attribute::Family;
use crate::limits::PEERS_MAX;

/// An address that clients may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The address as clients know it.
    pub told: SocketAddr,
    /// The address that datagrams for it are sent to and come from.
    pub real: SocketAddr,
}

/// All addresses that clients may reach: everything else is forbidden (403).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peers(Vec<Peer>);

impl Peers {
    /// A list of up to [`PEERS_MAX`]; more are left out.
    #[must_use]
    pub fn new(peers: impl IntoIterator<Item = Peer>) -> Self {
        Self(peers.into_iter().take(PEERS_MAX).collect())
    }

    /// Whether clients may reach some port of this address.
    pub(crate) fn allows(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|peer| peer.told.ip() == ip)
    }

    /// The destination of datagrams for a told address; `None`: it is forbidden.
    pub(crate) fn real(&self, told: SocketAddr) -> Option<SocketAddr> {
        self.0.iter().find(|peer| peer.told == told).map(|peer| peer.real)
    }

    /// The told addresses whose datagrams come from this one.
    pub(crate) fn told(&self, real: SocketAddr) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().filter(move |peer| peer.real == real).map(|peer| peer.told)
    }

    /// The first of a family; `None`: nothing of that family can be reached.
    #[must_use]
    pub fn first(&self, family: Family) -> Option<Peer> {
        self.0.iter().find(|peer| Family::of(peer.told) == family).copied()
    }
}
