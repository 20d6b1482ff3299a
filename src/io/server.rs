//! The whole server as one value: binds the ports, starts the threads, and reports how the server ends.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::{io, mem};

use bytes::Bytes;
use crypto::Seed;
use mio::{Poll, Waker};

use super::blob_files::BlobFiles;
use super::budget::Budget;
use super::control_thread::{self, ControlMail, ControlSender, ControlThread, HeldUp, Local};
use super::directory::{Listeners, Records};
use super::free_memory::FreeMemory;
use super::jobs::{self, Asker, Deliver, FilePaths, Jobs};
use super::mailbox::{self, Mail, MailSender};
use super::notify::{Pulse, ServiceManager};
use super::shell::{Budgets, Inbox, Loads, Parts, Shell, Sockets};
use super::tls::{self, CertificateError, CertificateFiles, Configs, Expiry, NodeConfigs, Reload};
use super::udp::UdpSocket;
use super::upgrade::{self, Offer, Place, Successor, Upgrader};
use super::{clock, host, listen, local, sys};
use crate::auth::OutboundPolicy;
use crate::config::{Config, Limits, Options, ServerSettings};
use crate::control::{Control, ControlConfig, Membership, Order, RestoreError, Restored};
use crate::hub::{BLOB_BYTES_MIN, RingMemory};
use crate::mail::ToWorker;
use crate::protocol::{Addresses, Bind, Listener, Port, Proxied, derived, node_secret};
use crate::store::{self, Key, Store, backup};
use crate::types::WorkerId;
use crate::worker::TranscoderBudget;

/// The default limit of all rings (the buffers of streams) together is the machine's memory divided
/// by this. Sessions, sockets, the store and other programs need the rest.
const RING_MEMORY_SHARE: usize = 4;
/// The memory of the machine divided by this is the default limit on segments in memory.
const SEGMENT_MEMORY_SHARE: usize = 8;
/// Limit of all rings together if the machine's memory is unknown.
const RING_BYTES: usize = 1024 * 1024 * 1024;
/// Maximum number of port numbers that are requested from the kernel to find one that is free for both UDP and TCP.
const FREE_PORT_ATTEMPTS: u32 = 32;
/// Number of descriptors that connections never use: they are for listeners, the store and the log.
const FILES_KEPT: usize = 64;
/// Number of descriptors that must be free after all listeners are open, because the API reads and writes files.
const FILES_RESERVED: usize = 8;
/// Divisor of all descriptors that gives the number reserved for files, pushes, pulls and jobs.
const FILES_KEPT_SHARE: usize = 8;
/// Number of records of the store that are decoded together, while the next ones are read.
const RESTORED_AT_ONCE: usize = 1024;

/// The reason why the server did not start. Threads that were already started wait until the process ends.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port could not be bound.
    #[error("{key}: cannot listen at {address}: {error}")]
    Bind {
        /// The setting that names the port.
        key: &'static str,
        /// The address that could not be listened on.
        address: SocketAddr,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The certificate cannot be used or made.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The records of the store cannot be restored.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The system refused a thread, a poll, or random bytes.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl StartError {
    /// Returns the reason in one line, with advice on what to do.
    #[must_use]
    pub fn with_advice(&self, config: &Config) -> String {
        match self {
            Self::Store(error) | Self::Restore(RestoreError::Store(error)) => {
                backup::with_advice(error, &config.store_file())
            }
            Self::Bind { .. }
            | Self::Certificate(_)
            | Self::Restore(RestoreError::Record(_))
            | Self::System(_) => self.to_string(),
        }
    }
}

/// A notice of a running server to its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A signal was received. The owner's own signal handler sends this.
    Signal(i32),
    /// All sessions of a drain have ended, or the time for the drain is over. The server should now be shut down.
    Left,
    /// A thread of the server has ended. After a drain this is expected; otherwise the thread has crashed.
    ThreadEnded,
}

/// The way in which the server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The server has drained.
    Drained,
    /// A thread that must not end has died.
    Died,
}

/// Notifies the owner when a thread ends, whether it returns or panics.
struct Farewell(Sender<Notice>);

