//! Simulations of attackers, none of whom receives media, is believed, or disturbs the session.

use std::net::SocketAddr;
use std::time::Instant;

use ice::Path;
use netsim::{Pair, Peer as _, secs};
use sdp::Direction;
use webrtc::CloseReason;

use crate::harness::{
    CLIENT, End, SERVER, Studio, both_connected, client_config, exchange, server_config, session,
};

const ATTACKER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 66)), 6666);

/// Second address of the client.
const MOVED: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 7)), 5001);

/// Sends a datagram to the server from the attacker's address.
fn inject(end: &mut End, now: Instant, bytes: &[u8]) {
    let path = Path::udp(end.local, ATTACKER);
    end.peer.handle_datagram(now, path, &mut bytes.to_vec());
}

/// Makes one datagram of each kind.
fn junk() -> Vec<Vec<u8>> {
    let mut all = vec![
        // A Binding request without attributes.
        [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &[7; 12]].concat(),
        // The header of a ClientHello.
        [&[22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60, 1][..], &[0; 59]].concat(),
        // An unencrypted fatal alert.
        vec![21, 254, 253, 0, 0, 0, 0, 0, 0, 0, 9, 0, 2, 2, 40],
        [&[0x80, 96, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2][..], &[1; 100]].concat(),
        [&[0x80, 200, 0, 6, 0, 0, 0, 2][..], &[1; 60]].concat(),
    ];
    all.extend((0..=255u8).map(|first| vec![first; 40]));
    all
}

/// I-04, D-01, D-03: Checks that unauthenticated datagrams change nothing, neither before the peer's first
/// datagram nor during the session.
#[test]
fn i_04_unauthenticated_datagrams_before_the_peer_change_nothing() {
    let mut pair = session(1, Direction::RecvOnly);
    pair.b.wire = Some(Vec::new());
    let now = pair.clock.now();
    for bytes in junk() {
        inject(&mut pair.b, now, &bytes);
    }
    assert_eq!(pair.b.poll_transmit(now), None, "nobody is answered");
    pair.run_until(secs(5), both_connected).unwrap();
    pair.b.studio = Some(Studio::new(pair.clock.now(), secs(2), 1));
    for _ in 0..20 {
        let now = pair.clock.now();
        junk().iter().for_each(|bytes| inject(&mut pair.b, now, bytes));
        pair.run_for(netsim::ms(100)).unwrap();
    }
    assert_eq!(pair.a.verifier.video().lost + pair.a.verifier.audio().lost, 0);
    let wire = pair.b.wire.as_ref().unwrap();
    assert!(wire.iter().all(|(path, _)| path.remote == CLIENT), "0 bytes go to the attacker");
    assert!(pair.b.peer.stats().transport.not_valid > 0);
}

/// I-05, D-18, X-02: Checks that forgeries on the correct path also change nothing.
#[test]
fn i_05_forgeries_by_the_right_path_change_nothing() {
    let mut pair = session(2, Direction::SendOnly);
    pair.run_until(secs(5), both_connected).unwrap();
    pair.a.studio = Some(Studio::new(pair.clock.now(), secs(2), 2));
    for _ in 0..20 {
        let (now, path) = (pair.clock.now(), pair.b.path());
        for mut bytes in junk() {
            pair.b.peer.handle_datagram(now, path, &mut bytes);
        }
        pair.run_for(netsim::ms(100)).unwrap();
    }
    pair.run_for(netsim::ms(100)).unwrap();
    assert_eq!((pair.b.closed, pair.b.peer.stats().received.len()), (None, 2));
    let made = pair.a.studio.as_ref().unwrap().made;
    assert_eq!([pair.b.verifier.audio().received, pair.b.verifier.video().received], made);
    assert!(pair.b.peer.stats().transport.srtp.unwrap().not_authentic > 0);
}

/// Checks that a captured check, replayed from another address, changes no path.
#[test]
fn i_03_an_overheard_nomination_moves_nothing() {
    let mut pair = session(3, Direction::RecvOnly);
    pair.a.wire = Some(Vec::new());
    pair.run_until(secs(5), both_connected).unwrap();
    pair.b.studio = Some(Studio::new(pair.clock.now(), secs(3), 3));
    pair.b.wire = Some(Vec::new());
    for (_, datagram) in pair.a.wire.take().unwrap() {
        let now = pair.clock.now();
        inject(&mut pair.b, now, &datagram);
        pair.run_for(netsim::ms(50)).unwrap();
    }
    let media = |(path, bytes): &(Path, bytes::Bytes)| path.remote != CLIENT && bytes[0] >= 20;
    assert!(!pair.b.wire.as_ref().unwrap().iter().any(media));
}

