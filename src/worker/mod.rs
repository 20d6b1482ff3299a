//! The worker: one per core, itself a machine. It knows connections, bytes, deadlines and mail, and neither file
//! descriptors nor clocks: [`crate::io`] drives it, and so does the simulator.
//!
//! A turn:
//! 1. mail ([`Worker::handle_mail`], [`Worker::handle_mirrored`]), so that earlier orders of control are known first;
//! 2. sockets ([`Worker::accept`], [`Worker::handle_bytes`], [`Worker::handle_path`], ...);
//! 3. deadlines ([`Worker::handle_timeout`]);
//! 4. [`Worker::finish_turn`]: every dirty session is asked for events and bytes, streams that grew are flushed;
//! 5. writes: [`Worker::next_write`], [`Worker::gather`], the system call, [`Worker::sent`];
//! 6. [`Worker::poll_output`], until there is none.

/// The [`Context`] of a call, borrowed field by field: what the call changes of the worker stays free.
macro_rules! context {
    ($worker:expr) => {
        $crate::protocol::Context {
            now: $worker.now,
            apps: &$worker.apps,
            server: &$worker.server,
            blobs: &$worker.polled.blobs,
            draining: $worker.draining,
        }
    };
}

mod agenda;
mod audience;
mod awaited;
mod carriers;
mod chats;
mod conn;
mod datagrams;
mod deadlines;
mod demand;
mod dispatch;
mod endings;
mod family;
mod figures;
mod held;
pub mod leases;
mod memory;
mod orders;
mod passes;
mod polled;
mod publications;
mod requests;
mod rooms;
mod slab;
mod speakers;
mod streams;
mod subscriptions;
mod transcoders;
mod write;

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crypto::Seed;

use crate::hub::{MirroredUnit, Stream};
use crate::jobs::Job;
use crate::mail::{Proof, SessionSettings, ToControl, ToWorker};
use crate::protocol::{Apps, Context, Listener, PathEvent, PathId, Reply, Session};
use crate::stats::{Counters, Refused};
use crate::types::{ConnId, Handle, Now, SessionRef, StreamId, WorkerId};
use agenda::Agenda;
pub use agenda::Writers;
pub use conn::CLOSE_STALL;
use conn::{Conn, Flow, Purpose};
use datagrams::Ports;
pub use datagrams::{Destination, Routed};
use deadlines::Timer;
use figures::Meter;
use orders::Orders;
use slab::Slab;
use streams::Live;
pub use transcoders::TranscoderBudget;
pub use write::Way;

/// An action for the shell.
#[derive(Debug)]
pub enum Output {
    /// Deliver to control.
    Control(ToControl),
    /// Deliver to another worker.
    Worker(WorkerId, ToWorker),
    /// Deliver to every other worker.
    Others(ToWorker),
    /// Deliver to another worker on the media lane.
    Mirrored(WorkerId, MirroredUnit),
    /// Open an outgoing connection; answer [`Worker::handle_path`].
    Connect {
        /// The session that it is for.
        conn: ConnId,
        /// The address to connect to.
        address: SocketAddr,
        /// Over TLS, to a server that proves to be this one.
        tls: Option<Proof>,
    },
    /// Open a UDP socket for a session; answer [`Worker::handle_path`].
    OpenUdp {
        /// The session that it is for.
        conn: ConnId,
        /// The session's name for it.
        path: PathId,
        /// The address that it receives at.
        bind: Option<SocketAddr>,
        /// The peer that it is connected to.
        to: Option<SocketAddr>,
    },
    /// Close a UDP socket of a session.
    CloseUdp {
        /// The session that it was for.
        conn: ConnId,
        /// The session's name for it.
        path: PathId,
    },
    /// Submit a job; its answer is [`ToWorker::Job`].
    Job {
        /// The session that waits for it.
        conn: ConnId,
        /// The job.
        job: Job,
    },
    /// Reading was paused because no bytes were wanted; now they are.
    Resume(ConnId),
    /// Limits the unsent bytes that the kernel holds.
    UnsentLimit {
        /// The connection.
        conn: ConnId,
        /// Bytes.
        bytes: usize,
    },
    /// Unauthenticated peers are limited; this connection's is none any more.
    Authenticated {
        /// The connection.
        conn: ConnId,
        /// Whether it publishes: a part of all connections is kept for those.
        publishes: bool,
    },
    /// Close the socket. All that was to be sent is sent, unless `abort`.
    Close {
        /// The connection; its id is dead.
        conn: ConnId,
        /// Do not wait for the peer to take what the kernel still holds.
        abort: bool,
    },
}

