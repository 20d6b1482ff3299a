//! Presence: the viewers and publishers that control keeps track of for checks and hooks, and the subscribers to which
//! they belong.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;

use crate::auth::HookUrl;
use crate::auth::access::{Credentials, Direction, Params};
use crate::control::access::Access;
use crate::control::cluster::Cluster;
use crate::control::context::Context;
use crate::control::hooks::{Hooks, Notice};
use crate::control::live::Registry;
use crate::control::records::Records;
use crate::control::wall;
use crate::mail::{LeaseNews, PlayRequest, PublishRequest, StreamEnd, ToWorker};
use crate::types::{Now, SessionRef, StreamKey};

/// Maximum number of events kept of an application.
const EVENTS_MAX: usize = 10_000;

/// A subscriber of a stream, whether or not the subscriber has a record.
type Who = (StreamKey, String);

/// A session of a subscriber.
#[derive(Debug)]
struct Presence {
    key: StreamKey,
    direction: Direction,
    protocol: &'static str,
    params: Params,
    subscriber: Option<String>,
    /// True if the session is being served, false if only admitted.
    started: bool,
    /// Hook receiver to which the start was reported, and to which the end will be reported.
    told: Option<HookUrl>,
}

/// The arrival or departure of a subscriber, as listed by the API.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::control) struct ConnectionEvent {
    timestamp: i64,
    event_type: &'static str,
    #[serde(rename = "instanceIP")]
    instance_ip: String,
    #[serde(rename = "type")]
    kind: &'static str,
    event_protocol: &'static str,
    pub(in crate::control) stream_id: String,
    pub(in crate::control) subscriber_id: String,
}

