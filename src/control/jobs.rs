//! Jobs of control: one way to submit what may block, and one way to go on with the answer.
//!
//! 1. [`Context::submit`] notes what follows under a new id, and [`Output::Job`] goes to the job service.
//! 2. [`Control::handle_job`] takes the answer back to where it was waited for. The world may have changed meanwhile; whoever
//!    continues looks again.
//!
//! The number of jobs under way is bounded by the queue of its class ([`crate::jobs::Limits`]), here as in the service: a full class is
//! refused before the job is made.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::context::Context;
use super::mask::Requester;
use super::names::{Asker, Name};
use super::{Control, Output};
use crate::control::Outbound;
use crate::control::live::Registry;
use crate::control::records::Records;
use crate::http::Response;
use crate::jobs::{AdminOutcome, AdminWork, Class, Job, JobDone, JobId, Outcome, Work};
use crate::types::Now;

/// A host name that the supervisor wants resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResolveRequest {
    /// Comes back in the answer.
    pub(super) id: u64,
    /// Host name; forms like `127.1` are the resolver's to read.
    pub(super) host: String,
    /// Port for the addresses of the answer.
    pub(super) port: u16,
}

/// The answer to a [`ResolveRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resolved {
    /// The request's.
    pub(super) id: u64,
    /// The addresses in the resolver's order, or the reason why there are none.
    pub(super) result: Result<Vec<SocketAddr>, String>,
}

/// The continuation of an answer.
type Next = Box<dyn FnOnce(&mut Control, Now, Outcome) + Send>;

/// The jobs that control has not handed out yet, and those under way.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) outputs: VecDeque<Output>,
    jobs: Jobs,
}

impl Outbox {
    /// Jobs that are not answered.
    pub(super) fn jobs_waiting(&self) -> usize {
        self.jobs.waiting.len()
    }
}

/// A job under way.
struct Waiting {
    class: Class,
    app: Option<Arc<str>>,
    next: Next,
}

/// The jobs under way.
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
    /// Whether there is room for another job of a class. An application holds no more places than it leaves free.
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
    /// Submits work of the server itself. False when its class has no room: nothing follows then.
    pub(super) fn submit(
        &mut self,
        work: Work,
        next: impl FnOnce(&mut Control, Now, Outcome) + Send + 'static,
    ) -> bool {
        self.submit_job(None, work, Box::new(next))
    }

    /// Submits work that an application pays for. False when its class, or the application in it, has no room.
    pub(super) fn submit_for(
        &mut self,
        app: &Arc<str>,
        work: Work,
        next: impl FnOnce(&mut Control, Now, Outcome) + Send + 'static,
    ) -> bool {
        self.submit_job(Some(Arc::clone(app)), work, Box::new(next))
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

    /// Submits an administrative job; false when too many wait.
    pub(super) fn submit_admin(
        &mut self,
        work: AdminWork,
        then: impl FnOnce(&mut Control, Now, AdminOutcome) + Send + 'static,
    ) -> bool {
        self.submit(Work::Admin(work), move |control, now, outcome| then(control, now, outcome.admin()))
    }

    /// Submits an administrative job for a request of the API; what follows makes the answer.
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
    /// The answer to a job.
    pub fn handle_job(&mut self, now: Now, done: JobDone) {
        self.cx.audit.note_time(now.mono);
        if let Some(next) = self.cx.outbox.jobs.take(done.id) {
            next(self, now, done.outcome);
        }
        self.end_turn(now);
    }
}

impl Outbound {
    /// Has a name resolved for the supervisor.
    pub(super) fn resolve(
        &mut self,
        cx: &mut Context,
        records: &mut Records,
        registry: &mut Registry,
        now: Now,
        app: &Arc<str>,
        request: ResolveRequest,
    ) {
        let ResolveRequest { id, host, port } = request;
        self.look_up(cx, records, registry, now, Name { app, host: &host, port }, Asker::Attempt(id));
    }
}