/// A worker.
#[derive(Debug)]
pub struct Worker {
    id: WorkerId,
    now: Now,
    seed: Seed,
    conns: Slab<Conn>,
    ports: Ports,
    apps: Apps,
    server: std::sync::Arc<SessionSettings>,
    live: Live,
    polled: polled::Polled,
    orders: Orders,
    agenda: Agenda,
    memory: memory::Memory,
    meter: Meter,
    draining: bool,
    drained: bool,
}

impl Worker {
    /// Without connections; applications come by mail. `common` is the same for all workers of a server: a token that
    /// one has given to a peer must mean something to the others.
    #[must_use]
    pub fn new(id: WorkerId, now: Now, seed: Seed, common: &Seed) -> Self {
        Self {
            id,
            now,
            seed,
            conns: Slab::default(),
            ports: Ports::new(now, id, common),
            apps: Apps::new(),
            server: std::sync::Arc::default(),
            live: Live::default(),
            polled: polled::Polled::default(),
            orders: Orders::default(),
            agenda: Agenda::default(),
            memory: memory::Memory::default(),
            meter: Meter::new(now.mono),
            draining: false,
            drained: false,
        }
    }

    // ---- inputs: sockets

    /// A connection was accepted. `None`: close it.
    pub fn accept(&mut self, now: Now, listener: &Listener, peer: SocketAddr) -> Option<ConnId> {
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

    /// The settings of the server that sessions use.
    #[must_use]
    pub fn server(&self) -> &SessionSettings {
        &self.server
    }

    /// Bytes of a peer. Ask [`Worker::wants_bytes`] before each.
    pub fn handle_bytes(&mut self, now: Now, id: ConnId, bytes: &[u8]) {
        self.now = now;
        let Some(conn) = self.conns.get_mut(id) else { return };
        let count = bytes.len() as u64;
        conn.figures.bytes_in = conn.figures.bytes_in.saturating_add(count);
        self.meter.stats.bytes_in = self.meter.stats.bytes_in.saturating_add(count);
        self.call(id, |session, ctx| {
            if let Some(stream) = session.byte_stream() {
                stream.handle_bytes(ctx, bytes);
            }
        });
        self.drain_session(id);
    }

    /// The socket takes bytes again.
    pub fn handle_writable(&mut self, now: Now, id: ConnId) {
        self.now = now;
        if let Some(link) = self.conns.get_mut(id).and_then(|conn| conn.bytes.as_mut())
            && link.flow == Flow::Blocked
        {
            link.flow = Flow::Open;
            self.enqueue_write(id);
        }
    }

    /// Whether the shell should read this connection. When not, [`Output::Resume`] will tell.
    pub fn wants_bytes(&mut self, id: ConnId) -> bool {
        let wants = self.guard(id, |conn, _| {
            let Some(link) = &mut conn.bytes else { return false };
            let wants = conn.closing.is_none()
                && conn.session.byte_stream().is_some_and(|stream| stream.wants_bytes());
            link.reads_paused = !wants;
            wants
        });
        wants.unwrap_or(false)
    }

    // ---- inputs: time and load

    /// Deadlines may have passed.
    pub fn handle_timeout(&mut self, now: Now) {
        self.now = now;
        while let Some((at, timer)) = self.agenda.deadlines.pop_due(now.mono) {
            match timer {
                Timer::Conn(id) => self.conn_timeout(id, at),
                Timer::Flush(stream) => self.flush_timeout(stream, at),
                Timer::Report => self.report(),
                Timer::Linger(stream) => self.end_lingering(stream),
                Timer::Polled => self.polled_timeout(at),
            }
        }
    }

    /// A connection was refused, or is about to be.
    pub fn note_refused(&mut self, why: Refused) {
        self.meter.stats.refused.count(why);
    }

    /// Takes the shell's busy time since its last report, and the length of its mail queue.
    pub fn note_turn(&mut self, busy: Duration, mail_waiting: usize) {
        self.meter.busy = self.meter.busy.saturating_add(busy);
        self.meter.stats.busy = self.meter.stats.busy.saturating_add(busy);
        self.meter.turns.record(busy);
        self.meter.mail_waiting = mail_waiting;
    }

    // ---- polls

    /// The next action for the shell.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.agenda.outputs.pop_front()
    }

