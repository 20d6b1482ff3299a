//! What a connection tells its owner.

use std::time::Duration;

use bytes::Bytes;

use crate::config::KeyLength;
use crate::reject::RejectReason;

/// What happened, in order. After [`Event::Closed`] nothing follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Both sides agree; payload may be sent.
    Connected(Connected),
    /// A message, in order, at its time.
    Payload(Bytes),
    /// So many packets did not come in time, or were given up by the sender.
    Skipped(u32),
    /// The end.
    Closed(CloseReason),
}

/// What was agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connected {
    /// How long what arrives is held.
    pub receive_latency: Duration,
    /// How long the peer holds what is sent to it.
    pub send_latency: Duration,
    /// The length of the keys; `None` in the clear.
    pub encryption: Option<KeyLength>,
    /// The largest message that can be sent.
    pub payload_max: usize,
    /// The peer's library, as 0x010503 for 1.5.3.
    pub peer_version: u32,
}

/// Why a connection ended.
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
    /// This side refused.
    Refused(RejectReason),
}

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// Not yet, or no more.
    #[error("not connected")]
    NotConnected,
    /// Larger than what was agreed, or empty.
    #[error("a message of {length} bytes, {most} are agreed")]
    Length {
        /// Of the message.
        length: usize,
        /// Allowed.
        most: usize,
    },
    /// The buffer is full.
    #[error("the send buffer is full")]
    Full,
}
