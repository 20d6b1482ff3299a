//! Configuration of an endpoint and its allocations.

use std::time::{Duration, Instant};

use crate::peers::Peers;

/// The most allocations at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Of one address (IPv6: /64). Loopback is exempt.
    pub of_network: u32,
    /// Of one user.
    pub of_user: u32,
    /// In total.
    pub in_total: u32,
}

/// See the fields.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// The realm of the credentials (RFC 8489 §9.2).
    pub realm: String,
    /// The shared secret of ephemeral credentials.
    pub secret: Vec<u8>,
    /// The addresses that clients may reach.
    pub peers: Peers,
    /// The most allocations at a time.
    pub caps: Caps,
    /// Bytes per second that an allocation relays each way; more are dropped.
    pub bytes_per_second: u64,
    /// An instant, and the time since 1970 at it: credentials and nonces have an end.
    pub anchor: (Instant, Duration),
}

impl Config {
    /// Seconds since 1970.
    pub(crate) fn unix(&self, now: Instant) -> u64 {
        let (at, since) = self.anchor;
        since.saturating_add(now.saturating_duration_since(at)).as_secs()
    }
}

/// Without the secret.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("realm", &self.realm).field("caps", &self.caps).finish_non_exhaustive()
    }
}
