//! Admission: whether a peer may publish or play. An [`Admission`] is a value that passes steps, waits if an outside
//! authority must be asked, and continues with the answer.
//!
//! 1. The steps, in order: the record and its restrictions, limits, credentials ("token"), the operator's hook, the
//!    claim of the id, the reservation ([`Step`]). Each lets the request continue, refuses it, or has a question
//!    ([`Answer`]).
//! 2. A question is asked only if no step refuses. All checks against memory come first, so that a peer without a token
//!    causes no request. Questions are asked one after the other, in the order of their steps. The id is claimed only
//!    for a publisher that the hook's receiver has allowed: the claim makes another node, at which the stream waits for
//!    its publisher, fetch the stream from this one.
//! 3. While an admission waits, its id is not reserved. Otherwise unauthenticated peers could block an id for ever by
//!    asking again and again while the hook receiver decides. Of two competing requests, the first to pass gets the id.
//! 4. After an answer all steps are passed again from the first, because anything may have changed while the admission
//!    waited. Answers are kept, so that no question is asked twice.
//! 5. At the end the token is used up, the id is reserved and the verdict is sent, in the same turn. An admission that
//!    ends otherwise releases its claim. An admission takes at most [`PATIENCE`].

mod claims;
mod hook;
mod queue;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Control;
use super::context::Context;
use crate::auth::access::{Denial, Direction, Params};
use crate::auth::{HookUrl, network};
use crate::control::access::{Access, Asked};
use crate::control::cluster::{Claim, Cluster};
use crate::control::supervisor::Job;
use crate::directory::ClaimAnswer;
use crate::mail::{NoSubscription, PlayRequest, PublishRequest, Refusal, StreamEnd, ToWorker};
use crate::store::Key;
use crate::types::{Now, SessionRef, StreamKey};

pub use claims::Ticket;
use queue::HookQueue;
pub(super) use steps::Gate;

/// Maximum number of admissions that wait for an answer.
const WAITING_MAX: usize = 1000;
/// Maximum time for which a peer waits for the verdict. RTMP encoders and browsers themselves wait longer, so that they
/// receive it.
const PATIENCE: Duration = Duration::from_secs(8);

/// The reason for refusing a publisher while the directory of the cluster is unreachable.
const NO_DIRECTORY: &str = "the directory is away, and cluster.without_directory is refuse";

/// The request to be admitted.
#[derive(Debug)]
pub(super) enum Request {
    Publish(PublishRequest),
    Play(PlayRequest),
}

impl Request {
    const fn session(&self) -> SessionRef {
        match self {
            Self::Publish(request) => request.session,
            Self::Play(request) => request.session,
        }
    }

    const fn direction(&self) -> Direction {
        match self {
            Self::Publish(_) => Direction::Publish,
            Self::Play(_) => Direction::Play,
        }
    }

    const fn key(&self) -> &StreamKey {
        match self {
            Self::Publish(request) => &request.key,
            Self::Play(request) => &request.key,
        }
    }

    const fn params(&self) -> &Params {
        match self {
            Self::Publish(request) => &request.params,
            Self::Play(request) => &request.params,
        }
    }

    /// Returns the part of the request needed to check its credentials.
    const fn asked(&self) -> Asked<'_> {
        Asked { direction: self.direction(), key: self.key(), params: self.params(), peer: self.peer() }
    }

    const fn peer(&self) -> IpAddr {
        match self {
            Self::Publish(request) => request.peer.ip(),
            Self::Play(request) => request.peer.ip(),
        }
    }

    /// Converts a denial to the refusal for the request's direction.
    const fn denied(&self, denial: Denial) -> Why {
        match self {
            Self::Publish(_) => Why::Publish(Refusal::Denied(denial)),
            Self::Play(_) => Why::Play(NoSubscription::Denied(denial)),
        }
    }

    const fn draining(&self) -> Why {
        match self {
            Self::Publish(_) => Why::Publish(Refusal::Draining),
            Self::Play(_) => Why::Play(NoSubscription::Draining),
        }
    }

    /// Returns the refusal for a request that would have to wait while too many requests wait already, or that got no
    /// answer in time.
    const fn unavailable(&self) -> Why {
        match self {
            Self::Publish(_) => Why::Publish(Refusal::Resources),
            Self::Play(_) => Why::Play(NoSubscription::Resources),
        }
    }
}

/// The reason of a refusal, by direction.
#[derive(Debug, PartialEq, Eq)]
enum Why {
    Publish(Refusal),
    Play(NoSubscription),
}

/// The steps of an admission, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Checks the application, the id, addresses, the record with its schedule, and the number of servers that the
    /// stream has passed.
    Record,
    /// Checks the limits of streams, records and load.
    Limits,
    /// Checks subscribers, codes, tokens and signatures, without using up a token.
    Token,
    /// Asks the operator's receiver.
    Hook,
    /// Claims the id, so that no other server may publish it.
    Claim,
    /// In a cluster, lets the directory use up the one-time token.
    Burn,
    /// Reserves the id, unless it is taken.
    Reserve,
}

