//! The audit log: one line per action with its author, address and object (docs/security.md). A request is noted when
//! its handler is chosen, and logged with its answer, so that a line tells what was done, not only what was requested.
//! The lines go to a file of their own; `io::log` recognises them by their target.

mod quota;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use serde_json::Value;

use quota::Quota;

use super::context::Context;
use super::rest::{Base, Policy, Route};
use crate::auth::access::{Checks, Credentials};
use crate::http::{Method, Request, Response};
use crate::mail::PublishRequest;
use crate::types::SessionRef;

/// The tracing target of audit lines.
pub const AUDIT: &str = "audit";
/// Name of the operation `millstream user add` in audit lines.
pub const ADDS_USER: &str = "Make an administrator";
/// The author recorded for a client admitted by its address only.
pub(super) const ADDRESS: &str = "address";
/// Maximum number of requests in progress that will be logged; further requests are not logged.
const OPEN_MAX: usize = 10_000;
/// Query parameters that name the object of an operation. None is a credential.
const NAMED: [&str; 3] = ["endpointServiceId", "ids", "type"];
/// Members of an answer that name the created object, unless they are credentials.
const MADE: [&str; 2] = ["dataId", "streamId"];

/// The author of a request: a user, or the rule that admitted the request.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    pub(super) who: String,
    pub(super) from: Option<IpAddr>,
}

#[derive(Debug)]
struct Entry {
    actor: Actor,
    what: &'static str,
    object: String,
    /// True if the answer contains no secrets.
    is_plain: bool,
}

/// The requests in progress that will be logged.
#[derive(Debug, Default)]
pub(super) struct Audit {
    actor: Option<Actor>,
    open: BTreeMap<SessionRef, Entry>,
    strangers: Quota,
}

impl Audit {
    /// Number of requests without an answer.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Sets the current time.
    pub(super) const fn note_time(&mut self, now: Instant) {
        self.strangers.note_time(now);
    }

    /// True if a line about a client known only by its address may be written.
    fn has_room(&mut self, from: Option<IpAddr>) -> bool {
        let (has_room, left_out) = self.strangers.take(from);
        if let Some(lines) = left_out {
            tracing::warn!(target: AUDIT, lines, "audit lines of unauthenticated clients dropped: over the quota");
        }
        has_room
    }

    /// Notes the author of the current request.
    pub(in crate::control) fn audit_actor(&mut self, who: &str, from: Option<IpAddr>) {
        self.actor = Some(Actor { who: who.to_owned(), from });
    }

    /// Returns the author of the current request.
    pub(in crate::control) const fn actor(&self) -> Option<&Actor> {
        self.actor.as_ref()
    }

    /// Notes the user who has logged in. The name of a failed login is not recorded, because it may be a password in
    /// the wrong field.
    pub(in crate::control) fn audit_login(&mut self, session: SessionRef, email: &str) {
        if let Some(entry) = self.open.get_mut(&session) {
            email.clone_into(&mut entry.actor.who);
        }
    }

    /// Notes the user that a request is about, taken from its body.
    pub(in crate::control) fn audit_user(&mut self, session: SessionRef, email: &str) {
        if let Some(entry) = self.open.get_mut(&session) {
            entry.object.push_str(&format!(" {email}"));
        }
    }

    /// Logs the answer to a request. Lines about failures are limited; lines about successful actions are not.
    pub(in crate::control) fn audit_answer(&mut self, session: SessionRef, response: &Response) {
        let Some(Entry { actor, what, object, is_plain }) = self.open.remove(&session) else { return };
        let Actor { who, from } = actor;
        let is_here = from.is_none_or(|from| from.to_canonical().is_loopback());
        let failed = !(200..300).contains(&response.status) || response.body.starts_with(FAILURE);
        if who == ADDRESS && (failed || !is_here) && !self.has_room(from) {
            return;
        }
        let from = from.map_or_else(|| "-".to_owned(), |from| from.to_string());
        if failed {
            let status = response.status;
            tracing::warn!(target: AUDIT, who, from, object, status, "failed: {what}");
        } else {
            let made = if is_plain { made_by(response) } else { String::new() };
            tracing::info!(target: AUDIT, who, from, object, made, "{what}");
        }
    }
}

impl Context {
    /// Notes the route of the current request. Reads are not logged, unless they return a credential.
    pub(super) fn audit_route(&mut self, session: SessionRef, route: &Route, request: &Request) {
        let reads = matches!(route.method, Method::Get | Method::Head | Method::Options);
        let is_told = (!reads || route.gives_credential) && route.policy != Policy::Proxied;
        if !is_told || !self.config.server.log.audit {
            return;
        }
        let Some(actor) = self.audit.actor.clone() else { return };
        let path = match route.base {
            Base::App => request.path.replacen("/rest/v2", "", 1),
            Base::Root | Base::Server | Base::Players => request.path.replacen("/rest/v2/", "", 1),
        };
        let mut object = path.trim_matches('/').to_owned();
        for name in NAMED {
            if let Some(value) = request.query_value(name) {
                object.push_str(&format!(" {name}={value}"));
            }
        }
        let entry = Entry { actor, what: route.summary, object, is_plain: !route.gives_credential };
        if self.audit.open.len() < OPEN_MAX {
            self.audit.open.insert(session, entry);
        }
    }

    /// Notes a command that an operator has given on the command line.
    pub(super) fn audit_command(&mut self, session: SessionRef, what: &'static str, object: &str) {
        if self.config.server.log.audit {
            let actor = Actor { who: "command line".to_owned(), from: None };
            let entry = Entry { actor, what, object: object.to_owned(), is_plain: true };
            self.audit.open.insert(session, entry);
        }
    }

    /// Logs that a publisher was admitted.
    pub(super) fn audit_publish(&mut self, request: &PublishRequest) {
        if !self.config.server.log.audit {
            return;
        }
        let checks = self.apps.get(&request.key.app).map(|app| &app.security.publish);
        let is_stranger = checks.is_none_or(|checks| !checks.any());
        let who = match Credentials::of(&request.params).subscriber {
            Some(subscriber) => format!("subscriber {subscriber}"),
            None => checks.map_or_else(String::new, credentials_of),
        };
        if is_stranger && !self.audit.has_room(Some(request.peer.ip())) {
            return;
        }
        let (from, object, protocol) = (request.peer.ip().to_canonical(), &request.key, request.ingest.name);
        tracing::info!(target: AUDIT, who, %from, %object, protocol, "Publish");
    }
}

/// The beginning of the answer to a failed operation.
const FAILURE: &[u8] = br#"{"success":false"#;

/// Returns the id of the created object in an answer; empty if there is none.
fn made_by(response: &Response) -> String {
    let Ok(Value::Object(answer)) = serde_json::from_slice::<Value>(&response.body) else {
        return String::new();
    };
    let made = MADE.iter().find_map(|name| answer.get(*name)?.as_str().filter(|id| !id.is_empty()));
    made.unwrap_or_default().to_owned()
}

/// Lists the kinds of credentials that publishers of an application must have shown.
fn credentials_of(checks: &Checks) -> String {
    let kinds = [
        (checks.publish_key, "publish key"),
        (checks.token, "one-time token"),
        (checks.jwt, "signed token"),
        (checks.hash, "hash"),
        (checks.time_code, "time code"),
        (checks.hook.is_some(), "hook"),
    ];
    let shown: Vec<&str> = kinds.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    if shown.is_empty() { "anybody".to_owned() } else { shown.join(", ") }
}
