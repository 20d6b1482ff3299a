//! Events that a server reports to its owner, and the types of the owner's answers.

use std::borrow::Cow;

use crate::key::{self, KeyError};
use crate::{Error, FourCcs, MediaMessage, Target};

/// An event of a [`crate::Server`]. `Connect`, `Publish` and `Play` are requests: the server processes no further input
/// until the owner accepts or rejects the request.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The peer requests to connect to an application.
    Connect(ConnectRequest),
    /// The peer requests to publish.
    Publish(PublishRequest),
    /// The peer requests to play.
    Play(PlayRequest),
    /// The server refused a request without asking the owner, because the message stream is busy or does not exist.
    Refused {
        /// The refused request.
        verb: Verb,
        /// Stream key without credentials, for logs; incomplete if the request is malformed.
        key: String,
        /// Reason, for logs.
        reason: &'static str,
    },
    /// A published audio, video or data message.
    Media(MediaMessage),
    /// The publisher has stopped.
    PublishEnded {
        /// Message stream of the publisher.
        message_stream: u32,
        /// True if the publisher announced the end with FCUnpublish, closeStream or deleteStream.
        clean: bool,
    },
    /// The player has stopped.
    PlayEnded {
        /// Message stream of the player.
        message_stream: u32,
    },
    /// The player has paused or resumed.
    PlayPaused {
        /// Message stream of the player.
        message_stream: u32,
        /// True if paused: the player wants no media for now.
        paused: bool,
    },
    /// The player chose the kinds of media to receive.
    ReceiveMedia {
        /// Message stream of the player.
        message_stream: u32,
        /// True if the player wants audio.
        audio: bool,
        /// True if the player wants video.
        video: bool,
    },
    /// The connection has ended; always the last event. Send the rest of `poll_transmit`, then close the connection.
    Closed(CloseReason),
}

/// Kind of a request about which the owner decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `connect`.
    Connect,
    /// `publish`.
    Publish,
    /// `play`.
    Play,
}

impl Verb {
    /// Name of the command.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Publish => "publish",
            Self::Play => "play",
        }
    }
}

/// The arguments of `connect` (§7.2.1.1).
#[derive(Clone, PartialEq)]
pub struct ConnectRequest {
    /// Part of `app` before its `?`, as sent. [`ConnectRequest::app`] parses it.
    pub path: String,
    /// Part of `app` after its `?`; not used for any security decision.
    pub query: String,
    /// URL that the peer claims to use (`tcUrl`).
    pub tc_url: String,
    /// Name of the peer's program (`flashVer`).
    pub flash_ver: String,
    /// Nodes that the stream has passed, for loop prevention.
    pub via: Vec<String>,
    /// Object encoding: 0 for AMF0, 3 for AMF3.
    pub object_encoding: f64,
    /// FourCCs that the peer can decode in addition to the legacy codecs; `None` if it announces none.
    pub four_ccs: Option<FourCcs>,
    /// True if the peer supports several tracks of a kind (`capsEx` of Enhanced RTMP v2).
    pub multitrack: bool,
}

impl ConnectRequest {
    /// Returns the application by the grammar of [`crate::key`]. An owner with other naming rules uses `path` instead.
    ///
    /// # Errors
    /// The path contains no valid application.
    pub fn app(&self) -> Result<&str, KeyError> {
        key::parse_app(&self.path)
    }
}

/// Prints neither query nor URL, since both may contain credentials.
impl std::fmt::Debug for ConnectRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectRequest")
            .field("app", &key::without_credentials(&self.path, ""))
            .field("flash_ver", &self.flash_ver)
            .field("via", &self.via)
            .finish_non_exhaustive()
    }
}

/// A `publish` request (§7.2.2.6).
#[derive(Clone, PartialEq)]
pub struct PublishRequest {
    /// Message stream to accept or reject.
    pub message_stream: u32,
    /// Path of the `app` of `connect`, with all its components.
    pub app: String,
    /// Stream name as sent, with its query.
    pub name: String,
    /// Publish mode.
    pub mode: PublishMode,
}

