//! Copies: streams whose publisher is at another node, fetched while somebody here watches them.
//!
//! 1. A viewer asks for a stream that is not here. It is asked for where it may be: at the node that has it, by the directory, else at each
//!    of the operator's `edge.origins` in turn.
//! 2. What comes is a stream of this node like any other, but that no record, hook, recording or push is made for it: those are the
//!    origin's. It has the origin's tracks, times and epochs.
//! 3. A connection that breaks is made anew, at once where the directory names another node; viewers stay. A stream that is over at its origin
//!    ends here, unless the directory names another node for it.
//! 4. A copy that nobody watches ends after `edge.linger`. A publisher that is let in here takes the copy over, with its viewers and its
//!    clock.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use relay::Viewers;

use crate::auth::access::is_stream_id;
use crate::control::records::Records;
use crate::mail::{StreamEnd, ToWorker};
use crate::protocol::outbound;
use crate::types::{Ingest, Now, PullId, StreamKey};

use super::cluster::{Cluster, Location};
use super::context::Context;
use super::live::{Live, Registry, State};
use super::sources::{Origin, Source, Sources};
use super::supervisor::{Job, RemoteHost};
use super::{Control, Outbound};

/// The time for which a copy keeps its viewers while all of its origins are silent.
const PATIENCE: Duration = Duration::from_secs(10);
/// A stream that no origin has is not asked for again before.
const ABSENT_FOR: Duration = Duration::from_secs(1);
/// Streams that are known to be absent.
const ABSENT_MAX: usize = 4096;

/// The places that a copy may come from.
#[derive(Debug)]
pub(super) struct Copying {
    /// The nodes that it is for, besides this one.
    via: Vec<String>,
    /// The places to ask, in order.
    origins: Vec<Origin>,
    /// The one that is asked.
    at: usize,
    /// Attempts that have failed since units came.
    failures: usize,
    /// The part of these attempts at places that do not have the stream.
    absent: usize,
    /// The time since which no units come.
    lost: Option<Instant>,
    /// The viewers that the place knows of; `None`: none of its connection.
    pub(super) told: Option<Viewers>,
}

/// The streams that no origin had when they were asked for.
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
    /// Whether its publisher is at another node.
    pub(super) fn is_copy(&self) -> bool {
        self.source().ingest == Ingest::COPY
    }
}

impl Sources {
    /// Whether a copy of this stream is fetched.
    pub(super) fn is_copying(&self, key: &StreamKey) -> bool {
        self.find(key).is_some_and(|source| source.copying.is_some())
    }

    /// Units of a source come; of a copy no place has failed now.
    pub(super) fn copy_lives(&mut self, key: &StreamKey) {
        let Some(id) = self.by_key.get(key) else { return };
        if let Some(copying) = self.by_id.get_mut(id).and_then(|source| source.copying.as_mut()) {
            (copying.lost, copying.failures, copying.absent) = (None, 0, 0);
            copying.told = None;
        }
    }
}

impl Copying {
    pub(super) fn via(&self) -> &[String] {
        &self.via
    }

    /// Goes on to the next of these places, or asks the only one again. While none is known the former ones are: a dead node's publisher
    /// may be on its way to another.
    fn turn(&mut self, origins: Vec<Origin>) -> Option<Origin> {
        if !origins.is_empty() {
            self.origins = origins;
        }
        self.at = self.at.saturating_add(1).checked_rem(self.origins.len())?;
        self.origins.get(self.at).cloned()
    }

    /// Takes note of a failure. False: the copy cannot be had.
    fn goes_on(&mut self, now: Instant, is_absent: bool) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.absent = self.absent.saturating_add(usize::from(is_absent));
        self.lost.get_or_insert(now);
        self.absent < self.origins.len() && !self.is_lost(now)
    }

    /// Whether no units have come for too long.
    pub(super) fn is_lost(&self, now: Instant) -> bool {
        self.lost.is_some_and(|lost| now.saturating_duration_since(lost) >= PATIENCE)
    }

    /// Whether each place was asked once since units came.
    const fn asked_all(&self) -> bool {
        self.failures > self.origins.len()
    }
}

