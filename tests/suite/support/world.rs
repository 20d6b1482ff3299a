//! The whole server in virtual time: workers, control, hub and store as they are, wires from `netsim`, clients made
//! of the client machine. One thread, one clock, one seed: the same seed gives the same bytes.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::{Random, Seed};
use flv::tag::{AudioPacket, FrameType, VideoPacket};
use flv::{AudioTag, VideoTag};
use millstream::auth::OutboundPolicy;
use millstream::config::{AppSettings, ServerSettings};
use millstream::control::{self, Control, ControlConfig};
use millstream::hub::MirroredUnit;
use millstream::jobs::{FileError, Job, JobDone, Outcome, Work};
use millstream::mail::{ToControl, ToWorker};
use millstream::protocol::{Addresses, Listener, PathEvent, PathId};
use millstream::store::{self, Memory};
use millstream::types::{ConnId, Now, WorkerId};
use millstream::worker::{Output, Worker};
use netsim::{Clock, Cut, MediaSource, StreamDelivery, StreamLink, Trace, Verifier, ms};
use rtmp::{Client, ClientConfig, ClientEvent, CloseReason, MediaKind, MediaMessage};
use wire::{Gather, SendQueue};

/// Rounds at one instant before the world counts as stuck.
const ROUNDS_MAX: usize = 100_000;
/// Where the simulated server listens for RTMP; pushes to it come back.
const RTMP: &str = "127.0.0.1:1935";

/// One end of a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Client(usize),
    Worker(usize, ConnId),
    Gone,
}

/// A TCP connection: `links[n]` carries what `ends[n]` sends.
#[derive(Debug)]
struct Wire {
    ends: [End; 2],
    links: [StreamLink; 2],
}

/// What a client is for.
#[derive(Debug)]
enum Role {
    Publish {
        source: Box<MediaSource>,
        next: Option<netsim::SyntheticUnit>,
        began: Option<Instant>,
        first_ms: u64,
    },
    Play {
        verifier: Verifier,
        last_timestamp: Option<u32>,
        falls: u64,
    },
    Http {
        answer: Vec<u8>,
    },
}

#[derive(Debug)]
struct SimClient {
    wire: usize,
    machine: Option<Client>,
    queue: SendQueue,
    role: Role,
    message_stream: Option<u32>,
    rejected: Option<String>,
    /// Its machine has said its last word.
    ended: bool,
    /// The server said that the stream is over.
    goodbye: bool,
    closed: bool,
}

enum Mail {
    Control(ToControl),
    Worker(usize, ToWorker),
    Mirrored(usize, MirroredUnit),
}

/// The world.
pub struct World {
    clock: Clock,
    random: Random,
    seed: Seed,
    workers: Vec<Worker>,
    control: Control,
    store: Memory,
    wires: Vec<Wire>,
    places: BTreeMap<(usize, ConnId), (usize, usize)>,
    clients: Vec<SimClient>,
    mail: VecDeque<Mail>,
    trace: Trace,
    exited: bool,
}

/// A client of the world.
#[derive(Debug, Clone, Copy)]
pub struct Id(usize);

impl World {
    pub fn new(seed: u64, workers: u16, settings: &[(&str, &str)]) -> Self {
        let clock = Clock::new();
        let trace = Trace::new(seed);
        let seed = Seed::from_number(seed);
        let now = Now { mono: clock.now(), wall_ms: clock.wall_ms() };
        let app = |name| Arc::new(AppSettings::with(name, settings).unwrap());
        let config = ControlConfig {
            server: Arc::new(ServerSettings::with(&[]).unwrap()),
            apps: vec![app("live"), app("copies")],
            workers,
            node: "simulated".into(),
            host_address: "127.0.0.1".into(),
            outbound: OutboundPolicy {
                deny: millstream::auth::CidrList::default(),
                public_only: false,
                own_addresses: vec!["127.0.0.1".parse().unwrap()],
                own_ports: vec![5080],
            },
            addresses: Addresses::of(&[("rtmp", 1935)]),
        };
        let control = Control::new(now, config, Vec::new(), &seed.derive("control", 0)).unwrap();
        let workers = (0..workers)
            .map(|index| Worker::new(WorkerId(index), now, seed.derive("worker", u64::from(index)), &seed))
            .collect();
        Self {
            clock,
            random: seed.derive("world", 0).random(),
            seed,
            workers,
            control,
            store: Memory::new(),
            wires: Vec::new(),
            places: BTreeMap::new(),
            clients: Vec::new(),
            mail: VecDeque::new(),
            trace,
            exited: false,
        }
    }

