//! The peers of a thread of the load generator, as a [`Machine`] for the driver. Peers get their input together with
//! the time after the read. Each peer has a queue of output. The outcomes of the peers are kept.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use wire::{Datagrams, Gather, SendQueue};

use super::{Destination, Load, Outcome, Tallies};
use crate::bench::{Peer, PeerEvent, Sockets};
use crate::io::driver::{Machine, Output};
use crate::protocol::{OpenPath, PathEvent, PathId, Remote, To};
use crate::stats::Refused;
use crate::types::{ConnId, Now};
use crate::worker::{Destination as SendTo, Way, Writers};

/// Maximum number of queued bytes of a peer. If more bytes are queued, the server is not reading.
const QUEUE_BYTES_MAX: usize = 32 << 20;

/// Generations, which distinguish the two connections that a peer may have.
const STREAM: u32 = 0;
const DATAGRAMS: u32 = 1;

/// The state of a connection's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Connecting,
    Open,
    /// The socket accepted less than was offered.
    Blocked,
}

/// A byte stream.
#[derive(Debug)]
struct Stream {
    flow: Flow,
    /// Bytes waiting to be sent.
    out: SendQueue,
    /// True if the stream is in the write queue.
    writing: bool,
    /// True if reading is paused because the peer wants no bytes.
    unread: bool,
}

impl Stream {
    fn connecting() -> Self {
        Self { flow: Flow::Connecting, out: SendQueue::new(), writing: false, unread: false }
    }

    fn has_writes(&self) -> bool {
        self.flow == Flow::Open && !self.out.is_empty()
    }
}

/// The UDP socket of a peer, or the sockets that a peer has opened in addition to its byte stream.
#[derive(Debug)]
struct Socket {
    /// True if the socket is in the write queue.
    writing: bool,
    /// Generation of the connection under which the driver knows the socket.
    generation: u32,
}

/// A peer and its connections. The peer is kept after its connections have ended, because it is reported at the
/// end.
#[derive(Debug)]
struct Conn {
    peer: Box<dyn Peer>,
    /// The number given by the owner.
    tag: usize,
    to: Arc<Destination>,
    /// The byte stream, until it is closed.
    stream: Option<Stream>,
    socket: Option<Socket>,
    /// True if the server has admitted the peer.
    ready: bool,
    /// The reason why the peer has ended; `None` while it runs.
    gone: Option<String>,
    /// True if the peer must be drained.
    dirty: bool,
    /// Time of the peer's earliest entry in the heap of deadlines.
    scheduled: Option<Instant>,
}

impl Conn {
    /// True if the peer has a UDP connection of its own, which continues after the end of the byte stream.
    fn has_own_socket(&self) -> bool {
        self.socket.as_ref().is_some_and(|socket| socket.generation == DATAGRAMS)
    }

    fn is_connecting(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.flow == Flow::Connecting)
    }

    /// True if the peer's stream wants bytes of the server.
    fn wants_bytes(&mut self) -> bool {
        self.gone.is_none() && self.peer.byte_stream().is_some_and(|stream| stream.wants_bytes())
    }
}

/// All peers of a thread. The connections of a peer have its index in the list as their slot. Slots are not reused.
#[derive(Debug)]
pub(super) struct Generator {
    conns: Vec<Conn>,
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    dirty: Vec<usize>,
    writes: VecDeque<(usize, Way)>,
    outputs: VecDeque<Output>,
    unsettled: usize,
    pub(super) tallies: Tallies,
}

impl Generator {
    /// Creates a generator without peers.
    pub(super) const fn new(tallies: Tallies) -> Self {
        Self {
            conns: Vec::new(),
            due: BinaryHeap::new(),
            dirty: Vec::new(),
            writes: VecDeque::new(),
            outputs: VecDeque::new(),
            unsettled: 0,
            tallies,
        }
    }

    /// Returns the ids that the byte stream and the UDP socket of the next peer will have.
    pub(super) fn next_ids(&self) -> (ConnId, ConnId) {
        let index = self.conns.len();
        (id_of(index, STREAM), id_of(index, DATAGRAMS))
    }

    /// Adds a peer whose connections are opened with the ids from [`Generator::next_ids`]. `local` is the address
    /// of the UDP socket that the peer has in addition to its byte stream, if any.
    pub(super) fn add(
        &mut self,
        peer: Box<dyn Peer>,
        tag: usize,
        to: &Arc<Destination>,
        local: Option<SocketAddr>,
    ) {
        let index = self.conns.len();
        let mut conn = Conn {
            peer,
            tag,
            to: Arc::clone(to),
            stream: (to.sockets != Sockets::Datagrams).then(Stream::connecting),
            socket: (to.sockets != Sockets::Stream)
                .then_some(Socket { writing: false, generation: DATAGRAMS }),
            ready: false,
            gone: None,
            dirty: false,
            scheduled: None,
        };
        let tally = self.tallies.of(conn.peer.role());
        if let (Some(local), Some(datagrams)) = (local, conn.peer.datagrams()) {
            datagrams.handle_local(Load::now(), PathId::default(), Some(local), tally);
        }
        self.conns.push(conn);
        self.unsettled += 1;
        self.touch(index);
    }

