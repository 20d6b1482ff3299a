//! Datagram sessions: over a shared port, or sockets of their own.
//!
//! They differ from the others in the way out. What waits for a stream's socket is behind the viewer's cursor; a session
//! of datagrams must remember what it has sent until it has arrived, so it takes units as long as it has room for them,
//! and makes datagrams of them when its pace allows.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crypto::Seed;
use wire::Datagrams;

use super::Worker;
use super::conn::{Conn, DatagramLink, DatagramPath};
use crate::mail::Message;
use crate::protocol::{
    Claim, Demux, FamilyNews, PathId, Port, PortContext, Remote, Reply, Route, Session, Wanted,
};
use crate::types::{ConnId, Handle, Now, WorkerId};

/// The result of a datagram on a shared port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routed {
    /// Handled.
    Done,
    /// Its sender has proved its address and has no session: [`Worker::accept_peer`], or nothing.
    New,
    /// Answer with [`Worker::reply_datagram`].
    Reply,
}

/// The destination of gathered datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// Through a shared port.
    Port(&'static Port, Remote),
    /// Through a socket of the session's own; `None`: to the peer that the socket is connected to.
    Own(PathId, Option<SocketAddr>),
    /// Already in another session's byte stream: nothing is left to be done.
    Carried,
}

/// The ports that many peers share.
#[derive(Debug)]
pub(super) struct Ports {
    pub(super) list: Vec<(&'static Port, Box<dyn Demux>)>,
    /// The answer to a datagram without a session.
    pub(super) reply: Vec<u8>,
}

impl Ports {
    pub(super) fn new(now: Now, id: WorkerId, common: &Seed) -> Self {
        let ctx = PortContext { now, worker: id, secret: common };
        let list = Port::all().map(|port| (port, port.demux(&ctx))).collect();
        Self { list, reply: Vec::new() }
    }

    /// Removes a datagram session.
    pub(super) fn forget_peer(&mut self, id: ConnId, conn: &Conn) {
        for path in conn.datagrams.iter().flat_map(|link: &DatagramLink| &link.paths) {
            if let DatagramPath::Port(port, _) = path
                && let Some((_, demux)) = self.list.iter_mut().find(|(of, _)| of == port)
            {
                demux.forget(id);
            }
        }
    }
}

impl Worker {
    /// A datagram of a shared port.
    pub fn handle_datagram(
        &mut self,
        now: Now,
        port: &'static Port,
        from: Remote,
        datagram: &mut [u8],
    ) -> Routed {
        self.now = now;
        match self.route(port, from, datagram) {
            Route::Session(id) => {
                self.count_received(datagram.len());
                self.take_datagram(id, PathId::default(), from, datagram);
                Routed::Done
            }
            Route::New if self.draining => Routed::Done,
            Route::New => Routed::New,
            Route::Reply => Routed::Reply,
            Route::Drop => Routed::Done,
        }
    }

    pub(super) fn route(&mut self, port: &'static Port, from: Remote, datagram: &[u8]) -> Route {
        self.ports.reply.clear();
        let ctx = context!(self);
        let Some((_, demux)) = self.ports.list.iter_mut().find(|(of, _)| *of == port) else {
            return Route::Drop;
        };
        // Whatever bug an unauthenticated peer has found in the port ends nobody.
        let route = AssertUnwindSafe(|| demux.route(&ctx, from, datagram, &mut self.ports.reply));
        let Ok(route) = catch_unwind(route) else {
            self.meter.stats.panics = self.meter.stats.panics.saturating_add(1);
            return Route::Drop;
        };
        if route == Route::Drop {
            self.meter.stats.datagrams_dropped = self.meter.stats.datagrams_dropped.saturating_add(1);
        }
        route
    }

    /// The reply to a datagram that was [`Routed::Reply`].
    #[must_use]
    pub fn reply_datagram(&self) -> &[u8] {
        &self.ports.reply
    }

    /// Creates the session of a datagram that was [`Routed::New`] right before.
    pub fn accept_peer(&mut self, now: Now, port: &'static Port, from: Remote) -> Option<ConnId> {
        self.now = now;
        let seed = self.session_seed();
        let id = self.conns.next_id()?;
        let ctx = context!(self);
        let (_, demux) = self.ports.list.iter_mut().find(|(of, _)| *of == port)?;
        let peer = SocketAddr::new(from.peer.ip().to_canonical(), from.peer.port());
        let Ok(session) = catch_unwind(AssertUnwindSafe(|| demux.begin(&ctx, id, peer, seed))) else {
            demux.forget(id);
            self.meter.stats.panics = self.meter.stats.panics.saturating_add(1);
            return None;
        };
        let path = DatagramPath::Port(port, from);
        self.conns.insert(Conn::datagrams(peer, session?, Some(path), now.mono))?;
        self.note_authenticated(id);
        self.touch(id);
        Some(id)
    }

    /// A datagram of a session's own socket.
    pub fn handle_own_datagram(
        &mut self,
        now: Now,
        id: ConnId,
        path: PathId,
        from: Remote,
        datagram: &mut [u8],
    ) {
        self.now = now;
        self.count_received(datagram.len());
        self.take_datagram(id, path, from, datagram);
    }

    const fn count_received(&mut self, bytes: usize) {
        self.meter.stats.bytes_in = self.meter.stats.bytes_in.saturating_add(bytes as u64);
    }

    pub(super) fn take_datagram(&mut self, id: ConnId, path: PathId, from: Remote, datagram: &mut [u8]) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.figures.bytes_in = conn.figures.bytes_in.saturating_add(datagram.len() as u64);
        self.call(id, |session, ctx| {
            if let Some(peer) = session.datagrams() {
                peer.handle_datagram(ctx, path, from, datagram);
            }
        });
        self.touch(id);
    }

