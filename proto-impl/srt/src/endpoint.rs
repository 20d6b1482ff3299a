//! The demultiplexer of a UDP port that accepts connections.
//!
//! 1. An induction is answered with a cookie, and no state is kept. The answer is no longer than the request.
//! 2. The first conclusion with the cookie of its source address becomes an [`Incoming`]. If the caller repeats its
//!    conclusion, it is routed to the connection made from the first one.
//! 3. [`Endpoint::accept`] makes a connection from an `Incoming`, and routes its datagrams from then on.
//! 4. Every other datagram names a destination socket. It is dropped unless it comes from the address of that socket's
//!    peer.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use wire::Reader;

use crate::config::{Config, HEAD_BYTES, MSS_MAX};
use crate::connection::Connection;
use crate::cookie::Cookies;
use crate::handshake::{HANDSHAKE_BYTES, Handshake, MAGIC, VERSION_4, VERSION_5, address_field, request};
use crate::incoming::{Incoming, micros, write_rejection};
use crate::packet::{Control, ControlWriter, Packet, SocketId, kind};

/// The destination of a datagram.
#[derive(Debug)]
pub enum Route<T> {
    /// An existing connection, by the application's name for it.
    Session(T),
    /// A new caller: accept, refuse or ignore it.
    New(Box<Incoming>),
    /// No session. `reply` must be sent back to the source.
    Reply,
    /// No destination; the datagram is ignored.
    Drop(DropReason),
}

/// The reason a datagram is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// The datagram is not a valid SRT packet.
    Malformed,
    /// The datagram is longer than any packet may be.
    TooLong,
    /// The destination socket does not exist.
    UnknownSocket,
    /// The datagram does not come from the address of the socket's peer.
    WrongAddress,
    /// A conclusion lacks the cookie of its source address.
    Cookie,
    /// A shutdown from an address that has sent shutdowns for many unknown sockets, and is therefore probably guessing
    /// socket ids.
    Guessed,
}

/// Maximum number of shutdowns for unknown sockets that an address with connections may send. Beyond it, all shutdowns
/// from this address are ignored. An honest peer repeats the shutdown of an ended connection a few times.
const STRAYS_MAX: u32 = 16;
/// The first bit of a control packet (draft-sharabayko-srt-01 §3.2).
const CONTROL: u16 = 0x8000;
/// Time after an address's last shutdown for an unknown socket until its count of such shutdowns begins anew.
const STRAYS_REMEMBERED: Duration = Duration::from_secs(60);

/// The state of an address that has connections.
#[derive(Debug, Clone, Copy)]
struct Neighbour {
    connections: u32,
    /// Number of shutdowns from this address for sockets of which it is not the peer.
    strays: u32,
    stray_at: Instant,
}

/// The remote end of a connection: its address and its socket id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Peer {
    address: SocketAddr,
    socket: SocketId,
}

/// Hashes socket ids for the table that every datagram is looked up in. The ids in the table are random numbers of this
/// side, so a peer cannot choose ids that collide.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, id: u32) {
        // The table uses the lowest and the highest bits of a hash, so every bit of an id has to reach both.
        let product = (self.0 ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}

/// The connections of a UDP port, by socket id. `T` is the application's name for a connection.
#[derive(Debug)]
pub struct Endpoint<T> {
    cookies: Cookies,
    epoch: Instant,
    sockets: HashMap<SocketId, (Peer, T), BuildHasherDefault<IdHasher>>,
    peers: HashMap<Peer, SocketId>,
    /// State of each address that has connections. Other addresses have no entry.
    neighbours: HashMap<SocketAddr, Neighbour>,
    /// Number of connections made by [`Endpoint::accept`].
    accepted: u64,
}

