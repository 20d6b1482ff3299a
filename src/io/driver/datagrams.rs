//! Part of the driver for datagrams: sessions on shared ports, and sessions with sockets of their own.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Instant;

use mio::{Interest, Token};

use super::{Driver, Machine, SHARED_TOKENS, put, slot_of, token_of};
use crate::io::budget::Permit;
use crate::io::listen;
use crate::io::udp::UdpSocket;
use crate::protocol::{PathId, Port, Remote};
use crate::types::{ConnId, Now};
use crate::worker::Destination;

/// The sockets of a datagram connection.
#[derive(Debug)]
pub(super) struct UdpPeer {
    pub(super) generation: u32,
    pub(super) permit: Option<Permit>,
    /// The connection's own sockets; empty if it uses a shared port.
    pub(super) own: Vec<(PathId, UdpSocket)>,
}

impl Driver {
    // ---- shared ports

    /// Adds a port that many peers share.
    pub(in crate::io) fn share(&mut self, port: &'static Port, socket: UdpSocket) -> io::Result<()> {
        self.ports.push((port, socket));
        self.watch_port(self.ports.len().saturating_sub(1))
    }

    /// Registers a port for events.
    pub(in crate::io) fn watch_port(&mut self, index: usize) -> io::Result<()> {
        let Some((_, port)) = self.ports.get_mut(index) else { return Ok(()) };
        self.poller.poll.registry().register(
            &mut port.socket,
            Token(SHARED_TOKENS + index),
            Interest::READABLE,
        )
    }

    /// Deregisters a port from events.
    pub(in crate::io) fn unwatch_port(&mut self, index: usize) -> io::Result<()> {
        let Some((_, port)) = self.ports.get_mut(index) else { return Ok(()) };
        self.poller.poll.registry().deregister(&mut port.socket)
    }

    // ---- connections

    /// Adds a session over datagrams. With `permit`, its datagrams go through a shared port; without, through sockets
    /// that are opened later.
    pub(in crate::io) fn install_peer(&mut self, id: ConnId, permit: Option<Permit>) {
        if put(&mut self.peers, id, UdpPeer { generation: id.generation, permit, own: Vec::new() }) {
            self.connections.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Opens a socket for a session. Returns the address that it is bound to.
    pub(in crate::io) fn open_udp(
        &mut self,
        id: ConnId,
        path: PathId,
        bind: Option<SocketAddr>,
        to: Option<SocketAddr>,
    ) -> io::Result<Option<SocketAddr>> {
        let socket = listen::open_udp(bind, to)?;
        let mut own =
            if self.bounds.udp_bursts { UdpSocket::for_many(socket)? } else { UdpSocket::new(socket)? };
        self.poller.poll.registry().register(&mut own.socket, token_of(id), Interest::READABLE)?;
        let local = own.socket.local_addr().ok();
        if self.peer(id).is_none() {
            self.install_peer(id, None);
        }
        if let Some(peer) = self.peer(id) {
            peer.own.push((path, own));
        }
        Ok(local)
    }

    /// Closes one of a session's own sockets.
    pub(in crate::io) fn close_udp(&mut self, id: ConnId, path: PathId) {
        let Some(peer) = self.peer(id) else { return };
        let Some(at) = peer.own.iter().position(|(of, _)| *of == path) else { return };
        let (_, mut own) = peer.own.swap_remove(at);
        let _ = self.poller.poll.registry().deregister(&mut own.socket);
    }

    /// Closes the sockets of a datagram connection, if there is one.
    pub(super) fn close_peer(&mut self, id: ConnId) {
        let Some(entry) = self.peers.get_mut(slot_of(id)) else { return };
        let Some(mut peer) = entry.take_if(|peer| peer.generation == id.generation) else { return };
        self.connections.fetch_sub(1, Ordering::Relaxed);
        for (_, own) in &mut peer.own {
            let _ = self.poller.poll.registry().deregister(&mut own.socket);
        }
    }

    pub(super) fn peer(&mut self, id: ConnId) -> Option<&mut UdpPeer> {
        self.peers.get_mut(slot_of(id))?.as_mut().filter(|peer| peer.generation == id.generation)
    }

    fn own(&self, id: ConnId, path: PathId) -> Option<&UdpSocket> {
        let peer = self.peers.get(slot_of(id))?.as_ref().filter(|peer| peer.generation == id.generation)?;
        peer.own.iter().find(|(of, _)| *of == path).map(|(_, own)| own)
    }

    // ---- reading and writing

    /// Marks the session's own sockets as readable. Returns false if it has none.
    pub(super) fn own_event(&mut self, id: ConnId) -> bool {
        let Some(peer) = self.peer(id).filter(|peer| !peer.own.is_empty()) else { return false };
        peer.own.iter_mut().for_each(|(_, own)| own.readable = true);
        self.ready.push_back(id);
        true
    }

    /// Reads a session's own sockets.
    pub(super) fn read_own<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId) {
        let paths = self.peer(id).map_or(0, |peer| peer.own.len());
        let mut unread = false;
        for index in 0..paths {
            unread |= !self.read_path(now, machine, id, index);
        }
        if unread {
            self.ready.push_back(id);
        }
    }

    /// Reads one of a session's own sockets, up to a limit. Returns true if the socket was emptied.
    fn read_path<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId, index: usize) -> bool {
        for _ in 0..self.bounds.receives_turn {
            let peer = self.peers.get_mut(slot_of(id)).and_then(Option::as_mut);
            let peer = peer.filter(|peer| peer.generation == id.generation);
            let Some((path, own)) = peer.and_then(|peer| peer.own.get_mut(index)) else { return true };
            if !own.readable {
                return true;
            }
            let (path, batch) = (*path, &mut self.batch);
            match own.receive(batch) {
                Ok(messages) => {
                    for (from, datagram) in batch.datagrams(messages) {
                        machine.handle_datagram(now, id, path, from, datagram);
                    }
                }
                // An ICMP error says that the peer is unreachable. The session waits for its own timeout instead.
                Err(error) => note_receive_error(&error),
            }
        }
        false
    }

    pub(super) fn write_datagrams<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId) -> usize {
        self.datagrams.clear();
        let Some(to) = machine.gather_datagrams(now, id, &mut self.datagrams) else { return 0 };
        let out = &self.datagrams;
        if out.is_empty() {
            return 0;
        }
        let (taken, lost) = match to {
            Destination::Port(port, remote) => {
                let socket = self.ports.iter().find(|(of, _)| *of == port);
                socket.map_or((0, out.len()), |(_, socket)| socket.send(remote, out))
            }
            Destination::Own(path, to) => {
                match self.own(id, path).and_then(|own| Some((own, to.or_else(|| own.peer())?))) {
                    Some((own, peer)) => own.send(Remote::of(peer), out),
                    None => (0, out.len()),
                }
            }
            Destination::Carried => return out.bytes(),
        };
        machine.datagrams_sent(Instant::now(), id, taken, lost);
        self.datagrams.bytes()
    }
}

/// Logs a receive error, except the error that there is nothing to read.
pub(in crate::io) fn note_receive_error(error: &io::Error) {
    if error.kind() != io::ErrorKind::WouldBlock {
        tracing::debug!(%error, "UDP receive");
    }
}
