//! A TURN server, its clients with and without credentials, and its peers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use crypto::Seed;
use ice::stun::{AttributeType, Class, Message, MessageWriter, TransactionId};
use turn::stream::{MessageReader, write};
use turn::{
    Allocation, Caps, Client, Config, Credentials, Destination, Endpoint, Error, Event, Peer, Peers, Route,
    limits, method,
};

use crate::http_targets::epoch;
use crate::splits::{head, pieces};

const SECRET: &[u8] = b"secret";
const REALM: &str = "realm";
const CAPS: Caps = Caps { of_network: 3, of_user: 2, in_total: 5 };
/// Maximum number of input bytes that are used as operations.
const OPERATIONS_MAX: usize = 2000;

/// Runs the server. The highest bit of the first byte decides whether the rest is a byte stream, cut in two ways,
/// or operations: requests with any attributes, data, garbage, time.
pub fn turn(data: &[u8]) {
    let Some((seed, rest)) = head(data) else { return };
    if seed & 0x80 == 0 {
        let cut = pieces(seed & 0x7f, rest);
        assert_eq!(messages(&[rest]), messages(&cut), "the cuts changed the meaning");
        return;
    }
    let mut world = World::new();
    let mut operations = &rest[..rest.len().min(OPERATIONS_MAX)];
    while let [operation, argument, more @ ..] = operations {
        operations = world.operate(*operation, *argument, more);
        world.check();
    }
    world.finish();
}

fn messages(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Option<Error>) {
    let mut reader = MessageReader::accepted();
    let mut found = Vec::new();
    for piece in pieces {
        let mut input = BytesMut::from(*piece);
        loop {
            match reader.next(&mut input) {
                Ok(Some(message)) => {
                    assert!(message.len() <= limits::MESSAGE_BYTES_MAX);
                    let mut again = BytesMut::new();
                    write(&message, &mut again);
                    assert!(again.len().is_multiple_of(4) && again.starts_with(&message));
                    found.push(message.to_vec());
                }
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
        assert!(input.is_empty(), "it was not read to its end");
    }
    (found, None)
}

fn address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, host], port))
}

fn peers() -> Vec<Peer> {
    let real = |told| Peer { told, real: told };
    let translated =
        |host| Peer { told: address(host, 50_000), real: SocketAddr::from(([127, 0, 0, 1], 50_000)) };
    let v6 = SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 50_000));
    vec![real(address(10, 50_000)), real(address(10, 50_001)), translated(20), translated(21), real(v6)]
}

struct World {
    now: Instant,
    endpoint: Endpoint<u8>,
    allocations: BTreeMap<u8, Allocation>,
    names: u8,
    nonces: BTreeMap<u8, Vec<u8>>,
    keys: [(String, [u8; 16]); 3],
}

impl World {
    fn new() -> Self {
        let now = epoch();
        let config = Config {
            realm: REALM.to_owned(),
            secret: SECRET.to_vec(),
            peers: Peers::new(peers()),
            caps: CAPS,
            bytes_per_second: 10_000,
            anchor: (now, Duration::from_secs(1_000_000)),
        };
        let key = |user: u8| {
            let Credentials { username, password } =
                Credentials::ephemeral(SECRET, 1_002_000, &format!("user{user}"));
            let key = crypto::md5(&[format!("{username}:{REALM}:{password}").as_bytes()]);
            (username, key)
        };
        Self {
            now,
            endpoint: Endpoint::new(now, Arc::new(config), &Seed::from_number(1)),
            allocations: BTreeMap::new(),
            names: 0,
            nonces: BTreeMap::new(),
            keys: [key(0), key(1), key(2)],
        }
    }

