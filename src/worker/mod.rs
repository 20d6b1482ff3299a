//! The worker: one per core, itself a machine. It knows connections, bytes, deadlines and mail, and neither file
//! descriptors nor clocks: [`crate::io`] drives it, and so does the simulator.
//!
//! A turn:
//! 1. mail ([`Worker::handle_mail`], [`Worker::handle_mirrored`]), so that what control said first is known first;
//! 2. sockets ([`Worker::accept`], [`Worker::handle_bytes`], [`Worker::handle_hangup`], ...);
//! 3. deadlines ([`Worker::handle_timeout`]);
//! 4. [`Worker::finish_turn`]: every touched session is asked for events and bytes, streams that grew are flushed;
//! 5. writes: [`Worker::next_write`], [`Worker::gather`], the system call, [`Worker::sent`];
//! 6. [`Worker::poll_output`], until there is none.

mod conn;
mod deadlines;
mod dispatch;
pub mod mailbox;
mod slab;
mod streams;
mod write;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crypto::Seed;

use crate::hub::Stream;
use crate::mail::{
    ConnId, Now, PushId, PushOrder, PushState, Report, SourceFigures, StreamId, StreamKey, ToControl,
    ToWorker, WorkerId,
};
use crate::protocol::{self, Apps, Context, Listener};
use conn::{Conn, Publishing, PushRole};
use deadlines::{Deadlines, Timer};
use mailbox::MirroredUnit;
use slab::Slab;

/// How often figures go to control while anything is live: counts are at most this old.
const REPORT_PERIOD: Duration = Duration::from_secs(1);

/// What the shell must do.
#[derive(Debug)]
pub enum Output {
    /// Deliver to control.
    Control(ToControl),
    /// Deliver to another worker.
    Worker(WorkerId, ToWorker),
    /// Deliver to another worker on the media lane.
    Mirrored(WorkerId, MirroredUnit),
    /// Open an outgoing connection; answer [`Worker::handle_connected`].
    Connect {
        /// For whom.
        conn: ConnId,
        /// To where.
        address: SocketAddr,
    },
    /// Reading was paused because no bytes were wanted; now they are.
    Resume(ConnId),
    /// Let the kernel hold so many unsent bytes and no more.
    UnsentLimit {
        /// Of which connection.
        conn: ConnId,
        /// Bytes.
        bytes: usize,
    },
    /// Strangers are limited; this connection is none any more.
    Authenticated(ConnId),
    /// Close the socket. All that was to be sent is sent, unless `abort`.
    Close {
        /// Which connection; its id is dead.
        conn: ConnId,
        /// Do not wait for the peer to take what the kernel still holds.
        abort: bool,
    },
}

/// What the publisher of a stream on this worker has brought.
#[derive(Debug, Default, Clone, Copy)]
struct SourceCount {
    received_bytes: u64,
    dropped: u64,
    last_unit: Option<Instant>,
    position: media::Position,
}

/// Plain counters since the start.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Connections accepted or opened.
    pub sessions: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Units that entered a ring.
    pub units: u64,
    /// Units that viewers and pushes were not sent because they were too slow.
    pub units_skipped: u64,
    /// Units that a mirror was not sent because its lane was full.
    pub units_unmirrored: u64,
    /// Sessions that panicked and were closed.
    pub panics: u64,
}

/// A worker.
#[derive(Debug)]
pub struct Worker {
    id: WorkerId,
    now: Now,
    began: Instant,
    seed: Seed,
    conns: Slab<Conn>,
    apps: Apps,
    streams: BTreeMap<StreamId, Stream>,
    directory: BTreeMap<StreamKey, StreamId>,
    sources: BTreeMap<StreamId, SourceCount>,
    pushes: BTreeMap<PushId, ConnId>,
    deadlines: Deadlines,
    touched: Vec<ConnId>,
    grown: Vec<StreamId>,
    writes: VecDeque<ConnId>,
    outputs: VecDeque<Output>,
    report_armed: bool,
    busy: Duration,
    busy_since: Instant,
    draining: bool,
    drained: bool,
    stats: Stats,
}

impl Worker {
    /// Without connections; applications come by mail.
    #[must_use]
    pub fn new(id: WorkerId, now: Now, seed: Seed) -> Self {
        Self {
            id,
            now,
            began: now.mono,
            seed,
            conns: Slab::default(),
            apps: Apps::new(),
            streams: BTreeMap::new(),
            directory: BTreeMap::new(),
            sources: BTreeMap::new(),
            pushes: BTreeMap::new(),
            deadlines: Deadlines::default(),
            touched: Vec::new(),
            grown: Vec::new(),
            writes: VecDeque::new(),
            outputs: VecDeque::new(),
            report_armed: false,
            busy: Duration::ZERO,
            busy_since: now.mono,
            draining: false,
            drained: false,
            stats: Stats::default(),
        }
    }

