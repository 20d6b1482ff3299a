//! The figures of a worker: a report each second while any stream is live, and all counters on request.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Worker;
use super::audience;
use super::conn::{Conn, Purpose, Subscription};
use super::conns::Conns;
use super::deadlines::Timer;
use super::leases::Ledger;
use super::streams::{Live, SourceCount};
use super::turn::Turn;
use crate::hub::{Forwarded, Missed, STREAM_BLOB_BYTES_MAX, STREAM_BLOBS_MAX, Stream};
use crate::mail::{ClockFigures, Report, SourceFigures, ToControl};
use crate::protocol::{Format, catalogues, derived};
use crate::stats::{
    ConnectionFigures, Counters, ForwardingIndex, ForwardingTable, Histogram, Role, StreamFigures, Totals,
    Traffic, TranscoderFigures, ViewerFigures, ViewerName, WorkerFigures,
};
use crate::types::{ConnId, SessionRef, StreamId, SubscriptionId, WorkerId};

/// Interval of reports to control while any stream is live. The counts that control has are at most this old.
const REPORT_PERIOD: Duration = Duration::from_secs(1);
/// Maximum number of connections or viewers in each list that is reported to control.
const CONNECTIONS_MAX: usize = 1000;

/// The counters of a worker.
#[derive(Debug)]
pub(super) struct Meter {
    pub(super) began: Instant,
    pub(super) busy: Duration,
    pub(super) busy_since: Instant,
    pub(super) stats: Counters,
    pub(super) clock_faults: media::FaultCounts,
    pub(super) turns: Histogram,
    /// The traffic of connections that have ended, by protocol.
    pub(super) traffic: Vec<Traffic>,
    /// The totals of connections that have ended.
    pub(super) totals_ended: Vec<Totals>,
    pub(super) forwarding: ForwardingTable,
    /// Units that were sent to viewers and whose forwarding times are not recorded yet. They are recorded with the
    /// next write.
    pub(super) forwarded: Vec<(ForwardingIndex, Forwarded)>,
    /// Number of mails that the shell has queued but not delivered.
    pub(super) mail_waiting: usize,
    /// Blobs that were dropped early, as of the last report.
    missed: Missed,
    report_armed: bool,
    /// Some formats count their viewers separately, under a name of their own. These are the streams that had viewers
    /// of such a format at the last report, each with that name.
    counted_apart: BTreeSet<(StreamId, &'static str)>,
}

impl Meter {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began: now,
            busy: Duration::ZERO,
            busy_since: now,
            stats: Counters::default(),
            clock_faults: media::FaultCounts::default(),
            turns: Histogram::default(),
            traffic: Vec::new(),
            totals_ended: catalogues().map(Totals::new).collect(),
            forwarding: ForwardingTable::default(),
            forwarded: Vec::new(),
            mail_waiting: 0,
            missed: Missed::default(),
            report_armed: false,
            counted_apart: BTreeSet::new(),
        }
    }

    /// Adds the counters of an ended session to the totals.
    pub(super) fn count_ended(&mut self, conn: &Conn) {
        if let Some(figures) = conn.session.figures() {
            Totals::add(&mut self.totals_ended, &*figures);
        }
    }
}

impl Live {
    pub(super) fn stream_figures(&self) -> Vec<StreamFigures> {
        let figures = |stream: &Stream| StreamFigures {
            key: stream.key.clone(),
            subscribers: count(stream.subscribers.len()),
            received_bytes: self.sources.get(&stream.id).map(|source| source.received_bytes),
            ring_bytes: count(stream.retained_bytes()),
            derived: {
                let named = |(track, subscribers)| {
                    Some((derived::find(stream.tracks(), track)?.name, count(subscribers)))
                };
                stream.derived_subscribers().into_iter().filter_map(named).collect()
            },
        };
        self.streams.values().map(figures).collect()
    }
}

