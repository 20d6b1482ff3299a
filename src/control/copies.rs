//! Copies: streams whose publisher is at another node, fetched while they have viewers here.
//!
//! 1. A viewer asks for a stream that is not live here. This node requests the stream from the node that has it
//!    according to the directory, or from a relay of its own region in between ([`Cluster::route_to`]), else from each
//!    of the operator's `edge.origins` in turn.
//! 2. The copy is a stream of this node like any other, but has no record, hooks, recordings or pushes here; the origin
//!    has them. It keeps the origin's tracks, times and epochs.
//! 3. A broken connection is retried, immediately if the directory names another node; viewers stay. If the stream ends
//!    at the origin, the copy ends too, unless the directory names another node for it.
//! 4. A copy without viewers ends after `edge.linger`. A publisher that is admitted here takes over the copy, with its
//!    viewers and clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use relay::Viewers;

use crate::auth::access::is_stream_id;
use crate::mail::{StreamEnd, ToWorker};
use crate::protocol::outbound;
use crate::types::{Ingest, Now, PullId, StreamKey};

use super::cluster::{Cluster, Location};
use super::context::Context;
use super::live::{Live, Registry, State};
use super::outgoing::Outgoing;
use super::sources::{Origin, Source, Sources};
use super::supervisor::{Job, RemoteHost};
use super::{Control, Outbound};

/// A copy that gets no units keeps its viewers for this time, multiplied by the number of origins. An origin that
/// accepts the connection and then sends nothing is given up after this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// A connection that breaks within this time after its first unit is short.
const SHORT: Duration = Duration::from_secs(2);
/// Number of short connections in a row after which another origin is tried.
const SHORT_MAX: u32 = 3;
/// Time before a stream that no origin has is requested again.
const ABSENT_FOR: Duration = Duration::from_secs(1);
/// Maximum number of streams remembered as absent.
const ABSENT_MAX: usize = 4096;

/// The origins from which a copy may be fetched.
#[derive(Debug)]
pub(super) struct Copying {
    /// Nodes on whose behalf this node fetches the stream: they in turn fetch it from this node.
    via: Vec<String>,
    /// The origins to try, the best first.
    origins: Vec<Origin>,
    /// URLs of the origins that have failed since units last arrived, or since all origins were tried.
    tried: BTreeSet<String>,
    /// Number of attempts that have failed since units last arrived.
    failures: usize,
    /// Number of attempts since units last arrived that failed because the origin does not have the stream.
    absent: usize,
    /// Time at which units began to arrive over the last connection that delivered any.
    began: Option<Instant>,
    /// Number of connections in a row that broke soon after they had begun to deliver units.
    short: u32,
    /// Time at which units stopped arriving.
    lost: Option<Instant>,
    /// True if the origin has claimed the stream for a source that may not have delivered media yet.
    is_promised: bool,
    /// The viewers last reported to the origin; `None` on a new connection.
    pub(super) told: Option<Viewers>,
}

/// The streams that no origin had when requested.
#[derive(Debug, Default)]
pub(super) struct Absent {
    until: BTreeMap<StreamKey, Instant>,
}

impl Absent {
    fn contains(&self, now: Instant, key: &StreamKey) -> bool {
        self.until.get(key).is_some_and(|until| *until > now)
    }

    fn note(&mut self, now: Instant, key: StreamKey) {
        if self.until.len() >= ABSENT_MAX {
            self.until.retain(|_, until| *until > now);
        }
        if self.until.len() < ABSENT_MAX
            && let Some(until) = now.checked_add(ABSENT_FOR)
        {
            self.until.insert(key, until);
        }
    }
}

impl Live {
    /// True if the stream's publisher is at another node.
    pub(super) fn is_copy(&self) -> bool {
        self.source().ingest.is_copy()
    }
}

impl Sources {
    /// True if a copy of this stream is being fetched.
    pub(super) fn is_copying(&self, key: &StreamKey) -> bool {
        self.find(key).is_some_and(|source| source.copying.is_some())
    }

    /// Resets the failures of a copy, because units of the copy arrive.
    pub(super) fn copy_lives(&mut self, now: Instant, key: &StreamKey) {
        let Some(id) = self.by_key.get(key) else { return };
        if let Some(copying) = self.by_id.get_mut(id).and_then(|source| source.copying.as_mut()) {
            (copying.lost, copying.failures, copying.absent) = (None, 0, 0);
            (copying.is_promised, copying.told) = (false, None);
            copying.began = Some(now);
            copying.tried.clear();
        }
    }
}

