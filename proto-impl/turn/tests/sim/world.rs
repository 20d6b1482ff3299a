//! Test harness: a server with its sockets and peers, and the requests of a client.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use ice::stun::{AttributeType, Class, ErrorCode, Message, MessageWriter, TransactionId, read_address};
use turn::{
    Allocation, Caps, Client, CloseReason, Config, Credentials, Destination, DropReason, Endpoint, Event,
    Family, Peer, Peers, Route, method,
};

pub(crate) const SECRET: &[u8] = b"the secret of the server";
pub(crate) const REALM: &str = "millstream";
/// Unix time in seconds at which the simulation begins.
pub(crate) const EPOCH: u64 = 1_800_000_000;
/// Direct media address.
pub(crate) const MEDIA: &str = "192.0.2.10:50000";
/// Public media address of a NAT.
pub(crate) const PUBLIC: &str = "203.0.113.10:50000";
/// Media address behind the NAT.
pub(crate) const LOCAL: &str = "127.0.0.1:50000";
/// Direct media address of IPv6.
pub(crate) const MEDIA_V6: &str = "[2001:db8::10]:50000";

pub(crate) const LIFETIME: AttributeType = AttributeType(0x000d);
pub(crate) const CHANNEL_NUMBER: AttributeType = AttributeType(0x000c);
pub(crate) const PEER: AttributeType = AttributeType(0x0012);
pub(crate) const DATA: AttributeType = AttributeType(0x0013);
pub(crate) const RELAYED: AttributeType = AttributeType(0x0016);
pub(crate) const FAMILY: AttributeType = AttributeType(0x0017);
pub(crate) const TRANSPORT: AttributeType = AttributeType(0x0019);

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub(crate) fn config(now: Instant) -> Config {
    let peer = |told, real| Peer { told: address(told), real: address(real) };
    Config {
        realm: REALM.to_owned(),
        secret: SECRET.to_vec(),
        peers: Peers::new([peer(MEDIA, MEDIA), peer(PUBLIC, LOCAL), peer(MEDIA_V6, MEDIA_V6)]),
        caps: Caps { of_network: 8, of_user: 4, in_total: 20 },
        bytes_per_second: 1_000_000,
        anchor: (now, Duration::from_secs(EPOCH)),
    }
}

/// Output of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Out {
    ToClient(SocketAddr, Vec<u8>),
    /// Datagram to a peer from the allocation of a client.
    ToPeer(SocketAddr, SocketAddr, Vec<u8>),
}

pub(crate) struct World {
    pub(crate) clock: netsim::Clock,
    pub(crate) endpoint: Endpoint<u32>,
    pub(crate) allocations: BTreeMap<u32, (Client, Allocation)>,
    pub(crate) out: Vec<Out>,
    pub(crate) closed: Vec<CloseReason>,
    pub(crate) dropped: Vec<DropReason>,
    /// True if sockets are available.
    pub(crate) has_sockets: bool,
    names: u32,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let clock = netsim::Clock::new();
        let mut config = config(clock.now());
        change(&mut config);
        Self {
            endpoint: Endpoint::new(clock.now(), Arc::new(config), &Seed::from_number(1)),
            clock,
            allocations: BTreeMap::new(),
            out: Vec::new(),
            closed: Vec::new(),
            dropped: Vec::new(),
            has_sockets: true,
            names: 0,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.clock.advance(time);
        let now = self.now();
        self.allocations.values_mut().for_each(|(_, allocation)| allocation.handle_timeout(now));
        self.drain();
    }

    pub(crate) fn say(&mut self, from: Client, message: &[u8]) {
        let now = self.now();
        let mut reply = Vec::new();
        match self.endpoint.route(now, from, message, &mut reply) {
            Route::Session(name) => {
                let (_, allocation) = self.allocations.get_mut(&name).unwrap();
                allocation.handle_datagram(now, message);
            }
            Route::New(incoming) => {
                self.names += 1;
                assert!(self.endpoint.insert(&incoming, self.names));
                self.allocations.insert(self.names, (from, Allocation::new(now, *incoming)));
            }
            Route::Reply => self.out.push(Out::ToClient(from.address, reply)),
            Route::Drop(why) => self.dropped.push(why),
        }
        self.drain();
    }

