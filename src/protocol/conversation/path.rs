//! Events of network paths, in both directions.

use std::net::SocketAddr;

/// Identifies a network path of a session; chosen by the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathId(pub u8);

/// A UDP socket to open for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenPath {
    /// The session's id of the path.
    pub path: PathId,
    /// The local address to bind; `None` for any free port.
    pub bind: Option<SocketAddr>,
    /// The peer to connect to; `None` if there may be several.
    pub to: Option<SocketAddr>,
}

/// An event that opens or closes a socket of the session's own.
#[derive(Debug)]
pub enum SocketEvent {
    /// Opens a UDP socket; answered by [`PathEvent`].
    Open(OpenPath),
    /// Closes a UDP socket.
    Close(PathId),
}

/// An event on a network path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathEvent<'a> {
    /// An outgoing connection is established, or a socket is open.
    Open {
        /// The local address; `None` for a file.
        local: Option<SocketAddr>,
    },
    /// The peer of an accepted connection negotiated this protocol (ALPN, RFC 7301). Reported before the peer's
    /// first bytes.
    Negotiated(&'a str),
    /// The peer closed its side.
    PeerClosed,
    /// The path failed, or could not be opened, for this reason.
    Broken(&'a str),
}
