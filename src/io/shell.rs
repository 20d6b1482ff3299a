//! The shell of a worker. The loop that drives the worker's sessions is `driver`; the shell does everything else: mail,
//! listeners, the admission of peers, shared ports, jobs, and the drain.

mod forwarding;
mod machine;
mod ports;
mod sockets;
mod strays;

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Poll, Token};

use super::blob_files::BlobFiles;
use super::budget::Budget;
use super::clock;
use super::control_thread::ControlSender;
use super::driver::{Bounds, Driver, Moved};
use super::free_memory::FreeMemory;
use super::jobs::Jobs;
use super::mailbox::{Handover, Mail, MailSender, Mailbox};
use super::preface::{self, Accepted, Prefaces};
use super::tls::{Configs, NodeConfigs, Transport};
use super::udp::UdpSocket;
use crate::hub::RingMemory;
use crate::protocol::{Binding, Listener, Port, Proxied, Security, speaks_http2};
use crate::stats::Refused;
use crate::types::{Now, WorkerId};
use crate::worker::{TranscoderBudget, Worker};
use forwarding::Forwarding;
pub(super) use forwarding::{Inbox, Inboxes, Passed};
use machine::{Colleagues, WorkerMachine};
use strays::Strays;
pub(super) use strays::{Received, receive as receive_strays};

/// The token of the event that wakes the worker.
const WAKE: Token = Token(usize::MAX);
/// The token of the first listener. The tokens of further listeners count down from it.
const LISTENERS: usize = usize::MAX - 1;
/// The token of the first connection whose proxy has not named its client yet. The tokens of further ones count down
/// from it.
const PREFACES: usize = LISTENERS - (1 << 16);
/// Limits of a worker's turn.
const BOUNDS: Bounds = Bounds {
    read: 64 * 1024,
    read_turn: 256 * 1024,
    write_turn: 8 * 1024 * 1024,
    catch_up_turn: 512 * 1024,
    receives_turn: ports::RECEIVES_TURN,
    // The cryptography of handshakes must not delay media.
    handshakes_turn: 4,
    udp_bursts: false,
    settle: Duration::ZERO,
};
/// Time for which deadlines are delayed after the process was held up, so that other workers can pass on datagrams.
const SETTLE: Duration = Duration::from_millis(100);
/// Maximum bytes of datagrams from other workers that are handled in one turn. The last mail may exceed this.
const PASSED_TURN: usize = 256 * 1024;
/// Maximum number of connections accepted from one listener in one turn.
const ACCEPT_TURN: usize = 64;
/// Pause in accepting connections after the process has run out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Tolerance of the load balancing. A worker hands a new connection over if it has more connections than the least
/// loaded worker, plus 25 %, plus this number.
const HANDOVER_SLACK: u32 = 8;

