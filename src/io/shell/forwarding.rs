//! Datagrams that the kernel has delivered to a worker other than the one that has their session. They are
//! collected while the ports are read, and are posted in batches to the mailbox of that worker.
//!
//! The bytes that wait for a worker are limited, for all senders together. There are separate limits for datagrams
//! of validated paths and for those that anybody can send, so that a flood of the latter does not displace the
//! former. Datagrams beyond the limit are lost, as they are when a socket's buffer is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::io::mailbox::{Mail, MailSender};
use crate::protocol::{Elsewhere, Port, Remote};
use crate::types::WorkerId;

/// Maximum bytes of datagrams of validated paths that wait for one worker. A socket's buffer has a similar size.
const PATHS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum bytes of datagrams that wait for one worker and do not come from a validated path:
/// anybody can send them.
const NAMES_BYTES_MAX: usize = 256 * 1024;
/// Number of bytes that a datagram counts in addition to its content.
const ENTRY_BYTES: usize = size_of::<Entry>();
/// If at least this many bytes are gathered, they are posted before the ports are read further.
const MAIL_BYTES: usize = 64 * 1024;

/// The number of bytes that wait for a worker.
#[derive(Debug, Default)]
pub(in crate::io) struct Inbox {
    paths: AtomicUsize,
    names: AtomicUsize,
}

/// The inboxes of all workers.
pub(in crate::io) type Inboxes = Arc<[Inbox]>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Paths,
    Names,
}

impl Lane {
    const fn of(self, inbox: &Inbox) -> (&AtomicUsize, usize) {
        match self {
            Self::Paths => (&inbox.paths, PATHS_BYTES_MAX),
            Self::Names => (&inbox.names, NAMES_BYTES_MAX),
        }
    }
}

/// A datagram in a message to another worker.
#[derive(Debug, Clone, Copy)]
struct Entry {
    port: &'static Port,
    from: Remote,
    bytes: usize,
}

/// Datagrams that were passed on to a worker. Their bytes count as waiting until this value is dropped.
#[derive(Debug)]
pub(in crate::io) struct Passed {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    inboxes: Inboxes,
    to: usize,
    lane: Lane,
}

impl Passed {
    /// Iterates over the datagrams.
    pub(in crate::io) fn datagrams(&mut self) -> impl Iterator<Item = (&'static Port, Remote, &mut [u8])> {
        let mut rest = &mut *self.bytes;
        self.entries.iter().map(move |entry| {
            let (datagram, behind) =
                std::mem::take(&mut rest).split_at_mut_checked(entry.bytes).unwrap_or_default();
            rest = behind;
            (entry.port, entry.from, datagram)
        })
    }

    /// Returns the number of bytes by which these datagrams count toward the limits.
    pub(super) fn counted(&self) -> usize {
        counted(&self.entries, &self.bytes)
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        if let Some(inbox) = self.inboxes.get(self.to) {
            self.lane.of(inbox).0.fetch_sub(self.counted(), Ordering::Relaxed);
        }
    }
}

fn counted(entries: &[Entry], bytes: &[u8]) -> usize {
    bytes.len().saturating_add(entries.len().saturating_mul(ENTRY_BYTES))
}

/// The datagrams that are gathered for one lane of a worker.
#[derive(Debug, Default)]
struct Outbox {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

/// The datagrams that are gathered for one worker.
#[derive(Debug, Default)]
struct Outboxes {
    paths: Outbox,
    names: Outbox,
}

impl Outboxes {
    const fn lane(&mut self, lane: Lane) -> &mut Outbox {
        match lane {
            Lane::Paths => &mut self.paths,
            Lane::Names => &mut self.names,
        }
    }
}

/// The datagrams that a worker passes on.
#[derive(Debug)]
pub(super) struct Forwarding {
    own: WorkerId,
    inboxes: Inboxes,
    /// Gathered datagrams, by worker.
    outboxes: Vec<Outboxes>,
    /// Number of datagrams passed on since the last [`Forwarding::take_counts`].
    passed: u64,
    /// Number of datagrams lost since the last [`Forwarding::take_counts`].
    lost: u64,
}

impl Forwarding {
    pub(super) fn new(own: WorkerId, inboxes: Inboxes) -> Self {
        let outboxes = inboxes.iter().map(|_| Outboxes::default()).collect();
        Self { own, inboxes, outboxes, passed: 0, lost: 0 }
    }

