//! Playing: the request and the verdict.

use std::net::SocketAddr;

use crate::auth::access::{Denial, Params};
use crate::types::{SessionRef, StreamKey};

/// A request to play. Control either decides about it, or is only notified that the viewer plays.
#[derive(Debug, Clone)]
pub struct PlayRequest {
    /// The viewer.
    pub session: SessionRef,
    /// Key of the stream.
    pub key: StreamKey,
    /// The name of the format, as in metrics: `flv`, `ts`, ...
    pub egress: &'static str,
    /// The peer's address.
    pub peer: SocketAddr,
    /// Parameters after the key, in the order given.
    pub params: Params,
    /// Origin of the requesting page, as sent by the browser; empty if there is none.
    pub origin: String,
    /// Set if the viewer watches by separate requests: its identity and the file. Once such a viewer is admitted, its
    /// further requests are admitted for some time without another check.
    pub polled: Option<PolledRequest>,
}

/// A request of a viewer that watches by separate requests (e.g. HLS): there is no connection that shows how long the
/// viewer watches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolledRequest {
    /// The identity of the viewer.
    pub who: String,
    /// The identity that the viewer had before its player sent the cookie, if it had another one.
    pub former: Option<String>,
    /// Path of the requested file below the application's `streams`.
    pub file: String,
    /// True if there is something to send. Otherwise no webhook is asked about the viewer, and no one-time token is
    /// used up.
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
    /// The server is shutting down or draining.
    Draining,
    /// Out of resources: a table is full, the stream is already sent in too many formats, or there
    /// was no decision in time.
    Resources,
}

impl NoSubscription {
    /// The reason, for the log.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotFound => "no such stream is live",
            Self::Disabled => "the application does not play over this protocol",
            Self::Denied(denial) => denial.reason(),
            Self::Draining => "the server is shutting down or draining",
            Self::Resources => "the server is short of resources, or the stream has too many formats",
        }
    }
}
