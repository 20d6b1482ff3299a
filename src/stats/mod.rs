//! Figures: what a worker counts, and how `/metrics` shows it. Plain integers in the machines; names and text only
//! when somebody asks (docs/metrics.md).

mod connections;
mod exposition;
mod format;
mod histogram;
mod host;
mod players;

use std::time::{Duration, Instant};

pub use connections::{
    Catalogue, ConnectionFigures, Figures, Reception, Role, Totals, Values, ViewerFigures,
};
pub use exposition::{Page, render};
pub use format::Format;
pub use histogram::{BOUNDS_US, Histogram};
pub use host::{DiskFigures, HostFigures, NetworkFigures};
pub use players::{PLAYER_EVENTS, PlayerCounts, TECHNOLOGIES};

use crate::types::{Ingest, StreamKey};

/// Forwarding times from one ingest to the subscribers of one egress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarding {
    /// The way by which the stream came in.
    pub ingest: Ingest,
    /// The format of the subscribers.
    pub egress: &'static str,
    /// Times of video units.
    pub video: Histogram,
    /// Times of audio units.
    pub audio: Histogram,
}

/// Index into a worker's [`ForwardingTable`]; a subscriber keeps it, so that a unit is counted without a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForwardingIndex(usize);

/// The forwarding histograms of a worker: one per pair of protocols that has met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForwardingTable(Vec<Forwarding>);

impl ForwardingTable {
    /// The index of a pair.
    pub fn index(&mut self, ingest: Ingest, egress: &'static str) -> ForwardingIndex {
        let known = self.0.iter().position(|row| row.ingest == ingest && row.egress == egress);
        ForwardingIndex(known.unwrap_or_else(|| {
            let (video, audio) = (Histogram::default(), Histogram::default());
            self.0.push(Forwarding { ingest, egress, video, audio });
            self.0.len() - 1
        }))
    }

    /// Counts a unit that came at `received` and was taken by the kernel at `sent`.
    pub fn record(&mut self, index: ForwardingIndex, video: bool, received: Instant, sent: Instant) {
        if let Some(row) = self.0.get_mut(index.0) {
            let took = sent.saturating_duration_since(received);
            if video { row.video.record(took) } else { row.audio.record(took) }
        }
    }

    /// All pairs of ingest and egress.
    #[must_use]
    pub fn rows(&self) -> &[Forwarding] {
        &self.0
    }
}

/// The reason a connection was closed before its first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The server is full.
    Connections,
    /// Too many unauthenticated peers.
    Unauthenticated,
    /// Too many unauthenticated peers of this address.
    Address,
    /// Too many new connections of this address.
    Rate,
    /// Too many TLS handshakes at a time, of this address or of all.
    Handshakes,
    /// Too many authenticated peers of this address.
    Authenticated,
    /// Unauthenticated, and closed in favour of a newcomer.
    GaveWay,
    /// No header of a trusted proxy in front, where there has to be one.
    Preface,
}

impl Refused {
    /// All of the reasons.
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

    /// The name in metrics.
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

/// The number of refused connections, by reason.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Refusals([u64; Refused::ALL.len()]);

impl Refusals {
    /// Counts one.
    pub fn count(&mut self, why: Refused) {
        for (_, count) in Refused::ALL.iter().zip(&mut self.0).filter(|(reason, _)| **reason == why) {
            *count = count.saturating_add(1);
        }
    }

    /// All reasons with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Refused, u64)> {
        Refused::ALL.into_iter().zip(self.0)
    }
}

/// Plain counters of a worker since its start.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counters {
    /// Connections accepted or opened.
    pub sessions: u64,
    /// Connections that were not served.
    pub refused: Refusals,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Units that entered a ring.
    pub units: u64,
    /// Units that a publisher sent and that could not be used.
    pub units_dropped: u64,
    /// Units that viewers and pushes were not sent because they were too slow.
    pub units_skipped: u64,
    /// Units that a mirror was not sent because its lane was full.
    pub units_unmirrored: u64,
    /// Times a subscriber jumped.
    pub jumps: u64,
    /// Datagrams of nobody.
    pub datagrams_dropped: u64,
    /// Datagrams that the system did not take.
    pub datagrams_unsent: u64,
    /// Key frames that viewers waited for and publishers were asked for.
    pub key_frames_asked: u64,
    /// Derived tracks that were left out because too many were transcoded.
    pub transcoders_refused: u64,
    /// Sessions that panicked and were closed, units of another worker that a format panicked at.
    pub panics: u64,
    /// Time in which the loop did not wait.
    pub busy: Duration,
}

