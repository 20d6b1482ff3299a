//! The peers of a loop as the driver drives them: what comes is handed to them with the time after the read, what they
//! have to say waits in a queue of each, and what became of them is kept.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::time::Instant;

use wire::{Datagrams, Gather, SendQueue};

use super::{Load, Outcome, Tallies};
use crate::bench::{Peer, PeerEvent};
use crate::io::driver::{Machine, Output};
use crate::protocol::{PathEvent, PathId, Remote};
use crate::stats::Refused;
use crate::types::{ConnId, Now};
use crate::worker::{Destination, Way};

/// A server that lets so much wait is not reading.
const QUEUE_BYTES_MAX: usize = 32 << 20;

/// What a connection lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Connecting,
    Open,
    /// The socket took less than it was offered.
    Blocked,
}

/// A peer and its connection. It stays when the connection is gone: it is what is reported.
#[derive(Debug)]
struct Conn {
    peer: Box<dyn Peer>,
    /// What its owner numbered it with.
    tag: usize,
    in_datagrams: bool,
    flow: Flow,
    /// What waits to be sent over a byte stream.
    out: SendQueue,
    /// The server consented.
    ready: bool,
    /// Why it is over.
    gone: Option<String>,
    /// The connection is given back to the driver.
    closed: bool,
    /// To be drained.
    dirty: bool,
    /// In the write queue.
    writing: bool,
    /// Not read for its peer's sake.
    unread: bool,
    /// When the heap wakes it.
    scheduled: Option<Instant>,
}

/// All of a loop. The slot of a connection is its place in the list, and is not used again.
#[derive(Debug)]
pub(super) struct Generator {
    conns: Vec<Conn>,
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    dirty: Vec<usize>,
    writes: VecDeque<usize>,
    outputs: VecDeque<Output>,
    unsettled: usize,
    pub(super) tallies: Tallies,
}

impl Generator {
    /// Without peers.
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

    /// The id of the next connection.
    pub(super) fn next_id(&self) -> ConnId {
        id_of(self.conns.len())
    }

    /// Adds a peer whose connection is being made under [`Generator::next_id`].
    pub(super) fn add(&mut self, peer: Box<dyn Peer>, tag: usize, in_datagrams: bool) {
        let index = self.conns.len();
        self.conns.push(Conn {
            peer,
            tag,
            in_datagrams,
            flow: if in_datagrams { Flow::Open } else { Flow::Connecting },
            out: SendQueue::new(),
            ready: false,
            gone: None,
            closed: false,
            dirty: false,
            writing: false,
            unread: false,
            scheduled: None,
        });
        self.unsettled += 1;
        self.touch(index);
    }

    /// Connections that are neither ready nor gone.
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

    /// Publishers stop behind their next video frame.
    pub(super) fn finish(&mut self) {
        for conn in &mut self.conns {
            if let Some(media) = conn.peer.media() {
                media.finish();
            }
        }
    }

    /// Everybody says goodbye.
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

    /// Has a peer drained before anything is written.
    fn touch(&mut self, index: usize) {
        if let Some(conn) = self.conns.get_mut(index)
            && !conn.dirty
        {
            conn.dirty = true;
            self.dirty.push(index);
        }
    }

    /// After any input of a peer: its events, its bytes, its deadline.
    fn drain(&mut self, index: usize) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        conn.dirty = false;
        self.drain_events(index);
        self.drain_bytes(index);
        let Some(conn) = self.conns.get_mut(index) else { return };
        if conn.in_datagrams || (!conn.out.is_empty() && conn.flow == Flow::Open) {
            self.enqueue_write(index);
        } else if conn.gone.is_some() {
            self.give_back(index);
        }
        self.schedule(index);
        let Some(conn) = self.conns.get_mut(index) else { return };
        if conn.unread && conn.gone.is_none() && wants_bytes(conn) {
            conn.unread = false;
            self.outputs.push_back(Output::Resume(id_of(index)));
        }
    }

    fn drain_events(&mut self, index: usize) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        while let Some(event) = conn.peer.poll_event() {
            self.unsettled -= usize::from(!conn.ready && conn.gone.is_none());
            match event {
                PeerEvent::Ready => conn.ready = true,
                PeerEvent::Closed(why) => {
                    conn.gone.get_or_insert(why);
                    conn.peer.close(Load::now());
                }
            }
        }
    }

    fn drain_bytes(&mut self, index: usize) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        if let Some(stream) = conn.peer.byte_stream() {
            stream.poll_transmit(&mut conn.out);
        }
        if conn.out.len() > QUEUE_BYTES_MAX && conn.gone.is_none() {
            conn.out = SendQueue::new();
            self.end(index, "the server does not read");
            self.drain_events(index);
        }
    }

    /// Wakes it at its deadline.
    fn schedule(&mut self, index: usize) {
        let Some(conn) = self.conns.get_mut(index).filter(|conn| conn.gone.is_none()) else { return };
        if let Some(at) = conn.peer.poll_timeout()
            && conn.scheduled.is_none_or(|scheduled| at < scheduled)
        {
            conn.scheduled = Some(at);
            self.due.push(Reverse((at, index)));
        }
    }

    fn enqueue_write(&mut self, index: usize) {
        if let Some(conn) = self.conns.get_mut(index)
            && !conn.writing
            && !conn.closed
        {
            conn.writing = true;
            self.writes.push_back(index);
        }
    }

    /// A connection that failed: its peer hears why.
    fn end(&mut self, index: usize, why: &str) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        conn.peer.handle_hangup(Load::now(), Some(why));
        if conn.gone.is_none() {
            self.unsettled -= usize::from(!conn.ready);
            conn.gone = Some(why.to_owned());
        }
    }

    /// Closes the connection of a peer that is gone, once.
    fn give_back(&mut self, index: usize) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        if !std::mem::replace(&mut conn.closed, true) {
            self.outputs.push_back(Output::Close { conn: id_of(index), abort: false });
        }
    }
}

