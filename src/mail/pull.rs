//! Pulls: streams fetched from other servers. Control orders attempts, workers report their state.

use std::net::SocketAddr;
use std::time::Duration;

use super::Target;
use crate::types::{PullId, StreamKey};

/// The state of a pull's attempt. The arrival of its first media is not reported here, but by
/// [`crate::mail::ToControl::Publish`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullState {
    /// Connected; the stream was requested.
    Preparing,
    /// The attempt ended before any media arrived: it was refused or timed out, or there is no such stream.
    Failed(String),
    /// The stream has ended, according to the node that should have it.
    Over(String),
    /// The attempt ended after media had arrived: the connection broke, the server ended the stream, or no more media
    /// came.
    Lost {
        /// The reason of the end.
        reason: String,
        /// The lead of the media over real time at the end.
        ahead: Duration,
    },
}

/// Another server, at which a pull continues. The connection to it is a byte stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextServer {
    /// Host name or address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// True if the connection uses TLS.
    pub tls: bool,
}

/// The answer to a pull that asks to continue at another server.
#[derive(Debug, Clone)]
pub struct NextAddress {
    /// The pull.
    pub pull: PullId,
    /// The requesting attempt.
    pub attempt: u64,
    /// The server to continue at.
    pub server: NextServer,
    /// The address to connect to, resolved and checked against the outbound policy, or the reason there is none.
    pub address: Result<SocketAddr, String>,
}

/// Orders the worker that receives it to begin an attempt of a pull.
#[derive(Debug, Clone)]
pub struct PullOrder {
    /// The pull.
    pub pull: PullId,
    /// The attempt; reports carry it back, so that reports of an older attempt are dropped.
    pub attempt: u64,
    /// Key of the stream that the pull publishes.
    pub key: StreamKey,
    /// The address to connect to, resolved and checked against the outbound policy; unspecified for a file.
    pub address: SocketAddr,
    /// The server and the request to make there.
    pub target: Target,
    /// Time by which the stream's timestamps are ahead of real time. The units of a file are delayed by this time, so
    /// that the stream does not get further ahead.
    pub lead: Duration,
    /// Time to skip at the beginning of a file.
    pub skip: Duration,
    /// For a copy of another node's stream: the nodes, other than this one, that get the stream through this copy.
    pub via: Vec<String>,
}
