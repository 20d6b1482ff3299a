//! Wires (TCP connections) and lines (datagram links between two peers).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use millstream::protocol::{Elsewhere, PathEvent, PathId, Port, Remote};
use millstream::types::{ConnId, WorkerId};
use millstream::worker::{Destination, Routed};
use netsim::{Link, StreamDelivery, StreamLink, ms};

use super::damage::Damage;
use super::{Chaos, RTSP, SRT, World};

/// Time after a loss in which a line loses nothing more. If the retransmission were lost as well, the packet might
/// arrive too late, which SRT permits. If the answer to a call is lost, it is sent again only after a quarter of a
/// second, and packets sent meanwhile wait for it.
const REPAIR: Duration = ms(700);
/// Maximum bytes of a datagram that fits into an Ethernet packet.
const DATAGRAM_BYTES_MAX: usize = 1472;
/// On a narrow path, a DTLS datagram counts with at least this many bytes: the size of the largest datagram of a
/// handshake.
const DTLS_BYTES: usize = 1200;
/// First bytes of SRT's SHUTDOWN (draft-sharabayko-srt-01 §3.2.7) and of a DTLS alert (RFC 6347 §4.1).
const GOODBYES: [&[u8]; 2] = [&[0x80, 0x05], &[21]];
/// Port of WebRTC peers.
const WEBRTC_PORT: u16 = 50_000;

/// An end of a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Client(usize),
    Worker(usize, ConnId),
    Gone,
}

/// A TCP connection: `links[n]` carries what `ends[n]` sends.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) ends: [End; 2],
    pub(super) links: [StreamLink; 2],
    /// Damage to the bytes that each end sends.
    pub(super) damage: Option<[Damage; 2]>,
    /// True if the wire's bytes depend on keys that the seed does not determine. The trace then has no bytes of
    /// the wire, only their arrival.
    pub(super) is_secret: bool,
}

/// A port that many peers share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) port: &'static Port,
    pub(super) address: SocketAddr,
}

impl Place {
    /// The SRT port, shared by all workers.
    pub(super) fn srt() -> Self {
        Self::of("srt", SRT.parse().unwrap())
    }

    /// The place of RTSP sessions, which have sockets of their own.
    pub(super) fn rtsp() -> Self {
        Self { address: RTSP.parse().unwrap(), ..Self::srt() }
    }

    /// The WebRTC port, shared by all workers.
    pub(super) fn webrtc() -> Self {
        Self::of("webrtc", SocketAddr::from(([127, 0, 0, 1], WEBRTC_PORT)))
    }

    fn of(name: &str, address: SocketAddr) -> Self {
        Self { port: Port::all().find(|port| port.name == name).unwrap(), address }
    }

    /// True if the port's bytes depend on DTLS keys, which the seed does not determine.
    fn is_secret(&self) -> bool {
        self.port.name == "webrtc"
    }
}

/// An end of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEnd {
    Client(usize),
    /// The shared port of a worker.
    Port(usize),
    /// A socket of a session's own.
    Own(usize, ConnId, PathId),
    /// All sockets of a session: their datagrams share a line, and begin with the number of their path.
    Paths(usize, ConnId),
    Gone,
}

/// Datagrams between two peers: `links[n]` carries what `ends[n]` sends.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) ends: [LineEnd; 2],
    pub(super) links: [Link; 2],
    /// The address of the first end.
    pub(super) caller: SocketAddr,
    /// Port that the caller sends to.
    place: Place,
    /// True if nothing arrives on the line any more.
    pub(super) is_dark: bool,
    /// Damage to the datagrams that each end sends.
    pub(super) damage: Option<[Damage; 2]>,
    /// Time of the last loss.
    lost_at: Option<Instant>,
}

impl Line {
    /// True if the line's datagrams begin with the number of their path.
    pub(super) const fn has_paths(&self) -> bool {
        matches!(self.ends[1], LineEnd::Paths(..))
    }

    /// Sends a datagram from an end. DTLS datagrams (RFC 7983 §7) take as much of a narrow path as the largest
    /// one, because the length of signatures differs from run to run.
    fn send(&mut self, now: Instant, side: usize, datagram: Bytes) {
        let is_dtls = self.place.is_secret() && matches!(datagram.first(), Some(20..=63));
        let bytes = if is_dtls { DTLS_BYTES.max(datagram.len()) } else { datagram.len() };
        self.links[side].send_sized(now, datagram, bytes);
    }
}

