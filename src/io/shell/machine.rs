//! The worker as a [`Machine`] for the driver, and the receivers of the worker's outputs.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use wire::{Datagrams, Gather};

use crate::io::control_thread::{ControlMail, ControlSender};
use crate::io::driver::{Machine, Output, TlsClient};
use crate::io::jobs::{Asker, Jobs};
use crate::io::mailbox::{Mail, MailSender};
use crate::io::tls::{Configs, NodeConfigs};
use crate::mail::{Proof, ToControl, ToWorker};
use crate::protocol::{PathEvent, PathId, Remote};
use crate::stats::Refused;
use crate::types::{ConnId, Now, SessionRef, WorkerId};
use crate::worker::{self, Destination, Way, Worker, Writers};

/// The threads to which a worker sends messages.
pub(super) struct Colleagues {
    /// Id of the worker that sends.
    pub(super) id: WorkerId,
    /// Mailboxes of all workers, including this one.
    pub(super) workers: Vec<MailSender>,
    pub(super) control_sender: ControlSender,
    pub(super) jobs: Jobs,
}

impl Colleagues {
    fn post(&self, to: WorkerId, mail: Mail) {
        if let Some(sender) = self.workers.get(usize::from(to.0)) {
            sender.post(mail);
        }
    }

    fn post_to_others(&self, mail: &ToWorker) {
        self.post_to_other_shells(|| Mail::Control(mail.clone()));
    }

    /// Posts a mail to the shells of all other workers.
    pub(super) fn post_to_other_shells(&self, mail: impl Fn() -> Mail) {
        let others = (0u16..).zip(&self.workers).filter(|(index, _)| *index != self.id.0);
        others.for_each(|(_, sender)| sender.post(mail()));
    }
}

/// The worker.
pub(super) struct WorkerMachine {
    pub(super) worker: Worker,
    pub(super) colleagues: Colleagues,
    /// TLS settings of connections.
    pub(super) tls: Configs,
    /// TLS settings of connections between nodes.
    pub(super) nodes: NodeConfigs,
    /// True if the worker has no sessions left and gets no new ones.
    pub(super) drained: bool,
}

impl Machine for WorkerMachine {
    fn handle_path(&mut self, now: Now, id: ConnId, path: PathId, event: PathEvent<'_>) {
        self.worker.handle_path(now, id, path, event);
    }

    fn handle_bytes(&mut self, now: Now, id: ConnId, bytes: &[u8]) {
        self.worker.handle_bytes(now, id, bytes);
    }

    fn handle_datagram(&mut self, now: Now, id: ConnId, path: PathId, from: Remote, datagram: &mut [u8]) {
        self.worker.handle_own_datagram(now, id, path, from, datagram);
    }

    fn handle_writable(&mut self, now: Now, id: ConnId) {
        self.worker.handle_writable(now, id);
    }

    fn handle_write_error(&mut self, now: Now, id: ConnId, error: &io::Error) {
        self.worker.handle_path(now, id, PathId::default(), PathEvent::Broken(&error.to_string()));
    }

    fn handle_timeout(&mut self, now: Now) -> bool {
        self.worker.handle_timeout(now);
        false
    }

    fn note_refused(&mut self, why: Refused) {
        self.worker.note_refused(why);
    }

    fn wants_bytes(&mut self, id: ConnId) -> bool {
        self.worker.wants_bytes(id)
    }

    fn waits_for_verdict(&self, id: ConnId) -> bool {
        self.worker.waits_for_verdict(id)
    }

    fn finish_turn(&mut self) {
        self.worker.finish_turn();
    }

    fn next_write(&mut self, who: Writers) -> Option<(ConnId, Way)> {
        self.worker.next_write(who)
    }

    fn has_writes(&self, who: Writers) -> bool {
        self.worker.has_writes(who)
    }

    fn retry_write(&mut self, id: ConnId) {
        self.worker.retry_write(id);
    }

    fn gather<'a>(&'a self, id: ConnId, gather: &mut Gather<'a>) {
        self.worker.gather(id, gather);
    }

    fn sent(&mut self, at: Instant, id: ConnId, taken: usize, offered: usize) {
        self.worker.sent(at, id, taken, offered);
    }

    fn gather_datagrams(&mut self, now: Now, id: ConnId, out: &mut Datagrams) -> Option<Destination> {
        self.worker.gather_datagrams(now, id, out)
    }

    fn datagrams_sent(&mut self, at: Instant, id: ConnId, taken: usize, lost: usize) {
        self.worker.datagrams_sent(at, id, taken, lost);
    }

    /// Delivers mail and jobs itself. Returns actions on connections to the driver.
    fn poll_output(&mut self, now: Now) -> Option<Output> {
        use worker::Output as Of;

        let colleagues = &self.colleagues;
        match self.worker.poll_output()? {
            Of::Control(mail) => {
                let drained = matches!(mail, ToControl::Drained(_));
                self.drained |= drained;
                colleagues.control_sender.send(ControlMail::Worker(mail));
                return Some(if drained { Output::Hurry } else { Output::Done });
            }
            Of::Worker(to, mail) => colleagues.post(to, Mail::Control(mail)),
            Of::Others(mail) => colleagues.post_to_others(&mail),
            Of::Path(to, news) => colleagues.post(to, Mail::Path(news)),
            Of::HandOver { conn, to, peer, received } => {
                return Some(Output::HandOver { conn, to, peer, received });
            }
            Of::Mirrored(to, unit) => colleagues.post(to, Mail::Mirrored(unit)),
            Of::Job { conn, job } => {
                let asker = Asker::Session(SessionRef::new(colleagues.id, conn));
                if let Some(done) = colleagues.jobs.submit(asker, job) {
                    self.worker.handle_mail(now, ToWorker::Job { conn, done });
                }
            }
            Of::Connect { conn, address, tls } => {
                let tls = tls.map(|proof| client_of(&self.tls, &self.nodes, address, proof));
                return Some(Output::Connect { conn, address, tls });
            }
            Of::OpenUdp { conn, path, bind, to } => return Some(Output::OpenUdp { conn, path, bind, to }),
            Of::CloseUdp { conn, path } => return Some(Output::CloseUdp { conn, path }),
            Of::Resume(conn) => return Some(Output::Resume(conn)),
            Of::UnsentLimit { conn, bytes } => return Some(Output::UnsentLimit { conn, bytes }),
            Of::Authenticated { conn, publishes } => return Some(Output::Authenticated { conn, publishes }),
            Of::Close { conn, abort } => return Some(Output::Close { conn, abort }),
        }
        Some(Output::Done)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.worker.poll_timeout()
    }
}

/// Returns the TLS settings for connecting to a server that must prove its identity. A node proves that it knows the
/// secret, and needs no name.
fn client_of(tls: &Configs, nodes: &NodeConfigs, address: SocketAddr, proof: Proof) -> TlsClient {
    match proof {
        Proof::Name(name) => TlsClient { name, config: Arc::clone(&tls.client) },
        Proof::Node => TlsClient { name: address.ip().to_string().into(), config: Arc::clone(&nodes.client) },
    }
}
