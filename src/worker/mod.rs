//! The worker, one per core, is a state machine. It knows connections, bytes, deadlines and mail, but no file
//! descriptors or clocks. [`crate::io`] drives it; in tests, the simulator does.
//!
//! A turn:
//! 1. mail ([`Worker::handle_mail`], [`Worker::handle_mirrored`]), so that what control sent before this turn
//!    applies to the input of the turn;
//! 2. sockets ([`Worker::accept`], [`Worker::handle_bytes`], [`Worker::handle_path`], ...);
//! 3. deadlines ([`Worker::handle_timeout`]);
//! 4. [`Worker::finish_turn`]: drains events and bytes of sessions that had input, and flushes streams with new units;
//! 5. writes: [`Worker::next_write`], [`Worker::gather`], the system call, [`Worker::sent`];
//! 6. [`Worker::poll_output`] until it returns `None`.
//!
//! The parts of a worker: [`conns`], the sessions and calls to them; [`streams`], the live streams; [`polled`], streams
//! fetched by separate requests; [`orders`], pushes, pulls and recordings; [`datagrams`], shared ports; [`memory`], the
//! budget of rings. The arguments of a part's methods are the [`turn`] and the other parts that they need. A method
//! that needs nearly all parts belongs to [`Worker`].

mod agenda;
mod audience;
mod awaited;
mod barred;
mod behind;
mod carriers;
mod chats;
mod conn;
mod conns;
mod datagrams;
mod deadlines;
mod demand;
mod dispatch;
mod endings;
mod family;
mod figures;
mod held;
mod holds;
mod incumbents;
pub mod leases;
mod memory;
mod messages;
mod orders;
mod passes;
mod polled;
mod publications;
mod requests;
mod rooms;
mod sinks;
mod slab;
mod speakers;
mod standbys;
mod streams;
mod subscriptions;
mod transcoders;
mod turn;
mod waits;
mod write;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;

use crate::hub::MirroredUnit;
use crate::jobs::Job;
use crate::mail::{Proof, SessionSettings, ToControl, ToWorker};
use crate::protocol::{Listener, PathEvent, PathId, PathNews};
use crate::stats::{Counters, Refused};
use crate::types::{ConnId, Now, StreamId, WorkerId};
pub use agenda::Writers;
pub use conn::CLOSE_STALL;
use conn::{Conn, Flow, Purpose};
use conns::Conns;
use datagrams::Ports;
pub use datagrams::{Destination, Routed};
use deadlines::Timer;
use memory::Memory;
use orders::Orders;
use polled::Polled;
use streams::Live;
pub use transcoders::TranscoderBudget;
use turn::Turn;
pub use write::Way;

/// An action that the shell must take. The shell is the code that drives the worker: [`crate::io`] or a test.
#[derive(Debug)]
pub enum Output {
    /// Deliver a message to control.
    Control(ToControl),
    /// Deliver a message to another worker.
    Worker(WorkerId, ToWorker),
    /// Deliver a message to every other worker.
    Others(ToWorker),
    /// Deliver a unit to a worker that mirrors its stream, as a media unit ([`Worker::handle_mirrored`]), not as
    /// mail.
    Mirrored(WorkerId, MirroredUnit),
    /// Open an outgoing connection; answered by [`Worker::handle_path`].
    Connect {
        /// The session that the connection is for.
        conn: ConnId,
        /// The address to connect to.
        address: SocketAddr,
        /// The identity that the server must prove over TLS; `None` for plain TCP.
        tls: Option<Proof>,
    },
    /// Open a UDP socket for a session; answered by [`Worker::handle_path`].
    OpenUdp {
        /// The session that the socket is for.
        conn: ConnId,
        /// The session's name for the socket.
        path: PathId,
        /// The local address to bind to; `None` for any address.
        bind: Option<SocketAddr>,
        /// The peer to connect the socket to; `None` for an unconnected socket.
        to: Option<SocketAddr>,
    },
    /// Close a UDP socket of a session.
    CloseUdp {
        /// The session that the socket was for.
        conn: ConnId,
        /// The session's name for the socket.
        path: PathId,
    },
    /// Submit a job; answered by [`ToWorker::Job`].
    Job {
        /// The session that waits for the answer.
        conn: ConnId,
        /// The job.
        job: Job,
    },
    /// Continue to read a connection for which [`Worker::wants_bytes`] has returned false.
    Resume(ConnId),
    /// Limit the unsent bytes that the kernel holds for a connection.
    UnsentLimit {
        /// The connection.
        conn: ConnId,
        /// The limit in bytes.
        bytes: usize,
    },
    /// The peer of a connection is authenticated: stop counting it among the limited unauthenticated peers.
    Authenticated {
        /// The connection.
        conn: ConnId,
        /// True if the peer publishes; some connections are reserved for publishers.
        publishes: bool,
    },
    /// Deliver news about a datagram path of a session of this worker to the worker that receives the path's datagrams.
    Path(WorkerId, PathNews),
    /// Hand a connection over to worker `to`, which has the session that the connection's data is for. The connection's
    /// session on this worker ends.
    HandOver {
        /// The connection.
        conn: ConnId,
        /// The worker.
        to: WorkerId,
        /// The address of the client.
        peer: SocketAddr,
        /// The bytes that were received.
        received: Bytes,
    },
    /// Close the socket. Queued bytes are sent first unless `abort` is set.
    Close {
        /// The connection, whose id is no longer valid.
        conn: ConnId,
        /// True to discard the bytes that the kernel has not sent yet.
        abort: bool,
    },
}

