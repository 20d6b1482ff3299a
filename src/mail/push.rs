//! Pushes: streams sent to other servers. Control orders attempts, workers report their state.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::auth::srt::SrtAddress;
use crate::config::AppSettings;
use crate::types::{PushId, StreamId, StreamKey};

/// Where a push stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushState {
    /// Connected and publishing is asked for.
    Preparing,
    /// The target takes the stream.
    Broadcasting,
    /// Could not be opened: refused, timed out, rejected.
    Failed(String),
    /// Was broadcasting, and broke.
    Error(String),
    /// Ended because control said so.
    Finished,
}

/// Opens one attempt of a push on the worker that gets it.
#[derive(Debug, Clone)]
pub struct PushOrder {
    /// Which push.
    pub push: PushId,
    /// Which attempt; reports carry it back so that late news of an older attempt is dropped.
    pub attempt: u64,
    /// What to send.
    pub stream: StreamId,
    /// Where to connect; resolved and checked against the outbound policy.
    pub address: SocketAddr,
    /// Over TLS, to a server that proves to have this name.
    pub tls_name: Option<Box<str>>,
    /// What to ask for there.
    pub target: PushTarget,
    /// Settings of the application.
    pub settings: Arc<AppSettings>,
}

/// What a push asks its target for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushTarget {
    /// RTMP `connect` and `publish`.
    Rtmp {
        /// `app` of the connect command.
        app: String,
        /// `tcUrl` of the connect command.
        tc_url: String,
        /// The publish name with its query.
        name: String,
        /// The streams this one went through, this one last.
        via: Vec<String>,
    },
    /// SRT as a caller.
    Srt(SrtAddress),
}

/// The name of this node in `via` entries and of its streams.
#[must_use]
pub fn via_entry(node: &str, key: &StreamKey) -> String {
    format!("{node}/{key}")
}
