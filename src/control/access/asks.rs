//! Receivers that are asked whether somebody may publish or play (docs/hooks.md). Helper threads ask;
//! a request waits here with its deadline, and who is not answered in time is refused.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::auth::HookUrl;
use crate::auth::access::{Credentials, Denial, Params};
use crate::control::Control;
use crate::control::jobs::Next;
use crate::jobs::{Class, Post, Receiver, Work};
use crate::mail::{NoSubscription, PlayRequest, PublishRequest, Refusal};
use crate::types::{Now, SessionRef, StreamKey};

/// Requests that wait for receivers.
const ASKS_MAX: usize = 1000;
/// How long a peer is kept waiting; RTMP encoders and browsers are patient for longer.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long a receiver may take.
const TIMEOUT: Duration = Duration::from_secs(7);
/// Receivers that are asked at the same time.
const ASKERS: usize = Class::Admission.limits().threads;
/// Of the threads that ask, one receiver gets so many: one that hangs does not keep the others from answering.
const PER_RECEIVER: usize = ASKERS / 2;

/// Who waits.
#[derive(Debug)]
enum Asking {
    Publish(PublishRequest),
    Play(PlayRequest),
}

impl Asking {
    const fn session(&self) -> SessionRef {
        match self {
            Self::Publish(request) => request.session,
            Self::Play(request) => request.session,
        }
    }
}

#[derive(Debug)]
struct Ask {
    asking: Asking,
    until: Instant,
    url: HookUrl,
    /// Until it is handed to a thread.
    body: Option<Bytes>,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::control) struct Asks {
    open: BTreeMap<u64, Ask>,
    by_session: BTreeMap<SessionRef, u64>,
    due: BTreeSet<(Instant, u64)>,
    /// Not handed to a thread yet, oldest first.
    waiting: VecDeque<u64>,
    /// With a thread: its receiver. Stays until the thread is back, whether somebody waits or not.
    running: BTreeMap<u64, (String, u16)>,
    asks: u64,
}

impl Asks {
    pub(in crate::control) fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Requests that wait for their answer.
    pub(in crate::control) fn len(&self) -> usize {
        self.open.len()
    }

    fn take(&mut self, id: u64) -> Option<Asking> {
        let ask = self.open.remove(&id)?;
        self.due.remove(&(ask.until, id));
        self.by_session.remove(&ask.asking.session());
        if ask.body.is_some() {
            self.waiting.retain(|other| *other != id);
        }
        Some(ask.asking)
    }

    fn has_room(&self, url: &HookUrl) -> bool {
        let same = |of: &&(String, u16)| of.0 == url.host && of.1 == url.port;
        self.running.len() < ASKERS && self.running.values().filter(same).count() < PER_RECEIVER
    }
}

impl Control {
    /// Asks whether somebody may publish.
    pub(in crate::control) fn ask_about_publish(&mut self, now: Now, request: PublishRequest, url: HookUrl) {
        if self.asks.open.len() >= ASKS_MAX {
            return self.refuse_publish(&request, Refusal::Resources);
        }
        let body = self.publish_question(&request.key, &request.params);
        self.ask(now, Asking::Publish(request), url, body);
    }

    /// Asks whether somebody may play.
    pub(super) fn ask_about_play(&mut self, now: Now, request: PlayRequest, url: HookUrl) {
        if self.asks.open.len() >= ASKS_MAX {
            return self.refuse_play(&request, NoSubscription::Unavailable);
        }
        let body = self.play_question(&request);
        self.ask(now, Asking::Play(request), url, body);
    }

    fn ask(&mut self, now: Now, asking: Asking, url: HookUrl, body: Bytes) {
        self.asks.asks += 1;
        let id = self.asks.asks;
        let until = now.mono.checked_add(PATIENCE).unwrap_or(now.mono);
        self.asks.by_session.insert(asking.session(), id);
        self.asks.due.insert((until, id));
        self.asks.waiting.push_back(id);
        self.asks.open.insert(id, Ask { asking, until, url, body: Some(body) });
        self.hand_over_asks(now);
    }

    /// Gives questions to the threads that are free.
    fn hand_over_asks(&mut self, now: Now) {
        let ready = |asks: &Asks, id: &u64| asks.open.get(id).is_some_and(|ask| asks.has_room(&ask.url));
        while let Some(at) = self.asks.waiting.iter().position(|id| ready(&self.asks, id)) {
            let Some(id) = self.asks.waiting.remove(at) else { return };
            let Some(ask) = self.asks.open.get_mut(&id) else { continue };
            let Some(body) = ask.body.take() else { continue };
            let left = ask.until.saturating_duration_since(now.mono);
            let post = Post {
                receiver: Receiver::Admission,
                url: ask.url.clone(),
                body,
                form: false,
                timeout: left.min(TIMEOUT),
            };
            self.asks.running.insert(id, (ask.url.host.clone(), ask.url.port));
            // There is room: no more are under way than there are threads.
            self.submit(Work::Post(post), Next::Admission(id));
        }
    }

