//! Stream sources: records whose stream this server pulls (docs/rest.md; docs/robustness.md, U-02).
//!
//! 1. A start (over the API, by a viewer, or with the server) reserves the id: no encoder may publish to it.
//! 2. The `supervisor` times the attempts. A worker makes the attempt: the one that has the stream, so that the stream
//!    need not move, or else the least loaded one. The status is `preparing`.
//! 3. The first media of an attempt are handled like a request to publish (`registry`): in the first attempt the stream
//!    goes live, in a later one it continues with its clock, viewers and pushes. The status is `broadcasting`.
//! 4. After an attempt, the status is `finished` until the next one. The stream stays live as long as the source runs.
//!    In a playlist, the next attempt is that of the next item (`playlists`).
//! 5. A stop, a delete, or ten seconds without a viewer (`autoStartStopEnabled`) end the stream.
//!
//! A stream is live only from its first media on. Streams that are pulled from each other in a circle therefore never
//! go live.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::Context;
use super::live::Registry;
use crate::auth::{UrlError, redact, redact_reason};
use crate::config::AppSettings;
use crate::control::records::Records;
use crate::control::{ControlConfig, Outbound};
use crate::mail::{
    Grant, NextAddress, NextServer, PublishRequest, PullOrder, PullState, Refusal, StreamEnd, Target,
    ToWorker,
};
use crate::protocol::{FILE_RESERVE, outbound};
use crate::types::{Ingest, Now, PullId, StreamKey, WorkerId};

use super::broadcast::{Broadcast, status};
use super::copies::{Absent, Copying};
use super::held_back::HeldBack;
use super::names::{Asker, Name};
use super::outgoing::Outgoing;
use super::playlists::{Playlist, is_playable};
use super::repeats::Repeat;
use super::supervisor::{Job, RemoteHost, allowed};
use super::wanted::TICK;
use super::{Control, wall};

/// Load that a new pull is assumed to add to a worker, in parts per thousand, until a report has the actual one.
const PULL_PERMILLE: u64 = 10;

/// Origin of a source's media.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) url: String,
    pub(super) target: Target,
    /// Duration skipped at the beginning of a file.
    pub(super) skip: Duration,
}

impl Origin {
    /// Returns the URL as logged: without secrets, or the whole path of a file.
    pub(super) fn shown(&self) -> String {
        if self.url.contains("://") { redact(&self.url) } else { self.url.clone() }
    }
}

/// The starting point of a source.
#[derive(Debug)]
pub(super) struct Beginning {
    /// Index of the playlist item to begin with; `None` if the record is not a playlist.
    item: Option<usize>,
    origin: Origin,
}

/// A running source.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) key: StreamKey,
    pub(super) origin: Origin,
    /// Time at which the source, or its last periodic restart, began.
    pub(super) began: Instant,
    /// Time of the last known viewer; initially the time at which the source began.
    pub(super) watched: Instant,
    /// Position in a file at which the next attempt begins, after a seek.
    sought: Option<Duration>,
    /// Time at which real-time playback reaches the end of the media received so far.
    pub(super) seen: Instant,
    /// State of the playlist, if the source is a playlist.
    pub(super) playlist: Option<Playlist>,
    /// Nodes to fetch from, if the source is a copy of another node's stream.
    pub(super) copying: Option<Copying>,
}

impl Source {
    fn new(now: Now, key: &StreamKey, origin: Origin) -> Self {
        let at = now.mono;
        let (playlist, copying) = (None, None);
        Self { key: key.clone(), origin, began: at, watched: at, sought: None, seen: at, playlist, copying }
    }

    /// Makes the source of a copy.
    pub(super) fn copy(now: Now, key: &StreamKey, origin: Origin, copying: Copying) -> Self {
        Self { copying: Some(copying), ..Self::new(now, key, origin) }
    }
}

/// The running sources, and the streams that viewers may start.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pub(super) by_id: BTreeMap<PullId, Source>,
    pub(super) by_key: BTreeMap<StreamKey, PullId>,
    pub(super) auto_start: BTreeSet<StreamKey>,
    pub(super) absent: Absent,
    /// Sources that should run, but wait for resources or for their id.
    pub(super) held_back: HeldBack,
    /// Playlists with a planned start, in seconds of Unix time.
    pub(super) planned: BTreeMap<StreamKey, u64>,
    pulls: u64,
    pub(super) tick: Option<Instant>,
}

