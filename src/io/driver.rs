//! The loop that drives sessions over mio, for a worker of the server or for a thread of the load generator: polling,
//! sockets and buffers. It carries out the actions of a [`Machine`] and reports events to it. It moves bytes and knows
//! nothing of media.
//! The owner calls these steps in each turn. Between them, it handles its own sources of work (mail, listeners, shared
//! ports):
//! 1. [`Driver::poll`] waits for events;
//! 2. [`Driver::take_events`] handles the events that the kernel reports;
//! 3. [`Driver::read_ready`] reads the bytes and datagrams that have arrived;
//! 4. [`Driver::finish`] handles deadlines, writes, outputs, and lingering connections.
//!
//! Sockets are edge-triggered. A readable socket stays on the ready list until a read has emptied it. The bytes read
//! from it in one turn are limited, so that a busy peer cannot starve the others. A socket that has refused bytes is
//! not written to until the kernel reports it writable. `streams` implements this for byte streams, `datagrams` for
//! datagrams.

mod datagrams;
mod handshakes;
mod machine;
mod poller;
mod streams;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::{Events, Poll, Registry, Token};
use wire::{Datagrams, SCRATCH_BYTES};

use super::blob_files::BlobFiles;
use super::budget::{GiveWay, Permit};
use super::linger::Lingerers;
use super::udp::{Batch, UdpSocket};
use crate::protocol::{PathEvent, PathId, Port};
use crate::stats::Refused;
use crate::types::{ConnId, Now, WorkerId};
use crate::worker::{Way, Writers};
use datagrams::UdpPeer;
pub(super) use datagrams::note_receive_error;
use handshakes::Handshakes;
pub(super) use machine::{Machine, Output, TlsClient};
use poller::Poller;
pub(super) use streams::Moved;
use streams::Socket;

/// First token that belongs to no connection. Shared ports use the tokens from here on, and the owner's sockets use
/// the tokens after those of the ports.
const SHARED_TOKENS: usize = usize::MAX / 2 + 1;

/// Limits on the work done in one turn or in one call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Maximum bytes of one read.
    pub(super) read: usize,
    /// Maximum bytes read from one socket in one turn.
    pub(super) read_turn: usize,
    /// Maximum bytes written in one turn before sockets are read again.
    pub(super) write_turn: usize,
    /// Maximum bytes written in one turn for sessions that are catching up, in addition to `write_turn`. Such
    /// writes delay new output of sessions that keep up by at most this many bytes.
    pub(super) catch_up_turn: usize,
    /// Maximum receive calls on one UDP socket in one turn.
    pub(super) receives_turn: usize,
    /// Maximum TLS handshakes advanced in one turn.
    pub(super) handshakes_turn: u32,
    /// True if UDP sockets of sessions get large buffers for bursts.
    pub(super) udp_bursts: bool,
    /// Time for which deadlines are delayed after the process was held up, because other threads may still pass on
    /// input.
    pub(super) settle: Duration,
}

/// The state needed to write bytes.
#[derive(Debug)]
pub(super) struct Writing {
    /// Buffer for bytes made for a single write.
    scratch: Vec<u8>,
    /// The files of large blobs.
    pub(super) blob_files: BlobFiles,
}

/// The loop that drives sessions.
#[derive(Debug)]
pub(super) struct Driver {
    poller: Poller,
    bounds: Bounds,
    sockets: Vec<Option<Socket>>,
    /// Connections over datagrams, by slot.
    peers: Vec<Option<UdpPeer>>,
    /// UDP ports that many peers share. The driver sends through them, but its owner reads them.
    pub(super) ports: Vec<(&'static Port, UdpSocket)>,
    /// Number of connections, readable by other threads.
    connections: Arc<AtomicU32>,
    ready: VecDeque<ConnId>,
    lingering: Lingerers,
    /// Number of TLS handshakes that may still be advanced in this turn.
    handshakes: u32,
    /// The handshakes in progress, by listener.
    shaking: BTreeMap<&'static str, Handshakes>,
    buffer: Vec<u8>,
    pub(super) writing: Writing,
    /// Buffers for received datagrams.
    pub(super) batch: Batch,
    /// Buffer for datagrams to send.
    datagrams: Datagrams,
    /// Connections that are to be handed over to other workers.
    moved: Vec<(WorkerId, Moved)>,
}

impl Driver {
    /// Creates a driver without connections.
    pub(super) fn new(poll: Poll, bounds: Bounds, connections: Arc<AtomicU32>) -> Self {
        Self {
            poller: Poller::new(poll, bounds.settle),
            bounds,
            sockets: Vec::new(),
            peers: Vec::new(),
            ports: Vec::new(),
            connections,
            ready: VecDeque::new(),
            lingering: Lingerers::new(Instant::now()),
            handshakes: 0,
            shaking: BTreeMap::new(),
            buffer: vec![0; bounds.read],
            writing: Writing { scratch: vec![0; SCRATCH_BYTES], blob_files: BlobFiles::default() },
            batch: Batch::default(),
            datagrams: Datagrams::new(),
            moved: Vec::new(),
        }
    }

