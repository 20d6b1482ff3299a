//! Limits and timeouts of the machines.

use std::time::Duration;

use crate::Uri;
use crate::auth::Credentials;

/// The limits and timeouts of a [`crate::Server`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The name in `Server`.
    pub server_name: String,
    /// The realm of challenges.
    pub realm: String,
    /// Whether challenges offer Basic, which sends the password itself.
    pub allows_basic: bool,
    /// Time to a session, from the connection or the end of the one before, without what verdicts take. No request extends
    /// it.
    pub request_timeout: Duration,
    /// After how long without a request, a frame or [`crate::Server::keep_alive`] a session ends; announced in whole
    /// seconds (RFC 2326 §12.37).
    pub session_timeout: Duration,
    /// Bytes held while a request awaits its verdict.
    pub held_bytes_max: usize,
    /// Requests in any second.
    pub requests_per_second_max: u32,
    /// Requests that are challenged although they had credentials.
    pub authentications_max: u32,
    /// Messages out of place in a minute.
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

/// The request and timeouts of a [`crate::Client`]. The limits on the peer are those of [`Config::default`].
#[derive(Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// The stream. Its credentials are not used: see [`ClientConfig::credentials`].
    pub uri: Uri,
    /// The credentials that answer a challenge.
    pub credentials: Option<Credentials>,
    /// Whether the password itself may be sent to a server that knows nothing else. Many cameras do not.
    pub allows_basic: bool,
    /// The name in `User-Agent`.
    pub user_agent: String,
    /// Whether a track that the server refuses over UDP (461) is tried interleaved.
    pub falls_back_to_tcp: bool,
    /// Whether the owner of a pull chooses again when the server refuses to interleave the first track.
    pub falls_back_to_udp: bool,
    /// Time from a request to its answer.
    pub request_timeout: Duration,
    /// Play only: between two calls of [`crate::Client::media_progress`]. `None`: for ever.
    pub stall_timeout: Option<Duration>,
}

impl ClientConfig {
    /// The defaults, for a stream. Credentials of the URL become those of the configuration.
    #[must_use]
    pub fn new(mut uri: Uri) -> Self {
        let credentials = uri.credentials.take().map(|(user, password)| Credentials { user, password });
        Self {
            uri,
            credentials,
            allows_basic: true,
            user_agent: "millstream".to_owned(),
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