impl Copying {
    /// Makes a copy that has one origin.
    pub(super) fn of(now: Now, origin: Origin) -> Self {
        Self::from_origins(now, Vec::new(), vec![origin])
    }

    /// Makes a copy on behalf of the nodes in `via`.
    fn from_origins(now: Now, via: Vec<String>, origins: Vec<Origin>) -> Self {
        Self {
            via,
            origins,
            tried: BTreeSet::new(),
            failures: 0,
            absent: 0,
            began: None,
            short: 0,
            lost: Some(now.mono),
            is_promised: false,
            told: None,
        }
    }

    pub(super) fn via(&self) -> &[String] {
        &self.via
    }

    /// Returns the origin to try next: the best of these that has not failed since units last arrived. When all have
    /// failed, it begins anew. All nodes of a region thus return to the same relay, however the list has changed. If
    /// none are given, the previous origins are tried again, because the publisher of a dead node may be moving to
    /// another node. `failed` is the URL of an origin that has just failed. After a broken connection there is none:
    /// the best origin is tried, mostly the one of before.
    fn turn(&mut self, failed: Option<&str>, origins: Vec<Origin>) -> Option<Origin> {
        if !origins.is_empty() {
            self.origins = origins;
        }
        self.tried.extend(failed.map(str::to_owned));
        if self.origins.iter().all(|origin| self.tried.contains(&origin.url)) {
            self.tried.clear();
        }
        self.origins.iter().find(|origin| !self.tried.contains(&origin.url)).cloned()
    }

    /// Notes that a connection has broken that delivered units. Returns true if the last [`SHORT_MAX`] connections have
    /// each broken within [`SHORT`], so that the origin counts as failed.
    fn breaks_often(&mut self, now: Instant) -> bool {
        let is_short = self.began.is_some_and(|began| now.saturating_duration_since(began) < SHORT);
        self.short = if is_short { self.short.saturating_add(1) } else { 0 };
        if self.short < SHORT_MAX {
            return false;
        }
        self.short = 0;
        true
    }

    /// Notes a failure. Returns false if the copy should be given up.
    fn goes_on(&mut self, now: Instant, is_absent: bool) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.absent = self.absent.saturating_add(usize::from(is_absent));
        self.lost.get_or_insert(now);
        (self.is_promised || self.absent < self.origins.len()) && !self.is_lost(now)
    }

    /// True if no units have arrived for [`PATIENCE`] times the number of origins.
    pub(super) fn is_lost(&self, now: Instant) -> bool {
        let origins = u32::try_from(self.origins.len().max(1)).unwrap_or(u32::MAX);
        let patience = PATIENCE.saturating_mul(origins);
        self.lost.is_some_and(|lost| now.saturating_duration_since(lost) >= patience)
    }

    /// True if each origin was tried at least once since units last arrived. More failures than origins are required,
    /// because the first failure may be the loss of an established connection instead of a failed attempt.
    const fn asked_all(&self) -> bool {
        self.failures > self.origins.len()
    }
}

impl Outbound {
    /// True if the stream with this key is a copy.
    pub(super) fn is_copy(&self, registry: &Registry, key: &StreamKey) -> bool {
        let live = registry.find(key).and_then(|stream| registry.get(&stream));
        self.sources.is_copying(key) || live.is_some_and(Live::is_copy)
    }

    /// Stops fetching a copy, because a publisher was admitted here. The stream continues and waits for that
    /// publisher's units.
    pub(super) fn release_copy(
        &mut self,
        cx: &mut Context,
        registry: &mut Registry,
        now: Now,
        key: &StreamKey,
    ) {
        if !self.sources.is_copying(key) {
            return;
        }
        let Some(id) = self.sources.by_key.remove(key) else { return };
        self.sources.by_id.remove(&id);
        if let Some(worker) = self.supervisor.remove(Job::Pull(id)) {
            cx.post(worker, ToWorker::StopPull(id));
        }
        let Some(stream) = registry.find(key) else { return };
        registry.change(stream, |source| source.state = State::Awaited);
        // The worker's last report of the clock is up to a second old, so the clock is extrapolated.
        if let Some(live) = registry.get_mut(&stream) {
            let wall_ms = i64::try_from(now.wall_ms).unwrap_or(i64::MAX);
            live.clock.position.dts_ms =
                live.clock.position.dts_ms.max(wall_ms.saturating_sub(live.clock.zero_ms));
        }
    }
}