impl Drop for Farewell {
    fn drop(&mut self) {
        let _ = self.0.send(Notice::ThreadEnded);
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    addresses: Addresses,
    pulse: Pulse,
    control_thread: JoinHandle<()>,
    workers: Vec<JoinHandle<()>>,
    store: JoinHandle<()>,
    reload: Reload,
    upgrader: Upgrader,
}

impl Server {
    /// Opens the store, binds the ports and starts the threads. When this function returns, all ports accept
    /// connections. `notices` gets a message when a thread ends. The settings can later be read again from `options`.
    /// A `successor` takes over from an older process.
    ///
    /// # Errors
    /// A port is in use, the store is locked or damaged, or the system lacks resources.
    pub fn start(
        config: &Config,
        options: &Options,
        notices: &Sender<Notice>,
        successor: Option<Successor>,
    ) -> Result<Self, StartError> {
        let open_files = raise_open_files();
        let Base { mut records, membership, certificate: (files, tls), addresses, sockets, own_relay } =
            Base::lay(config, options, successor.as_ref())?;

        let seed = Seed::from_os().map_err(io::Error::other)?;
        let secret = secret_of_nodes(config, &seed, successor.as_ref());
        let nodes = NodeConfigs::of_secret(&secret)?;
        let control_seed = seed.derive("control", 0);
        let started = ControlConfig { cluster: membership, ..control_config(config, &addresses, &seed) };
        let host = started.host_address.clone();
        let control = restore(records.store(), started, &control_seed)?;
        let (control_sender, mail) = control_thread::control_channel();
        let mut ends = Vec::with_capacity(sockets.len());
        for _ in 0..sockets.len() {
            let poll = Poll::new()?;
            let waker = Waker::new(poll.registry(), Shell::wake_token())?;
            ends.push((poll, mailbox::mailbox(waker)));
        }
        let senders: Vec<MailSender> = ends.iter().map(|(_, (sender, _))| sender.clone()).collect();
        let (http, relay) = (addresses.get("http"), addresses.get("relay"));
        let (requests, store) =
            records.start(Listeners { host: &host, http, relay }, control_sender.clone())?;
        let paths = FilePaths {
            options: options.clone(),
            certificate: files.clone(),
            root: config.home.join("webapps"),
            challenges: config.server.acme_folder().map(|folder| config.home.join(folder)),
            import_folders: config.server.import_folders().map(|folder| config.home.join(folder)).collect(),
        };
        let keeper = requests.keeper();
        let (policy, to_nodes) = (control.outbound_policy(), Arc::clone(&nodes.client));
        let jobs = Jobs::start(paths, policy, to_nodes, deliver(&control_sender, &senders))?;
        let expiry = Expiry::new(tls.expires_ms);
        host::start_watch(config.home.clone(), expiry.clone(), control_sender.clone())?;
        let reload = tls::start_watch(files, expiry, senders.clone())?;
        let mut control_thread = ControlThread {
            control,
            mail,
            workers: senders.clone(),
            store: requests,
            jobs: jobs.clone(),
            notices: notices.clone(),
            local: Local::default(),
            held_up: HeldUp::new(clock::now().mono),
            free_memory: FreeMemory::new(clock::now().mono),
        };
        let upgrader = Upgrader::new(upgrade::Parts {
            program: upgrade::program(),
            arguments: upgrade::arguments(),
            workers: senders.clone(),
            control: control_sender.clone(),
            keeper,
            secret,
            is_busy: AtomicBool::new(false),
            newer: Mutex::default(),
        });
        let local = local::bind(&config.home, successor.is_some())?;
        // The workers must know the applications before they accept connections. Otherwise a client that connects as
        // soon as a port is open might not find its application.
        control_thread.deliver();

        let shells = Shells {
            loads: sockets.iter().map(|_| Arc::default()).collect(),
            senders,
            control_sender: control_sender.clone(),
            jobs,
            budgets: Budgets {
                connections: Budget::new(
                    limits_within(config.server.limits, open_files, files_in_use()),
                    config.server.trusted_proxies.clone(),
                    clock::now().mono,
                ),
                ring_memory: Arc::new(RingMemory::new(ring_bytes(config.server.limits), sockets.len())),
                segment_bytes: segment_bytes(config.server.limits),
                blob_files: BlobFiles::new(open_files),
                proxied: Proxied::of(&config.server),
                inboxes: sockets.iter().map(|_| Inbox::default()).collect(),
                transcoders: Arc::new(TranscoderBudget::new(derived::costly_max(&config.server, cores()))),
            },
            seed,
            hosts: own_addresses().into(),
            tls,
            nodes,
            notices: notices.clone(),
            begin: Arc::default(),
        };
        let mut workers = Vec::with_capacity(sockets.len());
        for (index, ((poll, (_, mailbox)), sockets)) in (0u16..).zip(ends.into_iter().zip(sockets)) {
            workers.push(shells.start(WorkerId(index), poll, mailbox, sockets)?);
        }
        let held = (notices, &shells.begin);
        let store = start_thread("store", held, store)?;
        let control_thread = start_thread("control", held, move || control_thread.run())?;
        // In an upgrade, the older process continues if this one fails before here. From here on this
        // process must not fail.
        if let Some((successor, relay)) = successor.zip(own_relay) {
            successor.took(relay)?;
            if let Err(error) = local::start(local, control_sender, upgrader.clone()) {
                tracing::error!(%error, "the command line does not reach this process");
            }
        } else {
            local::start(local, control_sender, upgrader.clone())?;
        }
        shells.begin.get_or_init(|| ());
        let pulse = Pulse { workers: shells.senders, control: shells.control_sender };
        Ok(Self { addresses, pulse, control_thread, workers, store, reload, upgrader })
    }

