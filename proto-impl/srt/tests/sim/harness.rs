//! Two ends over lossy links in virtual time: a caller, and a port with the calls it accepts.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use netsim::{Clock, Input, Link, Pair, Peer};
use srt::{
    CloseReason, Config, Connected, Connection, Endpoint, Event, Incoming, Passphrase, RejectReason, Route,
    SocketId,
};
use wire::Datagrams;

pub(crate) const CALLER: &str = "192.0.2.1:40000";

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub(crate) fn passphrase(text: &str) -> Option<Passphrase> {
    Some(Passphrase::new(text).unwrap())
}

/// Sends numbered messages at an even pace.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) interval: Duration,
    pub(crate) left: u32,
    pub(crate) next_at: Option<Instant>,
    pub(crate) number: u32,
    /// Number of messages in each unit. The entries are used in turn, again and again.
    pub(crate) units: Vec<u32>,
    /// Index of the current entry in `units`.
    pub(crate) turn: usize,
    /// True if the source leaves messages out while the connection is behind.
    pub(crate) heeds: bool,
    /// Number of units at the start that are sent four times as fast.
    pub(crate) rush: usize,
    /// Number of messages left out.
    pub(crate) left_out: u32,
    /// Time at which each message was sent or left out.
    pub(crate) sent_at: Vec<Instant>,
}

impl Source {
    pub(crate) fn new(packets: u32, per_second: u64) -> Self {
        Self {
            units: vec![1],
            turn: 0,
            heeds: false,
            rush: 0,
            left_out: 0,
            sent_at: Vec::new(),
            interval: Duration::from_nanos(1_000_000_000 / per_second),
            left: packets,
            next_at: None,
            number: 0,
        }
    }
}

/// Makes a message of 1316 bytes that contains its number.
pub(crate) fn message(number: u32) -> Bytes {
    let mut bytes = vec![0x47; 1316];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes[4..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_be_bytes());
    bytes.into()
}

/// The port's decision about a caller.
#[derive(Debug, Clone)]
pub(crate) enum Verdict {
    Accept,
    Reject(RejectReason),
    /// Accepts at the first deadline after this delay.
    Later(Duration),
}

pub(crate) struct End {
    pub(crate) connection: Option<Connection>,
    pub(crate) endpoint: Option<Endpoint<u8>>,
    pub(crate) config: Arc<Config>,
    pub(crate) verdict: Verdict,
    accept_at: Option<Instant>,
    seed: Seed,
    out: Datagrams,
    queue: VecDeque<Bytes>,
    pub(crate) source: Option<Source>,
    /// Numbers of the messages in the order of their delivery.
    pub(crate) received: Vec<u32>,
    pub(crate) skipped: u64,
    pub(crate) connected: Option<Connected>,
    pub(crate) closed: Option<CloseReason>,
    pub(crate) stream_id: Option<String>,
    /// All datagrams sent, if recorded.
    pub(crate) sent: Option<Vec<Bytes>>,
    pub(crate) timeouts: u64,
    /// Number of calls with input that changed the deadline.
    pub(crate) moved: u64,
    pub(crate) received_at: Vec<Instant>,
    /// Selects received datagrams to discard; its first argument is the datagram's number.
    pub(crate) swallow: Option<fn(u64, &[u8]) -> bool>,
    arrived: u64,
}

impl End {
    fn new(config: Config, seed: Seed) -> Self {
        Self {
            connection: None,
            endpoint: None,
            config: Arc::new(config),
            verdict: Verdict::Accept,
            accept_at: None,
            seed,
            out: Datagrams::new(),
            queue: VecDeque::new(),
            source: None,
            received: Vec::new(),
            skipped: 0,
            connected: None,
            closed: None,
            stream_id: None,
            sent: None,
            timeouts: 0,
            moved: 0,
            received_at: Vec::new(),
            swallow: None,
            arrived: 0,
        }
    }

    pub(crate) fn caller(clock: &Clock, config: Config, stream_id: &str, seed: u64) -> Self {
        let mut end = Self::new(config, Seed::from_number(seed));
        let config = Arc::clone(&end.config);
        end.connection =
            Some(Connection::caller(clock.now(), config, SocketId(0x1111), stream_id, &end.seed));
        end
    }

    pub(crate) fn port(clock: &Clock, config: Config, seed: u64) -> Self {
        let mut end = Self::new(config, Seed::from_number(seed ^ 0xffff));
        end.endpoint = Some(Endpoint::new(clock.now(), &end.seed));
        end
    }