impl Sources {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.tick
    }

    pub(super) fn is_running(&self, key: &StreamKey) -> bool {
        self.by_key.contains_key(key)
    }

    pub(super) fn find(&self, key: &StreamKey) -> Option<&Source> {
        self.by_id.get(self.by_key.get(key)?)
    }

    /// Counts the running sources of an application.
    pub(super) fn count(&self, app: &str) -> usize {
        self.by_key.range(StreamKey::new(app, "")..).take_while(|(key, _)| &*key.app == app).count()
    }

    /// Counts the running sources of an application that have no stream yet. They count as live streams, unless they
    /// fetch copies.
    pub(super) fn waiting(&self, app: &str, is_live: impl Fn(&StreamKey) -> bool) -> usize {
        let of_app = self.by_key.range(StreamKey::new(app, "")..).take_while(|(key, _)| &*key.app == app);
        let is_copy = |id: &PullId| self.by_id.get(id).is_some_and(|source| source.copying.is_some());
        of_app.filter(|(key, id)| !is_live(key) && !is_copy(id)).count()
    }
}

/// True if records of this type are pulled.
pub(super) fn is_source(kind: &str) -> bool {
    matches!(kind, "streamSource" | "ipCamera" | "VoD")
}

impl Outbound {
    /// Prepares to leave a file before its end, for a seek or for another item. The next attempt must know how far the
    /// media are ahead of real time, but the worker would report the exact lead too late. The largest possible lead is
    /// therefore assumed. Otherwise each seek would move the stream further ahead.
    pub(super) fn leave_file(&mut self, now: Now, key: &StreamKey) {
        let Some(id) = self.sources.by_key.get(key).copied() else { return };
        if self.supervisor.is_steady(Job::Pull(id))
            && let Some(source) = self.sources.by_id.get_mut(&id)
        {
            source.seen = now.mono.checked_add(FILE_RESERVE).unwrap_or(now.mono);
        }
    }
}

impl Records {
    /// Sets the status of a source to `preparing` or `finished`.
    pub(super) fn source_status(&mut self, now: Now, key: &StreamKey, status: &str) {
        let Some(record) = self.get_mut(key) else { return };
        record.touch(now);
        if status == status::PREPARING && record.status != status {
            record.start_time = wall(now);
        }
        status.clone_into(&mut record.status);
        // Viewers with a connection stay connected while the source is retried, and stay counted. Other viewers do not.
        record.forget_polling_viewers();
    }
}

impl ControlConfig {
    /// Parses a URL, or the path of a local file. A URL that this server itself serves becomes the local file.
    fn read_source(&self, key: &StreamKey, url: &str) -> Result<Target, UrlError> {
        if outbound::is_own_path(url) {
            return outbound::read_own_path(url, &key.app);
        }
        let is_own = |host: &str, port| self.outbound.own_ports.contains(&port) && self.is_own_host(host);
        match outbound::read_own_url(url, &key.app, is_own)? {
            Some(target) => Ok(target),
            None => outbound::read_source(url),
        }
    }
}

impl Records {
    /// Stores in the record whether the source should run after the next start of the server.
    pub(super) fn source_wanted(&mut self, now: Now, key: &StreamKey, wanted: bool) {
        if let Some(record) = self.get_mut(key) {
            record.source_wanted = wanted;
        }
        self.writes.mark_dirty(now, key.clone());
    }
}

impl Context {
    /// Returns the target of a record's URL; the error says why it cannot be pulled.
    pub(super) fn source_target(&self, key: &StreamKey, url: &str) -> Result<Target, String> {
        let target = match self.config.read_source(key, url) {
            Ok(target) => target,
            Err(UrlError::Scheme) => {
                return Err("The scheme of the stream url is not supported by this version".to_owned());
            }
            Err(error @ UrlError::Unsupported(_)) => return Err(error.to_string()),
            Err(error) => return Err(format!("Stream url is not valid: {error}")),
        };
        if target.is_file() {
            return Ok(target);
        }
        if self.config.is_loop(key, &target) {
            return Err("The stream would be pulled from itself".to_owned());
        }
        if let Ok(address) = target.host.parse()
            && !target.listens()
        {
            let denied = self.config.outbound.check(SocketAddr::new(address, target.port)).err();
            if let Some(denied) = denied {
                return Err(format!("The stream url is denied: {denied}"));
            }
        }
        Ok(target)
    }

