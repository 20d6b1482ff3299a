//! Stream sources: records whose stream this server pulls (docs/rest.md; docs/robustness.md, U-02).
//!
//! 1. A start (over the API, by a viewer, or with the server) reserves the id: no encoder may publish to it.
//! 2. The `supervisor` times the attempts; each is ordered from a worker: that of the stream when there is one, so that
//!    nothing moves, else the least loaded. Status `preparing`.
//! 3. The first media of an attempt is a publish (`registry`): the first one brings the stream up, a later one continues
//!    it where it stood, with its clock, its viewers and its pushes. Status `broadcasting`.
//! 4. An attempt ends: status `finished` until the next one. The stream stays up, and waits for as long as the source
//!    runs.
//!    Of a playlist it is the next item's (`playlists`).
//! 5. A stop, a delete, or ten seconds without a viewer (`autoStartStopEnabled`) end the stream.
//!
//! A stream is up from the first media on and not before. So streams that are pulled from each other in a circle
//! have nothing to send round.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::Context;
use super::live::Registry;
use crate::auth::{UrlError, redact};
use crate::config::AppSettings;
use crate::control::records::Records;
use crate::control::{ControlConfig, Outbound};
use crate::mail::{
    Grant, NextAddress, NextServer, PublishRequest, PullOrder, PullState, Refusal, StreamEnd, Target,
    ToWorker,
};
use crate::protocol::{FILE_RESERVE, outbound};
use crate::types::{Now, PullId, StreamKey, WorkerId};

use super::broadcast::{Broadcast, status};
use super::copies::{Absent, Copying};
use super::names::{Asker, Name};
use super::playlists::{Playlist, is_playable};
use super::repeats::Repeat;
use super::supervisor::{Job, RemoteHost, allowed};
use super::wanted::TICK;
use super::{Control, wall};

/// The load that a new pull is assumed to add to a worker, in parts per thousand, until a report shows the real
/// one.
const PULL_PERMILLE: u64 = 10;

/// The target of an attempt of a source.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) url: String,
    pub(super) target: Target,
    /// The duration at the beginning of a file that is skipped.
    pub(super) skip: Duration,
}

/// A source that runs.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) key: StreamKey,
    pub(super) origin: Origin,
    /// The time at which it, or its last periodic restart, began.
    pub(super) began: Instant,
    /// The time at which somebody was last known to watch; at first, the time at which it began.
    pub(super) watched: Instant,
    /// The position in a file at which its next attempt begins, if a seek was requested.
    sought: Option<Duration>,
    /// The time at which playback in real time reaches the end of the media received so far.
    pub(super) seen: Instant,
    /// The items that take turns, if it is a playlist.
    pub(super) playlist: Option<Playlist>,
    /// The places that it may come from, if it is a copy of another node's stream.
    pub(super) copying: Option<Copying>,
}

impl Source {
    fn new(now: Now, key: &StreamKey, origin: Origin) -> Self {
        let at = now.mono;
        let (playlist, copying) = (None, None);
        Self { key: key.clone(), origin, began: at, watched: at, sought: None, seen: at, playlist, copying }
    }

    /// A copy.
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
    /// Playlists that begin by themselves, and when: seconds of the wall clock.
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

    /// Running sources of one application.
    pub(super) fn count(&self, app: &str) -> usize {
        self.by_key.range(StreamKey::new(app, "")..).take_while(|(key, _)| &*key.app == app).count()
    }

    /// Running sources of one application that have no stream yet: they count as live streams.
    pub(super) fn waiting(&self, app: &str, is_live: impl Fn(&StreamKey) -> bool) -> usize {
        let of_app = self.by_key.range(StreamKey::new(app, "")..).take_while(|(key, _)| &*key.app == app);
        of_app.filter(|(key, _)| !is_live(key)).count()
    }
}

/// Whether records of this type are pulled.
pub(super) fn is_source(kind: &str) -> bool {
    matches!(kind, "streamSource" | "ipCamera" | "VoD")
}

impl Outbound {
    /// A file is left in the middle. How far ahead its media were is heard too late to say so to the next attempt: as far as
    /// they may be, or each leap would put the stream further ahead.
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
    /// `preparing` or `finished`.
    pub(super) fn source_status(&mut self, now: Now, key: &StreamKey, status: &str) {
        let Some(record) = self.get_mut(key) else { return };
        record.touch(now);
        if status == status::PREPARING && record.status != status {
            record.start_time = wall(now);
        }
        status.clone_into(&mut record.status);
        // Connections outlast a source that is tried anew, and stay counted.
        record.count_viewers(record.rtmp_viewer_count, |_| 0);
    }
}