    /// Adds a datagram for another worker.
    pub(super) fn push(
        &mut self,
        workers: &[MailSender],
        (to, port, from): (Elsewhere, &'static Port, Remote),
        datagram: &[u8],
    ) {
        let from = Remote { via: Some(self.own), ..from };
        let entry = Entry { port, from, bytes: datagram.len() };
        match to {
            Elsewhere::Path(to) => self.put(workers, usize::from(to.0), Lane::Paths, entry, datagram),
            Elsewhere::Name(to) => self.put(workers, usize::from(to.0), Lane::Names, entry, datagram),
            Elsewhere::Others => {
                let own = usize::from(self.own.0);
                let others = (0..workers.len()).filter(|to| *to != own);
                others.for_each(|to| self.put(workers, to, Lane::Names, entry, datagram));
            }
        }
    }

    fn put(&mut self, workers: &[MailSender], to: usize, lane: Lane, entry: Entry, datagram: &[u8]) {
        let Some(outbox) = self.outboxes.get_mut(to).map(|of| of.lane(lane)) else { return };
        outbox.entries.push(entry);
        outbox.bytes.extend_from_slice(datagram);
        if counted(&outbox.entries, &outbox.bytes) >= MAIL_BYTES {
            self.post(workers, to, lane);
        }
    }

    /// Posts the datagrams gathered in this turn.
    pub(super) fn flush(&mut self, workers: &[MailSender]) {
        for to in 0..self.outboxes.len() {
            self.post(workers, to, Lane::Paths);
            self.post(workers, to, Lane::Names);
        }
    }

    fn post(&mut self, workers: &[MailSender], to: usize, lane: Lane) {
        let outbox = self.outboxes.get_mut(to).map(|of| of.lane(lane)).filter(|of| !of.entries.is_empty());
        let (Some(outbox), Some(inbox), Some(worker)) = (outbox, self.inboxes.get(to), workers.get(to))
        else {
            return;
        };
        let Outbox { entries, bytes } = std::mem::take(outbox);
        let (waiting, max) = lane.of(inbox);
        let (counted, count) = (counted(&entries, &bytes), entries.len() as u64);
        if waiting.fetch_add(counted, Ordering::Relaxed).saturating_add(counted) > max {
            waiting.fetch_sub(counted, Ordering::Relaxed);
            self.lost = self.lost.saturating_add(count);
            return;
        }
        self.passed = self.passed.saturating_add(count);
        let inboxes = Arc::clone(&self.inboxes);
        worker.post(Mail::Datagrams(Passed { entries, bytes, inboxes, to, lane }));
    }

    /// Returns the numbers of datagrams that were passed on and that were lost since the last call.
    pub(super) const fn take_counts(&mut self) -> (u64, u64) {
        (std::mem::replace(&mut self.passed, 0), std::mem::replace(&mut self.lost, 0))
    }
}

#[cfg(test)]
mod tests {
    use mio::{Poll, Token, Waker};

    use super::*;
    use crate::io::mailbox::{Mailbox, mailbox};

    const OWN: WorkerId = WorkerId(1);

    struct Rig {
        forwarding: Forwarding,
        senders: Vec<MailSender>,
        mailboxes: Vec<Mailbox>,
        _polls: Vec<Poll>,
    }

    impl Rig {
        fn new() -> Self {
            let polls: Vec<Poll> = (0..3).map(|_| Poll::new().unwrap()).collect();
            let wakers = polls.iter().map(|poll| Waker::new(poll.registry(), Token(0)).unwrap());
            let (senders, mailboxes) = wakers.map(mailbox).unzip();
            let inboxes: Inboxes = (0..3).map(|_| Inbox::default()).collect();
            Self { forwarding: Forwarding::new(OWN, inboxes), senders, mailboxes, _polls: polls }
        }

