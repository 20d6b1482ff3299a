//! Simulations of two ends over lossy links, in virtual time. `MILLSTREAM_SEEDS` sets the number of seeds.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use dtls::{CloseReason, Config, Connected, Connection, Event, Identity, Stats, Versions};
use netsim::{Clock, Input, Link, Pair, Peer, ms, secs};
use wire::Datagrams;

/// Maximum memory of a handshake in bytes.
const HELD_BYTES_MAX: usize = 80 * 1024;
/// Maximum memory of a session in bytes.
const SESSION_BYTES_MAX: usize = 2 * 1024;

static IDENTITIES: LazyLock<[Arc<Identity>; 2]> =
    LazyLock::new(|| [1, 2].map(|n| Arc::new(Identity::self_signed(&Seed::from_number(n)).unwrap())));

struct End {
    connection: Connection,
    queue: VecDeque<Bytes>,
    connected: Option<Connected>,
    closed: Option<CloseReason>,
    received: Vec<Bytes>,
    held_most: usize,
}

impl End {
    fn new(mut connection: Connection, clock: &Clock, peer: &Identity) -> Self {
        connection.set_remote_fingerprints(clock.now(), vec![peer.fingerprint()]);
        connection.start(clock.now());
        let (queue, received) = (VecDeque::new(), Vec::new());
        Self { connection, queue, connected: None, closed: None, received, held_most: 0 }
    }

    fn drain(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            assert!(self.closed.is_none(), "after the end: {event:?}");
            match event {
                Event::Connected(connected) => self.connected = Some(*connected),
                Event::Data(data) => self.received.push(data),
                Event::Closed(reason) => self.closed = Some(reason),
            }
        }
        self.held_most = self.held_most.max(self.connection.held_bytes());
    }
}

impl Peer for End {
    fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Datagram(datagram) => self.connection.handle_datagram(now, &mut datagram.to_vec()),
            Input::Timeout => self.connection.handle_timeout(now),
        }
        self.drain();
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Bytes> {
        let mut out = Datagrams::new();
        while self.connection.poll_transmit(now, &mut out) {
            self.queue.extend((0..out.len()).map(|n| Bytes::copy_from_slice(out.get(n))));
            out.clear();
        }
        self.queue.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.connection.poll_timeout()
    }
}

fn sim(seed: u64, versions: Versions, mtu: usize, links: impl Fn(Link) -> Link) -> Pair<End, End> {
    let [a, b] = &*IDENTITIES;
    sim_of(seed, [versions; 2], mtu, [a, b], links)
}

/// Creates a simulation of a client and a server with these certificates.
fn sim_of(
    seed: u64,
    versions: [Versions; 2],
    mtu: usize,
    [a, b]: [&Arc<Identity>; 2],
    links: impl Fn(Link) -> Link,
) -> Pair<End, End> {
    let clock = Clock::new();
    let [of_client, of_server] = versions;
    let config = |own: &Arc<Identity>, versions| {
        let identity = Some(Arc::clone(own));
        Arc::new(Config { identity, versions, mtu, receives_data: true, ..Config::default() })
    };
    let seeds = Seed::from_number(seed);
    let client = End::new(Connection::client(config(a, of_client), seeds.derive("client", 0)), &clock, b);
    let server = End::new(Connection::server(config(b, of_server), seeds.derive("server", 0)), &clock, a);
    Pair::new(seed, clock, client, server).links(links)
}

fn bad(link: Link) -> Link {
    link.latency(ms(20)).jitter(ms(5)).loss(0.1).reorder(0.05).duplicate(0.05)
}

