//! The thread that runs [`Control`]. It handles mail, sends mail, and waits for one deadline at a
//! time. Blocking work is done by the store's thread and by the job service.
//!
//! If the process was held up (stopped, or suspended together with its machine), deadlines are delayed for a moment.
//! Input that arrived in the meantime is still in the sockets of workers and jobs. The workers and jobs read this
//! input first and then report to control.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use super::clock;
use super::directory::StoreSender;
use super::free_memory::FreeMemory;
use super::jobs::{Asker, Jobs};
use super::mailbox::{Mail, MailSender};
use super::notify::Answer;
use super::server::Notice;
use crate::control::{Control, Order, Output};
use crate::directory::News;
use crate::jobs::JobDone;
use crate::mail::{ToControl, ToWorker};
use crate::stats::HostFigures;
use crate::store;
use crate::types::{ConnId, SessionRef, WorkerId};

/// Maximum number of messages handled in one turn. Within a turn, admission is handled before API requests.
const TURN_MESSAGES_MAX: usize = 256;
/// Maximum time to wait for mail. If a wait takes much longer, the process was held up.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// If a wait or a turn takes this much longer than expected, the process counts as held up, as in `driver::poller`.
const HELD_UP: Duration = Duration::from_secs(1);
/// Time for which deadlines are delayed after the process was held up.
const CATCH_UP: Duration = Duration::from_secs(1);

/// Mail of the control thread.
#[derive(Debug)]
pub(super) enum ControlMail {
    /// A message of a worker.
    Worker(ToControl),
    /// A reply of the store.
    Store(store::Reply),
    /// News of the cluster's directory.
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
        /// Receiver of the answer.
        reply: Sender<String>,
    },
    /// An order from the command line or from a signal.
    Order {
        /// The order.
        order: Order,
        /// Receiver of the answer.
        reply: Sender<String>,
    },
    /// Figures of this machine.
    Host(Box<HostFigures>),
    /// A check of the watchdog whether control still handles its mail.
    Pulse(Answer),
    /// Drain the server (SIGTERM).
    Drain,
}

/// Sends mail to the control thread; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct ControlSender(Sender<ControlMail>);

impl ControlSender {
    /// Sends mail. The mail is lost only if the control thread has ended, at the end of the server.
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
    /// Id that no real worker has, because there are at most 1024 workers.
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

/// Detects that the process was held up, and delays deadlines for [`CATCH_UP`].
///
/// Each time the process is held up, deadlines are delayed. A deadline that was already delayed once is handled before
/// it can be delayed again, so all deadlines are handled in the end, however slow the machine is.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldUp {
    /// Time at which the last wait ended.
    woke: Instant,
    /// Time until which deadlines are delayed; `None` if they are not.
    until: Option<Instant>,
    /// True if a deadline has become due while deadlines were delayed, and was not handled since.
    is_owed: bool,
}

impl HeldUp {
    pub(super) const fn new(now: Instant) -> Self {
        Self { woke: now, until: None, is_owed: false }
    }

    /// Processes a wait from `began` to `ended` that should have taken at most `patience`.
    fn waited(&mut self, began: Instant, ended: Instant, patience: Duration) {
        let turn = began.saturating_duration_since(self.woke);
        let waited = ended.saturating_duration_since(began);
        if !self.is_owed && (turn >= HELD_UP || waited >= patience.saturating_add(HELD_UP)) {
            self.until = ended.checked_add(CATCH_UP);
        }
        self.woke = ended;
    }

    /// Returns the time at which a deadline is handled.
    fn judged(&self, due: Instant) -> Instant {
        self.until.map_or(due, |until| due.max(until))
    }

    /// True if the deadline `due` must be handled now.
    fn is_due(&mut self, now: Instant, due: Option<Instant>) -> bool {
        self.until = self.until.filter(|until| *until > now);
        let is_past = due.is_some_and(|due| due <= now);
        self.is_owed = is_past && self.until.is_some();
        is_past && !self.is_owed
    }
}

/// The state machine of control, and the receivers of its outputs.
pub(super) struct ControlThread {
    pub(super) control: Control,
    pub(super) mail: Receiver<ControlMail>,
    pub(super) workers: Vec<MailSender>,
    pub(super) store: StoreSender,
    pub(super) jobs: Jobs,
    pub(super) notices: Sender<Notice>,
    pub(super) local: Local,
    pub(super) held_up: HeldUp,
    pub(super) free_memory: FreeMemory,
}

