//! Settings of an association, and the limits that no setting moves.

use std::time::Duration;

/// Chunks of a packet that are looked at; the others are counted and forgotten.
pub const CHUNKS_PER_PACKET_MAX: usize = 128;
/// Runs of received TSNs with gaps between them; a chunk that would make one more is dropped, as if it were lost.
pub const GAPS_MAX: usize = 512;
/// Distance from the last TSN received in order up to which chunks are taken.
pub const TSN_AHEAD_MAX: u64 = 16_384;
/// Chunks that were sent and not acknowledged.
pub const FLIGHT_CHUNKS_MAX: usize = 4096;
/// Bytes of a label, and of the name of a protocol.
pub const LABEL_BYTES_MAX: usize = 1024;
/// Control chunks that wait to be sent; those beyond are dropped, and asked for again by timers.
pub const CONTROL_CHUNKS_MAX: usize = 16;
/// Streams that wait to be reset; requests beyond are dropped.
pub const RESETS_MAX: usize = 2048;
/// Bytes that a message or a chunk counts for beyond its payload, so that many small ones are bounded too.
pub const OVERHEAD_BYTES: usize = 64;

/// Settings of an association.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Our port (`a=sctp-port`, RFC 8841 §5).
    pub port: u16,
    /// The longest packet that is sent: the most that DTLS takes in one record.
    pub packet_bytes_max: usize,
    /// The longest message that is received (`a=max-message-size`, RFC 8841 §6). A longer one ends the association.
    pub message_bytes_max: usize,
    /// Bytes that wait to be complete, in order, or polled. Its free part is the receive window that we announce.
    pub receive_buffer_bytes: usize,
    /// Bytes that wait to be sent or acknowledged; beyond, [`crate::SendError::Full`].
    pub send_buffer_bytes: usize,
    /// Channels that are open at once. Those that the peer opens beyond are reset.
    pub channels_max: usize,
    /// The first pause before something is sent again, before a round trip was measured.
    pub rto_initial: Duration,
    /// The shortest pause: above the delay of acknowledgements, 200 ms.
    pub rto_min: Duration,
    /// The longest pause. RFC 9260 §16 has a minute; ICE finds out sooner that nobody is there, so that long pauses would only
    /// slow down what follows an outage.
    pub rto_max: Duration,
    /// Timeouts in a row, without any sign of the peer, that end the association.
    pub errors_max: u32,
    /// The pause between heartbeats of an idle association.
    pub heartbeat_interval: Duration,
    /// The time within which a cookie must come back.
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

/// The peer's end, as its description says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// Its port.
    pub port: u16,
    /// The longest message that it takes; 0 for any length.
    pub message_bytes_max: u64,
}

impl Default for Remote {
    /// The values of a description that does not say (RFC 8841 §5, §6.1).
    fn default() -> Self {
        Self { port: 5000, message_bytes_max: 65_536 }
    }
}

/// Our end of the DTLS association below. It decides which streams are ours to open (RFC 8832 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The DTLS client: even streams.
    Client,
    /// The DTLS server: odd streams.
    Server,
}