/// The sockets of a worker.
#[derive(Default)]
pub(super) struct Sockets {
    pub(super) listeners: Vec<(&'static Listener, TcpListener)>,
    /// UDP ports shared by many peers, with the number of workers that are bound to each.
    pub(super) ports: Vec<(&'static Port, UdpSocket, u16)>,
    /// Connection to the worker with the same number in an older process of this server.
    pub(super) strays: Option<UnixStream>,
    /// Address of the listener that only an older process can reach.
    pub(super) private: Option<SocketAddr>,
}

/// The parts from which a shell is made.
pub(super) struct Parts {
    pub(super) id: WorkerId,
    pub(super) poll: Poll,
    pub(super) mailbox: Mailbox,
    pub(super) sockets: Sockets,
    pub(super) peers: Vec<MailSender>,
    pub(super) control_sender: ControlSender,
    pub(super) jobs: Jobs,
    pub(super) budgets: Budgets,
    /// Number of connections of each worker.
    pub(super) loads: Loads,
    pub(super) seed: crypto::Seed,
    /// A seed that is the same for all workers.
    pub(super) common: crypto::Seed,
    /// Addresses of this machine.
    pub(super) hosts: Arc<[std::net::IpAddr]>,
    /// The settings of TLS connections.
    pub(super) tls: Configs,
    /// TLS settings of connections between nodes.
    pub(super) nodes: NodeConfigs,
}

/// The budgets shared by all workers.
#[derive(Clone)]
pub(super) struct Budgets {
    /// Budget of connections.
    pub(super) connections: Arc<Budget>,
    /// Budget of ring memory.
    pub(super) ring_memory: Arc<RingMemory>,
    /// Limit on the bytes of all segments.
    pub(super) segment_bytes: usize,
    /// Budget of transcoded tracks.
    pub(super) transcoders: Arc<TranscoderBudget>,
    /// Files of large blobs.
    pub(super) blob_files: BlobFiles,
    /// Listeners whose connections begin with a PROXY header.
    pub(super) proxied: Proxied,
    /// For each worker, the number of bytes of datagrams that are on their way to it.
    pub(super) inboxes: Inboxes,
}

/// The number of connections of each worker.
pub(super) type Loads = Arc<[Arc<AtomicU32>]>;

/// The shell.
pub(super) struct Shell {
    id: WorkerId,
    driver: Driver,
    machine: WorkerMachine,
    mailbox: Mailbox,
    listeners: Vec<sockets::Marked>,
    budget: Arc<Budget>,
    proxied: Proxied,
    prefaces: Prefaces,
    loads: Loads,
    accepting: bool,
    accept_paused_until: Option<Instant>,
    pending_accept: bool,
    free_memory: FreeMemory,
    /// Datagrams for other workers.
    forwarding: Forwarding,
    /// Datagrams for an older process.
    strays: Strays,
}

impl Shell {
    pub(super) fn new(parts: Parts) -> io::Result<Self> {
        let Parts { id, poll, mailbox, sockets, loads, budgets, .. } = parts;
        let Sockets { mut listeners, ports, strays, private } = sockets;
        let own_load = loads.get(usize::from(id.0)).map(Arc::clone).unwrap_or_default();
        let settle = if loads.len() > 1 { SETTLE } else { Duration::ZERO };
        let mut driver = Driver::new(poll, Bounds { settle, ..BOUNDS }, own_load);
        for (index, (_, listener)) in listeners.iter_mut().enumerate() {
            driver.registry().register(listener, Token(LISTENERS - index), Interest::READABLE)?;
        }
        let mut worker = Worker::new(id, clock::now(), parts.seed, &parts.common)
            .of_workers(u16::try_from(loads.len()).unwrap_or(u16::MAX))
            .with_ring_memory(budgets.ring_memory)
            .with_segment_bytes(budgets.segment_bytes)
            .with_transcoders(budgets.transcoders)
            .with_blob_memory(Box::new(budgets.blob_files.clone()));
        driver.writing.blob_files = budgets.blob_files;
        for (port, socket, workers) in ports {
            let address = socket.socket.local_addr()?;
            worker.port_bound(port, Binding { address, hosts: &parts.hosts, workers });
            driver.share(port, socket)?;
        }
        let colleagues =
            Colleagues { id, workers: parts.peers, control_sender: parts.control_sender, jobs: parts.jobs };
        Ok(Self {
            id,
            driver,
            machine: WorkerMachine { worker, colleagues, tls: parts.tls, nodes: parts.nodes, drained: false },
            mailbox,
            listeners: sockets::marked(listeners, private),
            budget: budgets.connections,
            proxied: budgets.proxied,
            prefaces: Prefaces::new(PREFACES),
            loads,
            accepting: true,
            accept_paused_until: None,
            pending_accept: true,
            free_memory: FreeMemory::new(clock::now().mono),
            forwarding: Forwarding::new(id, budgets.inboxes),
            strays: Strays::new(strays),
        })
    }

    /// Returns the token of the wake-up, for the mailbox.
    pub(super) const fn wake_token() -> Token {
        WAKE
    }

    /// Runs until the worker is drained, and all closing messages are sent or have timed out.
    pub(super) fn run(mut self) {
        while !self.machine.drained || self.driver.has_lingering() {
            let patience = self.patience();
            if let Err(error) = self.driver.poll(patience) {
                tracing::error!(%error, worker = self.id.0, "poll failed");
                return;
            }
            self.mailbox.awake();
            let now = clock::now();
            self.mail(now);
            let (pending_accept, prefaces) = (&mut self.pending_accept, &mut self.prefaces);
            self.driver.take_events(now, &mut self.machine, |token| {
                *pending_accept |= token != WAKE && !prefaces.take_event(token);
            });
            self.accept_pending(now);
            self.take_prefaces(now);
            self.driver.read_ready(now, &mut self.machine);
            self.read_ports(now);
            self.driver.finish(now, &mut self.machine);
            self.post_moved();
            self.free_memory.handle_turn(now.mono);
            self.machine.worker.note_turn(now.mono.elapsed(), self.mailbox.waiting());
        }
    }

    /// Returns the time to wait for events. Other threads wake a worker only if it has announced that it sleeps.
    fn patience(&mut self) -> Option<Duration> {
        if self.driver.has_work(&self.machine) || !self.mailbox.may_sleep() {
            return Some(Duration::ZERO);
        }
        let others = [
            self.accept_paused_until,
            self.muted_until(),
            self.prefaces.poll_timeout(),
            self.free_memory.poll_timeout(),
        ];
        self.driver.patience(&self.machine, others.into_iter().flatten())
    }

    fn mail(&mut self, now: Now) {
        // Datagrams that arrive during this loop wait for the next turn, because other workers may send faster than
        // this one can handle.
        let (mut left, mut passed_left) = (self.mailbox.waiting(), PASSED_TURN);
        while left > 0
            && passed_left > 0
            && let Some(mail) = self.mailbox.next()
        {
            left = left.saturating_sub(1);
            match mail {
                Mail::Control(mail) => {
                    self.accepting &= !matches!(mail, crate::mail::ToWorker::Drain);
                    self.machine.worker.handle_mail(now, mail);
                }
                Mail::Mirrored(unit) => self.machine.worker.handle_mirrored(now, unit),
                Mail::Datagrams(passed) => {
                    passed_left = passed_left.saturating_sub(passed.counted());
                    self.take_passed(now, passed);
                }
                Mail::Strays(received) => self.take_strays(now, received),
                Mail::Path(news) => self.machine.worker.handle_path_news(&news),
                Mail::GiveWay(way) => {
                    self.driver.give_way(now, &mut self.machine, way);
                }
                Mail::Tls(configs) => self.machine.tls = configs,
                Mail::Pulse(answer) => {
                    let _ = answer.send(Some(self.id));
                }
                Mail::ListSockets(answer) => drop(answer.send(self.list_sockets())),
                Mail::OpenRelay(listener, socket) => self.open_relay(listener, socket),
                Mail::CloseRelay(address) => self.close_relay(address),
                Mail::Retire => self.retire(),
                Mail::Socket(handover) => {
                    // The connection was counted when it was handed over, so that a burst of connections is spread. Its
                    // socket will be counted again, so undo that first count.
                    if let Some(load) = self.load() {
                        load.fetch_sub(1, Ordering::Relaxed);
                    }
                    self.begin(now, handover);
                }
            }
        }
    }

    // ---- accepting

    fn accept_pending(&mut self, now: Now) {
        if self.accept_paused_until.is_some_and(|until| until <= now.mono) {
            self.accept_paused_until = None;
            self.pending_accept = true;
        }
        if !self.pending_accept || self.accept_paused_until.is_some() || !self.accepting {
            return;
        }
        self.pending_accept = false;
        for index in 0..self.listeners.len() {
            for accepted in 0.. {
                if accepted == ACCEPT_TURN {
                    self.pending_accept = true;
                    // Do not sleep in the next turn, so that accepting continues.
                    self.accept_paused_until = Some(now.mono);
                    break;
                }
                let Some((listener, socket, _)) = self.listeners.get(index) else { break };
                let listener = *listener;
                match socket.accept() {
                    Ok((stream, peer)) => self.admit(now, stream, peer, listener),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        if is_out_of_descriptors(&error) {
                            tracing::warn!(%error, "accepting connections paused");
                            self.accept_paused_until = Some(now.mono + ACCEPT_PAUSE);
                            return;
                        }
                        tracing::debug!(%error, "accept failed");
                    }
                }
            }
        }
    }

    fn admit(&mut self, now: Now, stream: TcpStream, peer: SocketAddr, listener: &'static Listener) {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let permit = match self.budget.admit(peer, listener.publishers, now.mono) {
            Ok(permit) => permit,
            Err(why) => {
                tracing::debug!(%peer, ?why, "connection refused");
                self.machine.worker.note_refused(why);
                return;
            }
        };
        if !self.proxied.has(listener) {
            return self.admitted(now, Handover { stream, peer, listener, permit, received: Bytes::new() });
        }
        if !self.machine.worker.server().trusted_proxies.contains(peer.ip()) {
            preface::note_refused(listener, peer, "the peer is not in server.trusted_proxies");
            return self.machine.worker.note_refused(Refused::Preface);
        }
        let accepted = Accepted { stream, peer, listener, permit };
        if let Err(error) = self.prefaces.add(now.mono, self.driver.registry(), accepted) {
            tracing::debug!(%error, "accept failed");
        }
    }

