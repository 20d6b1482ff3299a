//! Errors for refused packets.

/// The reason a packet was refused. None of these ends a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The packet has no valid RTP or RTCP header, or is too short for header and tag.
    #[error("not a packet")]
    Malformed,
    /// The tag does not verify: the packet is forged, damaged, or made with another key.
    #[error("not authentic")]
    NotAuthentic,
    /// The index was received before, or is behind the replay window.
    #[error("replayed or too old")]
    Replayed,
    /// The SRTCP packet is marked as not encrypted (RFC 3711 §3.4, E = 0).
    #[error("SRTCP in the clear")]
    NotEncrypted,
    /// The peer has [`crate::SOURCES_MAX`] sources already, or we have [`crate::OWN_SOURCES_MAX`].
    #[error("too many sources")]
    TooManySources,
    /// Outbound: the sequence number is not ahead of the source's last. A second packet with the same index would
    /// reveal the GCM authentication key (RFC 7714 §10.1).
    #[error("sequence number already used")]
    Reused,
    /// All indices are used up: 2^48 packets of RTP, or 2^31 of RTCP (RFC 3711 §9.2). A new master key is needed.
    #[error("key exhausted")]
    KeyExhausted,
}
