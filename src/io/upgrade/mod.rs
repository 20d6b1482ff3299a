//! Upgrades of a running server without a cluster (docs/upgrade.md): a newer process takes over from this one.
//!
//! ```text
//! older process                                   newer process
//! Offer, listeners and UDP ports ------------------------> reads settings, binds what has moved
//!       <------------------------------------------- Ready
//! the store is closed, Take ------------------------------> opens the store, starts
//!       <-------------------------------------------- Took
//! accepts no more; commits and claims --------------------> keeps the records and claims of both
//! ```
//!
//! Until `Took` arrives, any failure ends the newer process, and the older process continues alone.

mod keeper;
mod successor;
pub(super) mod wire;

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use mio::net::TcpListener;
use serde_json::Value;

pub(super) use self::keeper::{Guest, Keeper, KeeperMail};
pub use self::successor::Successor;
pub(super) use self::successor::{Offer, Place};

use self::keeper::{Giving, TAKE_MAX, WRITE_MAX};
use self::wire::{Frame, Socket, VERSION};
use super::control_thread::{ControlMail, ControlSender};
use super::mailbox::{Mail, MailSender};
use super::notify::ServiceManager;
use super::shell::receive_strays;
use super::sys;
use crate::control::Order;
use crate::directory::Process;
use crate::protocol::{Listener, Security};
use crate::types::NodeId;

/// The argument that makes a server take over from the one that has started it.
pub(super) const TAKES_OVER: &str = "--take-over";
/// Time in which the newer process has to read its settings and to bind its ports.
const READY_MAX: Duration = Duration::from_secs(60);
/// Time in which the workers have to list their sockets.
const LIST_MAX: Duration = Duration::from_secs(10);
/// Number of times that a failed process is checked for its end before it is killed, and the pause between two checks.
/// If the process ends by itself, its exit status gives a reason to report.
const END_LOOKS: u32 = 50;
const END_LOOK: Duration = Duration::from_millis(20);
/// Time for which clients that have connected to this process may still begin sessions here.
const BEGIN_MAX: Duration = Duration::from_secs(10);

/// A socket of a worker.
pub(super) type Listed = (Socket, OwnedFd);

/// Starts newer processes; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Upgrader(Arc<Parts>);

/// The parts of an [`Upgrader`].
#[derive(Debug)]
pub(super) struct Parts {
    /// The program's path. A new version has the same path.
    pub(super) program: io::Result<PathBuf>,
    /// Arguments of this process.
    pub(super) arguments: Vec<OsString>,
    pub(super) workers: Vec<MailSender>,
    pub(super) control: ControlSender,
    /// The store's thread; `None` in a cluster.
    pub(super) keeper: Option<Sender<KeeperMail>>,
    /// Secret of the connections between the processes.
    pub(super) secret: Vec<u8>,
    /// True while an upgrade is under way, and after a successful one.
    pub(super) is_busy: AtomicBool,
    pub(super) newer: Mutex<NewerProcess>,
}

/// A newer process that has not taken over yet.
#[derive(Debug, Default)]
pub(super) struct NewerProcess {
    child: Option<Child>,
    /// True once this server is shutting down. No newer process is started any more.
    is_refused: bool,
}

impl Upgrader {
    pub(super) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// True if a newer process has taken over, or is about to.
    pub(super) fn is_busy(&self) -> bool {
        self.0.is_busy.load(Ordering::SeqCst)
    }

    /// Ends an upgrade that is under way, and refuses others, because the server is shutting down.
    pub(super) fn stop(&self) {
        let mut newer = self.0.newer();
        newer.is_refused = true;
        if let Some(child) = &mut newer.child {
            tracing::info!(pid = child.id(), "upgrade called off");
            let _ = child.kill();
        }
    }

    /// Begins an upgrade. The result is the id of the newer process, or the reason why this one goes on alone.
    pub(super) fn begin(&self) -> Receiver<Result<u32, String>> {
        let (done, result) = channel();
        if self.0.is_busy.swap(true, Ordering::SeqCst) {
            let _ = done.send(Err("an upgrade is under way".to_owned()));
            return result;
        }
        let (parts, failed) = (Arc::clone(&self.0), done.clone());
        let work = move || match parts.upgrade() {
            Ok((newer, version)) => {
                let pid = newer.id();
                tracing::info!(
                    pid,
                    version,
                    "upgrade: the new process has taken over; this one serves its sessions"
                );
                let _ = done.send(Ok(pid));
                parts.retire(newer);
            }
            Err(reason) => {
                tracing::error!(reason, "upgrade failed; this process goes on");
                parts.is_busy.store(false, Ordering::SeqCst);
                let _ = done.send(Err(reason));
            }
        };
        if let Err(error) = thread::Builder::new().name("upgrade".into()).spawn(work) {
            self.0.is_busy.store(false, Ordering::SeqCst);
            let _ = failed.send(Err(error.to_string()));
        }
        result
    }
}

