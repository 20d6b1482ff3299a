//! Live streams: who publishes, who waits for a lost publisher, how a stream ends.
//!
//! `Reserved -> Live -> Grace -> Ended`: an admission that has passed reserves the id ([`Control::reserve`]) and the stream is
//! live; a publisher that is lost may return within the grace, and continues the same stream.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use media::Position;

use crate::auth::access::{Denial, Params};
use crate::auth::network;
use crate::config::AppSettings;
use crate::mail::{
    Departure, Grant, PublishRequest, Refusal, SourceFigures, StreamEnd, ToWorker, ViewerCounts,
};
use crate::types::{Ingest, Now, PushId, SessionRef, StreamId, StreamKey, WorkerId};

use super::broadcast::{Broadcast, status};
use super::{Control, wall};

/// A publisher that was silent for so long is replaced by a new one.
const STALE_MS: u64 = 3000;

/// Whether a publisher is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Live(SessionRef),
    Grace(Instant),
    /// A pull whose source is between two attempts.
    Awaited,
}

/// What has been reported about a stream, and to whom.
#[derive(Debug)]
pub(super) struct Told {
    /// Hooks: that it is live.
    pub(super) announced: bool,
    /// Workers: to tell of its viewers.
    viewers: bool,
}

/// The totals that publishers have sent.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// Bytes of publishers before the present one.
    pub(super) bytes_before: u64,
    /// The last report about the present one.
    pub(super) figures: Option<SourceFigures>,
}

/// How a publisher came.
#[derive(Debug)]
pub(super) struct Granted {
    /// When.
    pub(super) at: Instant,
    /// Where the clock of the stream stood.
    pub(super) from: Position,
    /// From where, as addresses are counted.
    network: IpAddr,
}

/// One life of a stream, from its first publisher to its end.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) key: StreamKey,
    pub(super) settings: Arc<AppSettings>,
    /// The worker of the publisher, or of the last one.
    pub(super) source: WorkerId,
    ingest: Ingest,
    state: State,
    /// The clock and its epoch; at most a second old.
    pub(super) position: Position,
    epoch: u32,
    /// The silence of the publisher at the last report, in milliseconds.
    silent_ms: u64,
    /// Servers before this one, for pushes.
    pub(super) via: Vec<String>,
    /// The parameters of the present publisher, for hooks.
    pub(super) params: Params,
    pub(super) told: Told,
    /// Endpoints being pushed to.
    pub(super) pushes: Vec<PushId>,
    pub(super) received: Received,
    /// The present publisher, or the last one.
    pub(super) granted: Granted,
    /// Viewers of each worker.
    pub(super) viewers: BTreeMap<WorkerId, ViewerCounts>,
}

/// All live streams.
#[derive(Debug, Default)]
pub(super) struct Registry {
    pub(super) live: BTreeMap<StreamId, Live>,
    by_key: BTreeMap<StreamKey, StreamId>,
    graces: BTreeSet<(Instant, StreamId)>,
    lives: u64,
}

impl Registry {
    pub(super) fn find(&self, key: &StreamKey) -> Option<StreamId> {
        self.by_key.get(key).copied()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.graces.first().map(|(at, _)| *at)
    }

    pub(super) fn streams(&self) -> Vec<StreamId> {
        self.live.keys().copied().collect()
    }

    /// Live streams of one application.
    pub(super) fn count(&self, app: &str) -> usize {
        self.live.values().filter(|live| &*live.key.app == app).count()
    }

    /// Live streams that publishers of an address have; what an operator has ordered is nobody's.
    pub(super) fn count_of(&self, address: IpAddr) -> usize {
        let network = network(address);
        let of_address = |live: &&Live| live.granted.network == network && live.ingest != Ingest::PULL;
        self.live.values().filter(of_address).count()
    }

    /// The stream of this publisher.
    fn of_session(&self, session: SessionRef) -> Option<StreamId> {
        let found = self.live.iter().find(|(_, live)| live.state == State::Live(session));
        found.map(|(stream, _)| *stream)
    }

    fn leave_grace(&mut self, stream: StreamId) {
        if let Some(Live { state: State::Grace(until), .. }) = self.live.get(&stream) {
            self.graces.remove(&(*until, stream));
        }
    }
}

