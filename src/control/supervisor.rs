//! The supervisor of outgoing connections that are kept up: pushes (`endpoints`) and pulls (`sources`). It handles
//! attempts, pauses, names and addresses, but no media.
//!
//! 1. [`Supervisor::attempt`] begins an attempt. An address is checked and returned immediately; a host name is
//!    resolved first, at each attempt.
//! 2. The owner (`endpoints`, `sources`) orders a worker to connect, and reports this with [`Supervisor::open`]. Once
//!    media flow, the owner calls [`Supervisor::steady`].
//! 3. The owner recognizes news of an older attempt with [`Supervisor::is_current`], and drops it.
//! 4. After a failure, [`Supervisor::failed`] schedules the next attempt in 1, 1, 2, 2, 4, 4, 4, 4, 8, 16, 25, 25, ...
//!    s, reduced by up to a fifth; [`Supervisor::poll_due`] reports it when due. The attempts never stop unless the
//!    owner sets a limit.
//! 5. [`Supervisor::remove`] removes a job; later answers about it are ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Random;

use super::Control;
use super::broadcast::status;
use super::held::Standing;
use super::jobs::{ResolveRequest, Resolved};
use crate::auth::OutboundPolicy;
use crate::control::Outbound;
use crate::control::outgoing::Outgoing;
use crate::mail::{Target, Transport};
use crate::types::{Now, PullId, PushId, WorkerId};

/// Pauses after the first, second, ... consecutive failure, in milliseconds; the last one repeats.
const PAUSES_MS: [u64; 11] = [1000, 1000, 2000, 2000, 4000, 4000, 4000, 4000, 8000, 16_000, 25_000];
/// Pause before the next attempt if the last one ended without failing.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Duration of a connection after which the pauses between attempts start over from the shortest, because a later
/// outage is unrelated to the previous one.
const STEADY: Duration = Duration::from_secs(2);
/// Maximum number of different reasons that are logged for one series of failures.
const REASONS_MAX: usize = 4;
/// Time after which a resolver that has not answered counts as silent.
const RESOLVE_MAX: Duration = Duration::from_secs(10);

/// A supervised push or pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Job {
    Push(PushId),
    Pull(PullId),
}

/// The phase of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting(Instant),
    Resolving { request: u64, until: Instant },
    Open { worker: WorkerId, since: Option<Instant> },
    Idle,
}

impl Phase {
    const fn due(self) -> Option<Instant> {
        match self {
            Self::Waiting(at) | Self::Resolving { until: at, .. } => Some(at),
            Self::Open { .. } | Self::Idle => None,
        }
    }
}

/// The kind of a host, which decides how its address is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// A peer to connect to.
    Connect,
    /// A node to connect to, named by the operator. The policy on addresses that tenants may name does not apply.
    Node,
    /// A local address to which the peer connects.
    Listen,
    /// A local file, without a host.
    File,
}

/// The host that a job connects to or listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RemoteHost {
    host: String,
    port: u16,
    reach: Reach,
}

impl RemoteHost {
    /// Makes the host of a target. A listener without an address gets `ours`, the operator's address for all listeners,
    /// if that is set.
    pub(super) fn of(target: &Target, ours: Option<IpAddr>) -> Self {
        let listens = target.listens();
        let is_any = target.host.parse::<IpAddr>().is_ok_and(|host| host.is_unspecified());
        let host = match ours.filter(|_| listens && is_any) {
            Some(ours) => ours.to_string(),
            None => target.host.clone(),
        };
        let reach = match target.transport {
            Transport::UdpListener => Reach::Listen,
            Transport::File => Reach::File,
            Transport::Tcp | Transport::Tls | Transport::NodeTls | Transport::Udp => Reach::Connect,
        };
        Self { host, port: target.port, reach }
    }

    /// Makes the host of a node that a copy is fetched from.
    pub(super) fn of_node(target: &Target) -> Self {
        Self { host: target.host.clone(), port: target.port, reach: Reach::Node }
    }
}

#[derive(Debug)]
struct Task {
    remote: RemoteHost,
    attempt: u64,
    failures: u32,
    /// Reasons already logged in the current series of failures.
    told: Vec<Box<str>>,
    phase: Phase,
}

