//! The whole server in virtual time: workers, control, hub and store as they are, wires from `netsim`, clients
//! made of the client machines. One thread, one clock, one seed: the same seed gives the same bytes.
//!
//! The scheduling of the server's threads is simulated by pausing machines ([`Chaos`]): a machine pauses while the
//! others continue, also between two messages that it takes or sends. As in the server, mail enters its receiver's
//! queue when it is sent. Therefore no message overtakes an earlier one, but every message may be late.

mod backstage;
mod chaos;
mod clients;
mod damage;
mod network;
mod paths;
mod rtsp;
mod webrtc;
mod workers;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::{Random, Seed};
use millstream::auth::OutboundPolicy;
use millstream::config::{AppSettings, ServerSettings};
use millstream::control::ControlConfig;
use millstream::mail::ToWorker;
use millstream::protocol::load::{LoadPlayer, LoadPublisher, LoadTarget, patience};
use millstream::protocol::{Addresses, Binding, Listener};
use millstream::types::{Now, StreamId, WorkerId};
use millstream::worker::Worker;
use netsim::{Clock, Cut, Link, MediaSource, StreamLink, Trace, Verifier, ms, secs};
use rtmp::{Client, ClientConfig};

pub use backstage::Backstage;
pub use chaos::Chaos;
use chaos::Threads;
pub use clients::{Got, Sent, Story, heads};
use clients::{Machine, Role, SimClient, Way};
use damage::Damage;
use network::{End, LineEnd, Network, Place};
pub use paths::Path;
use rtsp::RtspViewer;
use workers::WorkerMail;

/// Maximum number of rounds at one instant; a world that needs more is stuck.
const ROUNDS_MAX: usize = 100_000;
/// Addresses that the simulated server listens at; its own pushes and pulls connect to them, too.
const RTMP: &str = "127.0.0.1:1935";
const HTTP: &str = "127.0.0.1:5080";
const SRT: &str = "127.0.0.1:8890";
const RTSP: &str = "127.0.0.1:5554";

/// The simulated server, its network and its clients.
pub struct World {
    clock: Clock,
    /// Shift of the wall clock so far.
    wall_shift_ms: i64,
    random: Random,
    seed: Seed,
    workers: Vec<Worker>,
    inboxes: Vec<VecDeque<WorkerMail>>,
    /// The streams that were announced to workers, by application and id.
    streams: BTreeMap<(String, String), StreamId>,
    backstage: Backstage,
    threads: Threads,
    network: Network,
    clients: Vec<SimClient>,
    /// Clients that have not closed.
    present: Vec<usize>,
    trace: Trace,
    /// Number of servers started so far.
    lives: u64,
    /// True if the server's helper threads transcode audio.
    pub(super) computes: bool,
    /// True if the server's disk takes recordings.
    pub(super) records: bool,
}

/// A client of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(usize);

/// Protocol of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    Rtmp,
    Flv,
    WsFlv,
    Srt,
    /// RTSP with packets interleaved in the connection.
    Rtsp,
    /// RTSP with datagrams.
    RtspUdp,
    /// WebRTC by WHIP and WHEP.
    WebRtc,
}

impl Over {
    /// True if only a goodbye shows that a peer is gone, because there is no connection to break.
    pub fn is_datagrams(self) -> bool {
        matches!(self, Self::Srt | Self::WebRtc | Self::RtspUdp)
    }
}

impl World {
    pub fn new(seed: u64, workers: u16, settings: &[(&str, &str)]) -> Self {
        Self::with_chaos(seed, workers, settings, Chaos::NONE)
    }