impl ControlConfig {
    /// A URL, or the path of a file of our own. What we serve ourselves is not asked for over the network: it is that file.
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
    /// Keeps in the record whether its source is to run, for the next life of the server.
    pub(super) fn source_wanted(&mut self, now: Now, key: &StreamKey, wanted: bool) {
        if let Some(record) = self.get_mut(key) {
            record.source_wanted = wanted;
        }
        self.writes.mark_dirty(now, key.clone());
    }
}

impl Context {
    /// The target of a record's URL; the error says why it cannot be pulled.
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

    /// The target that the URL of a record names.
    fn origin_of(&self, key: &StreamKey, record: &Broadcast) -> Result<Origin, String> {
        let url = record.stream_url.clone().unwrap_or_default();
        let target = self.source_target(key, &url)?;
        let skip = u64::try_from(record.seek_time_in_ms).unwrap_or(0);
        Ok(Origin { url, target, skip: Duration::from_millis(skip) })
    }
}

impl Outbound {
    /// Whether there is no room for one more.
    pub(super) fn is_short_for_source(
        &self,
        cx: &Context,
        registry: &Registry,
        now: Now,
        app: &AppSettings,
    ) -> bool {
        let limit = app.limits.streams.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        !self.has_room_for_source(cx, &app.name)
            || limit.is_some_and(|limit| self.streams_of(registry, &app.name) >= limit)
            || cx.load.is_high(now, &cx.config.server)
    }

    /// Live streams of an application, with those that sources are about to bring.
    pub(super) fn streams_of(&self, registry: &Registry, app: &str) -> usize {
        let waiting = self.sources.waiting(app, |key| registry.is_live(key));
        registry.count(app).saturating_add(waiting)
    }

    /// Notes in its record how a source is. A copy has none of its own.
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

    /// Tells the worker of an attempt where it goes on, or why not.
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

    /// The next attempt is due.
    pub(super) fn pull_attempts(&self, records: &mut Records, now: Now, id: PullId) {
        if let Some(key) = self.sources.by_id.get(&id).map(|source| source.key.clone()) {
            self.source_status(records, now, &key, status::PREPARING);
        }
    }

    /// The resolver is silent: nothing is being prepared.
    pub(super) fn pull_still_resolving(&mut self, records: &mut Records, now: Now, id: PullId) {
        let Some(source) = self.sources.by_id.get(&id) else { return };
        let key = source.key.clone();
        if self.supervisor.has_failed(Job::Pull(id)) {
            self.repeats.note(now, Repeat::Resolver, &key, &redact(&source.origin.url));
        } else {
            tracing::info!(%key, url = redact(&source.origin.url), "the resolver does not answer");
        }
        self.source_status(records, now, &key, status::FINISHED);
    }

    /// The server is shutting down: the workers close the connections on their own.
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
        self.sources.tick = None;
    }
}

impl Control {
    /// An attempt has media: it publishes.
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
        let settings = self.cx.apps.get(&request.key.app).cloned().ok_or(Refusal::NoApplication)?;
        self.outbound.supervisor.steady(now.mono, Job::Pull(id));
        self.outbound.sources.copy_lives(&request.key);
        tracing::info!(key = %request.key, attempt, "source delivers");
        match self.registry.find(&request.key) {
            Some(stream) => self
                .registry
                .return_pull(&mut self.cx, &mut self.records, &mut self.access, now, stream, request)
                .ok_or(Refusal::InUse),
            None => Ok(self.begin_stream(now, request, settings)),
        }
    }
}

impl Outbound {
    /// Starts the source of a record. Its reachability is not known when this returns: the status tells.
    ///
    /// # Errors
    /// The reason it cannot be pulled at all.
    pub(super) fn begin_source(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        registry: &mut Registry,
        now: Now,
        key: &StreamKey,
    ) -> Result<(), String> {
        let settings = cx.apps.get(&key.app).cloned().ok_or("There is no such application")?;
        let record = records.get(key).ok_or("There is no such broadcast")?;
        let item = if is_playable(record) { Some(records.first_item(cx, key)?) } else { None };
        let origin = match &item {
            Some((_, origin)) => origin.clone(),
            None => cx.origin_of(key, record)?,
        };
        if self.sources.is_running(key) || registry.is_live(key) {
            return Err("Stream is already active. It's already streaming or trying to connect".to_owned());
        }
        if let Some(node) = registry.cluster.elsewhere(key) {
            return Err(format!("Stream is already active at the node {}", node.id));
        }
        if registry.cluster.refuses() {
            return Err("The directory of the cluster is away".to_owned());
        }
        if cx.is_draining() || self.is_short_for_source(cx, registry, now, &settings) {
            return Err("Not enough resource on server to start streaming.".to_owned());
        }
        tracing::info!(%key, url = redact(&origin.url), "source started");
        let playlist = item.map(|(index, _)| self.begin_playlist(records, now, key, index));
        self.start_source(cx, records, registry, now, Source { playlist, ..Source::new(now, key, origin) });
        records.source_wanted(now, key, true);
        Ok(())
    }

