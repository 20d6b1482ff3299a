//! STUN messages, and agents under attack.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use ice::stun::{self, AttributeType, Class, Message, MessageWriter, TransactionId};
use ice::{
    Agent, Candidate, Config, Credentials, Demux, Event, LiteAgent, LiteConfig, Path, Role, Route, Selection,
    Transport, limits,
};

use crate::http_targets::epoch;

/// Reads a datagram as a STUN message, and as a stream of frames; then uses the same bytes as attributes of an
/// authentic message.
pub fn stun(data: &[u8]) {
    let ufrag = stun::username_fragment(data);
    if let Ok(message) = Message::read(data) {
        let own = message.username().filter(|_| message.class() == Class::Request);
        let before = own.and_then(|name| Some(&name[..name.iter().position(|byte| *byte == b':')?]));
        assert_eq!(ufrag, before, "the port and the session see different names");
        assert!(!message.is_authentic(KEY), "an integrity was guessed");
        assert!(message.attributes().count() <= limits::ATTRIBUTES_MAX);
        written_again(&message);
    }
    let _: Route<u8> = Demux::new().route(&Path::udp(address(1), address(2)), data);
    as_attributes(data);
    for mut reader in [ice::tcp::FrameReader::new(300), ice::tcp::FrameReader::accepted(300)] {
        let mut input = bytes::BytesMut::from(data);
        while let Ok(Some(frame)) = reader.next(&mut input) {
            assert!(!frame.is_empty() && frame.len() <= 300);
        }
    }
}

const KEY: &[u8] = b"a key that nobody has guessed";

fn written_again(message: &Message<'_>) {
    let mut out = Vec::new();
    let mut writer = MessageWriter::new(&mut out, message.class(), message.transaction_id());
    let mut sealed = false;
    for attribute in message.attributes() {
        sealed |= attribute.kind == AttributeType::MESSAGE_INTEGRITY;
        if !sealed && attribute.kind != AttributeType::FINGERPRINT {
            writer = writer.attribute(attribute.kind, attribute.value);
        }
    }
    writer.finish(KEY);
    let again = match Message::read(&out) {
        Ok(again) => again,
        // The message has two attributes more, the integrity and the fingerprint, which may exceed a limit.
        Err(ice::Error::TooManyAttributes | ice::Error::TooLong { .. }) => return,
        Err(error) => panic!("{error}"),
    };
    assert!(again.is_authentic(KEY) && !again.is_authentic(b"another key"));
    assert_eq!((again.class(), again.transaction_id()), (message.class(), message.transaction_id()));
    assert_eq!((again.username(), again.mapped_address()), (message.username(), message.mapped_address()));
    assert_eq!((again.priority(), again.role()), (message.priority(), message.role()));
    assert_eq!((again.use_candidate(), again.error_code()), (message.use_candidate(), message.error_code()));
    assert_eq!(again.unknown(), message.unknown());
}

fn as_attributes(data: &[u8]) {
    let mut out = Vec::new();
    let mut writer = MessageWriter::new(&mut out, Class::Request, TransactionId([1; 12]));
    for piece in data.chunks(12).take(limits::ATTRIBUTES_MAX + 4) {
        let (kind, value) = piece.split_at(piece.len().min(2));
        let kind = kind.iter().fold(0, |kind, byte| (kind << 8) | u16::from(*byte));
        writer = writer.attribute(AttributeType(kind), value);
    }
    writer.finish(KEY);
    if let Ok(message) = Message::read(&out) {
        assert!(!message.is_authentic(b"another key"));
    }
}

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 5000))
}

/// Runs two agents. The first byte determines their kinds. Each further byte is an operation: on the next
/// datagram, on the clock, by the application, or by a peer with or without the credentials.
pub fn ice_agent(data: &[u8]) {
    let Some((flags, operations)) = data.split_first() else { return };
    let mut world = World::new(*flags);
    let mut operations = operations.iter().copied().take(1000);
    while let Some(operation) = operations.next() {
        let argument = if operation & 0x80 == 0 { 0 } else { operations.next().unwrap_or(0) };
        world.operate(operation & 0x7f, argument);
        world.check();
    }
    world.finish();
}

enum Side {
    Full(Box<Agent>),
    Lite(Box<LiteAgent>),
}