    /// The bound addresses.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Begins the drain: no new sessions are accepted, peers are notified, the store is flushed.
    pub fn drain(&self) {
        self.upgrader.stop();
        self.pulse.control.send(ControlMail::Drain);
    }

    /// Stops admitting new sessions, and reports [`Notice::Left`] when the existing ones have ended.
    pub fn leave(&self) {
        // The reply is not needed. The log says whether the server was draining already.
        let (reply, _) = channel();
        self.pulse.control.send(ControlMail::Order { order: Order::Drain { is_leaving: true }, reply });
    }

    /// Starts the program again, and lets the new process take over (SIGUSR2).
    pub fn upgrade(&self) {
        // The reply is not needed, because the log has the result.
        drop(self.upgrader.begin());
    }

    /// True if a newer process has taken over, or is about to.
    #[must_use]
    pub fn is_upgraded(&self) -> bool {
        self.upgrader.is_busy()
    }

    /// Reads the certificate and the settings again (SIGHUP).
    pub fn reload(&self) {
        self.reload.now();
        self.pulse.control.send(ControlMail::Reload);
    }

    /// Starts the signals to the service manager's watchdog, if there is one.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start_watchdog(&self, manager: Arc<ServiceManager>) -> io::Result<()> {
        self.pulse.clone().start(manager)
    }

    /// The number of threads that report when they end.
    #[must_use]
    pub const fn threads(&self) -> usize {
        self.workers.len() + 2
    }

    /// Waits for the threads to end.
    #[must_use]
    pub fn join(self) -> StopReason {
        // The control thread ends once everything is drained. That closes the store's queue, too.
        let threads = [self.control_thread].into_iter().chain(self.workers).chain([self.store]);
        let died = threads.map(JoinHandle::join).filter(Result::is_err).count();
        if died == 0 { StopReason::Drained } else { StopReason::Died }
    }
}

/// State shared by all workers.
struct Shells {
    senders: Vec<MailSender>,
    control_sender: ControlSender,
    jobs: Jobs,
    budgets: Budgets,
    loads: Loads,
    seed: Seed,
    /// Addresses of this machine.
    hosts: Arc<[IpAddr]>,
    tls: Configs,
    nodes: NodeConfigs,
    notices: Sender<Notice>,
    /// Set when the threads may begin.
    begin: Arc<OnceLock<()>>,
}

impl Shells {
    fn start(
        &self,
        id: WorkerId,
        poll: Poll,
        mailbox: mailbox::Mailbox,
        sockets: Sockets,
    ) -> io::Result<JoinHandle<()>> {
        let shell = Shell::new(Parts {
            id,
            poll,
            mailbox,
            sockets,
            peers: self.senders.clone(),
            control_sender: self.control_sender.clone(),
            jobs: self.jobs.clone(),
            budgets: self.budgets.clone(),
            loads: Arc::clone(&self.loads),
            seed: self.seed.derive("worker", u64::from(id.0)),
            common: self.seed.derive("workers", 0),
            hosts: Arc::clone(&self.hosts),
            tls: self.tls.clone(),
            nodes: self.nodes.clone(),
        })?;
        start_thread(&format!("worker-{}", id.0), (&self.notices, &self.begin), move || shell.run())
    }
}

/// Returns the function that delivers answers of the job service to their submitters.
fn deliver(control_sender: &ControlSender, workers: &[MailSender]) -> Arc<Deliver> {
    let (control_sender, workers) = (control_sender.clone(), workers.to_vec());
    Arc::new(move |asker, done| match asker {
        Asker::Control => control_sender.send(ControlMail::Job(done)),
        Asker::Session(session) => {
            if let Some(worker) = workers.get(usize::from(session.worker.0)) {
                worker.post(Mail::Control(ToWorker::Job { conn: session.conn, done }));
            }
        }
    })
}

