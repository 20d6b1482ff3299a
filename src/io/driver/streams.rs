//! Part of the driver for byte streams: connecting, reading, writing, with and without TLS, and closing.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use mio::Interest;
use mio::event::Event;
use mio::net::TcpStream;
use wire::Gather;

use super::{Driver, Machine, TlsClient, put, slot_of, token_of};
use crate::io::budget::Permit;
use crate::io::sys;
use crate::io::tls::{Received, Transport};
use crate::protocol::{PathEvent, PathId};
use crate::types::{ConnId, Now};

/// Maximum bytes of one write.
const WRITE_BYTES: usize = 1024 * 1024;

/// A byte stream connection.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) generation: u32,
    pub(super) transport: Transport,
    /// True if the kernel may have bytes to read.
    pub(super) readable: bool,
    /// True if the socket is on the ready list.
    pub(super) ready: bool,
    connecting: bool,
    /// TLS settings of an outgoing connection; `None` after its handshake.
    tls: Option<Box<TlsClient>>,
    /// True if the kernel has reported the end of the peer's stream. Only then does a read of zero bytes mean the end.
    ending: bool,
    /// True if the end of the peer's stream was read.
    pub(super) ended: bool,
    /// True if TLS has ended with an alert that must be sent to the peer.
    alerted: bool,
    /// The permit of an accepted connection.
    pub(super) permit: Option<Permit>,
    /// Name of the listener that accepted the connection; empty for an outgoing connection.
    pub(super) listener: &'static str,
    /// True if a part of a ClientHello has arrived.
    pub(super) hello_begun: bool,
}

/// A connection that is being moved to another worker.
#[derive(Debug)]
pub(in crate::io) struct Moved {
    pub(in crate::io) stream: TcpStream,
    /// Address of the client. A proxy may have named it.
    pub(in crate::io) peer: SocketAddr,
    /// Name of the listener that accepted the connection.
    pub(in crate::io) listener: &'static str,
    pub(in crate::io) permit: Permit,
    /// The bytes that were received.
    pub(in crate::io) received: Bytes,
}

impl Socket {
    const fn new(id: ConnId, transport: Transport) -> Self {
        Self {
            generation: id.generation,
            transport,
            readable: false,
            ready: false,
            connecting: false,
            tls: None,
            ending: false,
            ended: false,
            alerted: false,
            permit: None,
            listener: "",
            hello_begun: false,
        }
    }

    /// Returns the result of a connect; `None` if the socket is still connecting.
    fn end_connect(&mut self, ending: bool) -> Option<io::Result<()>> {
        let stream = self.transport.stream();
        let result = match stream.take_error() {
            Ok(Some(error)) | Err(error) => Err(error),
            Ok(None) => match stream.peer_addr() {
                Ok(_) => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return None,
                Err(error) => Err(error),
            },
        };
        self.connecting = false;
        self.readable = true;
        self.ending = ending;
        Some(result.and_then(|()| self.begin_tls()))
    }

    /// Begins the TLS handshake if the connection uses TLS.
    fn begin_tls(&mut self) -> io::Result<()> {
        if let Some(tls) = &self.tls {
            self.transport.begin_client(&tls.config, &tls.name)?;
            self.transport.flush()?;
        }
        Ok(())
    }
}

impl Driver {
    // ---- connections

