//! The loop that drives sessions over mio, for a worker of the server and for a thread of the load generator: poll, sockets,
//! buffers. It does what a [`Machine`] asks and tells it what happened; it knows bytes, and nothing of media.
//!
//! Its owner runs the turns, and puts between these steps what it alone has (mail, listeners, shared ports):
//! 1. [`Driver::poll`] waits;
//! 2. [`Driver::take_events`]: what the kernel reports;
//! 3. [`Driver::read_ready`]: bytes and datagrams that have come;
//! 4. [`Driver::finish`]: deadlines, writes, outputs, and closed connections that linger.
//!
//! Sockets are edge-triggered. A readable socket stays on the ready list until it was read dry, with a bound per
//! turn, so that one loud peer cannot starve the rest; a socket that refuses bytes is left alone until the kernel
//! reports it writable. Datagrams have their own half of it (`datagrams`).

mod datagrams;
mod machine;
mod socket;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Registry, Token};
use wire::{Datagrams, Gather, SCRATCH_BYTES};

use super::budget::Permit;
use super::linger::Lingerers;
use super::sys;
use super::tls::{Received, Transport};
use super::udp::{Batch, UdpSocket};
use crate::protocol::{PathEvent, PathId, Port};
use crate::types::{ConnId, Now};
use crate::worker::Way;
use datagrams::UdpPeer;
pub(super) use datagrams::note_receive_error;
pub(super) use machine::{Machine, Output, TlsClient};
use socket::Socket;

/// Tokens from here on are no connection's: first the shared ports, behind them what the owner registers.
const SHARED_TOKENS: usize = usize::MAX / 2 + 1;
/// Events of one poll.
const EVENTS: usize = 1024;
/// Bytes of one write.
const WRITE_BYTES: usize = 256 * 1024;

/// How much is done at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Bytes of one read.
    pub(super) read: usize,
    /// Bytes read of one socket in one turn.
    pub(super) read_turn: usize,
    /// Bytes written in one turn, before sockets are looked at again.
    pub(super) write_turn: usize,
    /// Receive calls on one UDP socket in one turn.
    pub(super) receives_turn: usize,
    /// TLS handshakes that one turn works on.
    pub(super) handshakes_turn: u32,
    /// UDP sockets of sessions ask the system for room for bursts.
    pub(super) udp_bursts: bool,
}

/// The loop.
#[derive(Debug)]
pub(super) struct Driver {
    poll: Poll,
    events: Events,
    bounds: Bounds,
    sockets: Vec<Option<Socket>>,
    /// Connections of datagrams, by slot too.
    peers: Vec<Option<UdpPeer>>,
    /// UDP ports that many peers share. Their owner reads them.
    pub(super) ports: Vec<(&'static Port, UdpSocket)>,
    /// How many connections there are, for others to see.
    connections: Arc<AtomicU32>,
    ready: VecDeque<ConnId>,
    lingering: Lingerers,
    /// TLS handshakes that this turn may still work on.
    handshakes: u32,
    buffer: Vec<u8>,
    /// Bytes that are made for one write alone.
    scratch: Vec<u8>,
    /// What datagrams are received into.
    pub(super) batch: Batch,
    /// What they are gathered in.
    datagrams: Datagrams,
}

impl Driver {
    /// Without connections.
    pub(super) fn new(poll: Poll, bounds: Bounds, connections: Arc<AtomicU32>) -> Self {
        Self {
            poll,
            events: Events::with_capacity(EVENTS),
            bounds,
            sockets: Vec::new(),
            peers: Vec::new(),
            ports: Vec::new(),
            connections,
            ready: VecDeque::new(),
            lingering: Lingerers::new(Instant::now()),
            handshakes: 0,
            buffer: vec![0; bounds.read],
            scratch: vec![0; SCRATCH_BYTES],
            batch: Batch::default(),
            datagrams: Datagrams::new(),
        }
    }

    /// For sockets of the owner's own.
    pub(super) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    // ---- the steps of a turn

    /// How long to wait: not at all while there is work, else until the next deadline, the machine's or one of `others`.
    pub(super) fn patience<M: Machine>(
        &self,
        machine: &M,
        others: impl IntoIterator<Item = Instant>,
    ) -> Option<Duration> {
        if self.has_work(machine) {
            return Some(Duration::ZERO);
        }
        let now = Instant::now();
        let deadlines = machine.poll_timeout().into_iter().chain(others);
        let waits = deadlines.map(|due| due.saturating_duration_since(now));
        waits.chain(self.lingering.period()).min()
    }

    /// Whether there is something to do without an event.
    pub(super) fn has_work<M: Machine>(&self, machine: &M) -> bool {
        self.ports.iter().any(|(_, port)| port.readable) || !self.ready.is_empty() || machine.has_writes()
    }

