//! Events and news of a stream that a session publishes.

use std::sync::Arc;

use media::{AccessUnit, ClockNews, TrackId, TrackSet, Tracks};

use crate::auth::access::Params;
use crate::mail::{Departure, Grant, Refusal, StreamEnd};
use crate::types::{Ingest, StreamKey};

/// A request to publish, as the protocol could read it.
#[derive(Debug)]
pub struct PublishAsk {
    /// The key of the stream.
    pub key: StreamKey,
    /// The way by which the stream comes in.
    pub ingest: Ingest,
    /// The encoder's user agent.
    pub user_agent: String,
    /// Parameters behind the key.
    pub params: Params,
    /// Streams it was forwarded through.
    pub via: Vec<String>,
    /// For a copy of another node's stream, the wall clock at which the clock of that stream was zero, in
    /// milliseconds.
    pub zero_ms: Option<i64>,
    /// Whether a page of another origin asks: the address of this machine, on which it runs, does not show
    /// whose request that is.
    pub of_foreign_page: bool,
}

/// An event of a publication.
#[derive(Debug)]
pub enum PublicationEvent {
    /// Asks to publish; answered by [`PublicationNews::Verdict`].
    Publish(PublishAsk),
    /// The publication is over, or the request was given up.
    Over(Departure),
    /// A unit of the stream.
    Unit {
        /// The unit.
        unit: AccessUnit,
        /// The tracks of the stream; one of them decodes the unit.
        tracks: Arc<Tracks>,
    },
    /// The number of units that could not be used.
    UnitsDropped(u64),
    /// News of the publisher's clocks: faults, and the pace.
    Clock(ClockNews),
    /// The loudness of the publisher in -dBov, of 0 to 127 for silence: a few times a second, where its protocol tells it.
    Loudness(u8),
    /// A fault of the stream that an operator should know of, in words. Sessions report each once.
    Fault(&'static str),
}

/// News of a publication.
#[derive(Debug)]
pub enum PublicationNews {
    /// The answer to [`PublicationEvent::Publish`].
    Verdict(Result<Grant, Refusal>),
    /// The server ended the stream.
    Ended(StreamEnd),
    /// Viewers wait for a key frame of this video track. At most one every 500 ms for each track; a session that cannot
    /// ask its peer ignores it.
    KeyFrameNeeded(TrackId),
    /// Published tracks that somebody is sent; the others may be paused.
    Wanted(TrackSet),
    /// The number of viewers of the stream at this node and behind it.
    Audience(::relay::Viewers),
}