/// The sessions that control tracks for its checks and for hooks.
#[derive(Debug, Default)]
pub(in crate::control) struct Presences {
    sessions: BTreeMap<SessionRef, Presence>,
    subscribers: BTreeMap<Who, BTreeSet<SessionRef>>,
    /// Numbers of viewers: by protocol and stream, and by protocol and application.
    viewers: BTreeMap<(&'static str, StreamKey), u32>,
    viewers_of_apps: BTreeMap<(&'static str, Arc<str>), u32>,
    events: BTreeMap<Arc<str>, VecDeque<ConnectionEvent>>,
    /// Subscribers whose number of connections has changed while control handled the current input.
    changed: BTreeSet<Who>,
}

impl Presences {
    /// Number of entries in the tables of sessions. Simulations check that it returns to 0.
    pub(in crate::control) fn held(&self) -> usize {
        self.sessions.len() + self.subscribers.len()
    }

    /// Number of connections of a subscriber.
    pub(super) fn count(&self, key: &StreamKey, id: &str) -> usize {
        self.subscribers.get(&(key.clone(), id.to_owned())).map_or(0, BTreeSet::len)
    }

    /// Returns the subscribers of a stream that are connected.
    pub(in crate::control) fn subscribers_of(&self, key: &StreamKey) -> impl Iterator<Item = &str> {
        let first = (key.clone(), String::new());
        let all = self.subscribers.range(first..).take_while(move |((of, _), _)| of == key);
        all.map(|((_, id), _)| id.as_str())
    }

    /// Number of viewers of a stream by a protocol.
    pub(in crate::control) fn viewers_of(&self, protocol: &'static str, key: &StreamKey) -> u32 {
        self.viewers.get(&(protocol, key.clone())).copied().unwrap_or(0)
    }

    /// Number of viewers of all streams of an application by a protocol.
    pub(in crate::control) fn viewers_of_app(&self, protocol: &'static str, app: &Arc<str>) -> u32 {
        self.viewers_of_apps.get(&(protocol, Arc::clone(app))).copied().unwrap_or(0)
    }

    fn count_viewer(&mut self, presence: &Presence, came: bool) {
        if presence.direction == Direction::Play {
            let (protocol, key) = (presence.protocol, &presence.key);
            step(&mut self.viewers, (protocol, key.clone()), came);
            step(&mut self.viewers_of_apps, (protocol, Arc::clone(&key.app)), came);
        }
    }

    /// Forgets the events of a removed application.
    pub(in crate::control) fn forget_events(&mut self, app: &str) {
        self.events.remove(app);
    }

    /// Returns the events of an application, oldest first.
    pub(in crate::control) fn events(&self, app: &str) -> impl Iterator<Item = &ConnectionEvent> {
        self.events.get(app).into_iter().flatten()
    }

    fn insert(&mut self, session: SessionRef, presence: Presence) {
        self.remove(session);
        self.count_viewer(&presence, true);
        if let Some(id) = &presence.subscriber {
            let who = (presence.key.clone(), id.clone());
            self.subscribers.entry(who.clone()).or_default().insert(session);
            self.changed.insert(who);
        }
        self.sessions.insert(session, presence);
    }

    fn remove(&mut self, session: SessionRef) -> Option<Presence> {
        let presence = self.sessions.remove(&session)?;
        self.count_viewer(&presence, false);
        if let Some(id) = &presence.subscriber {
            let who = (presence.key.clone(), id.clone());
            if let Some(sessions) = self.subscribers.get_mut(&who) {
                sessions.remove(&session);
                if sessions.is_empty() {
                    self.subscribers.remove(&who);
                }
            }
            self.changed.insert(who);
        }
        Some(presence)
    }
}

/// Increases or decreases a count, and removes the entry when the count becomes zero.
fn step<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K, more: bool) {
    let count = counts.get(&key).copied().unwrap_or(0);
    match if more { count.saturating_add(1) } else { count.saturating_sub(1) } {
        0 => drop(counts.remove(&key)),
        count => drop(counts.insert(key, count)),
    }
}

impl Presence {
    fn of_viewer(request: PlayRequest) -> Self {
        let subscriber = Credentials::of(&request.params).subscriber.map(str::to_owned);
        Self {
            key: request.key,
            direction: Direction::Play,
            protocol: request.egress,
            params: request.params,
            subscriber,
            started: false,
            told: None,
        }
    }
}

impl Access {
    /// Adds a viewer who was admitted.
    pub(in crate::control) fn viewer_admitted(&mut self, request: PlayRequest) {
        self.presences.insert(request.session, Presence::of_viewer(request));
    }

    /// Reports to the other nodes how many connections each subscriber has, if the number has changed while control
    /// handled the current input. Subscribers without a record are left out: anybody can invent their names, and each
    /// report is a write to the directory.
    pub(in crate::control) fn tell_present(&mut self, records: &Records, cluster: &mut Cluster) {
        while let Some(who) = self.presences.changed.pop_first() {
            let is_known = records.auxiliary.subscriber(&who.0, &who.1).is_some();
            let count = if is_known { self.presences.count(&who.0, &who.1) } else { 0 };
            cluster.note_present(&who, count);
        }
    }

    /// Makes the next call of [`Self::tell_present`] report all subscribers, because there is a node to tell now.
    pub(in crate::control) fn tell_all_present(&mut self) {
        self.presences.changed.extend(self.presences.subscribers.keys().cloned());
    }

    /// Number of polling viewers of a stream over a protocol.
    pub(in crate::control) fn passes(&self, key: &StreamKey, egress: &'static str) -> u32 {
        self.passes.count(key, egress)
    }

    /// Number of connections of a subscriber that count against the subscriber's limit. `replaced`: the session that
    /// the newcomer replaces, which does not count if it is the same subscriber's.
    pub(super) fn connections_of(
        &self,
        registry: &Registry,
        (direction, replaced): (Direction, Option<SessionRef>),
        key: &StreamKey,
        id: &str,
        peer: IpAddr,
    ) -> usize {
        // Passes from the same network do not count: they may belong to the same player, restarted under another name.
        let polled = match direction {
            Direction::Publish => 0,
            Direction::Play => self.passes.elsewhere(key, id, peer),
        };
        let all = self.presences.count(key, id).saturating_add(polled);
        let own = replaced.and_then(|session| self.presences.sessions.get(&session));
        let counted = own.is_some_and(|presence| presence.subscriber.as_deref() == Some(id));
        let here = all.saturating_sub(usize::from(counted));
        here.saturating_add(registry.cluster.present_elsewhere(key, id))
    }