    /// Sends a datagram of a peer to the relayed address of a client.
    pub(crate) fn peer_sends(&mut self, peer: &str, to: Client, datagram: &[u8]) {
        let now = self.now();
        let (_, allocation) = self.allocations.values_mut().find(|(of, _)| *of == to).unwrap();
        allocation.handle_peer(now, address(peer), datagram);
        self.drain();
    }

    fn drain(&mut self) {
        let now = self.now();
        let mut gone = Vec::new();
        for (name, (client, allocation)) in &mut self.allocations {
            let mut is_closed = false;
            while let Some(event) = allocation.poll_event() {
                assert!(!is_closed, "after the end: {event:?}");
                match event {
                    Event::Bind(_) => {
                        let port = 40_000 + u16::try_from(*name).unwrap();
                        allocation.bound(now, self.has_sockets.then(|| ([127, 0, 0, 1], port).into()));
                    }
                    Event::Closed(why) => {
                        is_closed = true;
                        self.closed.push(why);
                        gone.push(*name);
                    }
                }
            }
            let mut bytes = Vec::new();
            while let Some((to, length)) = allocation.peek_transmit() {
                let sent = allocation.poll_transmit(&mut bytes).unwrap();
                assert_eq!((sent.to, sent.length), (to, bytes.len()));
                assert_eq!(length, bytes.len());
                let datagram = std::mem::take(&mut bytes);
                self.out.push(match to {
                    Destination::Client => Out::ToClient(client.address, datagram),
                    Destination::Peer(peer) => Out::ToPeer(client.address, peer, datagram),
                });
            }
            assert!(is_closed == allocation.poll_timeout().is_none());
            assert!(allocation.poll_timeout().is_none_or(|at| at > now), "a deadline that stays");
        }
        for name in gone {
            self.allocations.remove(&name);
            self.endpoint.remove(name);
        }
    }

    /// Takes the only recent response.
    pub(crate) fn answer(&mut self) -> Answer {
        let out = std::mem::take(&mut self.out);
        let [Out::ToClient(_, bytes)] = &out[..] else { panic!("{out:?}") };
        Answer(bytes.clone())
    }
}

/// Response as bytes.
#[derive(Debug)]
pub(crate) struct Answer(pub(crate) Vec<u8>);

impl Answer {
    pub(crate) fn message(&self) -> Message<'_> {
        Message::read(&self.0).unwrap()
    }

    pub(crate) fn code(&self) -> Option<u16> {
        self.message().error_code().map(|ErrorCode(code)| code)
    }

    pub(crate) fn value(&self, kind: AttributeType) -> Option<Vec<u8>> {
        self.message().attributes().find(|of| of.kind == kind).map(|of| of.value.to_vec())
    }

    pub(crate) fn text(&self, kind: AttributeType) -> Option<String> {
        self.value(kind).map(|value| String::from_utf8(value).unwrap())
    }

    pub(crate) fn seconds(&self) -> u32 {
        u32::from_be_bytes(self.value(LIFETIME).unwrap().try_into().unwrap())
    }

    pub(crate) fn address(&self, kind: AttributeType) -> Option<SocketAddr> {
        read_address(&self.value(kind)?, self.message().transaction_id())
    }
}

/// Client with its address and its user.
#[derive(Debug, Clone)]
pub(crate) struct Speaker {
    pub(crate) client: Client,
    pub(crate) credentials: Credentials,
    pub(crate) nonce: Option<String>,
    pub(crate) ids: u8,
}

impl Speaker {
    pub(crate) fn new(at: &str, user: &str) -> Self {
        let credentials = Credentials::ephemeral(SECRET, EPOCH + 86_400, user);
        Self::of(at, credentials)
    }

    pub(crate) fn of(at: &str, credentials: Credentials) -> Self {
        let client = Client { address: address(at), local: None, connection: None };
        Self { client, credentials, nonce: None, ids: 0 }
    }

    pub(crate) fn key(&self) -> [u8; 16] {
        let Credentials { username, password } = &self.credentials;
        crypto::md5(&[username.as_bytes(), b":", REALM.as_bytes(), b":", password.as_bytes()])
    }

