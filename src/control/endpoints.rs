//! Restreaming endpoints (docs/robustness.md, U-01 to U-04).
//!
//! 1. When a stream goes live, or an endpoint is added to a live stream, an attempt begins immediately.
//! 2. The `supervisor` resolves names, checks addresses and times the attempts. The worker that has the stream's
//!    publisher makes them.
//! 3. News of the current attempt changes the endpoint's status. News of an older attempt is dropped.
//! 4. A failed attempt is followed by another one. If `endpointRepublishLimit` is set, attempts end at that number,
//!    until the stream is published again or the setting allows more.
//! 5. A removed endpoint is stopped immediately; later answers about it are ignored.

use super::context::Context;
use super::live::{Live, Registry};
use crate::control::records::Records;
use crate::control::{ControlConfig, Outbound};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde::Serialize;

use crate::auth::{redact, redact_reason};
use crate::config::AppSettings;
use crate::mail::{PushOrder, PushState, Target, ToWorker, via_entry};
use crate::protocol::outbound;
use crate::types::{Now, PushId, StreamId, StreamKey};

use super::broadcast::{EndpointRecord, status};
use super::held::Standing;
use super::outgoing::Outgoing;
use super::own_pushes::OwnPushes;
use super::repeats::Repeat;
use super::supervisor::{Job, RemoteHost};
use super::{Control, wall};

/// Maximum number of outcomes remembered for each endpoint; the oldest are dropped.
const HISTORY_MAX: usize = 20;

/// An outcome that one attempt or several consecutive attempts had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Outcome {
    /// Time of the last attempt, in milliseconds of Unix time.
    at: i64,
    status: &'static str,
    /// The reason, if the attempts failed.
    reason: Option<String>,
    /// Number of consecutive attempts with this outcome.
    times: u32,
}

/// An endpoint of a live stream.
#[derive(Debug)]
struct Push {
    key: StreamKey,
    stream: StreamId,
    service_id: String,
    url: String,
    target: Target,
    /// True if the hook was called for the current series of failures.
    told_failed: bool,
    /// Codecs of the tracks left out, as last logged.
    told_left_out: Vec<String>,
    history: VecDeque<Outcome>,
}

impl Push {
    fn note(&mut self, now: Now, status: &'static str, reason: Option<&str>) {
        let at = wall(now);
        if let Some(last) = self.history.back_mut()
            && (last.status, last.reason.as_deref()) == (status, reason)
        {
            (last.at, last.times) = (at, last.times.saturating_add(1));
            return;
        }
        if self.history.len() >= HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(Outcome { at, status, reason: reason.map(str::to_owned), times: 1 });
    }
}

/// Pushes of live streams to their endpoints.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    by_id: BTreeMap<PushId, Push>,
    pushes: u64,
    pub(super) own: OwnPushes,
}

impl Pushes {
    /// Returns the stream of a push.
    pub(super) fn key_of(&self, id: PushId) -> Option<&StreamKey> {
        self.by_id.get(&id).map(|push| &push.key)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns all pushes with their streams and URLs.
    pub(super) fn all(&self) -> impl Iterator<Item = (PushId, &StreamKey, &str)> {
        self.by_id.iter().map(|(id, push)| (*id, &push.key, push.url.as_str()))
    }

    /// Returns the URLs of a live stream's endpoints, with the outcomes of attempts since it went live.
    pub(super) fn histories<'a>(
        &'a self,
        live: &'a Live,
    ) -> impl Iterator<Item = (&'a str, &'a VecDeque<Outcome>)> {
        live.pushes.iter().filter_map(|id| self.by_id.get(id)).map(|push| (push.url.as_str(), &push.history))
    }
}

impl Outbound {
    /// Logs the tracks that are not sent to a target. Each list of tracks is logged once, because later attempts
    /// leave out the same tracks.
    fn note_left_out(&mut self, id: PushId, codecs: &[String]) {
        let Some(push) = self.pushes.by_id.get_mut(&id) else { return };
        if codecs.is_empty() || push.told_left_out == codecs {
            return;
        }
        push.told_left_out = codecs.to_vec();
        let (key, url, codecs) = (&push.key, redact(&push.url), codecs.join(","));
        tracing::warn!(%key, url, codecs, "push leaves out tracks that its target cannot take");
    }