    /// Returns the target of a record's URL, with the duration to skip.
    fn origin_of(&self, key: &StreamKey, record: &Broadcast) -> Result<Origin, String> {
        let url = record.stream_url.clone().unwrap_or_default();
        let target = self.source_target(key, &url)?;
        let skip = u64::try_from(record.seek_time_in_ms).unwrap_or(0);
        Ok(Origin { url, target, skip: Duration::from_millis(skip) })
    }

    /// Returns the first item and origin of a record's source; the error says why it cannot be pulled.
    pub(super) fn check_source(&self, records: &Records, key: &StreamKey) -> Result<Beginning, String> {
        let record = records.get(key).ok_or("There is no such broadcast")?;
        if is_playable(record) {
            let (item, origin) = records.first_item(self, key)?;
            return Ok(Beginning { item: Some(item), origin });
        }
        Ok(Beginning { item: None, origin: self.origin_of(key, record)? })
    }
}

impl Outbound {
    /// True if a limit or the load prevents another source that is not a copy.
    pub(super) fn is_short_for_source(
        &self,
        cx: &Context,
        registry: &Registry,
        now: Now,
        app: &AppSettings,
    ) -> bool {
        let limit = app.limits.streams.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        self.is_short_for_copy(cx, now, app)
            || limit.is_some_and(|limit| self.streams_of(registry, &app.name) >= limit)
    }

    /// True if a limit or the load prevents another copy. Copies do not count for `ingestingStreamLimit`, so that
    /// viewers do not keep out publishers.
    pub(super) fn is_short_for_copy(&self, cx: &Context, now: Now, app: &AppSettings) -> bool {
        !self.has_room_for_source(cx, &app.name) || cx.load.is_high(now, &cx.config.server)
    }

    /// Counts the live streams of an application, including those expected from its sources, without copies of other
    /// nodes' streams.
    pub(super) fn streams_of(&self, registry: &Registry, app: &str) -> usize {
        let waiting = self.sources.waiting(app, |key| registry.is_live(key));
        registry.count_own(app).saturating_add(registry.standbys(app)).saturating_add(waiting)
    }

    /// Notes the status of a source in its record. Does nothing for a copy, which has no record here.
    fn source_status(&self, records: &mut Records, now: Now, key: &StreamKey, status: &str) {
        if !self.sources.is_copying(key) {
            records.source_status(now, key, status);
        }
    }

    fn least_loaded(&self, cx: &Context, now: Now) -> WorkerId {
        let mut pulls = vec![0u64; usize::from(cx.config.workers)];
        for worker in self.supervisor.open_pulls() {
            if let Some(count) = pulls.get_mut(usize::from(worker.0)) {
                *count = count.saturating_add(1);
            }
        }
        let load = |worker: u16| {
            let pulls = pulls.get(usize::from(worker)).copied().unwrap_or(0);
            cx.load.latest_permille(now, WorkerId(worker)).saturating_add(pulls.saturating_mul(PULL_PERMILLE))
        };
        WorkerId((0..cx.config.workers).min_by_key(|worker| load(*worker)).unwrap_or(0))
    }

    /// Sends the address of the next server to the worker whose attempt continues there, or the error if there is no
    /// usable address.
    pub(super) fn go_on(
        &self,
        cx: &mut Context,
        (pull, attempt): (PullId, u64),
        server: NextServer,
        resolved: Result<Vec<SocketAddr>, String>,
    ) {
        let job = Job::Pull(pull);
        let Some(worker) = self.supervisor.worker_of(job) else { return };
        if !self.supervisor.is_current(job, attempt) {
            return;
        }
        let address = resolved.and_then(|addresses| allowed(&addresses, 1, &cx.config.outbound));
        cx.post(worker, ToWorker::GoOn(Box::new(NextAddress { pull, attempt, server, address })));
    }

    /// Sets the status of a source to `preparing`, because its next attempt begins.
    pub(super) fn pull_attempts(&self, records: &mut Records, now: Now, id: PullId) {
        if let Some(key) = self.sources.by_id.get(&id).map(|source| source.key.clone()) {
            self.source_status(records, now, &key, status::PREPARING);
        }
    }

