//! The handshake (§5.2): in each direction a packet of 1 byte and two of 1536.
//!
//! 1. C0 (version 3) and C1 (time, zero or version, random bytes) arrive.
//! 2. S0, S1 and S2 are sent as soon as C1 is complete. If C1 has a digest (see `digest`), S1 and S2 have digests,
//!    too. Otherwise S1 is random, and S2 is a copy of C1.
//! 3. C2 arrives. Its content is not checked, because it proves nothing and real clients send a wrong one. Then
//!    chunks begin.

mod digest;

use crypto::Random;
use digest::{Role, Scheme};
use wire::SendQueue;

use crate::Violation;

/// The only protocol version (§5.2.2).
const VERSION: u8 = 3;
/// Length of packets 1 and 2.
const PACKET_BYTES: usize = 1536;
/// Position of the version in packet 1; zero in the simple handshake.
const VERSION_AT: usize = 4;
/// Version that a client states in a packet with a digest. It is that of the Flash Player to which the digest's key
/// belongs.
const PLAYER_VERSION: [u8; 4] = [9, 0, 124, 2];
/// Version that a server states in a packet with a digest. It is that of the Flash server to which the digest's key
/// belongs.
const SERVER_VERSION: [u8; 4] = [3, 5, 1, 1];

type Packet = [u8; PACKET_BYTES];

/// The packet that is expected next. Client and server expect the same three packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaits {
    Version,
    Packet1,
    Packet2,
    Nothing,
}

/// Collects the peer's packets. The buffer holds one packet and is freed at the end of the handshake.
#[derive(Debug)]
struct Packets {
    awaits: Awaits,
    buffer: Vec<u8>,
}

impl Packets {
    const fn new() -> Self {
        Self { awaits: Awaits::Version, buffer: Vec::new() }
    }

    /// Takes the version byte if it is expected.
    fn version(&mut self, input: &mut &[u8]) -> Result<(), Violation> {
        if self.awaits == Awaits::Version
            && let Some((version, rest)) = input.split_first()
        {
            if *version != VERSION {
                return Err(Violation::Version(*version));
            }
            *input = rest;
            self.awaits = Awaits::Packet1;
        }
        Ok(())
    }

    /// Returns packet 1 once it is complete, if it is expected.
    fn packet1(&mut self, input: &mut &[u8]) -> Option<Packet> {
        if self.awaits != Awaits::Packet1 || !self.fill(input) {
            return None;
        }
        let packet = self.buffer.first_chunk::<PACKET_BYTES>().copied();
        self.buffer.clear();
        self.awaits = Awaits::Packet2;
        packet
    }

    /// Takes packet 2 once it is complete, if it is expected. Returns true if the handshake is then over.
    fn packet2(&mut self, input: &mut &[u8]) -> bool {
        if self.awaits == Awaits::Packet2 && self.fill(input) {
            self.buffer = Vec::new();
            self.awaits = Awaits::Nothing;
        }
        self.awaits == Awaits::Nothing
    }

    fn fill(&mut self, input: &mut &[u8]) -> bool {
        let missing = PACKET_BYTES.saturating_sub(self.buffer.len());
        let (head, tail) = input.split_at_checked(missing).unwrap_or((input, &[]));
        self.buffer.reserve_exact(head.len());
        self.buffer.extend_from_slice(head);
        *input = tail;
        self.buffer.len() >= PACKET_BYTES
    }
}

/// Handshake of the accepting side.
#[derive(Debug)]
pub struct Server {
    packets: Packets,
    random: Random,
}

impl Server {
    /// Creates the state at the start of a connection. C0 is expected next.
    #[must_use]
    pub const fn new(random: Random) -> Self {
        Self { packets: Packets::new(), random }
    }

    /// Takes the handshake's bytes off the front of `input` and queues the answer. Returns true once the handshake is
    /// over.
    pub fn read(&mut self, input: &mut &[u8], out: &mut SendQueue) -> Result<bool, Violation> {
        self.packets.version(input)?;
        if let Some(c1) = self.packets.packet1(input) {
            out.push_slice(&[VERSION]);
            let (s1, s2) = self.answer(&c1);
            out.push_slice(&s1);
            out.push_slice(&s2);
        }
        Ok(self.packets.packet2(input))
    }

    fn answer(&mut self, c1: &Packet) -> (Packet, Packet) {
        let Some((scheme, digest)) = digest::find(c1, Role::Player) else {
            return (packet1([0; 4], &mut self.random), *c1);
        };
        let mut s1 = packet1(SERVER_VERSION, &mut self.random);
        digest::sign(&mut s1, Role::Server, scheme);
        let mut s2 = [0; PACKET_BYTES];
        self.random.fill(&mut s2);
        digest::sign_answer(&mut s2, Role::Server, &digest);
        (s1, s2)
    }
}

/// Handshake of the connecting side.
#[derive(Debug)]
pub struct Client {
    packets: Packets,
    random: Random,
    digest: bool,
}

impl Client {
    /// Creates the state and queues C0 and C1. C1 contains a digest if `digest` is true.
    #[must_use]
    pub fn new(mut random: Random, digest: bool, out: &mut SendQueue) -> Self {
        let mut c1 = packet1(if digest { PLAYER_VERSION } else { [0; 4] }, &mut random);
        if digest {
            digest::sign(&mut c1, Role::Player, Scheme::Zero);
        }
        out.push_slice(&[VERSION]);
        out.push_slice(&c1);
        Self { packets: Packets::new(), random, digest }
    }

