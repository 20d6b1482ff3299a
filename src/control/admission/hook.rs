//! Admission hooks: receivers that decide whether a peer may publish or play (docs/hooks.md). A job asks the
//! receiver; admissions wait here for a free thread.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::claims::Ticket;
use super::queue::Queued;
use super::{Admission, Pending, Request};
use crate::auth::access::{Credentials, Denial, Direction, PUBLISH_KEY, Params, Secret};
use crate::auth::{HookUrl, network};
use crate::control::Control;
use crate::control::access::Access;
use crate::control::cluster::Cluster;
use crate::control::context::Context;
use crate::control::records::Records;
use crate::jobs::{BodyType, Post, Receiver, Work};
use crate::mail::{PlayRequest, PublishRequest};
use crate::types::{Now, StreamKey};

/// Maximum time for which the answer of a receiver is awaited.
const TIMEOUT: Duration = Duration::from_secs(7);
impl Access {
    /// Takes the next question that a free thread may send to its receiver.
    fn next_question(&mut self) -> Option<(Ticket, HookUrl, Bytes)> {
        let admissions = &mut self.admissions;
        let waiting = &admissions.waiting;
        let ticket = admissions.hooks.next(|ticket| match &waiting.get(&ticket)?.pending {
            Pending::Hook { url, .. } => Some(url),
            Pending::Claim | Pending::Burn => None,
        })?;
        match &mut admissions.waiting.get_mut(&ticket)?.pending {
            Pending::Hook { url, body } => Some((ticket, url.clone(), body.take()?)),
            Pending::Claim | Pending::Burn => None,
        }
    }
}

impl Records {
    fn meta_data(&self, key: &StreamKey) -> Option<&str> {
        self.get(key)?.meta_data.as_deref().filter(|text| !text.trim().is_empty())
    }

    /// Makes the body for `webhookAuthenticateURL`.
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
        // Ant Media Server sends the parameters as Java prints a map: `{name=value, name=value}`.
        let pairs: Vec<String> = params.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let pairs = format!("{{{}}}", pairs.join(", "));
        put("queryParams", (!params.is_empty()).then_some(pairs.as_str()));
        Value::Object(question).to_string().into()
    }

    /// Makes the body for `webhookPlayAuthUrl`.
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
}

impl Access {
    /// Queues an admission whose receiver must be asked.
    pub(super) fn ask_receiver(
        &mut self,
        cx: &mut Context,
        records: &Records,
        cluster: &mut Cluster,
        now: Now,
        admission: Admission,
        url: HookUrl,
    ) {
        let body = match &admission.request {
            Request::Publish(request) => {
                let PublishRequest { key, params, .. } = cx.without_publish_key(request);
                records.publish_question(&key, &params)
            }
            Request::Play(request) => records.play_question(request),
        };
        let ticket = admission.ticket;
        let publishes = admission.request.direction() == Direction::Publish;
        let app = Arc::clone(&admission.request.key().app);
        let question = Queued { ticket, app, network: network(admission.request.peer()), publishes };
        self.park_admission(cx, cluster, now, admission, Pending::Hook { url, body: Some(body) });
        if self.admissions.waiting.contains_key(&ticket) {
            self.admissions.hooks.push(question);
            self.hand_over_questions(cx, cluster, now);
        }
    }

    /// Submits waiting questions as jobs while threads are free.
    pub(super) fn hand_over_questions(&mut self, cx: &mut Context, cluster: &mut Cluster, now: Now) {
        while let Some((ticket, url, body)) = self.next_question() {
            let Some(waiter) = self.admissions.waiting.get(&ticket) else { continue };
            let timeout = waiter.until.saturating_duration_since(now.mono).min(TIMEOUT);
            let network = network(waiter.admission.request.peer());
            let app = Arc::clone(&waiter.admission.request.key().app);
            self.admissions.hooks.begin(ticket, &app, &url, network);
            let secret = self.hook_secret(cx, ticket);
            let post =
                Post { receiver: Receiver::Admission, url, body, body_type: BodyType::Json, secret, timeout };
            let sent = cx.submit_for(&app, Work::Post(post), move |control, now, outcome| {
                control.receiver_answered(now, ticket, &outcome.posted());
            });
            if !sent {
                self.admissions.hooks.end(ticket);
                if let Some(admission) = self.admissions.take_asker(ticket) {
                    let why = admission.request.unavailable();
                    self.refuse_admission(cx, cluster, now, admission, why);
                }
            }
        }
    }

    /// Returns the secret that signs questions to an application's receiver.
    fn hook_secret(&self, cx: &Context, ticket: Ticket) -> Secret {
        let waiter = self.admissions.waiting.get(&ticket);
        let app = waiter.and_then(|waiter| cx.apps.get(&waiter.admission.request.key().app));
        app.map(|app| app.hooks.secret.clone()).unwrap_or_default()
    }
}

impl Control {
    /// Handles the answer of a receiver, or its failure.
    fn receiver_answered(&mut self, now: Now, ticket: Ticket, result: &Result<u16, String>) {
        self.access.admissions.hooks.end(ticket);
        if let Some(mut admission) = self.access.admissions.take_asker(ticket) {
            let denial = match result {
                Ok(200) => None,
                Ok(_) => Some(Denial::Hook),
                Err(reason) => {
                    tracing::info!(reason, "admission hook not called");
                    Some(Denial::HookSilent)
                }
            };
            match denial.map(|denial| admission.request.denied(denial)) {
                Some(why) => self.access.refuse_admission(
                    &mut self.cx,
                    &mut self.registry.cluster,
                    now,
                    admission,
                    why,
                ),
                None => {
                    admission.approved = true;
                    self.run_admission(now, admission);
                }
            }
        }
        self.access.hand_over_questions(&mut self.cx, &mut self.registry.cluster, now);
    }
}

impl Context {
    /// Returns the request without the publish key, for the steps after the check of that key. Receivers of hooks
    /// must not learn the key.
    pub(super) fn without_publish_key(&self, request: &PublishRequest) -> PublishRequest {
        let mut request = request.clone();
        if self.apps.get(&request.key.app).is_some_and(|app| app.security.publish.publish_key) {
            request.params.retain(|(name, _)| name != PUBLISH_KEY);
        }
        request
    }
}