/// Starts a thread, which waits until all threads may `begin`. `notices` gets a message when it ends.
fn start_thread(
    name: &str,
    (notices, begin): (&Sender<Notice>, &Arc<OnceLock<()>>),
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (farewell, begin) = (Farewell(notices.clone()), Arc::clone(begin));
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _farewell = farewell;
        begin.wait();
        work();
    })
}

/// Binds a UDP port for each of these workers, and the TCP listener `beside` to the same port
/// number. If the kernel selects a number for one of them that is in use for the other, another
/// number is tried.
fn bind_port(
    of_workers: &mut [Sockets],
    (shared, beside): (&'static Port, Option<&'static Listener>),
    (host, port): (Option<IpAddr>, u16),
    (offer, first): (Offer<'_>, usize),
) -> io::Result<SocketAddr> {
    let workers = u16::try_from(of_workers.len()).unwrap_or(u16::MAX);
    for attempt in 1.. {
        let (address, sockets) = offer.bind_udp(shared.name, (host, port), (first, of_workers.len()))?;
        if let Some(listener) = beside {
            match offer.listen(listener.name, (host, address.port()), (first, of_workers.len())) {
                Ok((_, bound)) => {
                    let pairs = of_workers.iter_mut().zip(bound);
                    pairs.for_each(|(of_worker, one)| of_worker.listeners.push((listener, one)));
                }
                Err(error) if port != 0 || attempt >= FREE_PORT_ATTEMPTS => return Err(error),
                Err(_) => continue,
            }
        }
        for (of_worker, socket) in of_workers.iter_mut().zip(sockets) {
            of_worker.ports.push((shared, UdpSocket::for_many(socket)?, workers));
        }
        return Ok(address);
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// Binds every port, once per worker.
fn bind(server: &ServerSettings, offer: Offer<'_>) -> Result<(Addresses, Vec<Sockets>), StartError> {
    let mut of_workers: Vec<Sockets> = (0..server.workers).map(|_| Sockets::default()).collect();
    let mut addresses = Addresses::default();
    for listener in Listener::all().filter(|listener| listener.beside.is_none()) {
        let Some(Bind { host, port, key }) = listener.listen(server) else { continue };
        let failed = |error| StartError::Bind { key, address: listen::address_of(host, port), error };
        let (address, sockets) =
            offer.listen(listener.name, (host, port), (0, of_workers.len())).map_err(failed)?;
        for (of_worker, socket) in of_workers.iter_mut().zip(sockets) {
            of_worker.listeners.push((listener, socket));
        }
        addresses.insert(listener.name, address);
    }
    for shared in Port::all() {
        let Some(Bind { host, port, key }) = shared.listen(server) else { continue };
        let beside = Listener::all()
            .find(|one| one.beside == Some(shared.name))
            .filter(|one| one.listen(server).is_some());
        let together = if shared.is_of_each_worker(server) { 1 } else { of_workers.len().max(1) };
        for (of_workers, n) in of_workers.chunks_mut(together).zip(0..) {
            let port = if port == 0 { 0 } else { port.saturating_add(n) };
            let failed = |error| StartError::Bind { key, address: listen::address_of(host, port), error };
            let first = usize::from(n).saturating_mul(together);
            let address =
                bind_port(of_workers, (shared, beside), (host, port), (offer, first)).map_err(failed)?;
            addresses.insert(shared.name, address);
        }
    }
    Ok((addresses, of_workers))
}

/// Returns the secret of connections between nodes: the configured one, else in an upgrade the secret of
/// the older process, else a random one. Without a configured secret, only the other process of an upgrade
/// connects as a node, to a private listener.
fn secret_of_nodes(config: &Config, seed: &Seed, successor: Option<&Successor>) -> Vec<u8> {
    match (node_secret(&config.server), successor) {
        (Some(secret), _) => secret.as_bytes().to_vec(),
        (None, Some(successor)) => successor.secret().to_vec(),
        (None, None) => {
            let mut random = [0; 32];
            seed.derive("nodes", 0).random().fill(&mut random);
            random.to_vec()
        }
    }
}

/// The parts of a server that are made first, because the other parts need them.
struct Base {
    records: Records,
    membership: Option<Membership>,
    certificate: (CertificateFiles, Configs),
    addresses: Addresses,
    sockets: Vec<Sockets>,
    /// Address of the relay for an older process of this server.
    own_relay: Option<SocketAddr>,
}

impl Base {
    /// Opens the store and the ports. In an upgrade, the ports are taken from the older process first:
    /// until that process closes the store, the upgrade can still fail without any effect.
    fn lay(config: &Config, options: &Options, successor: Option<&Successor>) -> Result<Self, StartError> {
        let Some(successor) = successor else {
            let (records, membership) = Records::open(config)?;
            jobs::remember(options, config);
            let certificate = certificate(config)?;
            let (addresses, sockets) = bind(&config.server, Offer(None))?;
            return Ok(Self { records, membership, certificate, addresses, sockets, own_relay: None });
        };
        successor.check(&config.server)?;
        jobs::remember(options, config);
        let certificate = certificate(config)?;
        let (addresses, mut sockets) = bind(&config.server, Offer(Some(successor)))?;
        successor.close_rest();
        let (relay, listener) = upgrade::private_relay()?;
        if let Some(first) = sockets.first_mut() {
            first.listeners.push(listener);
            first.private = Some(relay);
        }
        for (of_worker, stream) in sockets.iter_mut().zip(successor.take_strays()) {
            of_worker.strays = Some(stream);
        }
        let Place { guest, membership } = successor.take(relay)?;
        let records = Records::take(config, guest)?;
        let (membership, own_relay) = (Some(membership), Some(relay));
        Ok(Self { records, membership, certificate, addresses, sockets, own_relay })
    }
}

/// Loads the certificate, or makes a self-signed one if there is none. If the files cannot be used, TLS listeners use a
/// temporary certificate, and the files are watched for a change.
fn certificate(config: &Config) -> Result<(CertificateFiles, Configs), CertificateError> {
    let [certificate, chain, key] = config.certificate_files();
    let files = CertificateFiles { certificate, chain, key };
    let names = config
        .server
        .names
        .iter()
        .cloned()
        .chain(["localhost".to_owned()])
        .chain(own_addresses().into_iter().map(|address| address.to_string()));
    let names: Vec<String> = names.collect();
    let loaded = files.recover().and_then(|()| files.make_missing(names.clone())).and_then(|made| {
        if made {
            tracing::info!(file = %files.certificate.display(), "self-signed certificate created");
        }
        files.load()
    });
    let configs = match loaded {
        Ok(configs) => configs,
        Err(error) => {
            tracing::error!(
                %error,
                certificate = %files.certificate.display(),
                chain = %files.chain.display(),
                key = %files.key.display(),
                "certificate unusable; TLS uses a temporary self-signed one until it is replaced"
            );
            CertificateFiles::temporary(names)?
        }
    };
    Ok((files, configs))
}

/// Raises the limit of open files as far as allowed, and returns it; `None` if it could not be read.
fn raise_open_files() -> Option<u64> {
    sys::raise_open_files()
        .inspect_err(|error| tracing::warn!(%error, "limit of open files not readable"))
        .ok()
}

/// Returns the number of processor cores that this process may use.
fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Restores control from the store. Records are decoded while further ones are read, so that at most a few thousand
/// records are in memory in their stored form in addition to the decoded one.
fn restore(store: &mut dyn Store, config: ControlConfig, seed: &Seed) -> Result<Control, StartError> {
    let (sender, batches) = sync_channel::<Result<Vec<(Key, Bytes)>, store::Error>>(2);
    let records = batches.into_iter().map(|batch| Ok(Restored::decode(&batch?)?));
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut batch = Vec::new();
            let read = store.read(&mut |key, bytes| {
                batch.push((key, bytes));
                if batch.len() == RESTORED_AT_ONCE {
                    let _ = sender.send(Ok(mem::take(&mut batch)));
                }
            });
            // Sending fails only if the receiver has stopped, because a record could not be decoded.
            let _ = sender.send(read.map(|()| batch));
        });
        Ok(Control::new(clock::now(), config, records, seed)?)
    })
}