    /// Logs that the resolver has not answered yet about the host of a pull, and marks the source as finished.
    pub(super) fn pull_still_resolving(&mut self, records: &mut Records, now: Now, id: PullId) {
        let Some(source) = self.sources.by_id.get(&id) else { return };
        let key = source.key.clone();
        if self.supervisor.has_failed(Job::Pull(id)) {
            self.repeats.note(now, Repeat::Resolver, &key, &source.origin.shown());
        } else {
            tracing::info!(%key, url = source.origin.shown(), "DNS resolver not answering");
        }
        self.source_status(records, now, &key, status::FINISHED);
    }

    /// Forgets all sources at shutdown; workers close the connections themselves.
    pub(super) fn forget_sources(&mut self, records: &mut Records, registry: &Registry, now: Now) {
        for key in std::mem::take(&mut self.sources.by_key).into_keys() {
            let is_copy = self.sources.by_id.values().any(|one| one.key == key && one.copying.is_some());
            if !registry.is_live(&key) && !is_copy {
                records.source_status(now, &key, status::FINISHED);
                records.writes.mark_dirty(now, key);
            }
        }
        for (id, source) in std::mem::take(&mut self.sources.by_id) {
            self.supervisor.remove(Job::Pull(id));
            if source.playlist.is_some() {
                records.end_playlist(now, &source.key);
            }
        }
        self.sources.held_back.clear();
        self.sources.tick = None;
    }
}

impl Control {
    /// Publishes the stream of an attempt that has received media.
    pub(super) fn pull_media(
        &mut self,
        now: Now,
        request: PublishRequest,
        (id, attempt): (PullId, u64),
    ) -> Result<Grant, Refusal> {
        if self.cx.is_draining() {
            return Err(Refusal::Draining);
        }
        let source = self.outbound.sources.by_id.get(&id).filter(|source| source.key == request.key);
        let source = source.filter(|_| self.outbound.supervisor.is_current(Job::Pull(id), attempt));
        source.ok_or(Refusal::InUse)?;
        // Another node now has a stream with the room's id, so this view is refused. The next attempt fetches that
        // stream.
        if request.ingest == Ingest::ROOM_VIEW && self.registry.cluster.location(&request.key).is_some() {
            return Err(Refusal::InUse);
        }
        let settings = self.cx.apps.get(&request.key.app).cloned().ok_or(Refusal::NoApplication)?;
        self.outbound.supervisor.steady(now.mono, Job::Pull(id));
        self.outbound.sources.copy_lives(now.mono, &request.key);
        tracing::info!(key = %request.key, attempt, "source is delivering");
        match self.registry.find(&request.key) {
            Some(stream) if self.registry.is_taken_over(stream, &request) => {
                self.take_copy_over(now, stream, request)
            }
            Some(stream) => self
                .registry
                .return_pull(&mut self.cx, &mut self.records, &mut self.access, now, stream, request)
                .ok_or(Refusal::InUse),
            None => Ok(self.begin_stream(now, request, settings)),
        }
    }
}

