//! Events for the owner of a connection.

use bytes::Bytes;

use crate::alert::AlertDescription;
use crate::error::Failure;
use crate::srtp::{SrtpKeys, SrtpProfile};
use crate::suite::CipherSuite;

/// An event for the owner. [`Event::Closed`] is the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The handshake is complete, and the peer's certificate is acceptable.
    Connected(Box<Connected>),
    /// Application data in one record.
    Data(Bytes),
    /// The connection has ended.
    Closed(CloseReason),
}

/// Negotiated parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connected {
    /// Cipher suite.
    pub suite: CipherSuite,
    /// SRTP profile and keys; `None` if SRTP was not requested.
    pub srtp: Option<(SrtpProfile, SrtpKeys)>,
    /// SHA-256 digest of the peer's certificate; `None` if the peer sent none.
    pub peer_sha256: Option<[u8; 32]>,
}

/// Reason why the connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The owner called [`crate::Connection::close`].
    Local,
    /// The peer sent `close_notify`.
    Peer,
    /// The peer ended the handshake with this fatal alert.
    Alert(AlertDescription),
    /// The handshake failed on our side.
    Failed(Failure),
    /// The handshake timed out.
    Timeout,
    /// The sequence numbers of the epoch are used up.
    Exhausted,
}
