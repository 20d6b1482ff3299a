//! A path: a local and a remote address, from our point of view.

use std::net::SocketAddr;

/// Transport protocol of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Datagrams, each of which is a message.
    Udp,
    /// A stream of frames ([`crate::tcp`]), each of which is a message.
    Tcp,
}

/// A 5-tuple: `local` is the destination of received datagrams and the source of sent ones. Addresses are
/// compared literally, so owners of dual-stack sockets must consistently use one form for IPv4 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Path {
    /// Transport protocol.
    pub protocol: Protocol,
    /// Local address.
    pub local: SocketAddr,
    /// Address of the peer.
    pub remote: SocketAddr,
}

impl Path {
    /// Creates a path over UDP.
    #[must_use]
    pub const fn udp(local: SocketAddr, remote: SocketAddr) -> Self {
        Self { protocol: Protocol::Udp, local, remote }
    }

    /// Creates a path over TCP.
    #[must_use]
    pub const fn tcp(local: SocketAddr, remote: SocketAddr) -> Self {
        Self { protocol: Protocol::Tcp, local, remote }
    }
}

/// Description of a datagram appended to the owner's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Path to send on, from `path.local` to `path.remote`.
    pub path: Path,
    /// Number of bytes appended.
    pub length: usize,
}