impl<T: Copy + Eq> Endpoint<T> {
    /// Creates an endpoint. Endpoints with the same `secret` and `epoch` accept each other's cookies; workers that
    /// share a port need this.
    #[must_use]
    pub fn new(epoch: Instant, secret: &Seed) -> Self {
        Self {
            cookies: Cookies::new(epoch, secret),
            epoch,
            sockets: HashMap::default(),
            peers: HashMap::new(),
            neighbours: HashMap::new(),
            accepted: 0,
        }
    }

    /// Returns the destination of a datagram. If the datagram must be answered, appends the answer to `reply`; it is no
    /// longer than the datagram.
    pub fn route(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagram: &[u8],
        reply: &mut Vec<u8>,
    ) -> Route<T> {
        if datagram.len() > usize::try_from(MSS_MAX).unwrap_or(usize::MAX) {
            return Route::Drop(DropReason::TooLong);
        }
        let mut head = Reader::new(datagram);
        let to = head.take(12).and_then(|_| head.u32());
        match to {
            Err(_) => Route::Drop(DropReason::Malformed),
            Ok(0) => self.route_handshake(now, from, datagram, reply),
            Ok(to) => self.route_named(now, from, SocketId(to), is_goodbye(datagram)),
        }
    }

    fn route_named(&mut self, now: Instant, from: SocketAddr, to: SocketId, goodbye: bool) -> Route<T> {
        match self.sockets.get(&to) {
            None => {
                if let Some(neighbour) = self.neighbours.get_mut(&from).filter(|_| goodbye) {
                    neighbour.stray(now);
                }
                Route::Drop(DropReason::UnknownSocket)
            }
            Some((peer, _)) if peer.address != from => Route::Drop(DropReason::WrongAddress),
            Some(_) if goodbye && self.neighbours.get(&from).is_some_and(|one| one.is_guessing(now)) => {
                Route::Drop(DropReason::Guessed)
            }
            Some((_, session)) => Route::Session(*session),
        }
    }

    fn route_handshake(
        &self,
        now: Instant,
        from: SocketAddr,
        datagram: &[u8],
        reply: &mut Vec<u8>,
    ) -> Route<T> {
        let Ok(Packet::Control { timestamp, control: Control::Handshake(body), .. }) = Packet::read(datagram)
        else {
            return Route::Drop(DropReason::Malformed);
        };
        let mut r = Reader::new(body);
        let Ok(handshake) = Handshake::read(&mut r) else { return Route::Drop(DropReason::Malformed) };
        match handshake.request {
            request::INDUCTION => {
                self.answer_induction(now, from, &handshake, reply);
                Route::Reply
            }
            request::CONCLUSION => self.route_conclusion(now, from, timestamp, handshake, r, reply),
            _ => Route::Drop(DropReason::Malformed),
        }
    }

    fn answer_induction(&self, now: Instant, from: SocketAddr, question: &Handshake, reply: &mut Vec<u8>) {
        let answer = Handshake {
            version: VERSION_5,
            encryption: 0,
            extension: MAGIC,
            cookie: self.cookies.make(now, from),
            peer_ip: address_field(from.ip()),
            ..*question
        };
        let mut body = Vec::with_capacity(HANDSHAKE_BYTES);
        answer.write(&mut body);
        let head = ControlWriter { timestamp: micros(self.epoch, now), to: question.socket };
        head.write(&Control::Handshake(&body), reply);
        debug_assert!(body.len() + HEAD_BYTES <= HEAD_BYTES + HANDSHAKE_BYTES && VERSION_4 < VERSION_5);
    }

    fn route_conclusion(
        &self,
        now: Instant,
        from: SocketAddr,
        timestamp: u32,
        handshake: Handshake,
        rest: Reader<'_>,
        reply: &mut Vec<u8>,
    ) -> Route<T> {
        let peer = Peer { address: from, socket: handshake.socket };
        if let Some((_, session)) = self.peers.get(&peer).and_then(|local| self.sockets.get(local)) {
            return Route::Session(*session);
        }
        if !self.cookies.check(now, from, handshake.cookie) {
            return Route::Drop(DropReason::Cookie);
        }
        match Incoming::read(now, from, timestamp, handshake, rest) {
            Ok(incoming) => Route::New(Box::new(incoming)),
            Err(reason) => {
                tracing::debug!(%reason, "refused a handshake");
                write_rejection(&handshake, from, micros(self.epoch, now), reason, reply);
                Route::Reply
            }
        }
    }