    /// Creates a server whose threads and neighbours have these faults.
    pub fn with_chaos(seed: u64, workers: u16, settings: &[(&str, &str)], chaos: Chaos) -> Self {
        let clock = Clock::new();
        let trace = Trace::new(seed);
        let seed = Seed::from_number(seed);
        let now = Now { mono: clock.now(), wall_ms: clock.wall_ms() };
        let app = |name| app_of(name, settings);
        let server = ServerSettings::with(&[("store.backup_hours", "0")]).unwrap();
        let own = "127.0.0.1".parse().unwrap();
        let outbound =
            OutboundPolicy { own_addresses: vec![own], own_ports: vec![5080], ..OutboundPolicy::default() };
        let config = ControlConfig {
            workers,
            node: "simulated".into(),
            outbound,
            addresses: Addresses::of(&[("rtmp", 1935)]),
            ..ControlConfig::alone(server, vec![app("live"), app("copies")])
        };
        let backstage = Backstage::new(now, config, &seed);
        Self {
            random: seed.derive("world", 0).random(),
            workers: workers_of(now, workers, &seed),
            inboxes: (0..workers).map(|_| VecDeque::new()).collect(),
            streams: BTreeMap::new(),
            backstage,
            threads: Threads::new(&seed, workers, chaos),
            network: Network::default(),
            clients: Vec::new(),
            present: Vec::new(),
            trace,
            clock,
            wall_shift_ms: 0,
            seed,
            lives: 1,
            computes: false,
            records: false,
        }
    }

    /// Adds helper threads that transcode: without them there is no conversion between Opus and AAC.
    pub fn computing(self) -> Self {
        Self { computes: true, ..self }
    }

    /// Adds a disk for recordings: without it every recording fails.
    pub fn recording(self) -> Self {
        Self { records: true, ..self }
    }

    // ---- what happens in it

    /// Adds a publisher on a random worker.
    pub fn publish(&mut self, app: &str, id: &str, source: MediaSource) -> Id {
        let role = Role::publish(source);
        self.rtmp_client(app, id, role, Client::publish)
    }

    /// Adds a viewer on a random worker.
    pub fn play(&mut self, app: &str, id: &str) -> Id {
        let role = Role::play(Some(Verifier::new()));
        self.rtmp_client(app, id, role, Client::play)
    }

    /// Adds a publisher over a protocol that supports publishing.
    pub fn publish_over(&mut self, over: Over, app: &str, id: &str, source: MediaSource) -> Id {
        match over {
            Over::Rtmp => self.publish(app, id, source),
            Over::Srt | Over::Rtsp | Over::WebRtc => {
                let (now, seed) = (self.clock.now(), self.client_seed());
                let target = target(over, app, id, "publish");
                let heads = heads(&source);
                let machine = target.publish(now, patience(secs(10), secs(30)), seed, &heads).unwrap();
                let (machine, role) = (Machine::Publisher(machine), Role::publish(source));
                self.come(over, machine, role)
            }
            Over::Flv | Over::WsFlv | Over::RtspUdp => panic!("nobody publishes over {over:?}"),
        }
    }

    /// Adds a viewer whose units are kept for a judge ([`World::got`]).
    pub fn watch_over(&mut self, over: Over, app: &str, id: &str) -> Id {
        let role = Role::play(None);
        if over == Over::Rtmp {
            return self.rtmp_client(app, id, role, Client::play);
        }
        let (now, seed) = (self.clock.now(), self.client_seed());
        if let Over::Rtsp | Over::RtspUdp = over {
            let ports = (over == Over::RtspUdp).then(|| rtsp::first_port(self.clients.len()));
            let machine = RtspViewer::new(now, &url(over, app, id, "request"), ports, seed);
            return self.come(over, Machine::Player(Box::new(machine)), role);
        }
        // The timeouts are long: if there is no media, the server must end the connection, and not a timer of the
        // viewer.
        let patience = patience(secs(600), secs(600));
        let machine = Machine::Player(target(over, app, id, "request").play(now, patience, seed).unwrap());
        self.come(over, machine, role)
    }

    /// Adds a publisher whose machine decides by itself what to send.
    pub fn publish_by(&mut self, over: Over, machine: Box<dyn LoadPublisher>) -> Id {
        self.come(over, Machine::Publisher(machine), Role::Own)
    }

