//! Pushes: streams sent to other servers. Control orders attempts, workers report their state.

use std::net::SocketAddr;
use std::sync::Arc;

use media::Codec;

use super::Target;
use crate::config::AppSettings;
use crate::types::{PushId, StreamId, StreamKey};

/// The state of a push (docs/rest.md).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushState {
    /// Connected and publishing is asked for.
    Preparing,
    /// The target takes the stream.
    Broadcasting,
    /// The target cannot be sent these tracks of the stream, named by their codecs. All are named anew when they change.
    LeavesOut(Vec<Codec>),
    /// Could not be opened: refused, timed out, rejected.
    Failed(String),
    /// Was broadcasting, and broke.
    Error(String),
    /// Ended by control.
    Finished,
}

/// Opens one attempt of a push on the worker that gets it.
#[derive(Debug, Clone)]
pub struct PushOrder {
    /// The push.
    pub push: PushId,
    /// The attempt; reports carry it back, so that reports of an older attempt are dropped.
    pub attempt: u64,
    /// The stream to send.
    pub stream: StreamId,
    /// The address to connect to, resolved and checked against the outbound policy.
    pub address: SocketAddr,
    /// The target.
    pub target: Target,
    /// The streams that this one went through, itself last.
    pub via: Vec<String>,
    /// Settings of the application.
    pub settings: Arc<AppSettings>,
}

/// The name of this node in `via` entries and of its streams.
#[must_use]
pub fn via_entry(node: &str, key: &StreamKey) -> String {
    format!("{node}/{key}")
}
