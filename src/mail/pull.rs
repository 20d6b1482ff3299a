//! Pulls: streams fetched from other servers. Control orders attempts, workers report their state.

use std::net::SocketAddr;
use std::time::Duration;

use super::Target;
use crate::types::{PullId, StreamKey};

/// The state of a pull attempt. A [`crate::mail::ToControl::Publish`] reports that its media has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullState {
    /// Connected; the stream was requested.
    Preparing,
    /// Ended before any media arrived: refused, timed out, or no such stream.
    Failed(String),
    /// The stream has ended, according to the node that should have it.
    Over(String),
    /// Ended after media had arrived: cut off, ended by the server, or frozen.
    Lost {
        /// The reason of the end.
        reason: String,
        /// The lead of the media over real time at the end.
        ahead: Duration,
    },
}

/// Another server at which a pull continues, over a byte stream.
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
    /// The server.
    pub server: NextServer,
    /// The address to connect to, resolved and checked against the outbound policy, or the reason there is none.
    pub address: Result<SocketAddr, String>,
}

/// Opens one attempt of a pull on the worker that gets it.
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
    /// The stream's current lead over real time. A file is read no faster than it is played.
    pub lead: Duration,
    /// Time to skip at the beginning of a file.
    pub skip: Duration,
    /// The nodes, besides this one, that a copy of another node's stream serves.
    pub via: Vec<String>,
}