    // ---- inputs: sockets

    /// A connection was accepted. `None`: close it.
    pub fn accept(&mut self, now: Now, listener: Listener, peer: SocketAddr) -> Option<ConnId> {
        self.now = now;
        if self.draining {
            return None;
        }
        let seed = self.session_seed();
        let session = listener.begin(now, peer, seed);
        let id = self.conns.insert(Conn::new(peer, session, now.mono))?;
        self.touch(id);
        Some(id)
    }

    /// An outgoing connection is there, or cannot be.
    pub fn handle_connected(&mut self, now: Now, id: ConnId, result: Result<(), String>) {
        self.now = now;
        let ctx = Context { now, apps: &self.apps, draining: self.draining };
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.connecting = false;
        match result {
            Ok(()) => conn.session.handle_connected(&ctx),
            Err(error) => conn.session.handle_hangup(&ctx, Some(&error)),
        }
        self.touch(id);
    }

    /// Bytes of a peer. Ask [`Worker::wants_bytes`] before each.
    pub fn handle_bytes(&mut self, now: Now, id: ConnId, bytes: &[u8]) {
        self.now = now;
        let ctx = Context { now, apps: &self.apps, draining: self.draining };
        let Some(conn) = self.conns.get_mut(id) else { return };
        let count = bytes.len() as u64;
        conn.bytes_in = conn.bytes_in.saturating_add(count);
        self.stats.bytes_in = self.stats.bytes_in.saturating_add(count);
        let session = &mut conn.session;
        // One peer's bytes must not take the others down, whatever bug they find.
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| session.handle_bytes(&ctx, bytes)));
        if outcome.is_err() {
            self.remove_panicked(id);
            return;
        }
        self.drain_session(id);
    }

    /// The peer closed its side (`None`), or the connection broke.
    pub fn handle_hangup(&mut self, now: Now, id: ConnId, error: Option<&str>) {
        self.now = now;
        let ctx = Context { now, apps: &self.apps, draining: self.draining };
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.session.handle_hangup(&ctx, error);
        if let Some(reason) = error {
            // What waits can no longer be sent.
            self.drain_session(id);
            self.remove(id, reason, true);
            return;
        }
        self.touch(id);
    }

    /// The socket takes bytes again.
    pub fn handle_writable(&mut self, now: Now, id: ConnId) {
        self.now = now;
        if let Some(conn) = self.conns.get_mut(id)
            && conn.blocked
        {
            conn.blocked = false;
            self.enqueue_write(id);
        }
    }

    /// Whether the shell should read this connection. When not, [`Output::Resume`] will tell.
    pub fn wants_bytes(&mut self, id: ConnId) -> bool {
        let Some(conn) = self.conns.get_mut(id) else { return false };
        let wants = conn.closing.is_none() && conn.session.wants_bytes();
        conn.reads_paused = !wants;
        wants
    }

    // ---- inputs: time and load

    /// Deadlines may have passed.
    pub fn handle_timeout(&mut self, now: Now) {
        self.now = now;
        while let Some((at, timer)) = self.deadlines.pop_due(now.mono) {
            match timer {
                Timer::Conn(id) => self.conn_timeout(id, at),
                Timer::Flush(stream) => self.flush_timeout(stream, at),
                Timer::Report => self.report(),
            }
        }
    }

    /// The shell was busy for so long since it last said so.
    pub const fn note_busy(&mut self, busy: Duration) {
        self.busy = self.busy.saturating_add(busy);
    }

    // ---- polls

    /// What the shell must do next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Whether writes wait for the next turn.
    #[must_use]
    pub fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// A write was interrupted before it took anything.
    pub fn retry_write(&mut self, id: ConnId) {
        self.enqueue_write(id);
    }

    /// Counters.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// Connections that live here.
    #[must_use]
    pub const fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Payload bytes that the rings of this worker retain.
    #[must_use]
    pub fn retained_bytes(&self) -> usize {
        self.streams.values().map(Stream::retained_bytes).sum()
    }

    // ---- private

    fn session_seed(&mut self) -> Seed {
        self.stats.sessions = self.stats.sessions.saturating_add(1);
        self.seed.derive("session", self.stats.sessions)
    }

    fn conn_timeout(&mut self, id: ConnId, at: Instant) {
        let now = self.now;
        let ctx = Context { now, apps: &self.apps, draining: self.draining };
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.armed == Some(at) {
            conn.armed = None;
        }
        if conn.stall_deadline().is_some_and(|due| due <= now.mono) {
            let stalled = "the peer takes nothing";
            if conn.push.is_some() {
                conn.session.handle_hangup(&ctx, Some(stalled));
                self.drain_session(id);
            }
            self.remove(id, stalled, true);
            return;
        }
        let untold = std::mem::take(&mut conn.untold);
        if untold > 0 {
            conn.session.handle_sent(&ctx, untold);
        }
        if conn.session.poll_timeout().is_some_and(|due| due <= now.mono) {
            conn.session.handle_timeout(&ctx);
        }
        self.touch(id);
    }

    /// Flushes what has waited long enough, up to a grid step early; else looks again later.
    fn flush_timeout(&mut self, id: StreamId, at: Instant) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.flush_armed == Some(at) {
            stream.flush_armed = None;
        }
        match stream.flush_at() {
            Some(due) if due <= self.now.mono + dispatch::FLUSH_GRID => {
                stream.grown = true;
                self.grown.push(id);
            }
            Some(_) => self.arm_flush(id),
            None => {}
        }
    }

    /// Has the connection drained at the end of the turn.
    fn touch(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id)
            && !conn.touched
        {
            conn.touched = true;
            self.touched.push(id);
        }
    }

    fn start_push(&mut self, order: &PushOrder) {
        let seed = self.session_seed();
        let session = protocol::begin_push(self.now, order, seed);
        let mut conn = Conn::new(order.address, session, self.now.mono);
        conn.push = Some(PushRole { push: order.push, attempt: order.attempt, stream: order.stream });
        conn.connecting = true;
        let Some(id) = self.conns.insert(conn) else {
            let state = PushState::Failed("out of connections".into());
            self.tell(ToControl::Push { push: order.push, attempt: order.attempt, state });
            return;
        };
        self.pushes.insert(order.push, id);
        self.outputs.push_back(Output::Connect { conn: id, address: order.address });
        self.touch(id);
    }

    fn arm_report(&mut self) {
        if !self.report_armed {
            self.report_armed = true;
            self.deadlines.arm(self.now.mono + REPORT_PERIOD, Timer::Report);
        }
    }

    fn report(&mut self) {
        self.report_armed = false;
        let span = self.now.mono.saturating_duration_since(self.busy_since).as_micros().max(1);
        let busy = self.busy.as_micros().saturating_mul(1000).checked_div(span).unwrap_or(0).min(1000);
        self.busy = Duration::ZERO;
        self.busy_since = self.now.mono;
        let report = Report {
            sources: self.sources.iter().filter_map(|(&id, count)| self.figures(id, *count)).collect(),
            viewers: self.streams.values().map(|stream| (stream.id, self.viewers(stream))).collect(),
            busy_permille: u16::try_from(busy).unwrap_or(1000),
        };
        if !self.streams.is_empty() {
            self.arm_report();
        }
        self.tell(ToControl::Report(self.id, report));
    }

    fn figures(&self, stream: StreamId, count: SourceCount) -> Option<SourceFigures> {
        let tracks = self.streams.get(&stream)?.tracks();
        let size = tracks.video.as_ref().and_then(|track| track.config.picture_size());
        let (width, height) = size.unwrap_or((0, 0));
        let silent = count.last_unit.map_or(Duration::MAX, |at| self.now.mono.saturating_duration_since(at));
        Some(SourceFigures {
            stream,
            received_bytes: count.received_bytes,
            position: count.position,
            epoch: tracks.epoch,
            width,
            height,
            dropped: count.dropped,
            silent_ms: u64::try_from(silent.as_millis()).unwrap_or(u64::MAX),
        })
    }

    fn viewers(&self, stream: &Stream) -> u32 {
        let viewers =
            stream.subscribers.iter().filter(|&&id| self.conns.get(id).is_some_and(|c| c.push.is_none()));
        u32::try_from(viewers.count()).unwrap_or(u32::MAX)
    }

    fn tell(&mut self, mail: ToControl) {
        self.outputs.push_back(Output::Control(mail));
    }

    fn session_ref(&self, conn: ConnId) -> crate::mail::SessionRef {
        crate::mail::SessionRef { worker: self.id, conn }
    }

    /// Whether this connection feeds `stream`.
    fn publishes(&self, id: ConnId, stream: StreamId) -> bool {
        self.conns.get(id).is_some_and(|conn| conn.publishing == Publishing::Granted(stream))
    }
}
