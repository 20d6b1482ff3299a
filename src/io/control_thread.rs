//! The thread of control: mail in, mail out, and a deadline. Blocking work is done by the store's thread and by the job service.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use super::clock;
use super::directory::StoreSender;
use super::jobs::{Asker, Jobs};
use super::mailbox::{Mail, MailSender};
use super::notify::Answer;
use crate::control::{Control, Output};
use crate::directory::News;
use crate::jobs::JobDone;
use crate::mail::{ToControl, ToWorker};
use crate::stats::HostFigures;
use crate::store;
use crate::types::{ConnId, SessionRef, WorkerId};

/// Maximum number of messages handled in one turn, in which admission precedes API requests.
const TURN_MESSAGES_MAX: usize = 256;
/// Longest sleep without a deadline.
const IDLE: Duration = Duration::from_secs(60);

/// Mail of the control thread.
#[derive(Debug)]
pub(super) enum ControlMail {
    /// A message of a worker.
    Worker(ToControl),
    /// A reply of the store.
    Store(store::Reply),
    /// News of the directory.
    Directory(News),
    /// A finished job.
    Job(JobDone),
    /// Reload the settings (SIGHUP).
    Reload,
    /// A new user from the command line.
    AddUser {
        /// The user's e-mail.
        email: String,
        /// The hash of the password.
        hash: String,
        /// Receives the answer.
        reply: Sender<String>,
    },
    /// A backup from the command line.
    BackUp {
        /// Receives the answer.
        reply: Sender<String>,
    },
    /// Figures of the machine.
    Host(Box<HostFigures>),
    /// The watchdog checks that mail is handled.
    Pulse(Answer),
    /// Drain the server (SIGTERM).
    Drain,
}

/// Sends mail to the control thread; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct ControlSender(Sender<ControlMail>);

impl ControlSender {
    /// Sends mail. It is lost only if the control thread has ended with the server.
    pub(super) fn send(&self, mail: ControlMail) {
        let _ = self.0.send(mail);
    }
}

/// A sender and the receiver of the control thread's mail.
pub(super) fn control_channel() -> (ControlSender, Receiver<ControlMail>) {
    let (sender, receiver) = channel();
    (ControlSender(sender), receiver)
}

/// Pending requests of the command line, addressed as sessions of a worker that does not exist.
#[derive(Debug, Default)]
pub(super) struct Local {
    waiting: BTreeMap<u32, Sender<String>>,
    count: u32,
}

impl Local {
    /// Number of that worker; real workers are at most 1024.
    const WORKER: WorkerId = WorkerId(u16::MAX);

    fn begin(&mut self, reply: Sender<String>) -> SessionRef {
        self.count = self.count.wrapping_add(1);
        self.waiting.insert(self.count, reply);
        SessionRef::new(Self::WORKER, ConnId { slot: self.count, generation: 0 })
    }

    fn deliver(&mut self, mail: ToWorker) {
        if let ToWorker::RestReply { conn, response } = mail
            && let Some(reply) = self.waiting.remove(&conn.slot)
        {
            let _ = reply.send(String::from_utf8_lossy(&response.body).into_owned());
        }
    }
}

/// The control machine and the receivers of its outputs.
pub(super) struct ControlThread {
    pub(super) control: Control,
    pub(super) mail: Receiver<ControlMail>,
    pub(super) workers: Vec<MailSender>,
    pub(super) store: StoreSender,
    pub(super) jobs: Jobs,
    pub(super) local: Local,
}

impl ControlThread {
    /// Runs until control reports that all is drained.
    pub(super) fn run(mut self) {
        if self.deliver() {
            return;
        }
        loop {
            let mut batch = match self.mail.recv_timeout(self.patience()) {
                Ok(first) => vec![first],
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            while batch.len() < TURN_MESSAGES_MAX {
                match self.mail.try_recv() {
                    Ok(mail) => batch.push(mail),
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
            self.turn(batch);
            if self.deliver() {
                return;
            }
        }
    }

    fn patience(&self) -> Duration {
        let now = clock::now().mono;
        self.control.poll_timeout().map_or(IDLE, |due| due.saturating_duration_since(now))
    }

    fn turn(&mut self, batch: Vec<ControlMail>) {
        let now = clock::now();
        let is_rest = |mail: &ControlMail| {
            matches!(
                mail,
                ControlMail::Worker(
                    ToControl::Rest { .. } | ToControl::Feed { .. } | ToControl::NodeCall { .. }
                )
            )
        };
        let (requests, rest): (Vec<_>, Vec<_>) = batch.into_iter().partition(is_rest);
        for mail in rest.into_iter().chain(requests) {
            match mail {
                ControlMail::Worker(mail) => self.control.handle_mail(now, mail),
                ControlMail::Store(reply) => self.control.handle_store(now, reply),
                ControlMail::Directory(news) => self.control.handle_directory(now, news),
                ControlMail::Job(done) => self.control.handle_job(now, done),
                ControlMail::Reload => self.control.reload(),
                ControlMail::AddUser { email, hash, reply } => {
                    let session = self.local.begin(reply);
                    self.control.add_user(now, session, &email, hash);
                }
                ControlMail::BackUp { reply } => {
                    let session = self.local.begin(reply);
                    self.control.back_up_now(now, session);
                }
                ControlMail::Host(figures) => self.control.handle_host(now, *figures, self.jobs.counts()),
                ControlMail::Pulse(answer) => {
                    let _ = answer.send(None);
                }
                ControlMail::Drain => self.control.drain(now),
            }
        }
        if self.control.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.control.handle_timeout(now);
        }
    }

    /// Carries out the outputs of control. Returns true when all is drained.
    pub(super) fn deliver(&mut self) -> bool {
        while let Some(output) = self.control.poll_output() {
            match output {
                Output::Worker(worker, mail) => {
                    if let Some(sender) = self.workers.get(usize::from(worker.0)) {
                        sender.post(Mail::Control(mail));
                    } else {
                        self.local.deliver(mail);
                    }
                }
                Output::Store(request) => {
                    self.store.store(request);
                }
                Output::Directory(request) => self.store.directory(request),
                Output::Job(job) => {
                    if let Some(busy) = self.jobs.submit(Asker::Control, job) {
                        self.control.handle_job(clock::now(), busy);
                    }
                }
                Output::Outbound(policy) => self.jobs.set_policy(policy),
                Output::Exit => return true,
            }
        }
        false
    }
}
