//! The demultiplexer of a UDP port that accepts connections.
//!
//! 1. An induction is answered with a cookie and forgotten. The answer is as long as the question or shorter.
//! 2. A conclusion that brings the cookie of its address back is an [`Incoming`], once; when it is repeated it goes to
//!    the connection that came of it.
//! 3. [`Endpoint::accept`] makes a connection of an `Incoming`, and knows it from then on.
//! 4. Everything else names the socket it is for, and counts only from that socket's peer.

use std::collections::HashMap;
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
    /// An existing connection.
    Session(T),
    /// A new caller: accept, refuse or ignore it.
    New(Box<Incoming>),
    /// No session; send `reply` back.
    Reply,
    /// Nowhere.
    Drop(DropReason),
}

/// The reason a datagram is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// Not a valid SRT packet.
    Malformed,
    /// Longer than any packet may be.
    TooLong,
    /// For a socket that does not exist.
    UnknownSocket,
    /// Its source address is not the socket's peer.
    WrongAddress,
    /// A conclusion without the cookie of its address.
    Cookie,
    /// A goodbye of an address from which goodbyes for sockets came that do not exist: somebody guesses.
    Guessed,
}

/// Goodbyes for unknown sockets of an address that has a connection, after which none of its goodbyes is believed. An honest
/// peer repeats the goodbye of a connection that is over a few times.
const STRAYS_MAX: u32 = 16;
/// The first bit of a control packet (draft-sharabayko-srt-01 §3.2).
const CONTROL: u16 = 0x8000;
/// The time for which strays are remembered after the last one.
const STRAYS_REMEMBERED: Duration = Duration::from_secs(60);

/// The state of an address that has connections.
#[derive(Debug, Clone, Copy)]
struct Neighbour {
    connections: u32,
    /// Goodbyes for sockets that it has not.
    strays: u32,
    stray_at: Instant,
}

/// The peer of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Peer {
    address: SocketAddr,
    socket: SocketId,
}

/// Knows the connections of a port. `T` is the application's name for one.
#[derive(Debug)]
pub struct Endpoint<T> {
    cookies: Cookies,
    epoch: Instant,
    sockets: HashMap<SocketId, (Peer, T)>,
    peers: HashMap<Peer, SocketId>,
    /// As many entries as addresses have connections.
    neighbours: HashMap<SocketAddr, Neighbour>,
    /// Connections that [`Endpoint::accept`] made.
    accepted: u64,
}

impl<T: Copy + Eq> Endpoint<T> {
    /// Endpoints with the same `secret` and `epoch` take each other's cookies: workers that share a port.
    #[must_use]
    pub fn new(epoch: Instant, secret: &Seed) -> Self {
        Self {
            cookies: Cookies::new(epoch, secret),
            epoch,
            sockets: HashMap::new(),
            peers: HashMap::new(),
            neighbours: HashMap::new(),
            accepted: 0,
        }
    }

    /// Says where a datagram goes. An answer is appended to `reply`, at most as long as the datagram.
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

    /// Lets a caller in: a connection with a name that is free here, under which [`Endpoint::route`] finds `session` from then on,
    /// until [`Endpoint::remove`] of [`Connection::local`]. A passphrase that does not fit ends it, with a refusal to be sent.
    ///
    /// `seed` may be the same for all connections of this port; another port has another one, also where several share an address.
    ///
    /// With a passphrase this derives a key, which takes 0.3 to 0.6 ms. An owner who decides later makes the connection by
    /// [`Connection::incoming`] and [`Endpoint::insert`], and [`Incoming::reject`] needs no connection.
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
        // Few of so many names are in use.
        while !self.insert(local, incoming.from(), incoming.peer_socket(), session) {
            local = SocketId::draw(&mut random);
        }
        let mut connection = Connection::incoming(now, incoming, local, &seed);
        connection.accept(now, config);
        connection
    }

    /// A connection exists: what comes for `local` from `address` is its, and so is a conclusion of `peer` there. Before
    /// the verdict already, so that a repeated conclusion does not look like another caller. False, and nothing
    /// changes, when `local` is in use.
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

    /// The connection is no more.
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

    /// Whether none is.
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

/// Whether a datagram says that the connection is over (draft-sharabayko-srt-01 §3.2.7).
fn is_goodbye(datagram: &[u8]) -> bool {
    Reader::new(datagram).u16().is_ok_and(|first| first == CONTROL | kind::SHUTDOWN)
}