impl PublishRequest {
    /// Returns the stream to publish, by the grammar of [`crate::key`]. An owner with other naming rules uses `app` and
    /// `name` instead.
    ///
    /// # Errors
    /// The reason why the name is not a stream key. [`KeyError::rejection`] makes the answer from it.
    pub fn target(&self) -> Result<Target, KeyError> {
        key::parse(&self.app, &self.name)
    }
}

/// Does not print credentials, which may follow the name.
impl std::fmt::Debug for PublishRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PublishRequest")
            .field("message_stream", &self.message_stream)
            .field("key", &key::without_credentials(&self.app, &self.name))
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

/// The publishing type of `publish`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PublishMode {
    /// Live: the publisher requests no recording.
    #[default]
    Live,
    /// Recorded to a new file.
    Record,
    /// Appended to the existing recording.
    Append,
}

/// A `play` request (§7.2.2.1).
#[derive(Clone, PartialEq)]
pub struct PlayRequest {
    /// Message stream to accept or reject.
    pub message_stream: u32,
    /// Path of the `app` of `connect`, with all its components.
    pub app: String,
    /// Stream name as sent, with its query.
    pub name: String,
    /// Start in seconds; -2 means live or recorded, -1 live only.
    pub start: f64,
    /// Duration in seconds; -1 means the whole stream.
    pub duration: f64,
    /// True if an earlier playlist must be discarded.
    pub reset: bool,
}

impl PlayRequest {
    /// Returns the stream to play, by the grammar of [`crate::key`]. An owner with other naming rules uses `app` and
    /// `name` instead.
    ///
    /// # Errors
    /// The reason why the name is not a stream key. [`KeyError::rejection`] makes the answer from it.
    pub fn target(&self) -> Result<Target, KeyError> {
        key::parse(&self.app, &self.name)
    }
}

/// Does not print credentials, which may follow the name.
impl std::fmt::Debug for PlayRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlayRequest")
            .field("message_stream", &self.message_stream)
            .field("key", &key::without_credentials(&self.app, &self.name))
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}

/// Kinds of tracks in a stream accepted for play.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlayTracks {
    /// The stream has audio.
    pub audio: bool,
    /// The stream has video.
    pub video: bool,
}

/// An `onStatus` of level `error` that refuses a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Status code such as `NetStream.Publish.BadName`.
    pub code: Cow<'static, str>,
    /// Human-readable text, which ffmpeg prints.
    pub description: String,
    /// True if the connection ends after the refusal.
    pub close: bool,
}

/// A timer of a server or a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Timer {
    /// Deadline of the end of the handshake.
    #[error("the handshake took too long")]
    Handshake,
    /// Deadline of the next publish or play; in a client, deadline of the server's acceptance.
    #[error("no request or no answer to one came in time")]
    Command,
    /// Deadline of the publisher's next media message.
    #[error("the publisher sent no media")]
    Publisher,
    /// Deadline of the next media message to the player or the next byte from the player; in a client that plays,
    /// deadline of the next media message.
    #[error("the player was silent")]
    Player,
}

/// The reason the connection ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The owner closed the connection.
    #[error("closed on request")]
    Requested,
    /// The peer closed the transport, as reported by the owner.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// The owner's process is shutting down.
    #[error("the server is shutting down")]
    Shutdown,
    /// A request was refused, and the refusal ends the connection.
    #[error("a request was refused")]
    Rejected,
    /// A deadline has passed.
    #[error("{0}")]
    Timeout(Timer),
    /// The peer violated the protocol or a limit.
    #[error("{0}")]
    Failed(Error),
}

/// Counters of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes queued by this crate; the owner counts the media it writes itself.
    pub bytes_sent: u64,
    /// Complete messages received.
    pub messages_received: u64,
    /// Audio, video and data messages received.
    pub media_received: u64,
    /// Commands and pings received.
    pub commands_received: u64,
    /// Messages that were unknown or misplaced.
    pub bad_messages: u32,
    /// Latest acknowledgement of the peer. The value wraps, and the peer may send any number.
    pub acknowledged: u32,
}
