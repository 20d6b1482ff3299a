//! Datagram sessions, over a shared port or over sockets of their own.
//!
//! Datagram sessions send their output differently from byte streams. For a byte stream, unsent units stay in the ring,
//! after the viewer's cursor. A datagram session must keep each unit until the peer has received it. It therefore takes
//! units only while it has room for them, and sends them as datagrams at its own pace.

use std::any::Any;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crypto::Seed;
use wire::Datagrams;

use super::Output;
use super::Worker;
use super::conn::{Conn, DatagramLink, DatagramPath};
use super::conns::Conns;
use super::turn::Turn;
use crate::mail::Message;
use crate::protocol::{
    Binding, Claim, Demux, Elsewhere, FamilyNews, PathChange, PathId, PathNews, Port, PortContext, Remote,
    Reply, Route, Session, Wanted,
};
use crate::types::{ConnId, Handle, Now, WorkerId};

/// The result of routing a datagram of a shared port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routed {
    /// The datagram was handled.
    Done,
    /// The datagram belongs to no session, and starts no new session.
    Dropped,
    /// The sender's address is verified, but the sender has no session: call [`Worker::accept_peer`], or drop the
    /// datagram.
    New,
    /// The port has a reply to send: [`Worker::reply_datagram`].
    Reply,
    /// The datagram belongs to another worker: pass it to [`Worker::handle_datagram`] there.
    Elsewhere(Elsewhere),
}

/// The destination of gathered datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// Through a shared port.
    Port(&'static Port, Remote),
    /// Through a socket of the session's own. `None` is the peer that the socket is connected to.
    Own(PathId, Option<SocketAddr>),
    /// The datagrams were written to another session's byte stream; nothing is left to do.
    Carried,
}

/// The UDP ports shared by many peers.
#[derive(Debug)]
pub(super) struct Ports {
    pub(super) list: Vec<(&'static Port, Box<dyn Demux>)>,
    /// The port's reply to the last datagram that belongs to no session.
    pub(super) reply: Vec<u8>,
}

impl Ports {
    pub(super) fn new(now: Now, id: WorkerId, common: &Seed) -> Self {
        let ctx = PortContext::new(now, id, common);
        let list = Port::all().map(|port| (port, port.demux(&ctx))).collect();
        Self { list, reply: Vec::new() }
    }

    /// Removes a datagram session.
    pub(super) fn forget_peer(&mut self, turn: &mut Turn, id: ConnId, conn: &Conn) {
        for path in conn.datagrams.iter().flat_map(|link: &DatagramLink| &link.paths) {
            if let DatagramPath::Port(port, _) = path
                && let Some((_, demux)) = self.list.iter_mut().find(|(of, _)| of == port)
            {
                demux.forget(id);
                turn.tell_paths(port, &mut **demux);
            }
        }
    }
}

impl Worker {
    /// Routes a datagram received on a shared port.
    pub fn handle_datagram(
        &mut self,
        now: Now,
        port: &'static Port,
        from: Remote,
        datagram: &mut [u8],
    ) -> Routed {
        self.turn.now = now;
        match self.ports.route(&mut self.turn, port, from, datagram) {
            Route::Session(id) => {
                self.turn.count_received(datagram.len());
                self.conns.take_datagram(&mut self.turn, id, PathId::default(), from, datagram);
                Routed::Done
            }
            Route::New if self.turn.draining => Routed::Done,
            Route::New => Routed::New,
            Route::Reply => Routed::Reply,
            Route::Elsewhere(to) => Routed::Elsewhere(to),
            Route::Drop => Routed::Dropped,
        }
    }

    /// Counts the datagrams for other workers: those that were passed on, and those that were lost.
    pub const fn note_passed(&mut self, passed: u64, lost: u64) {
        let datagrams = &mut self.turn.meter.stats.datagrams;
        datagrams.passed = datagrams.passed.saturating_add(passed);
        datagrams.not_passed = datagrams.not_passed.saturating_add(lost);
    }

    /// Applies news about a path whose datagrams this worker receives and whose session is on another worker, which has
    /// sent the news.
    pub fn handle_path_news(&mut self, news: &PathNews) {
        if let Some((_, demux)) = self.ports.list.iter_mut().find(|(of, _)| *of == news.port) {
            demux.on_request().into_iter().for_each(|sessions| sessions.hear(news));
        }
    }

    /// Returns the reply to the last datagram, if its result was [`Routed::Reply`].
    #[must_use]
    pub fn reply_datagram(&self) -> &[u8] {
        &self.ports.reply
    }

    /// Creates the session for the last datagram, if its result was [`Routed::New`].
    pub fn accept_peer(&mut self, now: Now, port: &'static Port, from: Remote) -> Option<ConnId> {
        self.turn.now = now;
        self.ports.begin_session(&mut self.turn, &mut self.conns, port, from)
    }

    /// Delivers a datagram received on a session's own socket.
    pub fn handle_own_datagram(
        &mut self,
        now: Now,
        id: ConnId,
        path: PathId,
        from: Remote,
        datagram: &mut [u8],
    ) {
        self.turn.now = now;
        self.turn.count_received(datagram.len());
        self.conns.take_datagram(&mut self.turn, id, path, from, datagram);
    }

