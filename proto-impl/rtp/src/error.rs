//! Errors in parsing a packet.

use wire::Truncated;

/// Reason why bytes are not a valid packet. Anyone who can send a datagram can cause such an error, so the
/// packet should be dropped and counted, and the session continued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The packet ends before the length given by its fields.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The version is not 2 (RFC 3550 §5.1).
    #[error("RTP version {0}")]
    Version(u8),
    /// The padding length is 0, or exceeds the packet (RFC 3550 §5.1, §6.4.1).
    #[error("padding of {0} bytes")]
    Padding(u8),
    /// The packet type is not one of RTCP (RFC 5761 §4: 192 to 223).
    #[error("RTCP packet type {0}")]
    NotRtcp(u8),
    /// A field is invalid or contradicts another one.
    #[error("malformed {0}")]
    Malformed(&'static str),
}