impl Outbound {
    /// Whether the stream of this key is one of another node.
    pub(super) fn is_copy(&self, registry: &Registry, key: &StreamKey) -> bool {
        let live = registry.find(key).and_then(|stream| registry.get(&stream));
        self.sources.is_copying(key) || live.is_some_and(Live::is_copy)
    }

    /// A publisher was let in here: the copy is fetched no more. The stream stays, and waits for its units.
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
        // What the worker said last of the clock is up to a second old.
        if let Some(live) = registry.get_mut(&stream) {
            let wall_ms = i64::try_from(now.wall_ms).unwrap_or(i64::MAX);
            live.clock.position.dts_ms =
                live.clock.position.dts_ms.max(wall_ms.saturating_sub(live.clock.zero_ms));
        }
    }
}

impl Cluster {
    /// The places that may have a stream which is not here.
    fn origins_of(&self, cx: &Context, key: &StreamKey) -> Vec<Origin> {
        let node = self.location(key).and_then(|Location { host, port, .. }| {
            let target = outbound::at_node(&host, port, key)?;
            Some(Origin { url: format!("{host}:{port}"), target, skip: Duration::ZERO })
        });
        let templates = cx.config.server.edge_origins();
        let targets = templates.filter_map(|template| {
            let url = template.replace("{app}", &key.app).replace("{id}", &key.id);
            let target = outbound::read_origin(&url).ok()?;
            Some(Origin { url, target, skip: Duration::ZERO })
        });
        node.into_iter().chain(targets).collect()
    }
}

impl Control {
    /// The directory names another node for a stream than before, or none. A copy goes there at once; a stream whose publisher is lost here
    /// becomes one; and who waits for the stream may ask for it now.
    pub(super) fn follow_claim(&mut self, now: Now, key: &StreamKey) {
        if self.registry.cluster.location(key).is_none() {
            return;
        }
        let state =
            self.registry.find(key).and_then(|stream| Some(self.registry.get(&stream)?.source().state));
        match state {
            Some(State::Grace(_)) => drop(self.become_copy(now, key)),
            Some(State::Awaited) if self.outbound.sources.is_copying(key) => {
                self.outbound.ask_anew(&mut self.cx, &mut self.records, &mut self.registry, now, key)
            }
            Some(State::Live(_) | State::Awaited) => {}
            None => self.cx.post_all(&ToWorker::LiveElsewhere(key.clone())),
        }
    }

    /// Makes a stream of this node a copy of the one that another node has now. Its publisher is closed, its viewers stay. False: there is
    /// no such node, or it has no relay.
    pub(super) fn become_copy(&mut self, now: Now, key: &StreamKey) -> bool {
        let origins = self.registry.cluster.origins_of(&self.cx, key);
        let (Some(stream), Some(origin)) = (self.registry.find(key), origins.first().cloned()) else {
            return false;
        };
        tracing::info!(%key, "stream is published at another node; it is copied from there");
        let before = self.registry.change(stream, |source| {
            source.ingest = Ingest::COPY;
            source.state = State::Awaited;
        });
        if let Some(State::Live(session)) = before.map(|source| source.state) {
            self.access.leave(&mut self.cx, &self.records, &mut self.hooks, now, session);
            self.cx.post(session.worker, ToWorker::Replaced { conn: session.conn, stream });
        }
        self.registry.cluster.release_stream(stream);
        self.records.note_elsewhere(now, key, true);
        if let Some(live) = self.registry.get_mut(&stream) {
            live.told.announced = false;
        }
        self.outbound.reconcile_pushes(&mut self.cx, &mut self.records, &mut self.registry, now, key);
        self.files.reconcile_recording(&mut self.cx, &self.records, &self.registry, now, key);
        let copying = Copying {
            via: Vec::new(),
            origins,
            at: 0,
            failures: 0,
            absent: 0,
            lost: Some(now.mono),
            told: None,
        };
        self.outbound.start_source(
            &mut self.cx,
            &mut self.records,
            &mut self.registry,
            now,
            Source::copy(now, key, origin, copying),
        );
        true
    }
}

