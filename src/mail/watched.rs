//! Viewers that watch by one request after the other, on their way to the worker that counts them.

use std::net::SocketAddr;

use crate::auth::access::Params;
use crate::types::{StreamId, StreamKey};

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
    /// The parameters of the request that hooks tell, if it is the viewer's first.
    pub params: Params,
}

/// A viewer of this kind has come, or is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseNews {
    /// The stream.
    pub key: StreamKey,
    /// Whether it has come.
    pub came: bool,
    /// The parameters of its first request.
    pub params: Params,
}