impl Step {
    const ALL: [Self; 7] =
        [Self::Record, Self::Limits, Self::Token, Self::Hook, Self::Claim, Self::Burn, Self::Reserve];
}

/// The result of a step.
#[derive(Debug)]
enum Answer {
    Continue,
    Refuse(Why),
    Wait(Question),
}

impl Answer {
    fn of(result: Result<(), Why>) -> Self {
        match result {
            Ok(()) => Self::Continue,
            Err(why) => Self::Refuse(why),
        }
    }
}

/// A question to an outside authority.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Question {
    /// The claim of the id for this node.
    Claim,
    /// The question to the hook receiver.
    Hook(HookUrl),
    /// The use of the one-time token. If several requests present the same token, only one of them may use it.
    Burn(Key),
}

/// A request on its way through the steps.
#[derive(Debug)]
struct Admission {
    ticket: Ticket,
    request: Request,
    /// True if the claim was granted.
    claimed: bool,
    /// True if the hook's receiver has allowed the request.
    approved: bool,
    /// True if the directory has used up the token.
    burnt: bool,
    /// True once the request has passed all steps without a refusal.
    passed: bool,
    /// Time until which the peer waits; set when it begins to wait.
    until: Option<Instant>,
}

impl Admission {
    const fn new(ticket: Ticket, request: Request) -> Self {
        Self { ticket, request, claimed: false, approved: false, burnt: false, passed: false, until: None }
    }

    /// Asks the first question that the steps have left open; called when no step has refused the request. Returns what
    /// the admission does next, or `None` if the question is answered already and the steps must be passed again.
    fn ask(&mut self, open: Option<Question>, cluster: &mut Cluster) -> Option<Course> {
        self.passed = true;
        match open {
            None => Some(Course::Complete),
            Some(Question::Hook(url)) => Some(Course::Ask(url)),
            Some(Question::Burn(key)) if cluster.burn(self.ticket, &key) => Some(Course::Park(Pending::Burn)),
            Some(Question::Burn(_)) => Some(Course::Refuse(self.request.denied(Denial::Token))),
            Some(Question::Claim) => match cluster.claim(self.ticket, self.request.key()) {
                Claim::Granted => {
                    self.claimed = true;
                    None
                }
                Claim::Asked => Some(Course::Park(Pending::Claim)),
                Claim::Refused => Some(Course::Refuse(Why::Publish(Refusal::NotAllowed(NO_DIRECTORY)))),
            },
        }
    }
}

/// The next action of an admission.
#[derive(Debug)]
enum Course {
    /// All steps have passed.
    Complete,
    Refuse(Why),
    /// Wait for an answer of the directory.
    Park(Pending),
    /// Ask the operator's receiver.
    Ask(HookUrl),
}

/// The answer for which an admission waits.
#[derive(Debug)]
enum Pending {
    Claim,
    Burn,
    Hook {
        url: HookUrl,
        /// Body of the question; `None` once it is submitted to the job service.
        body: Option<Bytes>,
    },
}

#[derive(Debug)]
struct Waiter {
    admission: Admission,
    until: Instant,
    pending: Pending,
}

/// The waiting admissions.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    waiting: BTreeMap<Ticket, Waiter>,
    by_session: BTreeMap<SessionRef, Ticket>,
    due: BTreeSet<(Instant, Ticket)>,
    hooks: HookQueue,
}

impl Admissions {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Number of waiting admissions.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Number of entries in all tables. Simulations check that it returns to 0.
    pub(super) fn held(&self) -> usize {
        self.waiting.len() + self.by_session.len() + self.due.len()
    }

    /// Returns the admissions whose claim was granted, with the ids.
    pub(super) fn claimed(&self) -> impl Iterator<Item = (Ticket, StreamKey)> {
        let claimed = self.waiting.values().filter(|waiter| waiter.admission.claimed);
        claimed.map(|waiter| (waiter.admission.ticket, waiter.admission.request.key().clone()))
    }

    fn park(&mut self, admission: Admission, until: Instant, pending: Pending) {
        let ticket = admission.ticket;
        self.by_session.insert(admission.request.session(), ticket);
        self.due.insert((until, ticket));
        self.waiting.insert(ticket, Waiter { admission, until, pending });
    }

    fn take(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = self.waiting.remove(&ticket)?;
        self.due.remove(&(waiter.until, ticket));
        self.by_session.remove(&waiter.admission.request.session());
        self.hooks.forget(ticket);
        Some(waiter)
    }

