//! DTLS: records of an unauthenticated peer against a session, a handshake over a hostile network, and
//! certificates.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crypto::{Hash, Seed, SignatureAlgorithm};
use dtls::{
    CloseReason, Config, Connection, CookieVerifier, Event, Identity, SrtpKeys, SrtpProfile, Versions,
};
use wire::Datagrams;

use crate::http_targets::epoch;

/// Maximum number of bytes that an end may hold, whatever it has received.
const HELD_BYTES_MAX: usize = 80 * 1024;
/// Maximum datagrams in flight in one direction.
const QUEUE_MAX: usize = 64;

static IDENTITIES: LazyLock<[Arc<Identity>; 2]> = LazyLock::new(|| {
    [1, 2].map(|n| Arc::new(Identity::self_signed(&Seed::from_number(n)).expect("the library makes keys")))
});

/// Reads a certificate. If it yields a key, that key must not verify an invalid signature.
pub fn x509_peer(data: &[u8]) {
    let Ok(key) = dtls::public_key(data) else { return };
    for hash in [Hash::Sha256, Hash::Sha384, Hash::Sha512] {
        for algorithm in [
            SignatureAlgorithm::Ecdsa(hash),
            SignatureAlgorithm::RsaPkcs1(hash),
            SignatureAlgorithm::RsaPss(hash),
        ] {
            assert!(key.verify(algorithm, data, &[0x30, 6, 2, 1, 1, 2, 1, 1]).is_err());
        }
    }
    assert!(!IDENTITIES[0].fingerprint().matches(data) || data == IDENTITIES[0].certificate());
}

/// Sends datagrams of an unauthenticated peer to a cookie verifier, to a session and to a waiting server, of either
/// version. In the input, each datagram follows its length in two bytes.
pub fn dtls_record(data: &[u8]) {
    for flags in [0, BOTH_SPEAK_13] {
        records_of(flags, data);
    }
}

fn records_of(flags: u8, data: &[u8]) {
    let mut ends = Ends::new(flags);
    ends.connect();
    let mut waiting = ends.server(flags);
    waiting.start(ends.now);
    let [_, versions] = versions(flags);
    let verifier = CookieVerifier::new(&Seed::from_number(5), versions);
    let from = std::net::SocketAddr::from(([192, 0, 2, 1], 9));
    let mut rest = data;
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let (datagram, behind) = behind.split_at(usize::from(u16::from_be_bytes(*length)).min(behind.len()));
        rest = behind;
        let mut reply = Vec::new();
        assert_ne!(verifier.check(from, datagram, &mut reply), dtls::Checked::Pass, "a cookie was guessed");
        assert!(reply.is_empty() || reply.len() < datagram.len(), "amplification");
        for end in [&mut ends.client, &mut ends.server] {
            end.connection.handle_datagram(ends.now, &mut datagram.to_vec());
            end.drain(ends.now);
            assert!(end.connection.is_connected(), "an unauthenticated peer ended a session");
            assert!(end.out.is_empty(), "an unauthenticated peer was answered");
        }
        waiting.connection.handle_datagram(ends.now, &mut datagram.to_vec());
        waiting.drain(ends.now);
        assert!(!waiting.connection.is_connected());
    }
}

/// Runs a handshake between two ends. The first byte sets the configuration. Each following byte is an operation: on
/// the next datagram, on the clock, or by the application.
pub fn dtls_handshake(data: &[u8]) {
    let Some((flags, operations)) = data.split_first() else { return };
    let mut ends = Ends::new(*flags);
    let mut operations = operations.iter().copied().take(400);
    while let Some(operation) = operations.next() {
        let mut argument = || operations.next().unwrap_or(0);
        match operation {
            0..=0x3f => ends.deliver(operation & 1 == 0),
            0x40..=0x4f => ends.drop_one(operation & 1 == 0),
            0x50..=0x5f => ends.double(operation & 1 == 0),
            0x60..=0x9f => {
                let (at, bits) = (u16::from_be_bytes([argument(), argument()]), argument());
                ends.damage(operation & 1 == 0, usize::from(at), bits);
            }
            0xa0..=0xcf => ends.pass(Duration::from_millis(u64::from(argument()) * 4)),
            0xd0..=0xd7 => {
                let length = usize::from(argument());
                let junk = (0..length).map(|_| argument()).collect();
                ends.inject(operation & 1 == 0, junk);
            }
            0xdc..=0xdf => {
                let now = ends.now;
                ends.end(operation & 1 == 0).connection.update_keys(now);
            }
            0xd8..=0xdb => {
                let _ = ends.end(operation & 1 == 0).connection.send(b"data");
            }
            0xe0..=0xe3 => {
                let now = ends.now;
                ends.end(operation & 1 == 0).connection.close(now);
            }
            0xe4..=0xff => ends.turn(operation & 1 == 0),
        }
        ends.drain();
    }
    ends.finish();
}

struct End {
    connection: Connection,
    /// Datagrams that this end has sent and that are still in flight.
    out: VecDeque<Vec<u8>>,
    srtp: Option<(SrtpProfile, SrtpKeys)>,
    closed: Option<CloseReason>,
}

impl End {
    fn new(connection: Connection) -> Self {
        Self { connection, out: VecDeque::new(), srtp: None, closed: None }
    }

    fn start(&mut self, now: Instant) {
        self.connection.start(now);
    }

    fn is_settled(&self) -> bool {
        self.closed.is_some() || self.connection.is_connected()
    }