    /// Forgets the pushes of an ended stream; workers close them by themselves (`StreamDown`).
    pub(super) fn forget_pushes(&mut self, live: &Live) {
        for id in &live.pushes {
            self.pushes.by_id.remove(id);
            self.pushes.own.ended(*id);
            self.supervisor.remove(Job::Push(*id));
        }
    }
}

impl Records {
    /// Changes an endpoint. It is found by its URL, which is unique in a list; ids may repeat, since clients set
    /// them.
    fn change_endpoint(&mut self, key: &StreamKey, url: &str, change: impl Fn(&mut EndpointRecord)) {
        let Some(record) = self.get_mut(key) else { return };
        let list = record.end_point_list.iter_mut().flatten();
        list.filter(|endpoint| endpoint.endpoint_url == url).for_each(change);
    }
}

impl ControlConfig {
    /// True if a host is this server, as far as this is known without resolving the host's name.
    pub(super) fn is_own_host(&self, host: &str) -> bool {
        match host.parse::<IpAddr>() {
            Ok(address) => self.outbound.is_own(address) || address.is_unspecified(),
            Err(_) => {
                let host = host.trim_end_matches('.');
                let names = self.server.names.iter().map(String::as_str);
                let mut own = names.chain([self.host_address.as_str(), "localhost"]);
                own.any(|own| !own.is_empty() && host.eq_ignore_ascii_case(own))
            }
        }
    }
}

impl Records {
    fn set_endpoint_status(&mut self, key: &StreamKey, url: &str, status: &str) {
        self.change_endpoint(key, url, |endpoint| status.clone_into(&mut endpoint.status));
    }

    fn set_left_out(&mut self, key: &StreamKey, url: &str, codecs: &[String]) {
        self.change_endpoint(key, url, |endpoint| endpoint.left_out = codecs.to_vec());
    }
}

impl ControlConfig {
    /// True if a push of `key` to this URL would arrive at the same stream (docs/robustness.md, U-34). Loops through
    /// other servers are detected while pushing, by `via`, the list of servers that a stream has passed.
    pub(super) fn is_loop(&self, key: &StreamKey, target: &Target) -> bool {
        self.is_own_host(&target.host) && outbound::is_own_stream(target, &self.addresses, key)
    }
}

impl Control {
    pub(super) fn push_news(&mut self, now: Now, id: PushId, attempt: u64, state: PushState) {
        let Some(push) = self.outbound.pushes.by_id.get(&id) else { return };
        if !self.outbound.supervisor.is_current(Job::Push(id), attempt) {
            return;
        }
        let (key, url) = (push.key.clone(), push.url.clone());
        match state {
            PushState::Preparing => {
                self.records.set_left_out(&key, &url, &[]);
                self.records.set_endpoint_status(&key, &url, status::PREPARING);
            }
            PushState::LeavesOut(codecs) => {
                let codecs: Vec<String> = codecs.iter().map(ToString::to_string).collect();
                self.outbound.note_left_out(id, &codecs);
                self.records.set_left_out(&key, &url, &codecs);
            }
            PushState::Broadcasting => {
                self.outbound.supervisor.steady(now.mono, Job::Push(id));
                if let Some(push) = self.outbound.pushes.by_id.get_mut(&id) {
                    push.note(now, status::BROADCASTING, None);
                }
                self.records.set_endpoint_status(&key, &url, status::BROADCASTING);
            }
            PushState::Failed(reason) => self.push_failed(now, id, status::FAILED, &reason),
            PushState::Error(reason) => self.push_failed(now, id, status::ERROR, &reason),
            PushState::Again(reason) => {
                tracing::info!(%key, url = redact(&url), reason, "push restarted");
                self.outbound.pushes.own.ended(id);
                self.outbound.supervisor.again(now.mono, Job::Push(id));
            }
            // Either the end of the stream is about to be reported, or the worker ended the push by mistake. In the
            // latter case the push is retried.
            PushState::Finished => self.push_failed(now, id, status::FINISHED, "the worker ended it"),
        }
    }