    /// The next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.agenda.deadlines.next()
    }

    /// Whether any of these sessions may have something to send.
    #[must_use]
    pub fn has_writes(&self, who: Writers) -> bool {
        self.agenda.writes.has(who)
    }

    /// A write was interrupted before it took anything.
    pub fn retry_write(&mut self, id: ConnId) {
        self.enqueue_write(id);
    }

    /// Counters.
    #[must_use]
    pub const fn stats(&self) -> &Counters {
        &self.meter.stats
    }

    /// Connections that live here.
    #[must_use]
    pub const fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Bytes that the rings of this worker retain.
    #[must_use]
    pub fn retained_bytes(&self) -> usize {
        self.live.streams.values().map(Stream::retained_bytes).sum()
    }

    // ---- private

    /// Calls a session. Whatever bug its peer has found ends that session and nobody else's: after a panic it is
    /// gone, and the answer is `None`, as for an id that was gone before.
    fn call<R>(&mut self, id: ConnId, verb: impl FnOnce(&mut dyn Session, &Context<'_>) -> R) -> Option<R> {
        self.guard(id, |conn, ctx| verb(conn.session.as_mut(), ctx))
    }

    /// As [`Self::call`], with all of the connection.
    fn guard<R>(&mut self, id: ConnId, act: impl FnOnce(&mut Conn, &Context<'_>) -> R) -> Option<R> {
        let ctx = context!(self);
        let conn = self.conns.get_mut(id)?;
        let answer = catch_unwind(AssertUnwindSafe(|| act(conn, &ctx))).ok();
        if answer.is_none() {
            self.remove_panicked(id);
        }
        answer
    }

    fn session_seed(&mut self) -> Seed {
        self.meter.stats.sessions = self.meter.stats.sessions.saturating_add(1);
        self.seed.derive("session", self.meter.stats.sessions)
    }

    fn conn_timeout(&mut self, id: ConnId, at: Instant) {
        let now = self.now;
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.schedule.armed == Some(at) {
            conn.schedule.armed = None;
        }
        if conn.stall_deadline().is_some_and(|due| due <= now.mono) {
            let stalled = "the peer takes nothing";
            if matches!(conn.purpose, Purpose::Push { .. }) {
                let event = PathEvent::Broken(stalled);
                self.path_event(id, PathId::default(), event);
                self.drain_session(id);
            }
            self.remove(id, stalled, true);
            return;
        }
        self.end_overdue_holds(id);
        let Some(conn) = self.conns.get_mut(id) else { return };
        let untold = conn.bytes.as_mut().map_or(0, |link| std::mem::take(&mut link.untold));
        if untold > 0 {
            self.tell_sent(id, untold);
        }
        self.call(id, |session, ctx| {
            if let Some(timers) = session.timers()
                && timers.poll_timeout().is_some_and(|due| due <= now.mono)
            {
                timers.handle_timeout(ctx);
            }
        });
        self.touch(id);
    }

    /// Flushes what has waited long enough, up to a grid step early; else looks again later.
    fn flush_timeout(&mut self, id: StreamId, at: Instant) {
        let Some(stream) = self.live.streams.get_mut(&id) else { return };
        stream.flush.disarm(at);
        let Some(due) = stream.flush.due() else { return };
        if due > self.now.mono + dispatch::FLUSH_GRID {
            self.arm_flush(id);
        } else if stream.flush.queue() {
            self.agenda.flushing.push(id);
        }
    }

    /// Has the session drained at the end of the turn.
    fn touch(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id)
            && !conn.schedule.dirty
        {
            conn.schedule.dirty = true;
            self.agenda.dirty.push(id);
        }
    }

    /// Tells a session something. What it makes of it is known when it is drained.
    fn reply(&mut self, id: ConnId, reply: Reply<'_>) {
        self.call(id, |session, ctx| session.handle_reply(ctx, reply));
    }

    /// Tells a session of an event on one of its network paths.
    fn path_event(&mut self, id: ConnId, path: PathId, event: PathEvent<'_>) {
        self.call(id, |session, ctx| {
            if let Some(paths) = session.paths() {
                paths.handle_path(ctx, path, event);
            }
        });
    }

    fn tell(&mut self, mail: ToControl) {
        self.agenda.outputs.push_back(Output::Control(mail));
    }

    fn session_ref(&self, conn: ConnId, handle: Handle) -> SessionRef {
        SessionRef { worker: self.id, conn, handle }
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
