//! Figures of an agent: counters since the start.

/// A snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests that were answered with success.
    pub answered: u64,
    /// Requests that were refused: unknown attributes, role conflicts.
    pub refused: u64,
    /// Datagrams that are no STUN message, or a malformed one; a wrong FINGERPRINT too.
    pub malformed: u64,
    /// Requests for somebody else.
    pub unknown_user: u64,
    /// Messages with no or a wrong MESSAGE-INTEGRITY.
    pub unauthenticated: u64,
    /// Requests that were seen from another address already.
    pub replayed: u64,
    /// Indications, answers nobody asked for, other methods.
    pub unexpected: u64,
    /// Messages for which there was no room in a queue or table.
    pub no_room: u64,
    /// HMACs that were computed to check what came.
    pub integrity_checks: u64,
    /// Pairs that had to make room.
    pub evicted: u64,
    /// Checks sent; consent and gathering count too.
    pub checks_sent: u64,
    /// The retransmissions among them.
    pub retransmitted: u64,
    /// Checks that succeeded.
    pub succeeded: u64,
    /// Checks that failed or were never answered.
    pub failed: u64,
    /// Roles switched.
    pub role_switches: u64,
    /// Remote candidates that cannot be used: names, other transports, no port.
    pub candidates_ignored: u64,
}

pub(crate) const fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}