    pub(super) fn push_failed(&mut self, now: Now, id: PushId, status: &'static str, reason: &str) {
        let Some(push) = self.outbound.pushes.by_id.get(&id) else { return };
        let (key, url) = (push.key.clone(), push.url.clone());
        let reason = &*redact_reason(reason, &url);
        let settings = self.cx.apps.get(&key.app).cloned();
        self.outbound.pushes.own.ended(id);
        let limit = settings.as_ref().and_then(|settings| settings.endpoint_republish_limit);
        let failures = self.outbound.supervisor.failed(now.mono, Job::Push(id), limit, &mut self.cx.random);
        let shown = redact(&url);
        let is_news = self.outbound.supervisor.is_news(Job::Push(id), reason);
        match failures {
            Some(failures) if failures == 1 || is_news && limit.is_none_or(|limit| failures <= limit) => {
                tracing::info!(%key, url = shown, reason, "push failed; retrying");
            }
            Some(failures) if limit.is_some_and(|limit| failures > limit) => {
                tracing::warn!(%key, url = shown, failures, reason, "push failed; not retrying");
            }
            Some(_) | None => {
                tracing::debug!(%key, url = shown, failures, reason, "push failed");
                self.outbound.repeats.note(now, Repeat::Push, &key, reason);
            }
        }
        let told_after = settings.and_then(|settings| settings.endpoint_failed_after);
        let many = told_after.is_some_and(|after| failures.is_some_and(|failures| failures > after));
        let tell = self.outbound.pushes.by_id.get_mut(&id).is_some_and(|push| {
            // Report once per series of failures. A connection that holds for a while ends the series.
            let told = std::mem::replace(&mut push.told_failed, many);
            push.note(now, status, Some(reason));
            many && !told
        });
        self.records.set_endpoint_status(&key, &url, status);
        if tell {
            self.hooks.hook_endpoint_failed(&mut self.cx, &self.records, now, &key, &url);
        }
    }
}

impl Outbound {
    /// Applies the current `endpointRepublishLimit` of an application to the pushes of its live streams.
    pub(super) fn reconcile_given_up(
        &mut self,
        cx: &mut Context,
        registry: &Registry,
        now: Now,
        app: &AppSettings,
    ) {
        let limit = app.endpoint_republish_limit;
        for id in registry.of_app(&app.name).flat_map(|(_, live)| &live.pushes) {
            let changed = self.supervisor.limit(now.mono, Job::Push(*id), limit, &mut cx.random);
            let (Some((failures, standing)), Some(push)) = (changed, self.pushes.by_id.get(id)) else {
                continue;
            };
            let (key, url, retrying) = (&push.key, redact(&push.url), standing == Standing::Waiting);
            tracing::info!(%key, url, failures, retrying, "endpointRepublishLimit changed");
        }
    }

    /// Notes the local address of a push's established connection. If the push arrives at this same server as a
    /// publisher, that publisher is recognised by this address.
    pub(super) fn push_opened(&mut self, now: Now, id: PushId, local: SocketAddr) {
        // If the push was removed in the meantime, its address is still noted, but as that of an ended push.
        let app = self.pushes.by_id.get(&id).map_or_else(|| Arc::from(""), |push| push.key.app.clone());
        self.pushes.own.opened(now.mono, id, &app, local);
        if app.is_empty() {
            self.pushes.own.ended(id);
        }
    }

    /// Logs that the resolver has not answered yet about the host of a push, and marks the endpoint as failed.
    pub(super) fn push_still_resolving(&mut self, records: &mut Records, now: Now, id: PushId) {
        let Some(push) = self.pushes.by_id.get(&id) else { return };
        let (key, url) = (push.key.clone(), push.url.clone());
        if self.supervisor.has_failed(Job::Push(id)) {
            self.repeats.note(now, Repeat::Resolver, &key, &redact(&url));
        } else {
            tracing::info!(%key, url = redact(&url), "DNS resolver not answering");
        }
        records.set_endpoint_status(&key, &url, status::FAILED);
    }