impl Control {
    /// A publisher asks.
    pub(super) fn publish(&mut self, now: Now, request: PublishRequest) {
        let Some(pull) = request.pull else { return self.admit_publisher(now, request) };
        // What an operator has ordered is not checked as an unauthenticated peer is.
        let session = request.session;
        let verdict = self.pull_media(now, request, pull).map(Box::new);
        self.post(session.worker, ToWorker::Verdict { conn: session.conn, handle: session.handle, verdict });
    }

    /// The end of an admission: the token is used up, and the stream begins or its publisher returns.
    pub(super) fn reserve(&mut self, now: Now, request: PublishRequest) -> Result<Grant, Refusal> {
        let settings = self.apps.get(&request.key.app).cloned().ok_or(Refusal::NoApplication)?;
        if settings.security.publish.token && !self.burn_token(now, &request.key, &request.params) {
            return Err(Refusal::Denied(Denial::Token));
        }
        match self.stream_of(&request.key) {
            None => Ok(self.begin_stream(now, request, settings)),
            Some(stream) => self.return_publisher(now, stream, request).ok_or(Refusal::InUse),
        }
    }

    /// Whether the id is free for this publisher: not live, or waiting for one, or its publisher fell silent.
    pub(super) fn check_free(&self, request: &PublishRequest) -> Result<(), Refusal> {
        // The id belongs to its source for as long as that runs, whether it delivers or not.
        if self.outbound.sources.is_running(&request.key) {
            return Err(Refusal::InUse);
        }
        let live = self.stream_of(&request.key).and_then(|stream| self.registry.live.get(&stream));
        let free = live.is_none_or(|live| match live.state {
            State::Live(session) => session != request.session && live.silent_ms >= STALE_MS,
            State::Grace(_) => true,
            State::Awaited => false,
        });
        if free { Ok(()) } else { Err(Refusal::InUse) }
    }

    pub(super) fn begin_stream(
        &mut self,
        now: Now,
        request: PublishRequest,
        settings: Arc<AppSettings>,
    ) -> Grant {
        self.registry.lives += 1;
        let stream = StreamId(self.registry.lives);
        let key = request.key.clone();
        let source = request.session.worker;
        tracing::info!(%key, protocol = request.ingest.name, peer = %request.peer, "stream started");
        let live = Live {
            key: key.clone(),
            settings: settings.clone(),
            source,
            ingest: request.ingest,
            state: State::Live(request.session),
            position: Position::default(),
            epoch: 0,
            silent_ms: 0,
            via: request.via.clone(),
            params: request.params.clone(),
            told: Told { announced: false, viewers: self.hook_url(&key).is_some() },
            pushes: Vec::new(),
            received: Received::default(),
            granted: Granted { at: now.mono, from: Position::default(), network: network(request.peer.ip()) },
            viewers: BTreeMap::new(),
        };
        self.registry.live.insert(stream, live);
        self.registry.by_key.insert(key.clone(), stream);
        self.forget_idle(&key);
        self.record_started(now, &request);
        self.publisher_came(now, &request);
        self.post_stream_up(stream);
        self.reconcile_pushes(now, &key);
        Grant { stream, position: Position::default(), epoch: 0, settings }
    }

    /// A publisher joins a life that waits for it, or takes it from one that fell silent.
    fn return_publisher(&mut self, now: Now, stream: StreamId, request: PublishRequest) -> Option<Grant> {
        self.registry.leave_grace(stream);
        // Of a source the log has that it delivers.
        if request.pull.is_none() {
            let (key, protocol) = (&request.key, request.ingest.name);
            tracing::info!(%key, protocol, peer = %request.peer, "publisher returned");
        }
        let live = self.registry.live.get_mut(&stream)?;
        let old = match live.state {
            State::Live(session) => Some(session),
            State::Grace(_) | State::Awaited => None,
        };
        let moved = live.source != request.session.worker;
        live.state = State::Live(request.session);
        live.source = request.session.worker;
        let moved = std::mem::replace(&mut live.ingest, request.ingest) != request.ingest || moved;
        live.silent_ms = 0;
        live.granted = Granted { at: now.mono, from: live.position, network: network(request.peer.ip()) };
        let before = live.received.figures.take().map_or(0, |figures| figures.received_bytes);
        live.received.bytes_before += before;
        live.via.clone_from(&request.via);
        live.params.clone_from(&request.params);
        let grant =
            Grant { stream, position: live.position, epoch: live.epoch, settings: live.settings.clone() };
        if let Some(record) = self.records.get_mut(&request.key) {
            record.user_agent = agent(&request.user_agent);
            record.remote_ip = remote_ip(&request);
            record.update_time = wall(now);
        }
        self.publisher_came(now, &request);
        if let Some(old) = old {
            self.leave(now, old);
            self.post(old.worker, ToWorker::Replaced { conn: old.conn, stream });
        }
        if moved {
            self.post_stream_up(stream);
        }
        Some(grant)
    }