        fn push(&mut self, to: Elsewhere, datagram: &[u8]) {
            let port = Port::all().next().unwrap();
            let from = Remote::of(([192, 0, 2, 1], 7).into());
            self.forwarding.push(&self.senders, (to, port, from), datagram);
        }

        fn flush(&mut self) -> (u64, u64) {
            self.forwarding.flush(&self.senders);
            self.forwarding.take_counts()
        }

        /// Returns the mails that wait for a worker.
        fn mails(&mut self, of: usize) -> Vec<Passed> {
            let next = || self.mailboxes[of].next();
            let mails = std::iter::from_fn(next).map(|mail| {
                let Mail::Datagrams(passed) = mail else { panic!("{mail:?}") };
                passed
            });
            mails.collect()
        }
    }

    #[test]
    fn datagrams_come_in_order_in_one_mail_of_a_turn() {
        let mut rig = Rig::new();
        let datagrams = [&b"first"[..], b"", b"the third"];
        datagrams.iter().for_each(|datagram| rig.push(Elsewhere::Path(WorkerId(2)), datagram));
        rig.push(Elsewhere::Name(WorkerId(0)), b"a check");
        assert_eq!(rig.flush(), (4, 0));
        let mut mails = rig.mails(2);
        let told: Vec<_> =
            mails[0].datagrams().map(|(_, from, datagram)| (from.via, datagram.to_vec())).collect();
        assert_eq!(told, datagrams.map(|datagram| (Some(OWN), datagram.to_vec())));
        assert_eq!((mails.len(), rig.mails(0).len(), rig.mails(1).len()), (1, 1, 0));
        assert_eq!(rig.flush(), (0, 0));
    }

    #[test]
    fn what_anybody_can_send_takes_no_room_of_validated_paths() {
        let mut rig = Rig::new();
        let flood = |rig: &mut Rig, to: Elsewhere| {
            (0..20_000).for_each(|_| rig.push(to, &[0; 1000]));
            rig.flush()
        };
        let entry = 1000 + ENTRY_BYTES as u64;
        let (passed, lost) = flood(&mut rig, Elsewhere::Name(WorkerId(2)));
        assert!(passed * entry <= NAMES_BYTES_MAX as u64 && passed * entry > NAMES_BYTES_MAX as u64 / 2);
        assert_eq!(passed + lost, 20_000);
        let (passed, lost) = flood(&mut rig, Elsewhere::Path(WorkerId(2)));
        assert!(passed * entry <= PATHS_BYTES_MAX as u64 && passed * entry > PATHS_BYTES_MAX as u64 / 2);
        assert!(lost > 0);
        // The inbox of another worker has a limit of its own.
        rig.push(Elsewhere::Path(WorkerId(0)), b"media");
        assert_eq!(rig.flush(), (1, 0));
        // After mail was taken out, there is room again.
        drop(rig.mails(2));
        rig.push(Elsewhere::Path(WorkerId(2)), b"media");
        rig.push(Elsewhere::Name(WorkerId(2)), b"a check");
        assert_eq!(rig.flush(), (2, 0));
    }

    #[test]
    fn what_may_be_for_any_worker_goes_to_all_others() {
        let mut rig = Rig::new();
        rig.push(Elsewhere::Others, b"media");
        assert_eq!(rig.flush(), (2, 0));
        assert_eq!((rig.mails(0).len(), rig.mails(1).len(), rig.mails(2).len()), (1, 0, 1));
    }

    #[test]
    fn small_datagrams_make_no_mail_that_is_most_of_the_lane() {
        let mut rig = Rig::new();
        (0..10_000).for_each(|_| rig.push(Elsewhere::Path(WorkerId(2)), &[0x80]));
        assert_eq!(rig.flush(), (10_000, 0));
        let largest = rig.mails(2).iter().map(Passed::counted).max().unwrap();
        assert!(largest <= MAIL_BYTES + ENTRY_BYTES, "{largest}");
    }
}