    /// Number of connections that are neither ready nor gone.
    pub(super) const fn unsettled(&self) -> usize {
        self.unsettled
    }

    /// All connections, in the order they were opened.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = Outcome<'_>> {
        self.conns.iter().map(|conn| Outcome {
            tag: conn.tag,
            ready: conn.ready,
            gone: conn.gone.as_deref(),
            score: conn.peer.score(),
        })
    }

    /// Makes publishers stop after their next video frame.
    pub(super) fn finish(&mut self) {
        for conn in &mut self.conns {
            if let Some(media) = conn.peer.media() {
                media.finish();
            }
        }
    }

    /// Closes all connections as their protocols require.
    pub(super) fn close(&mut self) {
        let now = Load::now();
        for index in 0..self.conns.len() {
            if let Some(conn) = self.conns.get_mut(index).filter(|conn| conn.gone.is_none()) {
                conn.peer.close(now);
                self.touch(index);
            }
        }
    }

    // ---- inside

    /// Schedules a peer to be drained before anything is written.
    fn touch(&mut self, index: usize) {
        if let Some(conn) = self.conns.get_mut(index)
            && !conn.dirty
        {
            conn.dirty = true;
            self.dirty.push(index);
        }
    }

    /// Drains a peer after any input: its events, its bytes, its deadline.
    fn drain(&mut self, index: usize) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        conn.dirty = false;
        self.drain_events(index);
        self.drain_bytes(index);
        self.enqueue_writes(index);
        self.give_back_idle(index);
        self.schedule(index);
        let Some(conn) = self.conns.get_mut(index) else { return };
        if conn.stream.as_ref().is_some_and(|stream| stream.unread) && conn.wants_bytes() {
            conn.stream.iter_mut().for_each(|stream| stream.unread = false);
            self.outputs.push_back(Output::Resume(id_of(index, STREAM)));
        }
    }

    fn drain_events(&mut self, index: usize) {
        let mut reconnects = false;
        let Some(conn) = self.conns.get_mut(index) else { return };
        while let Some(event) = conn.peer.poll_event() {
            let settles = matches!(event, PeerEvent::Ready | PeerEvent::Closed(_))
                && !conn.ready
                && conn.gone.is_none();
            self.unsettled -= usize::from(settles);
            match event {
                PeerEvent::Ready => conn.ready = true,
                PeerEvent::Reconnect => reconnects = true,
                PeerEvent::OpenPath(OpenPath { path, bind, to }) => {
                    conn.socket.get_or_insert(Socket { writing: false, generation: STREAM });
                    let conn = id_of(index, STREAM);
                    self.outputs.push_back(Output::OpenUdp { conn, path, bind, to });
                }
                PeerEvent::ClosePath(path) => {
                    self.outputs.push_back(Output::CloseUdp { conn: id_of(index, STREAM), path });
                }
                PeerEvent::Closed(why) => {
                    conn.gone.get_or_insert(why);
                    conn.peer.close(Load::now());
                }
            }
        }
        // A client that has ended sends its last messages over its present connections, so it does not
        // reconnect.
        if reconnects && conn.gone.is_none() {
            self.reconnect(index);
        }
    }

    /// Closes the byte stream and opens a new one.
    fn reconnect(&mut self, index: usize) {
        self.close_stream(index);
        let Some(conn) = self.conns.get_mut(index) else { return };
        conn.stream = Some(Stream::connecting());
        let (address, tls) = (conn.to.address, conn.to.tls_client());
        self.outputs.push_back(Output::Connect { conn: id_of(index, STREAM), address, tls });
    }

    fn drain_bytes(&mut self, index: usize) {
        let Some(Conn { peer, stream: Some(stream), gone, .. }) = self.conns.get_mut(index) else { return };
        if let Some(bytes) = peer.byte_stream() {
            bytes.poll_transmit(&mut stream.out);
        }
        if stream.out.len() > QUEUE_BYTES_MAX && gone.is_none() {
            stream.out = SendQueue::new();
            self.end(index, "the server does not read");
            self.drain_events(index);
        }
    }

    /// Schedules a peer to be woken at its deadline.
    fn schedule(&mut self, index: usize) {
        let Some(conn) = self.conns.get_mut(index).filter(|conn| conn.gone.is_none()) else { return };
        if let Some(at) = conn.peer.poll_timeout()
            && conn.scheduled.is_none_or(|scheduled| at < scheduled)
        {
            conn.scheduled = Some(at);
            self.due.push(Reverse((at, index)));
        }
    }

    fn enqueue_writes(&mut self, index: usize) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        if let Some(stream) = conn.stream.as_mut().filter(|stream| stream.has_writes() && !stream.writing) {
            stream.writing = true;
            self.writes.push_back((index, Way::Bytes));
        }
        if let Some(socket) = conn.socket.as_mut().filter(|socket| !socket.writing) {
            socket.writing = true;
            self.writes.push_back((index, Way::Datagrams));
        }
    }

    fn stream_mut(&mut self, index: usize) -> Option<&mut Stream> {
        self.conns.get_mut(index)?.stream.as_mut()
    }

    /// Handles the end of the byte stream. A peer that continues over datagrams does not need the byte stream any
    /// more.
    fn hang_up(&mut self, index: usize, why: Option<&str>) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        conn.peer.handle_hangup(Load::now(), why);
        if conn.has_own_socket() {
            self.close_stream(index);
        }
    }

    /// Reports a failed connection to its peer.
    fn end(&mut self, index: usize, why: &str) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        conn.peer.handle_hangup(Load::now(), Some(why));
        if conn.gone.is_none() {
            self.unsettled -= usize::from(!conn.ready);
            conn.gone = Some(why.to_owned());
        }
    }

    /// Closes the byte stream of a peer that has ended, once its output was sent. The peer's socket is closed once
    /// it has nothing more to send.
    fn give_back_idle(&mut self, index: usize) {
        let Some(conn) = self.conns.get(index).filter(|conn| conn.gone.is_some()) else { return };
        if conn.stream.as_ref().is_some_and(|stream| !stream.has_writes()) {
            self.close_stream(index);
        }
    }

    fn close_stream(&mut self, index: usize) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        if conn.stream.take().is_some() {
            self.outputs.push_back(Output::Close { conn: id_of(index, STREAM), abort: false });
        }
    }
}