    /// Takes the handshake's bytes off the front of `input` and queues C2. Returns true once the handshake is over.
    /// If S1 has no valid digest, C2 has none either. S2 is not verified: only TLS authenticates a server.
    pub fn read(&mut self, input: &mut &[u8], out: &mut SendQueue) -> Result<bool, Violation> {
        self.packets.version(input)?;
        if let Some(s1) = self.packets.packet1(input) {
            let c2 = self.answer(&s1);
            out.push_slice(&c2);
        }
        Ok(self.packets.packet2(input))
    }

    fn answer(&mut self, s1: &Packet) -> Packet {
        if !self.digest {
            return *s1;
        }
        let Some((_, digest)) = digest::find(s1, Role::Server) else {
            return *s1;
        };
        let mut c2 = [0; PACKET_BYTES];
        self.random.fill(&mut c2);
        digest::sign_answer(&mut c2, Role::Player, &digest);
        c2
    }
}

/// Returns a packet 1: time 0, the version, random bytes. Peers do not use the time, and this crate reads no clock.
fn packet1(version: [u8; 4], random: &mut Random) -> Packet {
    let mut packet = [0; PACKET_BYTES];
    if let Some((head, rest)) = packet.split_at_mut_checked(VERSION_AT.saturating_add(version.len())) {
        random.fill(rest);
        if let Some(slot) = head.last_chunk_mut() {
            *slot = version;
        }
    }
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::Seed;
    use proptest::prelude::*;

    fn random(number: u64) -> Random {
        Seed::from_number(number).random()
    }

    /// Runs both sides with pieces of `cut` bytes. Returns the bytes that the client and the server sent.
    fn shake(digest: bool, cut: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut up, mut down) = (SendQueue::new(), SendQueue::new());
        let mut client = Client::new(random(1), digest, &mut up);
        let mut server = Server::new(random(2));
        let (mut sent_up, mut sent_down) = (Vec::new(), Vec::new());
        let (mut client_done, mut server_done) = (false, false);
        while !(client_done && server_done) {
            let bytes = up.take_all();
            sent_up.extend_from_slice(&bytes);
            for mut piece in bytes.chunks(cut) {
                server_done = server.read(&mut piece, &mut down).unwrap();
                assert!(piece.is_empty());
            }
            let bytes = down.take_all();
            sent_down.extend_from_slice(&bytes);
            for mut piece in bytes.chunks(cut) {
                client_done = client.read(&mut piece, &mut up).unwrap();
                assert!(piece.is_empty());
            }
        }
        (sent_up, sent_down)
    }

    #[test]
    fn simple_packets_are_echoed() {
        let (up, down) = shake(false, 4096);
        assert_eq!((up.len(), down.len()), (3073, 3073));
        assert_eq!(up[1..1537], down[1537..]);
        assert_eq!(down[1..1537], up[1537..]);
        assert_eq!(up[5..9], [0; 4]);
    }

    #[test]
    fn a_digest_is_answered_with_digests_that_the_other_side_accepts() {
        let (up, down) = shake(true, 4096);
        let packet = |bytes: &[u8]| *bytes.first_chunk::<PACKET_BYTES>().unwrap();
        let (_, c1) = digest::find(&packet(&up[1..]), Role::Player).unwrap();
        let (_, s1) = digest::find(&packet(&down[1..]), Role::Server).unwrap();
        let (c2, s2) = (packet(&up[1537..]), packet(&down[1537..]));
        assert_eq!(s2[1504..], digest::answer_digest(&s2, Role::Server, &c1));
        assert_eq!(c2[1504..], digest::answer_digest(&c2, Role::Player, &s1));
        assert_eq!(down[5..9], SERVER_VERSION);
    }

    #[test]
    fn both_schemes_are_found_and_kept() {
        for scheme in [Scheme::Zero, Scheme::One] {
            let mut c1 = packet1(PLAYER_VERSION, &mut random(3));
            let digest = digest::sign(&mut c1, Role::Player, scheme);
            assert_eq!(digest::find(&c1, Role::Player), Some((scheme, digest)));
            assert_eq!(digest::find(&c1, Role::Server), None);
            let (s1, _) = Server::new(random(4)).answer(&c1);
            assert_eq!(digest::find(&s1, Role::Server).map(|(found, _)| found), Some(scheme));
            c1[100] ^= 1;
            assert_eq!(digest::find(&c1, Role::Player), None);
        }
    }

    #[test]
    fn any_cut_gives_the_same_handshake() {
        for digest in [false, true] {
            let whole = shake(digest, 4096);
            for cut in [1, 2, 7, 1535, 1536, 1537, 1538] {
                assert_eq!(shake(digest, cut), whole, "cut {cut}");
            }
        }
    }

    #[test]
    fn m_01_another_version_is_refused_at_the_first_byte() {
        for first in [b"GET / HTTP/1.1\r\n".as_slice(), &[0x16, 3, 1], &[6; 3000]] {
            let mut out = SendQueue::new();
            let mut input = first;
            let got = Server::new(random(1)).read(&mut input, &mut out);
            assert_eq!(got, Err(Violation::Version(first[0])));
            assert!(out.is_empty());
        }
    }

    proptest! {
        #[test]
        fn bytes_behind_the_handshake_are_left(extra in prop::collection::vec(any::<u8>(), 0..50)) {
            let bytes = [&[3][..], &[0; 2 * PACKET_BYTES], &extra].concat();
            let mut input = bytes.as_slice();
            let mut out = SendQueue::new();
            prop_assert_eq!(Server::new(random(1)).read(&mut input, &mut out), Ok(true));
            prop_assert_eq!(input, extra.as_slice());
        }
    }
}
