//! Limits and timeouts of a server and of a client.

use std::time::Duration;

use crate::FourCcs;

/// Number of bad messages within [`BAD_MESSAGES_WINDOW`] after which a connection is ended. An encoder whose messages
/// are all bad is disconnected within the window; an encoder that occasionally sends a bad message is not.
const BAD_MESSAGES_MAX: u32 = 1000;
/// Window in which [`BAD_MESSAGES_MAX`] applies.
const BAD_MESSAGES_WINDOW: Duration = Duration::from_secs(60);

/// The limits and timeouts of a [`crate::Server`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Maximum time from the start of the connection to the end of its handshake.
    pub handshake_timeout: Duration,
    /// Maximum time during which the peer neither publishes nor plays. The time does not run while a request to publish
    /// or play waits for the owner's decision.
    pub command_timeout: Duration,
    /// Longest time from an accepted publish to its first media message.
    pub first_media_timeout: Duration,
    /// Longest time between two media messages of a publisher.
    pub publisher_idle_timeout: Duration,
    /// Maximum time without media written to a player and without a byte received from it. After half of this time the
    /// player is pinged.
    pub player_idle_timeout: Duration,
    /// Longest video, audio or aggregate message, in bytes.
    pub media_bytes_max: usize,
    /// Longest message of any other type, in bytes.
    pub command_bytes_max: usize,
    /// Maximum memory for incomplete messages before a publish is granted, in bytes.
    pub pending_bytes_max: usize,
    /// Maximum memory for incomplete messages after a publish was granted, in bytes.
    pub pending_bytes_max_granted: usize,
    /// Maximum number of chunk streams that a peer may open.
    pub chunk_streams_max: usize,
    /// Maximum number of message streams that a connection may create.
    pub message_streams_max: u32,
    /// Maximum number of bytes buffered while a request waits for the owner's decision.
    pub held_bytes_max: usize,
    /// Maximum number of commands and pings per second.
    pub commands_per_second_max: u32,
    /// Maximum number of unknown or misplaced messages within [`Self::bad_messages_window`].
    pub bad_messages_max: u32,
    /// Window in which bad messages are counted. A long stream may have a few of them now and then.
    pub bad_messages_window: Duration,
    /// Value of `fmsVer` in the `_result` of `connect`.
    pub server_version: String,
    /// FourCCs that the owner can forward. They are announced only to peers that announce FourCCs themselves.
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

/// The request and timeouts of a [`crate::Client`]. Limits on the server's input are those of [`Config::default`].
#[derive(Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// Application: the path of the URL before the stream name.
    pub app: String,
    /// URL without the stream name (`tcUrl`).
    pub tc_url: String,
    /// Stream name with its query, as the server expects it in `publish` or `play`.
    pub stream: String,
    /// Value of `flashVer` in `connect`.
    pub flash_ver: String,
    /// Nodes that the stream has passed, for loop prevention. Nothing is sent if the list is empty.
    pub via: Vec<String>,
    /// FourCCs that a push may send, or that a pull can decode. Nothing is announced if the set is empty.
    pub four_ccs: FourCcs,
    /// True if the handshake contains the digest that Adobe's servers require.
    pub digest: bool,
    /// Longest time from the start to the end of the handshake.
    pub handshake_timeout: Duration,
    /// Maximum time from the handshake until the server accepts the publish or play.
    pub ready_timeout: Duration,
    /// Maximum time between two media messages. Only applies to pulls.
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

/// Prints neither the URL nor the stream name, since both may contain the key of a stream on another server.
impl std::fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientConfig")
            .field("app", &self.app)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}