/// A worker.
#[derive(Debug)]
pub struct Worker {
    turn: Turn,
    conns: Conns,
    ports: Ports,
    live: Live,
    polled: Polled,
    orders: Orders,
    memory: Memory,
}

impl Worker {
    /// Makes a worker without connections. Its applications arrive by mail. The seed `common` is the same for all
    /// workers of a server, so that all of them accept a token that one of them has issued.
    #[must_use]
    pub fn new(id: WorkerId, now: Now, seed: Seed, common: &Seed) -> Self {
        Self {
            turn: Turn::new(id, now, seed),
            conns: Conns::default(),
            ports: Ports::new(now, id, common),
            live: Live::default(),
            polled: Polled::default(),
            orders: Orders::default(),
            memory: Memory::default(),
        }
    }

    // ---- inputs: sockets

    /// Accepts a connection. If the result is `None`, the shell must close the connection.
    pub fn accept(&mut self, now: Now, listener: &Listener, peer: SocketAddr) -> Option<ConnId> {
        self.turn.now = now;
        if self.turn.draining {
            return None;
        }
        let seed = self.turn.session_seed();
        let session = listener.begin(now, &self.turn.server, peer, seed);
        let id = self.conns.insert(Conn::new(peer, session, now.mono))?;
        self.conns.touch(&mut self.turn, id);
        Some(id)
    }

    /// Takes bytes that another worker has received and counted before it handed the connection over.
    pub fn take_over(&mut self, now: Now, id: ConnId, received: &[u8]) {
        self.turn.now = now;
        let Some(link) = self.conns.get_mut(id).and_then(|conn| conn.bytes.as_mut()) else { return };
        link.was_handed_over = true;
        self.conns.call(&self.turn, id, |session, ctx| {
            if let Some(stream) = session.byte_stream() {
                stream.handle_bytes(ctx, received);
            }
        });
        self.conns.touch(&mut self.turn, id);
    }

    /// Returns the server settings that sessions use.
    #[must_use]
    pub fn server(&self) -> &SessionSettings {
        &self.turn.server
    }

    /// Takes bytes of a peer. Call [`Worker::wants_bytes`] before each call.
    pub fn handle_bytes(&mut self, now: Now, id: ConnId, bytes: &[u8]) {
        self.turn.now = now;
        let Some(conn) = self.conns.get_mut(id) else { return };
        let count = bytes.len() as u64;
        conn.figures.bytes_in = conn.figures.bytes_in.saturating_add(count);
        self.turn.meter.stats.bytes_in = self.turn.meter.stats.bytes_in.saturating_add(count);
        self.conns.call(&self.turn, id, |session, ctx| {
            if let Some(stream) = session.byte_stream() {
                stream.handle_bytes(ctx, bytes);
            }
        });
        self.drain_session(id);
    }

    /// Notes that the socket accepts bytes again.
    pub fn handle_writable(&mut self, now: Now, id: ConnId) {
        self.turn.now = now;
        if let Some(link) = self.conns.get_mut(id).and_then(|conn| conn.bytes.as_mut())
            && link.flow == Flow::Blocked
        {
            link.flow = Flow::Open;
            self.conns.enqueue_write(&mut self.turn, id);
        }
    }

    /// True if the shell should read from this connection. After a result of false, [`Output::Resume`] follows as soon
    /// as the shell should read again.
    pub fn wants_bytes(&mut self, id: ConnId) -> bool {
        let wants = self.conns.guard(&self.turn, id, |conn, _| {
            let Some(link) = &mut conn.bytes else { return false };
            let wants = conn.closing.is_none()
                && conn.session.byte_stream().is_some_and(|stream| stream.wants_bytes());
            link.reads_paused = !wants;
            wants
        });
        wants.unwrap_or(false)
    }