    pub(crate) fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().unwrap()
    }

    pub(crate) fn stats(&self) -> srt::Stats {
        self.connection.as_ref().unwrap().stats()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::is_connected)
    }

    fn datagram(&mut self, now: Instant, datagram: &[u8]) {
        self.arrived += 1;
        if self.swallow.is_some_and(|swallow| swallow(self.arrived, datagram)) {
            return;
        }
        let Some(endpoint) = &mut self.endpoint else {
            return self.connection().handle_datagram(now, datagram);
        };
        let mut reply = Vec::new();
        let route = endpoint.route(now, address(CALLER), datagram, &mut reply);
        assert!(reply.len() <= datagram.len(), "amplification");
        if !reply.is_empty() {
            self.queue.push_back(reply.into());
        }
        match route {
            Route::Session(_) => self.connection().handle_datagram(now, datagram),
            Route::New(incoming) => self.incoming(now, *incoming),
            Route::Reply | Route::Drop(_) => {}
        }
    }

    fn incoming(&mut self, now: Instant, incoming: Incoming) {
        let local = SocketId(0x2222);
        let (from, peer) = (incoming.from(), incoming.peer_socket());
        self.stream_id = incoming.stream_id().map(str::to_owned);
        let mut connection = Connection::incoming(now, incoming, local, &self.seed);
        if !self.endpoint.as_mut().unwrap().insert(local, from, peer, 0) {
            return;
        }
        match self.verdict.clone() {
            Verdict::Accept => connection.accept(now, Arc::clone(&self.config)),
            Verdict::Reject(reason) => connection.reject(now, reason),
            Verdict::Later(pause) => self.accept_at = Some(now + pause),
        }
        self.connection = Some(connection);
    }

    fn drain(&mut self, now: Instant) {
        let Some(connection) = &mut self.connection else { return };
        while let Some(event) = connection.poll_event() {
            assert!(self.closed.is_none(), "after the end: {event:?}");
            match event {
                Event::Connected(connected) => self.connected = Some(connected),
                Event::Payload(payload) => {
                    let number = u32::from_be_bytes(payload[..4].try_into().unwrap());
                    assert_eq!(payload, message(number), "damaged");
                    assert!(self.received.last().is_none_or(|last| *last < number), "twice or out of order");
                    self.received.push(number);
                    self.received_at.push(now);
                }
                Event::Skipped(count) => self.skipped += u64::from(count),
                Event::Closed(reason) => self.closed = Some(reason),
            }
        }
        if let Some(at) = connection.poll_timeout() {
            assert!(at > now - Duration::from_secs(1), "a deadline stays in the past");
        }
        while connection.has_transmit(now) && connection.poll_transmit(now, &mut self.out) {
            self.queue.extend((0..self.out.len()).map(|n| Bytes::copy_from_slice(self.out.get(n))));
            self.out.clear();
        }
    }

    fn run_source(&mut self, now: Instant) {
        let (Some(source), Some(connection)) = (&mut self.source, &mut self.connection) else { return };
        if !connection.is_connected() {
            return;
        }
        let mut at = source.next_at.unwrap_or(now);
        while source.left > 0 && at <= now {
            let messages = source.units[source.turn % source.units.len()].min(source.left);
            let is_left_out = source.heeds && connection.is_behind();
            for number in source.number..source.number + messages {
                source.sent_at.push(now);
                if is_left_out {
                    source.left_out += 1;
                } else {
                    let _ = connection.send(now, message(number));
                }
            }
            source.number += messages;
            source.left -= messages;
            source.turn += 1;
            at += if source.turn <= source.rush { source.interval / 4 } else { source.interval };
        }
        source.next_at = Some(at).filter(|_| source.left > 0);
    }
}

impl Peer for End {
    fn handle(&mut self, now: Instant, input: Input) {
        let before = self.connection.as_ref().and_then(Connection::poll_timeout);
        match input {
            Input::Datagram(datagram) => self.datagram(now, &datagram),
            Input::Timeout => {
                if self.accept_at.is_some_and(|at| at <= now) {
                    self.accept_at = None;
                    let config = Arc::clone(&self.config);
                    self.connection().accept(now, config);
                }
                if let Some(connection) = &mut self.connection
                    && connection.poll_timeout().is_some_and(|at| at <= now)
                {
                    self.timeouts += 1;
                    connection.handle_timeout(now);
                }
            }
        }
        self.run_source(now);
        self.drain(now);
        let after = self.connection.as_ref().and_then(Connection::poll_timeout);
        self.moved += u64::from(before != after);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Bytes> {
        if self.queue.is_empty() {
            self.drain(now);
        }
        let datagram = self.queue.pop_front()?;
        if let Some(sent) = &mut self.sent {
            sent.push(datagram.clone());
        }
        Some(datagram)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let connection = self.connection.as_ref().and_then(Connection::poll_timeout);
        let source = self.source.as_ref().filter(|_| self.is_connected() && self.closed.is_none());
        let source = source.and_then(|source| source.next_at);
        [connection, source, self.accept_at].into_iter().flatten().min()
    }
}

pub(crate) type Sim = Pair<End, End>;

/// Creates a caller and a port with these settings, over these links.
pub(crate) fn sim(seed: u64, caller: Config, port: Config, links: impl Fn(Link) -> Link) -> Sim {
    let clock = Clock::new();
    let a = End::caller(&clock, caller, "live/stream", seed);
    let b = End::port(&clock, port, seed);
    Pair::new(seed, clock, a, b).links(links)
}

/// Like [`sim`], but also runs the simulation until both ends are connected.
pub(crate) fn connected(seed: u64, caller: Config, port: Config, links: impl Fn(Link) -> Link) -> Sim {
    let mut sim = sim(seed, caller, port, links);
    sim.run_until(Duration::from_secs(3), |a, b| a.is_connected() && b.is_connected()).unwrap();
    sim
}

/// Starts a source at the caller's end and runs the simulation until four seconds after its last
/// message.
pub(crate) fn send_all(sim: &mut Sim, packets: u32, per_second: u64) {
    start(sim, packets, per_second);
    let length = Duration::from_secs(u64::from(packets) / per_second + 4);
    sim.run_for(length).unwrap();
}

pub(crate) fn start(sim: &mut Sim, packets: u32, per_second: u64) {
    let mut source = Source::new(packets, per_second);
    source.next_at = Some(sim.clock.now());
    sim.a.source = Some(source);
}

/// Seeds of a test; `MILLSTREAM_SEEDS` sets their number.
pub(crate) fn seeds(default: u64) -> std::ops::Range<u64> {
    let count = std::env::var("MILLSTREAM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    1..count + 1
}
