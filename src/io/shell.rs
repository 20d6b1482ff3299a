//! The shell of a worker: its poll, its sockets, its clock. It does what the machine asks and tells it what
//! happened; it knows bytes, and nothing of media.
//!
//! Sockets are edge-triggered. A readable socket stays on the ready list until it was read dry, with a bound per
//! turn, so that one loud peer cannot starve the rest; a socket that refuses bytes is left alone until the kernel
//! reports it writable. Datagrams have their own half of it (`datagrams`).

mod datagrams;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use wire::{Datagrams, Gather, SCRATCH_BYTES};

use super::budget::{Budget, Permit};
use super::clock;
use super::control_thread::{ControlMail, ControlSender};
use super::jobs::{Asker, Jobs};
use super::linger::Lingerers;
use super::mailbox::{Handover, Mail, MailSender, Mailbox};
use super::sys;
use super::tls::{Configs, Received, Transport};
use super::udp::{Batch, Peer, UdpSocket};
use crate::protocol::{Listener, PathEvent, PathId, Port, Security};
use crate::types::{ConnId, Now, SessionRef, WorkerId};
use crate::worker::{Output, Way, Worker};

/// The wake-up's token.
const WAKE: Token = Token(usize::MAX);
/// Listeners, and behind them ports, count down from here.
const LISTENERS: usize = usize::MAX - 1;
/// Events of one poll.
const EVENTS: usize = 1024;
/// Bytes of one read.
const READ_BYTES: usize = 64 * 1024;
/// Bytes read of one socket in one turn.
const READ_TURN_BYTES: usize = 256 * 1024;
/// Bytes of one write.
const WRITE_BYTES: usize = 256 * 1024;
/// Bytes written in one turn, before sockets are looked at again.
const WRITE_TURN_BYTES: usize = 8 * 1024 * 1024;
/// Connections accepted of one listener in one turn.
const ACCEPT_TURN: usize = 64;
/// Pause after the process ran out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// TLS handshakes that one turn works on: their arithmetic must not hold up media.
const HANDSHAKES_TURN: u32 = 4;
/// A worker hands a new connection over when it has over 25 % and so many more than the least loaded.
const HANDOVER_SLACK: u32 = 8;

#[derive(Debug)]
struct Socket {
    generation: u32,
    transport: Transport,
    /// The kernel may have bytes for us.
    readable: bool,
    /// On the ready list.
    ready: bool,
    connecting: bool,
    /// Verified in the TLS handshake of an outgoing connection, once that begins.
    tls_name: Option<Box<str>>,
    /// The kernel reported the peer's end of stream: only a read of zero bytes is the end then.
    ending: bool,
    /// The peer's end of stream was read.
    ended: bool,
    /// TLS has ended with an alert that the peer is to hear.
    alerted: bool,
    place: Option<Permit>,
}

impl Socket {
    const fn new(id: ConnId, transport: Transport) -> Self {
        Self {
            generation: id.generation,
            transport,
            readable: false,
            ready: false,
            connecting: false,
            tls_name: None,
            ending: false,
            ended: false,
            alerted: false,
            place: None,
        }
    }

    /// Begins the handshake of an outgoing connection that has a name to verify.
    fn begin_tls(&mut self, config: &Arc<rustls::ClientConfig>) -> io::Result<()> {
        if let Some(name) = &self.tls_name {
            self.transport.begin_client(config, name)?;
            self.transport.flush()?;
        }
        Ok(())
    }
}

