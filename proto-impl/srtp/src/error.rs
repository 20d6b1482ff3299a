//! Errors of packets that are refused.

/// The reason a packet was refused. None of these ends a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No RTP or RTCP head, or too short for head and tag.
    #[error("not a packet")]
    Malformed,
    /// The tag does not fit: forged, damaged, or of another key.
    #[error("not authentic")]
    NotAuthentic,
    /// The index was there before, or is behind the window.
    #[error("replayed or too old")]
    Replayed,
    /// SRTCP that says of itself that it is not encrypted (RFC 3711 §3.4, E = 0).
    #[error("SRTCP in the clear")]
    NotEncrypted,
    /// There are [`crate::SOURCES_MAX`] sources of the peer already, or [`crate::OWN_SOURCES_MAX`] of ours.
    #[error("too many sources")]
    TooManySources,
    /// Outbound: the sequence number is not ahead of the last one of its source. A second packet under one index would
    /// give the key away in GCM (RFC 7714 §10.1).
    #[error("sequence number already used")]
    Reused,
    /// All indices are used up: 2^48 packets, or 2^31 of RTCP (RFC 3711 §9.2). A new master key is needed.
    #[error("key exhausted")]
    KeyExhausted,
}
