//! Events for the owner of a connection.

use std::time::Duration;

use bytes::Bytes;

use crate::config::KeyLength;
use crate::reject::RejectReason;

/// An event for the owner. [`Event::Closed`] is the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The handshake is complete; payload may be sent.
    Connected(Connected),
    /// A complete message. Messages are in order, and each is returned at its delivery time.
    Payload(Bytes),
    /// Number of packets missing before the next message, because they did not arrive in time or
    /// the sender has given them up.
    Skipped(u32),
    /// The connection has ended.
    Closed(CloseReason),
}

/// The negotiated parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connected {
    /// Time for which this side holds received packets.
    pub receive_latency: Duration,
    /// Time for which the peer holds the packets that it receives from this side.
    pub send_latency: Duration,
    /// Length of the encryption keys; `None` when unencrypted.
    pub encryption: Option<KeyLength>,
    /// Largest message that can be sent, in bytes.
    pub payload_max: usize,
    /// Version of the peer's SRT library: 0x010503 means 1.5.3.
    pub peer_version: u32,
}

/// The reason the connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The application called [`crate::Connection::close`].
    Local,
    /// The peer sent a shutdown.
    Peer,
    /// The peer was silent for too long.
    Idle,
    /// The peer did not answer the handshake.
    ConnectTimeout,
    /// The peer refused the connection.
    Rejected(RejectReason),
    /// The local side refused the peer.
    Refused(RejectReason),
}

/// The reason a message was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The connection is not established yet, or has ended.
    #[error("not connected")]
    NotConnected,
    /// The message is empty or larger than the agreed maximum.
    #[error("message of {length} bytes exceeds the payload size of {most}")]
    Length {
        /// Length of the message, in bytes.
        length: usize,
        /// Largest length allowed, in bytes.
        most: usize,
    },
    /// The send buffer is full.
    #[error("the send buffer is full")]
    Full,
}
