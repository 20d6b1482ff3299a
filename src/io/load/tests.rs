//! The loop of the load generator, with peers that record what they receive.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use wire::{Datagrams, SendQueue};

use super::*;
use crate::bench::{PeerDatagrams, PeerEvent, PeerStream, Sockets};
use crate::io::driver::Machine;
use crate::protocol::{PathId, To};

#[derive(Debug, Default)]
struct Notes {
    /// Number of bytes received.
    bytes: usize,
    /// Number of bytes received before the end of the byte stream; `None` before the end.
    ended_after: Option<usize>,
    /// Bytes that the peer sends.
    says: Bytes,
    /// Time of the peer's only deadline.
    due: Option<Instant>,
}

#[derive(Debug, Clone, Default)]
struct Witness(Arc<Mutex<Notes>>);

impl Peer for Witness {
    fn handle_timeout(&mut self, _now: Now, _tally: &mut Tally) {
        self.0.lock().unwrap().due = None;
    }

    fn handle_hangup(&mut self, _now: Now, _why: Option<&str>) {
        let mut notes = self.0.lock().unwrap();
        let bytes = notes.bytes;
        notes.ended_after.get_or_insert(bytes);
    }

    fn close(&mut self, _now: Now) {}

    fn poll_event(&mut self) -> Option<PeerEvent> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.lock().unwrap().due
    }

    fn role(&self) -> Role {
        Role::Play
    }

    fn score(&self) -> Score {
        Score::None
    }

    fn byte_stream(&mut self) -> Option<&mut dyn PeerStream> {
        Some(self)
    }
}

impl PeerStream for Witness {
    fn handle_bytes(&mut self, _now: Now, bytes: &[u8], _tally: &mut Tally) {
        self.0.lock().unwrap().bytes += bytes.len();
    }

    fn wants_bytes(&self) -> bool {
        true
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        out.push(std::mem::take(&mut self.0.lock().unwrap().says));
    }
}

/// A peer that sends a request over a byte stream, gets the answer in datagrams, and sends its last message
/// over another byte stream.
#[derive(Debug, Default)]
struct Both {
    local: Option<SocketAddr>,
    to: Option<SocketAddr>,
    says: Bytes,
    heard: Vec<u8>,
    events: VecDeque<PeerEvent>,
}

impl Peer for Arc<Mutex<Both>> {
    fn handle_timeout(&mut self, _now: Now, _tally: &mut Tally) {}

    fn handle_hangup(&mut self, _now: Now, _why: Option<&str>) {
        self.lock().unwrap().heard.push(b'.');
    }

    fn close(&mut self, _now: Now) {
        let mut this = self.lock().unwrap();
        this.says = Bytes::from_static(b"bye");
        this.events.push_back(PeerEvent::Reconnect);
    }

    fn poll_event(&mut self) -> Option<PeerEvent> {
        self.lock().unwrap().events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn role(&self) -> Role {
        Role::Play
    }

    fn score(&self) -> Score {
        Score::None
    }

    fn byte_stream(&mut self) -> Option<&mut dyn PeerStream> {
        Some(self)
    }

    fn datagrams(&mut self) -> Option<&mut dyn PeerDatagrams> {
        Some(self)
    }
}

impl PeerStream for Arc<Mutex<Both>> {
    fn handle_bytes(&mut self, _now: Now, bytes: &[u8], _tally: &mut Tally) {
        self.lock().unwrap().heard.extend_from_slice(bytes);
    }

    fn wants_bytes(&self) -> bool {
        true
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        out.push(std::mem::take(&mut self.lock().unwrap().says));
    }
}

impl PeerDatagrams for Arc<Mutex<Both>> {
    fn handle_local(&mut self, _now: Now, _path: PathId, local: Option<SocketAddr>, _tally: &mut Tally) {
        let mut this = self.lock().unwrap();
        (this.local, this.says) = (local, Bytes::from_static(b"hello"));
    }

    fn handle_datagram(
        &mut self,
        _now: Now,
        _path: PathId,
        from: SocketAddr,
        datagram: &mut [u8],
        _tally: &mut Tally,
    ) {
        let mut this = self.lock().unwrap();
        this.heard.extend_from_slice(datagram);
        this.to = Some(from);
        this.events.push_back(PeerEvent::Ready);
    }

    fn poll_datagrams(&mut self, _now: Now, out: &mut Datagrams) -> To {
        let Some(to) = self.lock().unwrap().to.take() else { return To::PEER };
        out.push(b"thanks", &[]);
        To::of_socket(Some(to))
    }
}

#[test]
fn a_peer_of_both_asks_goes_on_in_datagrams_and_comes_again_to_say_goodbye() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let media = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let to = Destination::to(address, false, Sockets::StreamAndDatagrams, true).map(Arc::new).unwrap();
    let mut load = Load::new(Duration::from_secs(1), false).unwrap();
    let peer = Arc::new(Mutex::new(Both::default()));
    load.open(&to, Box::new(Arc::clone(&peer)), 0).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    turn(&mut load);
    let mut asked = [0; 5];
    server.read_exact(&mut asked).unwrap();
    server.write_all(b"yes").unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    turn(&mut load);
    assert_eq!((&asked, load.unsettled()), (b"hello", 1));
    server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(server.read(&mut asked).unwrap(), 0, "the byte stream is given back");