    // ---- what happens in it

    /// A publisher on a worker of the seed's choice.
    pub fn publish(&mut self, app: &str, id: &str, source: MediaSource) -> Id {
        let role = Role::Publish { source: Box::new(source), next: None, began: None, first_ms: 0 };
        self.rtmp_client(app, id, role, Client::publish)
    }

    /// A viewer on a worker of the seed's choice.
    pub fn play(&mut self, app: &str, id: &str) -> Id {
        let role = Role::Play { verifier: Verifier::new(), last_timestamp: None, falls: 0 };
        self.rtmp_client(app, id, role, Client::play)
    }

    /// A viewer behind a line of so many bits a second that holds so many bytes.
    pub fn play_slowly(&mut self, app: &str, id: &str, rate: u64, window: usize) -> Id {
        let viewer = self.play(app, id);
        let wire = self.clients[viewer.0].wire;
        let link = StreamLink::new(&self.seed.derive("slow link", wire as u64));
        self.wires[wire].links[1] = link.latency(ms(10)).rate(rate).window(window);
        viewer
    }

    /// Whether a viewer was told that its stream is over, and not only cut off.
    pub fn said_goodbye(&self, id: Id) -> bool {
        self.clients[id.0].goodbye
    }

    /// One request of the API; its answer with [`World::answer`].
    pub fn request(&mut self, head: &str, body: &str) -> Id {
        let text = format!(
            "{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let id = self.connect("http", None, Role::Http { answer: Vec::new() });
        self.clients[id.0].queue.push(Bytes::from(text));
        id
    }

    /// Cuts a client's connection without a word; what is on its way is lost.
    pub fn reset(&mut self, id: Id) {
        let now = self.clock.now();
        let wire = &mut self.wires[self.clients[id.0].wire];
        wire.links[0].reset_at(now);
        wire.links[1].reset_at(now);
        self.clients[id.0].closed = true;
    }

    /// Nothing of a client arrives any more, and nobody is told.
    pub fn go_dark(&mut self, id: Id) {
        let now = self.clock.now();
        let wire = &mut self.wires[self.clients[id.0].wire];
        wire.links[0].dark_from(now);
        wire.links[1].dark_from(now);
    }

    /// A client says goodbye.
    pub fn close(&mut self, id: Id) {
        let now = self.clock.now();
        if let Some(machine) = &mut self.clients[id.0].machine {
            machine.close(now, CloseReason::Requested);
        }
    }

    /// The media that a publisher has not sent, to go on with.
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
        self.control.drain(now);
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.clock.now() + time;
        self.run(end, |_| false);
    }

    /// Lets time pass until `condition` holds.
    ///
    /// # Panics
    /// When it does not within `limit`.
    pub fn run_until(&mut self, what: &str, limit: Duration, condition: impl FnMut(&mut Self) -> bool) {
        let end = self.clock.now() + limit;
        assert!(self.run(end, condition), "{}: not within {limit:?}: {what}", self.trace);
    }

    // ---- what can be seen of it

    pub fn is_ready(&self, id: Id) -> bool {
        self.clients[id.0].message_stream.is_some()
    }

    pub fn is_closed(&self, id: Id) -> bool {
        self.clients[id.0].closed
    }

    pub fn rejection(&self, id: Id) -> Option<&str> {
        self.clients[id.0].rejected.as_deref()
    }

