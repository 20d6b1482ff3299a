//! Errors of reading a packet.

use wire::Truncated;

/// The reason bytes are not a valid packet. Any datagram peer can cause such an error: the packet is dropped
/// and counted, the session goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The packet ends before its own fields say so.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The version is not 2 (RFC 3550 §5.1).
    #[error("RTP version {0}")]
    Version(u8),
    /// The padding's length is 0 or more than there is (RFC 3550 §5.1, §6.4.1).
    #[error("padding of {0} bytes")]
    Padding(u8),
    /// Not a packet type of RTCP (RFC 5761 §4: 192 to 223).
    #[error("RTCP packet type {0}")]
    NotRtcp(u8),
    /// A field that contradicts another one.
    #[error("malformed {0}")]
    Malformed(&'static str),
}
