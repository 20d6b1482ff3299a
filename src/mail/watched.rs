//! Viewers that watch by one request after the other, on their way to the worker that counts them.

use std::net::SocketAddr;

use crate::types::StreamId;

/// A request of such a viewer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedMail {
    /// The stream.
    pub stream: StreamId,
    /// The protocol, as viewers are counted.
    pub protocol: &'static str,
    /// The identity of the viewer.
    pub viewer: String,
    /// The name that it had before this one.
    pub former: Option<String>,
    /// The address of its client.
    pub peer: SocketAddr,
}