/// All wires and lines.
#[derive(Debug, Default)]
pub(super) struct Network {
    pub(super) wires: Vec<Wire>,
    pub(super) lines: Vec<Line>,
    pub(super) open_wires: Vec<usize>,
    pub(super) open_lines: Vec<usize>,
    /// For each connection of a worker, its wire and the side of the wire at which the worker is.
    pub(super) places: BTreeMap<(usize, ConnId), (usize, usize)>,
    /// Lines of the shared ports' peers, by address.
    callers: BTreeMap<SocketAddr, usize>,
    /// Lines of sessions' own sockets.
    own: Vec<((usize, ConnId, PathId), usize)>,
    /// Bytes delivered on wires and lines that may be damaged.
    pub(super) damaged_bytes: usize,
}

impl Network {
    pub(super) fn add_wire(&mut self, ends: [End; 2], links: [StreamLink; 2]) -> usize {
        let wire = self.wires.len();
        for (side, end) in ends.iter().enumerate() {
            if let End::Worker(worker, conn) = *end {
                self.places.insert((worker, conn), (wire, side));
            }
        }
        self.wires.push(Wire { ends, links, damage: None, is_secret: false });
        self.open_wires.push(wire);
        wire
    }

    pub(super) fn add_line(
        &mut self,
        seed: &Seed,
        ends: [LineEnd; 2],
        caller: SocketAddr,
        place: Place,
        latency: Duration,
    ) -> usize {
        let line = self.lines.len();
        let number = line as u64 * 2;
        let links = [0, 1].map(|side| Link::new(&seed.derive("line", number + side)).latency(latency));
        self.callers.insert(caller, line);
        if let LineEnd::Own(worker, conn, path) = ends[0] {
            self.own.push(((worker, conn, path), line));
        }
        self.lines.push(Line { ends, links, caller, place, is_dark: false, lost_at: None, damage: None });
        self.open_lines.push(line);
        line
    }

    fn own_line(&self, worker: usize, conn: ConnId, path: PathId) -> Option<usize> {
        self.own.iter().find(|(key, _)| *key == (worker, conn, path)).map(|(_, line)| *line)
    }

    /// Returns the line that all sockets of a session share.
    fn paths_line(&self, worker: usize, conn: ConnId) -> Option<usize> {
        let is_its = |line: &&usize| self.lines[**line].ends[1] == LineEnd::Paths(worker, conn);
        self.open_lines.iter().find(is_its).copied()
    }

    pub(super) fn end_own(&mut self, worker: usize, conn: ConnId, path: Option<PathId>) {
        let is_ended = |(w, c, p): &(usize, ConnId, PathId)| {
            (*w, *c) == (worker, conn) && path.is_none_or(|path| path == *p)
        };
        let lines = &mut self.lines;
        self.own.retain(|(key, line)| {
            if is_ended(key) {
                lines[*line].ends[0] = LineEnd::Gone;
            }
            !is_ended(key)
        });
    }

    /// Resets every connection of the server.
    pub(super) fn cut_all(&mut self, now: Instant) {
        for wire in &self.open_wires {
            let wire = &mut self.wires[*wire];
            for side in 0..2 {
                if matches!(wire.ends[side], End::Worker(..)) {
                    wire.ends[side] = End::Gone;
                    wire.links.iter_mut().for_each(|link| link.reset_at(now));
                }
            }
        }
        self.places.clear();
        for line in &self.open_lines {
            if matches!(self.lines[*line].ends[0], LineEnd::Own(..)) {
                self.lines[*line].ends[0] = LineEnd::Gone;
            }
        }
        self.own.clear();
    }

    /// Removes wires that deliver nothing more, and lines without a caller, from the open ones.
    pub(super) fn tidy(&mut self) {
        let wires = &self.wires;
        self.open_wires.retain(|wire| {
            let Wire { ends, links, .. } = &wires[*wire];
            let is_over = |side: usize| ends[side] == End::Gone || links[1 - side].has_ended();
            !(is_over(0) && is_over(1))
        });
        let lines = &self.lines;
        self.open_lines.retain(|line| !lines[*line].is_dark && lines[*line].ends[0] != LineEnd::Gone);
    }
}

impl World {
    /// Describes the workers' connections that are left, to find a leak.
    pub fn connections_left(&self) -> Vec<String> {
        let of_worker = |end: &End| matches!(end, End::Worker(..));
        let wires = self.network.open_wires.iter().map(|wire| self.network.wires[*wire].ends);
        let left = wires.filter(|ends| ends.iter().any(of_worker));
        left.map(|ends| match ends[0] {
            End::Client(client) => format!("{:?} of {:?}", ends[1], self.clients[client].story),
            End::Worker(..) | End::Gone => format!("{ends:?}"),
        })
        .collect()
    }