    /// Begins the first attempt of a source.
    pub(super) fn start_source(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        registry: &mut Registry,
        now: Now,
        source: Source,
    ) {
        self.sources.pulls = self.sources.pulls.saturating_add(1);
        let id = PullId(self.sources.pulls);
        let remote = match source.copying {
            Some(_) => RemoteHost::of_node(&source.origin.target),
            None => RemoteHost::of(&source.origin.target, cx.config.server.host),
        };
        let (key, is_copy) = (source.key.clone(), source.copying.is_some());
        self.sources.by_key.insert(key.clone(), id);
        self.sources.by_id.insert(id, source);
        self.sources.tick = self.sources.tick.or_else(|| now.mono.checked_add(TICK));
        self.supervisor.add(Job::Pull(id), remote);
        if is_copy || registry.cluster.claim_source(&key, id) {
            self.attempt(cx, records, registry, now, Job::Pull(id));
        }
    }

    /// Ends a source and its stream. Says whether there was one.
    pub(super) fn stop_source(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        registry: &mut Registry,
        now: Now,
        key: &StreamKey,
        end: StreamEnd,
    ) -> bool {
        let Some(id) = self.sources.by_key.remove(key) else { return false };
        let source = self.sources.by_id.remove(&id);
        if source.as_ref().is_some_and(|source| source.playlist.is_some()) {
            records.end_playlist(now, key);
        }
        if let Some(worker) = self.supervisor.remove(Job::Pull(id)) {
            cx.post(worker, ToWorker::StopPull(id));
        }
        tracing::info!(%key, reason = ?end, "source stopped");
        let is_copy = source.is_some_and(|source| source.copying.is_some());
        registry.cluster.release_source(id);
        if end == StreamEnd::Superseded {
            if let Some(stream) = registry.find(key) {
                registry.end(cx, stream, end);
            }
            return true;
        }
        if !is_copy {
            records.source_wanted(now, key, false);
        }
        match registry.find(key) {
            Some(stream) => registry.end(cx, stream, end),
            None if is_copy => {}
            None => records.source_status(now, key, status::FINISHED),
        }
        true
    }

    /// Ends the attempt and begins another, with what the record says now. The stream stays up. A playlist looks at its
    /// record when an item is over.
    pub(super) fn restart_source(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        registry: &mut Registry,
        now: Now,
        key: &StreamKey,
    ) {
        let Some(source) = self.sources.find(key).filter(|source| source.playlist.is_none()) else {
            return;
        };
        let url = redact(&source.origin.url);
        match records.get(key).map(|record| cx.origin_of(key, record)) {
            Some(Ok(origin)) => self.go_to(cx, records, registry, now, key, origin),
            Some(Err(reason)) => {
                tracing::info!(%key, url, reason, "source cannot continue");
                self.stop_source(cx, records, registry, now, key, StreamEnd::Stopped);
            }
            None => {}
        }
    }

    /// Begins a file that plays anew, at this time of it. False: none plays.
    pub(super) fn seek(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        registry: &mut Registry,
        now: Now,
        key: &StreamKey,
        time: Duration,
    ) -> bool {
        let plays_files = |record: &Broadcast| record.kind == "VoD" || is_playable(record);
        let id = self.sources.by_key.get(key).filter(|_| records.get(key).is_some_and(plays_files));
        let Some(source) = id.and_then(|id| self.sources.by_id.get_mut(id)) else { return false };
        source.sought = Some(time);
        let origin = source.origin.clone();
        self.leave_file(now, key);
        self.go_to(cx, records, registry, now, key, origin);
        true
    }