    // ---- inputs: time and load

    /// Handles deadlines that have passed.
    pub fn handle_timeout(&mut self, now: Now) {
        self.turn.now = now;
        while let Some((at, timer)) = self.turn.agenda.deadlines.pop_due(now.mono) {
            match timer {
                Timer::Conn(id) => self.conn_timeout(id, at),
                Timer::Flush(stream) => self.live.flush_timeout(&mut self.turn, stream, at),
                Timer::Report => self.report(),
                Timer::Linger(stream) => self.end_lingering(stream),
                Timer::Silence(stream) => {
                    standbys::silence_timeout(&mut self.live, &mut self.turn, &self.conns, stream, at)
                }
                Timer::Polled => self.polled.polled_timeout(&mut self.turn, &mut self.conns, &self.live, at),
            }
        }
    }

    /// Counts a connection that was refused or is about to be.
    pub fn note_refused(&mut self, why: Refused) {
        self.turn.meter.stats.refused.count(why);
    }

    /// Adds the time for which the shell was busy since its last report, and records the length of its mail queue.
    pub fn note_turn(&mut self, busy: Duration, mail_waiting: usize) {
        self.turn.meter.busy = self.turn.meter.busy.saturating_add(busy);
        self.turn.meter.stats.busy = self.turn.meter.stats.busy.saturating_add(busy);
        self.turn.meter.turns.record(busy);
        self.turn.meter.mail_waiting = mail_waiting;
    }

    // ---- polls

    /// Returns the next action for the shell.
    pub fn poll_output(&mut self) -> Option<Output> {
        // A session's format may have panicked in a write. Writes follow `finish_turn`, which removes panicked sessions
        // too, so sessions that panicked in a write are removed here.
        self.end_panicked();
        self.turn.agenda.outputs.pop_front()
    }

    /// Returns the next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.turn.agenda.deadlines.next()
    }

    /// True if any session of those that `who` selects may have output to write.
    #[must_use]
    pub fn has_writes(&self, who: Writers) -> bool {
        self.turn.agenda.writes.has(who)
    }

    /// Queues a session again after its write was interrupted before the socket had taken any bytes.
    pub fn retry_write(&mut self, id: ConnId) {
        self.conns.enqueue_write(&mut self.turn, id);
    }

    /// The counters of this worker.
    #[must_use]
    pub const fn stats(&self) -> &Counters {
        &self.turn.meter.stats
    }

    /// Number of connections of this worker.
    #[must_use]
    pub const fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Bytes that the rings of this worker retain.
    #[must_use]
    pub fn retained_bytes(&self) -> usize {
        self.live.retained_bytes()
    }

    fn conn_timeout(&mut self, id: ConnId, at: Instant) {
        let now = self.turn.now;
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.schedule.armed == Some(at) {
            conn.schedule.armed = None;
        }
        if conn.stall_deadline().is_some_and(|due| due <= now.mono) {
            let stalled = "the peer takes nothing";
            if matches!(conn.purpose, Purpose::Push { .. }) {
                let event = PathEvent::Broken(stalled);
                self.conns.path_event(&self.turn, id, PathId::default(), event);
                self.drain_session(id);
            }
            self.remove(id, stalled, true);
            return;
        }
        self.live.holds.end_overdue(&mut self.turn, &mut self.conns, id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        let untold = conn.bytes.as_mut().map_or(0, |link| std::mem::take(&mut link.untold));
        if untold > 0 {
            self.conns.tell_sent(&self.turn, id, untold);
        }
        self.conns.call(&self.turn, id, |session, ctx| {
            if let Some(timers) = session.timers()
                && timers.poll_timeout().is_some_and(|due| due <= now.mono)
            {
                timers.handle_timeout(ctx);
            }
        });
        self.conns.touch(&mut self.turn, id);
    }
}

impl Live {
    /// Flushes the stream if its units are due within [`dispatch::FLUSH_GRID`]; otherwise arms a new deadline.
    fn flush_timeout(&mut self, turn: &mut Turn, id: StreamId, at: Instant) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.flush.disarm(at);
        let Some(due) = stream.flush.due() else { return };
        if due > turn.now.mono + dispatch::FLUSH_GRID {
            self.arm_flush(turn, id);
        } else if stream.flush.queue() {
            turn.agenda.flushing.push(id);
        }
    }
}

#[cfg(test)]
mod http2_tests;
#[cfg(test)]
mod polled_tests;
#[cfg(test)]
mod selection_tests;
#[cfg(test)]
mod sink_tests;
#[cfg(test)]
mod tests;
