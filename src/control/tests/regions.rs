//! Copies through the relays of a region, in a simulated cluster: however relays join, die, return and drain, each
//! stream enters the region once.

use std::collections::BTreeMap;

use crypto::{Random, Seed};

use super::claims::{holder, membership};
use super::*;
use crate::config::WithoutDirectory;
use crate::directory::{News, Node, Profile};
use crate::mail::{PullOrder, PullState};
use crate::types::NodeId;

const SEEDS: u64 = 12;
const EDGES: usize = 4;
const STREAMS: usize = 4;
const RELAYS: usize = 3;
/// Seconds after which a dead relay's lease has expired.
const LEASE: u64 = 5;
/// Seconds after the last event in which all nodes come to rest.
const REST: u64 = 20;
/// The host of the node with all publishers; that of a relay is its number.
const ORIGIN: u8 = 100;

/// A relay of the region, as it is.
#[derive(Debug, Clone, Copy)]
struct Relay {
    is_up: bool,
    incarnation: u64,
    is_draining: bool,
    /// Second in which its lease expires, if it is down.
    until: u64,
}

/// A connection of an edge that fetches a stream.
#[derive(Debug)]
struct Connection {
    order: PullOrder,
    session: SessionRef,
    stream: StreamId,
}

/// The node from which an order fetches: the last part of its address.
fn source_of(order: &PullOrder) -> u8 {
    let std::net::IpAddr::V4(address) = order.address.ip() else { panic!("{order:?}") };
    address.octets()[3]
}

/// A node of the region with viewers.
struct Edge {
    rig: Rig,
    connections: BTreeMap<StreamKey, Connection>,
}

struct Region {
    random: Random,
    second: u64,
    relays: [Relay; RELAYS],
    edges: Vec<Edge>,
}

fn key(number: usize) -> StreamKey {
    StreamKey::new("live", &format!("s{number}"))
}

fn node(name: &str, region: &str, host: u8) -> Node {
    let relay = format!("10.0.0.{host}:5000").into();
    let profile = Profile { relay, region: region.into(), ..Profile::default() };
    Node { id: NodeId::new(name).unwrap(), incarnation: 1, is_alive: true, profile, silent_ms: 0 }
}