    /// What a viewer saw, and how often its timestamps fell.
    pub fn seen(&self, id: Id) -> (&Verifier, u64) {
        match &self.clients[id.0].role {
            Role::Play { verifier, falls, .. } => (verifier, *falls),
            _ => panic!("not a viewer"),
        }
    }

    pub fn answer(&self, id: Id) -> Option<String> {
        match &self.clients[id.0].role {
            Role::Http { answer } if self.clients[id.0].closed => {
                Some(String::from_utf8_lossy(answer).into_owned())
            }
            _ => None,
        }
    }

    pub fn trace(&self) -> Trace {
        self.trace
    }

    pub fn has_exited(&self) -> bool {
        self.exited
    }

    pub fn connections(&self) -> usize {
        self.workers.iter().map(Worker::connections).sum()
    }

    pub fn retained_bytes(&self) -> usize {
        self.workers.iter().map(Worker::retained_bytes).sum()
    }

    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    // ---- connections

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
        let seed = self.seed.derive("client", self.clients.len() as u64);
        let machine = begin(self.clock.now(), Arc::new(config), seed);
        self.connect("rtmp", Some(machine), role)
    }

    fn connect(&mut self, listener: &str, machine: Option<Client>, role: Role) -> Id {
        let client = self.clients.len();
        let wire = self.wires.len();
        let worker = usize::try_from(self.random.below(self.workers.len() as u64)).unwrap();
        let peer = SocketAddr::from(([127, 0, 0, 1], u16::try_from(10_000 + client).unwrap()));
        let now = self.now();
        let conn = self.workers[worker].accept(now, Listener::named(listener).unwrap(), peer);
        let end = conn.map_or(End::Gone, |conn| End::Worker(worker, conn));
        let links = self.links();
        self.wires.push(Wire { ends: [End::Client(client), end], links });
        if let Some(conn) = conn {
            self.places.insert((worker, conn), (wire, 1));
        }
        self.clients.push(SimClient {
            wire,
            machine,
            queue: SendQueue::new(),
            role,
            message_stream: None,
            rejected: None,
            ended: false,
            goodbye: false,
            closed: false,
        });
        Id(client)
    }

    /// Both directions, with a delay and a cut of the seed's choice.
    fn links(&mut self) -> [StreamLink; 2] {
        let number = self.wires.len() as u64;
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
        Now { mono: self.clock.now(), wall_ms: self.clock.wall_ms() }
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
        let mut next: Vec<Instant> = self.workers.iter().filter_map(Worker::poll_timeout).collect();
        next.extend(self.control.poll_timeout());
        for wire in 0..self.wires.len() {
            for side in 0..2 {
                let wants = self.wants_bytes(wire, side);
                next.extend(self.wires[wire].links[1 - side].next_wanted(wants));
            }
        }
        for client in self.clients.iter().filter(|client| !client.closed) {
            next.extend(client.machine.as_ref().and_then(Client::poll_timeout));
            next.extend(client.due());
        }
        next.into_iter().min()
    }

    /// Everything that happens at this instant, until nothing does any more.
    fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let mut progress = false;
            for index in 0..self.clients.len() {
                progress |= self.drive_client(index);
            }
            for wire in 0..self.wires.len() {
                progress |= self.deliver(wire, 0) | self.deliver(wire, 1);
            }
            for index in 0..self.workers.len() {
                progress |= self.drive_worker(index);
            }
            progress |= self.drive_control();
            if !progress {
                return;
            }
        }
        panic!("{}: the world does not come to rest", self.trace);
    }

    // ---- wires

    fn wants_bytes(&mut self, wire: usize, side: usize) -> bool {
        match self.wires[wire].ends[side] {
            End::Worker(worker, conn) => self.workers[worker].wants_bytes(conn),
            End::Client(_) | End::Gone => true,
        }
    }

    /// One delivery to an end of a wire.
    fn deliver(&mut self, wire: usize, side: usize) -> bool {
        let now = self.now();
        let is_reset = self.wires[wire].links[1 - side].is_reset_by(now.mono);
        if !is_reset && !self.wants_bytes(wire, side) {
            return false;
        }
        let Some(delivery) = self.wires[wire].links[1 - side].poll_delivery(now.mono) else { return false };
        let lane = u32::try_from(wire * 2 + side).unwrap();
        if let StreamDelivery::Bytes(bytes) = &delivery {
            self.trace.record(self.clock.elapsed(), lane, bytes);
        }
        match (self.wires[wire].ends[side], delivery) {
            (End::Worker(worker, conn), StreamDelivery::Bytes(bytes)) => {
                self.workers[worker].handle_bytes(now, conn, &bytes);
            }
            (End::Worker(worker, conn), StreamDelivery::Fin) => {
                self.workers[worker].handle_path(now, conn, PathId::default(), PathEvent::PeerClosed)
            }
            (End::Worker(worker, conn), StreamDelivery::Reset) => {
                self.workers[worker].handle_path(now, conn, PathId::default(), PathEvent::Broken("reset"));
            }
            (End::Client(client), StreamDelivery::Bytes(bytes)) => {
                self.clients[client].bytes(now.mono, &bytes)
            }
            (End::Client(client), StreamDelivery::Fin | StreamDelivery::Reset) => {
                self.clients[client].hangup(now.mono)
            }
            (End::Gone, _) => {}
        }
        true
    }

    fn send(&mut self, wire: usize, side: usize, bytes: &[u8]) -> usize {
        let now = self.clock.now();
        self.wires[wire].links[side].send(now, bytes)
    }

    // ---- those at the ends

    fn drive_client(&mut self, index: usize) -> bool {
        let now = self.clock.now();
        let client = &mut self.clients[index];
        if client.closed {
            return false;
        }
        client.turn(now);
        let mut bytes = Vec::new();
        let mut gather = Gather::new(64 * 1024);
        client.queue.gather(&mut gather);
        gather.slices().iter().for_each(|slice| bytes.extend_from_slice(slice));
        let wire = client.wire;
        let sent = self.send(wire, 0, &bytes);
        self.clients[index].queue.advance(sent);
        if self.clients[index].has_sent_all() {
            self.wires[wire].links[0].finish(now);
        }
        sent > 0
    }

    fn drive_worker(&mut self, index: usize) -> bool {
        let now = self.now();
        let mut progress = false;
        if self.workers[index].poll_timeout().is_some_and(|due| due <= now.mono) {
            self.workers[index].handle_timeout(now);
            progress = true;
        }
        let places: Vec<_> =
            self.places.range((index, ConnId { slot: 0, generation: 0 })..).map(|(k, v)| (*k, *v)).collect();
        for ((worker, conn), (wire, side)) in places {
            if worker == index && self.wires[wire].links[side].room() > 0 {
                self.workers[index].handle_writable(now, conn);
            }
        }
        self.workers[index].finish_turn();
        while let Some((conn, _)) = self.workers[index].next_write() {
            let mut bytes = Vec::new();
            let mut scratch = [0; wire::SCRATCH_BYTES];
            let mut gather = Gather::with_scratch(64 * 1024, &mut scratch);
            self.workers[index].gather(conn, &mut gather);
            gather.slices().iter().for_each(|slice| bytes.extend_from_slice(slice));
            let sent = self
                .places
                .get(&(index, conn))
                .copied()
                .map_or(0, |(wire, side)| self.send(wire, side, &bytes));
            self.workers[index].sent(now.mono, conn, sent, bytes.len());
            progress |= sent > 0;
        }
        self.workers[index].finish_turn();
        while let Some(output) = self.workers[index].poll_output() {
            progress = true;
            self.perform(index, output);
        }
        progress
    }

    fn perform(&mut self, worker: usize, output: Output) {
        let now = self.now();
        match output {
            Output::Control(mail) => self.mail.push_back(Mail::Control(mail)),
            Output::Worker(to, mail) => self.mail.push_back(Mail::Worker(usize::from(to.0), mail)),
            Output::Others(mail) => {
                let others = (0..self.workers.len()).filter(|index| *index != worker);
                self.mail.extend(others.map(|index| Mail::Worker(index, mail.clone())));
            }
            Output::Mirrored(to, unit) => self.mail.push_back(Mail::Mirrored(usize::from(to.0), unit)),
            Output::Connect { conn, address, .. } => {
                assert_eq!(address, RTMP.parse().unwrap());
                let target = usize::try_from(self.random.below(self.workers.len() as u64)).unwrap();
                let peer = SocketAddr::from(([127, 0, 0, 1], 9999));
                let accepted = self.workers[target].accept(now, Listener::named("rtmp").unwrap(), peer);
                let end = accepted.map_or(End::Gone, |conn| End::Worker(target, conn));
                let links = self.links();
                let wire = self.wires.len();
                self.wires.push(Wire { ends: [End::Worker(worker, conn), end], links });
                self.places.insert((worker, conn), (wire, 0));
                if let Some(accepted) = accepted {
                    self.places.insert((target, accepted), (wire, 1));
                }
                self.workers[worker].handle_path(
                    now,
                    conn,
                    PathId::default(),
                    PathEvent::Open { local: None },
                );
            }
            Output::Close { conn, abort } => {
                let Some((wire, side)) = self.places.remove(&(worker, conn)) else { return };
                self.wires[wire].ends[side] = End::Gone;
                if abort {
                    self.wires[wire].links[side].reset_at(now.mono);
                } else {
                    self.wires[wire].links[side].finish(now.mono);
                }
            }
            Output::Job { conn, job } => {
                let done = JobDone { id: job.id, outcome: Outcome::Opened(Err(FileError::NotFound)) };
                self.mail.push_back(Mail::Worker(worker, ToWorker::Job { conn, done }));
            }
            Output::OpenUdp { .. } | Output::CloseUdp { .. } => panic!("no datagrams in this world"),
            Output::Resume(_) | Output::UnsentLimit { .. } | Output::Authenticated { .. } => {}
        }
    }

    fn drive_control(&mut self) -> bool {
        let now = self.now();
        let mut progress = false;
        while let Some(mail) = self.mail.pop_front() {
            progress = true;
            match mail {
                Mail::Control(mail) => self.control.handle_mail(now, mail),
                Mail::Worker(to, mail) => self.workers[to].handle_mail(now, mail),
                Mail::Mirrored(to, unit) => self.workers[to].handle_mirrored(now, unit),
            }
        }
        if self.control.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.control.handle_timeout(now);
            progress = true;
        }
        while let Some(output) = self.control.poll_output() {
            progress = true;
            match output {
                control::Output::Worker(to, mail) => {
                    self.mail.push_back(Mail::Worker(usize::from(to.0), mail))
                }
                control::Output::Store(request) => {
                    let reply = store::handle(&mut self.store, request);
                    self.control.handle_store(now, reply);
                }
                control::Output::Job(Job { id, work }) => {
                    let outcome = match work {
                        Work::Resolve { port, .. } => {
                            Outcome::Resolved(Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]))
                        }
                        Work::Post(_) => Outcome::Posted(Ok(200)),
                        // Nobody logs in and nobody changes settings here.
                        _ => Outcome::Failed,
                    };
                    self.control.handle_job(now, JobDone { id, outcome });
                }
                control::Output::Outbound(_) => {}
                control::Output::Exit => self.exited = true,
            }
        }
        progress
    }
}