    /// Registry for the owner's own sockets.
    pub(super) fn registry(&self) -> &Registry {
        self.poller.poll.registry()
    }

    // ---- the steps of a turn

    /// Returns the time to wait for events: zero if there is work, else the time until the next deadline of `machine`
    /// or in `others`.
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

    /// True if there is work to do without waiting for an event.
    pub(super) fn has_work<M: Machine>(&self, machine: &M) -> bool {
        self.ports.iter().any(|(_, port)| port.readable)
            || !self.ready.is_empty()
            || machine.has_writes(Writers::All)
    }

    /// Waits for events.
    pub(super) fn poll(&mut self, patience: Option<Duration>) -> io::Result<()> {
        self.poller.wait(patience)
    }

    /// Handles the events of the last poll. `others` is called with the tokens of the owner's own sockets.
    pub(super) fn take_events<M: Machine>(
        &mut self,
        now: Now,
        machine: &mut M,
        mut others: impl FnMut(Token),
    ) {
        let events = std::mem::replace(&mut self.poller.events, Events::with_capacity(0));
        for event in &events {
            match event.token().0.checked_sub(SHARED_TOKENS) {
                None => self.socket_event(now, machine, event),
                Some(index) => match self.ports.get_mut(index) {
                    Some((_, port)) => port.readable = true,
                    None => others(event.token()),
                },
            }
        }
        self.poller.events = events;
    }

    /// Reads readable sockets, with a bound for each connection.
    pub(super) fn read_ready<M: Machine>(&mut self, now: Now, machine: &mut M) {
        self.handshakes = self.bounds.handshakes_turn;
        for _ in 0..self.ready.len() {
            let Some(id) = self.ready.pop_front() else { return };
            if self.peer(id).is_some() {
                self.read_own(now, machine, id);
            }
            if let Some(socket) = self.socket(id) {
                socket.ready = false;
                if self.read(now, machine, id) {
                    self.make_ready(id);
                }
            }
        }
    }

    /// Ends a turn: handles expired deadlines, writes, carries out the actions of the state
    /// machine, and continues closed connections that linger. After the process was held up,
    /// deadlines are delayed until pending input was read.
    pub(super) fn finish<M: Machine>(&mut self, now: Now, machine: &mut M) {
        let unread = !self.ready.is_empty() || self.ports.iter().any(|(_, port)| port.readable);
        if self.poller.defers_deadlines(unread) {
            return self.drain(now, machine);
        }
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

    /// Drains sessions, writes, and carries out the state machine's actions, until nothing is left to do.
    pub(super) fn drain<M: Machine>(&mut self, now: Now, machine: &mut M) {
        machine.finish_turn();
        let mut left = [(Writers::KeepUp, self.bounds.write_turn), (Writers::All, self.bounds.catch_up_turn)];
        loop {
            for (who, left) in &mut left {
                *left = left.saturating_sub(self.write_up_to(now, machine, *who, *left));
            }
            machine.finish_turn();
            let goes_on = left.iter().any(|(who, left)| *left > 0 && machine.has_writes(*who));
            if !self.perform_all(now, machine) && !goes_on {
                return;
            }
        }
    }

    /// Lets the sessions selected by `who` write, until `bytes` bytes are written or no session has more. Returns the
    /// number of bytes written.
    fn write_up_to<M: Machine>(&mut self, now: Now, machine: &mut M, who: Writers, bytes: usize) -> usize {
        let mut written = 0_usize;
        while written < bytes
            && let Some((id, way)) = machine.next_write(who)
        {
            written = written.saturating_add(match way {
                Way::Datagrams => self.write_datagrams(now, machine, id),
                Way::Bytes => self.write(now, machine, id),
            });
        }
        written
    }

    /// Carries out the actions of the state machine. Returns false if there were none.
    pub(super) fn perform_all<M: Machine>(&mut self, now: Now, machine: &mut M) -> bool {
        let mut any = false;
        while let Some(output) = machine.poll_output(now) {
            any = true;
            self.perform(now, machine, output);
        }
        any
    }

    /// Returns the connections that are to be handed over to other workers.
    pub(super) fn take_moved(&mut self) -> Vec<(WorkerId, Moved)> {
        std::mem::take(&mut self.moved)
    }

    /// True if closed connections linger.
    pub(super) fn has_lingering(&self) -> bool {
        !self.lingering.is_empty()
    }

    // ---- inside

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
            Output::UnsentLimit { conn, bytes } => self.limit_unsent(conn, bytes),
            Output::Authenticated { conn, publishes } => {
                if let Some(Err(why)) = self.permit(conn).map(|permit| permit.authenticated(publishes)) {
                    machine.note_refused(why);
                    let event = PathEvent::Broken("per-address or reserved connection limit reached");
                    machine.handle_path(now, conn, PathId::default(), event);
                }
            }
            Output::HandOver { conn, to, peer, received } => {
                let moved = self.take_out(conn, peer, received);
                self.moved.extend(moved.map(|moved| (to, moved)));
            }
            Output::Close { conn, abort } => {
                self.close_peer(conn);
                self.close_stream(now.mono, conn, abort);
            }
            Output::Hurry => self.lingering.hurry(now.mono),
        }
    }