    /// Waits for events.
    pub(super) fn poll(&mut self, patience: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(&mut self.events, patience) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Handles the events of the last poll; those of the owner's sockets are `others`.
    pub(super) fn take_events<M: Machine>(
        &mut self,
        now: Now,
        machine: &mut M,
        mut others: impl FnMut(Token),
    ) {
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            match event.token().0.checked_sub(SHARED_TOKENS) {
                None => self.socket_event(now, machine, event),
                Some(index) => match self.ports.get_mut(index) {
                    Some((_, port)) => port.readable = true,
                    None => others(event.token()),
                },
            }
        }
        self.events = events;
    }

    /// Reads what has come, with a bound for each connection.
    pub(super) fn read_ready<M: Machine>(&mut self, now: Now, machine: &mut M) {
        self.handshakes = self.bounds.handshakes_turn;
        for _ in 0..self.ready.len() {
            let Some(id) = self.ready.pop_front() else { return };
            if self.peer(id).is_some() {
                self.read_own(now, machine, id);
            } else if let Some(socket) = self.socket(id) {
                socket.ready = false;
                if self.read(now, machine, id) {
                    self.make_ready(id);
                }
            }
        }
    }

    /// Handles deadlines, writes, does what the machine asks, and looks at closed connections.
    pub(super) fn finish<M: Machine>(&mut self, now: Now, machine: &mut M) {
        loop {
            let more =
                machine.poll_timeout().is_some_and(|due| due <= now.mono) && machine.handle_timeout(now);
            self.drain(now, machine);
            if !more {
                break;
            }
        }
        self.lingering.turn(now.mono, &mut self.buffer);
    }

    /// Drains sessions, writes, and does what the machine asks, until nothing follows from it any more.
    pub(super) fn drain<M: Machine>(&mut self, now: Now, machine: &mut M) {
        machine.finish_turn();
        let mut written = 0;
        loop {
            while written < self.bounds.write_turn {
                let Some((id, way)) = machine.next_write() else { break };
                let bytes = match way {
                    Way::Datagrams => self.write_datagrams(now, machine, id),
                    Way::Bytes => self.write(now, machine, id),
                };
                written = written.saturating_add(bytes);
            }
            machine.finish_turn();
            if !self.perform_all(now, machine) && (written >= self.bounds.write_turn || !machine.has_writes())
            {
                return;
            }
        }
    }

    /// Does what the machine asks. False: it asked for nothing.
    pub(super) fn perform_all<M: Machine>(&mut self, now: Now, machine: &mut M) -> bool {
        let mut any = false;
        while let Some(output) = machine.poll_output(now) {
            any = true;
            self.perform(now, machine, output);
        }
        any
    }

    /// Whether closed connections linger.
    pub(super) fn has_lingering(&self) -> bool {
        !self.lingering.is_empty()
    }

    // ---- connections

    /// Takes over a connection that was accepted.
    pub(super) fn install_accepted<M: Machine>(
        &mut self,
        now: Now,
        machine: &mut M,
        id: ConnId,
        transport: Transport,
        permit: Permit,
    ) {
        let socket = Socket { permit: Some(permit), ..Socket::new(id, transport) };
        if let Err(error) = self.install(id, socket) {
            machine.handle_path(now, id, PathId::default(), PathEvent::Broken(&error.to_string()));
        }
    }

    /// Begins an outgoing connection.
    pub(super) fn connect(
        &mut self,
        id: ConnId,
        address: SocketAddr,
        tls: Option<TlsClient>,
    ) -> io::Result<()> {
        let stream = TcpStream::connect(address)?;
        let _ = stream.set_nodelay(true);
        let tls = tls.map(Box::new);
        self.install(id, Socket { connecting: true, tls, ..Socket::new(id, Transport::plain(stream)) })
    }

