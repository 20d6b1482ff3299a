//! The threads of a node that talk to the cluster's directory. Each has its own connection:
//! 1. `store` makes commits and claims, and reads the changes of other nodes, all in one order.
//! 2. `directory` waits for changes in the directory, and wakes `store` when there are any.
//! 3. `lease` renews the node's lease. It has no other task, so no load can delay it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

use super::control_thread::{ControlMail, ControlSender};
use super::local;
use super::upgrade::{Guest, Keeper, KeeperMail, own_process};
use crate::config::{ClusterSettings, Config};
use crate::control::Membership;
use crate::directory::{Address, ClockWatch, Link, News, Process, Profile, Request, Shared};
use crate::store::{self, Error, RedbStore, Store};
use crate::types::NodeId;

/// Pause before a lost connection is opened again.
const PAUSE: Duration = Duration::from_millis(250);
/// Number of times that a lease is renewed within its duration.
const SIGNS_PER_LEASE: u32 = 4;

/// Mail of the store's thread.
#[derive(Debug)]
pub(super) enum DirectoryMail {
    /// A request to the store.
    Store(store::Request),
    /// A request to the directory.
    Directory(Request),
    /// The directory may have changed. The answer is the number of the newest change reported so far.
    Bell(SyncSender<u64>),
    /// The server has ended.
    End,
}

/// Sender to the store's thread.
#[derive(Debug)]
pub(super) enum StoreSender {
    /// The store of a single server.
    Alone(Sender<KeeperMail>),
    /// The store of a node in a cluster.
    Shared(Sender<DirectoryMail>),
}

impl StoreSender {
    /// Returns the sender to the store's thread of a single server.
    pub(super) fn keeper(&self) -> Option<Sender<KeeperMail>> {
        match self {
            Self::Alone(sender) => Some(sender.clone()),
            Self::Shared(_) => None,
        }
    }

    pub(super) fn store(&self, request: store::Request) {
        match self {
            Self::Alone(sender) => drop(sender.send(KeeperMail::Store(request))),
            Self::Shared(sender) => drop(sender.send(DirectoryMail::Store(request))),
        }
    }

    pub(super) fn directory(&self, request: Request) {
        match self {
            Self::Alone(sender) => drop(sender.send(KeeperMail::Directory(request))),
            Self::Shared(sender) => drop(sender.send(DirectoryMail::Directory(request))),
        }
    }
}

/// Ends the store's thread. Closing the channel would not be enough, because other threads also hold senders.
impl Drop for StoreSender {
    fn drop(&mut self) {
        match self {
            Self::Alone(sender) => drop(sender.send(KeeperMail::End)),
            Self::Shared(sender) => drop(sender.send(DirectoryMail::End)),
        }
    }
}

/// The records of a server before its threads are started.
#[derive(Debug)]
pub(super) enum Records {
    /// In the store of a single server.
    Alone(Box<Alone>),
    /// In the directory of a cluster.
    Shared(Box<Joined>),
}

/// The store of a single server.
#[derive(Debug)]
pub(super) struct Alone {
    path: PathBuf,
    store: Box<RedbStore>,
    /// An older process of this server, from which this one takes over.
    guest: Option<Guest>,
}

impl Alone {
    fn open(config: &Config, guest: Option<Guest>) -> Result<Self, Error> {
        Ok(Self { path: config.store_file(), store: Box::new(local::open_store(config)?), guest })
    }
}

/// The body of the store's thread.
type Work = Box<dyn FnOnce() + Send>;

impl Records {
    /// Opens the store, or joins the cluster.
    pub(super) fn open(config: &Config) -> Result<(Self, Option<Membership>), Error> {
        match config.server.cluster() {
            Some(cluster) => {
                let (joined, membership) = Joined::join(&cluster)?;
                Ok((Self::Shared(Box::new(joined)), Some(membership)))
            }
            None => Ok((Self::Alone(Box::new(Alone::open(config, None)?)), None)),
        }
    }

    /// Opens the store that an older process of this server has closed.
    pub(super) fn take(config: &Config, guest: Guest) -> Result<Self, Error> {
        Ok(Self::Alone(Box::new(Alone::open(config, Some(guest))?)))
    }

    /// Opens the store or connects to the directory, for a tool that uses the records but is not a node of the
    /// cluster.
    pub(super) fn visit(config: &Config) -> Result<Self, Error> {
        match config.server.cluster() {
            Some(cluster) => Ok(Self::Shared(Box::new(Joined::visit(&cluster)?))),
            None => Ok(Self::Alone(Box::new(Alone::open(config, None)?))),
        }
    }

