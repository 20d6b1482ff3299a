//! Test harness: ends with addresses and NATs, connected by a link in each direction.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use ice::{
    Agent, Candidate, CloseReason, Config, Credentials, Event, Kind, LiteAgent, LiteConfig, Path, Role,
    Stats, Transport, classify,
};
use netsim::{Clock, Input, Pair, Peer, Stuck, ms, secs};

/// Fake media packet.
const MEDIA: [u8; 5] = [0x80, 96, 0, 0, 0];

pub(crate) fn address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], port))
}

pub(crate) enum Side {
    Full(Box<Agent>),
    Lite(Box<LiteAgent>),
    /// A STUN server that returns the addresses that it sees.
    Server,
}

/// A NAT between an end and the link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Nat {
    pub(crate) inside: SocketAddr,
    pub(crate) outside: SocketAddr,
}

pub(crate) struct End {
    pub(crate) side: Side,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) nat: Option<Nat>,
    /// Addresses at which nothing arrives.
    pub(crate) unreachable: Vec<SocketAddr>,
    pub(crate) media_interval: Option<Duration>,
    media_at: Option<Instant>,
    pub(crate) media_in: u64,
    pub(crate) media_refused: u64,
    /// Time of the last received media.
    pub(crate) media_last: Option<Instant>,
    /// Longest pause of media.
    pub(crate) media_gap: Duration,
    pub(crate) events: Vec<Event>,
    pub(crate) candidates: Vec<Candidate>,
    queue: VecDeque<Bytes>,
    pub(crate) closed: Option<(CloseReason, Instant)>,
    valid: Vec<Path>,
}

impl End {
    fn new(side: Side, addresses: Vec<SocketAddr>) -> Self {
        Self {
            side,
            addresses,
            nat: None,
            unreachable: Vec::new(),
            media_interval: None,
            media_at: None,
            media_in: 0,
            media_refused: 0,
            media_last: None,
            media_gap: Duration::ZERO,
            events: Vec::new(),
            candidates: Vec::new(),
            queue: VecDeque::new(),
            closed: None,
            valid: Vec::new(),
        }
    }

    pub(crate) fn full(clock: &Clock, role: Role, seed: u64, addresses: &[SocketAddr]) -> Self {
        Self::configured(clock, Config { role, ..Config::default() }, seed, addresses)
    }

    pub(crate) fn configured(clock: &Clock, config: Config, seed: u64, addresses: &[SocketAddr]) -> Self {
        let mut agent = Agent::new(clock.now(), Arc::new(config), &Seed::from_number(seed));
        let add = |address: &SocketAddr| agent.add_local(clock.now(), *address).unwrap();
        let candidates = addresses.iter().map(add).collect();
        let mut end = Self::new(Side::Full(Box::new(agent)), addresses.to_vec());
        end.candidates = candidates;
        end
    }

    pub(crate) fn lite(clock: &Clock, seed: u64, addresses: &[SocketAddr]) -> Self {
        let config = Arc::new(LiteConfig::default());
        let agent = LiteAgent::new(clock.now(), config, &Seed::from_number(seed));
        let mut end = Self::new(Side::Lite(Box::new(agent)), addresses.to_vec());
        end.candidates = addresses.iter().map(|a| Candidate::host(Transport::Udp, *a, 65535)).collect();
        end
    }

    pub(crate) fn server(address: SocketAddr) -> Self {
        Self::new(Side::Server, vec![address])
    }

    pub(crate) fn agent(&mut self) -> &mut Agent {
        match &mut self.side {
            Side::Full(agent) => agent,
            _ => panic!("not a full agent"),
        }
    }

    pub(crate) fn lite_agent(&mut self) -> &mut LiteAgent {
        match &mut self.side {
            Side::Lite(agent) => agent,
            _ => panic!("not a lite agent"),
        }
    }

    pub(crate) fn local(&self) -> Credentials {
        match &self.side {
            Side::Full(agent) => agent.local().clone(),
            Side::Lite(agent) => agent.local().clone(),
            Side::Server => panic!("a server has none"),
        }
    }

    pub(crate) fn selected(&self) -> Option<Path> {
        match &self.side {
            Side::Full(agent) => agent.selected(),
            Side::Lite(agent) => agent.selected(),
            Side::Server => None,
        }
    }