    /// Ends the attempt of a source and begins one that asks for something else.
    pub(super) fn go_to(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        registry: &mut Registry,
        now: Now,
        key: &StreamKey,
        origin: Origin,
    ) {
        let Some(id) = self.sources.by_key.get(key).copied() else { return };
        let Some(source) = self.sources.by_id.get_mut(&id) else { return };
        let remote = RemoteHost::of(&origin.target, cx.config.server.host);
        source.origin = origin;
        source.began = now.mono;
        if let Some(worker) = self.supervisor.interrupt(Job::Pull(id), remote) {
            cx.post(worker, ToWorker::StopPull(id));
        }
        self.attempt(cx, records, registry, now, Job::Pull(id));
    }

    /// Orders the attempt. The worker that has the stream keeps it, and handles the end of the former attempt before.
    pub(super) fn order_pull(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        registry: &Registry,
        now: Now,
        id: PullId,
        address: SocketAddr,
    ) {
        let Some(attempt) = self.supervisor.attempt_of(Job::Pull(id)) else { return };
        let Some(source) = self.sources.by_id.get_mut(&id) else { return };
        let (key, target) = (source.key.clone(), source.origin.target.clone());
        let via = source.copying.as_ref().map(|copying| copying.via().to_vec()).unwrap_or_default();
        let skip = source.sought.take().unwrap_or(source.origin.skip);
        let lead = source.seen.saturating_duration_since(now.mono);
        let live = registry.find(&key).and_then(|stream| registry.get(&stream));
        let worker = live.map(|live| live.source().worker).unwrap_or_else(|| self.least_loaded(cx, now));
        self.source_status(records, now, &key, status::PREPARING);
        self.supervisor.open(Job::Pull(id), worker);
        let order = PullOrder { pull: id, attempt, key, address, target, lead, skip, via };
        cx.post(worker, ToWorker::StartPull(Box::new(order)));
    }

    pub(super) fn pull_news(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        registry: &mut Registry,
        now: Now,
        (id, attempt): (PullId, u64),
        state: PullState,
    ) {
        let Some(source) = self.sources.by_id.get(&id) else { return };
        if !self.supervisor.is_current(Job::Pull(id), attempt) {
            return;
        }
        match state {
            PullState::Preparing => {
                let key = source.key.clone();
                self.source_status(records, now, &key, status::PREPARING);
            }
            PullState::Failed(reason) => self.pull_failed(cx, records, registry, now, id, &reason),
            PullState::Over(reason) => self.copy_failed(cx, records, registry, now, id, (&reason, true)),
            PullState::Lost { reason, ahead } => {
                if let Some(source) = self.sources.by_id.get_mut(&id) {
                    source.seen = now.mono.checked_add(ahead).unwrap_or(now.mono);
                }
                self.pull_failed(cx, records, registry, now, id, &reason);
            }
        }
    }

    /// An attempt goes on at another server, whose address has to pass the policy as the first one's had.
    pub(super) fn next_server(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        registry: &mut Registry,
        now: Now,
        (pull, attempt): (PullId, u64),
        server: NextServer,
    ) {
        if let Ok(address) = server.host.parse::<IpAddr>() {
            let remote = Ok(vec![SocketAddr::new(address, server.port)]);
            return self.go_on(cx, (pull, attempt), server, remote);
        }
        let Some(source) = self.sources.by_id.get(&pull) else { return };
        let (app, host, port) = (Arc::clone(&source.key.app), server.host.clone(), server.port);
        let name = Name { app: &app, host: &host, port };
        self.look_up(cx, records, registry, now, name, Asker::NextServer { pull, attempt, server });
    }

    pub(super) fn pull_failed(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        registry: &mut Registry,
        now: Now,
        id: PullId,
        reason: &str,
    ) {
        let Some(source) = self.sources.by_id.get(&id) else { return };
        let key = source.key.clone();
        if source.playlist.is_some() {
            return self.item_over(cx, records, registry, now, id, reason);
        }
        if source.copying.is_some() {
            return self.copy_failed(cx, records, registry, now, id, (reason, false));
        }
        let failures = self.supervisor.failed(now.mono, Job::Pull(id), None, &mut cx.random);
        let url = redact(&source.origin.url);
        if self.supervisor.is_news(Job::Pull(id), reason) || failures == Some(1) {
            tracing::info!(%key, url, reason, "pull failed; it is tried again");
        } else {
            tracing::debug!(%key, url, failures, reason, "pull failed");
            self.repeats.note(now, Repeat::Pull, &key, reason);
        }
        self.source_status(records, now, &key, status::FINISHED);
    }
}