    pub(super) fn store(&mut self) -> &mut dyn Store {
        match self {
            Self::Alone(alone) => &mut *alone.store,
            Self::Shared(joined) => &mut joined.shared,
        }
    }

    /// Returns the sender to the store's thread, and the function that the thread runs. Publishes the addresses of
    /// this node's HTTP listener and relay to the other nodes.
    pub(super) fn start(
        self,
        listeners: Listeners<'_>,
        control: ControlSender,
    ) -> io::Result<(StoreSender, Work)> {
        match self {
            Self::Alone(alone) => {
                let (sender, queue) = channel();
                let Alone { path, store, guest } = *alone;
                let keeper = Keeper::new((path, store), own_process(), guest, (control, sender.clone()))?;
                Ok((StoreSender::Alone(sender), Box::new(move || keeper.run(&queue))))
            }
            Self::Shared(joined) => {
                let (sender, queue) = channel();
                let directory = joined.start(listeners, sender.clone(), &control)?;
                Ok((StoreSender::Shared(sender), Box::new(move || directory.run(&queue, &control))))
            }
        }
    }
}

/// The connections of a node, before its threads are started.
#[derive(Debug)]
pub(super) struct Joined {
    shared: Shared,
    lease: Duration,
    profile: Arc<Mutex<Profile>>,
}

impl Joined {
    /// Connects without joining the cluster as a node.
    fn visit(settings: &ClusterSettings) -> Result<Self, Error> {
        let address =
            Address::new(&settings.url, &settings.name).map_err(|error| failed(error.to_string()))?;
        let node = settings.node.clone().or_else(host_name);
        let node = node.ok_or_else(|| failed("the host has no name: set cluster.node".to_owned()))?;
        let shared = Shared::open(address, node, settings.lease)?;
        let profile = Profile {
            relay: settings.relay_address.as_str().into(),
            region: settings.region.as_str().into(),
            is_regional_relay: settings.is_regional_relay,
            public: settings.public_address.as_str().into(),
            ..Profile::default()
        };
        Ok(Self { shared, lease: settings.lease, profile: Arc::new(Mutex::new(profile)) })
    }

    /// Connects, and acquires the node's lease.
    fn join(settings: &ClusterSettings) -> Result<(Self, Membership), Error> {
        let mut joined = Self::visit(settings)?;
        let shared = &mut joined.shared;
        let profile = joined.profile.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let renewed = Link::connect(shared.address()).and_then(|mut link| {
            link.forget_presences(shared.own())?;
            link.renew(shared.own(), settings.lease, &profile)
        });
        let census = renewed.map_err(|error| failed(error.to_string()))?;
        let Process { node, incarnation } = shared.own().clone();
        tracing::info!(%node, incarnation, nodes = census.nodes.len(), "cluster joined");
        let membership = Membership {
            node,
            incarnation,
            lease: settings.lease,
            without_directory: settings.without_directory,
            nodes: census.nodes,
            claims: shared.take_claims().into_iter().collect(),
            is_pair: false,
        };
        Ok((joined, membership))
    }

    /// Starts the other threads: all but the store's own.
    fn start(
        self,
        listeners: Listeners<'_>,
        mail: Sender<DirectoryMail>,
        control: &ControlSender,
    ) -> io::Result<Directory> {
        let Self { shared, lease, profile } = self;
        locked(&profile, |profile| {
            profile.http = listeners.public(listeners.http);
            // Addresses that the operator has set take precedence, because they may belong to an address
            // translator.
            if profile.relay.is_empty() {
                profile.relay = listeners.public(listeners.relay);
            }
        });
        let (address, own) = (shared.address().clone(), shared.own().clone());
        let bell_address = address.clone();
        thread::Builder::new().name("directory".to_owned()).spawn(move || ring(&bell_address, &mail))?;
        let (sender, ordered) = channel();
        let signs = Signs { address, own, lease, profile: Arc::clone(&profile), ordered };
        let control = control.clone();
        thread::Builder::new().name("lease".to_owned()).spawn(move || signs.give(&control))?;
        Ok(Directory { shared, profile, signs: sender })
    }
}

/// The listeners of a node to which other nodes connect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listeners<'a> {
    /// Host to announce for a listener that is bound to all addresses.
    pub(super) host: &'a str,
    /// The listener of HTTP.
    pub(super) http: Option<SocketAddr>,
    /// The listener of the relay.
    pub(super) relay: Option<SocketAddr>,
}

impl Listeners<'_> {
    /// Returns `host:port` at which other nodes reach a listener; empty if there is no listener.
    fn public(&self, listener: Option<SocketAddr>) -> Arc<str> {
        let Some(address) = listener else { return Arc::default() };
        if !address.ip().is_unspecified() {
            return address.to_string().into();
        }
        let host = self.host;
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        format!("{host}:{}", address.port()).into()
    }
}

