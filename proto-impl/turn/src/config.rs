//! Configuration of an endpoint and its allocations.

use std::time::{Duration, Instant};

use crate::peers::Peers;

/// Maximum numbers of simultaneous allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Maximum number of allocations per address (IPv6: per /64). Loopback addresses are exempt.
    pub of_network: u32,
    /// Maximum number of allocations per user.
    pub of_user: u32,
    /// Maximum number of allocations in total.
    pub in_total: u32,
}

/// Configuration of an endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// Realm of the credentials (RFC 8489 §9.2).
    pub realm: String,
    /// Shared secret for ephemeral credentials.
    pub secret: Vec<u8>,
    /// Peer addresses that clients may reach.
    pub peers: Peers,
    /// Maximum numbers of simultaneous allocations.
    pub caps: Caps,
    /// Maximum bytes per second that an allocation relays in each direction; further data is dropped.
    pub bytes_per_second: u64,
    /// An instant, and the time since 1970 at that instant. Needed because credentials and nonces expire by
    /// wall-clock time.
    pub anchor: (Instant, Duration),
}

impl Config {
    /// Returns the seconds since 1970 at `now`.
    pub(crate) fn unix(&self, now: Instant) -> u64 {
        let (at, since) = self.anchor;
        since.saturating_add(now.saturating_duration_since(at)).as_secs()
    }
}

/// Never prints the secret.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("realm", &self.realm).field("caps", &self.caps).finish_non_exhaustive()
    }
}
