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
    /// Connected; publishing was requested.
    Preparing,
    /// The target accepts the stream.
    Broadcasting,
    /// Codecs of all tracks that cannot be sent to the target. Each change is reported with the complete list.
    LeavesOut(Vec<Codec>),
    /// Publishing could not begin: the target refused or rejected it, or it timed out.
    Failed(String),
    /// The connection broke after the target had accepted the stream.
    Error(String),
    /// The attempt ended because the target must be informed of additional tracks. The next attempt follows soon;
    /// the end does not count as a failure.
    Again(String),
    /// The push was ended by control.
    Finished,
}

/// Orders the worker that receives it to begin an attempt of a push.
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
    /// The streams that this stream went through, ending with this stream itself.
    pub via: Vec<String>,
    /// Settings of the application.
    pub settings: Arc<AppSettings>,
}

/// Returns the entry for a stream of this node in a `via` list.
#[must_use]
pub fn via_entry(node: &str, key: &StreamKey) -> String {
    format!("{node}/{key}")
}