/// Connections of one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// The protocol's name.
    pub protocol: &'static str,
    /// Open now.
    pub open: u64,
    /// Over.
    pub ended: u64,
    /// Bytes received, of open and ended ones.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
}

impl Traffic {
    /// Creates counters of zero.
    #[must_use]
    pub const fn new(protocol: &'static str) -> Self {
        Self { protocol, open: 0, ended: 0, bytes_in: 0, bytes_out: 0 }
    }

    /// The row of a protocol, made when it is new.
    pub fn row<'a>(rows: &'a mut Vec<Self>, protocol: &'static str) -> Option<&'a mut Self> {
        let known = rows.iter().position(|row| row.protocol == protocol);
        let at = known.unwrap_or_else(|| {
            rows.push(Self::new(protocol));
            rows.len() - 1
        });
        rows.get_mut(at)
    }
}

/// Hooks, counted since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HookCounts {
    /// Taken by their receiver.
    pub sent: u64,
    /// Not accepted, after all retries.
    pub failed: u64,
    /// Dropped because too many waited.
    pub dropped: u64,
}

/// The jobs of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobCounts {
    /// The class.
    pub class: &'static str,
    /// Jobs that wait for a thread.
    pub waiting: usize,
    /// Jobs that were refused since the start: too many waited.
    pub refused: u64,
    /// Time of the processor that its threads have used since the start.
    pub cpu: Duration,
}

/// Figures of control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ControlFigures {
    /// Broadcast records.
    pub records: usize,
    /// Live streams, those waiting for their publisher included.
    pub live: usize,
    /// Endpoints of live streams that are pushed to or tried.
    pub pushes: usize,
    /// Pushes that their target has accepted.
    pub pushes_broadcasting: usize,
    /// Stream sources that run.
    pub pulls: usize,
    /// Pulls that deliver media.
    pub pulls_broadcasting: usize,
    /// Streams that are recorded.
    pub recordings: usize,
    /// Recordings that failed, and recorded files that could not be finished, since the start.
    pub recording_failures: u64,
    /// Files that wait to be uploaded to object storage, or are.
    pub s3_waiting: usize,
    /// Files uploaded to object storage since the start.
    pub s3_uploads: u64,
    /// Attempts to upload one that failed.
    pub s3_failures: u64,
    /// Viewers of all streams.
    pub viewers: u64,
    /// Commits and rebuilds that failed since the start.
    pub store_failures: u64,
    /// Changes that wait for the disk.
    pub store_waiting: usize,
    /// Memory of the machine in use, in percent.
    pub memory_percent: u8,
    /// The file system of the home folder.
    pub disk: DiskFigures,
    /// Hooks that wait or are being sent.
    pub hooks_waiting: usize,
    /// Hooks by what became of them.
    pub hooks: HookCounts,
    /// Publishers and viewers that wait for an admission hook.
    pub asks_waiting: usize,
}

/// The figures of a stream on one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamFigures {
    /// The stream.
    pub key: StreamKey,
    /// Viewers and pushes.
    pub subscribers: u64,
    /// Payload since the publisher's grant, where the publisher is.
    pub received_bytes: Option<u64>,
    /// Bytes that its ring retains.
    pub ring_bytes: u64,
    /// Subscribers that are sent a derived track, by the derivation's name.
    pub derived: Vec<(&'static str, u64)>,
}

/// Derived tracks whose making costs processor time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TranscoderFigures {
    /// Tracks that are made.
    pub running: u64,
    /// Tracks that are left out, because too many others are made.
    pub wanting: u64,
}

/// The figures of a worker for a scrape.
#[derive(Debug, Clone, Default)]
pub struct WorkerFigures {
    /// Counters.
    pub counters: Counters,
    /// Faults of publishers' clocks that were corrected.
    pub clock_faults: media::FaultCounts,
    /// Busy time of each turn of the loop.
    pub turns: Histogram,
    /// Traffic by protocol.
    pub traffic: Vec<Traffic>,
    /// Forwarding latency.
    pub forwarding: ForwardingTable,
    /// Totals of connections that have figures, by protocol.
    pub totals: Vec<Totals>,
    /// Figures of each connection, when requested.
    pub connections: Vec<ConnectionFigures>,
    /// Mail not handled yet.
    pub mail_waiting: u64,
    /// Connections that wait for their write.
    pub write_queue: u64,
    /// Entries of the deadline table.
    pub deadlines: u64,
    /// Live streams known here.
    pub streams: u64,
    /// Viewers and pushes.
    pub subscribers: u64,
    /// Bytes that the rings retain.
    pub ring_bytes: u64,
    /// Derived tracks that are transcoded.
    pub transcoders: TranscoderFigures,
    /// Figures of each stream, when requested.
    pub per_stream: Vec<StreamFigures>,
}
