//! Events and news of a stream that a session publishes.

use std::sync::Arc;

use media::{AccessUnit, ClockNews, TrackId, TrackSet, Tracks};

use crate::auth::access::Params;
use crate::mail::{Departure, Grant, Refusal, StreamEnd};
use crate::types::{Ingest, StreamKey};

/// A request to publish, as the protocol has parsed it.
#[derive(Debug)]
pub struct PublishAsk {
    /// The key of the stream.
    pub key: StreamKey,
    /// The protocol or path by which the stream arrives.
    pub ingest: Ingest,
    /// The encoder's user agent.
    pub user_agent: String,
    /// Parameters after the key.
    pub params: Params,
    /// The nodes and streams through which this stream was forwarded, each as `node/app/id`.
    pub via: Vec<String>,
    /// For a copy of another node's stream, the wall clock at which the clock of that stream was zero, in
    /// milliseconds.
    pub zero_ms: Option<i64>,
    /// True if a web page of another origin makes the request. A client address of this machine then does not prove
    /// that the requester is local.
    pub of_foreign_page: bool,
}

/// An event of a publication.
#[derive(Debug)]
pub enum PublicationEvent {
    /// Asks to publish; answered by [`PublicationNews::Verdict`].
    Publish(PublishAsk),
    /// The publication has ended, or the request was withdrawn.
    Over(Departure),
    /// A unit of the stream.
    Unit {
        /// The unit.
        unit: AccessUnit,
        /// The tracks of the stream, including the track of the unit.
        tracks: Arc<Tracks>,
    },
    /// Number of units dropped since the last report, because they could not be used.
    UnitsDropped(u64),
    /// News of the publisher's clocks: faults and pace.
    Clock(ClockNews),
    /// Loudness of the publisher in -dBov, from 0 (loudest) to 127 (silence). Reported a few times per second if
    /// the protocol carries it.
    Loudness(u8),
    /// A fault of the stream that the operator should know of. Sessions report each fault once.
    Fault(&'static str),
}

/// News of a publication.
#[derive(Debug)]
pub enum PublicationNews {
    /// The answer to [`PublicationEvent::Publish`].
    Verdict(Result<Grant, Refusal>),
    /// The server ended the stream.
    Ended(StreamEnd),
    /// Viewers wait for a key frame of this video track. Sent at most every 500 ms per track; a session that cannot ask
    /// its peer ignores it.
    KeyFrameNeeded(TrackId),
    /// The published tracks that subscribers select; the others may be paused.
    Wanted(TrackSet),
    /// Number of viewers of the stream at this node and at nodes fed by it.
    Audience(::relay::Viewers),
}
