//! Events of network paths, in both directions.

use std::net::SocketAddr;

/// Names a network path of a session; the session chooses it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathId(pub u8);

/// A UDP socket that a session wants for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenPath {
    /// The session's name for it.
    pub path: PathId,
    /// The address to receive at; `None`: any free port.
    pub bind: Option<SocketAddr>,
    /// The peer, when there is one only.
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
        /// The address of this end. A file has none.
        local: Option<SocketAddr>,
    },
    /// The peer of an accepted connection chose this protocol (ALPN, RFC 7301), before its first bytes.
    Negotiated(&'a str),
    /// The peer closed its side.
    PeerClosed,
    /// The path failed, or could not be opened: the reason.
    Broken(&'a str),
}