impl Worker {
    pub(super) fn report(&mut self) {
        self.turn.meter.report_armed = false;
        self.memory.keep_ring_memory(&self.turn, &mut self.live);
        self.orders.tell_left_out(&mut self.turn, &mut self.conns, &self.live);
        self.turn.log_missed();
        let span =
            self.turn.now.mono.saturating_duration_since(self.turn.meter.busy_since).as_micros().max(1);
        let busy =
            self.turn.meter.busy.as_micros().saturating_mul(1000).checked_div(span).unwrap_or(0).min(1000);
        self.turn.meter.busy = Duration::ZERO;
        self.turn.meter.busy_since = self.turn.now.mono;
        let counted_apart = self.turn.counted_apart(&self.conns, &self.live);
        let report = Report {
            sources: self
                .live
                .sources
                .iter()
                .filter_map(|(&id, count)| self.turn.source_figures(&self.conns, &self.live, id, *count))
                .collect(),
            standbys: self.live.standbys.figures(&self.turn),
            viewers: self
                .live
                .streams
                .values()
                .map(|stream| (stream.id, self.turn.viewers(&self.conns, stream, None)))
                .filter(|(_, viewers)| *viewers > 0)
                .collect(),
            leased: self.polled.leases.counts().chain(counted_apart).collect(),
            elsewhere: audience::audiences(&self.conns, &self.live),
            busy_permille: u16::try_from(busy).unwrap_or(1000),
        };
        if !self.live.streams.is_empty() {
            self.turn.arm_report();
        }
        self.turn.tell(ToControl::Report(self.turn.id, report));
    }
}

impl Turn {
    pub(super) fn arm_report(&mut self) {
        if !self.meter.report_armed {
            self.meter.report_armed = true;
            self.agenda.deadlines.arm(self.now.mono + REPORT_PERIOD, Timer::Report);
        }
    }

    /// Logs segments that were dropped since the last report although a playlist lists them. All workers hold the same
    /// segments, so one of them is enough.
    fn log_missed(&mut self) {
        let missed = self.blobs.missed();
        let before = std::mem::replace(&mut self.meter.missed, missed);
        if self.id != WorkerId(0) {
            return;
        }
        let (of_all, of_stream) =
            (missed.of_all.saturating_sub(before.of_all), missed.of_stream.saturating_sub(before.of_stream));
        if of_all > 0 {
            let held_mib = self.blobs.bytes() >> 20;
            tracing::warn!(
                dropped = of_all,
                held_mib,
                "segments dropped early: limits.segment_memory is used up"
            );
        }
        if of_stream > 0 {
            let mib_max = STREAM_BLOB_BYTES_MAX >> 20;
            tracing::warn!(
                dropped = of_stream,
                mib_max,
                files_max = STREAM_BLOBS_MAX,
                "segments dropped early: a stream has too many in memory"
            );
        }
    }

    fn source_figures(
        &self,
        conns: &Conns,
        live: &Live,
        stream: StreamId,
        count: SourceCount,
    ) -> Option<SourceFigures> {
        let live = live.streams.get(&stream)?;
        let tracks = live.tracks();
        let publisher = count.publisher.and_then(|session| conns.get(session.conn));
        let figures = publisher.and_then(|conn| conn.session.figures());
        let published = tracks.iter().filter(|track| track.origin == media::Origin::Published);
        let silent = count.last_unit.map_or(Duration::MAX, |at| self.now.mono.saturating_duration_since(at));
        Some(SourceFigures {
            stream,
            publisher: count.publisher,
            received_bytes: count.received_bytes,
            position: count.position,
            epoch: tracks.epoch,
            size: tracks.video().and_then(media::Track::picture_size).unwrap_or((0, 0)),
            codecs: published.map(|track| track.config.codec()).collect(),
            video_codec: tracks.video().map(|track| track.config.codec()),
            audio_codec: tracks.default_of(media::TrackKind::Audio).map(|track| track.config.codec()),
            pictures: count.pictures,
            dropped: count.dropped,
            left_out: live.left_out().iter().count(),
            clock: ClockFigures { faults: count.clock_faults, made_up_ms: count.made_up_ms },
            silent_ms: u64::try_from(silent.as_millis()).unwrap_or(u64::MAX),
            reception: figures.and_then(|figures| figures.reception()).unwrap_or_default(),
        })
    }

