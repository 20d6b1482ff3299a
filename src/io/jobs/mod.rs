//! The job service: the threads that do all work that may block, grouped by class ([`crate::jobs`]).
//!
//! 1. [`Jobs::submit`] counts the job against the limits of its class, without a lock. It passes the job to the
//!    dispatcher, or returns it as busy. A worker therefore never waits here and never starts a thread.
//! 2. The dispatcher, a single thread, keeps the queues of each class ([`shares`]) and gives jobs to idle threads of
//!    the class. It starts a thread if none is idle and the class may have another one. It ends threads that were idle
//!    for [`IDLE`].
//! 3. The thread does the work ([`Runner`]), delivers the answer, and reports that it is idle.

mod admin;
mod archives;
mod dvr;
mod files;
mod imports;
mod key_files;
mod names;
mod nodes;
mod objects;
mod passwords;
mod patience;
mod pictures;
mod posts;
mod recordings;
mod relays;
mod roles;
mod run;
mod seen;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use super::{clock, sys};
use crate::auth::OutboundPolicy;
use crate::jobs::shares::{self, Lines, Payer};
use crate::jobs::{Class, Job, JobDone, JobId, Limits, Outcome, Work};
use crate::stats::JobCounts;
use crate::types::SessionRef;

pub(in crate::io) use admin::remember;
pub(in crate::io) use passwords::{digest_of, make, make_imported};
pub(in crate::io) use recordings::finished_or_unknown as finished;
pub(in crate::io) use run::{FilePaths, Runner};

/// Time after which an idle thread ends.
const IDLE: Duration = Duration::from_secs(5);

/// Number of counters over which the waiting jobs of a class are spread by application.
const PARTS: usize = 64;

/// Niceness (0 to 19) of threads of low priority relative to the workers, so that workers get the processor first.
const YIELD: i32 = 5;

/// The submitter of a job, to which the answer is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// The control thread.
    Control,
    /// A session of a worker.
    Session(SessionRef),
}

/// Delivers answers to the submitters of jobs. Called on the threads of the service.
pub(super) type Deliver = dyn Fn(Asker, JobDone) + Send + Sync;

/// Does the work of a job, on a thread of the service.
type Run = dyn Fn(Work, Instant) -> Outcome + Send + Sync;

/// A submitted job.
struct Task {
    asker: Asker,
    id: JobId,
    payer: Payer,
    work: Work,
    class: Class,
    bytes: usize,
    submitted: Instant,
}

enum Message {
    Submit(Box<Task>),
    /// A thread of a class is idle.
    Idle(Class, u64),
    /// No more jobs will be submitted.
    Close,
}

/// The load of a class.
#[derive(Debug)]
struct Load {
    limits: Limits,
    jobs: AtomicUsize,
    bytes: AtomicUsize,
    /// Waiting jobs by application.
    parts: [Part; PARTS],
    /// Spreads applications over the parts; its keys are random, so that nobody can choose a name that shares the part
    /// of another application.
    hasher: RandomState,
    refused: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    /// Time for which the class's threads were busy, in nanoseconds.
    busy: AtomicU64,
    /// Processor time used by the class's threads, in nanoseconds.
    cpu: AtomicU64,
}

/// The waiting jobs of an application.
#[derive(Debug)]
struct Part {
    jobs: AtomicUsize,
    bytes: AtomicUsize,
}

