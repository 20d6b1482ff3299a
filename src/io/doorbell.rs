//! The way to a worker from other threads: one queue for its two lanes, and a bell that is rung only when the
//! worker sleeps.
//!
//! The lanes differ in what may enter: control mail always does, mirrored units need a credit of their
//! [`crate::worker::mailbox::Lane`]. Inside they keep one order, so that a unit never overtakes the news of its
//! stream.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use mio::Waker;
use mio::net::TcpStream;

use super::budget::Place;
use super::tls::Configs;
use crate::hub::MirroredUnit;
use crate::mail::ToWorker;
use crate::protocol::Listener;

/// What a worker's shell receives.
#[derive(Debug)]
pub(super) enum Mail {
    /// The control lane.
    Control(ToWorker),
    /// The media lane; its fill is bounded by the credits in the units.
    Mirrored(MirroredUnit),
    /// A connection that another worker accepted.
    Socket(Handover),
    /// What new TLS connections are made from.
    Tls(Configs),
}

/// An accepted connection on its way to another worker.
#[derive(Debug)]
pub(super) struct Handover {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) listener: &'static Listener,
    pub(super) place: Place,
}

/// Waking a sleeping thread costs some microseconds on both sides, telling an awake one nothing.
#[derive(Debug)]
struct Bell {
    asleep: AtomicBool,
    /// Messages sent and not taken out yet.
    waiting: AtomicUsize,
    waker: Waker,
}

/// The sender's end; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Postbox {
    queue: Sender<Mail>,
    bell: Arc<Bell>,
}

impl Postbox {
    /// Never refused. Nobody is left to hear it only when the worker has ended.
    pub(super) fn post(&self, mail: Mail) {
        self.bell.waiting.fetch_add(1, Ordering::Relaxed);
        let _ = self.queue.send(mail);
        // SeqCst pairs with `Inbox::may_sleep`: either the sleeper sees the mail, or this sees it asleep.
        if self.bell.asleep.swap(false, Ordering::SeqCst)
            && let Err(error) = self.bell.waker.wake()
        {
            tracing::error!(%error, "cannot wake a worker");
        }
    }
}

/// The worker's end.
#[derive(Debug)]
pub(super) struct Inbox {
    queue: Receiver<Mail>,
    bell: Arc<Bell>,
    /// Mail that turned up while falling asleep.
    early: Option<Mail>,
}

/// Both ends of a worker's mail.
pub(super) fn mailbox(waker: Waker) -> (Postbox, Inbox) {
    let (queue, receiver) = channel();
    let bell = Arc::new(Bell { asleep: AtomicBool::new(false), waiting: AtomicUsize::new(0), waker });
    (Postbox { queue, bell: Arc::clone(&bell) }, Inbox { queue: receiver, bell, early: None })
}

impl Inbox {
    /// The next message.
    pub(super) fn next(&mut self) -> Option<Mail> {
        let mail = self.early.take().or_else(|| self.queue.try_recv().ok())?;
        self.bell.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(mail)
    }

    /// Messages that wait.
    pub(super) fn waiting(&self) -> usize {
        self.bell.waiting.load(Ordering::Relaxed)
    }

    /// Announces sleep. False when there is mail after all: do not wait.
    pub(super) fn may_sleep(&mut self) -> bool {
        self.bell.asleep.store(true, Ordering::SeqCst);
        self.early = self.queue.try_recv().ok();
        if self.early.is_some() {
            self.awake();
        }
        self.early.is_none()
    }

    /// Announces that mail needs no bell.
    pub(super) fn awake(&self) {
        self.bell.asleep.store(false, Ordering::SeqCst);
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
        let (postbox, mut inbox) = mailbox(Waker::new(poll.registry(), Token(0)).unwrap());
        let sender = std::thread::spawn(move || {
            for n in 0..20_000 {
                postbox.post(Mail::Control(ToWorker::StopPush(PushId(n))));
            }
        });
        let mut events = Events::with_capacity(4);
        let mut want = 0;
        while want < 20_000 {
            while let Some(mail) = inbox.next() {
                assert!(matches!(mail, Mail::Control(ToWorker::StopPush(PushId(n))) if n == want));
                want += 1;
            }
            if want < 20_000 && inbox.may_sleep() {
                // Without a deadline: a lost wake-up hangs the test.
                poll.poll(&mut events, None).unwrap();
                inbox.awake();
            }
        }
        sender.join().unwrap();
    }
}
