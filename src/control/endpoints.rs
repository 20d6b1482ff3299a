//! The supervisor of restreaming endpoints (design.md §4, robustness.md U-01 to U-04).
//!
//! 1. A stream goes live, or an endpoint is added while it is: an attempt begins at once.
//! 2. A host name is resolved anew for each attempt; the address is checked, then ordered from the source's worker.
//! 3. News moves the endpoint's status. News of an older attempt is dropped.
//! 4. A failure is followed by the next attempt after 1, 1, 2, 2, 4, 4, 4, 4, 8, 16, 25, 25, ... s, up to a fifth
//!    earlier, for ever; an explicit `endpointRepublishLimit` ends it until the next publish.
//! 5. An endpoint that is removed is stopped within the same turn; an answer that comes later finds nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::auth::outbound::{Endpoint, Scheme, redact};
use crate::mail::{
    Now, PushId, PushOrder, PushState, PushTarget, StreamId, StreamKey, ToWorker, WorkerId, via_entry,
};

use super::broadcast::{EndpointRecord, status};
use super::registry::Live;
use super::{Control, Output, ResolveRequest, Resolved};

/// Pauses after the first, second, ... failure in a row, in milliseconds; the last one repeats.
const PAUSES_MS: [u64; 11] = [1000, 1000, 2000, 2000, 4000, 4000, 4000, 4000, 8000, 16_000, 25_000];
/// A push that held for so long starts over with the short pauses: an outage is short or long by itself, however
/// soon it follows another.
const STEADY: Duration = Duration::from_secs(2);
/// A resolver that takes longer has failed.
const RESOLVE_MAX: Duration = Duration::from_secs(10);

/// Where a push stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting(Instant),
    Resolving { request: u64, until: Instant },
    Open { worker: WorkerId, since: Option<Instant> },
    GivenUp,
}

impl Phase {
    const fn due(self) -> Option<Instant> {
        match self {
            Self::Waiting(at) | Self::Resolving { until: at, .. } => Some(at),
            Self::Open { .. } | Self::GivenUp => None,
        }
    }
}

/// One endpoint of a live stream.
#[derive(Debug)]
struct Push {
    key: StreamKey,
    stream: StreamId,
    service_id: String,
    url: String,
    target: Endpoint,
    attempt: u64,
    failures: u32,
    phase: Phase,
}

/// All endpoints of live streams.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    by_id: BTreeMap<PushId, Push>,
    due: BTreeSet<(Instant, PushId)>,
    resolving: BTreeMap<u64, PushId>,
    pushes: u64,
    requests: u64,
}

impl Pushes {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn broadcasting(&self) -> usize {
        let on = |push: &&Push| matches!(push.phase, Phase::Open { since: Some(_), .. });
        self.by_id.values().filter(on).count()
    }

    fn enter(&mut self, id: PushId, phase: Phase) {
        let Some(push) = self.by_id.get_mut(&id) else { return };
        leave(&mut self.due, &mut self.resolving, id, push.phase);
        push.phase = phase;
        if let Some(at) = phase.due() {
            self.due.insert((at, id));
        }
        if let Phase::Resolving { request, .. } = phase {
            self.resolving.insert(request, id);
        }
    }

    fn remove(&mut self, id: PushId) -> Option<Push> {
        let push = self.by_id.remove(&id)?;
        leave(&mut self.due, &mut self.resolving, id, push.phase);
        Some(push)
    }
}

fn leave(
    due: &mut BTreeSet<(Instant, PushId)>,
    resolving: &mut BTreeMap<u64, PushId>,
    id: PushId,
    phase: Phase,
) {
    if let Some(at) = phase.due() {
        due.remove(&(at, id));
    }
    if let Phase::Resolving { request, .. } = phase {
        resolving.remove(&request);
    }
}

impl Control {
    /// Starts and stops pushes until they are what the record of a live stream lists.
    pub(super) fn reconcile_pushes(&mut self, now: Now, key: &StreamKey) {
        let Some(stream) = self.stream_of(key) else { return };
        let list = self.records.get(key).and_then(|record| record.end_point_list.clone()).unwrap_or_default();
        let Some(live) = self.registry.live.get(&stream) else { return };
        let mut kept = Vec::new();
        for id in live.pushes.clone() {
            let Some(push) = self.pushes.by_id.get(&id) else { continue };
            let same =
                |e: &EndpointRecord| e.endpoint_service_id == push.service_id && e.endpoint_url == push.url;
            if list.iter().any(same) {
                kept.push(id);
            } else {
                self.stop_push(id);
            }
        }
        for endpoint in &list {
            let known = |id: &PushId| {
                let push = self.pushes.by_id.get(id);
                push.is_some_and(|p| {
                    p.service_id == endpoint.endpoint_service_id && p.url == endpoint.endpoint_url
                })
            };
            if !kept.iter().any(known) {
                kept.extend(self.begin_push(now, key, stream, endpoint));
            }
        }
        if let Some(live) = self.registry.live.get_mut(&stream) {
            live.pushes = kept;
        }
    }