    /// Takes over an accepted connection.
    pub(in crate::io) fn install_accepted<M: Machine>(
        &mut self,
        now: Now,
        machine: &mut M,
        id: ConnId,
        transport: Transport,
        (listener, permit): (&'static str, Permit),
    ) {
        let socket = Socket { permit: Some(permit), listener, ..Socket::new(id, transport) };
        if let Err(error) = self.install(id, socket) {
            machine.handle_path(now, id, PathId::default(), PathEvent::Broken(&error.to_string()));
        }
    }

    /// Begins an outgoing connection.
    pub(in crate::io) fn connect(
        &mut self,
        id: ConnId,
        address: SocketAddr,
        tls: Option<TlsClient>,
    ) -> io::Result<()> {
        let stream = TcpStream::connect(address)?;
        let _ = stream.set_nodelay(true);
        let tls = tls.map(Box::new);
        self.install(id, Socket { connecting: true, tls, ..Socket::new(id, Transport::plain(stream)) })
    }

    fn install(&mut self, id: ConnId, mut socket: Socket) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poller.poll.registry().register(socket.transport.stream_mut(), token_of(id), interest)?;
        if put(&mut self.sockets, id, socket) {
            self.connections.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Closes a connection. Unless `abort` is set, queued bytes are still sent while the connection lingers.
    pub(super) fn close_stream(&mut self, now: Instant, id: ConnId, abort: bool) {
        let Some(entry) = self.sockets.get_mut(slot_of(id)) else { return };
        let Some(mut socket) = entry.take_if(|socket| socket.generation == id.generation) else { return };
        self.connections.fetch_sub(1, Ordering::Relaxed);
        let _ = self.poller.poll.registry().deregister(socket.transport.stream_mut());
        // A connection that was closed to make room has lost its permit. Lingering connections count toward
        // the limits, too, so it must not linger without a permit.
        let gave_way = socket.permit.is_none() && !socket.listener.is_empty();
        // The alert may be queued after bytes that a slow peer has not accepted. Closing now would reset the connection
        // if the peer's input is unread, so let it linger.
        if (!abort && !gave_way) || socket.alerted {
            let ended = socket.ended && !socket.alerted;
            self.lingering.add(now, socket.transport, socket.permit, ended);
        }
    }

    /// Takes an accepted connection without TLS out of the driver, for another worker. Returns `None` and closes the
    /// connection if it was selected in the meantime to be closed to make room.
    pub(super) fn take_out(&mut self, id: ConnId, peer: SocketAddr, received: Bytes) -> Option<Moved> {
        let entry = self.sockets.get_mut(slot_of(id))?;
        let mut socket = entry.take_if(|socket| socket.generation == id.generation)?;
        self.connections.fetch_sub(1, Ordering::Relaxed);
        let _ = self.poller.poll.registry().deregister(socket.transport.stream_mut());
        let stream = socket.transport.into_plain()?;
        Some(Moved { stream, peer, listener: socket.listener, permit: socket.permit?, received })
    }

    pub(super) fn limit_unsent(&mut self, id: ConnId, bytes: usize) {
        if let Some(socket) = self.socket(id)
            && let Err(error) = sys::set_unsent_limit(socket.transport.stream().as_fd(), bytes)
        {
            tracing::debug!(%error, "TCP_NOTSENT_LOWAT");
        }
    }

    pub(super) fn socket(&mut self, id: ConnId) -> Option<&mut Socket> {
        self.sockets.get_mut(slot_of(id))?.as_mut().filter(|socket| socket.generation == id.generation)
    }

    // ---- events

    pub(super) fn stream_event<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId, event: &Event) {
        // A late event may refer to an earlier connection of the slot.
        let Some(socket) = self.socket(id) else { return };
        let ends = event.is_read_closed() || event.is_error();
        if socket.connecting {
            self.connect_event(now, machine, id, ends);
            return;
        }
        if event.is_readable() || ends {
            socket.readable = true;
            socket.ending |= ends;
            self.make_ready(id);
        }
        if event.is_writable() {
            self.socket_writable(now, machine, id);
        }
    }

    /// Handles an event of a session that may have a byte stream as well as sockets of its own. The stream and the
    /// sockets share a token, so only reading shows which of them the event was for.
    pub(super) fn event_beside<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId, event: &Event) {
        let Some(socket) = self.socket(id) else { return };
        if socket.connecting {
            return self.connect_event(now, machine, id, false);
        }
        socket.readable = true;
        self.make_ready(id);
        if event.is_writable() {
            self.socket_writable(now, machine, id);
        }
    }