impl SimClient {
    fn bytes(&mut self, now: Instant, bytes: &[u8]) {
        match (&mut self.machine, &mut self.role) {
            (Some(machine), _) => {
                let _ = machine.handle_bytes(now, bytes);
            }
            (None, Role::Http { answer }) => answer.extend_from_slice(bytes),
            (None, _) => {}
        }
    }

    fn hangup(&mut self, now: Instant) {
        let told = self.ended;
        if let Some(machine) = &mut self.machine {
            machine.close(now, CloseReason::PeerClosed);
            self.turn(now);
        }
        self.goodbye &= told;
        self.closed = true;
    }

    /// When the publisher's next unit is due.
    fn due(&self) -> Option<Instant> {
        match &self.role {
            Role::Publish { next: Some(unit), began: Some(began), first_ms, .. } => {
                Some(*began + ms(unit.dts_ms - first_ms))
            }
            _ => None,
        }
    }

    fn turn(&mut self, now: Instant) {
        let Some(machine) = &mut self.machine else { return };
        if machine.poll_timeout().is_some_and(|due| due <= now) {
            let _ = machine.handle_timeout(now);
        }
        while let Some(event) = machine.poll_event() {
            match event {
                ClientEvent::Ready { message_stream } => {
                    self.message_stream = Some(message_stream);
                    if let Role::Publish { source, next, began, first_ms } = &mut self.role {
                        let unit = source.next_unit();
                        (*began, *first_ms) = (Some(now), unit.dts_ms);
                        *next = Some(unit);
                        send_configs(machine, now, message_stream);
                    }
                }
                ClientEvent::Rejected { code, .. } => self.rejected = Some(code),
                ClientEvent::Closed(reason) => {
                    self.ended = true;
                    self.goodbye = !matches!(reason, CloseReason::Failed(_));
                    if let Role::Publish { next, .. } = &mut self.role {
                        *next = None;
                    }
                }
                ClientEvent::Media(message) => {
                    if let Role::Play { verifier, last_timestamp, falls } = &mut self.role
                        && let Some(payload) = super::unit_payload(&message)
                    {
                        let _ = verifier.feed(&payload);
                        // Tracks interleave: only a step back of more than their distance counts.
                        *falls +=
                            u64::from(last_timestamp.is_some_and(|last| message.timestamp + 200 < last));
                        *last_timestamp = Some(message.timestamp);
                    }
                }
            }
        }
        while self.due().is_some_and(|due| due <= now) {
            let (Role::Publish { source, next, .. }, Some(machine), Some(stream)) =
                (&mut self.role, &mut self.machine, self.message_stream)
            else {
                break;
            };
            if let Some(unit) = next.replace(source.next_unit()) {
                send_unit(machine, now, stream, &unit);
            }
        }
        if let Some(machine) = &mut self.machine {
            machine.poll_transmit(&mut self.queue);
        }
    }

