//! The loop of the load generator: many peers of `bench`, each behind a socket, driven over mio by one thread.
//!
//! Sockets are edge-triggered. What comes is stamped with the time after the read that brought it; what a publisher
//! sends is stamped before the write. [`run()`] makes a whole run of it, with several threads.

pub mod process;
mod run;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use rustls::ClientConfig;
use wire::{Datagrams, Gather, SendQueue};

use super::listen::open_udp;
use super::tls::{Transport, load_client};
use super::udp::{Batch, UdpSocket};
use crate::bench::{Now, Peer, PeerEvent, Role, Score, Tally, Target};
use crate::protocol::Remote;

pub use run::run;

/// Bytes of one read.
const READ_BYTES: usize = 256 * 1024;
/// Bytes of one write.
const WRITE_BYTES: usize = 256 * 1024;
/// A server that lets so much wait is not reading.
const QUEUE_BYTES_MAX: usize = 32 << 20;
/// Events of one poll.
const EVENTS: usize = 1024;

/// Where a connection goes.
#[derive(Debug, Clone)]
pub struct Destination {
    /// The address.
    pub address: SocketAddr,
    /// The name to verify, when under TLS.
    pub tls: Option<(String, Arc<ClientConfig>)>,
    /// In datagrams.
    pub datagrams: bool,
}

impl Destination {
    /// Looks the name up; blocks for it.
    ///
    /// # Errors
    /// There is no such name, or no TLS.
    pub fn resolve(target: &Target, insecure: bool) -> io::Result<Self> {
        let host = target.host();
        let mut addresses = (host, target.port()).to_socket_addrs()?;
        let address = addresses.next().ok_or_else(|| io::Error::other("the name has no address"))?;
        let mut to = Self::to(address, target.is_tls(), target.is_datagrams(), insecure)?;
        if let Some((name, _)) = &mut to.tls {
            host.clone_into(name);
        }
        Ok(to)
    }
}

/// What became of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// What its owner numbered it with.
    pub tag: usize,
    /// Whether the server had consented.
    pub ready: bool,
    /// Why it is gone; `None` while it is there.
    pub gone: Option<&'a str>,
    /// What it made or missed.
    pub score: Score,
}

impl Destination {
    /// An address, whose name is not looked up.
    ///
    /// # Errors
    /// No TLS.
    pub fn to(address: SocketAddr, tls: bool, datagrams: bool, insecure: bool) -> io::Result<Self> {
        let config = tls.then(|| load_client(insecure)).transpose().map_err(io::Error::other)?;
        Ok(Self { address, tls: config.map(|config| (address.ip().to_string(), config)), datagrams })
    }
}

#[derive(Debug)]
enum Wire {
    Bytes(Transport),
    Datagrams(UdpSocket),
}

#[derive(Debug)]
struct Conn {
    wire: Wire,
    tls: Option<(String, Arc<ClientConfig>)>,
    connected: bool,
    peer: Box<dyn Peer>,
    tag: usize,
    out: SendQueue,
    ready: bool,
    gone: Option<String>,
    /// When the heap wakes it.
    scheduled: Option<Instant>,
    /// Readable, and not read for its peer's sake.
    unread: bool,
    /// The kernel reported the end of the server's side: only a read of zero bytes is the end then.
    ending: bool,
}

/// The loop.
#[derive(Debug)]
pub struct Load {
    poll: Poll,
    events: Events,
    conns: Vec<Conn>,
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Never sleep: on loopback a server pays for each wake-up of a reader, and the faster the readers, the more.
    spin: bool,
    unsettled: usize,
    buffer: Vec<u8>,
    batch: Batch,
    datagrams: Datagrams,
    tallies: Tallies,
}

/// What both roles saw. A benchmark has both in one loop.
#[derive(Debug)]
struct Tallies {
    published: Tally,
    played: Tally,
}

impl Tallies {
    const fn of(&mut self, role: Role) -> &mut Tally {
        match role {
            Role::Publish => &mut self.published,
            Role::Play => &mut self.played,
        }
    }
}

