//! The shell's half for datagrams: ports that many peers share, and sockets of single connections.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::Interest;

use super::{Shell, token_of};
use crate::io::listen;
use crate::io::udp::{Peer, UdpSocket};
use crate::protocol::{PathEvent, PathId, Port, Remote};
use crate::types::{ConnId, Now};
use crate::worker::{Destination, Routed};

/// Receive calls on one socket in one turn.
const RECEIVES_TURN: usize = 16;
/// A busy port wakes the loop at most so often. Hundreds of viewers acknowledge a hundred times a second each, and to be
/// woken for one costs more than to handle it. What comes is held by its protocol for much longer anyway.
const MUTE: Duration = Duration::from_millis(1);

impl Shell {
    /// Reads every port that has something, with a bound per turn.
    pub(super) fn read_ports(&mut self, now: Now) {
        for index in 0..self.parts.ports.len() {
            self.unmute(now.mono, index);
            for _ in 0..RECEIVES_TURN {
                let Some((port, socket)) = self.parts.ports.get_mut(index) else { break };
                let port = *port;
                if !socket.readable {
                    break;
                }
                let mut batch = std::mem::take(&mut self.batch);
                match socket.receive(&mut batch) {
                    Ok(messages) => {
                        let before = socket.read_at.replace(now.mono);
                        if before.is_some_and(|at| now.mono.saturating_duration_since(at) < MUTE) {
                            self.mute(now.mono, index);
                        }
                        for (from, datagram) in batch.datagrams(messages) {
                            self.route(now, index, port, from, datagram);
                        }
                    }
                    Err(error) => note_receive_error(&error),
                }
                self.batch = batch;
            }
        }
    }

    /// When a port that was too loud is looked at again.
    pub(super) fn muted_until(&self) -> Option<Instant> {
        self.parts.ports.iter().filter_map(|(_, port)| port.muted_until).min()
    }

    fn mute(&mut self, now: Instant, index: usize) {
        let Some((_, port)) = self.parts.ports.get_mut(index) else { return };
        if port.muted_until.is_none() && self.parts.poll.registry().deregister(&mut port.socket).is_ok() {
            port.muted_until = Some(now + MUTE);
        }
    }

    fn unmute(&mut self, now: Instant, index: usize) {
        let token = self.port_token(index);
        let Some((_, port)) = self.parts.ports.get_mut(index) else { return };
        if port.muted_until.is_none_or(|until| until > now) {
            return;
        }
        port.muted_until = None;
        // To be registered tells nothing of what came before.
        port.readable = true;
        if let Err(error) = self.parts.poll.registry().register(&mut port.socket, token, Interest::READABLE) {
            tracing::error!(%error, "a UDP port was lost");
        }
    }

    fn route(&mut self, now: Now, index: usize, port: &'static Port, from: Remote, datagram: &[u8]) {
        match self.worker.handle_datagram(now, port, from, datagram) {
            Routed::Done => {}
            Routed::Reply => {
                let Some((_, socket)) = self.parts.ports.get(index) else { return };
                let reply = self.worker.reply_datagram();
                if let Err(error) = socket.send_run(from, reply, reply.len()) {
                    tracing::debug!(%error, peer = %from.peer, "reply not sent");
                }
            }
            Routed::New => self.admit_peer(now, port, from),
        }
    }

    /// A peer that has proved its address gets a session, if there is a place for it.
    fn admit_peer(&mut self, now: Now, port: &'static Port, from: Remote) {
        let peer = SocketAddr::new(from.peer.ip().to_canonical(), from.peer.port());
        let place = match self.parts.budget.admit(peer, now.mono) {
            Ok(place) => place,
            Err(why) => {
                tracing::debug!(%peer, ?why, "peer refused");
                self.worker.note_refused(why);
                return;
            }
        };
        // A slot that was freed in this turn may be given out again: its former owner must be gone by then.
        while let Some(output) = self.worker.poll_output() {
            self.perform(now, output);
        }
        if let Some(id) = self.worker.accept_peer(now, port, from) {
            self.install_peer(id, Some(place));
        }
    }