    /// Returns the number of a stream's viewers whose formats are counted under the name `counted_as`.
    fn viewers(&self, conns: &Conns, stream: &Stream, counted_as: Option<&'static str>) -> u32 {
        let is_viewer = |one: &&SubscriptionId| {
            let Some(conn) = conns.get(one.conn) else { return false };
            let playing = conn.subscription(one.handle).and_then(Subscription::playing);
            let count = playing.map(|playing| playing.format.kind().counted_as);
            let is_node = playing.is_some_and(|playing| playing.format.kind().is_for_nodes);
            matches!(conn.purpose, Purpose::Peer | Purpose::Ended) && count == Some(counted_as) && !is_node
        };
        u32::try_from(stream.subscribers.iter().filter(is_viewer).count()).unwrap_or(u32::MAX)
    }

    /// Returns the number of viewers of separately counted formats, by stream. A stream that has lost its last such
    /// viewer is reported once more, with 0.
    fn counted_apart(&mut self, conns: &Conns, live: &Live) -> Vec<(StreamId, &'static str, u32)> {
        let mut told = std::mem::take(&mut self.meter.counted_apart);
        let mut counts = Vec::new();
        for stream in live.streams.values() {
            for count in Format::counts() {
                let viewers = self.viewers(conns, stream, Some(count));
                if viewers > 0 || told.remove(&(stream.id, count)) {
                    counts.push((stream.id, count, viewers));
                }
            }
        }
        let with_viewers = counts.iter().filter(|(.., viewers)| *viewers > 0);
        self.meter.counted_apart = with_viewers.map(|(stream, count, _)| (*stream, *count)).collect();
        counts
    }

    /// Collects all figures for a metrics scrape.
    pub(super) fn measure(&mut self, conns: &Conns, live: &Live, per_stream: bool) {
        let mut traffic = self.meter.traffic.clone();
        for conn in conns.values() {
            if let Some(row) = Traffic::row(&mut traffic, conn.figures.protocol) {
                row.open = row.open.saturating_add(1);
                conn.figures.count_into(row);
            }
        }
        let mut counters = self.meter.stats.clone();
        counters.segments_missed = self.blobs.missed().total();
        let playing = conns.values().flat_map(Conn::playing);
        let jumps = playing.map(|playing| playing.subscriber.jumps);
        counters.jumps = jumps.fold(counters.jumps, u64::saturating_add);
        let subscribers: usize = live.streams.values().map(|stream| stream.subscribers.len()).sum();
        let figures = WorkerFigures {
            counters,
            clock_faults: self.meter.clock_faults,
            turns: self.meter.turns.clone(),
            traffic,
            forwarding: self.meter.forwarding.clone(),
            totals: self.totals(conns),
            connections: if per_stream { self.connection_figures(conns, live, None) } else { Vec::new() },
            mail_waiting: count(self.meter.mail_waiting),
            write_queue: count(self.agenda.writes.len()),
            deadlines: count(self.agenda.deadlines.len()),
            streams: count(live.streams.len()),
            subscribers: count(subscribers),
            ring_bytes: count(live.retained_bytes()),
            transcoders: TranscoderFigures {
                running: count(live.transcoders()),
                wanting: live.streams.values().map(|stream| count(stream.left_out().iter().count())).sum(),
            },
            per_stream: if per_stream { live.stream_figures() } else { Vec::new() },
        };
        self.tell(ToControl::Measured(self.id, Box::new(figures)));
    }

    /// Returns the totals of connections, ended ones included.
    fn totals(&self, conns: &Conns) -> Vec<Totals> {
        let mut totals = self.meter.totals_ended.clone();
        let figures = conns.values().filter_map(|conn| conn.session.figures());
        figures.for_each(|figures| Totals::add(&mut totals, &*figures));
        totals
    }

