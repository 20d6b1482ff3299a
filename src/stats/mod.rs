//! Figures that a worker counts, and their form in `/metrics`. State machines keep only integers; names and text are
//! added when a page is requested (docs/metrics.md).

mod connections;
mod exposition;
mod format;
mod histogram;
mod host;
mod players;

use std::time::{Duration, Instant};

pub use connections::{
    Catalogue, ConnectionFigures, Figures, Reception, Role, Totals, Values, ViewerFigures, ViewerName,
};
pub use exposition::{Page, render};
pub use format::Format;
pub use histogram::{BOUNDS_US, Histogram};
pub use host::{DiskFigures, HostFigures, NetworkFigures};
pub use players::{PLAYER_EVENTS, PlayerCounts, TECHNOLOGIES};

use crate::types::{Ingest, StreamKey};

/// Forwarding times of units of one ingest that were sent to subscribers of one egress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarding {
    /// Ingest of the stream.
    pub ingest: Ingest,
    /// Format of the subscribers.
    pub egress: &'static str,
    /// Times of video units.
    pub video: Histogram,
    /// Times of audio units.
    pub audio: Histogram,
}

/// Index into a worker's [`ForwardingTable`]. Each subscriber keeps its index, so that counting needs no search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForwardingIndex(usize);

/// The forwarding histograms of a worker: one for each pair of ingest and egress that has occurred.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForwardingTable(Vec<Forwarding>);

impl ForwardingTable {
    /// Returns the index of a pair.
    pub fn index(&mut self, ingest: Ingest, egress: &'static str) -> ForwardingIndex {
        let known = self.0.iter().position(|row| row.ingest == ingest && row.egress == egress);
        ForwardingIndex(known.unwrap_or_else(|| {
            let (video, audio) = (Histogram::default(), Histogram::default());
            self.0.push(Forwarding { ingest, egress, video, audio });
            self.0.len() - 1
        }))
    }

    /// Counts a unit that was received at `received` and passed to the kernel at `sent`.
    pub fn record(&mut self, index: ForwardingIndex, video: bool, received: Instant, sent: Instant) {
        if let Some(row) = self.0.get_mut(index.0) {
            let took = sent.saturating_duration_since(received);
            if video { row.video.record(took) } else { row.audio.record(took) }
        }
    }

    /// Returns all pairs.
    #[must_use]
    pub fn rows(&self) -> &[Forwarding] {
        &self.0
    }
}

/// Reasons for closing a connection before its first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Too many connections.
    Connections,
    /// Too many unauthenticated peers.
    Unauthenticated,
    /// Too many unauthenticated peers at this address.
    Address,
    /// Too many new connections from this address.
    Rate,
    /// Too many concurrent TLS handshakes, at this address or in total.
    Handshakes,
    /// Too many authenticated peers at this address.
    Authenticated,
    /// An unauthenticated connection, closed to make room for a new one.
    GaveWay,
    /// The header in which a trusted proxy names its client is missing.
    Preface,
}

impl Refused {
    /// All reasons.
    pub const ALL: [Self; 8] = [
        Self::Connections,
        Self::Unauthenticated,
        Self::Address,
        Self::Rate,
        Self::Handshakes,
        Self::Authenticated,
        Self::GaveWay,
        Self::Preface,
    ];

    /// Returns the name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Unauthenticated => "unauthenticated",
            Self::Address => "address",
            Self::Rate => "rate",
            Self::Handshakes => "handshakes",
            Self::Authenticated => "authenticated",
            Self::GaveWay => "gave_way",
            Self::Preface => "proxy_header",
        }
    }
}

/// Counts of refused connections, by reason.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Refusals([u64; Refused::ALL.len()]);

impl Refusals {
    /// Counts a refused connection.
    pub fn count(&mut self, why: Refused) {
        for (_, count) in Refused::ALL.iter().zip(&mut self.0).filter(|(reason, _)| **reason == why) {
            *count = count.saturating_add(1);
        }
    }

    /// Returns all reasons with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Refused, u64)> {
        Refused::ALL.into_iter().zip(self.0)
    }
}

/// Counters of the datagrams of a worker.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Datagrams {
    /// Received datagrams that belong to no session.
    pub dropped: u64,
    /// Received datagrams that were passed on to other workers.
    pub passed: u64,
    /// Received datagrams for other workers that were lost, because too many bytes waited for the other worker.
    pub not_passed: u64,
    /// Datagrams that the system did not accept.
    pub unsent: u64,
}

/// Plain counters of a worker since its start.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counters {
    /// Connections accepted or opened.
    pub sessions: u64,
    /// Connections that were refused.
    pub refused: Refusals,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Units that entered a ring.
    pub units: u64,
    /// Units from publishers that could not be used.
    pub units_dropped: u64,
    /// Units skipped for slow viewers and pushes.
    pub units_skipped: u64,
    /// Units not sent to another worker, because the lane to it was full.
    pub units_unmirrored: u64,
    /// Jumps of subscribers to a newer key frame.
    pub jumps: u64,
    /// Datagrams of sockets.
    pub datagrams: Datagrams,
    /// Requests to publishers for key frames that viewers waited for.
    pub key_frames_asked: u64,
    /// Derived tracks that were refused because too many were being transcoded.
    pub transcoders_refused: u64,
    /// Segments, parts and playlists that were dropped although a playlist listed them: see [`crate::hub::Missed`].
    pub segments_missed: u64,
    /// Number of sessions closed after a panic, and of units from other workers at which a format panicked.
    pub panics: u64,
    /// Time for which the loop was busy.
    pub busy: Duration,
}

