//! Events for the owner, and errors of its verbs.

use std::time::Duration;

use bytes::Bytes;

/// A channel, by the number of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u16);

/// The kind of a message (RFC 8831 §8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UTF-8 text. It is not checked here.
    Text,
    /// Bytes.
    Binary,
}

/// The limit up to which a message is sent again before it is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reliability {
    /// Until it has arrived.
    #[default]
    Full,
    /// At most so many times more (`maxRetransmits`).
    Retransmits(u32),
    /// For so long, at most 2^32 milliseconds (`maxPacketLifeTime`).
    Lifetime(Duration),
}

/// Properties of a channel (RFC 8832 §5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Messages may overtake each other.
    pub unordered: bool,
    /// The limit up to which messages are sent again.
    pub reliability: Reliability,
}

/// A channel that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The channel.
    pub channel: ChannelId,
    /// Its label. The peer's is text, with replacement characters for bytes that are none.
    pub label: String,
    /// The name of its protocol; usually empty.
    pub protocol: String,
    /// Its properties.
    pub options: Options,
}

/// An event for the owner. [`Event::Closed`] is the last.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is complete. Channels may be opened before, too.
    Connected,
    /// The peer opened a channel.
    Opened(Box<Opened>),
    /// The peer took a channel of ours. Messages may be sent before.
    Accepted(ChannelId),
    /// A whole message.
    Message {
        /// The channel.
        channel: ChannelId,
        /// Text or bytes.
        kind: Kind,
        /// The message.
        payload: Bytes,
    },
    /// The channel is closed in both directions; its number may be used again.
    ChannelClosed(ChannelId),
    /// There is room again after [`SendError::Full`]: half the buffer is free.
    Writable,
    /// The end.
    Closed(CloseReason),
}

/// The reason for the end of an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The owner wanted it.
    Local,
    /// The peer shut it down.
    Peer,
    /// The peer aborted it.
    Aborted,
    /// The peer did not answer.
    TimedOut,
    /// The peer began another association.
    Restarted,
    /// The peer broke a rule of the protocol that cannot be passed over.
    Violation,
    /// The peer sent a message that is too long, or more than the window lets it.
    Limit,
}

/// The reason for which a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no such channel, or it is being closed.
    #[error("no open channel {}", .0.0)]
    NoChannel(ChannelId),
    /// The peer does not take messages of this length.
    #[error("a message of {length} bytes, where the peer takes {most}")]
    TooLong {
        /// Bytes of the message.
        length: usize,
        /// Bytes that the peer takes.
        most: u64,
    },
    /// The buffer is full; [`Event::Writable`] tells of room.
    #[error("the send buffer is full")]
    Full,
}

/// The reason for which a channel was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The association has ended, or is ending.
    #[error("the association is closed")]
    Closed,
    /// [`crate::Config::channels_max`] channels are open, or no stream is free.
    #[error("too many channels")]
    TooMany,
    /// The label or the protocol has over [`crate::LABEL_BYTES_MAX`] bytes.
    #[error("the label is too long")]
    LabelTooLong,
    /// The send buffer has no room for the request.
    #[error("the send buffer is full")]
    Full,
}
