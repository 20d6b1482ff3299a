//! Sources that start or stop by themselves. They start on a viewer's request, at a planned time, or at the server's
//! start if they ran before or should always run. They stop when nobody watches.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Outbound;
use super::broadcast::Broadcast;
use super::context::Context;
use super::outgoing::Outgoing;
use super::playlists::is_playable;
use super::records::Records;
use super::sources::is_source;
use crate::mail::{StreamEnd, ToWorker};
use crate::types::{Now, StreamKey};

/// Time without viewers after which a source that a viewer started stops.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Interval at which timeouts of sources are checked.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// True if viewers may start the source of a record.
fn starts_by_viewer(record: &Broadcast) -> bool {
    record.auto_start_stop_enabled
        && (is_playable(record) || is_source(&record.kind) && record.stream_url.is_some())
}

/// True if a source should run without a viewer's request: it was started and not stopped, or its application starts
/// all its sources.
pub(super) fn is_wanted(cx: &Context, records: &Records, key: &StreamKey) -> bool {
    let starts_all = cx.apps.get(&key.app).is_some_and(|app| app.start_sources);
    records.get(key).is_some_and(|record| record.source_wanted || starts_all)
}

impl Outbound {
    /// Informs the workers whether viewers may start a stream, if that has changed.
    pub(super) fn note_auto_start(&mut self, cx: &mut Context, records: &Records, key: &StreamKey) {
        let on = cx.apps.contains_key(&key.app) && records.get(key).is_some_and(starts_by_viewer);
        let changed = if on {
            self.sources.auto_start.insert(key.clone())
        } else {
            self.sources.auto_start.remove(key)
        };
        if changed {
            cx.post_all(&ToWorker::AutoStart(vec![(key.clone(), on)]));
        }
    }

    /// Returns true if timeouts of sources should be checked now. As long as there is something to check, schedules
    /// the next check after [`TICK`].
    pub(super) fn poll_tick(&mut self, now: Now) -> bool {
        let is_due = self.sources.tick.is_some_and(|at| at <= now.mono);
        if is_due {
            let sources = &self.sources;
            let idle = sources.by_id.is_empty() && sources.planned.is_empty() && !sources.held_back.is_due();
            self.sources.tick = if idle { None } else { now.mono.checked_add(TICK) };
        }
        is_due
    }
}