    /// Returns the figures of the connections of one stream, or of all streams.
    fn connection_figures(
        &self,
        conns: &Conns,
        live: &Live,
        wanted: Option<StreamId>,
    ) -> Vec<ConnectionFigures> {
        let figures = |conn: &Conn| {
            let published = conn.publications.iter().find_map(|publication| publication.stream);
            let played = || conn.playing().next().map(|playing| playing.subscriber.stream);
            let (stream, brings) = match published {
                Some(stream) => (stream, true),
                None => (played()?, false),
            };
            if wanted.is_some_and(|wanted| wanted != stream) {
                return None;
            }
            let role = match (brings, conn.purpose) {
                (true, Purpose::Pull { .. }) => Role::Pull,
                (true, _) => Role::Publisher,
                (false, Purpose::Push { .. }) => Role::Push,
                (false, _) => Role::Viewer,
            };
            let key = live.streams.get(&stream)?.key.clone();
            let figures = conn.session.figures()?;
            Some(ConnectionFigures { key, role, peer: conn.client(), figures })
        };
        conns.values().filter_map(figures).take(CONNECTIONS_MAX).collect()
    }

    /// Reports two lists to control, for the API: the viewers of a stream, and the figures of its connections
    /// (publisher, viewers, pushes). A connection whose session has no figures is not listed.
    pub(super) fn tell_connections(&mut self, conns: &Conns, live: &Live, leases: &Ledger, stream: StreamId) {
        let connections = self.connection_figures(conns, live, Some(stream));
        let mut viewers = self.viewer_figures(conns, live, stream);
        viewers.extend(self.leased_figures(leases, stream));
        self.tell(ToControl::Connections { worker: self.id, stream, connections, viewers });
    }

    /// Returns the viewers of a stream that have a connection of their own. Pushes and sinks are not included.
    fn viewer_figures(&self, conns: &Conns, live: &Live, stream: StreamId) -> Vec<ViewerFigures> {
        let subscribers = live.streams.get(&stream).map(|stream| &stream.subscribers);
        let of_stream = subscribers.into_iter().flatten().filter_map(|one| {
            let conn = conns.get(one.conn).filter(|conn| matches!(conn.purpose, Purpose::Peer))?;
            conn.subscription(one.handle)?.playing()?;
            Some(ViewerFigures {
                name: ViewerName::Session(SessionRef { worker: self.id, conn: one.conn, handle: one.handle }),
                address: conn.client().ip(),
                protocol: conn.session.about().protocol,
                seconds: self.now.mono.saturating_duration_since(conn.figures.began).as_secs(),
            })
        });
        of_stream.take(CONNECTIONS_MAX).collect()
    }

    /// Returns those viewers of a stream that have no connection of their own (HLS) and are counted by this worker.
    fn leased_figures(&self, leases: &Ledger, stream: StreamId) -> Vec<ViewerFigures> {
        let of_stream = leases.of_stream(stream).map(|one| ViewerFigures {
            name: ViewerName::Lease { worker: self.id, number: one.number, identity: Arc::clone(one.viewer) },
            address: one.client,
            protocol: one.protocol,
            seconds: self.now.mono.saturating_duration_since(one.began).as_secs(),
        });
        of_stream.take(CONNECTIONS_MAX).collect()
    }
}

impl Conns {
    /// Counts the bytes of a connection under another protocol from now on, e.g. because it has become a viewer.
    /// Earlier bytes stay counted under the former protocol, because counters must not fall.
    pub(super) fn rename(&mut self, turn: &mut Turn, id: ConnId, protocol: &'static str) {
        let Some(conn) = self.get_mut(id) else { return };
        let figures = &mut conn.figures;
        if figures.protocol == protocol {
            return;
        }
        if let Some(row) = Traffic::row(&mut turn.meter.traffic, figures.protocol) {
            figures.count_into(row);
        }
        figures.counted = (figures.bytes_in, figures.bytes_out);
        figures.protocol = protocol;
    }
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