impl Load {
    /// Without connections. A unit over `late` is late.
    ///
    /// # Errors
    /// The system has no poll to give.
    pub fn new(late: Duration, spin: bool) -> io::Result<Self> {
        Ok(Self {
            poll: Poll::new()?,
            events: Events::with_capacity(EVENTS),
            conns: Vec::new(),
            due: BinaryHeap::new(),
            spin,
            unsettled: 0,
            buffer: vec![0; READ_BYTES],
            batch: Batch::default(),
            datagrams: Datagrams::new(),
            tallies: Tallies { published: Tally::new(late), played: Tally::new(late) },
        })
    }

    /// The time, as peers want it.
    #[must_use]
    pub fn now() -> Now {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { mono: Instant::now(), unix_nanos: u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX) }
    }

    /// Begins a connection; `tag` is its owner's number for it.
    ///
    /// # Errors
    /// The system refuses, for instance for want of descriptors.
    pub fn open(&mut self, to: &Destination, peer: Box<dyn Peer>, tag: usize) -> io::Result<()> {
        let index = self.conns.len();
        let registry = self.poll.registry();
        let wire = if to.datagrams {
            let mut socket = UdpSocket::for_many(open_udp(None, Some(to.address))?)?;
            registry.register(&mut socket.socket, Token(index), Interest::READABLE)?;
            Wire::Datagrams(socket)
        } else {
            let mut stream = TcpStream::connect(to.address)?;
            let _ = stream.set_nodelay(true);
            registry.register(&mut stream, Token(index), Interest::READABLE | Interest::WRITABLE)?;
            Wire::Bytes(Transport::plain(stream))
        };
        self.conns.push(Conn {
            connected: to.datagrams,
            wire,
            tls: to.tls.clone(),
            peer,
            tag,
            out: SendQueue::new(),
            ready: false,
            gone: None,
            scheduled: None,
            unread: false,
            ending: false,
        });
        self.unsettled += 1;
        self.settle(index);
        Ok(())
    }

    /// Waits for what is due, until `limit` at most, and does it.
    ///
    /// # Errors
    /// The poll failed.
    pub fn turn(&mut self, limit: Instant) -> io::Result<()> {
        self.fire();
        let next = self.due.peek().map_or(limit, |Reverse((at, _))| limit.min(*at));
        let wait = if self.spin { Duration::ZERO } else { next.saturating_duration_since(Instant::now()) };
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            let index = event.token().0;
            if let Some(Conn { wire: Wire::Datagrams(socket), .. }) = self.conns.get_mut(index) {
                socket.readable = true;
                self.receive(index);
                continue;
            }
            if let Some(conn) = self.conns.get_mut(index) {
                conn.ending |= event.is_read_closed() || event.is_error();
            }
            if event.is_writable() || event.is_error() {
                self.connect(index);
                self.flush(index);
            }
            if event.is_readable() || event.is_read_closed() || event.is_error() {
                self.read(index);
            }
        }
        self.events = events;
        Ok(())
    }

    /// Turns for so long.
    ///
    /// # Errors
    /// The poll failed.
    pub fn run_for(&mut self, time: Duration) -> io::Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.turn(until)?;
        }
        Ok(())
    }

    /// Connections that are neither ready nor gone.
    #[must_use]
    pub const fn unsettled(&self) -> usize {
        self.unsettled
    }

    /// The measured time begins.
    pub fn clear(&mut self) {
        self.tallies.published.clear();
        self.tallies.played.clear();
    }

    /// What the peers of a role saw.
    #[must_use]
    pub const fn tally(&self, role: Role) -> &Tally {
        match role {
            Role::Publish => &self.tallies.published,
            Role::Play => &self.tallies.played,
        }
    }

    /// All connections, in the order they were opened.
    pub fn outcomes(&self) -> impl Iterator<Item = Outcome<'_>> {
        self.conns.iter().map(|conn| Outcome {
            tag: conn.tag,
            ready: conn.ready,
            gone: conn.gone.as_deref(),
            score: conn.peer.score(),
        })
    }

    /// Publishers stop behind their next video frame.
    pub fn finish(&mut self) {
        self.conns.iter_mut().for_each(|conn| conn.peer.finish());
    }

    /// Everybody says goodbye. What follows from it is no loss.
    pub fn close(&mut self) {
        let now = Self::now();
        for index in 0..self.conns.len() {
            if let Some(conn) = self.conns.get_mut(index).filter(|conn| conn.gone.is_none()) {
                conn.peer.close(now);
                self.drain(index);
            }
        }
    }

    // ---- inside

    fn fire(&mut self) {
        let now = Self::now();
        while let Some(Reverse((at, index))) = self.due.peek().copied()
            && at <= now.mono
        {
            self.due.pop();
            let Some(conn) = self.conns.get_mut(index) else { continue };
            if conn.scheduled != Some(at) {
                continue;
            }
            conn.scheduled = None;
            // The time of the write, not of the turn.
            let tally = self.tallies.of(conn.peer.role());
            conn.peer.handle_timeout(Self::now(), tally);
            self.settle(index);
        }
    }

    /// A writable socket is connected, or has an error.
    fn connect(&mut self, index: usize) {
        let Some(conn) = self.conns.get_mut(index).filter(|conn| !conn.connected && conn.gone.is_none())
        else {
            return;
        };
        let Wire::Bytes(transport) = &mut conn.wire else { return };
        let stream = transport.stream();
        match stream.take_error() {
            Ok(Some(error)) | Err(error) => return self.end(index, &error.to_string()),
            Ok(None) if stream.peer_addr().is_err() => return,
            Ok(None) => {}
        }
        conn.connected = true;
        if let Some((name, config)) = conn.tls.take()
            && let Err(error) = transport.begin_client(&config, &name)
        {
            self.end(index, &error.to_string());
        }
    }

    /// After any input of a peer: events, bytes, deadline.
    fn settle(&mut self, index: usize) {
        self.drain(index);
        let Some(conn) = self.conns.get_mut(index) else { return };
        while let Some(event) = conn.peer.poll_event() {
            match event {
                PeerEvent::Ready => {
                    self.unsettled -= usize::from(!conn.ready && conn.gone.is_none());
                    conn.ready = true;
                }
                PeerEvent::Closed(why) => {
                    self.unsettled -= usize::from(!conn.ready && conn.gone.is_none());
                    conn.gone.get_or_insert(why);
                    conn.peer.close(Self::now());
                }
            }
        }
        if conn.gone.is_some() {
            if let Wire::Bytes(transport) = &conn.wire {
                let _ = transport.stream().shutdown(Shutdown::Both);
            }
            return;
        }
        let deadline = conn.peer.poll_timeout();
        if let Some(at) = deadline
            && conn.scheduled.is_none_or(|scheduled| at < scheduled)
        {
            conn.scheduled = Some(at);
            self.due.push(Reverse((at, index)));
        }
        if conn.unread && conn.peer.wants_bytes() {
            self.read(index);
        }
    }

    fn drain(&mut self, index: usize) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        if matches!(conn.wire, Wire::Datagrams(_)) {
            return self.send(index);
        }
        conn.peer.poll_transmit(&mut conn.out);
        if conn.out.len() > QUEUE_BYTES_MAX {
            return self.end(index, "the server does not read");
        }
        self.flush(index);
    }

    fn flush(&mut self, index: usize) {
        let Some(conn) = self.conns.get_mut(index).filter(|conn| conn.connected) else { return };
        let Wire::Bytes(transport) = &mut conn.wire else { return };
        loop {
            let offered = conn.out.len();
            let mut gather = Gather::new(WRITE_BYTES);
            conn.out.gather(&mut gather);
            if gather.is_empty() {
                // What TLS has of its own.
                let _ = transport.flush();
                return;
            }
            match transport.write(gather.slices(), offered) {
                Ok(count) => {
                    conn.out.advance(count);
                    if conn.peer.role() == Role::Publish {
                        self.tallies.published.bytes += u64::try_from(count).unwrap_or(0);
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    // TLS takes nothing during its handshake, whose first flight waits in it.
                    let _ = transport.flush();
                    return;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The reading side knows why, and what came before it.
                Err(_) => return self.read(index),
            }
        }
    }

    /// Sends what a peer of datagrams has.
    fn send(&mut self, index: usize) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        let Wire::Datagrams(socket) = &conn.wire else { return };
        let Some(peer) = socket.peer() else { return };
        loop {
            self.datagrams.clear();
            conn.peer.poll_datagrams(Self::now(), &mut self.datagrams);
            if self.datagrams.is_empty() {
                return;
            }
            let (taken, _) = socket.send(Remote { peer, local: None }, &self.datagrams);
            if conn.peer.role() == Role::Publish {
                self.tallies.published.bytes += u64::try_from(taken).unwrap_or(0);
            }
        }
    }

    /// Reads what has come for a peer of datagrams.
    fn receive(&mut self, index: usize) {
        let Some(conn) = self.conns.get_mut(index).filter(|conn| conn.gone.is_none()) else { return };
        let Wire::Datagrams(socket) = &mut conn.wire else { return };
        while let Ok(messages) = socket.receive(&mut self.batch) {
            for (from, datagram) in self.batch.datagrams(messages) {
                if conn.peer.role() == Role::Play {
                    self.tallies.played.bytes += u64::try_from(datagram.len()).unwrap_or(0);
                }
                let tally = self.tallies.of(conn.peer.role());
                conn.peer.handle_datagram(Self::now(), from.peer, datagram, tally);
            }
        }
        self.settle(index);
    }

    fn read(&mut self, index: usize) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut settle = false;
        while let Some(conn) = self.conns.get_mut(index).filter(|conn| conn.connected && conn.gone.is_none())
        {
            conn.unread = !conn.peer.wants_bytes();
            if conn.unread {
                break;
            }
            let Wire::Bytes(transport) = &mut conn.wire else { break };
            match transport.read(&mut buffer) {
                Ok(received) if received.bytes == 0 => {
                    conn.peer.handle_hangup(Self::now(), None);
                    settle = true;
                    break;
                }
                Ok(received) => {
                    let bytes = buffer.get(..received.bytes).unwrap_or_default();
                    if conn.peer.role() == Role::Play {
                        self.tallies.played.bytes += u64::try_from(bytes.len()).unwrap_or(0);
                    }
                    let tally = self.tallies.of(conn.peer.role());
                    conn.peer.handle_bytes(Self::now(), bytes, tally);
                    settle = true;
                    // A short read has emptied the socket; what comes later is a new event.
                    if received.dry && !conn.ending {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    conn.peer.handle_hangup(Self::now(), Some(&error.to_string()));
                    settle = true;
                    break;
                }
            }
        }
        self.buffer = buffer;
        if settle {
            self.settle(index);
        }
        self.flush_handshake(index);
    }

    /// The end of a TLS handshake is no event of the kernel: what waited for it is sent now.
    fn flush_handshake(&mut self, index: usize) {
        if let Some(conn) = self.conns.get_mut(index)
            && let Wire::Bytes(transport) = &mut conn.wire
            && transport.take_handshake_end()
        {
            self.flush(index);
        }
    }

    fn end(&mut self, index: usize, why: &str) {
        let Some(conn) = self.conns.get_mut(index) else { return };
        conn.peer.handle_hangup(Self::now(), Some(why));
        if conn.gone.is_none() {
            self.unsettled -= usize::from(!conn.ready);
            conn.gone = Some(why.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Writes down what it hears.
    #[derive(Debug, Clone, Default)]
    struct Witness(Arc<Mutex<(usize, bool)>>);

    impl Peer for Witness {
        fn handle_bytes(&mut self, _now: Now, bytes: &[u8], _tally: &mut Tally) {
            self.0.lock().unwrap().0 += bytes.len();
        }

        fn handle_timeout(&mut self, _now: Now, _tally: &mut Tally) {}

        fn handle_hangup(&mut self, _now: Now, _why: Option<&str>) {
            self.0.lock().unwrap().1 = true;
        }

        fn poll_event(&mut self) -> Option<PeerEvent> {
            None
        }

        fn poll_transmit(&mut self, _out: &mut SendQueue) -> bool {
            false
        }

        fn poll_timeout(&self) -> Option<Instant> {
            None
        }

        fn close(&mut self, _now: Now) {}

        fn role(&self) -> Role {
            Role::Play
        }

        fn score(&self) -> Score {
            Score::None
        }
    }

    #[test]
    fn an_end_that_comes_with_the_last_bytes_is_seen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = Destination { address: listener.local_addr().unwrap(), tls: None, datagrams: false };
        let mut load = Load::new(Duration::from_secs(1), false).unwrap();
        let witness = Witness::default();
        load.open(&to, Box::new(witness.clone()), 0).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(b"the last words").unwrap();
        drop(server);
        // What comes in one wake-up is not told again: a few turns are all turns.
        for _ in 0..5 {
            load.turn(Instant::now() + Duration::from_millis(50)).unwrap();
        }
        assert_eq!(*witness.0.lock().unwrap(), (14, true));
    }
}