    /// Adds a publisher of `source` whose machine the test provides.
    pub fn publish_from(&mut self, over: Over, machine: Box<dyn LoadPublisher>, source: MediaSource) -> Id {
        self.come(over, Machine::Publisher(machine), Role::publish(source))
    }

    /// Adds a viewer whose machine keeps what it receives.
    pub fn watch_by(&mut self, over: Over, machine: Box<dyn LoadPlayer>) -> Id {
        self.come(over, Machine::Player(machine), Role::Own)
    }

    /// Adds a viewer behind a link of `rate` bits a second that holds `window` bytes.
    pub fn play_slowly(&mut self, app: &str, id: &str, rate: u64, window: usize) -> Id {
        let viewer = self.play(app, id);
        self.slow_down(viewer, rate, window);
        viewer
    }

    /// Limits the link towards a client to `rate` bits a second from now on. A TCP link holds `window` bytes; a
    /// datagram link queues half a second of data and drops the rest.
    pub fn slow_down(&mut self, id: Id, rate: u64, window: usize) {
        let way = self.clients[id.0].way;
        if let Some(line) = way.line() {
            let link = Link::new(&self.seed.derive("slow line", line as u64));
            self.network.lines[line].links[1] = link.latency(ms(10)).rate(rate);
        }
        if let Some(wire) = way.wire() {
            let link = StreamLink::new(&self.seed.derive("slow link", wire as u64));
            self.network.wires[wire].links[1] = link.latency(ms(10)).rate(rate).window(window);
        }
    }

    /// True if the server said goodbye to a viewer instead of only cutting it off.
    pub fn said_goodbye(&self, id: Id) -> bool {
        self.clients[id.0].story.goodbye
    }

    /// Sends an API request; [`World::answer`] returns the answer.
    pub fn request(&mut self, head: &str, body: &str) -> Id {
        self.request_of(head, "application/json", body)
    }

