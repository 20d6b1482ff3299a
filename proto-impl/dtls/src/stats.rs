//! Counters of a connection.

/// Counters of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Datagrams received.
    pub datagrams: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Flights retransmitted.
    pub retransmits: u64,
    /// Datagrams received before the start, or after the end.
    pub dropped_idle: u64,
    /// Malformed records and fragments.
    pub dropped_malformed: u64,
    /// Records that failed authentication.
    pub dropped_forged: u64,
    /// Copies of records received before.
    pub dropped_replayed: u64,
    /// Records at the wrong time: of another epoch, a premature `ChangeCipherSpec`, or unprotected records once
    /// there are keys.
    pub dropped_early: u64,
    /// Handshake fragments dropped because their message was too far ahead, or the buffer was full.
    pub dropped_ahead: u64,
    /// Application data dropped because it was not wanted, or because there was no room.
    pub dropped_data: u64,
    /// Alerts ignored.
    pub ignored_alerts: u64,
}
