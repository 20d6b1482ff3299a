//! The report of a worker on its streams, each second.

use std::collections::BTreeMap;

use media::{Codec, FaultCounts, Position};
use relay::Viewers;

use crate::stats::Reception;
use crate::types::{SessionRef, StreamId};

/// Figures of one live stream on its source worker, at most one second old.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFigures {
    /// The stream.
    pub stream: StreamId,
    /// The publisher that the figures describe.
    pub publisher: Option<SessionRef>,
    /// Bytes received since the publisher was admitted.
    pub received_bytes: u64,
    /// The clock of the stream, in media time.
    pub position: Position,
    /// Epoch of the stream's tracks.
    pub epoch: u32,
    /// Width and height of the pictures, 0 when unknown.
    pub size: (u32, u32),
    /// The codecs of all tracks that the publisher sends.
    pub codecs: Vec<Codec>,
    /// The video codec.
    pub video_codec: Option<Codec>,
    /// The audio codec.
    pub audio_codec: Option<Codec>,
    /// Units of video received since the publisher was admitted.
    pub pictures: u64,
    /// Units of the publisher that were dropped before they became part of the stream.
    pub dropped: u64,
    /// Number of derived tracks that the stream's viewers are not sent now, because too many tracks are transcoded.
    pub left_out: usize,
    /// Corrections by the stream's clock.
    pub clock: ClockFigures,
    /// Time since the last unit, in milliseconds.
    pub silent_ms: u64,
    /// The reception of the publisher's packets; all zeros if the transport hides packets from the server.
    pub reception: Reception,
}

/// Figures of a standby, at most one second old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandbyFigures {
    /// The stream.
    pub stream: StreamId,
    /// The standby.
    pub session: SessionRef,
    /// Bytes received since it began to wait.
    pub received_bytes: u64,
    /// Time since the last unit, in milliseconds.
    pub silent_ms: u64,
    /// True if a key frame is retained, with which it can begin at once.
    pub has_key_frame: bool,
}

/// Corrections by the clock of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClockFigures {
    /// Faults of the publisher's clocks.
    pub faults: FaultCounts,
    /// Media time in milliseconds that the clock added to [`SourceFigures::position`] although no media arrived.
    /// Negative if the clock left out time for which media did arrive.
    pub made_up_ms: i64,
}

/// Viewers of a stream on one worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ViewerCounts {
    /// Viewers with a connection. Pushes do not count.
    pub connected: u32,
    /// Viewers with leases, which fetch the stream by separate requests, by protocol.
    pub leased: BTreeMap<&'static str, u32>,
    /// Viewers of copies of the stream at other nodes, as reported by those nodes.
    pub elsewhere: Viewers,
}

impl ViewerCounts {
    /// Returns the number of viewers counted under this protocol name at all nodes.
    #[must_use]
    pub fn counted(&self, name: &str) -> u32 {
        let here = self.leased.get(name).copied().unwrap_or(0);
        here.saturating_add(self.elsewhere.counted(name))
    }

    /// True if any node has a viewer of the stream.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.total() > 0
            || self.elsewhere.connected > 0
            || self.elsewhere.counted.iter().any(|(_, viewers)| *viewers > 0)
    }

    /// Returns the number of viewers at this node, of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.leased.values().copied().map(u64::from).fold(u64::from(self.connected), u64::saturating_add)
    }
}

/// A worker's report, sent each second while anything is live.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Streams whose publisher is on this worker.
    pub sources: Vec<SourceFigures>,
    /// Standbys on this worker.
    pub standbys: Vec<StandbyFigures>,
    /// Viewers of each stream that has any on this worker. Pushes do not count.
    pub viewers: Vec<(StreamId, u32)>,
    /// Viewers of each stream that watch by separate requests (e.g. HLS) on this worker, by protocol.
    pub leased: Vec<(StreamId, &'static str, u32)>,
    /// Viewers of the copies that other nodes make of this worker's streams.
    pub elsewhere: Vec<(StreamId, Viewers)>,
    /// Busy share of the worker's loop since the last report, in parts per thousand.
    pub busy_permille: u16,
}