    /// Adds the datagrams that a session has to send now to `out`, and returns their destination. If none was added,
    /// the session has nothing more to send at present.
    pub fn gather_datagrams(&mut self, now: Now, id: ConnId, out: &mut Datagrams) -> Option<Destination> {
        self.turn.now = now;
        let streams = &self.live.streams;
        let ctx = self.turn.context();
        let conn = self.conns.get_mut(id)?;
        let gather = AssertUnwindSafe(|| {
            let subscriptions = &conn.subscriptions;
            let logs = |handle| {
                let playing = subscriptions.iter().find(|one| one.handle == handle)?.playing()?;
                streams.get(&playing.subscriber.stream)?.logs(&playing.subscriber)
            };
            conn.session.datagrams().map(|peer| peer.poll_datagrams(&ctx, &logs, out))
        });
        let Ok(to) = catch_unwind(gather) else {
            self.conns.note_panic(id);
            return None;
        };
        let to = to?;
        let link = self.conns.get_mut(id)?.datagrams.as_mut()?;
        link.unsent = !out.is_empty() && !to.last;
        let path = link.paths.iter().find(|path| path.id() == to.path).copied();
        if out.is_empty() {
            // Taking units may have moved the session's deadline, or the session may have ended and sent a last
            // message.
            self.after_drain(id);
        }
        Some(match path? {
            DatagramPath::Port(port, remote) => {
                let remote = to.remote.unwrap_or(remote);
                match remote.carrier {
                    Some(carrier) if !out.is_empty() => self.carry(id, carrier, out),
                    Some(_) | None => Destination::Port(port, remote),
                }
            }
            DatagramPath::Socket(path) => Destination::Own(path, to.remote.map(|remote| remote.peer)),
        })
    }

    /// Records that the socket accepted `taken` bytes of the gathered datagrams at time `at`. The other datagrams are
    /// lost; their protocols repair losses.
    pub fn datagrams_sent(&mut self, at: Instant, id: ConnId, taken: usize, lost: usize) {
        self.turn.meter.stats.bytes_out = self.turn.meter.stats.bytes_out.saturating_add(taken as u64);
        self.note_sent(at, id, taken, lost);
    }

    pub(super) fn note_sent(&mut self, at: Instant, id: ConnId, taken: usize, lost: usize) {
        let datagrams = &mut self.turn.meter.stats.datagrams;
        datagrams.unsent = datagrams.unsent.saturating_add(lost as u64);
        for (index, unit) in self.turn.meter.forwarded.drain(..) {
            self.turn.meter.forwarding.record(index, unit.video, unit.received, at);
        }
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.figures.bytes_out = conn.figures.bytes_out.saturating_add(taken as u64);
        if conn.datagrams.as_ref().is_some_and(|link| link.unsent) {
            self.conns.enqueue_write(&mut self.turn, id);
        } else {
            // The session is not drained again after this, so check here whether its deadline has moved or it has
            // ended.
            self.after_drain(id);
        }
    }

    /// Informs a shared port of the address that it is bound to.
    pub fn port_bound(&mut self, port: &'static Port, binding: Binding<'_>) {
        if let Some((_, demux)) = self.ports.list.iter_mut().find(|(of, _)| *of == port) {
            demux.on_request().into_iter().for_each(|sessions| sessions.bound(binding));
        }
    }
}

impl Ports {
    /// Creates a session for a datagram that the port's demultiplexer could not route to any session.
    pub(super) fn begin_session(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        port: &'static Port,
        from: Remote,
    ) -> Option<ConnId> {
        let seed = turn.session_seed();
        let id = conns.next_id()?;
        let ctx = turn.context();
        let (_, demux) = self.list.iter_mut().find(|(of, _)| *of == port)?;
        let peer = SocketAddr::new(from.peer.ip().to_canonical(), from.peer.port());
        let Ok(session) = catch_unwind(AssertUnwindSafe(|| demux.begin(&ctx, id, peer, seed))) else {
            demux.forget(id);
            turn.meter.stats.panics = turn.meter.stats.panics.saturating_add(1);
            return None;
        };
        let path = DatagramPath::Port(port, from);
        conns.insert(Conn::datagrams(peer, session?, Some(path), turn.now.mono))?;
        conns.note_authenticated(turn, id);
        conns.touch(turn, id);
        Some(id)
    }

    pub(super) fn route(
        &mut self,
        turn: &mut Turn,
        port: &'static Port,
        from: Remote,
        datagram: &[u8],
    ) -> Route {
        self.reply.clear();
        let ctx = turn.context();
        let Some((_, demux)) = self.list.iter_mut().find(|(of, _)| *of == port) else {
            return Route::Drop;
        };
        // Any unauthenticated peer can send datagrams that make the port's demultiplexer panic. Such a panic must not
        // end any session, so it is only counted, and the datagram is dropped.
        let route = AssertUnwindSafe(|| demux.route(&ctx, from, datagram, &mut self.reply));
        let Ok(route) = catch_unwind(route) else {
            turn.meter.stats.panics = turn.meter.stats.panics.saturating_add(1);
            return Route::Drop;
        };
        if route == Route::Drop {
            let datagrams = &mut turn.meter.stats.datagrams;
            datagrams.dropped = datagrams.dropped.saturating_add(1);
        }
        route
    }

