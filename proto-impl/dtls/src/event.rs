//! Events for the owner of a connection.

use bytes::Bytes;

use crate::alert::AlertDescription;
use crate::error::Failure;
use crate::srtp::{SrtpKeys, SrtpProfile};
use crate::suite::CipherSuite;

/// An event for the owner. [`Event::Closed`] is the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The handshake is complete and the peer's certificate is the expected one.
    Connected(Box<Connected>),
    /// Application data, one record.
    Data(Bytes),
    /// The end.
    Closed(CloseReason),
}

/// The parameters that were negotiated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connected {
    /// The cipher suite.
    pub suite: CipherSuite,
    /// The SRTP profile with its keys, when SRTP was wanted.
    pub srtp: Option<(SrtpProfile, SrtpKeys)>,
    /// The SHA-256 digest of the peer's certificate, when it showed one.
    pub peer_sha256: Option<[u8; 32]>,
}

/// The reason the connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// [`crate::Connection::close`].
    Local,
    /// The peer sent `close_notify`.
    Peer,
    /// The peer gave up.
    Alert(AlertDescription),
    /// The handshake failed on this side.
    Failed(Failure),
    /// The handshake took too long.
    Timeout,
    /// The sequence numbers of the epoch are used up.
    Exhausted,
}