    pub(crate) fn is_nominated(&self) -> bool {
        match &self.side {
            Side::Full(agent) => agent.is_nominated(),
            Side::Lite(agent) => agent.selected().is_some(),
            Side::Server => false,
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        match &self.side {
            Side::Full(agent) => agent.stats(),
            Side::Lite(agent) => agent.stats(),
            Side::Server => Stats::default(),
        }
    }

    /// Sets the description of the other side.
    pub(crate) fn learn(&mut self, now: Instant, credentials: Credentials, is_lite: bool) {
        match &mut self.side {
            Side::Full(agent) => agent.set_remote(now, credentials, is_lite),
            Side::Lite(agent) => agent.set_remote(now, credentials),
            Side::Server => {}
        }
        self.drain(now);
    }

    pub(crate) fn learn_candidates(&mut self, now: Instant, candidates: &[Candidate]) {
        if let Side::Full(agent) = &mut self.side {
            for candidate in candidates {
                let _ = agent.add_remote(now, candidate);
            }
        }
        self.drain(now);
    }

    fn is_valid(&self, path: &Path) -> bool {
        match &self.side {
            Side::Full(agent) => agent.is_valid(path),
            Side::Lite(agent) => agent.is_valid(path),
            Side::Server => false,
        }
    }

    pub(crate) fn drain(&mut self, now: Instant) {
        loop {
            let event = match &mut self.side {
                Side::Full(agent) => agent.poll_event(),
                Side::Lite(agent) => agent.poll_event(),
                Side::Server => None,
            };
            let Some(event) = event else { break };
            assert!(self.closed.is_none(), "after the end: {event:?}");
            match &event {
                Event::Closed(reason) => self.closed = Some((*reason, now)),
                Event::Validated(path) => {
                    assert!(!self.valid.contains(path));
                    self.valid.push(*path);
                }
                Event::Expired(path) => {
                    assert!(self.valid.contains(path));
                    self.valid.retain(|valid| valid != path);
                }
                Event::Candidate(candidate) => self.candidates.push(*candidate),
                _ => {}
            }
            self.events.push(event);
        }
        if self.closed.is_none() {
            assert!(self.valid.iter().all(|path| self.is_valid(path)), "the events say something else");
        }
        let mut out = Vec::new();
        loop {
            out.clear();
            let transmit = match &mut self.side {
                Side::Full(agent) => agent.poll_transmit(now, &mut out),
                Side::Lite(agent) => agent.poll_transmit(now, &mut out),
                Side::Server => None,
            };
            let Some(transmit) = transmit else { break };
            self.push(transmit.path, &out);
        }
    }

    fn agent_timeout(&self) -> Option<Instant> {
        match &self.side {
            Side::Full(agent) => agent.poll_timeout(),
            Side::Lite(agent) => agent.poll_timeout(),
            Side::Server => None,
        }
    }

    fn push(&mut self, path: Path, payload: &[u8]) {
        let source = match self.nat {
            Some(nat) if nat.inside == path.local => nat.outside,
            _ => path.local,
        };
        let mut datagram = Vec::new();
        for address in [source, path.remote] {
            let SocketAddr::V4(v4) = address else { panic!("IPv4 only") };
            datagram.extend_from_slice(&v4.ip().octets());
            datagram.extend_from_slice(&v4.port().to_be_bytes());
        }
        datagram.extend_from_slice(payload);
        self.queue.push_back(datagram.into());
    }

    fn datagram(&mut self, now: Instant, datagram: &[u8]) {
        let read = |bytes: &[u8]| {
            let ip = Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]);
            SocketAddr::from((ip, u16::from_be_bytes([bytes[4], bytes[5]])))
        };
        let (source, mut destination) = (read(datagram), read(&datagram[6..]));
        if self.unreachable.contains(&destination) {
            return;
        }
        if let Some(nat) = self.nat {
            if destination == nat.inside {
                return;
            }
            if destination == nat.outside {
                destination = nat.inside;
            }
        }
        if self.addresses.contains(&destination) {
            self.arrived(now, Path::udp(destination, source), &datagram[12..]);
        }
    }

    fn arrived(&mut self, now: Instant, path: Path, payload: &[u8]) {
        if classify(payload) != Kind::Stun {
            if self.is_valid(&path) {
                self.media_in += 1;
                let pause = self.media_last.map_or(Duration::ZERO, |last| now - last);
                self.media_gap = self.media_gap.max(pause);
                self.media_last = Some(now);
            } else {
                self.media_refused += 1;
            }
            return;
        }
        match &mut self.side {
            Side::Full(agent) => agent.handle_datagram(now, path, payload),
            Side::Lite(agent) => agent.handle_datagram(now, path, payload),
            Side::Server => {
                let message = ice::stun::Message::read(payload).unwrap();
                let mut out = Vec::new();
                let class = ice::stun::Class::Success;
                ice::stun::MessageWriter::new(&mut out, class, message.transaction_id())
                    .mapped_address(path.remote)
                    .finish_open();
                self.push(path, &out);
            }
        }
    }

    fn media(&mut self, now: Instant) {
        let Some(interval) = self.media_interval else { return };
        if self.media_at.is_none_or(|at| at <= now) {
            self.media_at = Some(now + interval);
            if let Some(path) = self.selected() {
                self.push(path, &MEDIA);
            }
        }
    }
}