    /// Makes a request with the available credentials.
    pub(crate) fn request(&mut self, method: u16, attributes: &[(AttributeType, Vec<u8>)]) -> Vec<u8> {
        self.ids += 1;
        self.request_of(self.ids, method, attributes)
    }

    pub(crate) fn request_of(&self, id: u8, method: u16, attributes: &[(AttributeType, Vec<u8>)]) -> Vec<u8> {
        let mut out = Vec::new();
        let id = TransactionId([id; 12]);
        let mut writer = MessageWriter::of_method(&mut out, method, Class::Request, id);
        for (kind, value) in attributes {
            writer = writer.attribute(*kind, value);
        }
        match &self.nonce {
            None => writer.finish_open(),
            Some(nonce) => writer
                .attribute(AttributeType::USERNAME, self.credentials.username.as_bytes())
                .attribute(AttributeType::REALM, REALM.as_bytes())
                .attribute(AttributeType::NONCE, nonce.as_bytes())
                .finish(&self.key()),
        };
        out
    }

    /// Requests a nonce.
    pub(crate) fn greet(&mut self, world: &mut World) {
        let request = self.request(method::ALLOCATE, &[transport()]);
        world.say(self.client, &request);
        let answer = world.answer();
        assert_eq!(answer.code(), Some(401));
        self.nonce = answer.text(AttributeType::NONCE);
    }

    pub(crate) fn ask(
        &mut self,
        world: &mut World,
        method: u16,
        attributes: &[(AttributeType, Vec<u8>)],
    ) -> Answer {
        let request = self.request(method, attributes);
        world.say(self.client, &request);
        let answer = world.answer();
        assert!(answer.message().is_authentic(&self.key()) || answer.code().is_some());
        answer
    }

    /// Creates a client with an allocation.
    pub(crate) fn allocated(world: &mut World, at: &str, user: &str) -> Self {
        let mut this = Self::new(at, user);
        this.greet(world);
        let answer = this.ask(world, method::ALLOCATE, &[transport()]);
        assert_eq!((answer.code(), answer.seconds()), (None, 600));
        this
    }

    pub(crate) fn permit(&mut self, world: &mut World, peer: &str) -> Option<u16> {
        self.ask(world, method::CREATE_PERMISSION, &[self.peer(peer)]).code()
    }

    pub(crate) fn bind(&mut self, world: &mut World, channel: u16, peer: &str) -> Option<u16> {
        let number = (CHANNEL_NUMBER, [channel.to_be_bytes(), [0, 0]].concat());
        self.ask(world, method::CHANNEL_BIND, &[number, self.peer(peer)]).code()
    }

    /// Makes an XOR-PEER-ADDRESS for the next request.
    pub(crate) fn peer(&self, peer: &str) -> (AttributeType, Vec<u8>) {
        (PEER, xor(address(peer), self.ids + 1))
    }

    pub(crate) fn send(&self, world: &mut World, peer: &str, data: &[u8]) {
        let mut out = Vec::new();
        MessageWriter::of_method(&mut out, method::SEND, Class::Indication, TransactionId([9; 12]))
            .xor_address(PEER, address(peer))
            .attribute(DATA, data)
            .finish_open();
        world.say(self.client, &out);
    }

    pub(crate) fn send_channel(&self, world: &mut World, channel: u16, data: &[u8]) {
        world.say(self.client, &channel_data(channel, data));
    }
}

pub(crate) fn channel_data(channel: u16, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap();
    [&channel.to_be_bytes()[..], &length.to_be_bytes(), data].concat()
}

pub(crate) fn transport() -> (AttributeType, Vec<u8>) {
    (TRANSPORT, vec![17, 0, 0, 0])
}

pub(crate) fn family(family: Family) -> (AttributeType, Vec<u8>) {
    (FAMILY, vec![if family == Family::V4 { 1 } else { 2 }, 0, 0, 0])
}

fn xor(address: SocketAddr, id: u8) -> Vec<u8> {
    let mut out = Vec::new();
    MessageWriter::of_method(&mut out, 1, Class::Request, TransactionId([id; 12]))
        .xor_address(PEER, address)
        .finish_open();
    let message = Message::read(&out).unwrap();
    message.attributes().find(|of| of.kind == PEER).unwrap().value.to_vec()
}