impl Region {
    fn new(seed: u64) -> Self {
        let relay = Relay { is_up: true, incarnation: 1, is_draining: false, until: 0 };
        let random = Seed::from_number(seed).random();
        let mut region = Self { random, second: 0, relays: [relay; RELAYS], edges: Vec::new() };
        for number in 0..EDGES {
            let id = NodeId::new(&format!("edge-{number}")).unwrap();
            let claims = (0..STREAMS).map(|stream| (key(stream), holder("origin", 1, 7))).collect();
            let known = Membership {
                node: id,
                nodes: region.census(),
                claims,
                ..membership(WithoutDirectory::Accept)
            };
            let settings = config(&[("relay.secret", "sixteen letters!")], &[]);
            let rig = Rig::start(ControlConfig { cluster: Some(known), ..settings }, Memory::new());
            region.edges.push(Edge { rig, connections: BTreeMap::new() });
        }
        region
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.random.below(limit as u64)).unwrap()
    }

    /// The list of nodes in the directory.
    fn census(&self) -> Vec<Node> {
        let mut all = vec![node("origin", "us", ORIGIN)];
        for (number, relay) in self.relays.iter().enumerate() {
            let mut one = node(&format!("relay-{number}"), "eu", u8::try_from(number).unwrap());
            one.incarnation = relay.incarnation;
            one.is_alive = relay.is_up || self.second < relay.until;
            (one.profile.is_regional_relay, one.profile.is_draining) = (true, relay.is_draining);
            all.push(one);
        }
        all.extend((0..EDGES).map(|number| node(&format!("edge-{number}"), "eu", 50)));
        all
    }

    /// True if an attempt to fetch from this host succeeds.
    fn is_up(&self, host: u8) -> bool {
        self.relays.get(usize::from(host)).is_none_or(|relay| relay.is_up)
    }

    /// Lets the attempts of an edge succeed or fail, until none is left.
    fn attempt(&mut self, at: usize) {
        for _ in 0..100 {
            let posted = self.edges[at].rig.take();
            if posted.is_empty() {
                return;
            }
            for (worker, mail) in posted {
                match mail {
                    ToWorker::StopPull(pull) => self.disconnect(at, |order| order.pull == pull, false),
                    ToWorker::StartPull(order) if !self.is_up(source_of(&order)) => {
                        self.ended(at, &order, PullState::Failed("refused".to_owned()));
                    }
                    ToWorker::StartPull(order) => self.connect(at, worker, *order),
                    _ => {}
                }
            }
        }
        panic!("attempts without end");
    }

    fn connect(&mut self, at: usize, worker: WorkerId, order: PullOrder) {
        let Edge { rig, connections } = &mut self.edges[at];
        let mut request = rig.request(&order.key.id, worker.0);
        (request.ingest, request.zero_ms) = (Ingest::COPY, Some(1));
        request.pull = Some((order.pull, order.attempt));
        let session = request.session;
        let kept = rig.take();
        let stream = rig.ask(request).unwrap().stream;
        rig.posted.extend(kept);
        let one_before = connections.insert(order.key.clone(), Connection { order, session, stream });
        assert!(one_before.is_none(), "two copies of a stream enter a node");
    }

    fn ended(&mut self, at: usize, order: &PullOrder, state: PullState) {
        self.edges[at].rig.mail(ToControl::Pull { pull: order.pull, attempt: order.attempt, state });
    }

    /// Ends connections of an edge. `is_loss`: control learns of it from the worker instead of having ordered it.
    fn disconnect(&mut self, at: usize, is_one: impl Fn(&PullOrder) -> bool, is_loss: bool) {
        let all = &self.edges[at].connections;
        let gone = all.iter().filter(|(_, one)| is_one(&one.order)).map(|(key, _)| key.clone());
        for key in gone.collect::<Vec<_>>() {
            let Edge { rig, connections } = &mut self.edges[at];
            let Connection { order, session, stream } = connections.remove(&key).unwrap();
            rig.gone(session, stream, Departure::Lost, 5000);
            if is_loss {
                let lost = PullState::Lost { reason: "reset".to_owned(), ahead: Duration::ZERO };
                self.ended(at, &order, lost);
            }
        }
    }

    /// Lets a second pass. Edges get the list of nodes at different times.
    fn pass(&mut self) {
        self.second += 1;
        for at in 0..EDGES {
            let is_told = self.second > 2 * EDGES as u64 || self.below(3) > 0;
            let census = self.census();
            let Edge { rig, connections } = &mut self.edges[at];
            if is_told {
                rig.tell_news(News::Nodes(census));
            }
            let streams: Vec<StreamId> = connections.values().map(|one| one.stream).collect();
            for worker in 0..WORKERS {
                let of_worker = connections.values().filter(|one| one.session.worker.0 == worker);
                let viewers = of_worker.map(|one| (one.stream, 1)).collect();
                rig.mail(ToControl::Report(WorkerId(worker), Report { viewers, ..Report::default() }));
            }
            rig.run_for(secs(1));
            assert!(streams.iter().all(|stream| rig.control.registry.get(stream).is_some()), "viewers stay");
            self.attempt(at);
        }
    }

    fn event(&mut self) {
        let relay = self.below(RELAYS);
        let one = self.relays[relay];
        match self.below(5) {
            0 if one.is_up => self.end(relay, LEASE),
            // A relay that restarts within its lease.
            1 if one.is_up => {
                self.end(relay, LEASE);
                self.pass();
                self.begin(relay);
            }
            0 | 1 => self.begin(relay),
            2 => self.relays[relay].is_draining = !one.is_draining,
            3 => {
                let (at, stream) = (self.below(EDGES), self.below(STREAMS));
                self.disconnect(at, |order| order.key == key(stream), true);
                self.attempt(at);
            }
            _ => {
                let (at, stream) = (self.below(EDGES), self.below(STREAMS));
                self.edges[at].rig.mail(ToControl::Wanted { key: key(stream), via: Vec::new() });
                self.attempt(at);
            }
        }
    }

    fn begin(&mut self, relay: usize) {
        let one = &mut self.relays[relay];
        one.is_up = true;
        one.incarnation += 1;
    }

    fn end(&mut self, relay: usize, lease: u64) {
        let one = &mut self.relays[relay];
        (one.is_up, one.is_draining, one.until) = (false, false, self.second + lease);
        for at in 0..EDGES {
            self.disconnect(at, |order| usize::from(source_of(order)) == relay, true);
            self.attempt(at);
        }
    }

    /// Returns the nodes from which the edges fetch a stream.
    fn sources(&self, stream: usize) -> Vec<u8> {
        let connections = self.edges.iter().filter_map(|edge| edge.connections.get(&key(stream)));
        connections.map(|one| source_of(&one.order)).collect()
    }

    /// Checks that each stream enters the region once: through one relay, or if there is none, to each edge.
    fn check(&self, name: &str) {
        let has_relay = self.relays.iter().any(|relay| relay.is_up);
        for stream in 0..STREAMS {
            let sources = self.sources(stream);
            let is_once = sources.iter().all(|source| Some(source) == sources.first());
            let is_right = sources.iter().all(|source| (*source == ORIGIN) != has_relay);
            assert!(is_once && is_right, "{name}: s{stream} from {sources:?}, relays {:?}", self.relays);
        }
    }
}

#[test]
fn a_stream_enters_a_region_once_whatever_happens_to_its_relays() {
    let mut watched = 0;
    for seed in 0..SEEDS {
        let mut region = Region::new(seed);
        for round in 0..6 {
            for _ in 0..region.below(8) {
                region.event();
                for _ in 0..region.below(7) {
                    region.pass();
                }
            }
            (0..REST).for_each(|_| region.pass());
            region.check(&format!("seed {seed}, round {round}"));
            watched += (0..STREAMS).map(|stream| region.sources(stream).len()).sum::<usize>();
        }
    }
    assert!(watched > 100, "{watched} copies");
}
