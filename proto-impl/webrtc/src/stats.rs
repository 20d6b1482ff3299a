//! Figures.

/// What came by the session's paths and was no media.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportStats {
    /// Datagrams by a path that nobody has validated.
    pub not_valid: u64,
    /// Media before there were keys.
    pub before_keys: u64,
    /// Datagrams of no protocol that is spoken here.
    pub unknown: u64,
    /// SRTP, once there are keys.
    pub srtp: Option<srtp::InboundStats>,
}

impl TransportStats {
    pub(crate) const fn new() -> Self {
        Self { not_valid: 0, before_keys: 0, unknown: 0, srtp: None }
    }
}