impl Outgoing<'_> {
    /// Starts the source of a record. Returns before the source is known to be reachable; the record's status shows the
    /// result.
    ///
    /// # Errors
    /// The reason why the source cannot be pulled at all.
    pub(super) fn begin_source(&mut self, key: &StreamKey) -> Result<(), String> {
        let settings = self.cx.apps.get(&key.app).cloned().ok_or("There is no such application")?;
        let checked = self.cx.check_source(self.records, key)?;
        // A live stream that is a copy continues with this source.
        if self.outbound.sources.is_running(key)
            || (self.registry.is_live(key) && !self.outbound.is_copy(self.registry, key))
        {
            return Err("Stream is already active. It's already streaming or trying to connect".to_owned());
        }
        if let Some(node) = self.registry.cluster.elsewhere(key) {
            return Err(format!("Stream is already active at the node {}", node.id));
        }
        if self.registry.cluster.refuses() {
            return Err("The directory of the cluster is away".to_owned());
        }
        if self.cx.lets_in_nothing() {
            return Err("The server is draining".to_owned());
        }
        if self.outbound.is_short_for_source(self.cx, self.registry, self.now, &settings) {
            return Err("Not enough resource on server to start streaming.".to_owned());
        }
        self.run_source(key, checked);
        Ok(())
    }

    /// Runs a source without checking the limits.
    pub(super) fn run_source(&mut self, key: &StreamKey, Beginning { item, origin }: Beginning) {
        tracing::info!(%key, url = origin.shown(), "source started");
        let playlist = item.map(|index| self.outbound.begin_playlist(self.records, self.now, key, index));
        self.start_source(Source { playlist, ..Source::new(self.now, key, origin) });
        self.records.source_wanted(self.now, key, true);
    }

    /// Begins the first attempt of a source.
    pub(super) fn start_source(&mut self, source: Source) {
        self.outbound.sources.pulls = self.outbound.sources.pulls.saturating_add(1);
        let id = PullId(self.outbound.sources.pulls);
        let remote = match source.copying {
            Some(_) => RemoteHost::of_node(&source.origin.target),
            None => RemoteHost::of(&source.origin.target, self.cx.config.server.host),
        };
        let (key, is_copy) = (source.key.clone(), source.copying.is_some());
        if !is_copy {
            self.outbound.sources.held_back.remove(&key);
        }
        self.outbound.sources.by_key.insert(key.clone(), id);
        self.outbound.sources.by_id.insert(id, source);
        self.outbound.sources.tick = self.outbound.sources.tick.or_else(|| self.now.mono.checked_add(TICK));
        self.outbound.supervisor.add(Job::Pull(id), remote);
        if is_copy || self.registry.cluster.claim_source(&key, id) {
            self.attempt(Job::Pull(id));
        }
    }

    /// Ends a source and its stream. Returns whether the source was running.
    pub(super) fn stop_source(&mut self, key: &StreamKey, end: StreamEnd) -> bool {
        if !self.outbound.sources.is_copying(key) || matches!(end, StreamEnd::Deleted) {
            self.outbound.sources.held_back.remove(key);
        }
        let Some(id) = self.outbound.sources.by_key.remove(key) else { return false };
        let source = self.outbound.sources.by_id.remove(&id);
        // If another node has taken over the id, that node plays the playlist and writes its status.
        if end != StreamEnd::Superseded && source.as_ref().is_some_and(|source| source.playlist.is_some()) {
            self.records.end_playlist(self.now, key);
        }
        if let Some(worker) = self.outbound.supervisor.remove(Job::Pull(id)) {
            self.cx.post(worker, ToWorker::StopPull(id));
        }
        tracing::info!(%key, reason = ?end, "source stopped");
        let is_copy = source.is_some_and(|source| source.copying.is_some());
        self.registry.cluster.release_source(id);
        if end == StreamEnd::Superseded {
            if !is_copy && self.records.get(key).is_some_and(|record| record.source_wanted) {
                self.outbound.hold_back(self.now, key, self.registry.cluster.elsewhere(key).is_some());
            }
            if let Some(stream) = self.registry.find(key) {
                self.registry.end(self.cx, stream, end);
            }
            return true;
        }
        // Deleting an application does not clear `source_wanted`: if the application returns, its sources run again.
        if !is_copy && end != StreamEnd::Deleted {
            self.records.source_wanted(self.now, key, false);
        }
        match self.registry.find(key) {
            Some(stream) => self.registry.end(self.cx, stream, end),
            None if is_copy => {}
            None => self.records.source_status(self.now, key, status::FINISHED),
        }
        true
    }

    /// Ends the current attempt and begins another with the current record, while the stream continues. A playlist is
    /// not restarted, since it reads its record again after the current item.
    pub(super) fn restart_source(&mut self, key: &StreamKey) {
        let Some(source) = self.outbound.sources.find(key).filter(|source| source.playlist.is_none()) else {
            return;
        };
        let url = source.origin.shown();
        match self.records.get(key).map(|record| self.cx.origin_of(key, record)) {
            Some(Ok(origin)) => self.go_to(key, origin),
            Some(Err(reason)) => {
                tracing::info!(%key, url, reason, "source cannot continue");
                self.stop_source(key, StreamEnd::Stopped);
            }
            None => {}
        }
    }

    /// Restarts a playing file at the position `time`. Returns false if no file is playing.
    pub(super) fn seek(&mut self, key: &StreamKey, time: Duration) -> bool {
        let plays_files = |record: &Broadcast| record.kind == "VoD" || is_playable(record);
        let id =
            self.outbound.sources.by_key.get(key).filter(|_| self.records.get(key).is_some_and(plays_files));
        let Some(source) = id.and_then(|id| self.outbound.sources.by_id.get_mut(id)) else { return false };
        source.sought = Some(time);
        let origin = source.origin.clone();
        self.outbound.leave_file(self.now, key);
        self.go_to(key, origin);
        true
    }

    /// Ends the attempt of a source and begins one with another origin.
    pub(super) fn go_to(&mut self, key: &StreamKey, origin: Origin) {
        let Some(id) = self.outbound.sources.by_key.get(key).copied() else { return };
        let Some(source) = self.outbound.sources.by_id.get_mut(&id) else { return };
        let remote = RemoteHost::of(&origin.target, self.cx.config.server.host);
        source.origin = origin;
        source.began = self.now.mono;
        if let Some(worker) = self.outbound.supervisor.interrupt(Job::Pull(id), remote) {
            self.cx.post(worker, ToWorker::StopPull(id));
        }
        self.attempt(Job::Pull(id));
    }

    /// Orders a worker to make the attempt. If a worker has the stream already, that worker gets the order, so that it
    /// handles the end of the previous attempt first.
    pub(super) fn order_pull(&mut self, id: PullId, address: SocketAddr) {
        let Some(attempt) = self.outbound.supervisor.attempt_of(Job::Pull(id)) else { return };
        let Some(source) = self.outbound.sources.by_id.get_mut(&id) else { return };
        let (key, target) = (source.key.clone(), source.origin.target.clone());
        let via = source.copying.as_ref().map(|copying| copying.via().to_vec()).unwrap_or_default();
        let skip = source.sought.take().unwrap_or(source.origin.skip);
        let lead = source.seen.saturating_duration_since(self.now.mono);
        let live = self.registry.find(&key).and_then(|stream| self.registry.get(&stream));
        let worker = live
            .map(|live| live.source().worker)
            .unwrap_or_else(|| self.outbound.least_loaded(self.cx, self.now));
        self.outbound.source_status(self.records, self.now, &key, status::PREPARING);
        self.outbound.supervisor.open(Job::Pull(id), worker);
        let order = PullOrder { pull: id, attempt, key, address, target, lead, skip, via };
        self.cx.post(worker, ToWorker::StartPull(Box::new(order)));
    }

    pub(super) fn pull_news(&mut self, (id, attempt): (PullId, u64), state: PullState) {
        let Some(source) = self.outbound.sources.by_id.get(&id) else { return };
        if !self.outbound.supervisor.is_current(Job::Pull(id), attempt) {
            return;
        }
        match state {
            PullState::Preparing => {
                let key = source.key.clone();
                self.outbound.source_status(self.records, self.now, &key, status::PREPARING);
            }
            PullState::Failed(reason) => self.pull_failed(id, &reason),
            PullState::Over(reason) => self.copy_failed(id, (&reason, true)),
            PullState::Lost { reason, ahead } => {
                if let Some(source) = self.outbound.sources.by_id.get_mut(&id) {
                    source.seen = self.now.mono.checked_add(ahead).unwrap_or(self.now.mono);
                }
                self.pull_failed(id, &reason);
            }
        }
    }

    /// Continues an attempt at another server. The address of that server is checked like the address of the first one.
    pub(super) fn next_server(&mut self, (pull, attempt): (PullId, u64), server: NextServer) {
        if let Ok(address) = server.host.parse::<IpAddr>() {
            let remote = Ok(vec![SocketAddr::new(address, server.port)]);
            return self.outbound.go_on(self.cx, (pull, attempt), server, remote);
        }
        let Some(source) = self.outbound.sources.by_id.get(&pull) else { return };
        let (app, host, port) = (Arc::clone(&source.key.app), server.host.clone(), server.port);
        let name = Name { app: &app, host: &host, port };
        self.look_up(name, Asker::NextServer { pull, attempt, server });
    }

    pub(super) fn pull_failed(&mut self, id: PullId, reason: &str) {
        let Some(source) = self.outbound.sources.by_id.get(&id) else { return };
        let key = source.key.clone();
        let reason = &*redact_reason(reason, &source.origin.url);
        if source.playlist.is_some() {
            return self.item_over(id, reason);
        }
        if source.copying.is_some() {
            return self.copy_failed(id, (reason, false));
        }
        let failures =
            self.outbound.supervisor.failed(self.now.mono, Job::Pull(id), None, &mut self.cx.random);
        let url = source.origin.shown();
        if self.outbound.supervisor.is_news(Job::Pull(id), reason) || failures == Some(1) {
            tracing::info!(%key, url, reason, "pull failed; retrying");
        } else {
            tracing::debug!(%key, url, failures, reason, "pull failed");
            self.outbound.repeats.note(self.now, Repeat::Pull, &key, reason);
        }
        self.outbound.source_status(self.records, self.now, &key, status::FINISHED);
    }
}
