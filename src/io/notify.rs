//! Messages to the service manager (sd_notify(3)): the server is ready, is draining, or is alive.
//!
//! A service manager with a watchdog (`WatchdogSec=` of systemd) ends a server that is silent for too long. The server
//! signals that it is alive only if control and each worker have handled a message since the last signal.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use super::control_thread::{ControlMail, ControlSender};
use super::mailbox::{Mail, MailSender};
use crate::types::WorkerId;

/// The variable that names the manager's socket: a path, or `@` and an abstract name.
const SOCKET: &str = "NOTIFY_SOCKET";
/// The variables of the watchdog: its timeout in microseconds, and the process that it watches.
const WATCHDOG: &str = "WATCHDOG_USEC";
const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";
/// Number of signals sent within the watchdog's timeout.
const SIGNS: u32 = 2;

/// The service manager that started this process.
#[derive(Debug)]
pub struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl ServiceManager {
    /// Finds the manager named in the environment; `None` if there is none, or it cannot be reached.
    #[must_use]
    pub fn of_environment() -> Option<Arc<Self>> {
        let name = env::var_os(SOCKET).filter(|name| !name.is_empty())?;
        Self::at(&name)
            .map(Arc::new)
            .inspect_err(|error| tracing::warn!(%error, "service manager not reachable"))
            .ok()
    }

    fn at(name: &OsStr) -> io::Result<Self> {
        let address = match name.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        // The server must not block if the manager does not read.
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address })
    }

    /// Reports that all listeners are open.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={}", status.replace('\n', " ")));
    }

    /// Reports that another process has taken over, and is to be supervised.
    pub(super) fn main_process(&self, pid: u32) {
        self.tell(&format!("MAINPID={pid}"));
    }

    /// Reports that the drain has begun.
    pub fn draining(&self) {
        self.tell("STOPPING=1\nSTATUS=draining");
    }

    fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    fn tell(&self, state: &str) {
        if let Err(error) = self.socket.send_to_addr(state.as_bytes(), &self.address) {
            tracing::warn!(%error, state, "service manager not notified");
        }
    }
}

/// Returns the interval of signals that a watchdog of this process expects.
fn interval() -> Option<Duration> {
    let is_number = |name| env::var(name).ok()?.parse::<u64>().ok();
    let is_ours = env::var_os(WATCHDOG_PROCESS).is_none()
        || is_number(WATCHDOG_PROCESS) == Some(u64::from(std::process::id()));
    let time = is_number(WATCHDOG).filter(|time| *time > 0 && is_ours)?;
    Some(Duration::from_micros(time) / SIGNS)
}

/// Sender for the answers to a check of the watchdog: the worker that has handled the check, or
/// `None` for control.
pub(super) type Answer = Sender<Option<WorkerId>>;

/// Checks that the serving threads handle their mail.
#[derive(Debug, Clone)]
pub(super) struct Pulse {
    pub(super) workers: Vec<MailSender>,
    pub(super) control: ControlSender,
}

impl Pulse {
    /// Starts the thread that signals that the server is alive, if there is a watchdog. The thread ends with the
    /// server.
    pub(super) fn start(self, manager: Arc<ServiceManager>) -> io::Result<()> {
        let Some(interval) = interval() else { return Ok(()) };
        let watch = move || {
            while self.round(interval) {
                manager.alive();
                thread::sleep(interval);
            }
        };
        thread::Builder::new().name("watchdog".into()).spawn(watch).map(drop)
    }

    /// Sends a check to each thread and waits for all answers, however long that takes. Logs which threads have not
    /// answered within `patience`. Returns false if the server has ended.
    fn round(&self, patience: Duration) -> bool {
        let (answer, answers) = channel();
        for worker in &self.workers {
            worker.post(Mail::Pulse(answer.clone()));
        }
        self.control.send(ControlMail::Pulse(answer));
        let numbers = (0..).map(WorkerId).take(self.workers.len());
        let mut missing: BTreeSet<Option<WorkerId>> = numbers.map(Some).chain([None]).collect();
        wait(&answers, &mut missing, patience)
    }
}

