//! Events for the owner, and errors of its calls.

use std::time::Duration;

use bytes::Bytes;

/// A data channel, identified by its stream number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u16);

/// The kind of a message (RFC 8831 §8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UTF-8 text, which is not validated.
    Text,
    /// Binary data.
    Binary,
}

/// Limit on the retransmissions of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reliability {
    /// Retransmitted until acknowledged.
    #[default]
    Full,
    /// Retransmitted at most this many times (`maxRetransmits`).
    Retransmits(u32),
    /// Retransmitted for this long, at most 2^32 milliseconds (`maxPacketLifeTime`).
    Lifetime(Duration),
}

/// Properties of a channel (RFC 8832 §5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// True if messages may be delivered out of order.
    pub unordered: bool,
    /// Limit of retransmissions.
    pub reliability: Reliability,
}

/// An open channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Channel id.
    pub channel: ChannelId,
    /// Label of the channel. Invalid UTF-8 of the peer is replaced.
    pub label: String,
    /// Name of the channel's protocol, usually empty.
    pub protocol: String,
    /// Properties of the channel.
    pub options: Options,
}

/// An event for the owner. [`Event::Closed`] is the last.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is complete. Channels may also be opened earlier.
    Connected,
    /// The peer opened a channel.
    Opened(Box<Opened>),
    /// The peer accepted a channel of ours. Messages may also be sent earlier.
    Accepted(ChannelId),
    /// A complete message was received.
    Message {
        /// Channel of the message.
        channel: ChannelId,
        /// Type of the message: text or binary.
        kind: Kind,
        /// Contents of the message.
        payload: Bytes,
    },
    /// The channel is closed in both directions; its number may be reused.
    ChannelClosed(ChannelId),
    /// After [`SendError::Full`], half of the send buffer is free again.
    Writable,
    /// The association has ended.
    Closed(CloseReason),
}

/// Reason why an association ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The owner closed the association.
    Local,
    /// The peer shut down the association.
    Peer,
    /// The peer aborted the association.
    Aborted,
    /// The peer did not answer.
    TimedOut,
    /// The peer started a new association.
    Restarted,
    /// The peer violated the protocol in a way that cannot be ignored.
    Violation,
    /// The peer sent a message that is too long, or exceeded the receive window.
    Limit,
}

/// Reason why a message was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The channel does not exist or is being closed.
    #[error("no open channel {}", .0.0)]
    NoChannel(ChannelId),
    /// The message exceeds the peer's limit.
    #[error("a message of {length} bytes, where the peer takes {most}")]
    TooLong {
        /// Length of the message, in bytes.
        length: usize,
        /// Maximum message size of the peer, in bytes.
        most: u64,
    },
    /// The send buffer is full; [`Event::Writable`] follows when there is room.
    #[error("the send buffer is full")]
    Full,
}

/// Reason why a channel was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The association has ended, or is ending.
    #[error("the association is closed")]
    Closed,
    /// [`crate::Config::channels_max`] channels are open, or no stream is free.
    #[error("too many channels")]
    TooMany,
    /// The label or the protocol name exceeds [`crate::LABEL_BYTES_MAX`] bytes.
    #[error("the label is too long")]
    LabelTooLong,
    /// The send buffer has no room for the request.
    #[error("the send buffer is full")]
    Full,
}
