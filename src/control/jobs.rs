//! Jobs of control: how control submits blocking work, and how it continues with the answer.
//!
//! 1. [`Context::submit`] stores the continuation under a new id, and [`Output::Job`] goes to the job service.
//! 2. [`Control::handle_job`] passes the answer to the continuation, which must check the state of control again, since
//!    it may have changed during the job.
//!
//! The queue of each class bounds the number of jobs in progress ([`crate::jobs::Limits`]). Control applies the same
//! bound as the job service, so that a job of a full class is refused before it is made.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::context::Context;
use super::mask::Requester;
use super::names::{Asker, Name};
use super::outgoing::Outgoing;
use super::{Control, Output};
use crate::http::Response;
use crate::jobs::{AdminOutcome, AdminWork, Class, Job, JobDone, JobId, Outcome, Work};
use crate::types::Now;

/// A host name that the supervisor needs resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResolveRequest {
    /// Number of the request, returned with the answer.
    pub(super) id: u64,
    /// Host name; forms like `127.1` are left to the resolver.
    pub(super) host: String,
    /// Port of the returned addresses.
    pub(super) port: u16,
}

/// The answer to a [`ResolveRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resolved {
    /// Number of the request.
    pub(super) id: u64,
    /// The addresses in the resolver's order, or the reason there are none.
    pub(super) result: Result<Vec<SocketAddr>, String>,
}

/// The continuation to run with a job's answer.
type Next = Box<dyn FnOnce(&mut Control, Now, Outcome) + Send>;

/// Outputs not polled yet, and jobs in progress.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) outputs: VecDeque<Output>,
    jobs: Jobs,
}

impl Outbox {
    /// Number of unanswered jobs.
    pub(super) fn jobs_waiting(&self) -> usize {
        self.jobs.waiting.len()
    }
}

/// A job in progress.
struct Waiting {
    class: Class,
    app: Option<Arc<str>>,
    next: Next,
}

/// The jobs in progress.
#[derive(Default)]
struct Jobs {
    waiting: BTreeMap<JobId, Waiting>,
    under_way: BTreeMap<Class, usize>,
    under_way_of: BTreeMap<(Class, Arc<str>), usize>,
    count: u64,
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

impl Jobs {
    /// True if there is room for another job of a class. An application may not have more jobs in progress than the
    /// class has free places, so that places are left for other applications.
    fn has_room(&self, class: Class, app: Option<&Arc<str>>) -> bool {
        let used = self.under_way.get(&class).copied().unwrap_or(0);
        let own = app.and_then(|app| self.under_way_of.get(&(class, Arc::clone(app))).copied()).unwrap_or(0);
        class.limits().has_room(used, own)
    }

    fn add(&mut self, class: Class, app: Option<Arc<str>>, next: Next) -> JobId {
        self.count = self.count.saturating_add(1);
        let id = JobId(self.count);
        let count = self.under_way.entry(class).or_default();
        *count = count.saturating_add(1);
        if let Some(app) = &app {
            let count = self.under_way_of.entry((class, Arc::clone(app))).or_default();
            *count = count.saturating_add(1);
        }
        self.waiting.insert(id, Waiting { class, app, next });
        id
    }

    fn take(&mut self, id: JobId) -> Option<Next> {
        let Waiting { class, app, next } = self.waiting.remove(&id)?;
        if let Some(count) = self.under_way.get_mut(&class) {
            *count = count.saturating_sub(1);
        }
        if let Some(key) = app.map(|app| (class, app))
            && let Some(count) = self.under_way_of.get_mut(&key)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.under_way_of.remove(&key);
            }
        }
        Some(next)
    }
}

impl Context {
    /// Submits work of the server itself. Returns false, without calling `next`, if the class of the work is full.
    pub(super) fn submit(
        &mut self,
        work: Work,
        next: impl FnOnce(&mut Control, Now, Outcome) + Send + 'static,
    ) -> bool {
        self.submit_job(None, work, Box::new(next))
    }

    /// Submits work on behalf of an application. Returns false, without calling `next`, if the class of the work is
    /// full, or the application's share of that class.
    pub(super) fn submit_for(
        &mut self,
        app: &Arc<str>,
        work: Work,
        next: impl FnOnce(&mut Control, Now, Outcome) + Send + 'static,
    ) -> bool {
        self.submit_job(Some(Arc::clone(app)), work, Box::new(next))
    }

    /// Submits work on behalf of an application, or of the server itself if `app` is `None`.
    pub(super) fn submit_of(
        &mut self,
        app: Option<Arc<str>>,
        work: Work,
        next: impl FnOnce(&mut Control, Now, Outcome) + Send + 'static,
    ) -> bool {
        self.submit_job(app, work, Box::new(next))
    }

    fn submit_job(&mut self, app: Option<Arc<str>>, work: Work, next: Next) -> bool {
        let class = work.class();
        if !self.outbox.jobs.has_room(class, app.as_ref()) {
            return false;
        }
        let id = self.outbox.jobs.add(class, app.clone(), next);
        self.outbox.outputs.push_back(Output::Job(Job { id, app, work }));
        true
    }

    /// Submits an administrative job; returns false if too many wait.
    pub(super) fn submit_admin(
        &mut self,
        work: AdminWork,
        then: impl FnOnce(&mut Control, Now, AdminOutcome) + Send + 'static,
    ) -> bool {
        self.submit(Work::Admin(work), move |control, now, outcome| then(control, now, outcome.admin()))
    }

    /// Submits an administrative job for an API request, which `then` answers.
    pub(super) fn answer_admin(
        &mut self,
        requester: Requester,
        work: AdminWork,
        then: impl FnOnce(&mut Control, Now, AdminOutcome) -> Response + Send + 'static,
    ) {
        let sent = self.submit_admin(work, move |control, now, outcome| {
            let response = then(control, now, outcome);
            control.cx.answer(requester, response);
        });
        if !sent {
            self.answer(requester, Response::error(503, "Too many requests wait").header("Retry-After", "1"));
        }
    }
}

impl Control {
    /// Handles the answer to a job.
    pub fn handle_job(&mut self, now: Now, done: JobDone) {
        self.cx.audit.note_time(now.mono);
        if let Some(next) = self.cx.outbox.jobs.take(done.id) {
            next(self, now, done.outcome);
        }
        self.end_turn(now);
    }
}

impl Outgoing<'_> {
    /// Resolves a name for the supervisor.
    pub(super) fn resolve(&mut self, app: &Arc<str>, request: ResolveRequest) {
        let ResolveRequest { id, host, port } = request;
        self.look_up(Name { app, host: &host, port }, Asker::Attempt(id));
    }
}