fn wait(
    answers: &Receiver<Option<WorkerId>>,
    missing: &mut BTreeSet<Option<WorkerId>>,
    patience: Duration,
) -> bool {
    let mut told = false;
    while !missing.is_empty() {
        match answers.recv_timeout(patience) {
            Ok(who) => {
                missing.remove(&who);
            }
            Err(RecvTimeoutError::Timeout) if told => {}
            Err(RecvTimeoutError::Timeout) => {
                told = true;
                let name = |who: &Option<WorkerId>| {
                    who.map_or_else(|| "control".to_owned(), |worker| format!("worker-{}", worker.0))
                };
                let threads: Vec<String> = missing.iter().map(name).collect();
                tracing::error!(?threads, ?patience, "threads are stuck: they do not read their mailboxes");
            }
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use mio::{Poll, Token, Waker};

    use super::super::control_thread::control_channel;
    use super::super::mailbox::{Mailbox, mailbox};
    use super::*;

    fn worker(poll: &Poll) -> (MailSender, Mailbox) {
        mailbox(Waker::new(poll.registry(), Token(0)).unwrap())
    }

    fn answer(mail: Option<Mail>, as_worker: u16) {
        let Some(Mail::Pulse(answer)) = mail else { panic!("{mail:?}") };
        answer.send(Some(WorkerId(as_worker))).unwrap();
    }

    #[test]
    fn a_pulse_waits_for_every_thread_and_asks_none_twice() {
        let polls = [Poll::new().unwrap(), Poll::new().unwrap()];
        let (first, mut of_first) = worker(&polls[0]);
        let (second, mut of_second) = worker(&polls[1]);
        let (control, mail) = control_channel();
        let pulse = Pulse { workers: vec![first, second], control };
        let (done, ended) = channel();
        let round = thread::spawn(move || {
            // With a patience of zero, the round logs a line and continues to wait.
            done.send(pulse.round(Duration::ZERO)).unwrap();
            (pulse, done)
        });
        let Ok(ControlMail::Pulse(of_control)) = mail.recv() else { panic!() };
        of_control.send(None).unwrap();
        answer(of_first.next(), 0);
        assert!(ended.try_recv().is_err() && of_first.next().is_none());
        answer(of_second.next(), 1);
        assert_eq!(ended.recv(), Ok(true));
        drop(of_control);

        // If a thread ends without an answer, the watch ends.
        let (pulse, done) = round.join().unwrap();
        let round = thread::spawn(move || done.send(pulse.round(Duration::ZERO)).unwrap());
        assert!(mail.recv().is_ok());
        drop((of_first, of_second));
        assert_eq!(ended.recv(), Ok(false));
        round.join().unwrap();
    }

    #[test]
    fn the_manager_is_told_at_a_path_and_at_an_abstract_name() {
        let folder = crate::tests::TempFolder::new();
        let path = folder.join("notify");
        let abstract_name = format!("millstream-notify-{}", std::process::id());
        let named = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let listeners = [
            (path.as_os_str().to_owned(), UnixDatagram::bind(&path).unwrap()),
            (format!("@{abstract_name}").into(), UnixDatagram::bind_addr(&named).unwrap()),
        ];
        for (name, listener) in listeners {
            let manager = ServiceManager::at(&name).unwrap();
            manager.ready("two\nlines");
            manager.draining();
            let mut bytes = [0; 128];
            for want in ["READY=1\nSTATUS=two lines", "STOPPING=1\nSTATUS=draining"] {
                let length = listener.recv(&mut bytes).unwrap();
                assert_eq!(std::str::from_utf8(&bytes[..length]), Ok(want));
            }
        }
        // A receiver that is missing or does not read only causes a log line.
        ServiceManager::at(OsStr::new("/nowhere/notify")).unwrap().ready("");
        assert!(ServiceManager::at(OsStr::new(&"x".repeat(200))).is_err());
    }
}
