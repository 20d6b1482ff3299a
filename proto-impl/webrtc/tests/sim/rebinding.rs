//! A NAT that loses its binding: the peer continues, but its packets come from another port. Media in both
//! directions follows immediately, instead of with the peer's next check seconds later.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use ice::Path;
use netsim::{Link, Pair, Peer as _, ms, secs};
use sdp::Direction;

use crate::harness::{CLIENT, Came, End, SERVER, Studio, VIDEO, both_connected, seeds, session};

const MOVED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7)), 5001);
/// Address of an eavesdropper on the path: the IP address of `MOVED`, with another port.
const LISTENER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7)), 6666);

/// Returns a session after two seconds of media, over links with this one-way latency.
fn running(seed: u64, direction: Direction, latency: Duration) -> Pair<End, End> {
    let mut pair = session(seed, direction).links(|link: Link| link.latency(latency));
    pair.run_until(secs(5), both_connected).unwrap();
    let studio = Studio::new(pair.clock.now(), secs(12), seed);
    if direction == Direction::RecvOnly {
        pair.b.studio = Some(studio)
    } else {
        pair.a.studio = Some(studio)
    }
    pair.run_for(secs(2)).unwrap();
    pair
}

/// The longest time from one picture to the next.
fn longest_gap(came: &[Came]) -> Duration {
    let times: Vec<_> = came.iter().filter(|came| came.section == VIDEO).map(|came| came.at).collect();
    times.windows(2).map(|two| two[1] - two[0]).max().unwrap()
}

#[test]
fn i_12_a_viewer_behind_another_port_misses_less_than_half_a_second() {
    for seed in seeds(20) {
        for latency in [ms(5), ms(50)] {
            let mut pair = running(seed, Direction::RecvOnly, latency);
            pair.run_for(ms(seed * 37 % 500)).unwrap();
            pair.b.remote = MOVED;
            pair.run_for(secs(3)).unwrap();
            let gap = longest_gap(&pair.a.came);
            assert!(gap < ms(500), "seed {seed}, {latency:?}: {gap:?}");
            assert_eq!(pair.b.peer.media_path().unwrap().remote, MOVED);
        }
    }
}

#[test]
fn i_12_a_publisher_behind_another_port_loses_nothing() {
    for seed in seeds(20) {
        let mut pair = running(seed, Direction::SendOnly, ms(50));
        pair.b.remote = MOVED;
        let before = pair.b.came.len();
        pair.run_for(secs(11)).unwrap();
        let gap = longest_gap(&pair.b.came[before - 10..]);
        assert!(
            gap < ms(100) && pair.b.came.len() > before + 200,
            "seed {seed}: {gap:?}, {} of {before}",
            pair.b.came.len()
        );
        let made = pair.a.studio.as_ref().unwrap().made;
        assert_eq!([pair.b.verifier.audio().received, pair.b.verifier.video().received], made);
        // Key frame requests and reports use the new path.
        assert_eq!(pair.b.peer.media_path().unwrap().remote, MOVED);
    }
}

/// Checks an eavesdropper that intercepts the peer's packets and forwards them from its own port. The session
/// accepts the authentic packets, but sends the eavesdropper only checks, which it cannot answer.
#[test]
fn i_12_a_listener_that_sends_media_on_is_sent_none() {
    let mut pair = running(1, Direction::RecvOnly, ms(20));
    pair.a.wire = Some(Vec::new());
    pair.a.swallow = Some(Box::new(|is_stun, _| !is_stun));
    pair.b.wire = Some(Vec::new());
    for _ in 0..100 {
        pair.run_for(ms(50)).unwrap();
        let now = pair.clock.now();
        for (_, datagram) in pair.a.wire.replace(Vec::new()).unwrap() {
            if datagram[0] >= 20 {
                pair.b.peer.handle_datagram(now, Path::udp(SERVER, LISTENER), &mut datagram.to_vec());
            }
        }
        while pair.b.poll_transmit(now).is_some() {}
    }
    let wire = pair.b.wire.as_ref().unwrap();
    let (to_listener, to_peer): (Vec<_>, Vec<_>) = wire.iter().partition(|(path, _)| path.remote == LISTENER);
    assert!(!to_listener.is_empty() && to_listener.iter().all(|(_, datagram)| datagram[0] < 4));
    assert!(to_listener.len() <= 5, "{}", to_listener.len());
    assert!(to_peer.iter().any(|(_, datagram)| datagram[0] >= 128));
    assert_eq!(pair.b.peer.media_path().unwrap().remote, CLIENT);
}

/// Checks forged packets from other ports of the peer's address: few are decrypted, and none changes the
/// path.
#[test]
fn i_12_forged_media_from_other_ports_costs_few_tags() {
    let mut pair = running(2, Direction::RecvOnly, ms(20));
    let refused = |pair: &Pair<End, End>| pair.b.peer.stats().transport.srtp.unwrap().not_authentic;
    let before = refused(&pair);
    let now = pair.clock.now();
    for port in 7000..17_000 {
        let path = Path::udp(SERVER, SocketAddr::new(MOVED.ip(), port));
        let mut forged = [&[0x80, 96, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2][..], &[1; 100]].concat();
        pair.b.peer.handle_datagram(now, path, &mut forged);
    }
    let looked_at = refused(&pair) - before;
    assert!((1..=20).contains(&looked_at), "{looked_at}");
    assert_eq!(pair.b.peer.media_path().unwrap().remote, CLIENT);
    // The real peer is heard on a new port a moment later.
    pair.run_for(ms(200)).unwrap();
    pair.b.remote = MOVED;
    pair.run_for(secs(1)).unwrap();
    assert_eq!(pair.b.peer.media_path().unwrap().remote, MOVED);
}
