//! Sessions that speak in datagrams: over a port that they share, or a socket of their own.
//!
//! They differ from the others in the way out. What waits for a stream's socket is behind the viewer's cursor; a session
//! of datagrams must remember what it has sent until it has arrived, so it takes units as long as it has room for them,
//! and makes datagrams of them when its pace allows.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use wire::Datagrams;

use super::conn::{Conn, Link};
use super::{Output, Worker};
use crate::protocol::{Context, Port, Remote, Route};
use crate::types::{ConnId, Now};

/// What became of a datagram of a shared port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routed {
    /// It is handled.
    Done,
    /// Its sender has proved its address and has no session: [`Worker::accept_peer`], or nothing.
    New,
    /// Answer with [`Worker::reply`].
    Reply,
}

/// Where gathered datagrams go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// Through a shared port.
    Port(&'static Port, Remote),
    /// Through the connection's own socket; `None`: to whom it is connected.
    Own(Option<SocketAddr>),
}

impl Worker {
    /// A datagram of a shared port.
    pub fn handle_datagram(
        &mut self,
        now: Now,
        port: &'static Port,
        from: Remote,
        datagram: &[u8],
    ) -> Routed {
        self.now = now;
        self.reply.clear();
        let ctx = Context {
            now,
            apps: &self.apps,
            server: &self.server,
            blobs: &self.polled.blobs,
            draining: self.draining,
        };
        let Some((_, demux)) = self.ports.iter_mut().find(|(of, _)| *of == port) else { return Routed::Done };
        // Whatever bug a stranger has found in the port ends nobody.
        let route = AssertUnwindSafe(|| demux.route(&ctx, from, datagram, &mut self.reply));
        let Ok(route) = catch_unwind(route) else {
            self.stats.panics = self.stats.panics.saturating_add(1);
            return Routed::Done;
        };
        match route {
            Route::Session(id) => {
                self.take_datagram(id, from.peer, datagram);
                Routed::Done
            }
            Route::New if self.draining => Routed::Done,
            Route::New => Routed::New,
            Route::Reply => Routed::Reply,
            Route::Drop => {
                self.stats.datagrams_dropped = self.stats.datagrams_dropped.saturating_add(1);
                Routed::Done
            }
        }
    }

    /// What is to be answered to a datagram that was [`Routed::Reply`].
    #[must_use]
    pub fn reply(&self) -> &[u8] {
        &self.reply
    }

    /// Begins the session of a datagram that was [`Routed::New`] right before.
    pub fn accept_peer(&mut self, now: Now, port: &'static Port, from: Remote) -> Option<ConnId> {
        self.now = now;
        let seed = self.session_seed();
        let id = self.conns.next_id()?;
        let ctx = Context {
            now,
            apps: &self.apps,
            server: &self.server,
            blobs: &self.polled.blobs,
            draining: self.draining,
        };
        let (_, demux) = self.ports.iter_mut().find(|(of, _)| *of == port)?;
        let peer = SocketAddr::new(from.peer.ip().to_canonical(), from.peer.port());
        let Ok(session) = catch_unwind(AssertUnwindSafe(|| demux.begin(&ctx, id, peer, seed))) else {
            demux.forget(id);
            self.stats.panics = self.stats.panics.saturating_add(1);
            return None;
        };
        let session = session?;
        let mut conn = Conn::new(peer, session, now.mono);
        conn.link = Link::Port(port, from);
        self.conns.insert(conn)?;
        self.touch(id);
        Some(id)
    }

    /// A datagram of a connection's own socket.
    pub fn handle_own_datagram(&mut self, now: Now, id: ConnId, from: SocketAddr, datagram: &[u8]) {
        self.now = now;
        self.take_datagram(id, from, datagram);
    }

    fn take_datagram(&mut self, id: ConnId, from: SocketAddr, datagram: &[u8]) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let count = datagram.len() as u64;
        conn.bytes_in = conn.bytes_in.saturating_add(count);
        self.stats.bytes_in = self.stats.bytes_in.saturating_add(count);
        self.call(id, |session, ctx| session.handle_datagram(ctx, from, datagram));
        self.touch(id);
    }

    /// Whether a connection speaks in datagrams.
    #[must_use]
    pub fn is_datagram(&self, id: ConnId) -> bool {
        self.conns.get(id).is_some_and(|conn| conn.link != Link::Bytes)
    }

    /// Adds what a connection has to send now, and says where to. Nothing was added: there is nothing more for now.
    pub fn gather_datagrams(&mut self, now: Now, id: ConnId, out: &mut Datagrams) -> Option<Destination> {
        self.now = now;
        self.give_units(id);
        let to = self.call(id, |session, ctx| session.poll_datagrams(ctx, out))?;
        let conn = self.conns.get_mut(id)?;
        conn.unsent = !out.is_empty();
        let destination = match conn.link {
            Link::Bytes => return None,
            Link::Port(port, remote) => Destination::Port(port, remote),
            Link::Own => Destination::Own(to),
        };
        if out.is_empty() {
            // The units may have moved its deadline, or a goodbye was the last that it had to say.
            self.after_drain(id);
        }
        Some(destination)
    }

    /// The socket took so many bytes of what was gathered, `at` this time. What it did not take is lost: protocols
    /// of datagrams repair that.
    pub fn datagrams_sent(&mut self, at: Instant, id: ConnId, taken: usize, lost: usize) {
        self.stats.datagrams_unsent = self.stats.datagrams_unsent.saturating_add(lost as u64);
        for (index, unit) in self.forwarded.drain(..) {
            self.forwarding.record(index, unit.video, unit.received, at);
        }
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.bytes_out = conn.bytes_out.saturating_add(taken as u64);
        self.stats.bytes_out = self.stats.bytes_out.saturating_add(taken as u64);
        self.enqueue_write(id);
    }

    /// Hands a viewer the units behind its cursor, as far as it takes them.
    fn give_units(&mut self, id: ConnId) {
        let ctx = Context {
            now: self.now,
            apps: &self.apps,
            server: &self.server,
            blobs: &self.polled.blobs,
            draining: self.draining,
        };
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Some(subscriber) = &mut conn.subscriber else { return };
        let Some(stream) = self.streams.get(&subscriber.stream) else { return };
        let session = conn.session.as_mut();
        let (forwarded, index) = (&mut self.forwarded, subscriber.forwarding);
        let give = AssertUnwindSafe(|| {
            let mut any = false;
            while session.takes_units()
                && let Some(given) = stream.next_unit(subscriber)
            {
                for parts in given.parts() {
                    session.send_unit(&ctx, parts);
                }
                forwarded.extend(given.forwarded.map(|unit| (index, unit)));
                any = true;
            }
            if any {
                session.end_units(&ctx);
            }
        });
        if catch_unwind(give).is_err() {
            self.remove_panicked(id);
        }
    }

    /// A connection that speaks in datagrams is gone.
    pub(super) fn forget_peer(&mut self, id: ConnId, link: Link) {
        if let Link::Port(port, _) = link
            && let Some((_, demux)) = self.ports.iter_mut().find(|(of, _)| *of == port)
        {
            demux.forget(id);
        }
    }

    /// Has a socket of its own opened for a connection: to call its peer, or to wait for it there.
    pub(super) fn open_udp(&mut self, id: ConnId, bind: Option<SocketAddr>, to: Option<SocketAddr>) {
        if let Some(conn) = self.conns.get_mut(id) {
            conn.link = Link::Own;
        }
        self.outputs.push_back(Output::OpenUdp { conn: id, bind, to });
    }
}
