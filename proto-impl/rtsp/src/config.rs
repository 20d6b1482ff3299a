//! Limits and timeouts of a server and of a client.

use std::time::Duration;

use crate::Uri;
use crate::auth::Credentials;

/// The limits and timeouts of a [`crate::Server`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Value of the `Server` header field.
    pub server_name: String,
    /// Realm of challenges.
    pub realm: String,
    /// True if challenges offer Basic, for which clients send the password itself.
    pub allows_basic: bool,
    /// Maximum time without a session, from the start of the connection or the end of the last session. The time does
    /// not run while the owner decides about a request. Requests do not extend it.
    pub request_timeout: Duration,
    /// A session ends after this time without a request, a frame, or a call of [`crate::Server::keep_alive`]. Clients
    /// are informed of it in whole seconds (RFC 2326 §12.37).
    pub session_timeout: Duration,
    /// Maximum number of bytes buffered while a request waits for the owner's decision.
    pub held_bytes_max: usize,
    /// Maximum number of requests per second.
    pub requests_per_second_max: u32,
    /// Maximum number of requests that have credentials and are nevertheless answered with a challenge.
    pub authentications_max: u32,
    /// Maximum number of misplaced messages, such as responses that no request asked for, per minute.
    pub bad_messages_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            server_name: "millstream".to_owned(),
            realm: "millstream".to_owned(),
            allows_basic: false,
            request_timeout: Duration::from_secs(10),
            session_timeout: Duration::from_secs(60),
            held_bytes_max: 192 << 10,
            requests_per_second_max: 100,
            authentications_max: 5,
            bad_messages_max: 1000,
        }
    }
}

/// The request and timeouts of a [`crate::Client`]. Limits on the server's input are those of [`Config::default`].
#[derive(Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// URL of the stream. Its credentials are not used: see [`ClientConfig::credentials`].
    pub uri: Uri,
    /// Credentials with which a challenge is answered.
    pub credentials: Option<Credentials>,
    /// True if the password itself may be sent to a server that offers only Basic, as many cameras do.
    pub allows_basic: bool,
    /// Value of the `User-Agent` header field.
    pub user_agent: String,
    /// Servers that a published stream has passed, from the first to the last, for the `Via` field of `ANNOUNCE` (RFC
    /// 2326 §12.43).
    pub via: Vec<String>,
    /// True if a track that the server refuses over UDP (461) is requested again, interleaved.
    pub falls_back_to_tcp: bool,
    /// True if the owner of a pull can request UDP when the server refuses to interleave the first track.
    pub falls_back_to_udp: bool,
    /// Longest time from a request to its answer.
    pub request_timeout: Duration,
    /// Maximum time between two calls of [`crate::Client::media_progress`]. Only applies to pulls. `None` means no
    /// limit.
    pub stall_timeout: Option<Duration>,
}

impl ClientConfig {
    /// Creates the default configuration for a stream. Credentials in the URL are moved to the configuration.
    #[must_use]
    pub fn new(mut uri: Uri) -> Self {
        let credentials = uri.credentials.take().map(|(user, password)| Credentials { user, password });
        Self {
            uri,
            credentials,
            allows_basic: true,
            user_agent: "millstream".to_owned(),
            via: Vec::new(),
            falls_back_to_tcp: true,
            falls_back_to_udp: false,
            request_timeout: Duration::from_secs(10),
            stall_timeout: Some(Duration::from_secs(10)),
        }
    }
}

/// Never prints the query or the credentials.
impl std::fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientConfig").field("uri", &self.uri).finish_non_exhaustive()
    }
}