/// Returns the limit, in bytes, of all rings together.
fn ring_bytes(limits: Limits) -> usize {
    match limits.ring_memory {
        0 => host::memory().map_or(RING_BYTES, |bytes| bytes / RING_MEMORY_SHARE),
        bytes => bytes,
    }
}

/// Returns the limit, in bytes, of all segments together.
fn segment_bytes(limits: Limits) -> usize {
    match limits.segment_memory {
        0 => {
            host::memory().map_or(BLOB_BYTES_MIN, |bytes| (bytes / SEGMENT_MEMORY_SHARE).max(BLOB_BYTES_MIN))
        }
        bytes => bytes,
    }
}

/// Returns the limits, with the number of connections reduced to what the descriptors allow.
fn limits_within(limits: Limits, open_files: Option<u64>, in_use: usize) -> Limits {
    let Some(files) = open_files else { return limits };
    let files = usize::try_from(files).unwrap_or(usize::MAX);
    let connections = limits.connections.min(connections_within(files, in_use)).max(1);
    tracing::info!(files, in_use, connections, "descriptors");
    if connections < limits.connections {
        let wanted = limits.connections;
        tracing::warn!(files, connections, wanted, "fewer connections than limits.connections: raise nofile");
    }
    Limits { connections, ..limits }
}