impl Load {
    fn new(limits: Limits) -> Self {
        let (jobs, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (refused, done, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let (busy, cpu) = (AtomicU64::new(0), AtomicU64::new(0));
        let parts = [const { Part { jobs: AtomicUsize::new(0), bytes: AtomicUsize::new(0) } }; PARTS];
        let hasher = RandomState::new();
        Self { limits, jobs, bytes, parts, hasher, refused, done, failed, busy, cpu }
    }

    /// Returns the counters of an application. A few applications may share them.
    fn part(&self, app: Option<&Arc<str>>) -> Option<&Part> {
        let parts = u64::try_from(PARTS).unwrap_or(1);
        self.parts.get(usize::try_from(self.hasher.hash_one(app?) % parts).unwrap_or(0))
    }

    /// Counts a job if there is room. An application may have no more waiting jobs than the queue has free
    /// places, and its waiting jobs may hold no more bytes than are free.
    fn enter(&self, app: Option<&Arc<str>>, bytes: usize) -> bool {
        let before = self.jobs.fetch_add(1, Ordering::Relaxed);
        let part = self.part(app);
        let own = part.map_or(0, |part| part.jobs.fetch_add(1, Ordering::Relaxed));
        if !self.limits.has_room(before, own) {
            self.leave(app, 0);
            return false;
        }
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let own = part.map_or(0, |part| part.bytes.fetch_add(bytes, Ordering::Relaxed));
        if !self.limits.has_bytes(before, own, bytes) {
            self.leave(app, bytes);
            return false;
        }
        true
    }

    fn leave(&self, app: Option<&Arc<str>>, bytes: usize) {
        self.jobs.fetch_sub(1, Ordering::Relaxed);
        if let Some(part) = self.part(app) {
            part.jobs.fetch_sub(1, Ordering::Relaxed);
            part.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

type Loads = BTreeMap<Class, Load>;

/// A handle of the service, cheap to clone. When the last handle is dropped, the threads end.
#[derive(Debug, Clone)]
pub(super) struct Jobs(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    loads: Arc<Loads>,
    dispatcher: Sender<Message>,
    policy: posts::Policy,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.dispatcher.send(Message::Close);
    }
}

impl Jobs {
    /// Starts only the dispatcher. The other threads are started on demand.
    pub(super) fn start(
        paths: FilePaths,
        policy: OutboundPolicy,
        nodes: Arc<ClientConfig>,
        deliver: Arc<Deliver>,
    ) -> io::Result<Self> {
        let runner = Runner::new(paths, policy, nodes);
        let policy = runner.policy();
        let run = move |work, submitted| runner.run(work, submitted);
        Self::with(Class::limits, policy, Arc::new(run), deliver)
    }

    fn with(
        limits: impl Fn(Class) -> Limits,
        policy: posts::Policy,
        run: Arc<Run>,
        deliver: Arc<Deliver>,
    ) -> io::Result<Self> {
        let (dispatcher, messages) = channel();
        let loads = Class::ALL.into_iter().map(|class| (class, Load::new(limits(class)))).collect();
        let loads: Arc<Loads> = Arc::new(loads);
        let threads = Threads { reports: dispatcher.clone(), run, deliver, loads: Arc::clone(&loads) };
        let work = Dispatcher { loads: Arc::clone(&loads), pools: BTreeMap::new(), threads, count: 0 };
        thread::Builder::new().name("jobs".into()).spawn(move || work.serve(&messages))?;
        Ok(Self(Arc::new(Handle { loads, dispatcher, policy })))
    }

    /// Submits a job. Its answer is delivered later. If the class is full, the answer (busy) is
    /// returned immediately.
    pub(super) fn submit(&self, asker: Asker, job: Job) -> Option<JobDone> {
        let (class, bytes, payer) = (job.work.class(), job.work.bytes(), job.payer());
        let Some(load) = self.0.loads.get(&class) else { return Some(busy(job.id)) };
        if !load.enter(job.app.as_ref(), bytes) {
            load.refused.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(class = class.name(), app = job.app.as_deref(), "job refused: the queue is full");
            return Some(busy(job.id));
        }
        let Job { id, work, .. } = job;
        let task = Task { asker, id, payer, work, class, bytes, submitted: clock::now().mono };
        let sent = self.0.dispatcher.send(Message::Submit(Box::new(task)));
        sent.is_err().then(|| busy(id))
    }

    /// Returns the number of waiting and of refused jobs, by class.
    pub(super) fn counts(&self) -> Vec<JobCounts> {
        let counts = |(class, load): (&Class, &Load)| JobCounts {
            class: class.name(),
            waiting: load.jobs.load(Ordering::Relaxed),
            refused: load.refused.load(Ordering::Relaxed),
            done: load.done.load(Ordering::Relaxed),
            failed: load.failed.load(Ordering::Relaxed),
            busy: Duration::from_nanos(load.busy.load(Ordering::Relaxed)),
            cpu: Duration::from_nanos(load.cpu.load(Ordering::Relaxed)),
        };
        self.0.loads.iter().map(counts).collect()
    }

    /// Sets the policy that decides to which addresses hooks and admission hooks may connect.
    pub(super) fn set_policy(&self, policy: OutboundPolicy) {
        posts::set_policy(&self.0.policy, policy);
    }
}

const fn busy(id: JobId) -> JobDone {
    JobDone { id, outcome: Outcome::Busy }
}

/// The queue and the threads of a class.
struct Pool {
    waiting: Lines<Task>,
    shares: shares::Threads,
    /// Running jobs' use of threads, by thread, with their start times.
    turns: BTreeMap<u64, (shares::Turn, Instant)>,
    threads: BTreeMap<u64, Sender<Task>>,
    /// Idle threads, each with the time since which it has been idle. The thread that became idle last is used
    /// first, so that the others can end.
    idle: Vec<(u64, Instant)>,
}

impl Pool {
    fn new(class: Class, loads: &Loads) -> Self {
        let threads = loads.get(&class).map_or(0, |load| load.limits.threads);
        Self {
            waiting: Lines::default(),
            shares: shares::Threads::new(threads),
            turns: BTreeMap::new(),
            threads: BTreeMap::new(),
            idle: Vec::new(),
        }
    }

    /// Returns a thread that has done its work.
    fn end_turn(&mut self, thread: u64) {
        if let Some((turn, since)) = self.turns.remove(&thread) {
            self.shares.end(turn, clock::now().mono.saturating_duration_since(since));
        }
    }
}

/// Parameters shared by the threads.
#[derive(Clone)]
struct Threads {
    reports: Sender<Message>,
    run: Arc<Run>,
    deliver: Arc<Deliver>,
    loads: Arc<Loads>,
}

impl Threads {
    fn start(&self, class: Class, number: u64) -> io::Result<Sender<Task>> {
        let (sender, tasks) = channel();
        let this = self.clone();
        let name = format!("{}-{number}", class.name());
        thread::Builder::new().name(name).spawn(move || this.work(class, number, &tasks))?;
        Ok(sender)
    }

    fn work(&self, class: Class, number: u64, tasks: &Receiver<Task>) {
        if class.yields() {
            let _ = sys::lower_priority(YIELD)
                .inspect_err(|error| tracing::debug!(%error, "a thread keeps its priority"));
        }
        let mut used = Duration::ZERO;
        while let Ok(Task { asker, id, work, submitted, .. }) = tasks.recv() {
            let began = clock::now().mono;
            let done = catch_unwind(AssertUnwindSafe(|| (self.run)(work, submitted)));
            let outcome = done.unwrap_or(Outcome::Failed);
            let now = sys::thread_cpu();
            let spent = now.saturating_sub(std::mem::replace(&mut used, now));
            if let Some(load) = self.loads.get(&class) {
                let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                load.cpu.fetch_add(nanos(spent), Ordering::Relaxed);
                load.busy
                    .fetch_add(nanos(clock::now().mono.saturating_duration_since(began)), Ordering::Relaxed);
                let counter = if outcome.is_failure() { &load.failed } else { &load.done };
                counter.fetch_add(1, Ordering::Relaxed);
            }
            (self.deliver)(asker, JobDone { id, outcome });
            if self.reports.send(Message::Idle(class, number)).is_err() {
                return;
            }
        }
    }
}

struct Dispatcher {
    loads: Arc<Loads>,
    pools: BTreeMap<Class, Pool>,
    threads: Threads,
    count: u64,
}

impl Dispatcher {
    fn serve(mut self, messages: &Receiver<Message>) {
        loop {
            let class = match self.next(messages) {
                Ok(Message::Submit(task)) => {
                    let class = task.class;
                    let payer = task.payer.clone();
                    self.pool(class).waiting.push(&payer, *task);
                    class
                }
                Ok(Message::Idle(class, number)) => {
                    let pool = self.pool(class);
                    pool.end_turn(number);
                    pool.idle.push((number, clock::now().mono));
                    class
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.end_idle_threads(clock::now().mono);
                    continue;
                }
                Ok(Message::Close) | Err(RecvTimeoutError::Disconnected) => return,
            };
            self.hand_out(class);
        }
    }

    fn pool(&mut self, class: Class) -> &mut Pool {
        self.pools.entry(class).or_insert_with(|| Pool::new(class, &self.loads))
    }

    /// Returns the next message. Times out once a thread has been idle for [`IDLE`].
    fn next(&self, messages: &Receiver<Message>) -> Result<Message, RecvTimeoutError> {
        let oldest = self.pools.values().flat_map(|pool| &pool.idle).map(|(_, since)| *since).min();
        let Some(due) = oldest.and_then(|since| since.checked_add(IDLE)) else {
            return messages.recv().map_err(|_| RecvTimeoutError::Disconnected);
        };
        messages.recv_timeout(due.saturating_duration_since(clock::now().mono))
    }

    /// Gives waiting jobs of a class to its threads.
    fn hand_out(&mut self, class: Class) {
        let (Some(pool), Some(load)) = (self.pools.get_mut(&class), self.loads.get(&class)) else { return };
        while pool.waiting.has_next(&pool.shares) {
            let number = match pool.idle.pop() {
                Some((number, _)) => number,
                None => {
                    self.count += 1;
                    match self.threads.start(class, self.count) {
                        Ok(thread) => drop(pool.threads.insert(self.count, thread)),
                        // Another thread of the class will take the job when it is idle.
                        Err(_) if !pool.threads.is_empty() => return,
                        Err(error) => {
                            tracing::error!(%error, class = class.name(), "job thread not started")
                        }
                    }
                    self.count
                }
            };
            let Some((task, turn)) = pool.waiting.next(&mut pool.shares) else { return };
            load.leave(task.payer.app.as_ref(), task.bytes);
            pool.turns.insert(number, (turn, clock::now().mono));
            let (asker, id) = (task.asker, task.id);
            let taken = pool.threads.get(&number).is_some_and(|thread| thread.send(task).is_ok());
            if !taken {
                pool.threads.remove(&number);
                pool.end_turn(number);
                (self.threads.deliver)(asker, JobDone { id, outcome: Outcome::Failed });
            }
        }
    }

    fn end_idle_threads(&mut self, now: Instant) {
        for pool in self.pools.values_mut() {
            let threads = &mut pool.threads;
            pool.idle.retain(|(number, since)| {
                let keep = now.saturating_duration_since(*since) < IDLE;
                if !keep {
                    threads.remove(number);
                }
                keep
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use bytes::Bytes;

    use super::*;
    use crate::auth::HookUrl;
    use crate::auth::access::Secret;
    use crate::config::S3Settings;
    use crate::jobs::{
        AdminWork, AppendTo, ArchiveWork, BlockSource, Compute, NodeWork, ObjectAction, ObjectWork,
        PasswordDigest, PasswordWork, Post, Receiver as For, RecordingWork, RelayWork,
    };

    /// A gate at which jobs wait until it is opened.
    #[derive(Default)]
    struct Gate {
        /// Number of jobs that have reached the gate, and whether it is open.
        state: Mutex<(usize, bool)>,
        changed: Condvar,
    }

    impl Gate {
        fn pass(&self) {
            let mut state = self.state.lock().unwrap();
            state.0 += 1;
            self.changed.notify_all();
            drop(self.changed.wait_while(state, |state| !state.1).unwrap());
        }

        fn wait_for(&self, jobs: usize) {
            let state = self.state.lock().unwrap();
            drop(self.changed.wait_while(state, |state| state.0 < jobs).unwrap());
        }

        fn open(&self) {
            self.state.lock().unwrap().1 = true;
            self.changed.notify_all();
        }
    }

    /// Makes work of the given class. The work is never actually done.
    fn work(class: Class, bytes: usize) -> Work {
        let post = |receiver| {
            let url = HookUrl::parse("http://h.example/").unwrap();
            Work::Post(Post {
                receiver,
                url,
                body: Bytes::new(),
                body_type: crate::jobs::BodyType::Json,
                secret: Secret::default(),
                timeout: IDLE,
            })
        };
        match class {
            Class::Resolve => Work::Resolve { host: "h".into(), port: 1 },
            Class::Hook => post(For::Hook),
            Class::Admission => post(For::Admission),
            Class::Fetch => Work::Fetch { url: HookUrl::parse("http://h.example/").unwrap() },
            Class::Password => {
                let digest = PasswordDigest::parse(&"0".repeat(32)).unwrap();
                Work::Password(PasswordWork::Verify { digest, stored: String::new() })
            }
            Class::Admin => Work::Admin(AdminWork::Reload),
            Class::FileRead => Work::FileOpen { path: Vec::new() },
            Class::FileWrite => {
                let data = vec![Bytes::from(vec![0; bytes])];
                Work::FileAppend { to: AppendTo::New { path: Vec::new() }, data }
            }
            Class::FileSync => Work::Archive(ArchiveWork::Remove { path: Vec::new(), begun_ms: None }),
            Class::Recording => Work::Recording(RecordingWork::Remove { path: Vec::new() }),
            Class::Relay => Work::Relay(RelayWork {
                url: Arc::new(url::Url::parse("http://h.example/").unwrap()),
                name: String::new(),
                content_type: "",
                data: None,
            }),
            Class::Object => Work::Object(ObjectWork {
                storage: Arc::new(S3Settings {
                    endpoint: url::Url::parse("http://h.example/").unwrap(),
                    region: String::new(),
                    bucket: String::new(),
                    keys: None,
                    path_style: true,
                    folder: String::new(),
                    permission: String::new(),
                    storage_class: String::new(),
                    cache_control: String::new(),
                    keeps_local: false,
                }),
                name: String::new(),
                action: ObjectAction::Remove,
            }),
            Class::Node => Work::Node(NodeWork {
                cluster: String::new(),
                host: "h.example".to_owned(),
                port: 1,
                call: relay::Call {
                    method: String::new(),
                    path: String::new(),
                    query: Vec::new(),
                    content_type: String::new(),
                    body: Bytes::new(),
                    user: String::new(),
                    address: String::new(),
                    sees_credentials: false,
                },
                until: Instant::now() + Duration::from_secs(9),
            }),
            Class::Picture => Work::Picture(Box::new(pictures::tests::work(bytes))),
            Class::Compute => Work::Compute(Compute::new(|| ())),
        }
    }

    /// Makes a service whose jobs wait at the gate of their class. Also returns the gate and the answers.
    fn gated(blocked: Class) -> (Jobs, Arc<Gate>, Receiver<JobDone>) {
        let gate = Arc::new(Gate::default());
        let (answers, received) = channel();
        let held = Arc::clone(&gate);
        let run = move |work: Work, _: Instant| {
            if work.class() == blocked {
                held.pass();
            }
            Outcome::Posted(Ok(200))
        };
        let deliver = move |_: Asker, done: JobDone| {
            let _ = answers.send(done);
        };
        let policy = posts::policy(OutboundPolicy::default());
        let jobs = Jobs::with(Class::limits, policy, Arc::new(run), Arc::new(deliver)).unwrap();
        (jobs, gate, received)
    }

    fn submit(jobs: &Jobs, id: u64, work: Work) -> Option<Outcome> {
        jobs.submit(Asker::Control, Job { id: JobId(id), app: None, work }).map(|done| done.outcome)
    }

    #[test]
    fn a_full_class_is_busy_at_once_and_holds_up_no_other() {
        for class in Class::ALL {
            let (jobs, gate, answers) = gated(class);
            let limits = class.limits();
            let all = (limits.threads + limits.queue) as u64;
            for id in 0..all {
                if id == limits.threads as u64 {
                    gate.wait_for(limits.threads);
                }
                assert!(submit(&jobs, id, work(class, 1)).is_none(), "{class:?}: {id}");
            }
            assert!(matches!(submit(&jobs, all, work(class, 1)), Some(Outcome::Busy)), "{class:?}");
            let counts = jobs.counts().into_iter().find(|counts| counts.class == class.name()).unwrap();
            assert_eq!((counts.waiting, counts.refused), (limits.queue, 1), "{class:?}");
            for other in Class::ALL.into_iter().filter(|other| *other != class) {
                assert!(submit(&jobs, 1_000_000, work(other, 1)).is_none());
                assert_eq!(answers.recv().unwrap().id, JobId(1_000_000), "{other:?} beside {class:?}");
            }
            gate.open();
            let mut answered: Vec<JobId> =
                answers.iter().take(limits.threads + limits.queue).map(|done| done.id).collect();
            answered.sort_unstable();
            assert_eq!(answered, (0..all).map(JobId).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_waits_to_be_written_is_bounded_by_its_bytes() {
        let (jobs, gate, answers) = gated(Class::FileWrite);
        let limits = Class::FileWrite.limits();
        for id in 0..limits.threads {
            assert!(submit(&jobs, id as u64, work(Class::FileWrite, 1)).is_none());
        }
        gate.wait_for(limits.threads);
        let piece = limits.bytes / 4;
        for id in 0..4 {
            assert!(submit(&jobs, id, work(Class::FileWrite, piece)).is_none());
        }
        assert!(matches!(submit(&jobs, 4, work(Class::FileWrite, 1)), Some(Outcome::Busy)));
        gate.open();
        assert_eq!(answers.iter().take(limits.threads + 4).count(), limits.threads + 4);
        // A job that is larger than the limit is done if no other job is waiting.
        assert!(submit(&jobs, 9, work(Class::FileWrite, limits.bytes + 1)).is_none());
        assert_eq!(answers.recv().unwrap().id, JobId(9));
    }

    #[test]
    fn q_17_the_waiting_jobs_of_an_application_leave_bytes_for_others() {
        let limits = Class::Relay.limits();
        let load = Load::new(limits);
        let (one, piece) = (Arc::from("one"), limits.bytes / 64);
        let entered = (0..64).filter(|_| load.enter(Some(&one), piece)).count();
        assert_eq!(entered, 33, "half of the bytes are left");
        let of_one = std::ptr::from_ref(load.part(Some(&one)).unwrap());
        let other = (0..).map(|n| Arc::from(format!("other{n}")));
        let other =
            other.into_iter().find(|app| !std::ptr::eq(load.part(Some(app)).unwrap(), of_one)).unwrap();
        assert!(load.enter(Some(&other), piece) && !load.enter(Some(&one), piece));
        (0..33).for_each(|_| load.leave(Some(&one), piece));
        load.leave(Some(&other), piece);
        assert_eq!((load.jobs.load(Ordering::Relaxed), load.bytes.load(Ordering::Relaxed)), (0, 0));
        assert!(load.enter(Some(&one), limits.bytes + 1), "a single job may exceed the limit");
    }

    #[test]
    fn threads_are_started_when_they_are_needed_and_jobs_of_one_thread_keep_their_order() {
        let (names, named) = channel();
        let run = move |_: Work, _: Instant| {
            names.send(thread::current().name().unwrap_or_default().to_owned()).unwrap();
            Outcome::Failed
        };
        let (answers, received) = channel();
        let deliver = move |_: Asker, done: JobDone| answers.send(done.id).unwrap();
        let policy = posts::policy(OutboundPolicy::default());
        let jobs = Jobs::with(Class::limits, policy, Arc::new(run), Arc::new(deliver)).unwrap();
        for id in 0..50 {
            assert!(submit(&jobs, id, work(Class::Admin, 0)).is_none());
        }
        let order: Vec<JobId> = received.iter().take(50).collect();
        assert_eq!(order, (0..50).map(JobId).collect::<Vec<_>>());
        drop(jobs);
        // After the last handle is dropped, the threads end and drop the senders of both channels.
        assert!(received.recv().is_err());
        assert!(named.iter().all(|name| name == "admin-1"));
    }

    #[test]
    fn a_panic_is_an_answer_and_the_thread_goes_on() {
        let (answers, received) = channel();
        let deliver = move |_: Asker, done: JobDone| {
            let _ = answers.send(done);
        };
        let paths = FilePaths::of(std::env::temp_dir());
        let nodes = crate::io::tls::NodeConfigs::of_secret(b"secret").unwrap().client;
        let jobs = Jobs::start(paths, OutboundPolicy::default(), nodes, Arc::new(deliver)).unwrap();
        let panics = Compute::new(|| assert_eq!(1, 2, "a computation that fails"));
        assert!(submit(&jobs, 1, Work::Compute(panics)).is_none());
        assert!(matches!(received.recv().unwrap().outcome, Outcome::Failed));
        assert!(submit(&jobs, 2, Work::Compute(Compute::new(|| 6 * 7))).is_none());
        let Outcome::Computed(computed) = received.recv().unwrap().outcome else { panic!("no result") };
        assert_eq!(computed.take::<i32>(), Some(42));
        // The length of a block is bounded for every caller.
        #[derive(Debug)]
        struct Lengths;
        impl BlockSource for Lengths {
            fn read_block(&self, _: u64, length: usize) -> Bytes {
                Bytes::from(length.to_string())
            }
        }
        let read = Work::FileRead { file: Arc::new(Lengths), offset: 0, length: usize::MAX };
        assert!(submit(&jobs, 3, read).is_none());
        let outcome = received.recv().unwrap().outcome;
        assert!(matches!(outcome, Outcome::Block(block) if block == "1048576"));
    }
}