    /// A receiver has answered, or could not.
    pub(in crate::control) fn ask_answered(&mut self, now: Now, id: u64, result: &Result<u16, String>) {
        self.asks.running.remove(&id);
        if let Some(asking) = self.asks.take(id) {
            match result {
                Ok(200) => self.ask_granted(now, asking),
                Ok(_) => self.ask_refused(asking, Denial::Hook),
                Err(reason) => {
                    tracing::info!(reason, "the admission hook cannot be asked");
                    self.ask_refused(asking, Denial::HookSilent);
                }
            }
        }
        self.hand_over_asks(now);
    }

    fn ask_granted(&mut self, now: Now, asking: Asking) {
        match asking {
            Asking::Publish(request) => self.grant_publish(now, request),
            Asking::Play(request) => self.grant_play(now, request),
        }
    }

    fn ask_refused(&mut self, asking: Asking, denial: Denial) {
        match asking {
            Asking::Publish(request) => self.refuse_publish(&request, Refusal::Denied(denial)),
            Asking::Play(request) => self.refuse_play(&request, NoSubscription::Denied(denial)),
        }
    }

    /// The peer went while it waited. False when it did not wait.
    pub(in crate::control) fn forget_ask(&mut self, now: Now, session: SessionRef) -> bool {
        let Some(id) = self.asks.by_session.get(&session).copied() else { return false };
        self.asks.take(id);
        self.hand_over_asks(now);
        true
    }

    pub(in crate::control) fn fire_asks(&mut self, now: Now) {
        while let Some((at, id)) = self.asks.due.first().copied() {
            if at > now.mono {
                return;
            }
            match self.asks.take(id) {
                Some(asking) => self.ask_refused(asking, Denial::HookSilent),
                None => drop(self.asks.due.remove(&(at, id))),
            }
        }
    }

    /// The server goes down: nobody waits any more.
    pub(in crate::control) fn end_asks(&mut self) {
        for id in self.asks.open.keys().copied().collect::<Vec<_>>() {
            match self.asks.take(id) {
                Some(Asking::Publish(request)) => self.refuse_publish(&request, Refusal::Draining),
                Some(Asking::Play(request)) => self.refuse_play(&request, NoSubscription::Unavailable),
                None => {}
            }
        }
    }

    /// What `webhookAuthenticateURL` is sent.
    fn publish_question(&self, key: &StreamKey, params: &Params) -> Bytes {
        let shown = Credentials::of(params);
        let mut question = Map::new();
        let mut put = |name: &str, value: Option<&str>| {
            if let Some(value) = value {
                question.insert(name.to_owned(), value.into());
            }
        };
        put("appName", Some(&key.app));
        put("name", Some(&key.id));
        put("streamId", Some(&key.id));
        put("mode", Some("live"));
        put("token", shown.token);
        put("subscriberId", shown.subscriber);
        put("subscriberCode", shown.code);
        put("metaData", self.meta_data(key));
        // The form in which the reference prints its map.
        let pairs: Vec<String> = params.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let pairs = format!("{{{}}}", pairs.join(", "));
        put("queryParams", (!params.is_empty()).then_some(pairs.as_str()));
        Value::Object(question).to_string().into()
    }

    /// What `webhookPlayAuthUrl` is sent.
    fn play_question(&self, request: &PlayRequest) -> Bytes {
        let shown = Credentials::of(&request.params);
        let address = request.peer.ip().to_canonical().to_string();
        let members = [
            ("streamId", Some(&*request.key.id)),
            ("mode", Some("play")),
            ("appName", Some(&*request.key.app)),
            ("origin", Some(request.origin.as_str())),
            ("token", shown.token),
            ("subscriberId", shown.subscriber),
            ("subscriberCode", shown.code),
            ("metaData", self.meta_data(&request.key)),
            ("ipAddress", Some(address.as_str())),
        ];
        let members = members.map(|(name, value)| (name.to_owned(), value.map_or(Value::Null, Value::from)));
        Value::Object(members.into_iter().collect()).to_string().into()
    }

    fn meta_data(&self, key: &StreamKey) -> Option<&str> {
        self.records.get(key)?.meta_data.as_deref().filter(|text| !text.trim().is_empty())
    }
}
