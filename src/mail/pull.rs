//! Pulls: streams fetched from other servers. Control orders attempts, workers report their state.

use std::net::SocketAddr;

use crate::auth::srt::SrtAddress;
use crate::types::{PullId, StreamKey};

/// Where an attempt of a pull stands. That it has media is a [`crate::mail::ToControl::Publish`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullState {
    /// Connected, the stream is asked for.
    Preparing,
    /// Over before there was any media: refused, timed out, no stream.
    Failed(String),
    /// Over after there was media: cut off, ended, or frozen.
    Lost(String),
}

/// Opens one attempt of a pull on the worker that gets it.
#[derive(Debug, Clone)]
pub struct PullOrder {
    /// Which pull.
    pub pull: PullId,
    /// Which attempt; reports carry it back so that late news of an older attempt is dropped.
    pub attempt: u64,
    /// Under which key the stream is.
    pub key: StreamKey,
    /// Where to connect; resolved and checked against the outbound policy.
    pub address: SocketAddr,
    /// Over TLS, to a server that proves to have this name.
    pub tls_name: Option<Box<str>>,
    /// What to ask for there.
    pub source: PullSource,
}

/// What a pull asks its server for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullSource {
    /// RTMP `connect` and `play`.
    Rtmp {
        /// `app` of the connect command.
        app: String,
        /// `tcUrl` of the connect command.
        tc_url: String,
        /// The stream's name with its query.
        name: String,
    },
    /// HTTP `GET` of a live FLV file.
    HttpFlv {
        /// `Host` of the request.
        authority: String,
        /// Path and query.
        target: String,
    },
    /// SRT, MPEG-TS inside.
    Srt(SrtAddress),
}
