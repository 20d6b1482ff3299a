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
    /// A message, in order, at its time.
    Payload(Bytes),
    /// The number of packets that were not received in time, or were given up by the sender.
    Skipped(u32),
    /// The end.
    Closed(CloseReason),
}

/// The negotiated parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connected {
    /// The receive latency.
    pub receive_latency: Duration,
    /// The send latency: how long the peer holds what is sent to it.
    pub send_latency: Duration,
    /// The length of the keys; `None` in the clear.
    pub encryption: Option<KeyLength>,
    /// The largest message that can be sent.
    pub payload_max: usize,
    /// The peer's library, as 0x010503 for 1.5.3.
    pub peer_version: u32,
}

/// The reason the connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// [`crate::Connection::close`].
    Local,
    /// The peer sent a shutdown.
    Peer,
    /// The peer was silent for too long.
    Idle,
    /// No answer to the handshake.
    ConnectTimeout,
    /// The peer refused.
    Rejected(RejectReason),
    /// A refusal of the peer by this side.
    Refused(RejectReason),
}

/// The reason a message was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// Not connected yet, or no longer.
    #[error("not connected")]
    NotConnected,
    /// Larger than what was agreed, or empty.
    #[error("message of {length} bytes exceeds the payload size of {most}")]
    Length {
        /// The length of the message.
        length: usize,
        /// Allowed.
        most: usize,
    },
    /// The buffer is full.
    #[error("the send buffer is full")]
    Full,
}
