//! Limits and timeouts of the machines.

use std::time::Duration;

use crate::FourCcs;

/// Bad messages within [`BAD_MESSAGES_WINDOW`] that end a connection: an encoder whose every message is one is ended
/// within the window, and one that now and then sends a message without sense is not.
const BAD_MESSAGES_MAX: u32 = 1000;
/// See [`BAD_MESSAGES_MAX`].
const BAD_MESSAGES_WINDOW: Duration = Duration::from_secs(60);

/// The limits and timeouts of a [`crate::Server`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Time from the connection to the end of the handshake.
    pub handshake_timeout: Duration,
    /// Whenever nothing is published, played or awaiting a verdict: time to the next such request.
    pub command_timeout: Duration,
    /// Time from the accepted publish to its first media message.
    pub first_media_timeout: Duration,
    /// Between two media messages of a publisher.
    pub publisher_idle_timeout: Duration,
    /// Time without media written to a player and without a byte from it. It is pinged after half of it.
    pub player_idle_timeout: Duration,
    /// Size of a video, audio or aggregate message.
    pub media_bytes_max: usize,
    /// Size of every other message.
    pub command_bytes_max: usize,
    /// Memory of unfinished messages before a publish is granted.
    pub pending_bytes_max: usize,
    /// Memory of unfinished messages after.
    pub pending_bytes_max_granted: usize,
    /// Chunk streams that a peer may open.
    pub chunk_streams_max: usize,
    /// Message streams that a connection may create.
    pub message_streams_max: u32,
    /// Bytes held while a request awaits its verdict.
    pub held_bytes_max: usize,
    /// Commands and pings in any second.
    pub commands_per_second_max: u32,
    /// Messages of unknown type or out of place in any [`Self::bad_messages_window`].
    pub bad_messages_max: u32,
    /// The time over which bad messages are counted: a long stream may have some now and then.
    pub bad_messages_window: Duration,
    /// The `fmsVer` in the `_result` of `connect`.
    pub server_version: String,
    /// The FourCCs that the owner can forward; announced to peers that announce FourCCs themselves.
    pub four_ccs: FourCcs,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(5),
            command_timeout: Duration::from_secs(10),
            first_media_timeout: Duration::from_secs(20),
            publisher_idle_timeout: Duration::from_secs(10),
            player_idle_timeout: Duration::from_secs(60),
            media_bytes_max: 8 << 20,
            command_bytes_max: 64 << 10,
            pending_bytes_max: 64 << 10,
            pending_bytes_max_granted: 12 << 20,
            chunk_streams_max: 64,
            message_streams_max: 8,
            held_bytes_max: 64 << 10,
            commands_per_second_max: 100,
            bad_messages_max: BAD_MESSAGES_MAX,
            bad_messages_window: BAD_MESSAGES_WINDOW,
            server_version: "FMS/3,0,1,123".to_owned(),
            four_ccs: FourCcs::NONE,
        }
    }
}

/// The request and timeouts of a [`crate::Client`]. The limits on the peer are those of [`Config::default`].
#[derive(Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// The application: the path of the URL before the stream name.
    pub app: String,
    /// The URL without the stream name.
    pub tc_url: String,
    /// The stream name with everything behind it, as a server expects it in `publish` or `play`.
    pub stream: String,
    /// `flashVer` of `connect`.
    pub flash_ver: String,
    /// Nodes that the stream has passed, for loop prevention; not sent when empty.
    pub via: Vec<String>,
    /// The FourCCs that a push may send, or a pull can decode; not announced when empty.
    pub four_ccs: FourCcs,
    /// Whether the handshake carries the digest that Adobe's servers demand.
    pub digest: bool,
    /// Time from the start to the end of the handshake.
    pub handshake_timeout: Duration,
    /// Time from the handshake to the server's acceptance.
    pub ready_timeout: Duration,
    /// Play only: between two media messages.
    pub stall_timeout: Duration,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            app: String::new(),
            tc_url: String::new(),
            stream: String::new(),
            flash_ver: "FMLE/3.0 (compatible; millstream)".to_owned(),
            via: Vec::new(),
            four_ccs: FourCcs::NONE,
            digest: false,
            handshake_timeout: Duration::from_secs(5),
            ready_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(4),
        }
    }
}

/// Never prints the URL or the stream name: both may hold the key of another server.
impl std::fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientConfig")
            .field("app", &self.app)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}