    pub(super) fn network_next_at(&mut self) -> Option<Instant> {
        let mut next: Vec<Instant> = Vec::new();
        for index in 0..self.network.open_wires.len() {
            let wire = self.network.open_wires[index];
            for side in 0..2 {
                if self.hears(self.network.wires[wire].ends[side]) {
                    let wants = self.wants_bytes(wire, side);
                    next.extend(self.network.wires[wire].links[1 - side].next_wanted(wants));
                }
            }
        }
        for line in &self.network.open_lines {
            let line = &self.network.lines[*line];
            for side in 0..2 {
                let is_heard = match line.ends[side] {
                    LineEnd::Port(worker) | LineEnd::Own(worker, ..) | LineEnd::Paths(worker, _) => {
                        self.threads.runs(worker)
                    }
                    LineEnd::Client(_) | LineEnd::Gone => true,
                };
                next.extend(line.links[1 - side].next_at().filter(|_| is_heard));
            }
        }
        next.into_iter().min()
    }

    /// True if the thread at this end is running.
    fn hears(&self, end: End) -> bool {
        match end {
            End::Worker(worker, _) => self.threads.runs(worker),
            End::Client(_) | End::Gone => true,
        }
    }

    fn wants_bytes(&mut self, wire: usize, side: usize) -> bool {
        match self.network.wires[wire].ends[side] {
            End::Worker(worker, conn) => self.workers[worker].wants_bytes(conn),
            End::Client(_) | End::Gone => true,
        }
    }

    /// Makes a delivery to an end of a wire, if there is any.
    pub(super) fn deliver(&mut self, wire: usize, side: usize) -> bool {
        let now = self.now();
        let end = self.network.wires[wire].ends[side];
        // A shortcut, because most of the time there is nothing to deliver.
        if self.network.wires[wire].links[1 - side].next_at().is_none_or(|at| at > now.mono)
            || !self.hears(end)
        {
            return false;
        }
        let is_reset = self.network.wires[wire].links[1 - side].is_reset_by(now.mono);
        if !is_reset && !self.wants_bytes(wire, side) {
            return false;
        }
        let delivery = self.network.wires[wire].links[1 - side].poll_delivery(now.mono);
        let Some(mut delivery) = delivery else { return false };
        if let StreamDelivery::Bytes(bytes) = &mut delivery
            && let Some(damage) = &mut self.network.wires[wire].damage
        {
            *bytes = damage[1 - side].apply(bytes).into();
            self.network.damaged_bytes += bytes.len();
        }
        let lane = u32::try_from(wire * 2 + side).unwrap();
        if let StreamDelivery::Bytes(bytes) = &delivery {
            let is_secret = self.network.wires[wire].is_secret;
            self.trace.record(self.clock.elapsed(), lane, if is_secret { &[] } else { bytes });
        }
        match (end, delivery) {
            (End::Worker(worker, conn), StreamDelivery::Bytes(bytes)) => {
                self.workers[worker].handle_bytes(now, conn, &bytes);
            }
            (End::Worker(worker, conn), StreamDelivery::Fin) => {
                self.workers[worker].handle_path(now, conn, PathId::default(), PathEvent::PeerClosed);
            }
            (End::Worker(worker, conn), StreamDelivery::Reset) => {
                self.workers[worker].handle_path(now, conn, PathId::default(), PathEvent::Broken("reset"));
            }
            (End::Client(client), StreamDelivery::Bytes(bytes)) => {
                self.clients[client].bytes(now.mono, &bytes);
            }
            (End::Client(client), StreamDelivery::Fin | StreamDelivery::Reset) => {
                self.clients[client].hangup(now.mono);
            }
            (End::Gone, _) => {}
        }
        true
    }