    // The peer continues after the end of its byte stream. Media is accepted from any address.
    let local = peer.lock().unwrap().local.unwrap();
    assert!(local.ip() == address.ip() && local.port() > 0);
    media.send_to(b"media", local).unwrap();
    turn(&mut load);
    let mut thanks = [0; 20];
    assert_eq!(media.recv_from(&mut thanks).unwrap(), (6, local));
    assert_eq!((&thanks[..6], load.unsettled()), (&b"thanks"[..], 0));
    assert_eq!(peer.lock().unwrap().heard, b"yes.media");
    let outcome = load.outcomes().next().unwrap();
    assert!(outcome.ready && outcome.gone.is_none());

    load.close();
    turn(&mut load);
    let (mut server, _) = listener.accept().unwrap();
    let mut goodbye = [0; 3];
    server.read_exact(&mut goodbye).unwrap();
    assert_eq!(&goodbye, b"bye");
    // Bytes received on the socket count like those of the byte stream.
    assert_eq!(load.tally(Role::Play).bytes, 3 + 5);
}

/// Makes a loop with one witness, which sends `says` first. Also returns the server's end of its connection.
fn connected(says: &'static [u8]) -> (Load, Witness, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to =
        Destination::to(listener.local_addr().unwrap(), false, Sockets::Stream, true).map(Arc::new).unwrap();
    let mut load = Load::new(Duration::from_secs(1), false).unwrap();
    let witness = Witness::default();
    witness.0.lock().unwrap().says = Bytes::from_static(says);
    load.open(&to, Box::new(witness.clone()), 0).unwrap();
    let (server, _) = listener.accept().unwrap();
    (load, witness, server)
}

/// Runs a few turns. The events of one wake-up are reported only once, so a single turn might not be enough.
fn turn(load: &mut Load) {
    for _ in 0..5 {
        load.turn(Instant::now() + Duration::from_millis(50)).unwrap();
    }
}

#[test]
fn an_end_that_comes_with_the_last_bytes_is_seen() {
    let (mut load, witness, mut server) = connected(b"");
    server.write_all(b"the last words").unwrap();
    drop(server);
    turn(&mut load);
    assert_eq!(witness.0.lock().unwrap().ended_after, Some(14));
    assert_eq!(load.tally(Role::Play).bytes, 14);
}

#[test]
fn a_server_is_heard_to_the_end_by_a_peer_whose_write_fails() {
    let (mut load, witness, mut server) = connected(b"hello");
    turn(&mut load);
    server.peek(&mut [0; 5]).unwrap();
    server.write_all(b"the last words").unwrap();
    // Some of the peer's bytes are unread: the connection is reset, and the next write fails.
    drop(server);
    witness.0.lock().unwrap().says = Bytes::from_static(b"more");
    load.close();
    turn(&mut load);
    assert_eq!(witness.0.lock().unwrap().ended_after, Some(14));
}

#[test]
fn a_server_that_lets_too_much_wait_is_given_up() {
    let (mut load, witness, mut server) = connected(b"hello");
    turn(&mut load);
    witness.0.lock().unwrap().says = vec![0; 33 << 20].into();
    load.close();
    turn(&mut load);
    assert_eq!(load.outcomes().next().unwrap().gone, Some("the server does not read"));
    assert_eq!(load.unsettled(), 0);
    // The connection is closed as well.
    let mut received = Vec::new();
    server.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"hello");
}

#[test]
fn a_loop_that_spins_does_not_wait() {
    let mut load = Load::new(Duration::from_secs(1), true).unwrap();
    load.turn(Instant::now() + Duration::from_secs(3600)).unwrap();
}

#[test]
fn what_is_due_is_sent_before_the_next_peer_is_asked() {
    let tally = || Tally::new(Duration::from_secs(1));
    let mut generator = Generator::new(Tallies { published: tally(), played: tally() });
    let now = clock::now();
    let peers = [Witness::default(), Witness::default()];
    let to =
        Destination::to("127.0.0.1:1".parse().unwrap(), false, Sockets::Stream, true).map(Arc::new).unwrap();
    for peer in &peers {
        peer.0.lock().unwrap().due = Some(now.mono);
        generator.add(Box::new(peer.clone()), 0, &to, None);
    }
    generator.finish_turn();
    let due = || peers.iter().filter(|peer| peer.0.lock().unwrap().due.is_some()).count();
    assert!(generator.handle_timeout(now), "there is another");
    assert_eq!(due(), 1);
    assert!(!generator.handle_timeout(now));
    assert_eq!(due(), 0);
}