    /// Orders the worker of the stream's publisher to make an attempt of a push.
    pub(super) fn order_push(
        &mut self,
        cx: &mut Context,
        registry: &Registry,
        id: PushId,
        address: SocketAddr,
    ) {
        let Some(push) = self.pushes.by_id.get(&id) else { return };
        let Some(attempt) = self.supervisor.attempt_of(Job::Push(id)) else { return };
        let Some(live) = registry.get(&push.stream) else { return };
        let mut via = live.via.clone();
        via.push(via_entry(&cx.config.node, &push.key));
        let order = PushOrder {
            push: id,
            attempt,
            stream: push.stream,
            address,
            target: push.target.clone(),
            via,
            settings: live.settings.clone(),
        };
        let worker = live.source().worker;
        self.supervisor.open(Job::Push(id), worker);
        cx.post(worker, ToWorker::StartPush(Box::new(order)));
    }

    fn stop_push(&mut self, cx: &mut Context, id: PushId) {
        self.pushes.by_id.remove(&id);
        self.pushes.own.ended(id);
        if let Some(worker) = self.supervisor.remove(Job::Push(id)) {
            cx.post(worker, ToWorker::StopPush(id));
        }
    }
}

impl Outgoing<'_> {
    /// Starts and stops pushes to match the record of a live stream.
    pub(super) fn reconcile_pushes(&mut self, key: &StreamKey) {
        let Some(stream) = self.registry.find(key) else { return };
        // A copy is pushed by the node of its origin, not from here.
        let record = self.records.get(key).filter(|_| !self.outbound.is_copy(self.registry, key));
        let list = record.and_then(|record| record.end_point_list.clone()).unwrap_or_default();
        let Some(live) = self.registry.get(&stream) else { return };
        let mut kept = Vec::new();
        for id in live.pushes.clone() {
            let Some(push) = self.outbound.pushes.by_id.get(&id) else { continue };
            let same =
                |e: &EndpointRecord| e.endpoint_service_id == push.service_id && e.endpoint_url == push.url;
            if list.iter().any(same) {
                kept.push(id);
            } else {
                self.outbound.stop_push(self.cx, id);
            }
        }
        for endpoint in &list {
            let known = |id: &PushId| {
                let push = self.outbound.pushes.by_id.get(id);
                push.is_some_and(|p| {
                    p.service_id == endpoint.endpoint_service_id && p.url == endpoint.endpoint_url
                })
            };
            if !kept.iter().any(known) {
                kept.extend(self.begin_push((key, stream), endpoint));
            }
        }
        if let Some(live) = self.registry.get_mut(&stream) {
            live.pushes = kept;
        }
    }

    fn begin_push(
        &mut self,
        (key, stream): (&StreamKey, StreamId),
        endpoint: &EndpointRecord,
    ) -> Option<PushId> {
        self.outbound.pushes.pushes += 1;
        let id = PushId(self.outbound.pushes.pushes);
        let shown = redact(&endpoint.endpoint_url);
        let target = outbound::read_endpoint(&endpoint.endpoint_url);
        let target = match target {
            Ok(target) => target,
            Err(error) => {
                tracing::debug!(%key, url = shown, %error, "endpoint not usable");
                self.records.set_endpoint_status(key, &endpoint.endpoint_url, status::FAILED);
                return None;
            }
        };
        let remote = RemoteHost::of(&target, self.cx.config.server.host);
        let push = Push {
            key: key.clone(),
            stream,
            service_id: endpoint.endpoint_service_id.clone(),
            url: endpoint.endpoint_url.clone(),
            target,
            told_failed: false,
            told_left_out: Vec::new(),
            history: VecDeque::new(),
        };
        self.outbound.pushes.by_id.insert(id, push);
        self.outbound.supervisor.add(Job::Push(id), remote);
        self.attempt(Job::Push(id));
        Some(id)
    }
}
