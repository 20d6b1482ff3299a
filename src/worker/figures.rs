//! A worker's figures: a report each second while anything is live, and everything on request.

use std::time::Duration;

use super::conn::{Conn, Purpose};
use super::deadlines::Timer;
use super::{SourceCount, Worker};
use crate::hub::Stream;
use crate::mail::{Report, SourceFigures, ToControl};
use crate::stats::{ConnectionFigures, Role, StreamFigures, Totals, Traffic, WorkerFigures};
use crate::types::{ConnId, StreamId};

/// The interval of reports to control while anything is live: counts are at most this old.
const REPORT_PERIOD: Duration = Duration::from_secs(1);
/// Connections that one answer lists.
const CONNECTIONS_MAX: usize = 1000;

impl Worker {
    pub(super) fn arm_report(&mut self) {
        if !self.report_armed {
            self.report_armed = true;
            self.deadlines.arm(self.now.mono + REPORT_PERIOD, Timer::Report);
        }
    }

    pub(super) fn report(&mut self) {
        self.report_armed = false;
        let span = self.now.mono.saturating_duration_since(self.busy_since).as_micros().max(1);
        let busy = self.busy.as_micros().saturating_mul(1000).checked_div(span).unwrap_or(0).min(1000);
        self.busy = Duration::ZERO;
        self.busy_since = self.now.mono;
        let report = Report {
            sources: self.sources.iter().filter_map(|(&id, count)| self.source_figures(id, *count)).collect(),
            viewers: self.streams.values().map(|stream| (stream.id, self.viewers(stream))).collect(),
            leased: self.polled.leases.counts().collect(),
            busy_permille: u16::try_from(busy).unwrap_or(1000),
        };
        if !self.streams.is_empty() {
            self.arm_report();
        }
        self.tell(ToControl::Report(self.id, report));
    }

    fn source_figures(&self, stream: StreamId, count: SourceCount) -> Option<SourceFigures> {
        let tracks = self.streams.get(&stream)?.tracks();
        let size = tracks.video().and_then(|track| track.config.picture_size());
        let (width, height) = size.unwrap_or((0, 0));
        let silent = count.last_unit.map_or(Duration::MAX, |at| self.now.mono.saturating_duration_since(at));
        Some(SourceFigures {
            stream,
            received_bytes: count.received_bytes,
            position: count.position,
            epoch: tracks.epoch,
            width,
            height,
            video_codec: tracks.video().map(|track| track.config.codec()),
            dropped: count.dropped,
            silent_ms: u64::try_from(silent.as_millis()).unwrap_or(u64::MAX),
        })
    }

    fn viewers(&self, stream: &Stream) -> u32 {
        let is_viewer = |conn: &Conn| matches!(conn.purpose, Purpose::Peer | Purpose::Ended);
        let viewers = stream.subscribers.iter().filter(|one| self.conns.get(one.conn).is_some_and(is_viewer));
        u32::try_from(viewers.count()).unwrap_or(u32::MAX)
    }

    /// A connection may turn out to be something else, such as a viewer. What it carried before stays with what it
    /// was: counters do not fall.
    pub(super) fn rename(&mut self, id: ConnId, protocol: &'static str) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let figures = &mut conn.figures;
        if figures.protocol == protocol {
            return;
        }
        if let Some(row) = Traffic::row(&mut self.traffic, figures.protocol) {
            figures.count_into(row);
        }
        figures.counted = (figures.bytes_in, figures.bytes_out);
        figures.protocol = protocol;
    }

    /// Collects all figures for a scrape.
    pub(super) fn measure(&mut self, per_stream: bool) {
        let mut traffic = self.traffic.clone();
        for conn in self.conns.values() {
            if let Some(row) = Traffic::row(&mut traffic, conn.figures.protocol) {
                row.open = row.open.saturating_add(1);
                conn.figures.count_into(row);
            }
        }
        let mut counters = self.stats.clone();
        let playing = self.conns.values().flat_map(Conn::playing);
        let jumps = playing.map(|playing| playing.subscriber.jumps);
        counters.jumps = jumps.fold(counters.jumps, u64::saturating_add);
        let subscribers: usize = self.streams.values().map(|stream| stream.subscribers.len()).sum();
        let figures = WorkerFigures {
            counters,
            turns: self.turns.clone(),
            traffic,
            forwarding: self.forwarding.clone(),
            totals: self.totals(),
            connections: if per_stream { self.connection_figures(None) } else { Vec::new() },
            mail_waiting: count(self.mail_waiting),
            write_queue: count(self.writes.len()),
            deadlines: count(self.deadlines.len()),
            streams: count(self.streams.len()),
            subscribers: count(subscribers),
            ring_bytes: count(self.retained_bytes()),
            per_stream: if per_stream { self.stream_figures() } else { Vec::new() },
        };
        self.tell(ToControl::Measured(self.id, Box::new(figures)));
    }

    /// The totals of connections, including those that have ended.
    fn totals(&self) -> Vec<Totals> {
        let mut totals = self.totals_ended.clone();
        let figures = self.conns.values().filter_map(|conn| conn.session.figures());
        figures.for_each(|figures| Totals::add(&mut totals, &*figures));
        totals
    }

    /// A session is gone: what it counted stays.
    pub(super) fn count_ended(&mut self, conn: &Conn) {
        if let Some(figures) = conn.session.figures() {
            Totals::add(&mut self.totals_ended, &*figures);
        }
    }

    /// The connections of one stream, or of all, that have figures.
    fn connection_figures(&self, wanted: Option<StreamId>) -> Vec<ConnectionFigures> {
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
            let key = self.streams.get(&stream)?.key.clone();
            let figures = conn.session.figures()?;
            Some(ConnectionFigures { key, role, peer: conn.peer, figures })
        };
        self.conns.values().filter_map(figures).take(CONNECTIONS_MAX).collect()
    }

    /// The connections of a stream that have figures, for the API.
    pub(super) fn tell_connections(&mut self, stream: StreamId) {
        let connections = self.connection_figures(Some(stream));
        self.tell(ToControl::Connections { worker: self.id, stream, connections });
    }

    fn stream_figures(&self) -> Vec<StreamFigures> {
        let figures = |stream: &Stream| StreamFigures {
            key: stream.key.clone(),
            subscribers: count(stream.subscribers.len()),
            received_bytes: self.sources.get(&stream.id).map(|source| source.received_bytes),
            ring_bytes: count(stream.retained_bytes()),
        };
        self.streams.values().map(figures).collect()
    }
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