/// The next step of an attempt, after its start or after the resolver's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A name to resolve; the answer goes to [`Supervisor::resolved`].
    Resolve(ResolveRequest),
    /// An allowed address to connect to; meaningless for a file.
    Connect(SocketAddr),
    /// There is no usable address, for this reason; the owner calls [`Supervisor::failed`].
    Failed(String),
}

impl Task {
    /// Resets the failures if the open attempt has worked for at least [`STEADY`].
    fn forgive(&mut self, now: Instant) {
        if let Phase::Open { since: Some(since), .. } = self.phase
            && now.saturating_duration_since(since) >= STEADY
        {
            self.failures = 0;
            self.told.clear();
        }
    }
}

/// An action that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Time for the next attempt; the owner calls [`Supervisor::attempt`].
    Attempt,
    /// The resolver has not answered yet. The wait continues, since a second request would only lengthen the resolver's
    /// queue.
    ResolverSilent,
}

/// Supervises connection attempts; see the module.
#[derive(Debug, Default)]
pub(super) struct Supervisor {
    tasks: BTreeMap<Job, Task>,
    due: BTreeSet<(Instant, Job)>,
    resolving: BTreeMap<u64, Job>,
    requests: u64,
}

impl Supervisor {
    /// Returns the number of entries in all tables.
    pub(super) fn held(&self) -> usize {
        self.tasks.len() + self.due.len() + self.resolving.len()
    }

    /// Adds a job, which is idle until its first [`Supervisor::attempt`].
    pub(super) fn add(&mut self, job: Job, remote: RemoteHost) {
        self.remove(job);
        self.tasks
            .insert(job, Task { remote, attempt: 0, failures: 0, told: Vec::new(), phase: Phase::Idle });
    }