    /// Whether it has said all it wants to say.
    fn has_sent_all(&self) -> bool {
        self.queue.is_empty() && self.ended
    }
}

fn send(
    machine: &mut Client,
    now: Instant,
    message_stream: u32,
    kind: MediaKind,
    dts_ms: u64,
    parts: [&[u8]; 2],
) {
    let message = MediaMessage {
        message_stream,
        kind,
        timestamp: u32::try_from(dts_ms).unwrap(),
        payload: Bytes::from(parts.concat()),
    };
    machine.send(now, &message);
}

fn send_configs(machine: &mut Client, now: Instant, stream: u32) {
    let video = VideoTag::write_header(FrameType::Key, VideoPacket::SequenceHeader, 0);
    send(machine, now, stream, MediaKind::Video, 0, [&video, &MediaSource::video_config()]);
    let audio = AudioTag::write_header(AudioPacket::SequenceHeader);
    send(machine, now, stream, MediaKind::Audio, 0, [&audio, &MediaSource::audio_config()]);
}

fn send_unit(machine: &mut Client, now: Instant, stream: u32, unit: &netsim::SyntheticUnit) {
    if unit.is_video {
        let frame = if unit.key_frame { FrameType::Key } else { FrameType::Inter };
        let head = VideoTag::write_header(frame, VideoPacket::Frame, i32::try_from(unit.cts_ms).unwrap());
        send(machine, now, stream, MediaKind::Video, unit.dts_ms, [&head, &unit.payload]);
    } else {
        let head = AudioTag::write_header(AudioPacket::Frame);
        send(machine, now, stream, MediaKind::Audio, unit.dts_ms, [&head, &unit.payload]);
    }
}
