//! Publishing: the request, the verdict, the departure.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use media::{Position, Tracks};

use crate::auth::access::{Denial, Params};
use crate::config::AppSettings;
use crate::types::{Ingest, PullId, SessionRef, StreamId, StreamKey};

/// A request to publish.
#[derive(Debug, Clone)]
pub struct PublishRequest {
    /// Session that waits for the verdict.
    pub session: SessionRef,
    /// The key to publish under.
    pub key: StreamKey,
    /// The way in which the stream arrives.
    pub ingest: Ingest,
    /// The peer's address.
    pub peer: SocketAddr,
    /// User agent of the encoder; empty if it sends none.
    pub user_agent: String,
    /// Parameters after the key (`token`, `subscriberId`, ...), in the order given.
    pub params: Params,
    /// The nodes and streams that this stream was already forwarded through, each as `node/app/id`.
    pub via: Vec<String>,
    /// For a copy of a stream of another node: wall-clock time at which the clock of that stream was zero, in
    /// milliseconds.
    pub zero_ms: Option<i64>,
    /// For a pull whose first media has arrived: the pull, and the number of its attempt.
    pub pull: Option<(PullId, u64)>,
}

/// The reason why a publisher was refused. Each protocol expresses it in its own way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// No application of that name.
    NoApplication,
    /// The id is live, or reserved by another publisher.
    InUse,
    /// Publishing is forbidden by the record, its schedule, its expiry or an address filter. The
    /// text is for the log.
    NotAllowed(&'static str),
    /// A check of the application was not passed.
    Denied(Denial),
    /// The server is short of CPU or memory.
    Resources,
    /// The stream went through this server before, or through too many servers.
    Loop,
    /// The server is shutting down.
    Draining,
}

impl Refusal {
    /// The reason, for the log.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotAllowed(reason) => reason,
            Self::Denied(denial) => denial.reason(),
            Self::NoApplication => "no such application",
            Self::InUse => "the id is in use",
            Self::Resources => "the server is short of resources",
            Self::Loop => "the stream has passed this server already",
            Self::Draining => "the server is shutting down",
        }
    }
}

/// The permission to publish, with the values that the publisher starts from.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The stream that the publisher sends.
    pub stream: StreamId,
    /// The clock position at which the publisher continues.
    pub position: Position,
    /// The epoch of the stream's tracks to continue from.
    pub epoch: u32,
    /// Wall-clock time at which the stream's clock was zero, in milliseconds since the Unix epoch.
    pub zero_ms: i64,
    /// Settings of the application.
    pub settings: Arc<AppSettings>,
    /// True if another publisher sends the stream: this one waits as its standby, with a clock of its own.
    pub standby: bool,
}

/// The end of a publisher, where another one continues.
#[derive(Debug, Clone)]
pub struct Seam {
    /// The position of the stream's clock.
    pub position: Position,
    /// The tracks of the former publisher.
    pub tracks: Arc<Tracks>,
    /// Time for which the former publisher had been silent.
    pub silent: Duration,
}

/// The way in which a publisher left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// The publisher ended the stream (deleteStream, FCUnpublish, closeStream). The stream ends.
    Clean,
    /// The publisher broke the protocol, or sends media that nobody can play. A standby takes over; without one, the
    /// stream ends.
    Failed,
    /// The connection was lost or fell silent: the stream waits for the publisher's return (grace).
    Lost,
}

impl Departure {
    /// The departure of a publisher whose connection is closed. If the publisher broke the protocol, its stream ends
    /// immediately unless it has a standby. If the publisher fell silent or was cut off, the stream waits for its
    /// return.
    pub const fn at_close(broke_protocol: bool, was_asked_for: bool) -> Self {
        match (broke_protocol, was_asked_for) {
            (true, _) => Self::Failed,
            (false, true) => Self::Clean,
            (false, false) => Self::Lost,
        }
    }
}

/// The reason a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// The publisher unpublished.
    Unpublished,
    /// The publisher did not return in time.
    GraceOver,
    /// Stopped over the API.
    Stopped,
    /// The resolution or bit rate exceeds the application's limits, for this reason.
    Unaccepted(&'static str),
    /// The record was deleted.
    Deleted,
    /// Another node has claimed the id more recently; the stream continues there.
    Superseded,
    /// The server is shutting down.
    Drain,
}

impl StreamEnd {
    /// The reason, for the log.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Unpublished => "the publisher ended it",
            Self::GraceOver => "the publisher was lost and did not return",
            Self::Stopped => "stopped on request",
            Self::Unaccepted(reason) => reason,
            Self::Deleted => "its record was deleted",
            Self::Superseded => "another node publishes this id by a newer claim",
            Self::Drain => "the server is shutting down",
        }
    }
}