    fn install(&mut self, id: ConnId, mut socket: Socket) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(socket.transport.stream_mut(), token_of(id), interest)?;
        if put(&mut self.sockets, id, socket) {
            self.connections.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn perform<M: Machine>(&mut self, now: Now, machine: &mut M, output: Output) {
        match output {
            Output::Done => {}
            Output::Connect { conn, address, tls } => {
                if let Err(error) = self.connect(conn, address, tls) {
                    let reason = error.to_string();
                    machine.handle_path(now, conn, PathId::default(), PathEvent::Broken(&reason));
                }
            }
            Output::OpenUdp { conn, path, bind, to } => match self.open_udp(conn, path, bind, to) {
                Ok(local) => machine.handle_path(now, conn, path, PathEvent::Open { local }),
                Err(error) => machine.handle_path(now, conn, path, PathEvent::Broken(&error.to_string())),
            },
            Output::CloseUdp { conn, path } => self.close_udp(conn, path),
            Output::Resume(id) => self.make_ready(id),
            Output::UnsentLimit { conn, bytes } => {
                if let Some(socket) = self.socket(conn)
                    && let Err(error) = sys::set_unsent_limit(socket.transport.stream().as_fd(), bytes)
                {
                    tracing::debug!(%error, "TCP_NOTSENT_LOWAT");
                }
            }
            Output::Authenticated(id) => {
                let of_peer = self.peer(id).and_then(|peer| peer.permit.as_mut());
                if let Some(permit) = of_peer {
                    permit.known();
                } else if let Some(permit) = self.socket(id).and_then(|socket| socket.permit.as_mut()) {
                    permit.known();
                }
            }
            Output::Close { conn, abort } => self.close(now.mono, conn, abort),
            Output::Hurry => self.lingering.hurry(now.mono),
        }
    }

    fn close(&mut self, now: Instant, id: ConnId, abort: bool) {
        if self.close_peer(id) {
            return;
        }
        let Some(entry) = self.sockets.get_mut(slot_of(id)) else { return };
        let Some(mut socket) = entry.take_if(|socket| socket.generation == id.generation) else { return };
        self.connections.fetch_sub(1, Ordering::Relaxed);
        let _ = self.poll.registry().deregister(socket.transport.stream_mut());
        // An alert may wait behind what a slow peer has not taken, and what the peer has sent since is unread.
        if !abort || socket.alerted {
            let ended = socket.ended && !socket.alerted;
            self.lingering.add(now, socket.transport, socket.permit, ended);
        }
    }

    fn socket(&mut self, id: ConnId) -> Option<&mut Socket> {
        self.sockets.get_mut(slot_of(id))?.as_mut().filter(|socket| socket.generation == id.generation)
    }

    // ---- events

    fn socket_event<M: Machine>(&mut self, now: Now, machine: &mut M, event: &mio::event::Event) {
        let Some(id) = conn_of(event.token()) else { return };
        if let Some(peer) = self.peer(id).filter(|peer| !peer.own.is_empty()) {
            peer.own.iter_mut().for_each(|(_, own)| own.readable = true);
            self.ready.push_back(id);
            return;
        }
        // A stale event names a generation that is gone.
        let Some(socket) = self.socket(id) else { return };
        let ends = event.is_read_closed() || event.is_error();
        if socket.connecting {
            self.connect_event(now, machine, id, ends);
            return;
        }
        if event.is_readable() || ends {
            socket.readable = true;
            socket.ending |= ends;
            self.make_ready(id);
        }
        if event.is_writable() {
            self.socket_writable(now, machine, id);
        }
    }

    /// What TLS holds back goes first; only an empty transport takes more.
    fn socket_writable<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId) {
        let Some(socket) = self.socket(id) else { return };
        match socket.transport.flush() {
            Ok(true) => machine.handle_writable(now, id),
            Ok(false) => {}
            Err(error) => machine.handle_write_error(now, id, &error),
        }
    }

    /// A connect is finished when the socket has a peer or an error; `ending`: the peer has closed its side already.
    fn connect_event<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId, ending: bool) {
        let Some(socket) = self.socket(id) else { return };
        let Some(result) = socket.end_connect(ending) else { return };
        let path = PathId::default();
        match result {
            Err(error) => machine.handle_path(now, id, path, PathEvent::Broken(&error.to_string())),
            // With TLS the session hears of it when the peer is verified.
            Ok(()) if socket.transport.is_handshaking() => {}
            Ok(()) => machine.handle_path(now, id, path, PathEvent::Open { local: None }),
        }
        self.make_ready(id);
    }

    // ---- reading

    fn make_ready(&mut self, id: ConnId) {
        if let Some(socket) = self.socket(id)
            && !socket.ready
        {
            socket.ready = true;
            self.ready.push_back(id);
        }
    }