impl ControlThread {
    /// Runs until control reports that the server is drained.
    pub(super) fn run(mut self) {
        if self.deliver() {
            return;
        }
        loop {
            let (began, patience) = self.patience();
            let mut batch = match self.mail.recv_timeout(patience) {
                Ok(first) => vec![first],
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            self.held_up.waited(began, clock::now().mono, patience);
            while batch.len() < TURN_MESSAGES_MAX {
                match self.mail.try_recv() {
                    Ok(mail) => batch.push(mail),
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
            self.turn(batch);
            self.free_memory.handle_turn(clock::now().mono);
            if self.deliver() {
                return;
            }
        }
    }

    /// Returns the current time, and the time to wait for mail.
    fn patience(&self) -> (Instant, Duration) {
        let now = clock::now().mono;
        let due = self.control.poll_timeout().map(|due| self.held_up.judged(due));
        (now, due.map_or(WAIT_MAX, |due| due.saturating_duration_since(now).min(WAIT_MAX)))
    }

    fn turn(&mut self, batch: Vec<ControlMail>) {
        let now = clock::now();
        let is_rest = |mail: &ControlMail| {
            matches!(
                mail,
                ControlMail::Worker(
                    ToControl::Rest { .. }
                        | ToControl::Feed { .. }
                        | ToControl::NodeCall { .. }
                        | ToControl::Ask { .. }
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
                ControlMail::Order { order, reply } => {
                    let session = self.local.begin(reply);
                    self.control.handle_order(now, session, order);
                }
                ControlMail::Host(figures) => self.control.handle_host(now, *figures, self.jobs.counts()),
                ControlMail::Pulse(answer) => {
                    let _ = answer.send(None);
                }
                ControlMail::Drain => self.control.drain(now),
            }
        }
        if self.held_up.is_due(now.mono, self.control.poll_timeout()) {
            self.control.handle_timeout(now);
        }
    }

    /// Carries out the outputs of control. Returns true when the server is drained.
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
                Output::Leave => drop(self.notices.send(Notice::Left)),
                Output::Outbound(policy) => self.jobs.set_policy(policy),
                Output::Exit => return true,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A simulated thread that alternates between work and waiting.
    struct Turns {
        held_up: HeldUp,
        now: Instant,
    }

    impl Turns {
        fn new() -> Self {
            let now = Instant::now();
            Self { held_up: HeldUp::new(now), now }
        }

        /// Simulates a turn and the wait after it. `is_due` says whether a deadline is due at the end of the wait.
        /// Returns true if the deadline is handled then.
        fn turn(&mut self, worked: u64, waited: u64, patience: Duration, is_due: bool) -> bool {
            let began = self.now + ms(worked);
            self.now = began + ms(waited);
            self.held_up.waited(began, self.now, patience);
            let now = self.now;
            self.held_up.is_due(now, is_due.then_some(now))
        }

        /// Simulates a turn after which a deadline is due. Returns how long the deadline is delayed, or `None` if it is
        /// handled immediately.
        fn due(&mut self, worked: u64, waited: u64) -> Option<Duration> {
            let is_judged = self.turn(worked, waited, ms(5), true);
            (!is_judged).then(|| self.held_up.judged(self.now) - self.now)
        }
    }

    #[test]
    fn q_12_deadlines_of_control_wait_a_moment_after_the_process_was_stopped() {
        let mut turns = Turns::new();
        assert_eq!(turns.due(1, 5), None);
        assert_eq!(turns.due(900, 900), None, "a busy moment");
        assert_eq!(turns.due(1, 20_000), Some(CATCH_UP), "stopped in a wait");
        assert_eq!(turns.due(1, 399), Some(ms(600)));
        assert_eq!(turns.due(1, 599), None, "and not for longer");
        assert_eq!(turns.due(20_000, 5), Some(CATCH_UP), "stopped in a turn");
        // Even on a machine that is always slow, deadlines are handled.
        assert_eq!(turns.due(5000, 5), None);
        assert_eq!(turns.due(5000, 5), Some(CATCH_UP));
    }

    #[test]
    fn q_12_an_idle_control_notices_each_time_that_the_process_was_stopped() {
        let mut turns = Turns::new();
        for stopped in [20_000, 90_000, 20_000] {
            assert!(!turns.turn(1, stopped, ms(5), false), "nothing is due");
            assert!(!turns.turn(1, 80_000, WAIT_MAX, true), "due after a second stop");
            assert_eq!(turns.due(1, 998), Some(ms(1)));
            assert_eq!(turns.due(1, 5), None);
        }
        // A deadline that was cancelled while deadlines were delayed no longer counts.
        assert_eq!(turns.due(1, 20_000), Some(CATCH_UP));
        assert!(!turns.turn(1, 5, ms(5), false));
        assert_eq!(turns.due(1, 20_000), Some(CATCH_UP));
    }
}