/// Connections of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Name of the protocol.
    pub protocol: &'static str,
    /// Open connections.
    pub open: u64,
    /// Ended connections.
    pub ended: u64,
    /// Bytes received, by open and ended connections.
    pub bytes_in: u64,
    /// Bytes sent, by open and ended connections.
    pub bytes_out: u64,
}

impl Traffic {
    /// Creates zero counters.
    #[must_use]
    pub const fn new(protocol: &'static str) -> Self {
        Self { protocol, open: 0, ended: 0, bytes_in: 0, bytes_out: 0 }
    }

    /// Returns the row of a protocol. The row is added if it is missing. Never returns `None`.
    pub fn row<'a>(rows: &'a mut Vec<Self>, protocol: &'static str) -> Option<&'a mut Self> {
        let known = rows.iter().position(|row| row.protocol == protocol);
        let at = known.unwrap_or_else(|| {
            rows.push(Self::new(protocol));
            rows.len() - 1
        });
        rows.get_mut(at)
    }
}

/// Counts of hooks since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HookCounts {
    /// Accepted by the receiver.
    pub sent: u64,
    /// Not accepted, after all retries.
    pub failed: u64,
    /// Dropped because too many waited.
    pub dropped: u64,
}

/// Counts of jobs in a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobCounts {
    /// Name of the class.
    pub class: &'static str,
    /// Jobs waiting for a thread.
    pub waiting: usize,
    /// Jobs refused since the start because too many waited.
    pub refused: u64,
    /// Jobs completed since the start, with any result.
    pub done: u64,
    /// Jobs that failed since the start for a reason of this server.
    pub failed: u64,
    /// Time for which the class's threads were busy since the start.
    pub busy: Duration,
    /// Processor time of the class's threads since the start.
    pub cpu: Duration,
}

/// Figures of the recorded files that are moved to object storage, or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileFigures {
    /// Files waiting for upload to object storage, or being uploaded.
    pub s3_waiting: usize,
    /// Files uploaded to object storage since the start.
    pub s3_uploads: u64,
    /// Failed attempts to upload a file.
    pub s3_failures: u64,
    /// Files and objects of removed recordings that wait for another attempt to remove them.
    pub removals_waiting: usize,
    /// Failed attempts to remove the file or object of a recording, since the start.
    pub removal_failures: u64,
}

/// Figures of control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ControlFigures {
    /// Broadcast records.
    pub records: usize,
    /// Live streams, including those waiting for their publisher.
    pub live: usize,
    /// Endpoints of live streams to which a connection exists or is being tried.
    pub pushes: usize,
    /// Pushes accepted by their target.
    pub pushes_broadcasting: usize,
    /// Running stream sources.
    pub pulls: usize,
    /// Pulls that deliver media.
    pub pulls_broadcasting: usize,
    /// Streams being recorded.
    pub recordings: usize,
    /// Recordings that failed, and recorded files that could not be finished, since the start.
    pub recording_failures: u64,
    /// Recorded files that are moved or removed.
    pub files: FileFigures,
    /// Viewers of all streams.
    pub viewers: u64,
    /// Failed commits and rebuilds since the start.
    pub store_failures: u64,
    /// Changes waiting for the disk.
    pub store_waiting: usize,
    /// Used memory of this machine, in percent.
    pub memory_percent: u8,
    /// File system of the home folder.
    pub disk: DiskFigures,
    /// Hooks waiting or being sent.
    pub hooks_waiting: usize,
    /// Hooks by outcome.
    pub hooks: HookCounts,
    /// Publishers and viewers waiting for an admission hook.
    pub asks_waiting: usize,
    /// Time at which the certificate in use expires, in Unix milliseconds; `None` if unknown.
    pub certificate_expires_ms: Option<u64>,
}

/// The figures of a stream on one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamFigures {
    /// Key of the stream.
    pub key: StreamKey,
    /// Number of viewers and pushes.
    pub subscribers: u64,
    /// Payload bytes received since the publisher's grant; `None` except on the publisher's worker.
    pub received_bytes: Option<u64>,
    /// Bytes retained by the ring.
    pub ring_bytes: u64,
    /// Number of subscribers on each derived track, by the derivation's name.
    pub derived: Vec<(&'static str, u64)>,
}

/// Derived tracks that are transcoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TranscoderFigures {
    /// Tracks being transcoded.
    pub running: u64,
    /// Number of tracks that are left out because too many other tracks are being transcoded.
    pub wanting: u64,
}

/// The figures of a worker for one scrape.
#[derive(Debug, Clone, Default)]
pub struct WorkerFigures {
    /// Counters since the start.
    pub counters: Counters,
    /// Corrected faults of publishers' clocks.
    pub clock_faults: media::FaultCounts,
    /// Busy times of the loop's turns.
    pub turns: Histogram,
    /// Traffic by protocol.
    pub traffic: Vec<Traffic>,
    /// Forwarding latencies.
    pub forwarding: ForwardingTable,
    /// Totals of connections with figures, by protocol.
    pub totals: Vec<Totals>,
    /// Figures of each connection, if requested.
    pub connections: Vec<ConnectionFigures>,
    /// Unhandled mail.
    pub mail_waiting: u64,
    /// Connections that wait to write.
    pub write_queue: u64,
    /// Entries of the deadline table.
    pub deadlines: u64,
    /// Live streams known to this worker.
    pub streams: u64,
    /// Number of viewers and pushes.
    pub subscribers: u64,
    /// Bytes retained by the rings.
    pub ring_bytes: u64,
    /// Derived tracks being transcoded, and those left out.
    pub transcoders: TranscoderFigures,
    /// Figures of each stream, if requested.
    pub per_stream: Vec<StreamFigures>,
}