    /// The next attempt of a source has media. Its record begins anew, as if nothing had been before; the stream goes
    /// on.
    pub(super) fn return_pull(
        &mut self,
        now: Now,
        stream: StreamId,
        request: PublishRequest,
    ) -> Option<Grant> {
        if self.registry.live.get(&stream)?.ingest != Ingest::PULL {
            return None;
        }
        let grant = self.return_publisher(now, stream, request.clone())?;
        if let Some(live) = self.registry.live.get_mut(&stream) {
            live.received.bytes_before = 0;
        }
        self.record_started(now, &request);
        Some(grant)
    }

    /// The source hears it first: a worker that asks it for a mirror does so after its own copy of this news, and
    /// must find the source informed.
    fn post_stream_up(&mut self, stream: StreamId) {
        let Some(live) = self.registry.live.get(&stream) else { return };
        let (key, settings) = (live.key.clone(), live.settings.clone());
        let (source, ingest, tell_viewers) = (live.source, live.ingest, live.told.viewers);
        let others = (0..self.config.workers).map(WorkerId).filter(|worker| *worker != source);
        for worker in std::iter::once(source).chain(others).collect::<Vec<_>>() {
            let (key, settings) = (key.clone(), settings.clone());
            let up = ToWorker::StreamUp { stream, key, source, ingest, tell_viewers, settings };
            self.post(worker, up);
        }
    }

    /// Marks the record live; without one, publishing creates a zombi.
    fn record_started(&mut self, now: Now, request: &PublishRequest) {
        let key = &request.key;
        if self.records.get(key).is_none() {
            let mut record = Broadcast { zombi: true, ..Broadcast::default() };
            self.complete(now, key, &mut record);
            self.records.insert(key.clone(), record);
        }
        self.join_main_track(now, request);
        let Some(record) = self.records.get_mut(key) else { return };
        status::BROADCASTING.clone_into(&mut record.status);
        record.publish_type = Some(publish_type(request.ingest));
        record.start_time = wall(now);
        record.update_time = wall(now);
        record.duration = 0;
        record.received_bytes = 0;
        record.bitrate = 0;
        record.speed = 0.0;
        record.absolute_start_time_ms = 0;
        record.user_agent = agent(&request.user_agent);
        record.remote_ip = remote_ip(request);
        (record.hls_viewer_count, record.dash_viewer_count, record.webrtc_viewer_count) = (0, 0, 0);
        record.rtmp_viewer_count = 0;
        record.recount();
        if !record.zombi {
            self.mark_dirty(now, key.clone());
        }
        if let Some(main) = self.main_track_of(key) {
            self.follow_subtracks(now, &main);
        }
    }

    /// The connection is gone and its grant is on the way: nobody will say so later.
    pub(super) fn publish_abandoned(&mut self, now: Now, session: SessionRef) {
        if self.abandon_admission(now, session) {
            return;
        }
        let Some(stream) = self.registry.of_session(session) else { return };
        let Some(live) = self.registry.live.get(&stream) else { return };
        let fresh = !live.position.started;
        let (position, epoch) = (live.position, live.epoch);
        let departure = if fresh { Departure::Clean } else { Departure::Lost };
        self.publisher_gone(now, session, stream, departure, position, epoch);
    }

    pub(super) fn publisher_gone(
        &mut self,
        now: Now,
        session: SessionRef,
        stream: StreamId,
        departure: Departure,
        position: Position,
        epoch: u32,
    ) {
        let Some(live) = self.registry.live.get_mut(&stream) else { return };
        if live.state != State::Live(session) {
            return;
        }
        self.leave(now, session);
        let Some(live) = self.registry.live.get_mut(&stream) else { return };
        live.position = position;
        live.epoch = epoch;
        if live.ingest == Ingest::PULL {
            live.state = State::Awaited;
            return;
        }
        let grace = live.settings.publisher_grace;
        match (departure, now.mono.checked_add(grace)) {
            (Departure::Lost, Some(until)) if !grace.is_zero() => {
                tracing::info!(key = %live.key, grace_ms = grace.as_millis(), "publisher lost, its stream waits for it");
                live.state = State::Grace(until);
                self.registry.graces.insert((until, stream));
            }
            (Departure::Lost, _) => self.end_stream(now, stream, StreamEnd::GraceOver),
            (Departure::Clean, _) => self.end_stream(now, stream, StreamEnd::Unpublished),
        }
    }

