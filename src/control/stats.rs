//! Live figures: the reports that workers send each second, used for the records and the admission guard.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::config::ServerSettings;
use crate::mail::{Report, ViewerCounts};
use crate::types::{Now, StreamId, WorkerId};

use super::connections::ConnectionQuestions;
use super::context::Context;
use super::history::History;
use super::live::{Live, Registry};
use super::metrics::Scrape;
use super::records::Records;
use super::{Control, Files, Outbound, audience};
use crate::stats::{ControlFigures, FileFigures, HostFigures, JobCounts, PlayerCounts, Reception};

/// Number of load reports per worker over which the admission guard averages. They cover five seconds.
const LOAD_REPORTS: usize = 5;

/// Age after which reports are ignored. A worker without streams sends no reports, so its last one must expire.
const LOAD_AGE: Duration = Duration::from_secs(6);

/// The load of the workers.
#[derive(Debug)]
pub(super) struct Load {
    workers: Vec<VecDeque<(Instant, u16)>>,
    pub(super) memory_percent: u8,
}

impl Load {
    pub(super) fn new(workers: u16) -> Self {
        Self { workers: vec![VecDeque::new(); usize::from(workers)], memory_percent: 0 }
    }

    fn note(&mut self, now: Now, worker: WorkerId, permille: u16) {
        let Some(reports) = self.workers.get_mut(usize::from(worker.0)) else { return };
        reports.push_back((now.mono, permille));
        if reports.len() > LOAD_REPORTS {
            reports.pop_front();
        }
    }

    /// Returns the number of workers.
    pub(super) fn workers(&self) -> u16 {
        u16::try_from(self.workers.len()).unwrap_or(u16::MAX)
    }

    /// Returns the mean load of all workers over five seconds, in parts per thousand.
    pub(super) fn busy_permille(&self, now: Now) -> u64 {
        let fresh = |at: Instant| now.mono.saturating_duration_since(at) <= LOAD_AGE;
        let reports = self.workers.iter().flatten().filter(|(at, _)| fresh(*at));
        let sum: u64 = reports.map(|(_, permille)| u64::from(*permille)).sum();
        sum / (self.workers.len().max(1) as u64 * LOAD_REPORTS as u64)
    }

    /// Returns the last load of a worker, in parts per thousand; 0 without a recent report.
    pub(super) fn latest_permille(&self, now: Now, worker: WorkerId) -> u64 {
        let last = self.workers.get(usize::from(worker.0)).and_then(VecDeque::back);
        let fresh = last.filter(|(at, _)| now.mono.saturating_duration_since(*at) <= LOAD_AGE);
        fresh.map_or(0, |(_, permille)| u64::from(*permille))
    }

    /// True if new publishers are refused (docs/robustness.md).
    pub(super) fn is_high(&self, now: Now, server: &ServerSettings) -> bool {
        let busy = server.cpu_limit < 100 && self.busy_permille(now) > u64::from(server.cpu_limit) * 10;
        let full = server.memory_limit < 100 && self.memory_percent > server.memory_limit;
        busy || full
    }
}

/// The figures of the machine and its load, and the requests that wait for figures.
#[derive(Debug)]
pub(super) struct Figures {
    /// Figures of the machine, at most a second old.
    pub(super) host: HostFigures,
    /// Figures of the job service, at most a second old.
    pub(super) jobs: Vec<JobCounts>,
    /// Time of the server's start.
    pub(super) began: Now,
    pub(super) scrape: Scrape,
    /// Counts of reports from players.
    pub(super) players: PlayerCounts,
    pub(super) history: History,
    pub(super) connections: ConnectionQuestions,
}

impl Figures {
    pub(super) fn new(now: Now) -> Self {
        Self {
            host: HostFigures::default(),
            jobs: Vec::new(),
            began: now,
            scrape: Scrape::default(),
            players: PlayerCounts::default(),
            history: History::default(),
            connections: ConnectionQuestions::default(),
        }
    }
}