/// What a shell is made of.
pub(super) struct Parts {
    pub(super) id: WorkerId,
    pub(super) poll: Poll,
    pub(super) mailbox: Mailbox,
    pub(super) listeners: Vec<(&'static Listener, TcpListener)>,
    /// UDP ports that many peers share.
    pub(super) ports: Vec<(&'static Port, UdpSocket)>,
    pub(super) peers: Vec<MailSender>,
    pub(super) control_sender: ControlSender,
    pub(super) jobs: Jobs,
    pub(super) budget: Arc<Budget>,
    /// Connections of each worker.
    pub(super) loads: Arc<[AtomicU32]>,
    pub(super) seed: crypto::Seed,
    /// The same for all workers.
    pub(super) common: crypto::Seed,
    /// What TLS connections are made from.
    pub(super) tls: Configs,
}

/// The shell.
pub(super) struct Shell {
    parts: Parts,
    worker: Worker,
    sockets: Vec<Option<Socket>>,
    /// Connections of datagrams, by slot too.
    peers: Vec<Option<Peer>>,
    batch: Batch,
    datagrams: Datagrams,
    ready: VecDeque<ConnId>,
    lingering: Lingerers,
    /// TLS handshakes that this turn may still work on.
    handshakes: u32,
    buffer: Vec<u8>,
    /// Bytes that are made for one write alone.
    scratch: Vec<u8>,
    accepting: bool,
    accept_paused_until: Option<Instant>,
    pending_accept: bool,
    drained: bool,
}

impl Shell {
    pub(super) fn new(mut parts: Parts) -> io::Result<Self> {
        for (index, (_, listener)) in parts.listeners.iter_mut().enumerate() {
            parts.poll.registry().register(listener, Token(LISTENERS - index), Interest::READABLE)?;
        }
        let first = LISTENERS - parts.listeners.len();
        for (index, (_, port)) in parts.ports.iter_mut().enumerate() {
            parts.poll.registry().register(&mut port.socket, Token(first - index), Interest::READABLE)?;
        }
        let worker = Worker::new(parts.id, clock::now(), parts.seed.clone(), &parts.common);
        Ok(Self {
            parts,
            worker,
            sockets: Vec::new(),
            peers: Vec::new(),
            batch: Batch::default(),
            datagrams: Datagrams::new(),
            ready: VecDeque::new(),
            lingering: Lingerers::new(Instant::now()),
            handshakes: 0,
            buffer: vec![0; READ_BYTES],
            scratch: vec![0; SCRATCH_BYTES],
            accepting: true,
            accept_paused_until: None,
            pending_accept: true,
            drained: false,
        })
    }

    /// The token of a port.
    const fn port_token(&self, index: usize) -> Token {
        Token(LISTENERS - self.parts.listeners.len() - index)
    }

    /// The wake-up's token, for the mailbox.
    pub(super) const fn wake_token() -> Token {
        WAKE
    }

    /// Runs until the worker is drained and the last goodbye was taken, or had its time.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        while !self.drained || !self.lingering.is_empty() {
            let timeout = self.sleep();
            if let Err(error) = self.parts.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, worker = self.parts.id.0, "poll failed");
                return;
            }
            self.parts.mailbox.awake();
            let now = clock::now();
            self.mail(now);
            for event in &events {
                self.socket_event(now, event);
            }
            self.accept_pending(now);
            self.read_ready(now);
            self.read_ports(now);
            if self.worker.poll_timeout().is_some_and(|due| due <= now.mono) {
                self.worker.handle_timeout(now);
            }
            self.finish(now);
            self.lingering.turn(now.mono, &mut self.buffer);
            self.worker.note_turn(now.mono.elapsed(), self.parts.mailbox.waiting());
        }
    }

    /// How long to wait: not at all while there is work, else until the next deadline.
    fn sleep(&mut self) -> Option<Duration> {
        let ports_ready = self.parts.ports.iter().any(|(_, port)| port.readable);
        if ports_ready
            || !self.ready.is_empty()
            || self.worker.has_writes()
            || !self.parts.mailbox.may_sleep()
        {
            return Some(Duration::ZERO);
        }
        let linger = self.lingering.period();
        let now = Instant::now();
        let until = |due: Instant| due.saturating_duration_since(now);
        let muted = self.muted_until().map(until);
        [self.worker.poll_timeout().map(until), self.accept_paused_until.map(until), linger, muted]
            .into_iter()
            .flatten()
            .min()
    }

    fn mail(&mut self, now: Now) {
        while let Some(mail) = self.parts.mailbox.next() {
            match mail {
                Mail::Control(mail) => {
                    self.accepting &= !matches!(mail, crate::mail::ToWorker::Drain);
                    self.worker.handle_mail(now, mail);
                }
                Mail::Mirrored(unit) => self.worker.handle_mirrored(now, unit),
                Mail::Tls(configs) => self.parts.tls = configs,
                Mail::Socket(handover) => {
                    // Counted since it was handed over, so that a burst is spread; counted anew with its socket.
                    self.load().fetch_sub(1, Ordering::Relaxed);
                    self.begin(now, handover);
                }
            }
        }
    }

    // ---- events

    fn socket_event(&mut self, now: Now, event: &mio::event::Event) {
        let token = event.token();
        if token == WAKE {
            return;
        }
        if token.0 > LISTENERS - self.parts.listeners.len() {
            self.pending_accept = true;
            return;
        }
        let first_port = LISTENERS - self.parts.listeners.len();
        if let Some((_, port)) =
            first_port.checked_sub(token.0).and_then(|index| self.parts.ports.get_mut(index))
        {
            port.readable = true;
            return;
        }
        let Some(id) = conn_of(token) else { return };
        if let Some(peer) = self.peer(id).filter(|peer| !peer.own.is_empty()) {
            peer.own.iter_mut().for_each(|(_, own)| own.readable = true);
            self.ready.push_back(id);
            return;
        }
        // A stale event names a generation that is gone.
        let Some(socket) = self.socket(id) else { return };
        if socket.connecting {
            self.connect_event(now, id, event.is_read_closed() || event.is_error());
            return;
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            socket.readable = true;
            socket.ending |= event.is_read_closed() || event.is_error();
            self.make_ready(id);
        }
        if event.is_writable() {
            self.socket_writable(now, id);
        }
    }

    /// What TLS holds back goes first; only an empty transport takes more.
    fn socket_writable(&mut self, now: Now, id: ConnId) {
        let Some(socket) = self.socket(id) else { return };
        match socket.transport.flush() {
            Ok(true) => self.worker.handle_writable(now, id),
            Ok(false) => {}
            Err(error) => {
                let reason = error.to_string();
                self.worker.handle_path(now, id, PathId::default(), PathEvent::Broken(&reason));
            }
        }
    }

    /// A connect is finished when the socket has a peer or an error; `ending`: the peer has closed its side already.
    fn connect_event(&mut self, now: Now, id: ConnId, ending: bool) {
        let client = Arc::clone(&self.parts.tls.client);
        let Some(socket) = self.socket(id) else { return };
        let result = match socket.transport.stream().take_error() {
            Ok(Some(error)) | Err(error) => Err(error.to_string()),
            Ok(None) => match socket.transport.stream().peer_addr() {
                Ok(_) => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return,
                Err(error) => Err(error.to_string()),
            },
        };
        socket.connecting = false;
        socket.readable = true;
        socket.ending = ending;
        let result = result.and_then(|()| socket.begin_tls(&client).map_err(|error| error.to_string()));
        // With TLS the session hears of it when the peer is verified.
        if result.is_err() || !socket.transport.is_handshaking() {
            self.worker.handle_path(now, id, PathId::default(), path_event(&result));
        }
        self.make_ready(id);
    }

    fn accept_pending(&mut self, now: Now) {
        if self.accept_paused_until.is_some_and(|until| until <= now.mono) {
            self.accept_paused_until = None;
            self.pending_accept = true;
        }
        if !self.pending_accept || self.accept_paused_until.is_some() || !self.accepting {
            return;
        }
        self.pending_accept = false;
        for index in 0..self.parts.listeners.len() {
            for accepted in 0.. {
                if accepted == ACCEPT_TURN {
                    self.pending_accept = true;
                    // A further accept needs a turn without sleep.
                    self.accept_paused_until = Some(now.mono);
                    break;
                }
                let Some((listener, socket)) = self.parts.listeners.get(index) else { break };
                let listener = *listener;
                match socket.accept() {
                    Ok((stream, peer)) => self.admit(now, stream, peer, listener),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        if is_out_of_descriptors(&error) {
                            tracing::warn!(%error, "accepting pauses");
                            self.accept_paused_until = Some(now.mono + ACCEPT_PAUSE);
                            return;
                        }
                        tracing::debug!(%error, "accept failed");
                    }
                }
            }
        }
    }

    fn admit(&mut self, now: Now, stream: TcpStream, peer: SocketAddr, listener: &'static Listener) {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let permit = match self.parts.budget.admit(peer, now.mono) {
            Ok(permit) => permit,
            Err(why) => {
                tracing::debug!(%peer, ?why, "connection refused");
                self.worker.note_refused(why);
                return;
            }
        };
        let handover = Handover { stream, peer, listener, permit };
        let target = self.less_loaded();
        match target.and_then(|index| Some((self.parts.peers.get(index)?, self.parts.loads.get(index)?))) {
            Some((peer, load)) => {
                load.fetch_add(1, Ordering::Relaxed);
                peer.post(Mail::Socket(handover));
            }
            None => self.begin(now, handover),
        }
    }

    /// The least loaded worker, when this one has clearly more to do.
    fn less_loaded(&self) -> Option<usize> {
        let own = self.load().load(Ordering::Relaxed);
        let loads = self.parts.loads.iter().map(|load| load.load(Ordering::Relaxed));
        let (index, least) = loads.enumerate().min_by_key(|(_, load)| *load)?;
        let bound = least.saturating_add(least / 4).saturating_add(HANDOVER_SLACK);
        (own > bound && index != usize::from(self.parts.id.0)).then_some(index)
    }

    fn begin(&mut self, now: Now, handover: Handover) {
        let Handover { stream, peer, listener, permit } = handover;
        // A slot that was freed in this turn may be given out again: its former socket must be gone by then.
        while let Some(output) = self.worker.poll_output() {
            self.perform(now, output);
        }
        let _ = stream.set_nodelay(true);
        let Some(transport) = self.accepted(stream, listener) else { return };
        let Some(id) = self.worker.accept(now, listener, peer) else { return };
        self.install(now, id, Socket { place: Some(permit), ..Socket::new(id, transport) });
    }

    /// The transport that the listener speaks.
    fn accepted(&self, stream: TcpStream, listener: &'static Listener) -> Option<Transport> {
        let config = match listener.security {
            Security::Plain => return Some(Transport::plain(stream)),
            Security::Tls => &self.parts.tls.plain,
            Security::TlsHttp => &self.parts.tls.http,
        };
        Transport::server(stream, config)
            .inspect_err(|error| tracing::debug!(%error, "TLS connection not begun"))
            .ok()
    }

    fn install(&mut self, now: Now, id: ConnId, mut socket: Socket) {
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered =
            self.parts.poll.registry().register(socket.transport.stream_mut(), token_of(id), interest);
        let slot = usize::try_from(id.slot).unwrap_or(usize::MAX);
        if self.sockets.len() <= slot {
            self.sockets.resize_with(slot.saturating_add(1), || None);
        }
        if let Some(entry) = self.sockets.get_mut(slot) {
            *entry = Some(socket);
            self.load().fetch_add(1, Ordering::Relaxed);
        }
        if let Err(error) = registered {
            self.worker.handle_path(now, id, PathId::default(), PathEvent::Broken(&error.to_string()));
        }
    }

    // ---- reading

    fn make_ready(&mut self, id: ConnId) {
        if let Some(socket) = self.socket(id)
            && !socket.ready
        {
            socket.ready = true;
            self.ready.push_back(id);
        }
    }

    fn read_ready(&mut self, now: Now) {
        self.handshakes = HANDSHAKES_TURN;
        for _ in 0..self.ready.len() {
            let Some(id) = self.ready.pop_front() else { return };
            if self.peer(id).is_some() {
                self.read_own(now, id);
            } else if let Some(socket) = self.socket(id) {
                socket.ready = false;
                if self.read(now, id) {
                    self.make_ready(id);
                }
            }
        }
    }

    /// Reads until the socket is dry, the worker has enough, or the turn's share is used: then true.
    fn read(&mut self, now: Now, id: ConnId) -> bool {
        let mut budget = READ_TURN_BYTES;
        loop {
            if !self.worker.wants_bytes(id) {
                self.note_forsaken(now, id);
                return false;
            }
            let slot = usize::try_from(id.slot).unwrap_or(usize::MAX);
            let Some(Some(socket)) = self.sockets.get_mut(slot) else { return false };
            if !socket.readable || socket.ended {
                return false;
            }
            if socket.transport.is_handshaking() {
                let Some(left) = self.handshakes.checked_sub(1) else { return true };
                self.handshakes = left;
                // Only now: a peer that says nothing must not keep the others out.
                if let Some(Err(why)) = socket.place.as_mut().map(Permit::begin_handshake) {
                    socket.ended = true;
                    self.worker.note_refused(why);
                    self.broken(now, id, &io::Error::other("too many TLS handshakes"));
                    return false;
                }
            }
            let received = socket.transport.read(&mut self.buffer);
            if socket.transport.take_handshake_end() {
                self.handshake_ended(now, id);
            }
            let Some(Some(socket)) = self.sockets.get_mut(slot) else { return false };
            match received {
                Ok(Received { bytes: 0, .. }) => {
                    socket.ended = true;
                    self.peer_ended(now, id);
                    return false;
                }
                Ok(Received { bytes: count, dry }) => {
                    // A short read has emptied the socket; what comes later is reported anew. It saves the read that
                    // would only say so.
                    socket.readable = socket.ending || !dry;
                    let bytes = self.buffer.get(..count).unwrap_or_default();
                    self.worker.handle_bytes(now, id, bytes);
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
                    socket.ended = true;
                    socket.alerted = error.kind() == io::ErrorKind::InvalidData;
                    self.broken(now, id, &error);
                    return false;
                }
            }
        }
    }

    /// Nothing is read while a verdict is waited for; a peer that leaves meanwhile must not be admitted.
    fn note_forsaken(&mut self, now: Now, id: ConnId) {
        let leaves = |socket: &mut Socket| socket.ending && !std::mem::replace(&mut socket.ended, true);
        if self.worker.waits_for_verdict(id) && self.socket(id).is_some_and(leaves) {
            self.worker.handle_path(
                now,
                id,
                PathId::default(),
                PathEvent::Broken("the peer left before the verdict"),
            );
        }
    }

    /// The peers of a TLS connection know each other: what waited for it goes on.
    fn handshake_ended(&mut self, now: Now, id: ConnId) {
        let Some(socket) = self.socket(id) else { return };
        if let Some(place) = &mut socket.place {
            place.end_handshake();
        }
        if socket.tls_name.take().is_some() {
            self.worker.handle_path(now, id, PathId::default(), PathEvent::Open { local: None });
        }
        self.worker.handle_writable(now, id);
    }

    /// The end of the peer's side; in the midst of a handshake there is nobody to talk to.
    fn peer_ended(&mut self, now: Now, id: ConnId) {
        if self.socket(id).is_some_and(|socket| socket.transport.is_handshaking()) {
            self.broken(now, id, &io::Error::other("the peer left the TLS handshake"));
        } else {
            self.worker.handle_path(now, id, PathId::default(), PathEvent::PeerClosed);
        }
    }

    fn broken(&mut self, now: Now, id: ConnId, error: &io::Error) {
        let Some(socket) = self.socket(id) else { return };
        if let Some(place) = &mut socket.place {
            place.end_handshake();
        }
        if socket.tls_name.take().is_some() {
            let reason = error.to_string();
            self.worker.handle_path(now, id, PathId::default(), PathEvent::Broken(&reason));
        } else {
            self.worker.handle_path(now, id, PathId::default(), PathEvent::Broken(&error.to_string()));
        }
    }

    // ---- the end of a turn

    /// Drains sessions, writes, and does what the worker asks, until nothing follows from it any more.
    fn finish(&mut self, now: Now) {
        self.worker.finish_turn();
        let mut written = 0;
        loop {
            while written < WRITE_TURN_BYTES {
                let Some((id, way)) = self.worker.next_write() else { break };
                let bytes = match way {
                    Way::Datagrams => self.write_datagrams(now, id),
                    Way::Bytes => self.write(now, id),
                };
                written = written.saturating_add(bytes);
            }
            self.worker.finish_turn();
            let mut any = false;
            while let Some(output) = self.worker.poll_output() {
                any = true;
                self.perform(now, output);
            }
            if !any && (written >= WRITE_TURN_BYTES || !self.worker.has_writes()) {
                return;
            }
        }
    }

    fn write(&mut self, now: Now, id: ConnId) -> usize {
        let slot = usize::try_from(id.slot).unwrap_or(usize::MAX);
        let (offered, result) = {
            let Some(Some(socket)) = self.sockets.get_mut(slot) else { return 0 };
            if socket.generation != id.generation {
                return 0;
            }
            let mut gather = Gather::with_scratch(WRITE_BYTES, &mut self.scratch);
            self.worker.gather(id, &mut gather);
            if gather.is_empty() {
                return 0;
            }
            (gather.bytes(), socket.transport.write(gather.slices(), gather.bytes()))
        };
        match result {
            Ok(taken) => {
                self.worker.sent(Instant::now(), id, taken, offered);
                taken
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.worker.sent(now.mono, id, 0, offered);
                0
            }
            // Tried again in the next round of this turn.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.worker.retry_write(id);
                0
            }
            Err(error) => {
                self.worker.handle_path(now, id, PathId::default(), PathEvent::Broken(&error.to_string()));
                0
            }
        }
    }

    fn perform(&mut self, now: Now, output: Output) {
        match output {
            Output::Control(mail) => {
                if matches!(mail, crate::mail::ToControl::Drained(_)) {
                    self.drained = true;
                    self.lingering.hurry(now.mono);
                }
                self.parts.control_sender.send(ControlMail::Worker(mail));
            }
            Output::Worker(to, mail) => self.post(to, Mail::Control(mail)),
            Output::Others(mail) => {
                let others =
                    (0u16..).zip(self.parts.peers.iter()).filter(|(index, _)| *index != self.parts.id.0);
                others.for_each(|(_, sender)| sender.post(Mail::Control(mail.clone())));
            }
            Output::Mirrored(to, unit) => self.post(to, Mail::Mirrored(unit)),
            Output::Connect { conn, address, tls_name } => self.connect(now, conn, address, tls_name),
            Output::OpenUdp { conn, path, bind, to } => self.open_udp(now, conn, path, bind, to),
            Output::CloseUdp { conn, path } => self.close_udp(conn, path),
            Output::Job { conn, job } => {
                let asker = Asker::Session(SessionRef::new(self.parts.id, conn));
                if let Some(done) = self.parts.jobs.submit(asker, job) {
                    self.worker.handle_mail(now, crate::mail::ToWorker::Job { conn, done });
                }
            }
            Output::Resume(id) => self.make_ready(id),
            Output::UnsentLimit { conn, bytes } => {
                if let Some(socket) = self.socket(conn)
                    && let Err(error) = sys::set_unsent_limit(socket.transport.stream().as_fd(), bytes)
                {
                    tracing::debug!(%error, "TCP_NOTSENT_LOWAT");
                }
            }
            Output::Authenticated(id) => {
                let of_peer = self.peer(id).and_then(|peer| peer.permit.as_mut());
                if let Some(place) = of_peer {
                    place.known();
                } else if let Some(place) = self.socket(id).and_then(|socket| socket.place.as_mut()) {
                    place.known();
                }
            }
            Output::Close { conn, abort } => self.close(now.mono, conn, abort),
        }
    }

    fn post(&self, to: WorkerId, mail: Mail) {
        if let Some(sender) = self.parts.peers.get(usize::from(to.0)) {
            sender.post(mail);
        }
    }

    fn connect(&mut self, now: Now, id: ConnId, address: SocketAddr, tls_name: Option<Box<str>>) {
        match TcpStream::connect(address) {
            Ok(stream) => {
                let _ = stream.set_nodelay(true);
                let socket =
                    Socket { connecting: true, tls_name, ..Socket::new(id, Transport::plain(stream)) };
                self.install(now, id, socket);
            }
            Err(error) => {
                let reason = error.to_string();
                self.worker.handle_path(now, id, PathId::default(), PathEvent::Broken(&reason));
            }
        }
    }

    fn close(&mut self, now: Instant, id: ConnId, abort: bool) {
        if self.close_peer(id) {
            return;
        }
        let slot = usize::try_from(id.slot).unwrap_or(usize::MAX);
        let Some(entry) = self.sockets.get_mut(slot) else { return };
        let Some(mut socket) = entry.take_if(|socket| socket.generation == id.generation) else { return };
        self.load().fetch_sub(1, Ordering::Relaxed);
        let _ = self.parts.poll.registry().deregister(socket.transport.stream_mut());
        // An alert may wait behind what a slow peer has not taken, and what the peer has sent since is unread.
        if !abort || socket.alerted {
            let ended = socket.ended && !socket.alerted;
            self.lingering.add(now, socket.transport, socket.place, ended);
        }
    }

    fn socket(&mut self, id: ConnId) -> Option<&mut Socket> {
        let slot = usize::try_from(id.slot).ok()?;
        self.sockets.get_mut(slot)?.as_mut().filter(|socket| socket.generation == id.generation)
    }

    fn load(&self) -> &AtomicU32 {
        static NOWHERE: AtomicU32 = AtomicU32::new(0);
        self.parts.loads.get(usize::from(self.parts.id.0)).unwrap_or(&NOWHERE)
    }
}

/// Slot in the low half, generation (31 bits) in the high one.
fn token_of(id: ConnId) -> Token {
    let packed = (u64::from(id.generation) << 32) | u64::from(id.slot);
    Token(usize::try_from(packed).unwrap_or(0))
}

fn conn_of(token: Token) -> Option<ConnId> {
    let packed = u64::try_from(token.0).ok()?;
    let slot = u32::try_from(packed & 0xffff_ffff).ok()?;
    Some(ConnId { slot, generation: u32::try_from(packed >> 32).ok()? })
}

/// EMFILE and ENFILE: the process or the machine has no descriptor left.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// What a session hears of an outgoing connection.
fn path_event(result: &Result<(), String>) -> PathEvent<'_> {
    match result {
        Ok(()) => PathEvent::Open { local: None },
        Err(reason) => PathEvent::Broken(reason),
    }
}