    /// Admits the clients that proxies have named.
    fn take_prefaces(&mut self, now: Now) {
        let (ready, refused) = self.prefaces.turn(now.mono, self.driver.registry());
        (0..refused).for_each(|_| self.machine.worker.note_refused(Refused::Preface));
        for (Accepted { stream, listener, permit, .. }, client) in ready {
            drop(permit);
            let peer = SocketAddr::new(client.ip().to_canonical(), client.port());
            match self.budget.admit(peer, listener.publishers, now.mono) {
                Ok(permit) => {
                    self.admitted(now, Handover { stream, peer, listener, permit, received: Bytes::new() });
                }
                Err(why) => {
                    tracing::debug!(%peer, ?why, "connection refused");
                    self.machine.worker.note_refused(why);
                }
            }
        }
    }

    /// Passes an admitted connection to the least loaded worker, or keeps it.
    fn admitted(&mut self, now: Now, handover: Handover) {
        self.make_room(now);
        let listener = handover.listener;
        // A connection to a listener beside a shared port stays on this worker: only its first bytes show which worker
        // has the session it belongs to.
        let target = if listener.beside.is_none() { self.less_loaded() } else { None };
        match target
            .and_then(|index| Some((self.machine.colleagues.workers.get(index)?, self.loads.get(index)?)))
        {
            Some((peer, load)) => {
                load.fetch_add(1, Ordering::Relaxed);
                peer.post(Mail::Socket(handover));
            }
            None => self.begin(now, handover),
        }
    }