/// Runs a handshake and returns its duration and the counters of both ends.
fn run(seed: u64, versions: Versions, mtu: usize) -> (Duration, Stats, Stats) {
    let mut sim = sim(seed, versions, mtu, bad);
    let connected = |end: &End| end.connected.is_some();
    let took = sim.run_until(secs(10), |a, b| connected(a) && connected(b)).unwrap();
    let (a, b) = (sim.a.connected.take().unwrap(), sim.b.connected.take().unwrap());
    assert_eq!(a.srtp, b.srtp);
    // Lost parts of the last flight, and of its acknowledgement, are sent again.
    sim.run_for(secs(10)).unwrap();
    for end in [&sim.a, &sim.b] {
        assert!(end.held_most <= HELD_BYTES_MAX, "seed {seed}: {}", end.held_most);
        let held = end.connection.held_bytes();
        assert!(held <= SESSION_BYTES_MAX, "seed {seed}: {held}");
        assert_eq!((end.closed, end.connection.poll_timeout()), (None, None));
    }
    let stats = (sim.a.connection.stats(), sim.b.connection.stats());
    (took, stats.0, stats.1)
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let count = std::env::var("MILLSTREAM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    1..count + 1
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap()
}

#[test]
fn d_11_a_thousand_handshakes_over_a_bad_network() {
    for versions in [Versions::Only12, Versions::Both] {
        let mtu = |seed| if seed % 2 == 0 { 1200 } else { 300 };
        let took = median(seeds(1000).map(|seed| run(seed, versions, mtu(seed)).0).collect());
        assert!(took < ms(500), "{versions:?}: {took:?}");
    }
}

/// Checks that runs are repeatable, except for signatures: the library makes them at random, with slightly
/// different lengths.
#[test]
fn the_same_seed_gives_the_same_handshake() {
    for versions in [Versions::Only12, Versions::Both] {
        for seed in 1..=20 {
            assert_eq!(run(seed, versions, 1200), run(seed, versions, 1200), "{versions:?}, seed {seed}");
        }
        assert_ne!(run(1, versions, 1200).0, run(2, versions, 1200).0);
    }
}

/// Measures after how many round trips of 100 ms the client and the server can send.
fn round_trips(client: Versions, server: Versions) -> [f64; 2] {
    let [a, b] = &*IDENTITIES;
    let mut sim = sim_of(1, [client, server], 1200, [a, b], |link| link.latency(ms(50)));
    let start = sim.clock.elapsed();
    sim.run_until(secs(1), |a, b| a.connected.is_some() || b.connected.is_some()).unwrap();
    let (first, is_client) = (sim.clock.elapsed() - start, sim.a.connected.is_some());
    sim.run_until(secs(1), |a, b| a.connected.is_some() && b.connected.is_some()).unwrap();
    let last = sim.clock.elapsed() - start;
    let (client, server) = if is_client { (first, last) } else { (last, first) };
    [client, server].map(|took| took.as_secs_f64() / ms(100).as_secs_f64())
}

/// Checks the number of round trips: a client with DTLS 1.3 is done after one, with 1.2 after two. A server
/// always waits for the client's last flight.
#[test]
fn dtls_13_saves_the_client_a_round_trip() {
    use Versions::{Both, Only12, Only13};
    let close = |one: f64, other: f64| (one - other).abs() < 0.01;
    for (client, server, trips) in [
        (Only12, Only12, [2.0, 1.5]),
        (Both, Both, [1.0, 1.5]),
        (Only13, Both, [1.0, 1.5]),
        (Both, Only13, [1.0, 1.5]),
        // Offering 1.3 takes no extra round trip with peers that do not accept it.
        (Both, Only12, [2.0, 1.5]),
        (Only12, Both, [2.0, 1.5]),
    ] {
        let took = round_trips(client, server);
        assert!(close(took[0], trips[0]) && close(took[1], trips[1]), "{client:?} {server:?}: {took:?}");
    }
}

/// Checks a change of the server's certificate: connected clients stay connected, and new ones receive the new
/// certificate.
#[test]
fn d_17_a_new_certificate_disturbs_nobody() {
    let [client, old] = &*IDENTITIES;
    let new = Arc::new(Identity::self_signed(&Seed::from_number(3)).unwrap());
    let connect = |seed, server: &Arc<Identity>| {
        let mut sim = sim_of(seed, [Versions::Both; 2], 1200, [client, server], |link| link.latency(ms(5)));
        sim.run_until(secs(1), |a, b| a.connected.is_some() && b.connected.is_some()).unwrap();
        assert_eq!(
            sim.a.connection.peer_sha256().as_ref().map(|hash| &hash[..]),
            Some(server.fingerprint().digest())
        );
        sim
    };
    let mut sessions: Vec<_> = (0..100).map(|seed| connect(seed, old)).collect();
    sessions.extend((100..110).map(|seed| connect(seed, &new)));
    for sim in &mut sessions {
        sim.a.connection.send(b"still here").unwrap();
        sim.b.connection.send(b"so are we").unwrap();
        sim.run_for(secs(60)).unwrap();
        assert_eq!(
            (&sim.a.received[..], &sim.b.received[..]),
            (&[Bytes::from("so are we")][..], &[Bytes::from("still here")][..])
        );
        assert_eq!((sim.a.closed, sim.b.closed), (None, None));
    }
}

#[test]
fn data_follows_the_handshake_and_a_goodbye_ends_it() {
    let mut sim = sim(7, Versions::Only12, 1200, |link| link.latency(ms(20)));
    let took = sim.run_until(secs(1), |a, b| a.connected.is_some() && b.connected.is_some()).unwrap();
    assert_eq!(took, ms(80), "two round trips");
    sim.a.connection.send(b"hello").unwrap();
    sim.a.connection.close(sim.clock.now());
    sim.a.drain();
    sim.run_for(secs(1)).unwrap();
    assert_eq!(sim.b.received, [&b"hello"[..]]);
    assert_eq!((sim.a.closed, sim.b.closed), (Some(CloseReason::Local), Some(CloseReason::Peer)));
}