    /// Takes the admission with this ticket, if it waits for the claim of its id.
    fn take_claimer(&mut self, ticket: Ticket) -> Option<Admission> {
        let waits = matches!(self.waiting.get(&ticket)?.pending, Pending::Claim);
        waits.then(|| self.take(ticket)).flatten().map(|waiter| waiter.admission)
    }

    /// Takes the admission with this ticket, if it waits for the directory to use up its token.
    fn take_burner(&mut self, ticket: Ticket) -> Option<Admission> {
        let waits = matches!(self.waiting.get(&ticket)?.pending, Pending::Burn);
        waits.then(|| self.take(ticket)).flatten().map(|waiter| waiter.admission)
    }

    /// Takes the admission with this ticket, if it waits for the answer of its hook receiver.
    fn take_asker(&mut self, ticket: Ticket) -> Option<Admission> {
        let waits = matches!(self.waiting.get(&ticket)?.pending, Pending::Hook { .. });
        waits.then(|| self.take(ticket)).flatten().map(|waiter| waiter.admission)
    }
}

impl Control {
    /// Begins the admission of a viewer.
    pub(super) fn admit_viewer(&mut self, now: Now, mut request: PlayRequest) {
        if request.polled.is_some() {
            self.files.name_stream(&self.records, &mut request);
            if self.access.has_pass(&self.records, now, &request) {
                return self.cx.play_verdict(&request, Ok(()));
            }
        }
        self.begin_admission(now, Request::Play(request));
    }

    pub(super) fn begin_admission(&mut self, now: Now, request: Request) {
        let ticket = self.registry.cluster.new_ticket();
        self.run_admission(now, Admission::new(ticket, request));
    }

    /// Passes the steps until a question must be asked or the verdict is known.
    fn run_admission(&mut self, now: Now, mut admission: Admission) {
        let course = loop {
            let question = match Gate::of(self, now).pass_steps(&admission) {
                Ok(question) => question,
                Err(why) => break Course::Refuse(why),
            };
            if let Some(course) = admission.ask(question, &mut self.registry.cluster) {
                break course;
            }
        };
        let (cx, cluster) = (&mut self.cx, &mut self.registry.cluster);
        match course {
            Course::Complete => self.complete_admission(now, admission),
            Course::Refuse(why) => self.access.refuse_admission(cx, cluster, now, admission, why),
            Course::Park(pending) => self.access.park_admission(cx, cluster, now, admission, pending),
            Course::Ask(url) => {
                self.access.ask_receiver(cx, &self.records, cluster, now, admission, url);
            }
        }
    }

    /// Handles the directory's answer to a claim. If nobody waits for the claim any more, the answer is ignored.
    pub(super) fn handle_claim(&mut self, now: Now, ticket: Ticket, key: &StreamKey, answer: &ClaimAnswer) {
        let Some(result) = self.registry.cluster.answered(ticket, key, answer) else { return };
        if let Some(pull) = self.registry.cluster.source_of(ticket) {
            if result.is_ok() {
                self.outgoing(now).attempt(Job::Pull(pull));
            } else {
                self.outgoing(now).stop_source(key, StreamEnd::Superseded);
            }
            return;
        }
        let Some(mut admission) = self.access.admissions.take_claimer(ticket) else {
            return self.registry.cluster.release(ticket);
        };
        let refusal = match result {
            Ok(()) => {
                admission.claimed = true;
                return self.run_admission(now, admission);
            }
            Err(Claim::Refused) => Refusal::NotAllowed(NO_DIRECTORY),
            Err(Claim::Granted | Claim::Asked) => Refusal::InUse,
        };
        self.access.refuse_admission(
            &mut self.cx,
            &mut self.registry.cluster,
            now,
            admission,
            Why::Publish(refusal),
        );
    }

    /// Handles the directory's answer about a token: used up for this admission, or already used.
    pub(super) fn handle_burnt(&mut self, now: Now, ticket: Ticket, is_burnt: bool) {
        let Some(mut admission) = self.access.admissions.take_burner(ticket) else { return };
        if is_burnt {
            admission.burnt = true;
            return self.run_admission(now, admission);
        }
        let why = admission.request.denied(Denial::Token);
        self.access.refuse_admission(&mut self.cx, &mut self.registry.cluster, now, admission, why);
    }