/// The state of the store's thread.
#[derive(Debug)]
struct Directory {
    shared: Shared,
    profile: Arc<Mutex<Profile>>,
    /// A message makes the lease's thread renew the lease immediately. Dropping the sender ends
    /// that thread.
    signs: Sender<()>,
}

fn locked(profile: &Mutex<Profile>, change: impl FnOnce(&mut Profile)) {
    change(&mut profile.lock().unwrap_or_else(PoisonError::into_inner));
}

fn failed(reason: String) -> Error {
    Error::Io { path: "cluster.url".to_owned(), reason }
}

/// Returns the host's name, if it is a valid node name.
fn host_name() -> Option<NodeId> {
    NodeId::new(fs::read_to_string("/proc/sys/kernel/hostname").ok()?.trim())
}

impl Directory {
    /// The function that the store's thread runs: handles requests in order until the server ends.
    fn run(mut self, queue: &Receiver<DirectoryMail>, control: &ControlSender) {
        while let Ok(mail) = queue.recv() {
            match mail {
                DirectoryMail::Store(request) => {
                    let reply = store::handle(&mut self.shared, request);
                    if !self.shared.take_is_ahead() {
                        self.tell(control);
                    }
                    control.send(ControlMail::Store(reply));
                    self.tell(control);
                }
                DirectoryMail::Directory(Request::Load { cpu, memory }) => {
                    locked(&self.profile, |profile| {
                        (profile.cpu_percent, profile.memory_percent) = (cpu, memory);
                    });
                }
                DirectoryMail::Directory(Request::Draining(is_draining)) => {
                    locked(&self.profile, |profile| profile.is_draining = is_draining);
                    let _ = self.signs.send(());
                }
                DirectoryMail::Directory(request) => {
                    self.shared.handle_request(request);
                    self.tell(control);
                }
                DirectoryMail::Bell(answer) => {
                    self.shared.read_on();
                    self.tell(control);
                    let _ = answer.send(self.shared.last());
                }
                DirectoryMail::End => break,
            }
        }
        self.shared.close();
    }

    fn tell(&mut self, control: &ControlSender) {
        while let Some(news) = self.shared.poll_news() {
            control.send(ControlMail::Directory(news));
        }
    }
}

/// Wakes the store's thread when the directory has changed, and about every second in any case.
fn ring(address: &Address, mail: &Sender<DirectoryMail>) {
    let (mut link, mut last) = (None, 0);
    loop {
        let waited = match link.take() {
            Some(link) => Ok(link),
            None => Link::connect(address),
        };
        match waited.and_then(|mut link: Link| link.wait(last).map(|()| link)) {
            Ok(waited) => link = Some(waited),
            Err(_) => thread::sleep(PAUSE),
        }
        let (answer, answered) = sync_channel(1);
        if mail.send(DirectoryMail::Bell(answer)).is_err() {
            return;
        }
        match answered.recv() {
            Ok(told) => last = told,
            Err(_) => return,
        }
    }
}

/// State of the thread that renews the node's lease.
struct Signs {
    address: Address,
    own: Process,
    lease: Duration,
    profile: Arc<Mutex<Profile>>,
    /// Each message is an order to renew the lease immediately.
    ordered: Receiver<()>,
}

impl Signs {
    fn give(self, control: &ControlSender) {
        let mut link: Option<Link> = None;
        let (mut is_newest, mut watch) = (true, ClockWatch::default());
        loop {
            let profile = self.profile.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let connected = match link.take() {
                Some(link) => Ok(link),
                None => Link::connect(&self.address),
            };
            let renewed = connected.and_then(|mut link| {
                let census = link.renew(&self.own, self.lease, &profile)?;
                Ok((link, census))
            });
            let mut pause = self.lease / SIGNS_PER_LEASE;
            match renewed {
                Ok((renewed, census)) => {
                    link = Some(renewed);
                    if std::mem::replace(&mut is_newest, census.is_newest) && !census.is_newest {
                        let node = &self.own.node;
                        tracing::error!(%node, "node name is taken by another process: set cluster.node");
                    }
                    if watch.has_stepped(Instant::now(), census.time_ms, self.lease) {
                        control.send(ControlMail::Directory(News::ClockSet));
                    }
                    control.send(ControlMail::Directory(News::Nodes(census.nodes)));
                }
                Err(error) => {
                    tracing::debug!(%error, "the lease was not renewed");
                    pause = pause.min(PAUSE);
                }
            }
            match self.ordered.recv_timeout(pause) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}
