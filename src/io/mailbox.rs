//! A worker's mailbox, to which other threads send: one queue for both lanes, and a waker that is used only while
//! the worker sleeps.
//!
//! The lanes differ in what may enter: control mail always may, whereas mirrored units need the credit of their
//! [`MirroredUnit`]. Both share one order, so that a unit never overtakes the news of its stream.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::Bytes;
use mio::Waker;
use mio::net::TcpStream;

use super::budget::{GiveWay, Permit};
use super::notify::Answer;
use super::shell::Passed;
use super::tls::Configs;
use crate::hub::MirroredUnit;
use crate::mail::ToWorker;
use crate::protocol::{Listener, PathNews};

/// A message for a worker's shell.
#[derive(Debug)]
pub(super) enum Mail {
    /// Mail of the control lane.
    Control(ToWorker),
    /// A unit of the media lane, whose fill is bounded by the units' credits.
    Mirrored(MirroredUnit),
    /// A connection that another worker accepted.
    Socket(Handover),
    /// Datagrams that another worker received.
    Datagrams(Passed),
    /// News from another worker about a path whose datagrams this worker receives.
    Path(PathNews),
    /// New TLS configurations for new connections.
    Tls(Configs),
    /// Make room for a newcomer at another worker.
    GiveWay(GiveWay),
    /// The watchdog checks that mail is handled.
    Pulse(Answer),
}

/// An accepted connection on its way to another worker.
#[derive(Debug)]
pub(super) struct Handover {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) listener: &'static Listener,
    pub(super) permit: Permit,
    /// Bytes that were received already.
    pub(super) received: Bytes,
}

/// Sleep state of the worker. Waking a sleeping thread costs some microseconds on both sides; sending to an awake
/// one needs no signal.
#[derive(Debug)]
struct Wakeup {
    asleep: AtomicBool,
    /// Number of messages sent but not yet taken out.
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
    /// Sends mail, which is never refused. It is lost only if the worker has ended.
    pub(super) fn post(&self, mail: Mail) {
        self.wakeup.waiting.fetch_add(1, Ordering::Relaxed);
        let _ = self.queue.send(mail);
        // SeqCst pairs with `Mailbox::may_sleep`: either the sleeper sees the mail, or this thread sees that the
        // worker sleeps.
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
    /// Mail that arrived while the worker was falling asleep.
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

    /// Announces sleep. Returns false if there is mail, so that the worker must not wait.
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
                // Wait without a deadline, so that a lost wake-up makes the test hang.
                poll.poll(&mut events, None).unwrap();
                mailbox.awake();
            }
        }
        sender.join().unwrap();
    }
}
