//! Pulls: streams fetched from other servers. Control orders attempts, workers report their state.

use std::net::SocketAddr;
use std::time::Duration;

use super::Target;
use crate::types::{PullId, StreamKey};

/// The state of a pull attempt. That it has media is a [`crate::mail::ToControl::Publish`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullState {
    /// Connected, the stream is asked for.
    Preparing,
    /// Over before there was any media: refused, timed out, no stream.
    Failed(String),
    /// The stream is no more, says a node that should have it.
    Over(String),
    /// Over after there was media: cut off, ended, or frozen.
    Lost {
        /// The reason of the end.
        reason: String,
        /// The time by which the media were ahead of real time.
        ahead: Duration,
    },
}

/// Another server that a pull goes on at, over a byte stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextServer {
    /// Host name or address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Under TLS.
    pub tls: bool,
}

/// The answer to a pull that wants to go on at another server.
#[derive(Debug, Clone)]
pub struct NextAddress {
    /// The pull.
    pub pull: PullId,
    /// The attempt that asked.
    pub attempt: u64,
    /// The server.
    pub server: NextServer,
    /// The address to connect to, resolved and checked against the outbound policy; or why there is none.
    pub address: Result<SocketAddr, String>,
}

/// Opens one attempt of a pull on the worker that gets it.
#[derive(Debug, Clone)]
pub struct PullOrder {
    /// The pull.
    pub pull: PullId,
    /// The attempt; reports carry it back, so that reports of an older attempt are dropped.
    pub attempt: u64,
    /// Under which key the stream is.
    pub key: StreamKey,
    /// The address to connect to, resolved and checked against the outbound policy; unspecified for a file.
    pub address: SocketAddr,
    /// The server, and what is asked for there.
    pub target: Target,
    /// The time by which the stream is ahead of real time already: a file is not read faster than it is to be
    /// seen.
    pub lead: Duration,
    /// The duration at the beginning of a file that is skipped.
    pub skip: Duration,
    /// The nodes that a copy of another node's stream is for, besides this one.
    pub via: Vec<String>,
}