/// Checks a change of the peer's address during the session, as with a NAT that has lost its binding: media
/// follows the peer's nomination.
#[test]
fn i_03_media_follows_the_peer_to_another_address() {
    let mut pair = session(3, Direction::RecvOnly);
    pair.run_until(secs(5), both_connected).unwrap();
    pair.b.studio = Some(Studio::new(pair.clock.now(), secs(30), 3));
    pair.run_for(secs(1)).unwrap();
    pair.b.remote = MOVED;
    let before = pair.a.verifier.video().received;
    let took = pair.run_until(secs(20), |a, _| a.verifier.video().received > before + 5).unwrap();
    // Media follows at the latest with the next consent check.
    assert!(took <= secs(8), "{took:?}");
    assert_eq!(pair.b.peer.media_path().unwrap().remote, MOVED);
}

/// D-02: Checks that a client with the right address but another certificate gets no keys.
#[test]
fn d_02_another_certificate_than_announced_gets_nothing() {
    let clock = netsim::Clock::new();
    let mut client = End::new(&clock, client_config(), CLIENT, SERVER, 4);
    // Uses the server's certificate, which is not the one announced in the offer.
    let impostor = webrtc::Config { dtls: server_config().dtls, ..client_config() };
    let mut wrong = End::new(&clock, impostor, CLIENT, SERVER, 4);
    let mut server = End::new(&clock, server_config(), SERVER, CLIENT, 4);
    exchange(&clock, &mut client, &mut server, Direction::SendOnly);
    // The impostor knows everything that the peer knows, except its key: the same seed gives the same
    // credentials.
    let mut unused = End::new(&clock, server_config(), SERVER, CLIENT, 4);
    exchange(&clock, &mut wrong, &mut unused, Direction::SendOnly);
    let mut pair = Pair::new(4, clock, wrong, server);
    pair.run_until(secs(15), |_, b| b.closed.is_some()).unwrap();
    assert!(matches!(pair.b.closed, Some(CloseReason::Handshake(_))), "{:?}", pair.b.closed);
    assert!(!pair.b.connected && pair.b.peer.media_path().is_none());
}

/// Checks that a publisher cannot create sources without limit.
#[test]
fn x_07_sources_are_bounded() {
    use rtp::{Csrcs, Header, PayloadType, SequenceNumber, Ssrc};
    let mut reception = session(5, Direction::SendOnly);
    reception.run_until(secs(5), both_connected).unwrap();
    // The peer itself encrypts the packets. Hostile peers with keys are covered by the tests of SRTP and of the
    // table; here the session must continue with the media of the announced sources.
    let header = Header {
        marker: false,
        payload_type: PayloadType::new(96).unwrap(),
        sequence_number: SequenceNumber(1),
        timestamp: 1,
        ssrc: Ssrc(1),
        csrcs: Csrcs::default(),
        extension: None,
    };
    let mut packet = Vec::new();
    header.write(&mut packet);
    let (now, path) = (reception.clock.now(), reception.b.path());
    for ssrc in 0..10_000u32 {
        packet[8..12].copy_from_slice(&ssrc.to_be_bytes());
        reception.b.peer.handle_datagram(now, path, &mut packet.clone());
    }
    assert_eq!(reception.b.peer.stats().received.len(), 0);
}

/// D-01: Checks ten thousand hellos per second from many addresses at a port on which a thousand sessions
/// start one after another. The port's table drops all these hellos, before and after paths are valid, and
/// every session connects.
#[test]
fn d_01_a_flood_of_hellos_reaches_nobody() {
    let mut demux = ice::Demux::new();
    let hello = [&[22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60, 1][..], &[0; 59]].concat();
    let (mut flood, mut reached) = (0u32, 0u32);
    for n in 0..1000u64 {
        let mut pair = session(n, Direction::SendOnly);
        assert!(demux.insert(pair.b.peer.local_fragment(), n));
        for ms in 0.. {
            assert!(ms < 5000, "session {n}");
            for _ in 0..10 {
                flood = flood.wrapping_add(1);
                let attacker = SocketAddr::from(((flood | 0x0a00_0000).to_be_bytes(), 6000));
                let route = demux.route(&Path::udp(SERVER, attacker), &hello);
                reached += u32::from(!matches!(route, ice::Route::Drop(_)));
            }
            pair.run_for(netsim::ms(1)).unwrap();
            if both_connected(&pair.a, &pair.b) {
                break;
            }
        }
        let path = pair.b.path();
        assert!(demux.open(path, n));
        // A hello from the right address is passed to the session, which must check it.
        assert_eq!(demux.route(&path, &hello), ice::Route::Dtls(n));
        demux.close(&path, n);
    }
    assert_eq!((reached, demux.len()), (0, 1000));
    assert!(flood >= 1_000_000, "{flood}");
}
