//! Draining before a shutdown: the server admits nothing new, hands its sources to other nodes, waits for its sessions
//! to end, and then shuts down.
//!
//! 1. An operator starts the drain. Workers refuse new viewers, admission refuses new publishers, and no source is
//!    started. Health checks report the drain, and the other nodes are informed.
//! 2. Each source is handed to another node of the cluster: the directory moves the claim, and the stream continues
//!    here, with its viewers, as a copy of the other node's stream. Failed handovers are retried. A node that cannot
//!    run a source gives its claim back, and the next node is asked. If no node takes the source, it runs here again,
//!    for the same viewers.
//! 3. The server is shut down ([`Output::Leave`]) when the time limit is over, or when no publisher and no viewer is
//!    left and viewers of HLS and DASH have had time to fetch the rest of ended streams.
//! 4. Until the server is shut down, an operator can cancel the drain.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::access::Access;
use super::answer::Outcome;
use super::cluster::Cluster;
use super::context::Context;
use super::live::{Live, Registry, State};
use super::outgoing::Outgoing;
use super::sources::Sources;
use super::supervisor::Job;
use super::{Outbound, Output};
use crate::directory::{Holder, Request};
use crate::mail::{BLOBS_LINGER, StreamEnd, ToWorker, ViewerCounts};
use crate::types::{NodeId, Now, PullId, StreamId, StreamKey};

/// Interval between checks of the sessions. Workers report their viewers at the same interval, so the first check
/// includes viewers that were admitted just before the drain.
const LOOK: Duration = Duration::from_secs(1);
/// Time before the first check.
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// Time before a node that gave a source back is asked again. Each attempt briefly interrupts the source's viewers.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// A drain in progress.
#[derive(Debug)]
pub(super) struct Leaving {
    /// Wall clock of the beginning, in milliseconds.
    pub(super) since_ms: u64,
    /// Time at which the server is shut down even if sessions are left; `None`: never.
    until: Option<Instant>,
    /// Time of the next check; `None` once the shutdown was ordered.
    next: Option<Instant>,
    /// Streams that had polling viewers (those of HLS and DASH) at the last check.
    fetched: BTreeSet<StreamId>,
    /// Time until which polling viewers may fetch the rest of streams that have ended.
    lingers_until: Option<Instant>,
    /// Sources given to other nodes. Each has the nodes that gave the source back, with the times from which they may
    /// be asked again.
    given: BTreeMap<StreamKey, BTreeMap<NodeId, Instant>>,
}

impl Leaving {
    /// True unless `node` has recently given the source back.
    fn takes(&self, now: Instant, node: &NodeId, key: &StreamKey) -> bool {
        self.given.get(key).and_then(|refusers| refusers.get(node)).is_none_or(|until| *until <= now)
    }

    /// Notes that a node has given back a source.
    fn note_refused(&mut self, now: Instant, key: &StreamKey, node: &NodeId) {
        if let Some(refusers) = self.given.get_mut(key)
            && let Some(until) = now.checked_add(REFUSED_FOR)
        {
            refusers.insert(node.clone(), until);
        }
    }

    /// Notes the streams that have polling viewers. Returns true while the polling viewers of an ended stream may still
    /// fetch its last segments.
    fn lingers(&mut self, registry: &Registry, now: Instant) -> bool {
        if self.fetched.iter().any(|stream| registry.get(stream).is_none()) {
            self.lingers_until = now.checked_add(BLOBS_LINGER);
        }
        let has_leases = |counts: &ViewerCounts| counts.leased.values().any(|count| *count > 0);
        let is_fetched =
            |stream: &StreamId| registry.get(stream).is_some_and(|live| live.viewers().any(has_leases));
        self.fetched = registry.streams().into_iter().filter(is_fetched).collect();
        self.lingers_until.is_some_and(|until| now < until)
    }

