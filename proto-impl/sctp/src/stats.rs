//! Statistics of an association: counters since its start, and current values.

use std::time::Duration;

/// Snapshot of an association's statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Number of complete messages.
    pub messages: Directions,
    /// Payload bytes of complete messages.
    pub bytes: Directions,
    /// Number of SCTP packets.
    pub packets: Directions,
    /// Number of data chunks retransmitted.
    pub retransmitted: u64,
    /// Number of data timeouts (T3-rtx).
    pub timeouts: u64,
    /// Number of messages abandoned because of their channel's limits.
    pub abandoned: u64,
    /// Number of packets that were malformed or of another association, and of unexpected chunks.
    pub dropped: u64,
    /// Number of data chunks dropped for lack of room: beyond the window, or after too many gaps.
    pub no_room: u64,
    /// Number of messages on streams without a channel, and of channels beyond the limit.
    pub refused: u64,
    /// Congestion window, in bytes.
    pub window: usize,
    /// Bytes in flight.
    pub in_flight: usize,
    /// Bytes in the send buffer and in the receive buffer.
    pub buffered: (usize, usize),
    /// Smoothed round-trip time; `None` before the first measurement.
    pub round_trip: Option<Duration>,
    /// Number of open channels.
    pub channels: usize,
}

/// A counter for each direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Directions {
    /// Count sent to the peer.
    pub sent: u64,
    /// Count received from the peer.
    pub received: u64,
}

pub(crate) const fn count(counter: &mut u64, by: u64) {
    *counter = counter.saturating_add(by);
}

/// Converts a length to a counter value.
pub(crate) fn figure(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