    /// Hands connections over to the workers that have the sessions they belong to.
    fn post_moved(&mut self) {
        for (to, moved) in self.driver.take_moved() {
            let index = usize::from(to.0);
            let listener = Listener::all().find(|listener| listener.name == moved.listener);
            let worker = self.machine.colleagues.workers.get(index).zip(self.loads.get(index));
            let (Some(listener), Some((worker, load))) = (listener, worker) else { continue };
            let Moved { stream, peer, permit, received, .. } = moved;
            load.fetch_add(1, Ordering::Relaxed);
            worker.post(Mail::Socket(Handover { stream, peer, listener, permit, received }));
        }
    }

    /// If the server is crowded, closes unauthenticated connections to make room for the peer that was just admitted.
    /// If this worker has none, the other workers look for some.
    fn make_room(&mut self, now: Now) {
        let Some(way) = self.budget.give_way() else { return };
        if self.driver.give_way(now, &mut self.machine, way) == 0 {
            self.machine.colleagues.post_to_other_shells(|| Mail::GiveWay(way));
        }
    }

    /// Returns the least loaded worker if this worker has clearly more connections.
    fn less_loaded(&self) -> Option<usize> {
        let own = self.load()?.load(Ordering::Relaxed);
        let loads = self.loads.iter().map(|load| load.load(Ordering::Relaxed));
        let (index, least) = loads.enumerate().min_by_key(|(_, load)| *load)?;
        let bound = least.saturating_add(least / 4).saturating_add(HANDOVER_SLACK);
        (own > bound && index != usize::from(self.id.0)).then_some(index)
    }

    fn begin(&mut self, now: Now, handover: Handover) {
        let Handover { stream, peer, listener, permit, received } = handover;
        // The slot of the new connection may have been freed in this turn. Its former socket must be closed before the
        // slot is used again.
        self.driver.perform_all(now, &mut self.machine);
        let _ = stream.set_nodelay(true);
        let transport = self.accepted(stream, listener);
        let Some(id) = self.machine.worker.accept(now, listener, peer) else { return };
        self.driver.install_accepted(now, &mut self.machine, id, transport, (listener.name, permit));
        if !received.is_empty() {
            self.machine.worker.take_over(now, id, &received);
        }
    }

    /// Makes the transport of an accepted connection.
    fn accepted(&self, stream: TcpStream, listener: &'static Listener) -> Transport {
        match listener.security {
            Security::Plain => Transport::plain(stream),
            Security::Tls => Transport::server(stream, &self.machine.tls.plain),
            Security::Nodes => Transport::server(stream, &self.machine.nodes.server),
            Security::TlsHttp if speaks_http2(self.machine.worker.server()) => {
                Transport::server(stream, &self.machine.tls.http)
            }
            Security::TlsHttp => Transport::server(stream, &self.machine.tls.http1),
        }
    }

    fn load(&self) -> Option<&AtomicU32> {
        self.loads.get(usize::from(self.id.0)).map(Arc::as_ref)
    }
}

/// True if the process or the machine has no descriptor or memory left.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}