    /// Delivers a datagram to an end of a line, if there is any.
    pub(super) fn deliver_datagram(&mut self, line: usize, side: usize) -> bool {
        let now = self.now();
        let end = self.network.lines[line].ends[side];
        if let LineEnd::Port(worker) | LineEnd::Own(worker, ..) | LineEnd::Paths(worker, _) = end
            && !self.threads.runs(worker)
        {
            return false;
        }
        let Some(mut datagram) = self.network.lines[line].links[1 - side].poll_delivery(now.mono) else {
            return false;
        };
        if self.network.lines[line].is_dark {
            return true;
        }
        if let Some(damage) = &mut self.network.lines[line].damage {
            datagram = damage[1 - side].apply(&datagram).into();
            datagram.truncate(DATAGRAM_BYTES_MAX);
            self.network.damaged_bytes += datagram.len();
        }
        let lane = u32::MAX - u32::try_from(line * 2 + side).unwrap();
        let (caller, place) = (self.network.lines[line].caller, self.network.lines[line].place);
        self.trace.record(self.clock.elapsed(), lane, if place.is_secret() { &[] } else { &datagram });
        let mut datagram = datagram.to_vec();
        let is_tagged = self.network.lines[line].has_paths();
        let path = PathId(if is_tagged { datagram.remove(0) } else { 0 });
        match end {
            LineEnd::Client(client) => {
                self.clients[client].datagram(now.mono, path, place.address, &mut datagram);
            }
            LineEnd::Paths(worker, conn) => {
                let from = Remote::of(caller);
                self.workers[worker].handle_own_datagram(now, conn, path, from, &mut datagram);
            }
            LineEnd::Port(worker) => self.route(worker, line, Remote::of(caller), &mut datagram),
            LineEnd::Own(worker, conn, path) => {
                let from = Remote::of(place.address);
                self.workers[worker].handle_own_datagram(now, conn, path, from, &mut datagram);
            }
            LineEnd::Gone => {}
        }
        true
    }

    fn route(&mut self, worker: usize, line: usize, from: Remote, datagram: &mut [u8]) {
        let now = self.now();
        let port = self.network.lines[line].place.port;
        match self.workers[worker].handle_datagram(now, port, from, datagram) {
            Routed::Done | Routed::Dropped => {}
            Routed::Reply => {
                let reply = Bytes::copy_from_slice(self.workers[worker].reply_datagram());
                self.send_over(line, 1, reply);
            }
            Routed::Elsewhere(to) => {
                assert!(from.via.is_none(), "passed on twice");
                let from = Remote { via: Some(WorkerId(u16::try_from(worker).unwrap())), ..from };
                let is_meant = |index: usize| match to {
                    Elsewhere::Path(WorkerId(to)) | Elsewhere::Name(WorkerId(to)) => index == usize::from(to),
                    Elsewhere::Others => index != worker,
                };
                for to in (0..self.workers.len()).filter(|index| is_meant(*index)) {
                    self.route(to, line, from, &mut datagram.to_vec());
                }
            }
            Routed::New => drop(self.workers[worker].accept_peer(now, port, from)),
        }
    }

    /// Sends bytes from an end of a wire. Returns the number of bytes that the wire accepted.
    pub(super) fn send(&mut self, wire: usize, side: usize, bytes: &[u8]) -> usize {
        let now = self.clock.now();
        self.network.wires[wire].links[side].send(now, bytes)
    }

    /// Sends a datagram of a worker.
    pub(super) fn send_datagram(&mut self, worker: usize, conn: ConnId, to: Destination, datagram: &[u8]) {
        if let Destination::Own(path, _) = to
            && let Some(line) = self.network.paths_line(worker, conn)
        {
            return self.send_over(line, 1, [&[path.0], datagram].concat().into());
        }
        let (line, side) = match to {
            Destination::Port(_, remote) => (self.network.callers.get(&remote.peer).copied(), 1),
            Destination::Own(path, _) => (self.network.own_line(worker, conn, path), 0),
            Destination::Carried => (None, 0),
        };
        if let Some(line) = line {
            self.send_over(line, side, Bytes::copy_from_slice(datagram));
        }
    }

    /// Sends a datagram from an end of a line; the datagram may be lost or duplicated. Goodbyes that are
    /// recognised by their first byte, as in SRT and DTLS 1.2, are not lost, because a peer that misses one waits
    /// for long. WebRTC sends its goodbye twice.
    pub(super) fn send_over(&mut self, line: usize, side: usize, datagram: Bytes) {
        let now = self.clock.now();
        let Chaos { datagrams_lost, datagrams_doubled, .. } = self.threads.chaos;
        let random = &mut self.threads.random;
        let line = &mut self.network.lines[line];
        let is_goodbye = GOODBYES.iter().any(|goodbye| datagram.starts_with(goodbye));
        let may_lose = line.lost_at.is_none_or(|at| now > at + REPAIR) && !is_goodbye;
        let is_lost = datagrams_lost > 0.0 && random.chance(datagrams_lost) && may_lose;
        if datagrams_doubled > 0.0 && random.chance(datagrams_doubled) {
            line.send(now, side, datagram.clone());
        }
        if is_lost {
            line.lost_at = Some(now);
        } else {
            line.send(now, side, datagram);
        }
    }
}
