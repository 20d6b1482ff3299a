//! Limits on the cost of a connection.

use std::time::Duration;

/// Timeouts and limits of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Maximum time from the accept to the first request, and from the first byte of a frame or header block to its
    /// last byte.
    pub head_time: Duration,
    /// Maximum time for which a connection may have no open stream.
    pub idle: Duration,
    /// Maximum time for which the peer may accept no bytes although output is waiting, on the transport or on one
    /// stream.
    pub write_stall: Duration,
    /// Minimum rate at which a DATA frame must arrive after `head_time`, in bytes per second.
    pub body_rate_min: u32,
    /// Maximum number of concurrent streams (SETTINGS_MAX_CONCURRENT_STREAMS).
    pub streams: u32,
    /// Maximum size of a decoded header list in bytes, counting 32 more for each field
    /// (SETTINGS_MAX_HEADER_LIST_SIZE). A request with a larger one is answered with 431.
    pub header_list_bytes: usize,
    /// Maximum number of fields in a header list. A request with more is answered with 431.
    pub fields: usize,
    /// Maximum number of bytes of one request body that wait for the application (SETTINGS_INITIAL_WINDOW_SIZE).
    pub stream_window: u32,
    /// Maximum total number of bytes of request bodies that wait for the application; at least 65 535.
    pub connection_window: u32,
    /// If at least this number of bytes is waiting for the transport, no DATA frames are made.
    pub send_ahead_bytes: usize,
    /// Number of sent body bytes after which a [`crate::Event::Sent`] is returned, while more of the body is waiting.
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

/// Maximum size of an encoded header block, over all its frames.
pub(crate) const BLOCK_BYTES_MAX: usize = 32 * 1024;
/// Maximum number of CONTINUATION frames of one header block (CVE-2024-27316).
pub(crate) const CONTINUATIONS_MAX: u32 = 16;
/// If a decoded header list exceeds this multiple of [`Config::header_list_bytes`], the connection is ended.
pub(crate) const BOMB_FACTOR: usize = 16;
/// Maximum number of bytes of frames other than DATA that wait for the transport; beyond it, no input is read.
pub(crate) const CONTROL_BYTES_MAX: usize = 64 * 1024;
/// Number of closed streams remembered, to tell a frame that was in flight during a reset from an invalid frame.
pub(crate) const CLOSED_MAX: usize = 256;

/// Budget of PING, SETTINGS, PRIORITY and unknown frames, empty DATA, and stream errors (CVE-2019-9512, -9515, -9518):
/// the number allowed in a burst, and the number added each second.
pub(crate) const CONTROL: (u32, u32) = (1000, 100);
/// Budget of requests that are cancelled, refused or malformed (CVE-2023-44487): burst, and number added each
/// second.
pub(crate) const RESETS: (u32, u32) = (200, 33);
/// Budget of WINDOW_UPDATE frames (CVE-2019-9511): burst, and number added each second. Sent DATA adds to it,
/// see [`BYTES_PER_UPDATE`].
pub(crate) const UPDATES: (u32, u32) = (1000, 100);
/// Number of body bytes sent for which one WINDOW_UPDATE is added to the budget.
pub(crate) const BYTES_PER_UPDATE: usize = 1024;