    fn begin_push(
        &mut self,
        now: Now,
        key: &StreamKey,
        stream: StreamId,
        endpoint: &EndpointRecord,
    ) -> Option<PushId> {
        self.pushes.pushes += 1;
        let id = PushId(self.pushes.pushes);
        let shown = redact(&endpoint.endpoint_url);
        let target = Endpoint::parse(&endpoint.endpoint_url);
        let target = match target {
            Ok(target) if matches!(target.scheme, Scheme::Rtmp | Scheme::Rtmps) => target,
            Ok(target) => {
                tracing::debug!(%key, url = shown, "no output for {} yet", target.scheme.name());
                self.set_endpoint_status(key, &endpoint.endpoint_service_id, status::FAILED);
                return None;
            }
            Err(error) => {
                tracing::debug!(%key, url = shown, %error, "endpoint not usable");
                self.set_endpoint_status(key, &endpoint.endpoint_service_id, status::FAILED);
                return None;
            }
        };
        let push = Push {
            key: key.clone(),
            stream,
            service_id: endpoint.endpoint_service_id.clone(),
            url: endpoint.endpoint_url.clone(),
            target,
            attempt: 0,
            failures: 0,
            phase: Phase::GivenUp,
        };
        self.pushes.by_id.insert(id, push);
        self.attempt_push(now, id);
        Some(id)
    }

    /// Begins the next attempt.
    fn attempt_push(&mut self, now: Now, id: PushId) {
        let Some(push) = self.pushes.by_id.get_mut(&id) else { return };
        push.attempt += 1;
        let (host, port) = (push.target.host.clone(), push.target.port);
        if let Ok(address) = host.parse::<IpAddr>() {
            self.order_push(now, id, &[SocketAddr::new(address, port)]);
            return;
        }
        self.pushes.requests += 1;
        let request = self.pushes.requests;
        let until = now.mono.checked_add(RESOLVE_MAX).unwrap_or(now.mono);
        self.pushes.enter(id, Phase::Resolving { request, until });
        self.outputs.push_back(Output::Resolve(ResolveRequest { id: request, host, port }));
    }

    pub(super) fn resolved(&mut self, now: Now, answer: Resolved) {
        let Some(id) = self.pushes.resolving.get(&answer.id).copied() else { return };
        match answer.result {
            Ok(addresses) if !addresses.is_empty() => self.order_push(now, id, &addresses),
            Ok(_) => self.push_failed(now, id, status::FAILED, "the host has no address"),
            Err(reason) => self.push_failed(now, id, status::FAILED, &reason),
        }
    }

    /// The resolver is silent: the status says so, and its answer is still waited for. A second request for the
    /// same name would only lengthen its queue.
    fn still_resolving(&mut self, now: Now, id: PushId, request: u64) {
        let Some(push) = self.pushes.by_id.get_mut(&id) else { return };
        push.failures = push.failures.saturating_add(1);
        let (key, service_id) = (push.key.clone(), push.service_id.clone());
        tracing::info!(%key, url = redact(&push.url), "the resolver does not answer");
        let until = now.mono.checked_add(RESOLVE_MAX).unwrap_or(now.mono);
        self.pushes.enter(id, Phase::Resolving { request, until });
        self.set_endpoint_status(&key, &service_id, status::FAILED);
    }

    /// Orders the attempt from the source's worker. Attempts take turns through the addresses that are allowed.
    fn order_push(&mut self, now: Now, id: PushId, addresses: &[SocketAddr]) {
        let policy = &self.config.outbound;
        let allowed: Vec<SocketAddr> =
            addresses.iter().copied().filter(|a| policy.check(*a).is_ok()).collect();
        let Some(push) = self.pushes.by_id.get(&id) else { return };
        let turn = usize::try_from(push.attempt.saturating_sub(1)).unwrap_or(0);
        let address = turn.checked_rem(allowed.len()).and_then(|at| allowed.get(at).copied());
        let Some(address) = address else {
            let denied = addresses.iter().find_map(|a| policy.check(*a).err());
            let reason = denied.map_or_else(String::new, |d| d.to_string());
            self.push_failed(now, id, status::FAILED, &reason);
            return;
        };
        let Some(live) = self.registry.live.get(&push.stream) else { return };
        let mut via = live.via.clone();
        via.push(via_entry(&self.config.node, &push.key));
        let order = PushOrder {
            push: id,
            attempt: push.attempt,
            stream: push.stream,
            address,
            tls_name: (push.target.scheme == Scheme::Rtmps).then(|| push.target.host.as_str().into()),
            target: PushTarget::Rtmp {
                app: push.target.app.clone(),
                tc_url: push.target.tc_url(),
                name: push.target.name.clone(),
                via,
            },
            settings: live.settings.clone(),
        };
        let worker = live.source;
        self.pushes.enter(id, Phase::Open { worker, since: None });
        self.post(worker, ToWorker::StartPush(Box::new(order)));
    }

