//! The thread of control: mail in, mail out, and a deadline. It does nothing that blocks; the store has its own
//! thread, and so have names.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use super::clock;
use super::doorbell::{Mail, Postbox};
use super::hooks::Receivers;
use crate::control::{Control, HookReply, Output, ResolveRequest, Resolved};
use crate::mail::ToControl;
use crate::store;

/// Messages of one turn; admission among them goes before requests of the API.
const TURN_MESSAGES_MAX: usize = 256;
/// Longest sleep without a deadline.
const IDLE: Duration = Duration::from_secs(60);

/// What control receives.
#[derive(Debug)]
pub(super) enum OfficeMail {
    /// From a worker.
    Worker(ToControl),
    /// From the store.
    Store(store::Reply),
    /// From the resolvers.
    Resolved(Resolved),
    /// From a thread that posts hooks.
    Hook(HookReply),
    /// The share of the machine's memory in use.
    Memory(u8),
    /// SIGTERM.
    Drain,
}

/// The sender's end; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Desk(Sender<OfficeMail>);

impl Desk {
    /// Nobody is left to hear it only when the server has ended.
    pub(super) fn send(&self, mail: OfficeMail) {
        let _ = self.0.send(mail);
    }
}

/// Both ends of control's mail.
pub(super) fn desk() -> (Desk, Receiver<OfficeMail>) {
    let (sender, receiver) = channel();
    (Desk(sender), receiver)
}

/// The thread's own state.
pub(super) struct Office {
    pub(super) control: Control,
    pub(super) mail: Receiver<OfficeMail>,
    pub(super) workers: Vec<Postbox>,
    pub(super) store: Sender<store::Request>,
    pub(super) resolvers: Sender<ResolveRequest>,
    pub(super) receivers: Receivers,
}

impl Office {
    /// Runs until control says that all is drained.
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

    fn turn(&mut self, batch: Vec<OfficeMail>) {
        let now = clock::now();
        let is_rest = |mail: &OfficeMail| matches!(mail, OfficeMail::Worker(ToControl::Rest { .. }));
        let (requests, rest): (Vec<_>, Vec<_>) = batch.into_iter().partition(is_rest);
        for mail in rest.into_iter().chain(requests) {
            match mail {
                OfficeMail::Worker(mail) => self.control.handle_mail(now, mail),
                OfficeMail::Store(reply) => self.control.handle_store(now, reply),
                OfficeMail::Resolved(answer) => self.control.handle_resolved(now, answer),
                OfficeMail::Hook(reply) => self.control.handle_hook(now, &reply),
                OfficeMail::Memory(percent) => self.control.handle_memory(percent),
                OfficeMail::Drain => self.control.drain(now),
            }
        }
        if self.control.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.control.handle_timeout(now);
        }
    }

    /// Does what control asks. True when all is drained.
    pub(super) fn deliver(&mut self) -> bool {
        while let Some(output) = self.control.poll_output() {
            match output {
                Output::Worker(worker, mail) => {
                    if let Some(postbox) = self.workers.get(usize::from(worker.0)) {
                        postbox.post(Mail::Control(mail));
                    }
                }
                Output::Store(request) => {
                    let _ = self.store.send(request);
                }
                Output::Resolve(request) => {
                    let _ = self.resolvers.send(request);
                }
                Output::Hook(request) => self.receivers.send(request),
                Output::Exit => return true,
            }
        }
        false
    }
}