impl Outgoing<'_> {
    /// Stops sources that nobody watches, restarts sources whose restart period is over, and ends copies that have been
    /// without media for too long.
    pub(super) fn stop_idle_sources(&mut self) {
        let (mut idle, mut aged, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        for (key, id) in &self.outbound.sources.by_key {
            let Some(source) = self.outbound.sources.by_id.get_mut(id) else { continue };
            let live = self.registry.find(key).and_then(|stream| self.registry.get(&stream));
            if live.is_some_and(|live| live.viewers().any(crate::mail::ViewerCounts::is_any)) {
                source.watched = self.now.mono;
            }
            let age = |since: Instant| self.now.mono.saturating_duration_since(since);
            let is_over = |period| age(source.began) >= period;
            let idle_max = match source.copying {
                Some(_) => Some(self.cx.config.server.edge_linger()),
                None => self.records.get(key).filter(|one| one.auto_start_stop_enabled).map(|_| IDLE_MAX),
            };
            if idle_max.is_some_and(|idle_max| age(source.watched) >= idle_max) {
                idle.push(key.clone());
            } else if let Some(copying) = &source.copying {
                lost.extend(copying.is_lost(self.now.mono).then(|| key.clone()));
            } else if source.playlist.is_none()
                && self.cx.apps.get(&key.app).and_then(|app| app.restart_sources).is_some_and(is_over)
            {
                aged.push(key.clone());
            }
        }
        for key in idle {
            self.stop_source(&key, StreamEnd::Stopped);
        }
        for key in aged {
            self.restart_source(&key);
        }
        for key in lost {
            self.end_copy(&key, false);
        }
    }

    /// Handles a viewer who waits for an absent stream.
    pub(super) fn wanted(&mut self, key: &StreamKey, via: Vec<String>) {
        if let Some(id) = self.outbound.sources.by_key.get(key) {
            if let Some(source) = self.outbound.sources.by_id.get_mut(id) {
                source.watched = self.now.mono;
            }
            return;
        }
        if self.registry.is_live(key) {
            return;
        }
        // A source that runs at another node is copied from there, like any stream.
        let is_elsewhere = self.registry.cluster.elsewhere(key).is_some();
        if is_elsewhere || !self.records.get(key).is_some_and(starts_by_viewer) {
            // A publisher here has claimed the id and is about to be admitted.
            let is_coming = !is_elsewhere && self.registry.cluster.is_claimed_here(key);
            if !is_coming && !self.begin_view(key) && !self.fetch_copy(key, via) {
                self.cx.post_all(&ToWorker::NotComing(key.clone()));
            }
            return;
        }
        if let Err(reason) = self.begin_source(key) {
            tracing::info!(%key, reason, "source requested by a viewer not started");
            self.cx.post_all(&ToWorker::NotComing(key.clone()));
        }
    }

    /// Handles an application that was added, changed or removed: its sources start or stop.
    pub(super) fn app_changed(&mut self, name: &Arc<str>) {
        if !self.cx.apps.contains_key(name) {
            let running = self.outbound.sources.by_key.keys().filter(|key| key.app == *name);
            for key in running.cloned().collect::<Vec<_>>() {
                self.stop_source(&key, StreamEnd::Deleted);
            }
            self.outbound.sources.held_back.remove_app(name);
        }
        if self.cx.apps.contains_key(name) {
            self.begin_wanted(name);
        }
        let known = self.outbound.sources.auto_start.iter().filter(|key| key.app == *name);
        let starting = self.records.behind(name, None).filter(|(_, record)| starts_by_viewer(record));
        let starting = starting.map(|(id, _)| StreamKey { app: name.clone(), id: id.clone() });
        let keys: BTreeSet<StreamKey> = known.cloned().chain(starting).collect();
        keys.iter().for_each(|key| self.outbound.note_auto_start(self.cx, self.records, key));
    }

    /// Starts the sources of an application that was absent until now.
    fn begin_wanted(&mut self, app: &Arc<str>) {
        let wanted = self.records.behind(app, None).filter(|(_, record)| record.source_wanted);
        let keys = wanted.map(|(id, _)| StreamKey { app: app.clone(), id: id.clone() });
        let keys: Vec<_> = keys
            .filter(|key| !self.outbound.sources.is_running(key) && !self.registry.is_live(key))
            .collect();
        keys.iter().for_each(|key| self.begin_or_hold_back(key));
    }

    /// Registers the sources that viewers may start. Starts the sources that ran when the server last ended, and those
    /// that should always run.
    pub(super) fn boot_sources(&mut self) {
        let auto = self.records.all().filter(|(_, record)| starts_by_viewer(record));
        self.outbound.sources.auto_start = auto.map(|(key, _)| key).collect();
        if !self.outbound.sources.auto_start.is_empty() {
            let all = self.outbound.sources.auto_start.iter().map(|key| (key.clone(), true)).collect();
            self.cx.post_all(&ToWorker::AutoStart(all));
        }
        let planned = self.records.all().filter(|(_, record)| record.planned_start_date > 0);
        for key in planned.map(|(key, _)| key).collect::<Vec<_>>() {
            self.outbound.note_planned(self.records, self.now, &key);
        }
        let starts = |app: &StreamKey| self.cx.apps.get(&app.app).is_some_and(|app| app.start_sources);
        let is_due = |key: &StreamKey| !self.outbound.sources.planned.contains_key(key);
        let is_source = |record: &Broadcast| is_source(&record.kind) || is_playable(record);
        let runs = |key: &StreamKey, record: &Broadcast| record.source_wanted || starts(key);
        let all = self.records.all();
        let all = all.filter(|(key, record)| is_source(record) && runs(key, record) && is_due(key));
        for key in all.map(|(key, _)| key).collect::<Vec<_>>() {
            self.begin_or_hold_back(&key);
        }
    }
}