    /// Begins the next attempt; `None` if the job is unknown.
    pub(super) fn attempt(&mut self, now: Instant, job: Job, policy: &OutboundPolicy) -> Option<Step> {
        // Earlier deadlines no longer apply.
        self.enter(job, Phase::Idle);
        let task = self.tasks.get_mut(&job)?;
        task.attempt = task.attempt.saturating_add(1);
        let port = task.remote.port;
        match (task.remote.reach, task.remote.host.parse::<IpAddr>()) {
            (Reach::File, _) => return Some(Step::Connect(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))),
            (Reach::Listen, Ok(address)) => {
                return Some(wait_at(SocketAddr::new(address, port), policy));
            }
            (Reach::Connect, Ok(address)) => {
                return Some(choose(&[SocketAddr::new(address, port)], task.attempt, policy));
            }
            (Reach::Node, Ok(address)) => return Some(Step::Connect(SocketAddr::new(address, port))),
            (Reach::Listen, Err(_)) => {
                return Some(Step::Failed("a listener needs an address, not a name".to_owned()));
            }
            (Reach::Connect | Reach::Node, Err(_)) => {}
        }
        self.requests = self.requests.saturating_add(1);
        let request = self.requests;
        let step = Step::Resolve(ResolveRequest { id: request, host: task.remote.host.clone(), port });
        self.enter(job, Phase::Resolving { request, until: later(now, RESOLVE_MAX) });
        Some(step)
    }

    /// Handles the resolver's answer; `None` if no job waits for it.
    pub(super) fn resolved(&mut self, answer: Resolved, policy: &OutboundPolicy) -> Option<(Job, Step)> {
        let job = self.resolving.get(&answer.id).copied()?;
        self.enter(job, Phase::Idle);
        let attempt = self.attempt_of(job)?;
        let step = match answer.result {
            Ok(addresses) if self.is_of_node(job) => choose(&addresses, attempt, &OutboundPolicy::default()),
            Ok(addresses) => choose(&addresses, attempt, policy),
            Err(reason) => Step::Failed(reason),
        };
        Some((job, step))
    }

    fn is_of_node(&self, job: Job) -> bool {
        self.tasks.get(&job).is_some_and(|task| task.remote.reach == Reach::Node)
    }

    /// Notes that a worker has got the order to make the attempt.
    pub(super) fn open(&mut self, job: Job, worker: WorkerId) {
        self.enter(job, Phase::Open { worker, since: None });
    }

    /// Notes that the open attempt works: media flow over its connection.
    pub(super) fn steady(&mut self, now: Instant, job: Job) {
        if let Some(Task { phase: Phase::Open { worker, since }, .. }) = self.tasks.get(&job) {
            let (worker, since) = (*worker, since.unwrap_or(now));
            self.enter(job, Phase::Open { worker, since: Some(since) });
        }
    }

    /// Ends the attempt and schedules the next one, unless more than `limit` consecutive attempts have failed. Returns
    /// the number of failures so far.
    pub(super) fn failed(
        &mut self,
        now: Instant,
        job: Job,
        limit: Option<u32>,
        random: &mut Random,
    ) -> Option<u32> {
        let task = self.tasks.get_mut(&job)?;
        task.forgive(now);
        let before = task.failures;
        task.failures = before.saturating_add(1);
        let phase = if limit.is_some_and(|limit| before >= limit) {
            Phase::Idle
        } else {
            Phase::Waiting(later(now, pause(before, random)))
        };
        self.enter(job, phase);
        Some(before.saturating_add(1))
    }

    /// Ends the attempt, which has not failed, and schedules the next one.
    pub(super) fn again(&mut self, now: Instant, job: Job) {
        if let Some(task) = self.tasks.get_mut(&job) {
            task.forgive(now);
        }
        self.enter(job, Phase::Waiting(later(now, RESTART_PAUSE)));
    }

    /// Applies a new limit of consecutive failures to a job. A waiting job with more failures than the limit is given
    /// up. A job that was given up is tried again if its failures are within the limit. If the job's standing has
    /// changed, returns its failures and its new standing.
    pub(super) fn limit(
        &mut self,
        now: Instant,
        job: Job,
        limit: Option<u32>,
        random: &mut Random,
    ) -> Option<(u32, Standing)> {
        let task = self.tasks.get(&job)?;
        let failures = task.failures;
        let is_over = limit.is_some_and(|limit| failures > limit);
        match task.phase {
            Phase::Waiting(_) if is_over => self.enter(job, Phase::Idle),
            Phase::Idle if !is_over => self.enter(job, Phase::Waiting(later(now, pause(0, random)))),
            Phase::Waiting(_) | Phase::Idle | Phase::Resolving { .. } | Phase::Open { .. } => return None,
        }
        Some((failures, self.standing(job)))
    }

    /// Returns the number of consecutive failures.
    pub(super) fn failures(&self, job: Job) -> u32 {
        self.tasks.get(&job).map_or(0, |task| task.failures)
    }

    /// Returns the next action that is due. Each action is returned once.
    pub(super) fn poll_due(&mut self, now: Instant) -> Option<(Job, Due)> {
        let (at, job) = self.due.first().copied()?;
        if at > now {
            return None;
        }
        match self.tasks.get_mut(&job).map(|task| (task.phase, task)) {
            Some((Phase::Resolving { request, .. }, task)) => {
                task.failures = task.failures.saturating_add(1);
                self.enter(job, Phase::Resolving { request, until: later(now, RESOLVE_MAX) });
                Some((job, Due::ResolverSilent))
            }
            Some((Phase::Waiting(_) | Phase::Open { .. } | Phase::Idle, _)) | None => {
                self.due.remove(&(at, job));
                self.enter(job, Phase::Idle);
                Some((job, Due::Attempt))
            }
        }
    }

    /// Removes a job. Returns the worker of its open attempt.
    pub(super) fn remove(&mut self, job: Job) -> Option<WorkerId> {
        let worker = self.worker_of(job);
        self.enter(job, Phase::Idle);
        self.tasks.remove(&job);
        worker
    }

    /// Ends an attempt without counting a failure. The owner begins the next attempt, possibly at another address.
    /// Returns the worker of the ended attempt.
    pub(super) fn interrupt(&mut self, job: Job, remote: RemoteHost) -> Option<WorkerId> {
        let worker = self.worker_of(job);
        self.enter(job, Phase::Idle);
        if let Some(task) = self.tasks.get_mut(&job) {
            (task.remote, task.failures) = (remote, 0);
        }
        worker
    }

    /// Sets the host of the next attempt.
    pub(super) fn aim(&mut self, job: Job, remote: RemoteHost) {
        if let Some(task) = self.tasks.get_mut(&job) {
            task.remote = remote;
        }
    }

    /// True if an attempt is open and media flow over its connection.
    pub(super) fn is_steady(&self, job: Job) -> bool {
        self.tasks.get(&job).is_some_and(|task| matches!(task.phase, Phase::Open { since: Some(_), .. }))
    }

    /// Returns the time of the next due action.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// True if the job's open attempt has the number `attempt`.
    pub(super) fn is_current(&self, job: Job, attempt: u64) -> bool {
        self.tasks
            .get(&job)
            .is_some_and(|task| task.attempt == attempt && matches!(task.phase, Phase::Open { .. }))
    }

    /// Returns the number of the newest attempt.
    pub(super) fn attempt_of(&self, job: Job) -> Option<u64> {
        self.tasks.get(&job).map(|task| task.attempt)
    }

    /// Returns the worker of the open attempt.
    pub(super) fn worker_of(&self, job: Job) -> Option<WorkerId> {
        match self.tasks.get(&job)?.phase {
            Phase::Open { worker, .. } => Some(worker),
            Phase::Waiting(_) | Phase::Resolving { .. } | Phase::Idle => None,
        }
    }

    /// Returns the state of a job.
    pub(super) fn standing(&self, job: Job) -> Standing {
        match self.tasks.get(&job).map(|task| task.phase) {
            Some(Phase::Open { worker, .. }) => Standing::Open(worker),
            Some(Phase::Waiting(_) | Phase::Resolving { .. }) => Standing::Waiting,
            Some(Phase::Idle) | None => Standing::GivenUp,
        }
    }

    /// Returns the workers of the open pulls.
    pub(super) fn open_pulls(&self) -> impl Iterator<Item = WorkerId> {
        let pulls = self.tasks.iter().filter(|(job, _)| matches!(job, Job::Pull(_)));
        pulls.filter_map(|(_, task)| match task.phase {
            Phase::Open { worker, .. } => Some(worker),
            Phase::Waiting(_) | Phase::Resolving { .. } | Phase::Idle => None,
        })
    }

    /// Counts the pushes and pulls that failed and have not worked since.
    pub(super) fn failing(&self) -> (usize, usize) {
        let failing = self.tasks.iter().filter(|(_, task)| {
            task.failures > 0 && !matches!(task.phase, Phase::Open { since: Some(_), .. })
        });
        failing.fold((0, 0), |(pushes, pulls), (job, _)| match job {
            Job::Push(_) => (pushes + 1, pulls),
            Job::Pull(_) => (pushes, pulls + 1),
        })
    }

    /// True if a failure deserves its own log line: the first of a series, or a new reason.
    pub(super) fn is_news(&mut self, job: Job, reason: &str) -> bool {
        let Some(task) = self.tasks.get_mut(&job) else { return false };
        let is_new = task.told.len() < REASONS_MAX && task.told.iter().all(|told| **told != *reason);
        if is_new {
            task.told.push(reason.into());
        }
        is_new
    }

    /// True if at least two consecutive attempts of a job have failed.
    pub(super) fn has_failed(&self, job: Job) -> bool {
        self.tasks.get(&job).is_some_and(|task| task.failures > 1)
    }

    /// Counts the pushes and pulls that are connected and whose media flow.
    pub(super) fn broadcasting(&self) -> (usize, usize) {
        let on =
            self.tasks.iter().filter(|(_, task)| matches!(task.phase, Phase::Open { since: Some(_), .. }));
        on.fold((0, 0), |(pushes, pulls), (job, _)| match job {
            Job::Push(_) => (pushes + 1, pulls),
            Job::Pull(_) => (pushes, pulls + 1),
        })
    }

    fn enter(&mut self, job: Job, phase: Phase) {
        let Some(task) = self.tasks.get_mut(&job) else { return };
        if let Some(at) = task.phase.due() {
            self.due.remove(&(at, job));
        }
        if let Phase::Resolving { request, .. } = task.phase {
            self.resolving.remove(&request);
        }
        task.phase = phase;
        if let Some(at) = phase.due() {
            self.due.insert((at, job));
        }
        if let Phase::Resolving { request, .. } = phase {
            self.resolving.insert(request, job);
        }
    }
}

