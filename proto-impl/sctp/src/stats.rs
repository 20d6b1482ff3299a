//! Figures of an association.

use std::time::Duration;

/// A snapshot: counters since the start, and figures of now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages that were sent, and received whole.
    pub messages: Directions,
    /// Bytes of those messages.
    pub bytes: Directions,
    /// Packets.
    pub packets: Directions,
    /// Chunks of data that were sent again.
    pub retransmitted: u64,
    /// Timeouts of data (T3-rtx).
    pub timeouts: u64,
    /// Messages that were given up, by limits of their channel.
    pub abandoned: u64,
    /// Packets that are in no format, or for another association, and chunks that have no place.
    pub dropped: u64,
    /// Chunks of data without room for them: beyond the window, or behind too many gaps.
    pub no_room: u64,
    /// Messages on streams that no channel has, and channels beyond the limit.
    pub refused: u64,
    /// The congestion window, in bytes.
    pub window: usize,
    /// Bytes that were sent and not acknowledged.
    pub in_flight: usize,
    /// Bytes in the send buffer, and in the receive buffer.
    pub buffered: (usize, usize),
    /// The smoothed round trip.
    pub round_trip: Option<Duration>,
    /// Channels that are open.
    pub channels: usize,
}

/// A figure of each direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Directions {
    /// To the peer.
    pub sent: u64,
    /// From the peer.
    pub received: u64,
}

pub(crate) const fn count(counter: &mut u64, by: u64) {
    *counter = counter.saturating_add(by);
}

/// A length as a figure.
pub(crate) fn figure(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
