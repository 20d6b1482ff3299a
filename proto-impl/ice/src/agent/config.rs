//! The configuration of a full agent.

use std::time::Duration;

/// The role that decides who nominates (RFC 8445 §6.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Nominates; whoever made the first offer, and whoever speaks with a lite agent.
    Controlling,
    /// Follows.
    Controlled,
}

impl Role {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Controlling => Self::Controlled,
            Self::Controlled => Self::Controlling,
        }
    }
}

/// Times and the role at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// The role at the start; a conflict changes it.
    pub role: Role,
    /// Between two new checks (RFC 8445 §14.2: 50 ms).
    pub ta: Duration,
    /// Time to the first retransmission of a check (RFC 8445 §14.3: at least 500 ms); doubles each time.
    pub rto: Duration,
    /// The longest time between retransmissions: a lossy path is tried seven times before the connect timeout.
    pub rto_max: Duration,
    /// The number of times that a check is sent before it has failed (RFC 8489 §6.2.1: 7).
    pub tries: u32,
    /// The time for which the controlling side waits for a better pair once it has a valid one.
    pub nominate_after: Duration,
    /// From the start, and again from [`super::Agent::set_remote`], to the first valid pair.
    pub connect_timeout: Duration,
    /// Between two checks of the selected pair, give or take a fifth (RFC 7675 §5.1).
    pub consent_interval: Duration,
    /// Without an answer for so long nothing may be sent (RFC 7675 §5.1).
    pub consent_timeout: Duration,
    /// Without an answer for so long the controlling side nominates another pair that does answer.
    pub reselect_after: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            role: Role::Controlling,
            ta: Duration::from_millis(50),
            rto: Duration::from_millis(500),
            rto_max: Duration::from_secs(2),
            tries: 7,
            nominate_after: Duration::from_millis(200),
            connect_timeout: Duration::from_secs(15),
            consent_interval: Duration::from_secs(5),
            consent_timeout: Duration::from_secs(30),
            reselect_after: Duration::from_secs(8),
        }
    }
}