    pub(super) fn end_overdue_graces(&mut self, now: Now) {
        while let Some((until, stream)) = self.registry.graces.first().copied() {
            if until > now.mono {
                return;
            }
            self.registry.graces.pop_first();
            self.end_stream(now, stream, StreamEnd::GraceOver);
        }
    }

    /// The id is free from here on.
    pub(super) fn end_stream(&mut self, now: Now, stream: StreamId, end: StreamEnd) {
        self.registry.leave_grace(stream);
        let Some(live) = self.registry.live.remove(&stream) else { return };
        tracing::info!(key = %live.key, reason = end.reason(), "stream ended");
        self.registry.by_key.remove(&live.key);
        self.release_claim(stream);
        self.forget_pushes(&live);
        self.post_all(&ToWorker::StreamDown { stream, end });
        if let State::Live(session) = live.state {
            self.leave(now, session);
        }
        self.stream_ended(now, stream, &live, end);
        let main = self.main_track_of(&live.key);
        self.record_ended(now, live.key);
        if let Some(main) = main {
            self.follow_subtracks(now, &main);
        }
    }

    /// Marks the record offline; one that publishing created is deleted.
    fn record_ended(&mut self, now: Now, key: StreamKey) {
        let Some(record) = self.records.get_mut(&key) else { return };
        if record.zombi {
            self.records.remove(&key);
            return;
        }
        status::FINISHED.clone_into(&mut record.status);
        record.update_time = wall(now);
        (record.hls_viewer_count, record.dash_viewer_count, record.webrtc_viewer_count) = (0, 0, 0);
        record.rtmp_viewer_count = 0;
        record.recount();
        for endpoint in record.end_point_list.iter_mut().flatten() {
            status::FINISHED.clone_into(&mut endpoint.status);
        }
        self.mark_dirty(now, key);
    }

    /// Whether its publisher is there, or expected within the grace. A source between two attempts is neither.
    pub(super) fn is_delivered(live: &Live) -> bool {
        live.state != State::Awaited
    }

    /// The sessions that publish a stream: none while its publisher is waited for.
    pub(super) fn publisher_of(&self, key: &StreamKey) -> Option<SessionRef> {
        match self.registry.live.get(&self.stream_of(key)?)?.state {
            State::Live(session) => Some(session),
            State::Grace(_) | State::Awaited => None,
        }
    }

    /// Workers tell of the viewers of a stream from now on, or no more.
    pub(super) fn review_viewers(&mut self, key: &StreamKey) {
        let wanted = self.hook_url(key).is_some();
        let Some(stream) = self.stream_of(key) else { return };
        let Some(live) = self.registry.live.get_mut(&stream) else { return };
        if std::mem::replace(&mut live.told.viewers, wanted) != wanted {
            self.post_stream_up(stream);
        }
    }

    /// Takes a report about the clock and the silence of a publisher.
    pub(super) fn note_source(&mut self, worker: WorkerId, figures: &SourceFigures) -> Option<StreamKey> {
        let live = self.registry.live.get_mut(&figures.stream)?;
        // A report of the worker before a move says nothing about the present publisher.
        if live.source != worker || !matches!(live.state, State::Live(_)) {
            return None;
        }
        live.position = figures.position;
        live.epoch = figures.epoch;
        live.silent_ms = figures.silent_ms;
        live.received.figures = Some(figures.clone());
        Some(live.key.clone())
    }
}

/// The publisher's address; `None` for a pull, which connected from here.
fn remote_ip(request: &PublishRequest) -> Option<String> {
    request.pull.is_none().then(|| request.peer.ip().to_canonical().to_string())
}

fn publish_type(ingest: Ingest) -> String {
    ingest.publish_type.to_owned()
}

/// The encoder's user agent, fit for a record.
fn agent(text: &str) -> String {
    let clean: String = text.chars().filter(|c| !c.is_control()).take(256).collect();
    if clean.is_empty() { "N/A".to_owned() } else { clean }
}