impl Files {
    fn figures(&self) -> FileFigures {
        let (s3_uploads, s3_failures) = self.objects.counts();
        let (local, objects) = (self.recordings.removals(), self.objects.removals());
        FileFigures {
            s3_waiting: self.objects.waiting(),
            s3_uploads,
            s3_failures,
            removals_waiting: local.0.saturating_add(objects.0),
            removal_failures: local.1.saturating_add(objects.1),
        }
    }
}

impl Control {
    /// Returns the current figures.
    #[must_use]
    pub fn stats(&self) -> ControlFigures {
        let viewers = self.registry.all().flat_map(Live::viewers);
        let (pushes_broadcasting, pulls_broadcasting) = self.outbound.supervisor.broadcasting();
        ControlFigures {
            records: self.records.total(),
            live: self.registry.len(),
            pushes: self.outbound.pushes.len(),
            pushes_broadcasting,
            pulls: self.outbound.sources.len(),
            pulls_broadcasting,
            recordings: self.files.recordings.len(),
            recording_failures: self.files.recordings.failures(),
            files: self.files.figures(),
            viewers: viewers.map(ViewerCounts::total).sum(),
            store_failures: self.records.writes.store_failures(),
            store_waiting: self.records.writes.waiting_writes(),
            memory_percent: self.cx.load.memory_percent,
            disk: self.figures.host.disk,
            hooks_waiting: self.hooks.waiting(),
            hooks: self.hooks.counts(),
            asks_waiting: self.access.admissions.len(),
            certificate_expires_ms: self.figures.host.certificate_expires_ms,
        }
    }

    pub(super) fn report(&mut self, now: Now, worker: WorkerId, report: &Report) {
        self.cx.load.note(now, worker, report.busy_permille);
        self.hooks.watch_load(&mut self.cx, &self.registry, &self.figures, now);
        self.registry.note_standbys(report);
        for figures in &report.sources {
            self.registry.note_source(&mut self.cx, &self.records, &mut self.files, worker, figures);
            self.check_acceptance(now, figures.stream);
        }
        let mut streams = self.registry.set_viewers(worker, report);
        streams.extend(self.registry.of_worker(worker));
        for stream in streams {
            self.registry.refresh_record(
                &mut self.cx,
                &mut self.records,
                &mut self.outbound,
                now,
                (worker, stream),
            );
        }
    }
}

impl Registry {
    /// Copies the figures of a stream to its record.
    fn refresh_record(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        outbound: &mut Outbound,
        now: Now,
        (worker, stream): (WorkerId, StreamId),
    ) {
        // The node that has the publisher keeps the record of a copied stream.
        let Some(live) = self.get(&stream) else { return };
        if live.is_copy() && !live.is_view() {
            if let Some((worker, news)) = audience::news(self, &mut outbound.sources, stream) {
                cx.post(worker, news);
            }
            return;
        }
        let Some(record) = records.get_mut(&live.key) else { return };
        let counts = cx.apps.get(&live.key.app).is_none_or(|app| app.security.viewer_counts);
        let sum = |count: &dyn Fn(&ViewerCounts) -> u32| {
            let viewers: u64 = live.viewers().filter(|_| counts).map(|counts| u64::from(count(counts))).sum();
            i32::try_from(viewers).unwrap_or(i32::MAX)
        };
        let counted = |protocol| sum(&|counts| counts.counted(protocol));
        let has_changed = record.count_viewers(
            sum(&|counts| counts.connected.saturating_add(counts.elsewhere.connected)),
            counted,
        );
        if has_changed && records.writes.keeps_all() {
            // Store the changed counts, because other nodes show them and apply limits to them.
            records.writes.mark_dirty(now, live.key.clone());
        }
        let Some(record) = records.get_mut(&live.key) else { return };
        if live.is_view() || live.source().worker != worker || !super::registry::is_delivered(live) {
            return;
        }
        record.touch(now);
        let lasted = now.mono.saturating_duration_since(live.began).as_millis();
        record.duration = i64::try_from(lasted).unwrap_or(i64::MAX);
        let Some(figures) = &live.received.figures else { return };
        let bytes = live.received.bytes_before.saturating_add(figures.received_bytes);
        record.received_bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        // The average in bit/s since the start. As in Ant Media Server, it is computed from whole seconds by integer
        // division.
        record.bitrate =
            record.received_bytes.checked_div(record.duration / 1000).unwrap_or(0).saturating_mul(8);
        let (width, height) = figures.size;
        record.width = i32::try_from(width).unwrap_or(0);
        record.height = i32::try_from(height).unwrap_or(0);
        record.drop_packet_count_in_ingestion = i32::try_from(figures.dropped).unwrap_or(i32::MAX);
        let Reception { expected, lost, rtt_ms, jitter_ms } = figures.reception;
        record.packets_lost = i32::try_from(lost).unwrap_or(i32::MAX);
        record.packet_lost_ratio = lost_ratio(lost, expected);
        record.rtt_ms = i32::try_from(rtt_ms).unwrap_or(i32::MAX);
        record.jitter_ms = i32::try_from(jitter_ms).unwrap_or(i32::MAX);
        let from = live.granted.from;
        let passed_ms = now.mono.saturating_duration_since(live.granted.at).as_millis();
        let from = if from.started { from.dts_ms } else { 0 };
        let media_ms = figures.position.dts_ms.saturating_sub(from).saturating_sub(figures.clock.made_up_ms);
        record.speed = speed(media_ms, passed_ms);
        let dropped = (record.drop_packet_count_in_ingestion, record.packet_lost_ratio);
        let (received_bytes, speed) = (record.received_bytes, record.speed);
        if let Some(live) = self.get_mut(&stream) {
            live.sample(now, received_bytes, speed, dropped);
        }
    }
}

