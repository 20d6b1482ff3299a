//! Events for the owner of an agent.

use crate::candidate::Candidate;
use crate::path::Path;

/// An event for the owner. [`Event::Closed`] is the last.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Another local candidate to signal to the peer (only full agents).
    Candidate(Candidate),
    /// A path was validated: the peer at its other end knows the credentials, or has sent authentic media on it
    /// ([`crate::LiteAgent::follow_media`]). Datagrams other than STUN are accepted on the path from now on.
    Validated(Path),
    /// Another check arrived on a validated path (only lite agents). On a shared port, the path belongs to this
    /// session, even if another session has since claimed it with checks from a forged address.
    Heard(Path),
    /// A path can carry media, so the DTLS handshake may begin. Reported once.
    Connected,
    /// Media uses this path from now on.
    Selected(Path),
    /// A path was silent for too long, or was dropped to make room. Nothing is accepted on it any more.
    Expired(Path),
    /// The agent has ended.
    Closed(CloseReason),
}

/// The reason an agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The owner closed the agent.
    Local,
    /// No path was found in time.
    ConnectTimeout,
    /// The peer's consent expired (RFC 7675 §5.1).
    ConsentExpired,
}