    /// Accepts a caller. Creates a connection with an unused socket id. From then on, [`Endpoint::route`] returns
    /// `session` for the connection's datagrams, until [`Endpoint::remove`] is called with [`Connection::local`]. If
    /// the passphrases differ, the connection is closed at once; its refusal still has to be sent.
    ///
    /// `seed` may be the same for all connections of this port. Each port needs a different seed, even if several ports
    /// share an address.
    ///
    /// With a passphrase this derives a key, which takes 0.3 to 0.6 ms. An owner that decides later can create the
    /// connection with [`Connection::incoming`] and add it with [`Endpoint::insert`]; to refuse a caller,
    /// [`Incoming::reject`] needs no connection.
    pub fn accept(
        &mut self,
        now: Instant,
        incoming: Incoming,
        config: Arc<Config>,
        session: T,
        seed: &Seed,
    ) -> Connection {
        let seed = seed.derive("srt accepted", self.accepted);
        self.accepted = self.accepted.saturating_add(1);
        let mut random = seed.derive("srt socket", 0).random();
        let mut local = SocketId::draw(&mut random);
        // An unused id is found quickly, because only a small share of the ids is in use.
        while !self.insert(local, incoming.from(), incoming.peer_socket(), session) {
            local = SocketId::draw(&mut random);
        }
        let mut connection = Connection::incoming(now, incoming, local, &seed);
        connection.accept(now, config);
        connection
    }

    /// Adds a connection. Datagrams for `local` from `address` are routed to it, and so are repeated conclusions of the
    /// socket `peer` at that address. Call this before the application decides, so that a repeated conclusion is not
    /// taken for another caller. Returns false, without any change, if `local` is in use.
    pub fn insert(&mut self, local: SocketId, address: SocketAddr, peer: SocketId, session: T) -> bool {
        if self.sockets.contains_key(&local) || local.0 == 0 {
            return false;
        }
        let neighbour = self.neighbours.entry(address).or_insert(Neighbour {
            connections: 0,
            strays: 0,
            stray_at: self.epoch,
        });
        neighbour.connections = neighbour.connections.saturating_add(1);
        let peer = Peer { address, socket: peer };
        self.sockets.insert(local, (peer, session));
        self.peers.insert(peer, local);
        true
    }

    /// Removes a connection and returns the application's name for it; `None` if it does not exist.
    pub fn remove(&mut self, local: SocketId) -> Option<T> {
        let (peer, session) = self.sockets.remove(&local)?;
        if self.peers.get(&peer) == Some(&local) {
            self.peers.remove(&peer);
        }
        if let Some(neighbour) = self.neighbours.get_mut(&peer.address) {
            neighbour.connections = neighbour.connections.saturating_sub(1);
            if neighbour.connections == 0 {
                self.neighbours.remove(&peer.address);
            }
        }
        Some(session)
    }

    /// The number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// True if there are no connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }
}

impl Neighbour {
    fn stray(&mut self, now: Instant) {
        if !self.is_recent(now) {
            self.strays = 0;
        }
        self.strays = self.strays.saturating_add(1);
        self.stray_at = now;
    }

    fn is_guessing(&self, now: Instant) -> bool {
        self.strays >= STRAYS_MAX && self.is_recent(now)
    }

    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.stray_at) < STRAYS_REMEMBERED
    }
}

/// True if the datagram is a shutdown (draft-sharabayko-srt-01 §3.2.7).
fn is_goodbye(datagram: &[u8]) -> bool {
    Reader::new(datagram).u16().is_ok_and(|first| first == CONTROL | kind::SHUTDOWN)
}