/// Returns the share of lost packets, with six decimals. Capped at 1, since a packet that is sent again may be lost
/// again and is then counted twice.
fn lost_ratio(lost: u64, expected: u64) -> f64 {
    let millionths = lost.saturating_mul(1_000_000).checked_div(expected).unwrap_or(0).min(1_000_000);
    #[allow(clippy::cast_precision_loss, reason = "at most a million")]
    let ratio = millionths as f64 / 1_000_000.0;
    ratio
}

/// Returns the ratio of media time to elapsed time, with three decimals.
fn speed(media_ms: i64, passed_ms: u128) -> f64 {
    let passed = i64::try_from(passed_ms).unwrap_or(i64::MAX);
    let permille = media_ms.max(0).saturating_mul(1000).checked_div(passed).unwrap_or(0);
    #[allow(clippy::cast_precision_loss, reason = "a ratio of a few digits")]
    let speed = permille.min(1_000_000) as f64 / 1000.0;
    speed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_is_a_mean_over_workers_and_seconds() {
        let server = ServerSettings::with(&[]).unwrap();
        let mut load = Load::new(2);
        let mut now = Now { mono: Instant::now(), wall_ms: 0 };
        for _ in 0..9 {
            load.note(now, WorkerId(0), 1000);
        }
        assert_eq!((load.busy_permille(now), load.is_high(now, &server)), (500, false));
        for _ in 0..5 {
            load.note(now, WorkerId(1), 960);
        }
        assert!(load.is_high(now, &server));
        assert!(!load.is_high(now, &ServerSettings::with(&[("server.cpu_limit", "100")]).unwrap()));
        // A worker without streams sends no reports, so the last one must expire.
        now.mono += Duration::from_secs(7);
        assert!(!load.is_high(now, &server));
        let mut load = Load::new(1);
        load.memory_percent = 76;
        assert!(load.is_high(now, &server));
        let limit = ServerSettings::with(&[("server.memory_limit_percentage", "76")]).unwrap();
        assert!(!load.is_high(now, &limit));
    }

    #[test]
    fn a_ratio_of_losses_is_between_none_and_all() {
        assert_eq!([(0, 0), (1, 0), (1, 8), (9, 8)].map(|(n, of)| lost_ratio(n, of)), [0.0, 0.0, 0.125, 1.0]);
    }

    #[test]
    fn speed_has_three_decimals() {
        assert_eq!((speed(1001, 1000), speed(500, 3000), speed(5, 0)), (1.001, 0.166, 0.0));
    }
}
