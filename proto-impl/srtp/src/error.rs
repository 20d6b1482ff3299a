//! Errors for refused packets.

/// Reason for refusing a packet. The context remains usable after any of these errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The packet has no valid RTP or RTCP header, or is too short for a header and a tag.
    #[error("not a packet")]
    Malformed,
    /// The tag is invalid: the packet was forged, damaged, or protected with another key.
    #[error("not authentic")]
    NotAuthentic,
    /// The index was received before, or is older than the replay window.
    #[error("replayed or too old")]
    Replayed,
    /// The SRTCP packet is marked as not encrypted (RFC 3711 §3.4, E = 0).
    #[error("SRTCP in the clear")]
    NotEncrypted,
    /// The peer already has [`crate::SOURCES_MAX`] sources, or we have [`crate::OWN_SOURCES_MAX`].
    #[error("too many sources")]
    TooManySources,
    /// Outbound: the sequence number is not higher than the source's last one. A second packet with the same
    /// index would reveal the GCM authentication key (RFC 7714 §10.1).
    #[error("sequence number already used")]
    Reused,
    /// All indices have been used: 2^48 RTP packets, or 2^31 RTCP packets (RFC 3711 §9.2). A new master key is
    /// needed.
    #[error("key exhausted")]
    KeyExhausted,
}