impl Peer for End {
    fn handle(&mut self, now: Instant, input: Input) {
        let was_timeout = input == Input::Timeout;
        match input {
            Input::Datagram(datagram) => self.datagram(now, &datagram),
            Input::Timeout => match &mut self.side {
                Side::Full(agent) => agent.handle_timeout(now),
                Side::Lite(agent) => agent.handle_timeout(now),
                Side::Server => {}
            },
        }
        self.drain(now);
        self.media(now);
        let stays = was_timeout && self.agent_timeout().is_some_and(|at| at <= now);
        assert!(!stays, "a deadline stays");
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Bytes> {
        self.queue.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.agent_timeout(), self.media_at].into_iter().flatten().min()
    }
}

/// Exchanges both descriptions with all candidates.
pub(crate) fn signal(pair: &mut Pair<End, End>) {
    signal_credentials(pair);
    let now = pair.clock.now();
    let (of_a, of_b) = (pair.a.candidates.clone(), pair.b.candidates.clone());
    pair.a.learn_candidates(now, &of_b);
    pair.b.learn_candidates(now, &of_a);
}

pub(crate) fn signal_credentials(pair: &mut Pair<End, End>) {
    let now = pair.clock.now();
    let lite = |end: &End| matches!(end.side, Side::Lite(_));
    let (of_a, of_b) = ((pair.a.local(), lite(&pair.a)), (pair.b.local(), lite(&pair.b)));
    pair.a.learn(now, of_b.0, of_b.1);
    pair.b.learn(now, of_a.0, of_a.1);
}

/// Connects two ends by links with a delay of 20 ms in each direction.
pub(crate) fn pair(seed: u64, clock: Clock, a: End, b: End) -> Pair<End, End> {
    Pair::new(seed, clock, a, b).links(|link| link.latency(ms(20)))
}

/// Runs until both sides have a nominated pair.
pub(crate) fn connect(pair: &mut Pair<End, End>, limit: Duration) -> Result<Duration, Stuck> {
    let took = pair.run_until(limit, |a, b| a.is_nominated() && b.is_nominated())?;
    assert_mirrored(pair);
    Ok(took)
}

/// Checks that each side sends on the pair on which the other receives.
pub(crate) fn assert_mirrored(pair: &Pair<End, End>) {
    let (a, b) = (pair.a.selected().unwrap(), pair.b.selected().unwrap());
    let seen = |end: &End, address| match end.nat {
        Some(nat) if nat.inside == address => nat.outside,
        _ => address,
    };
    assert_eq!((seen(&pair.a, a.local), a.remote), (b.remote, seen(&pair.b, b.local)), "{}", pair.trace());
}

pub(crate) fn ends(pair: &Pair<End, End>) -> [Option<CloseReason>; 2] {
    [&pair.a, &pair.b].map(|end| end.closed.map(|(reason, _)| reason))
}

pub(crate) const CONNECT: Duration = secs(15);