impl Outbound {
    /// A viewer waits for a stream that is not here. Says whether it may come.
    pub(super) fn fetch_copy(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        registry: &mut Registry,
        now: Now,
        key: &StreamKey,
        via: Vec<String>,
    ) -> bool {
        // Whatever else a viewer asks for is no id, and has no place in a URL.
        let Some(settings) = cx.apps.get(&key.app).filter(|_| is_stream_id(&key.id)).cloned() else {
            return false;
        };
        let origins = registry.cluster.origins_of(cx, key);
        let Some(origin) = origins.first().cloned() else { return false };
        if self.sources.absent.contains(now.mono, key) || cx.is_draining() {
            return false;
        }
        if self.is_short_for_source(cx, registry, now, &settings) {
            tracing::info!(%key, "copy not fetched: resources are short");
            return false;
        }
        tracing::info!(%key, places = origins.len(), "copy wanted");
        let copying =
            Copying { via, origins, at: 0, failures: 0, absent: 0, lost: Some(now.mono), told: None };
        self.start_source(cx, records, registry, now, Source::copy(now, key, origin, copying));
        true
    }

    /// An attempt to fetch a copy is over. `is_over`: the place that was asked says that there is no such stream.
    pub(super) fn copy_failed(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        registry: &mut Registry,
        now: Now,
        id: PullId,
        (reason, is_over): (&str, bool),
    ) {
        let Some(key) = self.sources.by_id.get(&id).map(|source| source.key.clone()) else { return };
        let origins = registry.cluster.origins_of(cx, &key);
        let Some(source) = self.sources.by_id.get_mut(&id) else { return };
        let Some(copying) = &mut source.copying else { return };
        let goes_on = copying.goes_on(now.mono, is_over);
        let asked_all = copying.asked_all();
        let next = if goes_on { copying.turn(origins) } else { None };
        let Some(next) = next else {
            tracing::info!(%key, reason, "copy ended");
            return self.end_copy(cx, records, registry, now, &key, is_over);
        };
        if self.supervisor.is_news(Job::Pull(id), reason) {
            tracing::info!(%key, reason, "copy interrupted; it is fetched again");
        }
        source.origin = next;
        let remote = RemoteHost::of_node(&source.origin.target);
        if asked_all {
            self.supervisor.aim(Job::Pull(id), remote);
            self.supervisor.failed(now.mono, Job::Pull(id), None, &mut cx.random);
        } else {
            self.supervisor.interrupt(Job::Pull(id), remote);
            self.attempt(cx, records, registry, now, Job::Pull(id));
        }
    }

    /// Lets a copy go. Viewers that wait for it are refused.
    pub(super) fn end_copy(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        registry: &mut Registry,
        now: Now,
        key: &StreamKey,
        is_over: bool,
    ) {
        let is_here = registry.is_live(key);
        let end = if is_over { StreamEnd::Unpublished } else { StreamEnd::GraceOver };
        self.stop_source(cx, records, registry, now, key, end);
        if !is_here {
            self.sources.absent.note(now.mono, key.clone());
            cx.post_all(&ToWorker::NotComing(key.clone()));
        }
    }

    /// Asks for a copy where it is now.
    fn ask_anew(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        registry: &mut Registry,
        now: Now,
        key: &StreamKey,
    ) {
        let origins = registry.cluster.origins_of(cx, key);
        let Some(id) = self.sources.by_key.get(key).copied() else { return };
        let Some(source) = self.sources.by_id.get_mut(&id) else { return };
        let (Some(copying), Some(origin)) = (&mut source.copying, origins.first().cloned()) else { return };
        (copying.at, copying.failures, copying.absent, copying.origins) = (0, 0, 0, origins);
        copying.lost = Some(now.mono);
        source.origin = origin;
        let remote = RemoteHost::of_node(&source.origin.target);
        if let Some(worker) = self.supervisor.interrupt(Job::Pull(id), remote) {
            cx.post(worker, ToWorker::StopPull(id));
        }
        self.attempt(cx, records, registry, now, Job::Pull(id));
    }
}
