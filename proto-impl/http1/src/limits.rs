//! Limits on the cost of a connection.

use std::time::Duration;

/// Times and sizes of one connection. The defaults are those of the server. A listener may have others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum time from accept, or from the first byte of a later request, to the end of the request's head.
    pub head_time: Duration,
    /// Maximum time from the end of the head to the end of the body.
    pub body_time: Duration,
    /// Minimum mean rate of a body, in bytes per second, once `body_rate_grace` has passed.
    pub body_rate_min: u32,
    /// Time during which a body may be slower than `body_rate_min`.
    pub body_rate_grace: Duration,
    /// Maximum time for which writes may make no progress while output waits.
    pub write_stall: Duration,
    /// Maximum idle time of a connection between requests.
    pub idle: Duration,
    /// Maximum size of request line and header lines together, line ends included.
    pub head_bytes: usize,
    /// Maximum number of header lines of a request.
    pub headers: usize,
    /// Maximum length of the request target.
    pub target_bytes: usize,
    /// Maximum body of a request, after removing the chunk framing.
    pub body_bytes: usize,
    /// Maximum bytes held of a body that the application reads as it arrives. At this limit, nothing more is read.
    pub body_window_bytes: usize,
    /// Maximum length of one chunk extension (RFC 9112 §7.1.1).
    pub chunk_extension_bytes: usize,
    /// Maximum size of the trailer section and all chunk extensions of one body together.
    pub trailer_bytes: usize,
    /// Maximum number of requests on a connection before the server closes it.
    pub requests: u64,
    /// Maximum bytes held of later requests while a request is outstanding. At this limit, nothing more is read.
    pub held_bytes: usize,
    /// Maximum bytes of responses that wait to be sent. At this limit, nothing more is read or parsed.
    pub queued_bytes: usize,
    /// The next block of a body is fetched once fewer than this many bytes wait to be sent.
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
    /// Minimum number of bytes that must arrive in every period of `body_rate_grace`, for a body that the application
    /// reads as it arrives.
    pub(super) fn streamed_bytes_min(&self) -> u64 {
        u64::from(self.body_rate_min).saturating_mul(self.body_rate_grace.as_secs())
    }
}