    /// Returns the time until the drain's time limit, in milliseconds; `None` without a limit.
    pub(super) fn left_ms(&self, now: Instant) -> Option<u64> {
        let left = self.until?.saturating_duration_since(now);
        Some(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Sessions that a drain waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sessions {
    /// Publishers, including those being admitted.
    pub(super) publishers: usize,
    pub(super) viewers: u64,
    /// Sources and playlists. The drain waits for them only if another node can take them.
    pub(super) sources: usize,
}

impl Context {
    pub(super) fn leaving_deadline(&self) -> Option<Instant> {
        self.leaving.as_ref()?.next
    }
}

impl Sources {
    /// Returns the sources of this node that are not copies, with the ids of their pulls.
    pub(super) fn own(&self) -> impl Iterator<Item = (&StreamKey, PullId)> {
        let is_own = |id| self.by_id.get(id).is_some_and(|source| source.copying.is_none());
        self.by_key.iter().filter(move |(_, id)| is_own(*id)).map(|(key, id)| (key, *id))
    }
}

impl Sessions {
    /// Counts the sessions of this node.
    pub(super) fn of(registry: &Registry, access: &Access, outbound: &Outbound) -> Self {
        let is_publisher = |live: &&Live| {
            let source = live.source();
            matches!(source.state, State::Live(_)) && !source.ingest.is_fetched()
        };
        Self {
            publishers: registry.all().filter(is_publisher).count().saturating_add(access.admissions.len())
                + registry.all().filter(|live| live.standby().is_some()).count(),
            viewers: registry.all().flat_map(Live::viewers).map(ViewerCounts::total).sum(),
            sources: outbound.sources.own().count(),
        }
    }
}

impl Outbound {
    /// Begins or cancels a drain. Returns the answer.
    pub(super) fn drain(
        &self,
        cx: &mut Context,
        registry: &mut Registry,
        now: Now,
        is_leaving: bool,
    ) -> Outcome<'static> {
        match (is_leaving, if is_leaving { self.leave(cx, registry, now) } else { stay(cx, registry) }) {
            (_, true) => Outcome::success(),
            (true, false) => Outcome::failure("The server is draining already"),
            (false, false) => Outcome::failure("The server is not draining, or is shutting down"),
        }
    }

    /// Begins a drain. Returns false if the server is draining already.
    fn leave(&self, cx: &mut Context, registry: &mut Registry, now: Now) -> bool {
        if cx.lets_in_nothing() {
            return false;
        }
        let limit = cx.config.server.drain_limit();
        let until = limit.and_then(|limit| now.mono.checked_add(limit));
        let next = now.mono.checked_add(FIRST_LOOK);
        let limit_s = limit.map(|limit| limit.as_secs());
        tracing::info!(limit_s, "draining: new sessions are refused");
        let (fetched, lingers_until, given) = (BTreeSet::new(), None, BTreeMap::new());
        cx.leaving = Some(Leaving { since_ms: now.wall_ms, until, next, fetched, lingers_until, given });
        registry.cluster.ask(Request::Draining(true));
        cx.post_all(&ToWorker::Leaving(true));
        registry.cluster.hand_over(self.sources.own().map(|(_, id)| id), |_, _| true);
        true
    }

    /// Checks the remaining sessions, if it is time.
    pub(super) fn fire_leaving(&self, cx: &mut Context, registry: &mut Registry, access: &Access, now: Now) {
        let Some(leaving) = cx.leaving.as_mut().filter(|one| one.next.is_some_and(|at| at <= now.mono))
        else {
            return;
        };
        let is_over = leaving.until.is_some_and(|until| until <= now.mono);
        let Sessions { publishers, viewers, sources } = Sessions::of(registry, access, self);
        let is_waited_for = registry.cluster.has_successor();
        let lingers = leaving.lingers(registry, now.mono);
        let is_empty = (publishers, viewers) == (0, 0) && (sources == 0 || !is_waited_for) && !lingers;
        if is_over || is_empty {
            leaving.next = None;
            tracing::info!(publishers, viewers, sources, is_over, "drain ended; shutting down");
            cx.outbox.outputs.push_back(Output::Leave);
        } else {
            leaving.next = now.mono.checked_add(LOOK);
            let takes = |node: &NodeId, key: &StreamKey| leaving.takes(now.mono, node, key);
            registry.cluster.hand_over(self.sources.own().map(|(_, id)| id), takes);
        }
    }

    /// Ends the attempts of a source whose id another node has: this node has given it away in a drain, or the other
    /// node has a newer claim. The source's stream can continue here as a copy. Returns false if no such source ran
    /// here.
    pub(super) fn forget_given(&mut self, cx: &mut Context, cluster: &mut Cluster, key: &StreamKey) -> bool {
        let own = self.sources.by_key.get(key).copied();
        let Some(id) = own.filter(|_| !self.sources.is_copying(key)) else { return false };
        self.sources.by_key.remove(key);
        self.sources.by_id.remove(&id);
        if let Some(worker) = self.supervisor.remove(Job::Pull(id)) {
            cx.post(worker, ToWorker::StopPull(id));
        }
        cluster.release_source(id);
        if let Some(leaving) = &mut cx.leaving {
            leaving.given.entry(key.clone()).or_default();
        }
        tracing::info!(%key, "source runs at another node from now on");
        true
    }
}

impl Outgoing<'_> {
    /// Handles a claim that another node has given to this node while this node drains: gives it to yet another node.
    /// If none takes it and the source of the claimed id ran here before, the source runs here again.
    fn take_back(&mut self, key: &StreamKey, giver: Option<&Holder>) {
        let Some(leaving) = &mut self.cx.leaving else { return };
        if let Some(giver) = giver {
            leaving.note_refused(self.now.mono, key, &giver.node);
        }
        if self.registry.cluster.pass_on(key, |node| leaving.takes(self.now.mono, node, key)) {
            return;
        }
        if leaving.given.contains_key(key)
            && let Ok(checked) = self.cx.check_source(self.records, key)
        {
            tracing::info!(%key, "source stays here: no other node takes it");
            self.outbound.release_copy(self.cx, self.registry, self.now, key);
            return self.run_source(key, checked);
        }
        // Without a successor, hold the source back until the drain is cancelled or the server starts again.
        self.outbound.hold_back(self.now, key, false);
        self.registry.cluster.release_unused(key);
    }

    /// Starts a source that another node ran, or holds it back until resources permit. If this node has a copy of the
    /// source's stream, the copy continues as the source's stream.
    pub(super) fn take_source(&mut self, key: &StreamKey) {
        let is_wanted = self.records.get(key).is_some_and(|record| record.source_wanted);
        let is_copy = self.outbound.is_copy(self.registry, key);
        // If the newer process of an upgrade has died, the older one runs its sources again although it is draining, so
        // that their viewers stay.
        let cluster = &self.registry.cluster;
        let serves_viewers = is_copy && cluster.is_pair() && !cluster.has_other() && !self.cx.is_draining();
        if !is_wanted || (self.cx.lets_in_nothing() && !serves_viewers) {
            return;
        }
        if self.cx.leaving.is_some()
            && let Ok(checked) = self.cx.check_source(self.records, key)
        {
            self.outbound.release_copy(self.cx, self.registry, self.now, key);
            return self.run_source(key, checked);
        }
        if is_copy {
            self.outbound.release_copy(self.cx, self.registry, self.now, key);
        }
        self.begin_or_hold_back(key);
        if is_copy
            && !self.outbound.sources.is_running(key)
            && let Some(stream) = self.registry.find(key)
        {
            self.registry.end(self.cx, stream, StreamEnd::GraceOver);
        }
    }

    /// Handles the claim of a source's id that another node has given to this node. Either that node is draining, or
    /// this node is draining and the other gives the claim back.
    pub(super) fn take_given(&mut self, key: &StreamKey, giver: Option<&Holder>) {
        if !self.records.get(key).is_some_and(|record| record.source_wanted) {
            return self.registry.cluster.release_unused(key);
        }
        if self.cx.leaving.is_some() {
            return self.take_back(key, giver);
        }
        let is_short = self
            .cx
            .apps
            .get(&key.app)
            .is_none_or(|app| self.outbound.is_short_for_source(self.cx, self.registry, self.now, app));
        if (is_short || self.cx.check_source(self.records, key).is_err())
            && giver.is_some_and(|giver| self.registry.cluster.hand_back(key, giver))
        {
            tracing::info!(%key, is_short, "source given back to the draining node");
            // Hold the source back here, to be started when the other node's drain is over.
            return self.outbound.hold_back(self.now, key, true);
        }
        self.take_source(key);
        self.registry.cluster.release_unused(key);
    }
}

/// Cancels a drain. Returns false if there is none, or the server is already shutting down.
fn stay(cx: &mut Context, registry: &mut Registry) -> bool {
    if cx.is_draining() || cx.leaving.take_if(|leaving| leaving.next.is_some()).is_none() {
        return false;
    }
    tracing::info!("drain called off");
    registry.cluster.ask(Request::Draining(false));
    cx.post_all(&ToWorker::Leaving(false));
    true
}
