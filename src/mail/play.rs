//! Playing: the request and the verdict.

use std::net::SocketAddr;

use crate::auth::access::{Denial, Params};
use crate::types::{SessionRef, StreamKey};

/// Someone wants to play, and control must say whether it may, or has to know that it does.
#[derive(Debug, Clone)]
pub struct PlayRequest {
    /// The viewer.
    pub session: SessionRef,
    /// The stream's key.
    pub key: StreamKey,
    /// The name of the format, as in metrics: `flv`, `ts`, ...
    pub egress: &'static str,
    /// The peer's address.
    pub peer: SocketAddr,
    /// Parameters behind the key, in the order given.
    pub params: Params,
    /// The page that asks, when a browser says so.
    pub origin: String,
    /// The viewer and what it requests, where each request is one of its own: once let in, this viewer is let in again for
    /// some time.
    pub polled: Option<PolledRequest>,
}

/// A request of a viewer that watches by one request after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolledRequest {
    /// The identity of the viewer.
    pub who: String,
    /// The name that it had before.
    pub former: Option<String>,
    /// The name below the application's `streams`.
    pub file: String,
    /// Whether there is something to send. Before, nobody else is asked about the viewer, and no token is used up.
    pub found: bool,
}

/// The reason a subscription was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoSubscription {
    /// No such stream is live.
    NotFound,
    /// The application does not allow playing over this protocol.
    Disabled,
    /// A check of the application was not passed.
    Denied(Denial),
    /// The server is shutting down, or the stream has too many formats.
    Unavailable,
}

impl NoSubscription {
    /// The reason, for the log.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotFound => "no such stream is live",
            Self::Disabled => "the application does not play over this protocol",
            Self::Denied(denial) => denial.reason(),
            Self::Unavailable => "the server is shutting down, or the stream has too many formats",
        }
    }
}