impl Side {
    fn handle_datagram(&mut self, now: Instant, path: Path, bytes: &[u8]) {
        match self {
            Self::Full(agent) => agent.handle_datagram(now, path, bytes),
            Self::Lite(agent) => agent.handle_datagram(now, path, bytes),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Full(agent) => agent.handle_timeout(now),
            Self::Lite(agent) => agent.handle_timeout(now),
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        match self {
            Self::Full(agent) => agent.poll_event(),
            Self::Lite(agent) => agent.poll_event(),
        }
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<ice::Transmit> {
        match self {
            Self::Full(agent) => agent.poll_transmit(now, out),
            Self::Lite(agent) => agent.poll_transmit(now, out),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Full(agent) => agent.poll_timeout(),
            Self::Lite(agent) => agent.poll_timeout(),
        }
    }

    fn local(&self) -> Credentials {
        match self {
            Self::Full(agent) => agent.local().clone(),
            Self::Lite(agent) => agent.local().clone(),
        }
    }

    fn is_valid(&self, path: &Path) -> bool {
        match self {
            Self::Full(agent) => agent.is_valid(path),
            Self::Lite(agent) => agent.is_valid(path),
        }
    }

    fn selected(&self) -> Option<Path> {
        match self {
            Self::Full(agent) => agent.selected(),
            Self::Lite(agent) => agent.selected(),
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Self::Full(agent) => agent.is_closed(),
            Self::Lite(agent) => agent.is_closed(),
        }
    }
}

/// A datagram in flight, with the path as its receiver will see it.
struct Flying {
    path: Path,
    bytes: Vec<u8>,
    /// The message as written by an end with the credentials. The FINGERPRINT is left out, because nothing detects
    /// damage after MESSAGE-INTEGRITY.
    authentic: Option<Vec<u8>>,
}

impl Flying {
    fn new(path: Path, bytes: Vec<u8>, is_authentic: bool) -> Self {
        let sealed = bytes.len().saturating_sub(8);
        let authentic = is_authentic.then(|| bytes[..sealed].to_vec());
        Self { path, bytes, authentic }
    }

    fn is_intact(&self) -> bool {
        self.authentic.as_ref().is_some_and(|sealed| self.bytes.starts_with(sealed))
    }
}

struct End {
    side: Side,
    /// Datagrams in flight to this end.
    queue: Vec<Flying>,
    /// Paths by which authentic messages have arrived.
    heard: HashSet<Path>,
    /// Paths by which only media has arrived.
    followed: HashSet<Path>,
    /// Paths by which data other than STUN may arrive, according to the agent's events.
    valid: HashSet<Path>,
    closed: bool,
}

struct World {
    now: Instant,
    ends: [End; 2],
    seeds: u64,
    hosts: u8,
}

/// Maximum number of datagrams in flight to one end.
const QUEUE_MAX: usize = 128;

impl World {
    fn new(flags: u8) -> Self {
        let now = epoch();
        let role = |bit: u8| if flags & bit == 0 { Role::Controlling } else { Role::Controlled };
        let full = |host: u8, role| {
            let config = Config { role, ..Config::default() };
            let mut agent = Agent::new(now, Arc::new(config), &Seed::from_number(u64::from(host)));
            let _ = agent.add_local(now, address(host));
            Side::Full(Box::new(agent))
        };
        let selection = if flags & 8 == 0 { Selection::FirstValid } else { Selection::Nominated };
        let other = if flags & 4 == 0 {
            full(2, role(2))
        } else {
            let config = Arc::new(LiteConfig { selection, ..LiteConfig::default() });
            Side::Lite(Box::new(LiteAgent::new(now, config, &Seed::from_number(2))))
        };
        let end = |side| End {
            side,
            queue: Vec::new(),
            heard: HashSet::new(),
            followed: HashSet::new(),
            valid: HashSet::new(),
            closed: false,
        };
        let mut world = Self { now, ends: [end(full(1, role(1))), end(other)], seeds: 10, hosts: 2 };
        if flags & 16 == 0 {
            world.tell(0);
            world.tell(1);
            world.tell_address(0, 2);
        }
        world.drain();
        world
    }

    fn operate(&mut self, operation: u8, argument: u8) {
        let to = usize::from(operation & 1);
        match operation >> 1 {
            0..=7 => self.deliver(to, usize::from(argument)),
            8 => self.now += Duration::from_millis(u64::from(argument)),
            9 => self.now += Duration::from_secs(u64::from(argument) / 8),
            10..=13 => self.timeouts(),
            14 => self.lose(to, usize::from(argument)),
            15 => self.double(to, argument),
            16 => self.damage(to, argument),
            17 => self.move_sender(to, argument),
            18 => self.tell(to),
            19 => self.tell_address(to, argument),
            20 => self.restart(to),
            21 => self.insider(to, argument),
            22 => self.unauthenticated(to, argument),
            23 => self.add_local(to, argument),
            24 if argument == 77 => match &mut self.ends[to].side {
                Side::Full(agent) => agent.close(self.now),
                Side::Lite(agent) => agent.close(self.now),
            },
            25 => self.media(to, argument),
            _ => self.settle(),
        }
        self.drain();
    }

    /// Delivers media to a lite agent on a path that may be new.
    fn media(&mut self, to: usize, argument: u8) {
        let end = &mut self.ends[to];
        let Side::Lite(agent) = &mut end.side else { return };
        let near = agent.selected().map_or(address(argument), |path| path.remote).ip();
        let path = Path::udp(address(1 + to as u8), SocketAddr::new(near, 6000 + u16::from(argument)));
        if agent.may_follow(&path) {
            end.followed.insert(path);
        }
        agent.follow_media(self.now, path);
    }

    /// Delivers the datagrams of both sides for some rounds, and lets 50 ms pass.
    fn settle(&mut self) {
        for _ in 0..8 {
            self.drain();
            (0..8).for_each(|_| self.deliver(0, 0));
            (0..8).for_each(|_| self.deliver(1, 0));
        }
        self.now += Duration::from_millis(50);
        self.timeouts();
    }

    fn deliver(&mut self, to: usize, at: usize) {
        let end = &mut self.ends[to];
        if end.queue.is_empty() {
            return;
        }
        let flying = end.queue.remove(at % end.queue.len());
        if flying.is_intact() {
            end.heard.insert(flying.path);
        }
        end.side.handle_datagram(self.now, flying.path, &flying.bytes);
    }

    fn timeouts(&mut self) {
        for end in &mut self.ends {
            end.side.handle_timeout(self.now);
        }
        self.drain();
        for end in &self.ends {
            assert!(end.side.poll_timeout().is_none_or(|at| at > self.now), "a deadline that stays");
        }
    }

    fn lose(&mut self, to: usize, at: usize) {
        let queue = &mut self.ends[to].queue;
        if !queue.is_empty() {
            queue.remove(at % queue.len());
        }
    }

    fn double(&mut self, to: usize, argument: u8) {
        let queue = &mut self.ends[to].queue;
        if let Some(first) = queue.first().filter(|_| queue.len() < QUEUE_MAX) {
            // A copy from another address is a replay.
            let mut path = first.path;
            if argument & 1 != 0 {
                path.remote = address(100 + argument % 16);
            }
            let copy = Flying { path, bytes: first.bytes.clone(), authentic: first.authentic.clone() };
            queue.push(copy);
        }
    }

    fn damage(&mut self, to: usize, argument: u8) {
        let Some(first) = self.ends[to].queue.first_mut() else { return };
        let at = usize::from(argument) % first.bytes.len().max(1);
        if let Some(byte) = first.bytes.get_mut(at) {
            *byte ^= 1 << (argument % 8);
        }
        if argument & 0x40 != 0 {
            first.bytes.truncate(at);
        }
    }

    /// Changes the port of the sender, as a NAT may do.
    fn move_sender(&mut self, to: usize, argument: u8) {
        for flying in &mut self.ends[to].queue {
            flying.path.remote = SocketAddr::new(flying.path.remote.ip(), 5000 + u16::from(argument));
        }
    }

    fn tell(&mut self, to: usize) {
        let from = &self.ends[1 - to].side;
        let (credentials, is_lite) = (from.local(), matches!(from, Side::Lite(_)));
        match &mut self.ends[to].side {
            Side::Full(agent) => agent.set_remote(self.now, credentials, is_lite),
            Side::Lite(agent) => agent.set_remote(self.now, credentials),
        }
    }

    fn tell_address(&mut self, to: usize, host: u8) {
        if let Side::Full(agent) = &mut self.ends[to].side {
            // Addresses from number 200 on belong to unauthenticated peers.
            let candidate = Candidate::host(Transport::Udp, address(host % 200), u16::from(host));
            let _ = agent.add_remote(self.now, &candidate);
        }
    }

    fn add_local(&mut self, to: usize, argument: u8) {
        self.hosts = 3 + (self.hosts + 1) % 40;
        let host = self.hosts;
        if let Side::Full(agent) = &mut self.ends[to].side {
            let _ = agent.add_local(self.now, address(host));
            let _ = agent.gather(self.now, address(host), address(argument));
        }
    }

    fn restart(&mut self, to: usize) {
        self.seeds += 1;
        let seed = Seed::from_number(self.seeds);
        match &mut self.ends[to].side {
            Side::Full(agent) => drop(agent.restart(self.now, &seed).clone()),
            Side::Lite(agent) => drop(agent.restart(&seed).clone()),
        }
    }

    /// Sends an odd message from a peer that knows the credentials.
    fn insider(&mut self, to: usize, argument: u8) {
        let other = self.ends[1 - to].side.local();
        let local = self.ends[to].side.local();
        let mut out = Vec::new();
        let class = match argument >> 6 {
            0 | 1 => Class::Request,
            2 => Class::Success,
            _ => Class::Indication,
        };
        let mut writer = MessageWriter::new(&mut out, class, TransactionId([argument; 12]))
            .username(local.ufrag(), other.ufrag())
            .use_candidate(argument & 1 != 0);
        if argument & 2 != 0 {
            writer = writer.role(stun::RoleAttribute::Controlling(u64::from(argument) << 56));
        }
        if argument & 4 != 0 {
            writer = writer.role(stun::RoleAttribute::Controlled(u64::from(argument) << 56));
        }
        if argument & 8 != 0 {
            writer = writer.attribute(AttributeType(0x0050 + u16::from(argument)), &[argument]);
        }
        writer.finish(local.password().as_bytes());
        let path = Path::udp(address(1 + to as u8), address(50 + argument % 64));
        self.send(to, Flying::new(path, out, class == Class::Request));
    }

    /// Sends a request from a peer that does not know the credentials.
    fn unauthenticated(&mut self, to: usize, argument: u8) {
        let local = self.ends[to].side.local();
        let mut out = Vec::new();
        let writer = MessageWriter::new(&mut out, Class::Request, TransactionId([argument; 12]))
            .username(local.ufrag(), "peer")
            .use_candidate(true);
        if argument & 1 == 0 {
            writer.finish(b"a guess");
        } else {
            writer.finish_open();
        }
        let path = Path::udp(address(1 + to as u8), address(200 + argument % 16));
        self.send(to, Flying::new(path, out, false));
    }

    fn send(&mut self, to: usize, flying: Flying) {
        let queue = &mut self.ends[to].queue;
        if queue.len() < QUEUE_MAX {
            queue.push(flying);
        }
    }

    fn drain(&mut self) {
        for from in 0..2 {
            let end = &mut self.ends[from];
            while let Some(event) = end.side.poll_event() {
                assert!(!end.closed, "after the end: {event:?}");
                match event {
                    Event::Closed(_) => end.closed = true,
                    Event::Validated(path) => {
                        let is_proved = end.heard.contains(&path) || end.followed.contains(&path);
                        assert!(is_proved, "valid without proof");
                        assert!(end.valid.insert(path), "validated twice");
                    }
                    Event::Expired(path) => assert!(end.valid.remove(&path), "expired without being valid"),
                    _ => {}
                }
            }
            let mut sent = Vec::new();
            let mut out = Vec::new();
            while let Some(transmit) = end.side.poll_transmit(self.now, &mut out) {
                assert_eq!(transmit.length, out.len());
                let path = Path::udp(transmit.path.remote, transmit.path.local);
                sent.push(Flying::new(path, std::mem::take(&mut out), true));
            }
            sent.into_iter().for_each(|flying| self.send(1 - from, flying));
        }
    }

    fn check(&self) {
        for end in &self.ends {
            assert_eq!(end.closed, end.side.is_closed(), "the last event is missing");
            if end.closed {
                assert!(end.side.selected().is_none() && end.side.poll_timeout().is_none());
                continue;
            }
            assert!(end.valid.iter().all(|path| end.side.is_valid(path)), "events and state differ");
            assert!(
                end.side.selected().is_none_or(|path| end.side.is_valid(&path)),
                "media to an unauthenticated peer"
            );
            assert!(end.side.selected().is_none_or(|path| end.heard.contains(&path)), "media to a listener");
            assert!(!end.side.is_valid(&Path::udp(address(1), address(200))));
            match &end.side {
                Side::Full(agent) => {
                    assert!(agent.pairs() <= limits::CHECK_LIST_MAX);
                    assert!(agent.remote_candidates() <= limits::CANDIDATES_MAX);
                    assert!(agent.transactions() <= limits::TRANSACTIONS_MAX);
                }
                Side::Lite(agent) => {
                    assert!(agent.valid_paths() <= limits::PAIRS_MAX);
                    assert_eq!(agent.valid_paths(), end.valid.len());
                }
            }
        }
    }

    /// Lets time pass without datagrams. Both agents must then end.
    fn finish(&mut self) {
        for _ in 0..400 {
            self.ends.iter_mut().for_each(|end| end.queue.clear());
            self.now += Duration::from_millis(500);
            self.timeouts();
            self.check();
        }
        assert!(self.ends.iter().all(|end| end.closed), "silence is survived");
    }
}