    /// Sends the bytes that TLS holds back. Once none are left, notifies the session that it may write.
    fn socket_writable<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId) {
        let Some(socket) = self.socket(id) else { return };
        match socket.transport.flush() {
            Ok(true) => machine.handle_writable(now, id),
            Ok(false) => {}
            Err(error) => machine.handle_write_error(now, id, &error),
        }
    }

    /// Handles the end of a connect: the socket is connected or has failed. `ending` is true if the peer has already
    /// closed its side.
    fn connect_event<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId, ending: bool) {
        let Some(socket) = self.socket(id) else { return };
        let Some(result) = socket.end_connect(ending) else { return };
        let path = PathId::default();
        match result {
            Err(error) => machine.handle_path(now, id, path, PathEvent::Broken(&error.to_string())),
            // With TLS, the session is notified later, once the peer is verified.
            Ok(()) if socket.transport.is_handshaking() => {}
            Ok(()) => {
                let local = socket.transport.stream().local_addr().ok();
                machine.handle_path(now, id, path, PathEvent::Open { local });
            }
        }
        self.make_ready(id);
    }

    // ---- reading

    pub(super) fn make_ready(&mut self, id: ConnId) {
        if let Some(socket) = self.socket(id)
            && !socket.ready
        {
            socket.ready = true;
            self.ready.push_back(id);
        }
    }

    /// Reads until the socket is empty, the state machine wants no more, or the turn's limit is reached. Returns true
    /// if the limit was reached.
    pub(super) fn read<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId) -> bool {
        let mut budget = self.bounds.read_turn;
        loop {
            if !machine.wants_bytes(id) {
                self.note_forsaken(now, machine, id);
                return false;
            }
            let Some(Some(socket)) = self.sockets.get_mut(slot_of(id)) else { return false };
            if !socket.readable || socket.ended {
                return false;
            }
            if socket.transport.is_handshaking() {
                // A peer must not use up the handshakes of the turn before its ClientHello is complete.
                match self.take_hello(now, machine, id) {
                    Ok(true) => {}
                    Ok(false) => return false,
                    Err(error) => {
                        self.read_failed(now, machine, id, &error);
                        return false;
                    }
                }
                let Some(left) = self.handshakes.checked_sub(1) else { return true };
                self.handshakes = left;
                if !self.begin_handshake(now, machine, id) {
                    return false;
                }
            }
            let Some(Some(socket)) = self.sockets.get_mut(slot_of(id)) else { return false };
            let received = socket.transport.read(&mut self.buffer);
            if socket.transport.take_handshake_end() {
                self.handshake_ended(now, machine, id);
            }
            let Some(Some(socket)) = self.sockets.get_mut(slot_of(id)) else { return false };
            match received {
                Ok(Received { bytes: 0, .. }) => {
                    socket.ended = true;
                    self.peer_ended(now, machine, id);
                    return false;
                }
                Ok(Received { bytes: count, dry }) => {
                    // A short read has emptied the socket, and the kernel will report bytes that arrive later. This
                    // saves a read that would only return `WouldBlock`.
                    socket.readable = socket.ending || !dry;
                    let bytes = self.buffer.get(..count).unwrap_or_default();
                    machine.handle_bytes(now, id, bytes);
                    budget = budget.saturating_sub(count);
                    if budget == 0 {
                        return true;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    socket.readable = false;
                    return false;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.read_failed(now, machine, id, &error);
                    return false;
                }
            }
        }
    }

    fn read_failed<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId, error: &io::Error) {
        let Some(socket) = self.socket(id) else { return };
        socket.ended = true;
        socket.alerted = error.kind() == io::ErrorKind::InvalidData;
        self.broken(now, machine, id, error);
    }

    /// Reports that a peer has left while a verdict about it is pending, so that it is not admitted. Its input is not
    /// read during that time, so its end would not be noticed otherwise.
    fn note_forsaken<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId) {
        let leaves = |socket: &mut Socket| socket.ending && !std::mem::replace(&mut socket.ended, true);
        if machine.waits_for_verdict(id) && self.socket(id).is_some_and(leaves) {
            let event = PathEvent::Broken("the peer left before the verdict");
            machine.handle_path(now, id, PathId::default(), event);
        }
    }

    /// Continues a connection whose TLS handshake has ended.
    fn handshake_ended<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId) {
        let Some(socket) = self.socket(id) else { return };
        if let Some(permit) = &mut socket.permit {
            permit.end_handshake();
        }
        if socket.tls.take().is_some() {
            let local = socket.transport.stream().local_addr().ok();
            machine.handle_path(now, id, PathId::default(), PathEvent::Open { local });
        } else if let Some(name) = socket.transport.negotiated() {
            machine.handle_path(now, id, PathId::default(), PathEvent::Negotiated(&name));
        }
        machine.handle_writable(now, id);
    }

    /// Handles the end of the peer's side. During a TLS handshake, the connection counts as broken.
    fn peer_ended<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId) {
        if self.socket(id).is_some_and(|socket| socket.transport.is_handshaking()) {
            self.broken(now, machine, id, &io::Error::other("the peer left the TLS handshake"));
        } else {
            machine.handle_path(now, id, PathId::default(), PathEvent::PeerClosed);
        }
    }

    pub(super) fn broken<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId, error: &io::Error) {
        let Some(socket) = self.socket(id) else { return };
        if let Some(permit) = &mut socket.permit {
            permit.end_handshake();
        }
        socket.tls = None;
        machine.handle_path(now, id, PathId::default(), PathEvent::Broken(&error.to_string()));
    }

    // ---- writing

    pub(super) fn write<M: Machine>(&mut self, now: Now, machine: &mut M, id: ConnId) -> usize {
        let (offered, result) = {
            let Some(Some(socket)) = self.sockets.get_mut(slot_of(id)) else { return 0 };
            if socket.generation != id.generation {
                return 0;
            }
            let mut gather = Gather::with_scratch(WRITE_BYTES, &mut self.writing.scratch);
            machine.gather(id, &mut gather);
            if gather.is_empty() {
                return 0;
            }
            (
                gather.bytes(),
                socket.transport.write(gather.slices(), gather.bytes(), &self.writing.blob_files),
            )
        };
        match result {
            Ok(taken) => {
                machine.sent(Instant::now(), id, taken, offered);
                taken
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                machine.sent(now.mono, id, 0, offered);
                0
            }
            // The write is retried in the next round of this turn.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                machine.retry_write(id);
                0
            }
            Err(error) => {
                machine.handle_write_error(now, id, &error);
                0
            }
        }
    }
}
