//! Simulations of invalid paths, on which data is dropped and nothing is sent, and of a peer that has
//! disappeared.

use std::net::SocketAddr;

use ice::Path;
use ice::stun::{Class, MessageWriter, TransactionId};
use netsim::{Clock, Link, Pair, Peer as _, ms, secs};
use sdp::Direction;
use webrtc::CloseReason;

use crate::harness::{
    AUDIO, CLIENT, End, SERVER, Studio, both_connected, client_config, preferences, server_config, session,
};

const ATTACKER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 66)), 6666);

/// Makes checks with both user name fragments but without the password: the first has no integrity attribute, the
/// second has one made with another password.
fn checks(server: &End, client: &End, number: u8) -> Vec<Vec<u8>> {
    let (to, from) = (server.peer.local_fragment(), client.peer.local_fragment());
    [None, Some("a password of another..")]
        .into_iter()
        .map(|password| {
            let mut out = Vec::new();
            let id = TransactionId([number; 12]);
            let writer =
                MessageWriter::new(&mut out, Class::Request, id).username(to, from).use_candidate(true);
            match password {
                Some(password) => writer.finish(password.as_bytes()),
                None => writer.finish_open(),
            };
            out
        })
        .collect()
}

/// Checks that an attacker gets nothing even if his checks and his handshake begin ten seconds before the
/// victim's first check.
#[test]
fn i_04_an_attacker_who_is_there_first_gets_nothing() {
    let clock = Clock::new();
    let now = clock.now();
    let mut client = End::new(&clock, client_config(), CLIENT, SERVER, 21);
    let mut server = End::new(&clock, server_config(), SERVER, CLIENT, 21);
    client.peer.add_local(now, CLIENT).unwrap();
    let offer = client.peer.offer(&preferences(Direction::RecvOnly)).unwrap();
    let [audio, video] = preferences(Direction::SendOnly);
    let preference = |id, _: &_| Some(if id == AUDIO { audio.1.clone() } else { video.1.clone() });
    let answer = server.peer.handle_offer(now, &offer, preference).unwrap();
    let all: Vec<Vec<Vec<u8>>> = (0..100).map(|number| checks(&server, &client, number)).collect();
    server.wire = Some(Vec::new());
    let hello = [&[22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60, 1][..], &[0; 59]].concat();
    let mut pair = Pair::new(21, clock, client, server).links(|link: Link| link.latency(ms(20)));
    for datagrams in all {
        let now = pair.clock.now();
        for mut datagram in datagrams.into_iter().chain([hello.clone()]) {
            pair.b.peer.handle_datagram(now, Path::udp(SERVER, ATTACKER), &mut datagram);
        }
        assert_eq!(pair.b.poll_transmit(now), None);
        pair.run_for(ms(100)).unwrap();
    }
    assert!(!pair.b.connected && pair.b.peer.media_path().is_none());
    // The answer arrives late.
    pair.a.peer.handle_answer(pair.clock.now(), &answer).unwrap();
    pair.run_until(secs(4), both_connected).unwrap();
    pair.b.studio = Some(Studio::new(pair.clock.now(), secs(2), 21));
    pair.run_for(secs(3)).unwrap();
    let made = pair.b.studio.as_ref().unwrap().made;
    assert_eq!([pair.a.verifier.audio().received, pair.a.verifier.video().received], made);
    let wire = pair.b.wire.as_ref().unwrap();
    assert!(wire.len() > 100 && wire.iter().all(|(path, _)| path.remote == CLIENT));
}

/// Checks that authentic packets of the peer, including its BYE, are dropped on an invalid path.
#[test]
fn i_05_what_is_authentic_is_dropped_where_the_path_is_not_valid() {
    let mut pair = session(22, Direction::SendOnly);
    pair.run_until(secs(5), both_connected).unwrap();
    pair.a.studio = Some(Studio::new(pair.clock.now(), secs(1), 22));
    pair.a.wire = Some(Vec::new());
    // The server never receives these packets on the right path, so that none of them is a replay.
    pair.a.swallow = Some(Box::new(|is_stun, _| !is_stun));
    pair.run_for(secs(2)).unwrap();
    let now = pair.clock.now();
    pair.a.close(now);
    while pair.a.poll_transmit(now).is_some() {}
    let before = pair.b.peer.stats().transport.not_valid;
    let mut kinds = [0u64; 3];
    for (_, datagram) in pair.a.wire.take().unwrap() {
        let kind = match (datagram[0], datagram[1]) {
            (20..=63, _) => 0,
            (128..=191, 192..=223) => 1,
            (128..=191, _) => 2,
            _ => continue,
        };
        kinds[kind] += 1;
        pair.b.peer.handle_datagram(now, Path::udp(SERVER, ATTACKER), &mut datagram.to_vec());
        pair.b.peer.handle_datagram(now, Path::tcp(SERVER, CLIENT), &mut datagram.to_vec());
    }
    pair.b.handle(now, netsim::Input::Timeout);
    let stats = pair.b.peer.stats();
    assert!(kinds.iter().all(|&count| count > 0), "{kinds:?}");
    assert_eq!(stats.transport.not_valid - before, 2 * kinds.iter().sum::<u64>());
    assert_eq!((stats.received.len(), pair.b.came.len(), pair.b.closed), (0, 0, None));
}

/// Checks a viewer that disappears: media stops within thirty seconds, and the session is freed.
#[test]
fn i_06_a_viewer_that_is_gone_is_sent_nothing_after_thirty_seconds() {
    let mut pair = session(23, Direction::RecvOnly);
    pair.run_until(secs(5), both_connected).unwrap();
    pair.b.studio = Some(Studio::new(pair.clock.now(), secs(120), 23));
    pair.run_for(secs(12)).unwrap();
    let held = pair.b.peer.held_bytes();
    let (dark, end) = (pair.clock.now(), pair.clock.now() + secs(3600));
    pair.a_to_b =
        std::mem::replace(&mut pair.a_to_b, Link::new(&crypto::Seed::from_number(1))).blackout(dark, end);
    // A viewer that is silent for less than thirty seconds keeps its stream.
    pair.run_for(secs(20)).unwrap();
    let sent = pair.b.sent;
    assert_eq!(pair.b.closed, None);
    pair.run_for(secs(10)).unwrap();
    assert_eq!(pair.b.closed, Some(CloseReason::ConsentExpired));
    assert!(pair.b.sent > sent);
    let sent = pair.b.sent;
    pair.run_for(secs(30)).unwrap();
    assert_eq!((pair.b.sent, pair.b.peer.poll_timeout(), pair.b.peer.media_path()), (sent, None, None));
    assert!(pair.b.peer.held_bytes() < held, "{} of {held}", pair.b.peer.held_bytes());
}
