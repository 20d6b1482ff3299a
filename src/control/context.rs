//! State that every part of control uses: settings and applications, random numbers, the audit log, and outputs. A part
//! with effects outside of itself takes a [`Context`], never the whole of control.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crypto::Random;

use super::audit::Audit;
use super::broadcast::Broadcast;
use super::jobs::Outbox;
use super::leaving::Leaving;
use super::lookups::Lookups;
use super::mask::{Requester, Shown};
use super::stats::Load;
use super::{ControlConfig, Output, wall};
use crate::config::AppSettings;
use crate::directory::Side;
use crate::http;
use crate::mail::ToWorker;
use crate::types::{Now, SessionRef, StreamKey, WorkerId};

/// A shutdown in progress, and the workers that have not finished.
#[derive(Debug)]
pub(super) struct Drain {
    pub(super) waiting: BTreeSet<WorkerId>,
    pub(super) exited: bool,
}

/// The state that every part of control uses.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: ControlConfig,
    pub(super) apps: BTreeMap<Arc<str>, Arc<AppSettings>>,
    pub(super) random: Random,
    /// The load of the workers.
    pub(super) load: Load,
    pub(super) audit: Audit,
    pub(super) outbox: Outbox,
    /// Set while the server admits nothing new and waits for its sessions to end.
    pub(super) leaving: Option<Leaving>,
    pub(super) drain: Option<Drain>,
    /// Role of this process while two processes of this server run during an upgrade (docs/upgrade.md); otherwise
    /// `None`.
    pub(super) side: Option<Side>,
    /// Addresses of this machine that it must look up, because the settings give them as a host name or leave them to
    /// a STUN server.
    pub(super) lookups: Lookups,
}

impl Context {
    /// True if the server is shutting down.
    pub(super) const fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// True if nothing new is admitted: the server is shutting down, or waits for its sessions to end.
    pub(super) const fn lets_in_nothing(&self) -> bool {
        self.drain.is_some() || self.leaving.is_some()
    }

    /// Posts mail to a worker.
    pub(super) fn post(&mut self, worker: WorkerId, mail: ToWorker) {
        self.outbox.outputs.push_back(Output::Worker(worker, mail));
    }

    /// Posts mail to every worker.
    pub(super) fn post_all(&mut self, mail: &ToWorker) {
        for worker in 0..self.config.workers {
            self.post(WorkerId(worker), mail.clone());
        }
    }

    /// Answers a request with the part of the response that the requester may see.
    pub(super) fn answer(&mut self, requester: Requester, response: http::Response) {
        self.answer_shown(requester.session(), requester.shown(response));
    }

    /// Sends an answer. All answers are sent through here.
    pub(super) fn answer_shown(&mut self, session: SessionRef, shown: Shown) {
        self.audit.audit_answer(session, shown.response());
        let mut response = Box::new(shown.into_response());
        if response.headers.get("cache-control").is_none() {
            response.headers.push("Cache-Control", "no-store");
        }
        self.post(session.worker, ToWorker::RestReply { conn: session.conn, response });
    }

    /// Fills in the members of a new record that the server sets.
    pub(super) fn complete(&self, now: Now, key: &StreamKey, record: &mut Broadcast) {
        key.id.as_ref().clone_into(&mut record.stream_id);
        record.date = wall(now);
        record.origin_adress.clone_from(&self.config.host_address);
        record.origin_address.clone_from(&self.config.host_address);
        record.rtmp_url = self.config.publish_url(key);
        let hook = self.apps.get(&key.app).and_then(|app| app.hooks.url.as_ref());
        let hook = hook.map(|url| url.as_str().to_owned());
        if hook.is_some() && record.listener_hook_url.as_deref().unwrap_or("").is_empty() {
            record.listener_hook_url = hook;
        }
    }
}