    fn drain(&mut self, now: Instant) {
        while let Some(event) = self.connection.poll_event() {
            assert!(self.closed.is_none(), "after the end: {event:?}");
            match event {
                Event::Connected(connected) => {
                    assert!(self.srtp.is_none() && connected.peer_sha256.is_some());
                    self.srtp = connected.srtp;
                    assert!(self.srtp.is_some());
                }
                Event::Data(data) => assert_eq!(data, &b"data"[..]),
                Event::Closed(reason) => self.closed = Some(reason),
            }
        }
        let mut out = Datagrams::new();
        while self.connection.poll_transmit(now, &mut out) {
            self.out.extend((0..out.len()).map(|n| out.get(n).to_vec()));
            out.clear();
        }
        self.out.truncate(QUEUE_MAX);
        assert!(self.connection.held_bytes() <= HELD_BYTES_MAX, "{}", self.connection.held_bytes());
    }
}

struct Ends {
    now: Instant,
    flags: u8,
    client: End,
    server: End,
    /// True if bytes were changed or invented, so that the outcome may be the adversary's doing.
    hostile: bool,
}

impl Ends {
    fn new(flags: u8) -> Self {
        let now = epoch();
        let client = Connection::client(config(flags, 0), Seed::from_number(u64::from(flags)));
        let server = Connection::server(config(flags, 1), Seed::from_number(1000));
        let mut ends =
            Self { now, flags, client: End::new(client), server: End::new(server), hostile: false };
        ends.client.connection.set_remote_fingerprints(now, vec![IDENTITIES[1].fingerprint()]);
        ends.server.connection.set_remote_fingerprints(now, vec![IDENTITIES[0].fingerprint()]);
        ends.client.start(now);
        ends.server.start(now);
        ends.drain();
        ends
    }

    /// Makes another server.
    fn server(&self, flags: u8) -> End {
        End::new(Connection::server(config(flags, 1), Seed::from_number(2000 + u64::from(self.flags))))
    }

    fn end(&mut self, client: bool) -> &mut End {
        if client { &mut self.client } else { &mut self.server }
    }

    fn drain(&mut self) {
        self.client.drain(self.now);
        self.server.drain(self.now);
    }

    fn hand_over(&mut self, from_client: bool, mut datagram: Vec<u8>) {
        let now = self.now;
        self.end(!from_client).connection.handle_datagram(now, &mut datagram);
    }

    fn deliver(&mut self, from_client: bool) {
        if let Some(datagram) = self.end(from_client).out.pop_front() {
            self.hand_over(from_client, datagram);
        }
    }

    fn drop_one(&mut self, from_client: bool) {
        self.end(from_client).out.pop_front();
    }

    fn double(&mut self, from_client: bool) {
        let out = &mut self.end(from_client).out;
        if let Some(datagram) = out.front().cloned() {
            out.push_back(datagram);
        }
    }

    /// Moves the next datagram to the end of the queue.
    fn turn(&mut self, from_client: bool) {
        let out = &mut self.end(from_client).out;
        if let Some(datagram) = out.pop_front() {
            out.push_back(datagram);
        }
    }

    fn damage(&mut self, from_client: bool, at: usize, bits: u8) {
        if let Some(datagram) = self.end(from_client).out.front_mut() {
            let length = datagram.len().max(1);
            if let Some(byte) = datagram.get_mut(at % length) {
                *byte ^= bits;
                self.hostile = true;
            }
        }
    }

    fn inject(&mut self, from_client: bool, datagram: Vec<u8>) {
        self.hostile = true;
        self.hand_over(from_client, datagram);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        for end in [&mut self.client, &mut self.server] {
            if end.connection.poll_timeout().is_some_and(|at| at <= self.now) {
                end.connection.handle_timeout(self.now);
                assert!(end.connection.poll_timeout().is_none_or(|at| at > self.now), "a deadline stays");
            }
        }
    }

    fn connect(&mut self) {
        for _ in 0..8 {
            self.deliver(true);
            self.drain();
            self.deliver(false);
            self.drain();
        }
        assert!(self.client.srtp.is_some() && self.client.srtp == self.server.srtp);
    }

    /// Delivers all datagrams unharmed, and checks that both ends either have the same keys or are closed.
    fn finish(&mut self) {
        for _ in 0..200 {
            while !(self.client.out.is_empty() && self.server.out.is_empty()) {
                self.deliver(true);
                self.deliver(false);
                self.drain();
            }
            if self.client.is_settled() && self.server.is_settled() {
                break;
            }
            self.pass(Duration::from_millis(100));
            self.drain();
        }
        assert!(self.client.is_settled() && self.server.is_settled(), "neither connected nor over");
        if let (Some(client), Some(server)) = (&self.client.srtp, &self.server.srtp) {
            assert_eq!(client, server);
        }
        if !self.hostile {
            for reason in [self.client.closed, self.server.closed].into_iter().flatten() {
                let good = [CloseReason::Local, CloseReason::Peer, CloseReason::Timeout];
                assert!(good.contains(&reason), "{reason:?}");
            }
        }
    }
}

/// The flags with which both ends support both versions.
const BOTH_SPEAK_13: u8 = 1 << 3;

/// Returns the versions of the client and of the server, which have at least one in common.
const fn versions(flags: u8) -> [Versions; 2] {
    use Versions::{Both, Only12, Only13};
    match flags >> 3 & 7 {
        0 => [Only12, Only12],
        2 => [Both, Only12],
        3 => [Only12, Both],
        4 => [Only13, Only13],
        5 => [Only13, Both],
        6 => [Both, Only13],
        _ => [Both, Both],
    }
}

fn config(flags: u8, identity: usize) -> Arc<Config> {
    let [client, server] = versions(flags);
    Arc::new(Config {
        versions: if identity == 0 { client } else { server },
        identity: IDENTITIES.get(identity).cloned(),
        mtu: if flags & 1 == 0 { 1200 } else { 200 },
        cookie: flags & 2 != 0,
        receives_data: flags & 4 != 0,
        ..Config::default()
    })
}