impl Outbound {
    /// Returns the application of a job.
    fn app_of_job(&self, job: Job) -> Option<Arc<str>> {
        let key = match job {
            Job::Push(id) => self.pushes.key_of(id)?,
            Job::Pull(id) => &self.sources.by_id.get(&id)?.key,
        };
        Some(Arc::clone(&key.app))
    }
}

impl Control {
    /// Handles attempts that failed before a worker was ordered to make them. Returns false if there are none.
    pub(super) fn follow_failures(&mut self, now: Now) -> bool {
        let mut any = false;
        while let Some((job, attempt, reason)) = self.outbound.failed.pop_front() {
            any = true;
            if self.outbound.supervisor.attempt_of(job) != Some(attempt) {
                continue;
            }
            match job {
                Job::Push(id) => self.push_failed(now, id, status::FAILED, &reason),
                Job::Pull(id) => self.outgoing(now).pull_failed(id, &reason),
            }
        }
        any
    }
}

impl Outgoing<'_> {
    /// Begins the next attempt of a job.
    pub(super) fn attempt(&mut self, job: Job) {
        if let Job::Pull(id) = job {
            self.outbound.pull_attempts(self.records, self.now, id);
        }
        if let Some(step) = self.outbound.supervisor.attempt(self.now.mono, job, &self.cx.config.outbound) {
            self.order(job, step);
        }
    }

    pub(super) fn resolved(&mut self, answer: Resolved) {
        if let Some((job, step)) = self.outbound.supervisor.resolved(answer, &self.cx.config.outbound) {
            self.order(job, step);
        }
    }

    pub(super) fn fire_attempts(&mut self) {
        while let Some((job, due)) = self.outbound.supervisor.poll_due(self.now.mono) {
            match (due, job) {
                (Due::Attempt, job) => self.attempt(job),
                (Due::ResolverSilent, Job::Push(id)) => {
                    self.outbound.push_still_resolving(self.records, self.now, id)
                }
                (Due::ResolverSilent, Job::Pull(id)) => {
                    self.outbound.pull_still_resolving(self.records, self.now, id)
                }
            }
        }
    }

    fn order(&mut self, job: Job, step: Step) {
        match (step, job) {
            (Step::Resolve(request), job) => {
                if let Some(app) = self.outbound.app_of_job(job) {
                    self.resolve(&app, request);
                }
            }
            (Step::Connect(address), Job::Push(id)) => {
                self.outbound.order_push(self.cx, self.registry, id, address)
            }
            (Step::Connect(address), Job::Pull(id)) => self.order_pull(id, address),
            (Step::Failed(reason), job) => {
                let attempt = self.outbound.supervisor.attempt_of(job);
                self.outbound.failed.extend(attempt.map(|attempt| (job, attempt, reason)));
            }
        }
    }
}