    /// Sends a request whose body has this type.
    pub fn request_of(&mut self, head: &str, kind: &str, body: &str) -> Id {
        let text = format!(
            "{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let id = self.connect("http", Machine::Http, Role::Http { answer: Vec::new() });
        self.clients[id.0].queue.push(Bytes::from(text));
        id
    }

    /// Cuts a client's connection without a goodbye; data in transit is lost.
    pub fn reset(&mut self, id: Id) {
        let now = self.clock.now();
        let way = self.clients[id.0].way;
        if let Some(wire) = way.wire() {
            self.network.wires[wire].links.iter_mut().for_each(|link| link.reset_at(now));
        }
        if let Some(line) = way.line() {
            self.network.lines[line].is_dark = true;
        }
        self.clients[id.0].leave(now);
        self.clients[id.0].gone(now);
    }

    /// From now on, nothing arrives in either direction between a client and the server, and neither side is notified.
    pub fn go_dark(&mut self, id: Id) {
        let now = self.clock.now();
        let way = self.clients[id.0].way;
        if let Some(wire) = way.wire() {
            self.network.wires[wire].links.iter_mut().for_each(|link| link.dark_from(now));
        }
        if let Some(line) = way.line() {
            self.network.lines[line].is_dark = true;
        }
        self.clients[id.0].leave(now);
    }

    /// Damages a client's bytes from now on. `directions` selects the bytes from the client, and those to it.
    pub fn damage(&mut self, id: Id, directions: [bool; 2]) {
        let seed = self.seed.derive("damage", id.0 as u64);
        let one = |side: usize| Damage::new(&seed.derive("direction", side as u64), directions[side]);
        let both = || Some([0, 1].map(one));
        let way = self.clients[id.0].way;
        if let Some(wire) = way.wire() {
            self.network.wires[wire].damage = both();
        }
        if let Some(line) = way.line() {
            self.network.lines[line].damage = both();
        }
    }

    /// Bytes delivered from or to clients whose bytes may be damaged.
    pub fn damaged_bytes(&self) -> usize {
        self.network.damaged_bytes
    }

    /// Lets a client say goodbye.
    pub fn close(&mut self, id: Id) {
        let now = self.clock.now();
        self.clients[id.0].leave(now);
        self.clients[id.0].close(now);
    }

    /// Takes the media source of a publisher, to continue it from another publisher.
    pub fn source_of(&mut self, id: Id) -> MediaSource {
        match &mut self.clients[id.0].role {
            Role::Publish { source, .. } => {
                *std::mem::replace(source, Box::new(MediaSource::new(&Seed::from_number(0))))
            }
            _ => panic!("not a publisher"),
        }
    }

    pub fn drain(&mut self) {
        let now = self.now();
        self.backstage.control.drain(now);
    }

    /// Replaces all applications and their settings, and reloads them. A server that is started later has them,
    /// too.
    pub fn install(&mut self, apps: &[(&str, &[(&str, &str)])]) {
        let app = |(name, settings): &(&str, &[(&str, &str)])| app_of(name, settings);
        self.backstage.install(apps.iter().map(app).collect());
    }

    /// Sets the machine's wall clock forward or back.
    pub fn shift_wall(&mut self, by_ms: i64) {
        self.wall_shift_ms += by_ms;
    }

    /// Returns the wall clock in milliseconds of Unix time.
    pub fn wall_ms(&self) -> i64 {
        i64::try_from(self.now().wall_ms).unwrap()
    }

    /// Reports the loudness of a stream in -dBov to the workers, as the worker of its publisher does.
    pub fn speak(&mut self, app: &str, id: &str, level: u8) {
        let Some(stream) = self.streams.get(&(app.to_owned(), id.to_owned())).copied() else { return };
        for inbox in &mut self.inboxes {
            inbox.push_back(WorkerMail::Control(ToWorker::Loudness { stream, level }));
        }
    }

    /// Pauses a thread of the server for this time. The last thread is control's.
    pub fn pause(&mut self, thread: usize, time: Duration) {
        let until = self.clock.now() + time;
        self.threads.pause(thread, until);
    }

    /// Cuts the server's power: connections end, and only committed records remain.
    pub fn crash(&mut self) {
        let now = self.now();
        self.network.cut_all(now.mono);
        // A client that is still connecting over datagrams would continue with the next server unnoticed, so its
        // line goes dark.
        for client in self.clients.iter().filter(|client| client.story.ready.is_none()) {
            if let Some(line) = client.way.line() {
                self.network.lines[line].is_dark = true;
            }
        }
        let seed = self.seed.derive("life", self.lives);
        self.lives += 1;
        let count = u16::try_from(self.workers.len()).unwrap();
        self.workers = workers_of(now, count, &seed);
        self.inboxes.iter_mut().for_each(VecDeque::clear);
        self.threads.wake_all();
        // The disk may or may not have carried out its last request.
        let is_done = self.random.chance(0.5);
        self.backstage.restart(now, &seed, is_done);
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.clock.now() + time;
        self.run(end, |_| false);
    }

    /// Lets time pass until `condition` holds.
    ///
    /// # Panics
    /// If `condition` does not hold within `limit`.
    pub fn run_until(&mut self, what: &str, limit: Duration, condition: impl FnMut(&mut Self) -> bool) {
        let end = self.clock.now() + limit;
        assert!(self.run(end, condition), "{}: not within {limit:?}: {what}", self.trace);
    }

    // ---- what can be seen of it

    pub fn is_ready(&self, id: Id) -> bool {
        self.clients[id.0].story.ready.is_some()
    }

    pub fn is_closed(&self, id: Id) -> bool {
        self.clients[id.0].story.closed.is_some()
    }

    pub fn rejection(&self, id: Id) -> Option<&str> {
        self.clients[id.0].story.rejected.as_deref()
    }

    /// Returns the events of a client, with their times.
    pub fn story(&self, id: Id) -> &Story {
        &self.clients[id.0].story
    }

    /// Returns the verifier of a viewer's units, and the number of times that its timestamps fell.
    pub fn seen(&self, id: Id) -> (&Verifier, u64) {
        match &self.clients[id.0].role {
            Role::Play { verifier: Some(verifier), falls, .. } => (verifier, *falls),
            _ => panic!("not a viewer"),
        }
    }

    /// Returns the units that a viewer was sent.
    pub fn got(&self, id: Id) -> &[Got] {
        match &self.clients[id.0].role {
            Role::Play { got, .. } => got,
            _ => panic!("not a viewer"),
        }
    }

    /// Returns the units that a publisher has sent.
    pub fn sent(&self, id: Id) -> &[Sent] {
        match &self.clients[id.0].role {
            Role::Publish { sent, .. } => sent,
            _ => panic!("not a publisher"),
        }
    }

    pub fn answer(&self, id: Id) -> Option<String> {
        self.answer_bytes(id).map(|answer| String::from_utf8_lossy(answer).into_owned())
    }

    /// Returns the answer to a request as bytes; `None` before its end.
    pub fn answer_bytes(&self, id: Id) -> Option<&[u8]> {
        match &self.clients[id.0].role {
            Role::Http { answer } if self.is_closed(id) => Some(answer),
            _ => None,
        }
    }

    pub fn trace(&self) -> Trace {
        self.trace
    }

    pub fn has_exited(&self) -> bool {
        self.backstage.exited
    }

    pub const fn backstage(&self) -> &Backstage {
        &self.backstage
    }

    /// Returns the records on the disk of the server.
    pub fn stored(&mut self) -> Vec<(millstream::store::Key, Bytes)> {
        self.backstage.stored()
    }

    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    pub fn connections(&self) -> usize {
        self.workers.iter().map(Worker::connections).sum()
    }

    pub fn retained_bytes(&self) -> usize {
        self.workers.iter().map(Worker::retained_bytes).sum()
    }

    /// Returns the number of entries in each table of the workers and of control.
    pub fn held(&self) -> Vec<(String, usize)> {
        let of_worker = |(index, worker): (usize, &Worker)| {
            worker.held().into_iter().map(move |(name, count)| (format!("worker {index}: {name}"), count))
        };
        let of_control = self.backstage.control.held().into_iter();
        let of_control = of_control.map(|(name, count)| (format!("control: {name}"), count));
        let all = self.workers.iter().enumerate().flat_map(of_worker).chain(of_control);
        all.filter(|(_, count)| *count > 0).collect()
    }

    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    pub fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    pub fn instant(&self) -> Instant {
        self.clock.now()
    }

    // ---- connections

    pub fn client_seed(&self) -> Seed {
        self.seed.derive("client", self.clients.len() as u64)
    }

    fn rtmp_client(
        &mut self,
        app: &str,
        id: &str,
        role: Role,
        begin: impl FnOnce(Instant, Arc<ClientConfig>, Seed) -> Client,
    ) -> Id {
        let config = ClientConfig {
            app: app.to_owned(),
            tc_url: format!("rtmp://{RTMP}/{app}"),
            stream: id.to_owned(),
            digest: self.random.chance(0.5),
            ..ClientConfig::default()
        };
        let machine = begin(self.clock.now(), Arc::new(config), self.client_seed());
        self.connect("rtmp", Machine::Rtmp(Box::new(machine)), role)
    }

    /// Adds a client over this protocol.
    fn come(&mut self, over: Over, machine: Machine, role: Role) -> Id {
        match over {
            Over::Rtmp => self.connect("rtmp", machine, role),
            Over::Rtsp => self.connect("rtsp", machine, role),
            Over::RtspUdp => self.connect_beside(machine, role),
            Over::Flv | Over::WsFlv => self.connect("http", machine, role),
            Over::Srt => self.call(machine, role),
            Over::WebRtc => self.meet(machine, role),
        }
    }

    fn any_worker(&mut self) -> usize {
        usize::try_from(self.random.below(self.workers.len() as u64)).unwrap()
    }

    /// Adds a client over TCP.
    fn connect(&mut self, listener: &str, machine: Machine, role: Role) -> Id {
        let wire = self.wire(self.clients.len(), listener);
        self.enter(Way::Wire(wire), machine, role)
    }

    /// Adds a client over TCP that also receives datagrams, each kind from a socket of its own.
    fn connect_beside(&mut self, machine: Machine, role: Role) -> Id {
        let client = self.clients.len();
        let wire = self.wire(client, "rtsp");
        let server = match self.network.wires[wire].ends[1] {
            End::Worker(worker, conn) => LineEnd::Paths(worker, conn),
            End::Client(_) | End::Gone => LineEnd::Gone,
        };
        let (ends, latency) = ([LineEnd::Client(client), server], self.line_latency());
        let line = self.network.add_line(&self.seed, ends, address_of(client), Place::rtsp(), latency);
        self.enter(Way::Both { wire, line }, machine, role)
    }

    /// Connects a client to a random worker.
    fn wire(&mut self, client: usize, listener: &str) -> usize {
        let worker = self.any_worker();
        let now = self.now();
        let conn = self.workers[worker].accept(now, Listener::named(listener).unwrap(), address_of(client));
        let end = conn.map_or(End::Gone, |conn| End::Worker(worker, conn));
        let links = self.links();
        let wire = self.network.add_wire([End::Client(client), end], links);
        if conn.is_none() {
            // The connection is refused: the server no longer listens.
            self.network.wires[wire].links[1].reset_at(now.mono);
        }
        wire
    }

    /// Draws the latency of a line. With losses it is short, so that several retransmissions fit into SRT's 120 ms.
    pub(super) fn line_latency(&mut self) -> Duration {
        let latency = ms(self.random.below(40));
        if self.threads.chaos.datagrams_lost > 0.0 { latency / 8 } else { latency }
    }

    /// Adds a client over datagrams.
    fn call(&mut self, machine: Machine, role: Role) -> Id {
        let client = self.clients.len();
        let worker = self.any_worker();
        let latency = self.line_latency();
        let ends = [LineEnd::Client(client), LineEnd::Port(worker)];
        let line = self.network.add_line(&self.seed, ends, address_of(client), Place::srt(), latency);
        self.enter(Way::Line(line), machine, role)
    }

    fn enter(&mut self, way: Way, machine: Machine, role: Role) -> Id {
        let id = self.clients.len();
        self.clients.push(SimClient::new(self.clock.now(), way, machine, role));
        self.present.push(id);
        Id(id)
    }

    /// Makes the links of both directions, with random delays and cuts of the byte stream.
    fn links(&mut self) -> [StreamLink; 2] {
        let number = self.network.wires.len() as u64;
        let latency = ms(self.random.below(40));
        let cut = match self.random.below(3) {
            0 => Cut::Never,
            1 => Cut::Random(1400),
            _ => Cut::Random(50),
        };
        [0, 1].map(|side| {
            let link = StreamLink::new(&self.seed.derive("link", number * 2 + side));
            link.latency(latency).cut(cut).window(256 * 1024)
        })
    }

    // ---- time

    fn now(&self) -> Now {
        let wall_ms = self.clock.wall_ms().saturating_add_signed(self.wall_shift_ms);
        Now { mono: self.clock.now(), wall_ms }
    }

    fn run(&mut self, end: Instant, mut condition: impl FnMut(&mut Self) -> bool) -> bool {
        loop {
            self.settle();
            if condition(self) {
                return true;
            }
            let Some(next) = self.next_at().filter(|next| *next <= end) else {
                self.clock.advance_to(end);
                return false;
            };
            self.clock.advance_to(next.max(self.clock.now()));
        }
    }

    fn next_at(&mut self) -> Option<Instant> {
        let control = self.workers.len();
        let mut next: Vec<Instant> = Vec::new();
        for (index, worker) in self.workers.iter().enumerate() {
            next.extend(self.threads.wakes(index).or_else(|| worker.poll_timeout()));
        }
        next.extend(self.threads.wakes(control).or_else(|| self.backstage.control.poll_timeout()));
        next.extend(self.backstage.next_at());
        next.extend(self.network_next_at());
        for client in &self.present {
            next.extend(self.clients[*client].next_at());
        }
        next.into_iter().min()
    }

    /// Runs everything that happens at this instant, until nothing more happens.
    fn settle(&mut self) {
        self.threads.wake(self.clock.now());
        let mut steps: Vec<usize> = (0..self.workers.len() + 3).collect();
        for _ in 0..ROUNDS_MAX {
            self.threads.shuffle(&mut steps);
            let mut progress = false;
            for step in &steps {
                progress |= self.step(*step);
            }
            if !progress {
                self.network.tidy();
                let clients = &self.clients;
                self.present.retain(|index| clients[*index].story.closed.is_none());
                return;
            }
        }
        panic!("{}: the world does not come to rest", self.trace);
    }

    /// Drives the clients, the network, a worker, or control.
    fn step(&mut self, step: usize) -> bool {
        let mut progress = false;
        match step {
            0 => {
                for index in 0..self.present.len() {
                    progress |= self.drive_client(self.present[index]);
                }
            }
            1 => {
                for index in 0..self.network.open_wires.len() {
                    let wire = self.network.open_wires[index];
                    progress |= self.deliver(wire, 0) | self.deliver(wire, 1);
                }
                for index in 0..self.network.open_lines.len() {
                    let line = self.network.open_lines[index];
                    progress |= self.deliver_datagram(line, 0) | self.deliver_datagram(line, 1);
                }
            }
            2 => progress |= self.drive_control(),
            worker => progress |= self.drive_worker(worker - 3),
        }
        progress
    }
}

fn app_of(name: &str, settings: &[(&str, &str)]) -> Arc<AppSettings> {
    Arc::new(AppSettings::of(millstream::protocol::schema(), name, settings).unwrap())
}

fn workers_of(now: Now, count: u16, seed: &Seed) -> Vec<Worker> {
    let worker = |index| {
        let worker = Worker::new(WorkerId(index), now, seed.derive("worker", u64::from(index)), seed);
        let mut worker = worker.of_workers(count);
        let Place { port, address } = Place::webrtc();
        worker.port_bound(port, Binding { address, hosts: &[address.ip()], workers: count });
        worker
    };
    (0..count).map(worker).collect()
}

/// Returns the address of a client.
fn address_of(client: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], u16::try_from(10_000 + client).unwrap()))
}

fn target(over: Over, app: &str, id: &str, mode: &str) -> LoadTarget {
    LoadTarget::read(&url(over, app, id, mode)).unwrap()
}

/// Returns the URL of a stream in this world.
pub fn url(over: Over, app: &str, id: &str, mode: &str) -> String {
    match over {
        Over::Rtmp => format!("rtmp://{RTMP}/{app}/{id}"),
        Over::Flv => format!("http://{HTTP}/{app}/{id}.flv"),
        Over::WsFlv => format!("ws://{HTTP}/{app}/{id}.flv"),
        Over::Srt => format!("srt://{SRT}?streamid=%23!::r={app}/{id},m={mode}"),
        Over::Rtsp | Over::RtspUdp => format!("rtsp://{RTSP}/{app}/{id}"),
        Over::WebRtc if mode == "publish" => format!("http://{HTTP}/{app}/whip/{id}"),
        Over::WebRtc => format!("http://{HTTP}/{app}/whep/{id}"),
    }
}
