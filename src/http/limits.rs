//! Limits on the cost of a connection.

use std::time::Duration;

/// Times and sizes of one connection. The defaults are those of the server; a listener may hand in others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Time from accept, or from the first byte of a later request, to the end of its head.
    pub head_time: Duration,
    /// Time from the end of the head to the end of the body.
    pub body_time: Duration,
    /// Mean rate below which a body is given up, in bytes per second, once `body_rate_grace` has passed.
    pub body_rate_min: u32,
    /// The time for which a body may be slower than `body_rate_min`.
    pub body_rate_grace: Duration,
    /// The longest time that a peer may read nothing of what waits for it.
    pub write_stall: Duration,
    /// The longest time that a connection may idle between requests.
    pub idle: Duration,
    /// Request line and header lines together, with their line ends.
    pub head_bytes: usize,
    /// Header lines of one request.
    pub headers: usize,
    /// Request target.
    pub target_bytes: usize,
    /// Body of one request, after the chunks are taken off.
    pub body_bytes: usize,
    /// Bytes of a body that is taken as it comes, before reading stops.
    pub body_window_bytes: usize,
    /// Extension of one chunk (RFC 9112 §7.1.1).
    pub chunk_extension_bytes: usize,
    /// Trailer section, and all chunk extensions of one body together.
    pub trailer_bytes: usize,
    /// Requests before the server closes.
    pub requests: u64,
    /// Bytes of later requests that are held while one is outstanding, before reading stops.
    pub held_bytes: usize,
    /// Bytes of answers that wait for the peer, before reading and parsing stop.
    pub queued_bytes: usize,
    /// Bytes of a body that comes in blocks: with fewer waiting for the peer the next block is fetched.
    pub body_queued_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(30),
            body_rate_min: 500,
            body_rate_grace: Duration::from_secs(10),
            write_stall: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            head_bytes: 16 * 1024,
            headers: 100,
            target_bytes: 8 * 1024,
            body_bytes: 256 * 1024,
            body_window_bytes: 256 * 1024,
            chunk_extension_bytes: 256,
            trailer_bytes: 8 * 1024,
            requests: 1000,
            held_bytes: 64 * 1024,
            queued_bytes: 256 * 1024,
            body_queued_bytes: 64 * 1024,
        }
    }
}

impl Limits {
    /// The bytes that a body which is taken as it comes has to bring in each `body_rate_grace`, while it is waited for.
    pub(super) fn streamed_bytes_min(&self) -> u64 {
        u64::from(self.body_rate_min).saturating_mul(self.body_rate_grace.as_secs())
    }
}
