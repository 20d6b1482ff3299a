//! Control, its store, and the threads for work that may block.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use millstream::config::{AppSettings, Config};
use millstream::control::{self, Control, ControlConfig, Ordered, Restored};
use millstream::jobs::{
    AdminOutcome, AdminWork, Finished, Job, JobDone, Outcome, RecordingOutcome, RecordingWork, Work,
};
use millstream::mail::{ToControl, ToWorker};
use millstream::store::{self, Faults, Memory, Store};
use millstream::types::Now;
use netsim::{ms, secs};

use super::World;
use super::workers::WorkerMail;

/// Mail in control's inbox.
#[derive(Debug)]
pub(super) enum ControlMail {
    Worker(ToControl),
    Store(store::Reply),
    Job(JobDone),
}

/// Control, its store and its jobs, which the module describes.
pub struct Backstage {
    pub(super) control: Control,
    config: ControlConfig,
    store: Memory,
    faults: Faults,
    inbox: VecDeque<ControlMail>,
    /// Requests to the store, each with the time at which it completes.
    commits: VecDeque<(Instant, store::Request)>,
    /// Answers to jobs, by the time at which they are delivered.
    answers: BTreeMap<(Instant, u64), JobDone>,
    jobs: u64,
    pub(super) exited: bool,
}

impl Backstage {
    pub(super) fn new(now: Now, config: ControlConfig, seed: &Seed) -> Self {
        let control = Control::new(now, config.clone(), [], &seed.derive("control", 0)).unwrap();
        let faults = Faults::default();
        Self {
            control,
            config,
            store: Memory::with_faults(faults.clone()),
            faults,
            inbox: VecDeque::new(),
            commits: VecDeque::new(),
            answers: BTreeMap::new(),
            jobs: 0,
            exited: false,
        }
    }

    pub(super) fn install(&mut self, apps: Vec<Arc<AppSettings>>) {
        self.config.apps = apps;
        self.control.reload();
    }

    /// Returns the settings that a reload reads.
    fn settings(&self) -> Config {
        Config {
            home: PathBuf::new(),
            server: Arc::clone(&self.config.server),
            apps: self.config.apps.clone(),
            lost: Vec::new(),
            used: true,
            warnings: Vec::new(),
        }
    }

    /// Returns the records on the disk.
    pub fn stored(&mut self) -> Vec<(store::Key, Bytes)> {
        self.store.load().unwrap()
    }

    /// Returns the pushes, pulls and recordings that control has ordered.
    pub fn ordered(&self) -> Vec<Ordered> {
        self.control.ordered()
    }

    /// Makes the next commits and rebuilds of the store fail.
    pub fn fail_store(&self, commits: u32, rebuilds: u32) {
        self.faults.fail(commits, rebuilds);
    }

    /// Replaces control with a new one that starts from the store's content. With `is_done`, the pending commit
    /// has taken effect, although control never got the answer.
    pub(super) fn restart(&mut self, now: Now, seed: &Seed, is_done: bool) {
        self.faults.fail(0, 0);
        if let Some((_, request)) = self.commits.pop_front().filter(|_| is_done) {
            let _ = store::handle(&mut self.store, request);
        }
        self.commits.clear();
        self.inbox.clear();
        self.answers.clear();
        let stored = self.store.load().unwrap();
        // The new store reads the file as it is, because the state of the old store is unknown after a fault.
        let mut store = Memory::with_faults(self.faults.clone());
        store.rebuild(&stored).unwrap();
        self.store = store;
        let seed = seed.derive("control", 0);
        let restored = Restored::decode(&stored).map_err(Into::into);
        self.control = Control::new(now, self.config.clone(), [restored], &seed).unwrap();
    }

    pub(super) fn post(&mut self, mail: ControlMail) {
        self.inbox.push_back(mail);
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        let commit = self.commits.front().map(|(at, _)| *at);
        let answer = self.answers.first_key_value().map(|((at, _), _)| *at);
        [commit, answer].into_iter().flatten().min()
    }

    /// Delivers the answers of store requests and jobs that have completed.
    fn take_done(&mut self, now: Instant) -> bool {
        let mut progress = false;
        while let Some((_, request)) = self.commits.pop_front_if(|(at, _)| *at <= now) {
            let reply = store::handle(&mut self.store, request);
            self.inbox.push_back(ControlMail::Store(reply));
            progress = true;
        }
        while self.answers.first_key_value().is_some_and(|((at, _), _)| *at <= now) {
            self.inbox.extend(self.answers.pop_first().map(|(_, done)| ControlMail::Job(done)));
            progress = true;
        }
        progress
    }

    fn answer_at(&mut self, at: Instant, done: JobDone) {
        self.jobs += 1;
        self.answers.insert((at, self.jobs), done);
    }
}