/// Checks an address to listen on: an address of this machine, or a multicast group that is not denied.
fn wait_at(address: SocketAddr, policy: &OutboundPolicy) -> Step {
    match address.ip() {
        ip if ip.is_unspecified() || policy.is_own(ip) => Step::Connect(address),
        ip if ip.is_multicast() && !policy.deny.contains(ip) => Step::Connect(address),
        ip if ip.is_multicast() => Step::Failed("the group is denied by outbound.deny".to_owned()),
        _ => Step::Failed("the address to listen at is not one of this machine".to_owned()),
    }
}

fn choose(addresses: &[SocketAddr], attempt: u64, policy: &OutboundPolicy) -> Step {
    allowed(addresses, attempt, policy).map_or_else(Step::Failed, Step::Connect)
}

/// Picks one of the addresses that the policy allows. Successive attempts get different addresses in turn.
pub(super) fn allowed(
    addresses: &[SocketAddr],
    attempt: u64,
    policy: &OutboundPolicy,
) -> Result<SocketAddr, String> {
    let allowed: Vec<SocketAddr> = addresses.iter().copied().filter(|a| policy.check(*a).is_ok()).collect();
    let turn = usize::try_from(attempt.saturating_sub(1)).unwrap_or(0);
    turn.checked_rem(allowed.len()).and_then(|at| allowed.get(at).copied()).ok_or_else(|| {
        let denied = addresses.iter().find_map(|a| policy.check(*a).err());
        denied.map_or_else(|| "the host has no address".to_owned(), |denied| denied.to_string())
    })
}

fn pause(failed_before: u32, random: &mut Random) -> Duration {
    let at = usize::try_from(failed_before).unwrap_or(usize::MAX);
    let full = PAUSES_MS.get(at).or(PAUSES_MS.last()).copied().unwrap_or(1000);
    Duration::from_millis(full - random.below(full / 5 + 1))
}

fn later(now: Instant, time: Duration) -> Instant {
    now.checked_add(time).unwrap_or(now)
}
