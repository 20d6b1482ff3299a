//! The configuration of a full agent.

use std::time::Duration;

/// Role of an agent, which determines which side nominates (RFC 8445 §6.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Nominates pairs: the side that made the first offer, or the peer of a lite agent.
    Controlling,
    /// Follows the nominations of the other side.
    Controlled,
}

impl Role {
    /// Returns the opposite role.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Controlling => Self::Controlled,
            Self::Controlled => Self::Controlling,
        }
    }
}

/// Timers of a full agent, and its initial role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Initial role; a role conflict may change it.
    pub role: Role,
    /// Interval between two new checks (RFC 8445 §14.2: 50 ms).
    pub ta: Duration,
    /// Initial retransmission timeout of a check (RFC 8445 §14.3: at least 500 ms); doubled after each
    /// transmission.
    pub rto: Duration,
    /// Maximum retransmission timeout. One second leaves enough retries before the connect timeout for a path
    /// that loses a third of its datagrams in each direction; with only seven tries, one check in fifty would
    /// fail. This is not excessive: other agents send a check every 50 ms.
    pub rto_max: Duration,
    /// Number of transmissions after which an unanswered check fails (RFC 8489 §6.2.1: 7, but with timeouts
    /// that double without limit).
    pub tries: u32,
    /// Time for which the controlling side waits for a better pair after the first valid one.
    pub nominate_after: Duration,
    /// Maximum time until the first valid pair, counted from the start and again from
    /// [`super::Agent::set_remote`].
    pub connect_timeout: Duration,
    /// Interval between two checks of the selected pair, randomized by a fifth (RFC 7675 §5.1).
    pub consent_interval: Duration,
    /// Time without an answer after which nothing may be sent (RFC 7675 §5.1).
    pub consent_timeout: Duration,
    /// Time without an answer on the selected pair after which the controlling side nominates another pair.
    pub reselect_after: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            role: Role::Controlling,
            ta: Duration::from_millis(50),
            rto: Duration::from_millis(500),
            rto_max: Duration::from_secs(1),
            tries: 15,
            nominate_after: Duration::from_millis(200),
            connect_timeout: Duration::from_secs(15),
            consent_interval: Duration::from_secs(5),
            consent_timeout: Duration::from_secs(30),
            reselect_after: Duration::from_secs(8),
        }
    }
}
