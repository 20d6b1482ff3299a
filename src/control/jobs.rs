//! Jobs of control: one way to submit what may block, and one way to go on with the answer.
//!
//! 1. [`Control::submit`] notes what follows ([`Next`]) under a new id, and [`Output::Job`] goes to the job service.
//! 2. [`Control::handle_job`] takes the answer back to where it was waited for. The world may have changed meanwhile; whoever
//!    continues looks again.
//!
//! What is under way is bounded by the queue of its class ([`crate::jobs::Limits`]), here as in the service: a full class is
//! refused before the job is made.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::admission::Ticket;
use super::management::Purpose;
use super::{Control, Output};
use crate::http::Response;
use crate::jobs::{AdminOutcome, AdminWork, Class, Job, JobDone, JobId, Outcome, Work};
use crate::types::{Now, SessionRef};

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

/// What follows from the answer to an administrative job.
pub(super) type Then = Box<dyn FnOnce(&mut Control, Now, AdminOutcome) + Send>;

/// What follows from an answer.
pub(super) enum Next {
    /// The supervisor goes on with its request.
    Resolved(u64),
    /// The hook of this number was taken, or was not.
    Hook(u64),
    /// The receiver that an admission waits for has answered.
    Admission(Ticket),
    /// A password was hashed for this.
    Password(Purpose),
    /// Whatever the submitter said.
    Admin(Then),
}

impl std::fmt::Debug for Next {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Resolved(id) => write!(f, "Resolved({id})"),
            Self::Hook(id) => write!(f, "Hook({id})"),
            Self::Admission(ticket) => write!(f, "Admission({ticket:?})"),
            Self::Password(purpose) => write!(f, "Password({purpose:?})"),
            Self::Admin(_) => f.write_str("Admin(..)"),
        }
    }
}

/// The jobs under way.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    waiting: BTreeMap<JobId, (Class, Next)>,
    under_way: BTreeMap<Class, usize>,
    count: u64,
}

impl Jobs {
    /// Whether there is room for another job of a class.
    pub(super) fn has_room(&self, class: Class) -> bool {
        self.under_way.get(&class).copied().unwrap_or(0) < class.limits().queue
    }

    fn add(&mut self, class: Class, next: Next) -> JobId {
        self.count = self.count.saturating_add(1);
        let id = JobId(self.count);
        self.waiting.insert(id, (class, next));
        let count = self.under_way.entry(class).or_default();
        *count = count.saturating_add(1);
        id
    }

    fn take(&mut self, id: JobId) -> Option<Next> {
        let (class, next) = self.waiting.remove(&id)?;
        if let Some(count) = self.under_way.get_mut(&class) {
            *count = count.saturating_sub(1);
        }
        Some(next)
    }
}

impl Control {
    /// Submits work. False when its class has no room: nothing follows then.
    pub(super) fn submit(&mut self, work: Work, next: Next) -> bool {
        let class = work.class();
        if !self.jobs.has_room(class) {
            return false;
        }
        let id = self.jobs.add(class, next);
        self.outputs.push_back(Output::Job(Job { id, work }));
        true
    }

    /// The answer to a job.
    pub fn handle_job(&mut self, now: Now, done: JobDone) {
        let Some(next) = self.jobs.take(done.id) else { return };
        match next {
            Next::Resolved(id) => {
                self.resolved(now, Resolved { id, result: done.outcome.resolved() });
            }
            Next::Hook(id) => self.hook_answered(now, id, &done.outcome.posted()),
            Next::Admission(ticket) => {
                self.receiver_answered(now, ticket, &done.outcome.posted());
            }
            Next::Password(purpose) => self.hashed(now, purpose, done.outcome),
            Next::Admin(then) => {
                then(self, now, done.outcome.admin());
            }
        }
    }

    /// Has a name resolved for the supervisor.
    pub(super) fn resolve(&mut self, now: Now, request: ResolveRequest) {
        let ResolveRequest { id, host, port } = request;
        if !self.submit(Work::Resolve { host, port }, Next::Resolved(id)) {
            self.resolved(now, Resolved { id, result: Outcome::Busy.resolved() });
        }
    }

    /// Submits an administrative job; false when too many wait.
    pub(super) fn submit_admin(
        &mut self,
        work: AdminWork,
        then: impl FnOnce(&mut Self, Now, AdminOutcome) + Send + 'static,
    ) -> bool {
        self.submit(Work::Admin(work), Next::Admin(Box::new(then)))
    }

    /// Submits an administrative job for a request of the API; what follows makes the answer.
    pub(super) fn answer_admin(
        &mut self,
        session: SessionRef,
        work: AdminWork,
        then: impl FnOnce(&mut Self, Now, AdminOutcome) -> Response + Send + 'static,
    ) {
        let sent = self.submit_admin(work, move |control, now, outcome| {
            let response = then(control, now, outcome);
            control.answer(session, response);
        });
        if !sent {
            self.answer(session, Response::error(503, "Too many requests wait").header("Retry-After", "1"));
        }
    }
}
