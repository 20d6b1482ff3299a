//! Settings of an association, and its fixed limits.

use std::time::Duration;

/// Maximum number of chunks handled per packet; further ones are counted and dropped.
pub const CHUNKS_PER_PACKET_MAX: usize = 128;
/// Maximum number of runs of received TSNs after gaps. A chunk that would add another run is dropped, as if
/// lost.
pub const GAPS_MAX: usize = 512;
/// Maximum distance from the cumulative TSN at which chunks are accepted. Chunks farther ahead are dropped.
pub const TSN_AHEAD_MAX: u64 = 16_384;
/// Maximum number of chunks in flight.
pub const FLIGHT_CHUNKS_MAX: usize = 4096;
/// Maximum size of a label or a protocol name, in bytes.
pub const LABEL_BYTES_MAX: usize = 1024;
/// Maximum number of control chunks waiting to be sent. Further ones are dropped; timers repeat them.
pub const CONTROL_CHUNKS_MAX: usize = 16;
/// Maximum number of streams waiting to be reset; further requests are dropped.
pub const RESETS_MAX: usize = 2048;
/// Bytes accounted for each message or chunk in addition to its payload, so that the number of small messages is
/// limited, too.
pub const OVERHEAD_BYTES: usize = 64;

/// Settings of an association.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Local port (`a=sctp-port`, RFC 8841 §5).
    pub port: u16,
    /// Maximum packet to send, in bytes: the maximum that DTLS sends in one record.
    pub packet_bytes_max: usize,
    /// Maximum message to receive, in bytes (`a=max-message-size`, RFC 8841 §6). A larger message ends the
    /// association.
    pub message_bytes_max: usize,
    /// Maximum number of bytes waiting for missing fragments, for earlier messages, or for the owner. The free
    /// part is announced as receive window.
    pub receive_buffer_bytes: usize,
    /// Maximum number of bytes waiting to be sent or acknowledged; beyond it, sending fails with
    /// [`crate::SendError::Full`].
    pub send_buffer_bytes: usize,
    /// Maximum number of open channels. Further channels that the peer opens are reset.
    pub channels_max: usize,
    /// Retransmission timeout until a round trip has been measured.
    pub rto_initial: Duration,
    /// Minimum retransmission timeout: longer than the delay of acknowledgements, 200 ms.
    pub rto_min: Duration,
    /// Maximum retransmission timeout. RFC 9260 §16 uses a minute, but ICE detects an unreachable peer earlier,
    /// and long timeouts would only delay the recovery after an outage.
    pub rto_max: Duration,
    /// Maximum number of consecutive timeouts without an answer from the peer; a further timeout ends the
    /// association.
    pub errors_max: u32,
    /// Interval between heartbeats of an idle association.
    pub heartbeat_interval: Duration,
    /// Lifetime of a cookie.
    pub cookie_lifetime: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            port: 5000,
            packet_bytes_max: 1152,
            message_bytes_max: 256 << 10,
            receive_buffer_bytes: 1 << 20,
            send_buffer_bytes: 1 << 20,
            channels_max: 1024,
            rto_initial: Duration::from_secs(1),
            rto_min: Duration::from_millis(400),
            rto_max: Duration::from_secs(10),
            errors_max: 20,
            heartbeat_interval: Duration::from_secs(30),
            cookie_lifetime: Duration::from_secs(60),
        }
    }
}

/// Parameters of the peer from its description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// SCTP port of the peer.
    pub port: u16,
    /// Maximum message size that the peer accepts, in bytes; 0 for no limit.
    pub message_bytes_max: u64,
}

impl Default for Remote {
    /// Default values for a description that does not specify them (RFC 8841 §5, §6.1).
    fn default() -> Self {
        Self { port: 5000, message_bytes_max: 65_536 }
    }
}

/// Our role in the underlying DTLS association, which determines the streams that we open (RFC 8832 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The DTLS client, which opens even streams.
    Client,
    /// The DTLS server, which opens odd streams.
    Server,
}