    fn install_peer(&mut self, id: ConnId, place: Option<crate::io::budget::Permit>) {
        let slot = usize::try_from(id.slot).unwrap_or(usize::MAX);
        if self.peers.len() <= slot {
            self.peers.resize_with(slot.saturating_add(1), || None);
        }
        if let Some(entry) = self.peers.get_mut(slot) {
            *entry = Some(Peer { generation: id.generation, permit: place, own: Vec::new() });
            self.load().fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Opens a socket that a session wants for itself.
    pub(super) fn open_udp(
        &mut self,
        now: Now,
        id: ConnId,
        path: PathId,
        bind: Option<SocketAddr>,
        to: Option<SocketAddr>,
    ) {
        let opened = listen::open_udp(bind, to).and_then(UdpSocket::new).and_then(|mut own| {
            self.parts.poll.registry().register(&mut own.socket, token_of(id), Interest::READABLE)?;
            Ok(own)
        });
        match opened {
            Ok(own) => {
                let local = own.socket.local_addr().ok();
                if self.peer(id).is_none() {
                    self.install_peer(id, None);
                }
                if let Some(peer) = self.peer(id) {
                    peer.own.push((path, own));
                }
                self.worker.handle_path(now, id, path, PathEvent::Open { local });
            }
            Err(error) => {
                self.worker.handle_path(now, id, path, PathEvent::Broken(&error.to_string()));
            }
        }
    }

    /// Closes a socket of a session's own.
    pub(super) fn close_udp(&mut self, id: ConnId, path: PathId) {
        let Some(peer) = self.peer(id) else { return };
        let Some(at) = peer.own.iter().position(|(of, _)| *of == path) else { return };
        let (_, mut own) = peer.own.swap_remove(at);
        let _ = self.parts.poll.registry().deregister(&mut own.socket);
    }

    /// Reads a session's own sockets.
    pub(super) fn read_own(&mut self, now: Now, id: ConnId) {
        let paths = self.peer(id).map_or(0, |peer| peer.own.len());
        let mut unread = false;
        for index in 0..paths {
            unread |= !self.read_path(now, id, index);
        }
        if unread {
            self.ready.push_back(id);
        }
    }

    /// Reads one of them with a bound. True when nothing is left in it.
    fn read_path(&mut self, now: Now, id: ConnId, index: usize) -> bool {
        for _ in 0..RECEIVES_TURN {
            let mut batch = std::mem::take(&mut self.batch);
            let received = match self.peer(id).and_then(|peer| peer.own.get_mut(index)) {
                Some((path, own)) if own.readable => Some((*path, own.receive(&mut batch))),
                _ => None,
            };
            let Some((path, received)) = received else {
                self.batch = batch;
                return true;
            };
            match received {
                Ok(messages) => {
                    for (from, datagram) in batch.datagrams(messages) {
                        self.worker.handle_own_datagram(now, id, path, from.peer, datagram);
                    }
                }
                // A peer that is not there answers so (ICMP); the session's own patience decides.
                Err(error) => note_receive_error(&error),
            }
            self.batch = batch;
        }
        false
    }

    pub(super) fn write_datagrams(&mut self, now: Now, id: ConnId) -> usize {
        self.datagrams.clear();
        let Some(to) = self.worker.gather_datagrams(now, id, &mut self.datagrams) else { return 0 };
        if self.datagrams.is_empty() {
            return 0;
        }
        let (taken, lost) = match to {
            Destination::Port(port, remote) => {
                let socket = self.parts.ports.iter().find(|(of, _)| *of == port);
                socket.map_or((0, self.datagrams.len()), |(_, socket)| socket.send(remote, &self.datagrams))
            }
            Destination::Own(path, to) => {
                match self.own(id, path).and_then(|own| Some((own, to.or_else(|| own.peer())?))) {
                    Some((own, peer)) => own.send(Remote { peer, local: None }, &self.datagrams),
                    None => (0, self.datagrams.len()),
                }
            }
        };
        self.worker.datagrams_sent(Instant::now(), id, taken, lost);
        self.datagrams.bytes()
    }

    /// Closes a connection of datagrams. False when it is another's.
    pub(super) fn close_peer(&mut self, id: ConnId) -> bool {
        let slot = usize::try_from(id.slot).unwrap_or(usize::MAX);
        let Some(entry) = self.peers.get_mut(slot) else { return false };
        let Some(mut peer) = entry.take_if(|peer| peer.generation == id.generation) else { return false };
        self.load().fetch_sub(1, Ordering::Relaxed);
        for (_, own) in &mut peer.own {
            let _ = self.parts.poll.registry().deregister(&mut own.socket);
        }
        true
    }

    pub(super) fn peer(&mut self, id: ConnId) -> Option<&mut Peer> {
        let slot = usize::try_from(id.slot).ok()?;
        self.peers.get_mut(slot)?.as_mut().filter(|peer| peer.generation == id.generation)
    }

    fn own(&self, id: ConnId, path: PathId) -> Option<&UdpSocket> {
        let slot = usize::try_from(id.slot).ok()?;
        let peer = self.peers.get(slot)?.as_ref().filter(|peer| peer.generation == id.generation)?;
        peer.own.iter().find(|(of, _)| *of == path).map(|(_, own)| own)
    }
}

fn note_receive_error(error: &io::Error) {
    if error.kind() != io::ErrorKind::WouldBlock {
        tracing::debug!(%error, "UDP receive");
    }
}