/// Returns the number of connections that this many descriptors allow. Files, pushes, pulls, jobs and the store need
/// some of the descriptors. If there are very few descriptors, half of them are for connections, or fewer if too
/// many are in use already.
const fn connections_within(files: usize, in_use: usize) -> usize {
    let left = files.saturating_sub(FILES_KEPT + files / FILES_KEPT_SHARE);
    let wanted = if left > files / 2 { left } else { files / 2 };
    let free = files.saturating_sub(in_use).saturating_sub(FILES_RESERVED);
    if wanted < free { wanted } else { free }
}

/// Returns the number of open descriptors.
fn files_in_use() -> usize {
    // Reading this folder uses one descriptor itself.
    std::fs::read_dir("/proc/self/fd").map_or(FILES_KEPT, |files| files.count().saturating_sub(1))
}

fn control_config(config: &Config, addresses: &Addresses, seed: &Seed) -> ControlConfig {
    let own_addresses = own_addresses();
    let node: String = format!("{:016x}", seed.derive("node", 0).random().u64());
    ControlConfig {
        server: Arc::clone(&config.server),
        apps: config.apps.clone(),
        lost: config.lost.iter().map(|app| Arc::clone(&app.name)).collect(),
        workers: config.server.workers,
        node,
        host_address: host_address(&own_addresses),
        outbound: OutboundPolicy {
            deny: config.server.outbound.deny.clone(),
            public_only: config.server.outbound.public_only,
            own_addresses,
            own_ports: Listener::all()
                .filter(|listener| listener.manages)
                .filter_map(|listener| addresses.port(listener.name))
                .collect(),
        },
        addresses: addresses.clone(),
        secret: Some(seed.derive("sessions", 0)),
        cluster: None,
    }
}

/// Returns the addresses of the machine's network interfaces, including loopback.
fn own_addresses() -> Vec<IpAddr> {
    match if_addrs::get_if_addrs() {
        Ok(interfaces) => interfaces.into_iter().map(|interface| interface.ip()).collect(),
        Err(error) => {
            tracing::warn!(%error, "addresses of the machine not readable");
            Vec::new()
        }
    }
}

/// Returns the name of this server in records (hostAddress, docs/rest.md): the one set in the environment, else the
/// first private IPv4 address, else any address except loopback.
fn host_address(own: &[IpAddr]) -> String {
    let is_private = |address: &&IpAddr| matches!(address, IpAddr::V4(v4) if v4.is_private());
    let fallback = || own.iter().find(|address| !address.is_loopback());
    std::env::var("AMS_HOST_ADDRESS").ok().filter(|address| !address.is_empty()).unwrap_or_else(|| {
        own.iter()
            .find(is_private)
            .or_else(fallback)
            .map_or_else(|| "127.0.0.1".to_owned(), ToString::to_string)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_11_connections_follow_the_descriptors() {
        let limits = |connections: &str, files| {
            let server = ServerSettings::with(&[("limits.connections", connections)]).unwrap();
            limits_within(server.limits, files, 40).connections
        };
        assert_eq!(limits("20000", Some(1_048_576)), 20_000, "the setting");
        assert_eq!(limits("20000", Some(1024)), 1024 - 64 - 128);
        assert_eq!((limits("20000", Some(96)), limits("20000", Some(64))), (48, 64 - 40 - 8));
        assert_eq!((limits("20000", Some(48)), limits("20000", Some(40))), (1, 1));
        assert_eq!((limits("100", Some(1024)), limits("20000", Some(0)), limits("7", None)), (100, 1, 7));
    }
}
