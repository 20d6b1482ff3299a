//! Counters of an agent since its start.

/// Snapshot of an agent's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests answered with success.
    pub answered: u64,
    /// Requests refused: unknown attributes or role conflicts.
    pub refused: u64,
    /// Datagrams that are not valid STUN messages, including a wrong FINGERPRINT.
    pub malformed: u64,
    /// Requests whose user name does not name this agent.
    pub unknown_user: u64,
    /// Messages without a valid MESSAGE-INTEGRITY.
    pub unauthenticated: u64,
    /// Copies of earlier requests that arrived from another address.
    pub replayed: u64,
    /// Indications, unexpected answers, and other methods.
    pub unexpected: u64,
    /// Messages dropped because a queue or table was full.
    pub no_room: u64,
    /// HMACs computed to verify messages.
    pub integrity_checks: u64,
    /// Pairs dropped to make room.
    pub evicted: u64,
    /// Checks sent, including consent checks and gathering requests of full agents.
    pub checks_sent: u64,
    /// Retransmissions, included in `checks_sent`.
    pub retransmitted: u64,
    /// Checks that succeeded.
    pub succeeded: u64,
    /// Checks that failed or were never answered.
    pub failed: u64,
    /// Number of role switches.
    pub role_switches: u64,
    /// Remote candidates that are unusable: host names, other transports, no port.
    pub candidates_ignored: u64,
}

pub(crate) const fn count(counter: &mut u64) {
    *counter = counter.saturating_add(1);
}