    /// True if a polling viewer has been admitted and may still watch.
    pub(in crate::control) fn has_pass(
        &mut self,
        records: &Records,
        now: Now,
        request: &PlayRequest,
    ) -> bool {
        let Some(polled) = &request.polled else { return false };
        let subscriber = Credentials::of(&request.params).subscriber;
        let record = subscriber.and_then(|id| records.auxiliary.subscriber(&request.key, id));
        if record.is_some_and(|record| record.is_blocked(Direction::Play, now)) {
            return false;
        }
        let (passes, of) = (&mut self.passes, (&request.key, request.egress));
        if let Some(former) = &polled.former {
            passes.rename(now.mono, of, (former, &polled.who), request.peer.ip());
        }
        passes.renew(now.mono, &request.key, request.egress, &polled.who, request.peer.ip())
    }

    /// Admits a polling viewer. Returns false if the maximum number of passes is reached. A viewer that is neither
    /// checked nor counted needs no pass.
    pub(in crate::control) fn give_pass(
        &mut self,
        cx: &Context,
        records: &Records,
        registry: &Registry,
        now: Now,
        request: &PlayRequest,
    ) -> bool {
        let who = request.polled.as_ref().map_or("", |polled| polled.who.as_str());
        let subscriber = Credentials::of(&request.params).subscriber;
        let (key, peer) = (&request.key, request.peer.ip());
        let record = subscriber.and_then(|id| records.auxiliary.subscriber(key, id));
        let is_open = cx.apps.get(&key.app).is_some_and(|app| !app.security.play.any());
        if is_open && record.is_none() && records.polled_limit(request).is_none() {
            return true;
        }
        let limit = record.and_then(|record| record.connections_max());
        if let (Some(id), Some(limit)) = (subscriber, limit) {
            let others =
                self.connections_of(registry, (Direction::Play, None), key, id, peer).saturating_add(1);
            self.passes.limit_here(key, id, peer, limit.saturating_sub(others));
        }
        let all = self.passes(key, request.egress).saturating_add(self.viewers_elsewhere(
            records,
            registry,
            key,
            request.egress,
        ));
        if records.polled_limit(request).is_some_and(|limit| all >= limit) {
            self.passes.make_room(key, request.egress, peer);
        }
        self.passes.give(now.mono, (key, request.egress, who), peer, subscriber)
    }

    /// Adds a publisher that was admitted, if it has named a subscriber.
    pub(in crate::control) fn publisher_came(&mut self, cx: &Context, now: Now, request: &PublishRequest) {
        let Some(id) = Credentials::of(&request.params).subscriber else { return };
        let presence = Presence {
            key: request.key.clone(),
            direction: Direction::Publish,
            protocol: request.ingest.name,
            params: Params::new(),
            subscriber: Some(id.to_owned()),
            started: true,
            told: None,
        };
        self.presences.insert(request.session, presence);
        self.note_event(cx, now, request.session, "connected");
    }

    /// Records the arrival or departure of a subscriber, if the application wants such events.
    fn note_event(&mut self, cx: &Context, now: Now, session: SessionRef, event_type: &'static str) {
        let Some(presence) = self.presences.sessions.get(&session).filter(|p| p.started) else {
            return;
        };
        let Some(subscriber_id) = presence.subscriber.clone() else { return };
        let key = &presence.key;
        if !cx.apps.get(&key.app).is_some_and(|app| app.security.subscriber_events) {
            return;
        }
        let event = ConnectionEvent {
            timestamp: wall(now),
            event_type,
            instance_ip: cx.config.host_address.clone(),
            kind: presence.direction.word(),
            event_protocol: presence.protocol,
            stream_id: key.id.to_string(),
            subscriber_id,
        };
        let events = self.presences.events.entry(key.app.clone()).or_default();
        events.push_back(event);
        if events.len() > EVENTS_MAX {
            events.pop_front();
        }
    }

