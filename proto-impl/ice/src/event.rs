//! Events for the owner of an agent.

use crate::candidate::Candidate;
use crate::path::Path;

/// An event for the owner. [`Event::Closed`] is the last.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A further local candidate, for the peer to know (full agents).
    Candidate(Candidate),
    /// A path was validated: the peer at its other end knows the credentials, or has sent media by it ([`crate::LiteAgent::follow_media`]).
    /// Datagrams other than STUN are taken from it from now on.
    Validated(Path),
    /// A further check came by a validated path (lite agents). On a shared port the path is this session's, whoever else may
    /// have claimed it since with checks from an address that is not its own.
    Heard(Path),
    /// A path can carry media: the handshake above may begin. Once.
    Connected,
    /// The path that media takes from now on.
    Selected(Path),
    /// A path was silent for too long, or had to make room. Nothing is taken from it any more.
    Expired(Path),
    /// The end.
    Closed(CloseReason),
}

/// The reason an agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The owner wanted it.
    Local,
    /// No path in time.
    ConnectTimeout,
    /// The peer's consent ran out (RFC 7675 §5.1).
    ConsentExpired,
}