impl Cluster {
    /// Returns the origins of a stream that is not here.
    fn origins_of(&self, cx: &Context, key: &StreamKey) -> Vec<Origin> {
        let nodes = self.route_to(key).into_iter().filter_map(|Location { host, port, .. }| {
            let target = outbound::at_node(&host, port, key)?;
            Some(Origin { url: format!("{host}:{port}"), target, skip: Duration::ZERO })
        });
        let templates = cx.config.server.edge_origins();
        let targets = templates.filter_map(|template| {
            let url = template.replace("{app}", &key.app).replace("{id}", &key.id);
            let target = outbound::read_origin(&url).ok()?;
            Some(Origin { url, target, skip: Duration::ZERO })
        });
        nodes.chain(targets).collect()
    }
}

impl Control {
    /// Follows the directory's report that another node has a stream: a copy is fetched from that node immediately, a
    /// stream that has lost its publisher here becomes a copy, and waiting sessions may ask again.
    pub(super) fn follow_claim(&mut self, now: Now, key: &StreamKey) {
        if self.registry.cluster.location(key).is_none() {
            return;
        }
        let live = self.registry.find(key).and_then(|stream| self.registry.get(&stream));
        match live.map(|live| live.source().state) {
            // A publisher at another node uses the id of this room's view, so the view becomes a copy of that
            // publisher's stream.
            Some(_) if live.is_some_and(Live::is_view) => drop(self.become_copy(now, key)),
            Some(State::Grace(_)) => drop(self.become_copy(now, key)),
            Some(State::Awaited) if self.outbound.sources.is_copying(key) => self.outgoing(now).ask_anew(key),
            Some(State::Live(_) | State::Awaited) => {}
            None => {
                // The stream may have gone live just after it was requested in vain.
                self.outbound.sources.absent.until.remove(key);
                self.cx.post_all(&ToWorker::LiveElsewhere(key.clone()));
            }
        }
    }

    /// Makes a stream of this node a copy of another node's stream: the publisher here is closed, the viewers stay.
    /// Returns false if no other node has the stream, or that node has no relay.
    pub(super) fn become_copy(&mut self, now: Now, key: &StreamKey) -> bool {
        let origins = self.registry.cluster.origins_of(&self.cx, key);
        let (Some(stream), Some(origin)) = (self.registry.find(key), origins.first().cloned()) else {
            return false;
        };
        tracing::info!(%key, "stream is published at another node; copying it from there");
        let was_view = self.registry.get(&stream).is_some_and(Live::is_view);
        if was_view {
            self.outbound.release_copy(&mut self.cx, &mut self.registry, now, key);
        }
        let before = self.registry.change(stream, |source| {
            source.ingest = Ingest::COPY;
            source.state = State::Awaited;
        });
        if let Some(State::Live(session)) = before.map(|source| source.state) {
            self.access.leave(&mut self.cx, &self.records, &mut self.hooks, now, session);
            self.cx.post(session.worker, ToWorker::Replaced { conn: session.conn, stream });
        }
        self.registry.end_standby(&mut self.cx, stream);
        self.registry.cluster.release_stream(stream);
        self.records.note_elsewhere(now, key, true);
        if let Some(live) = self.registry.get_mut(&stream) {
            live.told.announced = false;
        }
        if was_view {
            // Workers treat a view differently from other streams, so the stream is posted to them again.
            self.registry.post_stream_up(&mut self.cx, stream);
        }
        self.outgoing(now).reconcile_pushes(key);
        self.recorder(now).reconcile_recording(key);
        let mut copying = Copying::from_origins(now, Vec::new(), origins);
        copying.is_promised = self.records.get(key).is_some_and(|record| record.source_wanted);
        self.outgoing(now).start_source(Source::copy(now, key, origin, copying));
        true
    }
}