    /// Reads until the socket is dry, the machine has enough, or the turn's share is used: then true.
    fn read<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId) -> bool {
        let mut budget = self.bounds.read_turn;
        loop {
            if !machine.wants_bytes(id) {
                self.note_forsaken(now, machine, id);
                return false;
            }
            let Some(Some(socket)) = self.sockets.get_mut(slot_of(id)) else { return false };
            if !socket.readable || socket.ended {
                return false;
            }
            if socket.transport.is_handshaking() {
                let Some(left) = self.handshakes.checked_sub(1) else { return true };
                self.handshakes = left;
                // Only now: a peer that says nothing must not keep the others out.
                if let Some(Err(why)) = socket.permit.as_mut().map(Permit::begin_handshake) {
                    socket.ended = true;
                    machine.note_refused(why);
                    self.broken(now, machine, id, &io::Error::other("too many TLS handshakes"));
                    return false;
                }
            }
            let received = socket.transport.read(&mut self.buffer);
            if socket.transport.take_handshake_end() {
                self.handshake_ended(now, machine, id);
            }
            let Some(Some(socket)) = self.sockets.get_mut(slot_of(id)) else { return false };
            match received {
                Ok(Received { bytes: 0, .. }) => {
                    socket.ended = true;
                    self.peer_ended(now, machine, id);
                    return false;
                }
                Ok(Received { bytes: count, dry }) => {
                    // A short read has emptied the socket; what comes later is reported anew. It saves the read that
                    // would only say so.
                    socket.readable = socket.ending || !dry;
                    let bytes = self.buffer.get(..count).unwrap_or_default();
                    machine.handle_bytes(now, id, bytes);
                    budget = budget.saturating_sub(count);
                    if budget == 0 {
                        return true;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    socket.readable = false;
                    return false;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    socket.ended = true;
                    socket.alerted = error.kind() == io::ErrorKind::InvalidData;
                    self.broken(now, machine, id, &error);
                    return false;
                }
            }
        }
    }

    /// Nothing is read while a verdict is waited for; a peer that leaves meanwhile must not be admitted.
    fn note_forsaken<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId) {
        let leaves = |socket: &mut Socket| socket.ending && !std::mem::replace(&mut socket.ended, true);
        if machine.waits_for_verdict(id) && self.socket(id).is_some_and(leaves) {
            let event = PathEvent::Broken("the peer left before the verdict");
            machine.handle_path(now, id, PathId::default(), event);
        }
    }

    /// The peers of a TLS connection know each other: what waited for it goes on.
    fn handshake_ended<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId) {
        let Some(socket) = self.socket(id) else { return };
        if let Some(permit) = &mut socket.permit {
            permit.end_handshake();
        }
        if socket.tls.take().is_some() {
            machine.handle_path(now, id, PathId::default(), PathEvent::Open { local: None });
        }
        machine.handle_writable(now, id);
    }

    /// The end of the peer's side; in the midst of a handshake there is nobody to talk to.
    fn peer_ended<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId) {
        if self.socket(id).is_some_and(|socket| socket.transport.is_handshaking()) {
            self.broken(now, machine, id, &io::Error::other("the peer left the TLS handshake"));
        } else {
            machine.handle_path(now, id, PathId::default(), PathEvent::PeerClosed);
        }
    }

    fn broken<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId, error: &io::Error) {
        let Some(socket) = self.socket(id) else { return };
        if let Some(permit) = &mut socket.permit {
            permit.end_handshake();
        }
        socket.tls = None;
        machine.handle_path(now, id, PathId::default(), PathEvent::Broken(&error.to_string()));
    }

    // ---- writing

    fn write<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId) -> usize {
        let (offered, result) = {
            let Some(Some(socket)) = self.sockets.get_mut(slot_of(id)) else { return 0 };
            if socket.generation != id.generation {
                return 0;
            }
            let mut gather = Gather::with_scratch(WRITE_BYTES, &mut self.scratch);
            machine.gather(id, &mut gather);
            if gather.is_empty() {
                return 0;
            }
            (gather.bytes(), socket.transport.write(gather.slices(), gather.bytes()))
        };
        match result {
            Ok(taken) => {
                machine.sent(Instant::now(), id, taken, offered);
                taken
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                machine.sent(now.mono, id, 0, offered);
                0
            }
            // Tried again in the next round of this turn.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                machine.retry_write(id);
                0
            }
            Err(error) => {
                machine.handle_write_error(now, id, &error);
                0
            }
        }
    }
}

/// Where a connection stands in the lists.
fn slot_of(id: ConnId) -> usize {
    usize::try_from(id.slot).unwrap_or(usize::MAX)
}

/// Puts it into the slot of its connection. False when there is no such slot.
fn put<T>(slots: &mut Vec<Option<T>>, id: ConnId, item: T) -> bool {
    let slot = slot_of(id);
    if slots.len() <= slot {
        slots.resize_with(slot.saturating_add(1), || None);
    }
    slots.get_mut(slot).map(|entry| *entry = Some(item)).is_some()
}

/// Slot in the low half, generation (31 bits) in the high one.
fn token_of(id: ConnId) -> Token {
    let packed = (u64::from(id.generation) << 32) | u64::from(id.slot);
    Token(usize::try_from(packed).unwrap_or(0))
}

fn conn_of(token: Token) -> Option<ConnId> {
    let packed = u64::try_from(token.0).ok()?;
    let slot = u32::try_from(packed & 0xffff_ffff).ok()?;
    Some(ConnId { slot, generation: u32::try_from(packed >> 32).ok()? })
}
