//! The loop with peers that write down what they hear.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use wire::SendQueue;

use super::*;
use crate::bench::{PeerEvent, PeerStream};
use crate::io::driver::Machine;

#[derive(Debug, Default)]
struct Notes {
    /// How many bytes came.
    bytes: usize,
    /// How many of them came before the end.
    ended_after: Option<usize>,
    /// What it is to send.
    says: Bytes,
    /// When it is due, once.
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

/// A loop with one witness, who says this first, and the server's end of its connection.
fn connected(says: &'static [u8]) -> (Load, Witness, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Destination { address: listener.local_addr().unwrap(), tls: None, datagrams: false };
    let mut load = Load::new(Duration::from_secs(1), false).unwrap();
    let witness = Witness::default();
    witness.0.lock().unwrap().says = Bytes::from_static(says);
    load.open(&to, Box::new(witness.clone()), 0).unwrap();
    let (server, _) = listener.accept().unwrap();
    (load, witness, server)
}

/// What comes in one wake-up is not told again: a few turns are all turns.
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
    // Something of the peer is unread: the connection is reset, and the next write fails.
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
    // And the connection is closed.
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
    for peer in &peers {
        peer.0.lock().unwrap().due = Some(now.mono);
        generator.add(Box::new(peer.clone()), 0, false);
    }
    generator.finish_turn();
    let due = || peers.iter().filter(|peer| peer.0.lock().unwrap().due.is_some()).count();
    assert!(generator.handle_timeout(now), "there is another");
    assert_eq!(due(), 1);
    assert!(!generator.handle_timeout(now));
    assert_eq!(due(), 0);
}