impl Outgoing<'_> {
    /// Fetches a stream for which a viewer waits. Returns true if the stream may become available.
    pub(super) fn fetch_copy(&mut self, key: &StreamKey, via: Vec<String>) -> bool {
        // The stream id becomes part of the origin's URL, so a name that is not a valid stream id cannot be fetched.
        let Some(settings) = self.cx.apps.get(&key.app).filter(|_| is_stream_id(&key.id)).cloned() else {
            return false;
        };
        let origins = self.registry.cluster.origins_of(self.cx, key);
        let Some(origin) = origins.first().cloned() else { return false };
        // A draining node still fetches copies for other nodes.
        let is_refused = self.cx.is_draining() || (self.cx.lets_in_nothing() && via.is_empty());
        if self.outbound.sources.absent.contains(self.now.mono, key) || is_refused {
            return false;
        }
        if self.outbound.is_short_for_copy(self.cx, self.now, &settings) {
            tracing::info!(%key, "copy not fetched: the server is short of resources");
            return false;
        }
        tracing::info!(%key, places = origins.len(), "copy requested");
        let copying = Copying::from_origins(self.now, via, origins);
        self.start_source(Source::copy(self.now, key, origin, copying));
        true
    }

    /// Handles a failed attempt to fetch a copy. `is_over`: the origin says that there is no such stream.
    pub(super) fn copy_failed(&mut self, id: PullId, (reason, is_over): (&str, bool)) {
        let Some(key) = self.outbound.sources.by_id.get(&id).map(|source| source.key.clone()) else { return };
        let origins = self.registry.cluster.origins_of(self.cx, &key);
        let Some(source) = self.outbound.sources.by_id.get_mut(&id) else { return };
        let Some(copying) = &mut source.copying else { return };
        let is_failed = is_over || copying.lost.is_some() || copying.breaks_often(self.now.mono);
        let goes_on = copying.goes_on(self.now.mono, is_over);
        let asked_all = copying.asked_all();
        let failed = is_failed.then_some(&*source.origin.url);
        let next = if goes_on { copying.turn(failed, origins) } else { None };
        let Some(next) = next else {
            tracing::info!(%key, reason, "copy ended");
            return self.end_copy(&key, is_over);
        };
        if self.outbound.supervisor.is_news(Job::Pull(id), reason) {
            tracing::info!(%key, reason, "copy interrupted; fetching it again");
        }
        source.origin = next;
        let remote = RemoteHost::of_node(&source.origin.target);
        if asked_all {
            self.outbound.supervisor.aim(Job::Pull(id), remote);
            self.outbound.supervisor.failed(self.now.mono, Job::Pull(id), None, &mut self.cx.random);
        } else {
            self.outbound.supervisor.interrupt(Job::Pull(id), remote);
            self.attempt(Job::Pull(id));
        }
    }

    /// Ends a copy. Viewers that still wait for the copy are refused.
    pub(super) fn end_copy(&mut self, key: &StreamKey, is_over: bool) {
        let is_here = self.registry.is_live(key);
        let end = if is_over { StreamEnd::Unpublished } else { StreamEnd::GraceOver };
        self.stop_source(key, end);
        if !is_here {
            self.outbound.sources.absent.note(self.now.mono, key.clone());
            self.cx.post_all(&ToWorker::NotComing(key.clone()));
        }
    }

    /// Moves copies to the relays through which their streams now enter this node's region, because a relay of the
    /// region has joined, is gone or drains. Otherwise a stream would enter the region through two relays: the one that
    /// nodes have used so far, and the one that nodes choose from now on.
    pub(super) fn follow_relays(&mut self) {
        let copies = self.outbound.sources.by_id.values().filter(|source| source.copying.is_some());
        let cluster = &self.registry.cluster;
        let is_moved = |source: &&Source| {
            let best = cluster.route_to(&source.key).into_iter().next();
            best.is_some_and(|Location { host, port, .. }| format!("{host}:{port}") != source.origin.url)
        };
        let moved: Vec<StreamKey> = copies.filter(is_moved).map(|source| source.key.clone()).collect();
        for key in moved {
            tracing::debug!(%key, "copy moves to another relay of the region");
            self.ask_anew(&key);
        }
    }

    /// Interrupts the fetching of a copy, and requests the stream again from the origin that the directory now names
    /// first.
    fn ask_anew(&mut self, key: &StreamKey) {
        let origins = self.registry.cluster.origins_of(self.cx, key);
        let Some(id) = self.outbound.sources.by_key.get(key).copied() else { return };
        let Some(source) = self.outbound.sources.by_id.get_mut(&id) else { return };
        let (Some(copying), Some(origin)) = (&mut source.copying, origins.first().cloned()) else { return };
        (copying.failures, copying.absent, copying.origins) = (0, 0, origins);
        copying.tried.clear();
        copying.lost = Some(self.now.mono);
        copying.is_promised = self.records.get(key).is_some_and(|record| record.source_wanted);
        source.origin = origin;
        let remote = RemoteHost::of_node(&source.origin.target);
        if let Some(worker) = self.outbound.supervisor.interrupt(Job::Pull(id), remote) {
            self.cx.post(worker, ToWorker::StopPull(id));
        }
        self.attempt(Job::Pull(id));
    }
}
