//! The mailbox of a worker, to which other threads send. It has one queue for two lanes, and a waker that is used
//! only while the worker sleeps.
//!
//! The lanes differ in what may be sent: mail of the control lane is always accepted, while a mirrored unit needs
//! credit, which its [`MirroredUnit`] contains. Both lanes share one order, so that a unit never arrives before
//! the news of its stream.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::Bytes;
use mio::Waker;
use mio::net::{TcpListener, TcpStream};

use super::budget::{GiveWay, Permit};
use super::notify::Answer;
use super::shell::{Passed, Received};
use super::tls::Configs;
use super::upgrade::Listed;
use crate::hub::MirroredUnit;
use crate::mail::ToWorker;
use crate::protocol::{Listener, PathNews};

/// A message for a worker's shell.
#[derive(Debug)]
pub(super) enum Mail {
    /// Mail of the control lane.
    Control(ToWorker),
    /// A unit of the media lane. The credits of the units limit the bytes in the lane.
    Mirrored(MirroredUnit),
    /// A connection that another worker accepted.
    Socket(Handover),
    /// Datagrams that another worker received.
    Datagrams(Passed),
    /// Datagrams that a newer process has received.
    Strays(Received),
    /// News from another worker about a path whose datagrams this worker receives.
    Path(PathNews),
    /// New TLS configurations, used for new connections.
    Tls(Configs),
    /// Close connections to make room for a new peer of another worker.
    GiveWay(GiveWay),
    /// List the sockets, for a process that takes over from this one.
    ListSockets(Sender<io::Result<Vec<Listed>>>),
    /// Open a listener of the relay through which another process of this server connects.
    OpenRelay(&'static Listener, TcpListener),
    /// Close that listener, at this address.
    CloseRelay(SocketAddr),
    /// Accept no more connections and datagrams: a newer process of this server accepts them now.
    Retire,
    /// A check of the watchdog whether the worker still handles its mail.
    Pulse(Answer),
}

/// An accepted connection on its way to another worker.
#[derive(Debug)]
pub(super) struct Handover {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) listener: &'static Listener,
    pub(super) permit: Permit,
    /// Bytes that were already received.
    pub(super) received: Bytes,
}

/// Records whether the worker sleeps. Waking a sleeping thread costs some microseconds on both sides; a thread
/// that is awake needs no signal.
#[derive(Debug)]
struct Wakeup {
    asleep: AtomicBool,
    /// Number of messages that were sent and not yet taken out.
    waiting: AtomicUsize,
    waker: Waker,
}

/// The sender of a mailbox; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct MailSender {
    queue: Sender<Mail>,
    wakeup: Arc<Wakeup>,
}

impl MailSender {
    /// Sends mail. Mail is never refused, and is lost only if the worker has ended.
    pub(super) fn post(&self, mail: Mail) {
        self.wakeup.waiting.fetch_add(1, Ordering::Relaxed);
        let _ = self.queue.send(mail);
        // SeqCst pairs with `Mailbox::may_sleep`: either the worker sees the mail before it sleeps, or this
        // thread sees that the worker sleeps.
        if self.wakeup.asleep.swap(false, Ordering::SeqCst)
            && let Err(error) = self.wakeup.waker.wake()
        {
            tracing::error!(%error, "worker not woken");
        }
    }
}

/// The worker's end of its mailbox.
#[derive(Debug)]
pub(super) struct Mailbox {
    queue: Receiver<Mail>,
    wakeup: Arc<Wakeup>,
    /// Mail that arrived while the worker was about to sleep.
    early: Option<Mail>,
}

/// Creates both ends of a worker's mailbox.
pub(super) fn mailbox(waker: Waker) -> (MailSender, Mailbox) {
    let (queue, receiver) = channel();
    let wakeup = Arc::new(Wakeup { asleep: AtomicBool::new(false), waiting: AtomicUsize::new(0), waker });
    (MailSender { queue, wakeup: Arc::clone(&wakeup) }, Mailbox { queue: receiver, wakeup, early: None })
}

impl Mailbox {
    /// Returns the next message.
    pub(super) fn next(&mut self) -> Option<Mail> {
        let mail = self.early.take().or_else(|| self.queue.try_recv().ok())?;
        self.wakeup.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(mail)
    }

    /// Number of waiting messages.
    pub(super) fn waiting(&self) -> usize {
        self.wakeup.waiting.load(Ordering::Relaxed)
    }

    /// Announces that the worker is about to sleep. Returns false if there is mail, in which case the worker must
    /// not sleep.
    pub(super) fn may_sleep(&mut self) -> bool {
        self.wakeup.asleep.store(true, Ordering::SeqCst);
        self.early = self.queue.try_recv().ok();
        if self.early.is_some() {
            self.awake();
        }
        self.early.is_none()
    }

    /// Announces that the worker is awake and need not be woken for mail.
    pub(super) fn awake(&self) {
        self.wakeup.asleep.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::PushId;
    use mio::{Events, Poll, Token};

    #[test]
    fn no_mail_is_slept_through() {
        let mut poll = Poll::new().unwrap();
        let (sender, mut mailbox) = mailbox(Waker::new(poll.registry(), Token(0)).unwrap());
        let sender = std::thread::spawn(move || {
            for n in 0..20_000 {
                sender.post(Mail::Control(ToWorker::StopPush(PushId(n))));
            }
        });
        let mut events = Events::with_capacity(4);
        let mut want = 0;
        while want < 20_000 {
            while let Some(mail) = mailbox.next() {
                assert!(matches!(mail, Mail::Control(ToWorker::StopPush(PushId(n))) if n == want));
                want += 1;
            }
            if want < 20_000 && mailbox.may_sleep() {
                // Wait without a deadline. If the wake-up is lost, the test hangs.
                poll.poll(&mut events, None).unwrap();
                mailbox.awake();
            }
        }
        sender.join().unwrap();
    }
}