    /// Carries out one operation. Returns the rest of the input.
    fn operate<'a>(&mut self, operation: u8, argument: u8, rest: &'a [u8]) -> &'a [u8] {
        let who = argument & 7;
        match operation % 8 {
            0 => {
                self.now += Duration::from_millis(u64::from(argument) * u64::from(argument) * 20);
                self.allocations.values_mut().for_each(|one| one.handle_timeout(self.now));
            }
            1 => self.say(who, &self.request(who, argument, method::ALLOCATE, &[0x19, 4, 17, 0, 0, 0]).0),
            2 | 3 => {
                let methods = [
                    method::ALLOCATE,
                    method::REFRESH,
                    method::CREATE_PERMISSION,
                    method::CHANNEL_BIND,
                    ice::stun::BINDING,
                ];
                let method = methods[usize::from(argument >> 3) % methods.len()];
                let (request, used) = self.request(who, argument, method, rest);
                self.say(who, &request);
                return &rest[used..];
            }
            4 => {
                let (told, data) = rest.split_at(rest.len().min(1));
                let told = self.peer(told.first().copied().unwrap_or(0));
                let mut out = Vec::new();
                let id = TransactionId([argument; 12]);
                MessageWriter::of_method(&mut out, method::SEND, Class::Indication, id)
                    .xor_address(AttributeType(0x12), told)
                    .attribute(AttributeType(0x13), &data[..data.len().min(16)])
                    .finish_open();
                self.say(who, &out);
            }
            5 => self.say(who, &[0x40, argument >> 5, 0, 4, 1, 2, 3, 4]),
            6 => {
                let from = if argument & 0x80 == 0 { self.peer(argument >> 3) } else { address(99, 9) };
                let name = self.endpoint.session(&self.client(who));
                if let Some(allocation) = name.and_then(|name| self.allocations.get_mut(&name)) {
                    allocation.handle_peer(self.now, from, &rest[..rest.len().min(64)]);
                }
            }
            _ => {
                let length = usize::from(argument).min(rest.len());
                self.say(who, &rest[..length]);
                return &rest[length..];
            }
        }
        self.drain();
        rest
    }

    fn peer(&self, number: u8) -> SocketAddr {
        let peers = peers();
        let at = usize::from(number) % (peers.len() + 2);
        peers.get(at).map_or_else(|| address(number, 50_000), |peer| peer.told)
    }

    fn client(&self, who: u8) -> Client {
        let connection = (who > 5).then_some(u64::from(who));
        Client {
            address: SocketAddr::from(([198, 51, 100, who / 2], 5000 + u16::from(who))),
            local: None,
            connection,
        }
    }

    /// Makes a request with attributes from the input, and with credentials if there is a nonce. Returns the
    /// request, and the number of input bytes used.
    fn request(&self, who: u8, argument: u8, method: u16, rest: &[u8]) -> (Vec<u8>, usize) {
        let mut out = Vec::new();
        let id = TransactionId([argument; 12]);
        let mut writer = MessageWriter::of_method(&mut out, method, Class::Request, id);
        let mut used = 0;
        for _ in 0..4 {
            let [kind, length, value @ ..] = &rest[used..] else { break };
            if *kind == 0 {
                break;
            }
            let length = usize::from(length % 16).min(value.len());
            writer = match kind {
                0x12 => {
                    writer.xor_address(AttributeType(0x12), self.peer(value.first().copied().unwrap_or(0)))
                }
                _ => writer.attribute(AttributeType(u16::from(*kind)), &value[..length]),
            };
            used += 2 + length;
        }
        match self.nonces.get(&who) {
            Some(nonce) => {
                let (username, key) = &self.keys[usize::from(who) % self.keys.len()];
                writer
                    .attribute(AttributeType::USERNAME, username.as_bytes())
                    .attribute(AttributeType::REALM, REALM.as_bytes())
                    .attribute(AttributeType::NONCE, nonce)
                    .finish(key)
            }
            None => writer.finish_open(),
        };
        (out, used)
    }

    fn say(&mut self, who: u8, message: &[u8]) {
        let client = self.client(who);
        let mut reply = Vec::new();
        match self.endpoint.route(self.now, client, message, &mut reply) {
            Route::Session(name) => {
                let allocation = self.allocations.get_mut(&name).expect("an allocation that is gone");
                allocation.handle_datagram(self.now, message);
            }
            Route::New(incoming) => {
                self.names = self.names.wrapping_add(1);
                if self.endpoint.insert(&incoming, self.names) {
                    self.allocations.insert(self.names, Allocation::new(self.now, *incoming));
                }
            }
            Route::Reply => self.hear(who, &reply),
            Route::Drop(_) => assert!(reply.is_empty()),
        }
        self.drain();
    }

    /// Handles an answer, which must be a single message.
    fn hear(&mut self, who: u8, reply: &[u8]) {
        assert!(reply.len() <= 160, "an answer of {} bytes", reply.len());
        let message = Message::read(reply).expect("an answer that cannot be read");
        if let Some(nonce) = message.attributes().find(|of| of.kind == AttributeType::NONCE) {
            self.nonces.insert(who, nonce.value.to_vec());
        }
    }

    fn drain(&mut self) {
        let mut gone = Vec::new();
        for (name, allocation) in &mut self.allocations {
            let mut closed = 0;
            while let Some(event) = allocation.poll_event() {
                assert_eq!(closed, 0, "after the end: {event:?}");
                match event {
                    Event::Bind(_) => {
                        allocation.bound(self.now, (*name % 8 != 7).then(|| address(1, 40_000)))
                    }
                    Event::Closed(_) => closed += 1,
                }
            }
            let mut out = Vec::new();
            while let Some(sent) = allocation.poll_transmit(&mut out) {
                match sent.to {
                    Destination::Peer(real) => {
                        assert!(peers().iter().any(|peer| peer.real == real), "an open relay: {real}");
                    }
                    Destination::Client => assert!(sent.length > 0),
                }
                out.clear();
            }
            assert_eq!(closed == 1, allocation.poll_timeout().is_none());
            if closed == 1 {
                gone.push(*name);
            }
        }
        for name in gone {
            self.allocations.remove(&name);
            self.endpoint.remove(name);
        }
    }

    fn check(&self) {
        assert_eq!(self.endpoint.len(), self.allocations.len());
        assert!(self.allocations.len() <= 5, "above the cap");
        for allocation in self.allocations.values() {
            assert!(allocation.peek_transmit().is_none());
            assert!(allocation.poll_timeout().is_some_and(|at| at > self.now), "a deadline that stays");
        }
    }

    /// Lets time pass without datagrams: all allocations must end, and nothing may be left.
    fn finish(&mut self) {
        self.now += limits::LIFETIME_MAX;
        self.allocations.values_mut().for_each(|one| one.handle_timeout(self.now));
        self.drain();
        assert!(self.allocations.is_empty() && self.endpoint.is_empty(), "silence is survived");
    }
}