    /// Adds what a session has to send now, and says where to. Nothing was added: there is nothing more for now.
    pub fn gather_datagrams(&mut self, now: Now, id: ConnId, out: &mut Datagrams) -> Option<Destination> {
        self.now = now;
        let streams = &self.live.streams;
        let ctx = context!(self);
        let conn = self.conns.get_mut(id)?;
        let gather = AssertUnwindSafe(|| {
            let subscriptions = &conn.subscriptions;
            let shared = |handle| {
                let playing = subscriptions.iter().find(|one| one.handle == handle)?.playing()?;
                streams.get(&playing.subscriber.stream)?.shared(&playing.subscriber)
            };
            conn.session.datagrams().map(|peer| peer.poll_datagrams(&ctx, &shared, out))
        });
        let Ok(to) = catch_unwind(gather) else {
            self.remove_panicked(id);
            return None;
        };
        let to = to?;
        let link = self.conns.get_mut(id)?.datagrams.as_mut()?;
        link.unsent = !out.is_empty() && !to.last;
        let path = link.paths.iter().find(|path| path.id() == to.path).copied();
        if out.is_empty() {
            // The units may have moved its deadline, or a goodbye was the last that it had to say.
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

    /// The socket took so many bytes of what was gathered, `at` this time. What it did not take is lost: protocols
    /// of datagrams repair that.
    pub fn datagrams_sent(&mut self, at: Instant, id: ConnId, taken: usize, lost: usize) {
        self.meter.stats.bytes_out = self.meter.stats.bytes_out.saturating_add(taken as u64);
        self.note_sent(at, id, taken, lost);
    }

    pub(super) fn note_sent(&mut self, at: Instant, id: ConnId, taken: usize, lost: usize) {
        self.meter.stats.datagrams_unsent = self.meter.stats.datagrams_unsent.saturating_add(lost as u64);
        for (index, unit) in self.meter.forwarded.drain(..) {
            self.meter.forwarding.record(index, unit.video, unit.received, at);
        }
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.figures.bytes_out = conn.figures.bytes_out.saturating_add(taken as u64);
        if conn.datagrams.as_ref().is_some_and(|link| link.unsent) {
            self.enqueue_write(id);
        } else {
            // It is not asked again to find its deadline moved, or its goodbye said.
            self.after_drain(id);
        }
    }

    /// The port is bound to this address. `hosts` are the addresses of the machine.
    pub fn port_bound(&mut self, port: &'static Port, address: SocketAddr, hosts: &[IpAddr]) {
        if let Some((_, demux)) = self.ports.list.iter_mut().find(|(of, _)| *of == port) {
            demux.on_request().into_iter().for_each(|sessions| sessions.bound(address, hosts));
        }
    }

    /// A session wants another one at a shared port.
    pub(super) fn spawn_at(
        &mut self,
        parent: ConnId,
        child: Handle,
        (port, what): (&'static str, Box<dyn Any + Send>),
        outlives: bool,
    ) {
        let session = self.create_at(parent, child, port, what);
        let Some((port, session)) = session.filter(|_| !self.draining) else {
            return self.reply(parent, Reply::Family(FamilyNews::Spawned { child, session: None }));
        };
        let Some(conn) = self.conns.get(parent) else { return };
        let way = DatagramPath::Port(port, Remote::of(conn.client()));
        let inner =
            Conn { behind: conn.behind, ..Conn::datagrams(conn.peer, session, Some(way), self.now.mono) };
        self.adopt(parent, child, inner, outlives);
    }

    fn create_at(
        &mut self,
        parent: ConnId,
        child: Handle,
        port: &'static str,
        what: Box<dyn Any + Send>,
    ) -> Option<(&'static Port, Box<dyn Session>)> {
        let seed = self.session_seed();
        let id = self.conns.next_id()?;
        let parent = self.session_ref(parent, child);
        let peer = self.conns.get(parent.conn)?.client();
        let ctx = context!(self);
        let (port, demux) = self.ports.list.iter_mut().find(|(of, _)| of.name == port)?;
        let wanted = Wanted { parent, peer, what };
        if let Ok(session) =
            catch_unwind(AssertUnwindSafe(|| demux.on_request()?.create(&ctx, id, wanted, seed)))
        {
            return Some((port, session?));
        }
        demux.forget(id);
        self.meter.stats.panics = self.meter.stats.panics.saturating_add(1);
        None
    }

    /// A session says what is its own at its port.
    pub(super) fn claim(&mut self, id: ConnId, claim: &Claim) {
        let Some(conn) = self.conns.get(id) else { return };
        for path in conn.datagrams.iter().flat_map(|link| &link.paths) {
            if let DatagramPath::Port(port, _) = path
                && let Some((_, demux)) = self.ports.list.iter_mut().find(|(of, _)| of == port)
            {
                let now = self.now;
                demux.on_request().into_iter().for_each(|sessions| sessions.claim(now, id, claim));
            }
        }
        if let Claim::Open(Remote { carrier: Some(carrier), .. }) = claim {
            self.adopt_carrier(id, *carrier);
        }
    }

    /// The answer to a message for a session that is over.
    pub(super) fn answer_for_past(&mut self, id: ConnId, message: &Message) -> Option<Message> {
        let now = self.now;
        self.ports
            .list
            .iter_mut()
            .find_map(|(_, demux)| demux.on_request()?.answer_for_past(now, id, message))
    }
}