    /// Notes that a viewer is being served.
    pub(in crate::control) fn play_started(
        &mut self,
        cx: &mut Context,
        records: &Records,
        hooks: &mut Hooks,
        now: Now,
        session: SessionRef,
        request: Option<Box<PlayRequest>>,
    ) {
        if let Some(request) = request {
            self.presences.insert(session, Presence::of_viewer(*request));
        }
        let Some(presence) = self.presences.sessions.get_mut(&session) else { return };
        presence.started = true;
        let (key, params) = (presence.key.clone(), presence.params.clone());
        self.note_event(cx, now, session, "connected");
        let told = records.hook_url(cx, &key);
        if let Some(url) = &told {
            hooks.hook_to(cx, records, now, &key, url, Notice::of("playStarted").params(&params));
        }
        if let Some(presence) = self.presences.sessions.get_mut(&session) {
            presence.told = told;
        }
    }

    /// Removes a session that has ended. Most sessions have no entry here.
    pub(in crate::control) fn leave(
        &mut self,
        cx: &mut Context,
        records: &Records,
        hooks: &mut Hooks,
        now: Now,
        session: SessionRef,
    ) {
        self.note_event(cx, now, session, "disconnected");
        let Some(presence) = self.presences.remove(session) else { return };
        if let Some(url) = &presence.told {
            hooks.hook_to(
                cx,
                records,
                now,
                &presence.key,
                url,
                Notice::of("playStopped").params(&presence.params),
            );
        }
    }

    /// Ends those sessions of a subscriber that the subscriber's record no longer allows.
    pub(in crate::control) fn drop_subscriber(
        &mut self,
        cx: &mut Context,
        records: &Records,
        registry: &mut Registry,
        now: Now,
        key: &StreamKey,
        id: &str,
    ) {
        let Some(record) = records.auxiliary.subscriber(key, id) else { return };
        let (publish, play) =
            (record.is_blocked(Direction::Publish, now), record.is_blocked(Direction::Play, now));
        if play {
            self.passes.end_subscriber(key, id);
            let ended = ToWorker::PassesEnded { app: key.app.clone(), subscriber: id.to_owned() };
            cx.post_all(&ended);
        }
        let sessions = self.presences.subscribers.get(&(key.clone(), id.to_owned()));
        for session in sessions.cloned().unwrap_or_default() {
            match self.presences.sessions.get(&session).map(|presence| presence.direction) {
                Some(Direction::Publish) if publish => {
                    if let Some(stream) =
                        registry.find(key).filter(|_| registry.publisher_of(key) == Some(session))
                    {
                        registry.end(cx, stream, StreamEnd::Stopped);
                    } else {
                        registry.block_standby(cx, records, key, session);
                    }
                }
                Some(Direction::Play) if play => {
                    let reason = "the subscriber was blocked";
                    cx.post(
                        session.worker,
                        ToWorker::DropViewer { conn: session.conn, handle: session.handle, reason },
                    );
                }
                Some(_) | None => {}
            }
        }
    }
}

impl Hooks {
    /// Reports to the hook receiver the arrival or departure of a polling viewer.
    pub(in crate::control) fn viewer_leased(
        &mut self,
        cx: &mut Context,
        records: &Records,
        now: Now,
        news: &LeaseNews,
    ) {
        if let Some(url) = records.hook_url(cx, &news.key) {
            let action = if news.came { "playStarted" } else { "playStopped" };
            self.hook_to(cx, records, now, &news.key, &url, Notice::of(action).params(&news.params));
        }
    }
}
