//! Counters of a connection.

/// Counters of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Datagrams that came in.
    pub datagrams: u64,
    /// Datagrams that went out.
    pub datagrams_sent: u64,
    /// Flights that were sent again.
    pub retransmits: u64,
    /// Datagrams before the start, or after the end.
    pub dropped_idle: u64,
    /// Records and fragments that make no sense.
    pub dropped_malformed: u64,
    /// Records whose tag does not fit.
    pub dropped_forged: u64,
    /// Records that came before.
    pub dropped_replayed: u64,
    /// Records that do not belong to this moment: another epoch, a `ChangeCipherSpec` too early, unprotected ones once
    /// keys are on.
    pub dropped_early: u64,
    /// Handshake fragments that were dropped: their message was too far ahead, or the buffer was full.
    pub dropped_ahead: u64,
    /// Application data that nobody wants, or that finds no room.
    pub dropped_data: u64,
    /// Alerts that were ignored.
    pub ignored_alerts: u64,
}