impl Parts {
    /// Starts a newer process and lets it take over.
    fn upgrade(&self) -> Result<(Child, String), String> {
        let keeper = self
            .keeper
            .as_ref()
            .ok_or("a node of a cluster is not upgraded in place: drain it, and start the new version")?;
        if std::process::id() == 1 {
            return Err(
                "this is the first process of a container, which ends with it: replace the container"
                    .to_owned(),
            );
        }
        self.check(keeper)?;
        let program = self.program.as_ref().map_err(|error| format!("the program's path: {error}"))?;
        let sockets = self.list()?;
        let (strays, theirs_of_strays) = self.stray_pairs().map_err(|error| format!("sockets: {error}"))?;
        let (stream, theirs) = UnixStream::pair().map_err(|error| format!("a socket: {error}"))?;
        let newer = Command::new(program)
            .args(&self.arguments)
            .arg(TAKES_OVER)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // The service manager watches the new process, too.
            .env_remove("WATCHDOG_PID")
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        tracing::info!(pid = newer.id(), program = %program.display(), "upgrade: new process started");
        let is_refused = {
            let mut place = self.newer();
            place.child = Some(newer);
            place.is_refused
        };
        if is_refused {
            self.kill();
            return Err("the server ends".to_owned());
        }
        let relay = match offer(&stream, &sockets, &theirs_of_strays, &self.secret)
            .and_then(|()| self.open_relay())
        {
            Ok(relay) => relay,
            Err(error) => {
                return Err(not_ready(&error, &self.kill()));
            }
        };
        drop((sockets, theirs_of_strays));
        let ((done, result), (ended, is_ended)) = (channel(), channel());
        let _ = keeper.send(KeeperMail::Give(Giving { stream, relay, done, ended: is_ended }));
        match result.recv_timeout(TAKE_MAX * 2).unwrap_or_else(|error| Err(error.to_string())) {
            Ok(version) => {
                for (worker, stream) in self.workers.iter().zip(strays) {
                    if let Err(error) = receive_strays(stream, worker.clone()) {
                        tracing::error!(%error, "datagrams of the new process are not read");
                    }
                }
                let newer = self.newer().child.take().ok_or("there is no new process")?;
                Ok((newer, version))
            }
            Err(reason) => {
                let status = self.kill();
                let _ = ended.send(());
                if let Some(worker) = self.workers.first() {
                    worker.post(Mail::CloseRelay(relay));
                }
                Err(format!("{reason} ({status})"))
            }
        }
    }

    /// Checks that the server may be upgraded now.
    fn check(&self, keeper: &Sender<KeeperMail>) -> Result<(), String> {
        let silent = |_| "the server does not answer itself".to_owned();
        let (reply, answered) = channel();
        self.control.send(ControlMail::Order { order: Order::CheckUpgrade, reply });
        let answer: Value =
            serde_json::from_str(&answered.recv_timeout(LIST_MAX).map_err(silent)?).unwrap_or_default();
        if answer.get("success") != Some(&Value::Bool(true)) {
            return Err(answer.get("message").and_then(Value::as_str).unwrap_or("refused").to_owned());
        }
        let (sender, may_give) = channel();
        let _ = keeper.send(KeeperMail::MayGive(sender));
        may_give.recv_timeout(LIST_MAX).map_err(silent)?
    }

    fn newer(&self) -> MutexGuard<'_, NewerProcess> {
        self.newer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills the newer process, unless it ends by itself. Returns how it ended.
    fn kill(&self) -> String {
        let Some(mut newer) = self.newer().child.take() else { return String::new() };
        for _ in 0..END_LOOKS {
            if !matches!(newer.try_wait(), Ok(None)) {
                break;
            }
            thread::sleep(END_LOOK);
        }
        let _ = newer.kill();
        newer.wait().map(|status| status.to_string()).unwrap_or_default()
    }

    /// Makes a pair of connected sockets for the datagrams of each worker. Returns the ends of this
    /// process, and those of the newer process.
    fn stray_pairs(&self) -> io::Result<(Vec<UnixStream>, Vec<UnixStream>)> {
        let pair = |_: &MailSender| {
            let (own, theirs) = UnixStream::pair()?;
            theirs.set_nonblocking(true)?;
            Ok((own, theirs))
        };
        Ok(self.workers.iter().map(pair).collect::<io::Result<Vec<_>>>()?.into_iter().unzip())
    }