    /// Completes an admission. Its steps have just been passed, so nothing has changed since. Uses up the token and
    /// reserves the id.
    fn complete_admission(&mut self, now: Now, admission: Admission) {
        let Admission { ticket, request, claimed, .. } = admission;
        let session = request.session();
        match request {
            Request::Publish(request) => match self.reserve(now, self.cx.without_publish_key(&request)) {
                Ok(grant) => {
                    self.cx.audit_publish(&request);
                    if claimed {
                        self.registry.cluster.hold(grant.stream, ticket);
                    }
                    let verdict = Ok(Box::new(grant));
                    self.cx.post(
                        session.worker,
                        ToWorker::Verdict { conn: session.conn, handle: session.handle, verdict },
                    );
                }
                Err(refusal) => {
                    self.registry.cluster.release(ticket);
                    self.cx.refuse_publish(&request, refusal);
                }
            },
            Request::Play(request) => {
                match self.access.let_in(&self.cx, &mut self.records, &self.registry, now, &request) {
                    Ok(()) if request.polled.is_some() => {
                        let is_given = {
                            let (cx, records, registry) = (&self.cx, &self.records, &self.registry);
                            self.access.give_pass(cx, records, registry, now, &request)
                        };
                        let verdict = if is_given { Ok(()) } else { Err(NoSubscription::Resources) };
                        self.cx.play_verdict(&request, verdict);
                    }
                    Ok(()) => {
                        self.cx.play_verdict(&request, Ok(()));
                        self.access.viewer_admitted(request);
                    }
                    Err(why) => self.cx.play_verdict(&request, Err(why)),
                }
            }
        }
    }
}

impl Access {
    /// Makes an admission wait, unless too many admissions wait already.
    fn park_admission(
        &mut self,
        cx: &mut Context,
        cluster: &mut Cluster,
        now: Now,
        mut admission: Admission,
        pending: Pending,
    ) {
        if self.admissions.waiting.len() >= WAITING_MAX {
            let newcomer = network(admission.request.peer());
            let app = Arc::clone(&admission.request.key().app);
            let excess = self.admissions.hooks.excess(&app, newcomer);
            let Some(Waiter { admission: excess, .. }) = excess.and_then(|one| self.admissions.take(one))
            else {
                let why = admission.request.unavailable();
                return self.refuse_admission(cx, cluster, now, admission, why);
            };
            let why = excess.request.unavailable();
            self.refuse_admission(cx, cluster, now, excess, why);
        }
        let latest = now.mono.checked_add(PATIENCE).unwrap_or(now.mono);
        let until = *admission.until.get_or_insert(latest);
        self.admissions.park(admission, until, pending);
    }

    fn refuse_admission(
        &mut self,
        cx: &mut Context,
        cluster: &mut Cluster,
        now: Now,
        admission: Admission,
        why: Why,
    ) {
        let Admission { ticket, request, passed, .. } = admission;
        let wrong_code = why == request.denied(Denial::TimeCode);
        // A request that had passed all steps before showed a correct code then. That code has expired since, so it was
        // not guessed.
        if wrong_code && !passed {
            self.attempts.note(now, request.key(), request.params(), request.peer());
        }
        cluster.release(ticket);
        match (request, why) {
            (Request::Publish(request), Why::Publish(refusal)) => cx.refuse_publish(&request, refusal),
            (Request::Play(request), Why::Play(why)) => cx.play_verdict(&request, Err(why)),
            (Request::Publish(request), Why::Play(_)) => cx.refuse_publish(&request, Refusal::Resources),
            (Request::Play(request), Why::Publish(_)) => {
                cx.play_verdict(&request, Err(NoSubscription::Resources));
            }
        }
    }

    /// Ends the admission of a peer that has left. Returns false if the peer was not waiting for an admission.
    pub(super) fn abandon_admission(
        &mut self,
        cx: &mut Context,
        cluster: &mut Cluster,
        now: Now,
        session: SessionRef,
    ) -> bool {
        let Some(ticket) = self.admissions.by_session.get(&session).copied() else { return false };
        self.admissions.take(ticket);
        cluster.release(ticket);
        self.hand_over_questions(cx, cluster, now);
        true
    }

    /// Ends admissions that have waited too long.
    pub(super) fn fire_admissions(&mut self, cx: &mut Context, cluster: &mut Cluster, now: Now) {
        while let Some((at, ticket)) = self.admissions.due.first().copied() {
            if at > now.mono {
                return;
            }
            self.admissions.due.remove(&(at, ticket));
            let Some(Waiter { admission, pending, .. }) = self.admissions.take(ticket) else {
                continue;
            };
            let why = match pending {
                Pending::Hook { .. } => admission.request.denied(Denial::HookSilent),
                Pending::Claim | Pending::Burn => {
                    tracing::info!(key = %admission.request.key(), "directory did not answer in time");
                    admission.request.unavailable()
                }
            };
            self.refuse_admission(cx, cluster, now, admission, why);
        }
    }

    /// Refuses all waiting admissions, because the server is shutting down.
    pub(super) fn end_admissions(&mut self, cx: &mut Context, cluster: &mut Cluster, now: Now) {
        for ticket in self.admissions.waiting.keys().copied().collect::<Vec<_>>() {
            if let Some(Waiter { admission, .. }) = self.admissions.take(ticket) {
                let why = admission.request.draining();
                self.refuse_admission(cx, cluster, now, admission, why);
            }
        }
    }
}
