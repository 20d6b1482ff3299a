//! Events and requests for the owner of a server, and the values of its answers.

use std::borrow::Cow;

use crate::key::{self, KeyError};
use crate::{Error, FourCcs, MediaMessage, Target};

/// An event of a [`crate::Server`]. `Connect`, `Publish` and `Play` are requests: the machine reads no further
/// until the owner accepts or rejects.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The peer wants an application.
    Connect(ConnectRequest),
    /// The peer wants to publish.
    Publish(PublishRequest),
    /// The peer wants to play.
    Play(PlayRequest),
    /// The machine has refused a request without asking: the message stream is busy, or there is none.
    Refused {
        /// The request.
        verb: Verb,
        /// The stream key as far as it can be read, without credentials: for the log.
        key: String,
        /// The reason, for the log.
        reason: &'static str,
    },
    /// A published audio, video or data message.
    Media(MediaMessage),
    /// The publisher stopped.
    PublishEnded {
        /// The message stream it published on.
        message_stream: u32,
        /// Whether the publisher announced it, by FCUnpublish, closeStream or deleteStream.
        clean: bool,
    },
    /// The player stopped.
    PlayEnded {
        /// The message stream it played on.
        message_stream: u32,
    },
    /// The player paused or went on.
    PlayPaused {
        /// The message stream it plays on.
        message_stream: u32,
        /// Whether it wants nothing for now.
        paused: bool,
    },
    /// The player chose what to receive.
    ReceiveMedia {
        /// The message stream it plays on.
        message_stream: u32,
        /// Whether it wants audio.
        audio: bool,
        /// Whether it wants video.
        video: bool,
    },
    /// The end, and always the last event: send what `poll_transmit` still gives, then close the connection.
    Closed(CloseReason),
}

/// A request that an owner is asked about.
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
    /// The command.
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
    /// `app` before its `?`, as sent: [`ConnectRequest::app`] reads it.
    pub path: String,
    /// The part of `app` behind a `?`; not used for any security decision.
    pub query: String,
    /// The URL the peer says it uses.
    pub tc_url: String,
    /// The peer's program.
    pub flash_ver: String,
    /// Nodes that the stream has passed, for loop prevention.
    pub via: Vec<String>,
    /// 0 for AMF0, 3 for AMF3.
    pub object_encoding: f64,
    /// The FourCCs that the peer can decode beyond the legacy codecs; `None` when it announces none.
    pub four_ccs: Option<FourCcs>,
    /// Whether the peer takes several tracks of a kind (`capsEx` of Enhanced RTMP v2).
    pub multitrack: bool,
}

impl ConnectRequest {
    /// The application, by the grammar of [`crate::key`]; an owner with other names reads `path`.
    ///
    /// # Errors
    /// The path names no application.
    pub fn app(&self) -> Result<&str, KeyError> {
        key::parse_app(&self.path)
    }
}

/// Query and URL may hold credentials and are not printed.
impl std::fmt::Debug for ConnectRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectRequest")
            .field("app", &key::without_credentials(&self.path, ""))
            .field("flash_ver", &self.flash_ver)
            .field("via", &self.via)
            .finish_non_exhaustive()
    }
}

/// `publish` (§7.2.2.6).
#[derive(Clone, PartialEq)]
pub struct PublishRequest {
    /// The message stream to answer for.
    pub message_stream: u32,
    /// The path of `connect`'s `app`, with all its components.
    pub app: String,
    /// The name as it was sent, with everything behind it.
    pub name: String,
    /// The publish mode.
    pub mode: PublishMode,
}

impl PublishRequest {
    /// The stream to publish, by the grammar of [`crate::key`]; an owner with other names reads `app` and `name`.
    ///
    /// # Errors
    /// The reason the name is no stream key; [`KeyError::rejection`] refuses it.
    pub fn target(&self) -> Result<Target, KeyError> {
        key::parse(&self.app, &self.name)
    }
}

/// Behind a name stand credentials, which are not printed.
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
    /// The publisher asks not to record.
    #[default]
    Live,
    /// Recorded to a new file.
    Record,
    /// Recorded behind what there is.
    Append,
}

/// `play` (§7.2.2.1).
#[derive(Clone, PartialEq)]
pub struct PlayRequest {
    /// The message stream to answer for.
    pub message_stream: u32,
    /// The path of `connect`'s `app`, with all its components.
    pub app: String,
    /// The name as it was sent, with everything behind it.
    pub name: String,
    /// Start in seconds; -2 is live or recorded, -1 live only.
    pub start: f64,
    /// Duration in seconds; -1 is all.
    pub duration: f64,
    /// Whether an earlier playlist is flushed.
    pub reset: bool,
}

impl PlayRequest {
    /// The stream to play, by the grammar of [`crate::key`]; an owner with other names reads `app` and `name`.
    ///
    /// # Errors
    /// The reason the name is no stream key; [`KeyError::rejection`] refuses it.
    pub fn target(&self) -> Result<Target, KeyError> {
        key::parse(&self.app, &self.name)
    }
}

/// Behind a name stand credentials, which are not printed.
impl std::fmt::Debug for PlayRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlayRequest")
            .field("message_stream", &self.message_stream)
            .field("key", &key::without_credentials(&self.app, &self.name))
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}

/// The kinds of tracks of the stream that was accepted for play.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlayTracks {
    /// Whether the stream has audio.
    pub audio: bool,
    /// Whether the stream has video.
    pub video: bool,
}

/// The `onStatus` with level `error` that refuses a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// `NetStream.Publish.BadName`, ...
    pub code: Cow<'static, str>,
    /// The text that ffmpeg prints.
    pub description: String,
    /// Whether the connection ends with it.
    pub close: bool,
}

/// A timer of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Timer {
    /// The handshake.
    #[error("the handshake took too long")]
    Handshake,
    /// The next publish or play; in a client, the server's consent.
    #[error("no request or no answer to one came in time")]
    Command,
    /// The publisher's next media message.
    #[error("the publisher sent no media")]
    Publisher,
    /// The player's next media or byte; in a playing client, the next media message.
    #[error("the player was silent")]
    Player,
}

/// The reason the connection ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The owner wanted it.
    #[error("closed on request")]
    Requested,
    /// The peer closed the transport, as reported by the owner.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// The owner stopped: the process ends.
    #[error("the server is shutting down")]
    Shutdown,
    /// A request was refused, and the refusal ends the connection.
    #[error("a request was refused")]
    Rejected,
    /// A time ran out.
    #[error("{0}")]
    Timeout(Timer),
    /// The peer broke the protocol or went over a limit.
    #[error("{0}")]
    Failed(Error),
}

/// Counters of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Bytes read by the machine.
    pub bytes_received: u64,
    /// Bytes that the machine itself wrote; the owner counts its media.
    pub bytes_sent: u64,
    /// Whole messages received.
    pub messages_received: u64,
    /// Audio, video and data messages received.
    pub media_received: u64,
    /// Commands and pings received.
    pub commands_received: u64,
    /// Messages of unknown type or out of place.
    pub bad_messages: u32,
    /// The peer's latest acknowledgement; it wraps, and peers lie.
    pub acknowledged: u32,
}
