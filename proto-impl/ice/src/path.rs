//! A path: a local and a remote address, as seen from here.

use std::net::SocketAddr;

/// The transport below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// A datagram is a message.
    Udp,
    /// A frame of [`crate::tcp`] is a message.
    Tcp,
}

/// A 5-tuple: `local` is the destination of what comes in and the source of what goes out. Addresses are compared as they
/// are; an owner with dual-stack sockets decides for one form of IPv4 addresses and keeps to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Path {
    /// The transport.
    pub protocol: Protocol,
    /// Our address.
    pub local: SocketAddr,
    /// The peer's address.
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

/// A datagram that was appended to the owner's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// The path to send by, from `path.local` to `path.remote`.
    pub path: Path,
    /// The number of bytes appended.
    pub length: usize,
}