    pub(super) fn push_news(&mut self, now: Now, id: PushId, attempt: u64, state: PushState) {
        let Some(push) = self.pushes.by_id.get(&id) else { return };
        let Phase::Open { worker, since } = push.phase else { return };
        if push.attempt != attempt {
            return;
        }
        let (key, service_id) = (push.key.clone(), push.service_id.clone());
        match state {
            PushState::Preparing => self.set_endpoint_status(&key, &service_id, status::PREPARING),
            PushState::Broadcasting => {
                self.pushes.enter(id, Phase::Open { worker, since: since.or(Some(now.mono)) });
                self.set_endpoint_status(&key, &service_id, status::BROADCASTING);
            }
            PushState::Failed(reason) => self.push_failed(now, id, status::FAILED, &reason),
            PushState::Error(reason) => self.push_failed(now, id, status::ERROR, &reason),
            // The stream's end is on its way, or the worker ended it by mistake: then it is tried again.
            PushState::Finished => self.push_failed(now, id, status::FINISHED, "the worker ended it"),
        }
    }

    fn push_failed(&mut self, now: Now, id: PushId, status: &str, reason: &str) {
        let Some(push) = self.pushes.by_id.get_mut(&id) else { return };
        if let Phase::Open { since: Some(since), .. } = push.phase
            && now.mono.saturating_duration_since(since) >= STEADY
        {
            push.failures = 0;
        }
        let failed_before = push.failures;
        push.failures = push.failures.saturating_add(1);
        let (key, service_id) = (push.key.clone(), push.service_id.clone());
        tracing::info!(%key, url = redact(&push.url), failures = push.failures, reason, "push failed");
        let url = push.url.clone();
        let settings = self.registry.live.get(&push.stream).map(|live| live.settings.clone());
        let limit = settings.as_ref().and_then(|settings| settings.endpoint_republish_limit);
        let tell = settings.and_then(|settings| settings.endpoint_failed_after) == Some(failed_before);
        let phase = if limit.is_some_and(|limit| failed_before >= limit) {
            Phase::GivenUp
        } else {
            let pause = self.pause(failed_before);
            Phase::Waiting(now.mono.checked_add(pause).unwrap_or(now.mono))
        };
        self.pushes.enter(id, phase);
        self.set_endpoint_status(&key, &service_id, status);
        if tell {
            self.hook_endpoint_failed(now, &key, &url);
        }
    }

    fn pause(&mut self, failed_before: u32) -> Duration {
        let at = usize::try_from(failed_before).unwrap_or(usize::MAX);
        let full = PAUSES_MS.get(at).or(PAUSES_MS.last()).copied().unwrap_or(1000);
        Duration::from_millis(full - self.random.below(full / 5 + 1))
    }

    pub(super) fn fire_pushes(&mut self, now: Now) {
        while let Some((at, id)) = self.pushes.due.first().copied() {
            if at > now.mono {
                return;
            }
            match self.pushes.by_id.get(&id).map(|push| push.phase) {
                Some(Phase::Waiting(_)) => {
                    // Left before the attempt, so that the same entry cannot fire twice.
                    self.pushes.enter(id, Phase::GivenUp);
                    self.attempt_push(now, id);
                }
                Some(Phase::Resolving { request, .. }) => self.still_resolving(now, id, request),
                Some(Phase::Open { .. } | Phase::GivenUp) | None => {
                    self.pushes.due.remove(&(at, id));
                }
            }
        }
    }

    fn stop_push(&mut self, id: PushId) {
        if let Some(push) = self.pushes.remove(id)
            && let Phase::Open { worker, .. } = push.phase
        {
            self.post(worker, ToWorker::StopPush(id));
        }
    }

    /// The stream ends: its workers close the pushes on their own (`StreamDown`).
    pub(super) fn forget_pushes(&mut self, live: &Live) {
        for id in &live.pushes {
            self.pushes.remove(*id);
        }
    }

    fn set_endpoint_status(&mut self, key: &StreamKey, service_id: &str, status: &str) {
        let Some(record) = self.records.get_mut(key) else { return };
        for endpoint in record.end_point_list.iter_mut().flatten() {
            if endpoint.endpoint_service_id == service_id {
                status.clone_into(&mut endpoint.status);
            }
        }
    }

    /// Whether a push of `key` to this URL would come straight back (robustness.md U-34). A detour is found at run
    /// time by `via`.
    pub(super) fn is_loop(&self, key: &StreamKey, target: &Endpoint) -> bool {
        let own_host = match target.host.parse::<IpAddr>() {
            Ok(address) => self.config.outbound.is_own(address) || address.is_unspecified(),
            Err(_) => {
                let host = target.host.trim_end_matches('.');
                [self.config.server.name.as_str(), self.config.host_address.as_str(), "localhost"]
                    .iter()
                    .any(|own| !own.is_empty() && host.eq_ignore_ascii_case(own))
            }
        };
        own_host
            && [Some(self.config.rtmp_port), self.config.rtmps_port].contains(&Some(target.port))
            && target.app.split('/').next() == Some(&*key.app)
            && target.stream_id() == &*key.id
    }
}