impl Machine for Generator {
    fn handle_path(&mut self, _now: Now, id: ConnId, path: PathId, event: PathEvent<'_>) {
        let index = index_of(id);
        let Some(conn) = self.conns.get_mut(index).filter(|conn| conn.gone.is_none()) else { return };
        if path != PathId::default() {
            let local = match event {
                PathEvent::Open { local } => local,
                PathEvent::Negotiated(_) | PathEvent::PeerClosed | PathEvent::Broken(_) => None,
            };
            let tally = self.tallies.of(conn.peer.role());
            if let Some(datagrams) = conn.peer.datagrams() {
                datagrams.handle_local(Load::now(), path, local, tally);
            }
            return self.touch(index);
        }
        match event {
            PathEvent::Open { .. } => conn.stream.iter_mut().for_each(|stream| stream.flow = Flow::Open),
            PathEvent::Negotiated(_) => {}
            PathEvent::Broken(why) if conn.is_connecting() => self.end(index, why),
            PathEvent::Broken(why) => self.hang_up(index, Some(why)),
            PathEvent::PeerClosed => self.hang_up(index, None),
        }
        self.touch(index);
    }

    fn handle_bytes(&mut self, _now: Now, id: ConnId, bytes: &[u8]) {
        let index = index_of(id);
        let Some(conn) = self.conns.get_mut(index) else { return };
        let tally = self.tallies.received(conn.peer.role(), bytes.len());
        if let Some(stream) = conn.peer.byte_stream() {
            stream.handle_bytes(Load::now(), bytes, tally);
        }
        self.touch(index);
    }

    fn handle_datagram(&mut self, _now: Now, id: ConnId, path: PathId, from: Remote, datagram: &mut [u8]) {
        let index = index_of(id);
        let Some(conn) = self.conns.get_mut(index).filter(|conn| conn.gone.is_none()) else { return };
        let tally = self.tallies.received(conn.peer.role(), datagram.len());
        if let Some(datagrams) = conn.peer.datagrams() {
            datagrams.handle_datagram(Load::now(), path, from.peer, datagram, tally);
        }
        self.touch(index);
    }

    fn handle_writable(&mut self, _now: Now, id: ConnId) {
        let index = index_of(id);
        if let Some(stream) = self.stream_mut(index)
            && stream.flow == Flow::Blocked
        {
            stream.flow = Flow::Open;
            self.enqueue_writes(index);
        }
    }