    /// Lists the sockets of all workers.
    fn list(&self) -> Result<Vec<Listed>, String> {
        let (sender, lists) = channel();
        self.post(|| Mail::ListSockets(sender.clone()));
        drop(sender);
        let mut all = Vec::new();
        for _ in &self.workers {
            let list = lists.recv_timeout(LIST_MAX).map_err(|_| "a worker does not answer".to_owned())?;
            all.extend(list.map_err(|error| format!("the sockets of a worker: {error}"))?);
        }
        Ok(all)
    }

    /// Opens a listener of the relay that only the other process can reach.
    fn open_relay(&self) -> io::Result<SocketAddr> {
        let (address, (listener, socket)) = private_relay()?;
        if let Some(worker) = self.workers.first() {
            worker.post(Mail::OpenRelay(listener, socket));
        }
        Ok(address)
    }

    /// Serves the sessions of this process until they end.
    fn retire(&self, mut newer: Child) {
        self.post(|| Mail::Retire);
        if let Some(manager) = ServiceManager::of_environment() {
            manager.main_process(newer.id());
        }
        thread::sleep(BEGIN_MAX);
        let (reply, _) = channel();
        self.control.send(ControlMail::Order { order: Order::Drain { is_leaving: true }, reply });
        // The system keeps an ended process until its parent has asked for its status.
        let _ = newer.wait();
    }

    fn post(&self, mail: impl Fn() -> Mail) {
        self.workers.iter().for_each(|worker| worker.post(mail()));
    }
}

/// Describes why the newer process is not ready. If it ended by itself, it has given its reason on the standard error
/// that it shares with this process.
fn not_ready(error: &io::Error, status: &str) -> String {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) {
        return format!(
            "the new process ended before it was ready ({status}): see its reason in the standard error of the server, for \
             example in the journal, or run 'millstream check-config'"
        );
    }
    format!("the new process is not ready: {error} ({status})")
}

/// Opens a listener of the relay on this machine alone.
pub(super) fn private_relay() -> io::Result<(SocketAddr, (&'static Listener, TcpListener))> {
    let of_nodes = Listener::all().find(|listener| listener.security == Security::Nodes);
    let listener = of_nodes.ok_or(io::ErrorKind::Unsupported)?;
    let (address, sockets) = super::listen::listen(Some(Ipv4Addr::LOCALHOST.into()), 0, 1)?;
    let socket = sockets.into_iter().next().ok_or(io::ErrorKind::NotFound)?;
    Ok((address, (listener, socket)))
}

/// Offers the sockets to the newer process, and waits until it is ready.
fn offer(stream: &UnixStream, sockets: &[Listed], strays: &[UnixStream], secret: &[u8]) -> io::Result<()> {
    stream.set_read_timeout(Some(READY_MAX))?;
    stream.set_write_timeout(Some(READY_MAX))?;
    let secret = wire::secret_text(secret);
    let list = sockets.iter().map(|(socket, _)| socket.clone()).collect();
    let workers = u16::try_from(strays.len()).unwrap_or(u16::MAX);
    wire::send(stream, &Frame::Offer { version: VERSION, workers, sockets: list, secret })?;
    let descriptors = sockets.iter().map(|(_, descriptor)| descriptor.as_fd());
    for descriptor in descriptors.chain(strays.iter().map(UnixStream::as_fd)) {
        sys::send_descriptor(stream.as_fd(), descriptor)?;
    }
    let answer = wire::receive(stream)?;
    let Frame::Ready = answer else {
        return Err(io::Error::other(format!("it answers \"{}\"", answer.kind())));
    };
    stream.set_write_timeout(Some(WRITE_MAX))
}

/// Returns the path of the program as it was started, with symbolic links, so that a link to another version leads to
/// that version.
pub(super) fn program() -> io::Result<PathBuf> {
    let named = std::env::args_os().next().map(PathBuf::from).filter(|path| path.is_absolute());
    named.map_or_else(std::env::current_exe, Ok)
}

/// Returns the arguments of this process without [`TAKES_OVER`].
pub(super) fn arguments() -> Vec<OsString> {
    std::env::args_os().skip(1).filter(|argument| argument != TAKES_OVER).collect()
}

/// Names this process in the directory of an upgrade.
pub(super) fn own_process() -> Process {
    let id = std::process::id();
    Process { node: NodeId::of_process(id), incarnation: u64::from(id) }
}