    /// Creates a session at a shared port on behalf of another session. The port is asked only if the session will be
    /// kept, because the port counts the sessions that it makes.
    pub(super) fn spawn_at(
        &mut self,
        turn: &mut Turn,
        conns: &mut Conns,
        parent: ConnId,
        child: Handle,
        (port, what): (&'static str, Box<dyn Any + Send>),
        outlives: bool,
    ) {
        let is_kept = !turn.draining && conns.takes_child(parent);
        let session = if is_kept { self.create_at(turn, conns, parent, child, port, what) } else { None };
        let Some((port, session)) = session else {
            return conns.reply(turn, parent, Reply::Family(FamilyNews::Spawned { child, session: None }));
        };
        let Some(conn) = conns.get(parent) else { return };
        let way = DatagramPath::Port(port, Remote::of(conn.client()));
        let inner =
            Conn { behind: conn.behind, ..Conn::datagrams(conn.peer, session, Some(way), turn.now.mono) };
        conns.adopt(turn, parent, child, inner, outlives);
    }

    fn create_at(
        &mut self,
        turn: &mut Turn,
        conns: &Conns,
        parent: ConnId,
        child: Handle,
        port: &'static str,
        what: Box<dyn Any + Send>,
    ) -> Option<(&'static Port, Box<dyn Session>)> {
        let seed = turn.session_seed();
        let id = conns.next_id()?;
        let parent = turn.session_ref(parent, child);
        let peer = conns.get(parent.conn)?.client();
        let ctx = turn.context();
        let (port, demux) = self.list.iter_mut().find(|(of, _)| of.name == port)?;
        let wanted = Wanted { parent, peer, what };
        if let Ok(session) =
            catch_unwind(AssertUnwindSafe(|| demux.on_request()?.create(&ctx, id, wanted, seed)))
        {
            return Some((port, session?));
        }
        demux.forget(id);
        turn.meter.stats.panics = turn.meter.stats.panics.saturating_add(1);
        None
    }

    /// Registers an identifier of a session with the demultiplexer of its port.
    pub(super) fn claim(&mut self, turn: &mut Turn, conns: &mut Conns, id: ConnId, claim: &Claim) {
        let Some(conn) = conns.get(id) else { return };
        for path in conn.datagrams.iter().flat_map(|link| &link.paths) {
            if let DatagramPath::Port(port, _) = path
                && let Some((_, demux)) = self.list.iter_mut().find(|(of, _)| of == port)
            {
                let now = turn.now;
                demux.on_request().into_iter().for_each(|sessions| sessions.claim(now, id, claim));
                turn.tell_paths(port, &mut **demux);
            }
        }
        if let Claim::Open(Remote { carrier: Some(carrier), .. }) = claim {
            conns.adopt_carrier(turn, id, *carrier);
        }
    }

    /// Returns the answer to a message that is addressed to an ended session; `None` if no port has an answer.
    pub(super) fn answer_for_past(&mut self, turn: &Turn, id: ConnId, message: &Message) -> Option<Message> {
        let now = turn.now;
        self.list.iter_mut().find_map(|(_, demux)| demux.on_request()?.answer_for_past(now, id, message))
    }
}

impl Turn {
    const fn count_received(&mut self, bytes: usize) {
        self.meter.stats.bytes_in = self.meter.stats.bytes_in.saturating_add(bytes as u64);
    }

    /// Informs other workers that receive a path's datagrams that a session here has opened or closed the path.
    fn tell_paths(&mut self, port: &'static Port, demux: &mut dyn Demux) {
        let Some(sessions) = demux.on_request() else { return };
        while let Some(PathChange { to, remote, is_open }) = sessions.poll_change() {
            let news = PathNews { port, remote, owner: self.id, is_open };
            self.agenda.outputs.push_back(Output::Path(to, news));
        }
    }
}

impl Conns {
    pub(super) fn take_datagram(
        &mut self,
        turn: &mut Turn,
        id: ConnId,
        path: PathId,
        from: Remote,
        datagram: &mut [u8],
    ) {
        let Some(conn) = self.get_mut(id) else { return };
        conn.figures.bytes_in = conn.figures.bytes_in.saturating_add(datagram.len() as u64);
        // Most datagrams of viewers are acknowledgements: they cause no events or output, so the session need not be
        // drained. But they may make room in a session whose sink was full, so that session is drained.
        let is_sated = conn.schedule.sated;
        let is_quiet = self.call(turn, id, |session, ctx| {
            session.datagrams().is_some_and(|peer| {
                peer.handle_datagram(ctx, path, from, datagram);
                is_sated && peer.is_quiet(ctx)
            })
        });
        if is_quiet != Some(true) {
            self.touch(turn, id);
        }
    }
}