impl World {
    pub(super) fn drive_control(&mut self) -> bool {
        let now = self.now();
        let control = self.workers.len();
        let mut progress = self.backstage.take_done(now.mono);
        if !self.threads.runs(control) {
            return progress;
        }
        progress |= self.perform_controls();
        if !self.threads.runs(control) {
            return true;
        }
        let mut batch = Vec::new();
        for _ in 0..self.threads.batch() {
            if self.backstage.inbox.is_empty() || self.threads.may_pause(now.mono, control) {
                break;
            }
            batch.extend(self.backstage.inbox.pop_front());
        }
        progress |= !batch.is_empty();
        // As in the thread of control, API requests are handled after all other mail of the batch.
        let is_rest = |mail: &ControlMail| {
            matches!(mail, ControlMail::Worker(ToControl::Rest { .. } | ToControl::Feed { .. }))
        };
        let (requests, rest): (Vec<_>, Vec<_>) = batch.into_iter().partition(is_rest);
        for mail in rest.into_iter().chain(requests) {
            match mail {
                ControlMail::Worker(mail) => self.backstage.control.handle_mail(now, mail),
                ControlMail::Store(reply) => self.backstage.control.handle_store(now, reply),
                ControlMail::Job(done) => self.backstage.control.handle_job(now, done),
            }
        }
        if self.backstage.control.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.backstage.control.handle_timeout(now);
            progress = true;
        }
        progress | self.perform_controls()
    }

    fn perform_controls(&mut self) -> bool {
        let now = self.clock.now();
        let mut progress = false;
        while let Some(output) = self.backstage.control.poll_output() {
            progress = true;
            match output {
                control::Output::Worker(to, mail) => {
                    if let ToWorker::StreamUp { stream, key, .. } = &mail {
                        self.streams.insert((key.app.to_string(), key.id.to_string()), *stream);
                    }
                    self.inboxes[usize::from(to.0)].push_back(WorkerMail::Control(mail));
                }
                control::Output::Store(request) => {
                    let at = now + self.threads.up_to(self.threads.chaos.disk_max);
                    let at = self.backstage.commits.back().map_or(at, |(before, _)| at.max(*before));
                    self.backstage.commits.push_back((at, request));
                }
                control::Output::Job(job) => self.begin_job(now, job),
                control::Output::Directory(_) => panic!("a server alone asks no directory"),
                control::Output::Outbound(_) => {}
                control::Output::Leave => panic!("nobody has asked for a drain that waits"),
                control::Output::Exit => self.backstage.exited = true,
            }
            if self.threads.may_pause(now, self.workers.len()) {
                break;
            }
        }
        progress
    }

    fn begin_job(&mut self, now: Instant, job: Job) {
        let Job { id, work, .. } = job;
        let chaos = self.threads.chaos;
        let mut chance = |of: f64| of > 0.0 && self.threads.random.chance(of);
        let (after, outcome) = match work {
            Work::Resolve { port, .. } => {
                let found = vec![SocketAddr::from(([127, 0, 0, 1], port))];
                if chance(chaos.names_silent) {
                    (secs(15), Outcome::Resolved(Ok(found)))
                } else if chance(chaos.names_fail) {
                    (ms(5), Outcome::Resolved(Err("no such name".to_owned())))
                } else {
                    (Duration::ZERO, Outcome::Resolved(Ok(found)))
                }
            }
            Work::Post(_) => match (chance(chaos.posts_fail), chance(0.5)) {
                (true, true) => (ms(50), Outcome::Posted(Ok(500))),
                (true, false) => (secs(3), Outcome::Posted(Err("silent".to_owned()))),
                (false, _) => (Duration::ZERO, Outcome::Posted(Ok(200))),
            },
            Work::Admin(AdminWork::Reload) => {
                let config = Box::new(self.backstage.settings());
                (Duration::ZERO, Outcome::Admin(AdminOutcome::Config(config)))
            }
            Work::Recording(work) if self.records => {
                let outcome = match work {
                    RecordingWork::Finish { .. } | RecordingWork::Adopt { .. } => {
                        RecordingOutcome::Finished(Finished { bytes: 1000, duration_ms: Some(1000) })
                    }
                    RecordingWork::Find { .. } => RecordingOutcome::Found(Vec::new()),
                    RecordingWork::Remove { .. } => RecordingOutcome::Removed,
                };
                (Duration::ZERO, Outcome::Recording(outcome))
            }
            // No user logs in here, so other jobs fail.
            _ => (Duration::ZERO, Outcome::Failed),
        };
        self.backstage.answer_at(now + after, JobDone { id, outcome });
    }
}