impl Machine for Generator {
    fn handle_path(&mut self, _now: Now, id: ConnId, _path: PathId, event: PathEvent<'_>) {
        let index = index_of(id);
        let Some(conn) = self.conns.get_mut(index).filter(|conn| conn.gone.is_none()) else { return };
        match event {
            PathEvent::Open { .. } => conn.flow = Flow::Open,
            PathEvent::Broken(why) if conn.flow == Flow::Connecting => self.end(index, why),
            PathEvent::Broken(why) => conn.peer.handle_hangup(Load::now(), Some(why)),
            PathEvent::PeerClosed => conn.peer.handle_hangup(Load::now(), None),
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

    fn handle_datagram(&mut self, _now: Now, id: ConnId, _path: PathId, from: Remote, datagram: &mut [u8]) {
        let index = index_of(id);
        let Some(conn) = self.conns.get_mut(index).filter(|conn| conn.gone.is_none()) else { return };
        let tally = self.tallies.received(conn.peer.role(), datagram.len());
        if let Some(datagrams) = conn.peer.datagrams() {
            datagrams.handle_datagram(Load::now(), from.peer, datagram, tally);
        }
        self.touch(index);
    }

    fn handle_writable(&mut self, _now: Now, id: ConnId) {
        let index = index_of(id);
        if let Some(conn) = self.conns.get_mut(index)
            && conn.flow == Flow::Blocked
        {
            conn.flow = Flow::Open;
            self.enqueue_write(index);
        }
    }

    /// The reading side knows why, and what came before it.
    fn handle_write_error(&mut self, _now: Now, id: ConnId, _error: &io::Error) {
        let index = index_of(id);
        let Some(conn) = self.conns.get_mut(index) else { return };
        conn.flow = Flow::Blocked;
        if conn.gone.is_some() {
            self.give_back(index);
        }
    }

    /// One peer at a time, so that what it sends is stamped right before its write.
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
            // The time of the write, not of the turn.
            let tally = self.tallies.of(conn.peer.role());
            conn.peer.handle_timeout(Load::now(), tally);
            self.touch(index);
            return is_due(&self.due);
        }
        false
    }

    fn note_refused(&mut self, _why: Refused) {
        // Whom it connects to it has chosen itself.
    }

    fn wants_bytes(&mut self, id: ConnId) -> bool {
        let Some(conn) = self.conns.get_mut(index_of(id)).filter(|conn| conn.gone.is_none()) else {
            return false;
        };
        let wants = wants_bytes(conn);
        conn.unread = !wants;
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

    fn next_write(&mut self) -> Option<(ConnId, Way)> {
        let index = self.writes.pop_front()?;
        let conn = self.conns.get_mut(index)?;
        conn.writing = false;
        Some((id_of(index), if conn.in_datagrams { Way::Datagrams } else { Way::Bytes }))
    }

    fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    fn retry_write(&mut self, id: ConnId) {
        self.enqueue_write(index_of(id));
    }

    fn gather<'a>(&'a self, id: ConnId, gather: &mut Gather<'a>) {
        if let Some(conn) = self.conns.get(index_of(id)) {
            conn.out.gather(gather);
        }
    }

    fn sent(&mut self, _at: Instant, id: ConnId, taken: usize, offered: usize) {
        let index = index_of(id);
        let Some(conn) = self.conns.get_mut(index) else { return };
        conn.out.advance(taken);
        self.tallies.sent(conn.peer.role(), taken);
        conn.flow = if taken < offered { Flow::Blocked } else { Flow::Open };
        if conn.flow == Flow::Open && !conn.out.is_empty() {
            self.enqueue_write(index);
        } else if conn.gone.is_some() {
            self.give_back(index);
        }
    }

    fn gather_datagrams(&mut self, _now: Now, id: ConnId, out: &mut Datagrams) -> Option<Destination> {
        let index = index_of(id);
        let conn = self.conns.get_mut(index)?;
        if let Some(datagrams) = conn.peer.datagrams() {
            datagrams.poll_datagrams(Load::now(), out);
        }
        if out.is_empty() {
            if conn.gone.is_some() {
                self.give_back(index);
            }
            // What it has sent may have moved its deadline.
            self.schedule(index);
        }
        Some(Destination::Own(PathId::default(), None))
    }

    fn datagrams_sent(&mut self, _at: Instant, id: ConnId, taken: usize, _lost: usize) {
        let index = index_of(id);
        let Some(conn) = self.conns.get(index) else { return };
        self.tallies.sent(conn.peer.role(), taken);
        self.enqueue_write(index);
    }

    fn poll_output(&mut self, _now: Now) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }
}

/// Whether a peer's socket is to be read.
fn wants_bytes(conn: &mut Conn) -> bool {
    conn.peer.byte_stream().is_some_and(|stream| stream.wants_bytes())
}

fn id_of(index: usize) -> ConnId {
    ConnId { slot: u32::try_from(index).unwrap_or(u32::MAX), generation: 0 }
}

fn index_of(id: ConnId) -> usize {
    usize::try_from(id.slot).unwrap_or(usize::MAX)
}