    /// Ignores the error. The next read returns the reason, after the input that arrived before it.
    fn handle_write_error(&mut self, _now: Now, id: ConnId, _error: &io::Error) {
        let index = index_of(id);
        if let Some(stream) = self.stream_mut(index) {
            stream.flow = Flow::Blocked;
        }
        self.give_back_idle(index);
    }

    /// Lets peers handle their deadlines one at a time, so that the time stamp of each unit is taken directly
    /// before its write.
    fn handle_timeout(&mut self, now: Now) -> bool {
        let is_due = |due: &BinaryHeap<Reverse<(Instant, usize)>>| {
            due.peek().is_some_and(|Reverse((at, _))| *at <= now.mono)
        };
        while is_due(&self.due)
            && let Some(Reverse((at, index))) = self.due.pop()
        {
            let Some(conn) = self.conns.get_mut(index).filter(|conn| conn.scheduled == Some(at)) else {
                continue;
            };
            conn.scheduled = None;
            // Take the time of the write, not of the turn.
            let tally = self.tallies.of(conn.peer.role());
            conn.peer.handle_timeout(Load::now(), tally);
            self.touch(index);
            return is_due(&self.due);
        }
        false
    }

    fn note_refused(&mut self, _why: Refused) {
        // Not used, because the load generator accepts no connections.
    }

    fn wants_bytes(&mut self, id: ConnId) -> bool {
        let Some(conn) = self.conns.get_mut(index_of(id)) else { return false };
        let wants = conn.wants_bytes();
        conn.stream.iter_mut().for_each(|stream| stream.unread = !wants);
        wants
    }

    fn waits_for_verdict(&self, _id: ConnId) -> bool {
        false
    }

    fn finish_turn(&mut self) {
        while let Some(index) = self.dirty.pop() {
            self.drain(index);
        }
    }

    fn next_write(&mut self, _who: Writers) -> Option<(ConnId, Way)> {
        let (index, way) = self.writes.pop_front()?;
        let conn = self.conns.get_mut(index)?;
        match way {
            Way::Bytes => conn.stream.iter_mut().for_each(|stream| stream.writing = false),
            Way::Datagrams => conn.socket.iter_mut().for_each(|socket| socket.writing = false),
        }
        let generation = match way {
            Way::Bytes => STREAM,
            Way::Datagrams => conn.socket.as_ref().map_or(DATAGRAMS, |socket| socket.generation),
        };
        Some((id_of(index, generation), way))
    }

    fn has_writes(&self, _who: Writers) -> bool {
        !self.writes.is_empty()
    }

    fn retry_write(&mut self, id: ConnId) {
        self.enqueue_writes(index_of(id));
    }

    fn gather<'a>(&'a self, id: ConnId, gather: &mut Gather<'a>) {
        if let Some(stream) = self.conns.get(index_of(id)).and_then(|conn| conn.stream.as_ref()) {
            stream.out.gather(gather);
        }
    }

    fn sent(&mut self, _at: Instant, id: ConnId, taken: usize, offered: usize) {
        let index = index_of(id);
        let Some(conn) = self.conns.get_mut(index) else { return };
        self.tallies.sent(conn.peer.role(), taken);
        if let Some(stream) = &mut conn.stream {
            stream.out.advance(taken);
            stream.flow = if taken < offered { Flow::Blocked } else { Flow::Open };
        }
        self.enqueue_writes(index);
        self.give_back_idle(index);
    }

    fn gather_datagrams(&mut self, _now: Now, id: ConnId, out: &mut Datagrams) -> Option<SendTo> {
        let index = index_of(id);
        let conn = self.conns.get_mut(index)?;
        let datagrams = conn.peer.datagrams();
        let to = datagrams.map_or(To::PEER, |datagrams| datagrams.poll_datagrams(Load::now(), out));
        if out.is_empty() {
            if conn.gone.is_some() && conn.has_own_socket() {
                conn.socket = None;
                self.outputs.push_back(Output::Close { conn: id, abort: false });
            }
            // Sending datagrams may have moved the peer's deadline.
            self.schedule(index);
        }
        Some(SendTo::Own(to.path, to.remote.map(|remote| remote.peer)))
    }

    fn datagrams_sent(&mut self, _at: Instant, id: ConnId, taken: usize, _lost: usize) {
        let index = index_of(id);
        let Some(conn) = self.conns.get(index) else { return };
        self.tallies.sent(conn.peer.role(), taken);
        self.enqueue_writes(index);
    }

    fn poll_output(&mut self, _now: Now) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }
}

fn id_of(index: usize, generation: u32) -> ConnId {
    ConnId { slot: u32::try_from(index).unwrap_or(u32::MAX), generation }
}

fn index_of(id: ConnId) -> usize {
    usize::try_from(id.slot).unwrap_or(usize::MAX)
}