    fn permit(&mut self, id: ConnId) -> Option<&mut Permit> {
        if self.peer(id).is_some_and(|peer| peer.permit.is_some()) {
            return self.peer(id)?.permit.as_mut();
        }
        self.socket(id)?.permit.as_mut()
    }

    /// Closes the unauthenticated connections that `way` selects, to make room. Returns the number of connections
    /// closed.
    pub(super) fn give_way<M: Machine>(&mut self, now: Now, machine: &mut M, way: GiveWay) -> usize {
        let sockets = self.sockets.iter().enumerate().filter_map(|(slot, socket)| {
            let socket = socket.as_ref()?;
            Some((socket.permit.as_ref()?.gives_way(way)?, slot, socket.generation))
        });
        let peers = self.peers.iter().enumerate().filter_map(|(slot, peer)| {
            let peer = peer.as_ref()?;
            Some((peer.permit.as_ref()?.gives_way(way)?, slot, peer.generation))
        });
        let mut oldest: Vec<(u64, usize, u32)> = sockets.chain(peers).collect();
        oldest.sort_unstable();
        oldest.truncate(way.connections);
        for (_, slot, generation) in &oldest {
            // Without its permit, the connection no longer counts and is not selected again before it is closed.
            if let Some(Some(socket)) = self.sockets.get_mut(*slot) {
                socket.permit = None;
            }
            if let Some(Some(peer)) = self.peers.get_mut(*slot) {
                peer.permit = None;
            }
            let Ok(slot) = u32::try_from(*slot) else { continue };
            machine.note_refused(Refused::GaveWay);
            let event = PathEvent::Broken("it gave way to a newcomer");
            machine.handle_path(now, ConnId { slot, generation: *generation }, PathId::default(), event);
        }
        oldest.len()
    }

    fn socket_event<M: Machine>(&mut self, now: Now, machine: &mut M, event: &Event) {
        let Some(id) = conn_of(event.token()) else { return };
        if self.own_event(id) {
            self.event_beside(now, machine, id, event);
        } else {
            self.stream_event(now, machine, id, event);
        }
    }
}

/// Returns the index of a connection in the lists of sockets and peers.
fn slot_of(id: ConnId) -> usize {
    usize::try_from(id.slot).unwrap_or(usize::MAX)
}

/// Puts an item into the slot of its connection. Returns false if there is no such slot.
fn put<T>(slots: &mut Vec<Option<T>>, id: ConnId, item: T) -> bool {
    let slot = slot_of(id);
    if slots.len() <= slot {
        slots.resize_with(slot.saturating_add(1), || None);
    }
    slots.get_mut(slot).map(|entry| *entry = Some(item)).is_some()
}

/// Packs a connection's id into a token: the slot into the low half, the generation (31 bits) into the high half.
fn token_of(id: ConnId) -> Token {
    let packed = (u64::from(id.generation) << 32) | u64::from(id.slot);
    Token(usize::try_from(packed).unwrap_or(0))
}

fn conn_of(token: Token) -> Option<ConnId> {
    let packed = u64::try_from(token.0).ok()?;
    let slot = u32::try_from(packed & 0xffff_ffff).ok()?;
    Some(ConnId { slot, generation: u32::try_from(packed >> 32).ok()? })
}
