//! Limits on the cost of a connection.

use std::time::Duration;

/// Times and sizes of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// From the accept to the first request, and from the first byte of a frame or header block to its end.
    pub head_time: Duration,
    /// The time for which a connection may be without a stream.
    pub idle: Duration,
    /// The longest time that the peer may read nothing of what waits for it, on the transport or on one
    /// stream.
    pub write_stall: Duration,
    /// Bytes per second that a DATA frame has to bring once `head_time` is over.
    pub body_rate_min: u32,
    /// Streams at a time (SETTINGS_MAX_CONCURRENT_STREAMS).
    pub streams: u32,
    /// Bytes of a decoded header list, 32 added for each field (SETTINGS_MAX_HEADER_LIST_SIZE). Beyond it the request is answered
    /// with 431.
    pub header_list_bytes: usize,
    /// Fields of a header list. Beyond it the request is answered with 431.
    pub fields: usize,
    /// Bytes of one request body that wait for the application (SETTINGS_INITIAL_WINDOW_SIZE).
    pub stream_window: u32,
    /// The same of all streams together; 65 535 at least.
    pub connection_window: u32,
    /// Bytes that the transport has not taken: from then on no DATA is made.
    pub send_ahead_bytes: usize,
    /// Bytes of one response body from one [`crate::Event::Sent`] to the next, while more of it waits.
    pub sent_step_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            head_time: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            write_stall: Duration::from_secs(30),
            body_rate_min: 500,
            streams: 100,
            header_list_bytes: 16 * 1024,
            fields: 100,
            stream_window: 256 * 1024,
            connection_window: 1024 * 1024,
            send_ahead_bytes: 256 * 1024,
            sent_step_bytes: 256 * 1024,
        }
    }
}

/// Encoded bytes of one header block, all its frames together.
pub(crate) const BLOCK_BYTES_MAX: usize = 32 * 1024;
/// CONTINUATION frames of one header block (CVE-2024-27316).
pub(crate) const CONTINUATIONS_MAX: u32 = 16;
/// The decoded size of a header list, as a multiple of [`Config::header_list_bytes`], at which the connection ends.
pub(crate) const BOMB_FACTOR: usize = 16;
/// Bytes of frames other than DATA that wait for the transport before reading stops.
pub(crate) const CONTROL_BYTES_MAX: usize = 64 * 1024;
/// Closed streams that are remembered, to tell frames that crossed a reset from wrong ones.
pub(crate) const CLOSED_MAX: usize = 256;

/// PING, SETTINGS, PRIORITY and unknown frames, empty DATA, stream errors (CVE-2019-9512, -9515, -9518).
pub(crate) const CONTROL: (u32, u32) = (1000, 100);
/// Requests that are cancelled, refused or malformed (CVE-2023-44487).
pub(crate) const RESETS: (u32, u32) = (200, 33);
/// WINDOW_UPDATE frames (CVE-2019-9511); DATA earns more, by [`BYTES_PER_UPDATE`].
pub(crate) const UPDATES: (u32, u32) = (1000, 100);
/// Body bytes sent that earn one WINDOW_UPDATE.
pub(crate) const BYTES_PER_UPDATE: usize = 1024;
