//! Viewers that watch by separate requests (e.g. HLS), on their way to the worker that counts them.

use std::net::SocketAddr;

use crate::auth::access::Params;
use crate::types::{StreamId, StreamKey};

/// A request of a viewer that watches by separate requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedMail {
    /// The stream that the viewer watches.
    pub stream: StreamId,
    /// Name of the protocol under which the viewer is counted.
    pub protocol: &'static str,
    /// The identity of the viewer.
    pub viewer: String,
    /// The identity that the viewer had before its player sent the cookie, if it had another one.
    pub former: Option<String>,
    /// Address of the viewer's client.
    pub peer: SocketAddr,
    /// Parameters of the request. Hooks report them if this is the viewer's first
    /// request.
    pub params: Params,
}

/// The arrival or departure of a viewer that watches by separate requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseNews {
    /// Key of the stream that the viewer watches.
    pub key: StreamKey,
    /// True if the viewer has started, false if it has left.
    pub came: bool,
    /// The parameters of the viewer's first request.
    pub params: Params,
}
