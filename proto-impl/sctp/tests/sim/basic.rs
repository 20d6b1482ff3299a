//! Simulations of an association's lifetime on a good path.

use netsim::{Stuck, ms, secs};
use sctp::{CloseReason, Config, Kind, OpenError, Options, SendError};

use crate::harness::{Ends, connecting, ends, message};

fn is_connected(pair: &Ends) -> bool {
    pair.a.connected && pair.b.connected
}

#[test]
fn either_end_may_begin_and_both_at_once() {
    for (a, b) in [(true, false), (false, true), (true, true)] {
        let mut pair = ends(1, [Config::default(), Config::default()], |link| link.latency(ms(20)));
        let now = pair.clock.now();
        if a {
            pair.a.association.connect(now);
        }
        if b {
            pair.b.association.connect(now);
        }
        pair.run_until(secs(1), |a, b| a.connected && b.connected).unwrap();
        // The handshake takes four datagrams, of half a round trip each.
        assert!(pair.clock.elapsed() <= ms(80), "{:?}", pair.clock.elapsed());
        assert!(pair.a.association.is_connected() && pair.b.association.is_connected());
    }
}

#[test]
fn nobody_connects_without_being_told() {
    let mut pair = ends(1, [Config::default(), Config::default()], |link| link);
    assert!(matches!(pair.run_until(secs(1), |a, _| a.connected), Err(Stuck::Quiet { .. })));
}

#[test]
fn text_bytes_and_empty_messages_go_both_ways() {
    let mut pair = connecting(2, |link| link.latency(ms(10)));
    let now = pair.clock.now();
    let ours = pair.a.association.open(now, "chat", "json", Options::default()).unwrap();
    let theirs =
        pair.b.association.open(now, "back", "", Options { unordered: true, ..Options::default() }).unwrap();
    assert_eq!((ours.0, theirs.0), (0, 1), "RFC 8832 §6");
    let sent = [
        (Kind::Text, "hello".into()),
        (Kind::Binary, vec![0, 1, 2].into()),
        (Kind::Text, "".into()),
        (Kind::Binary, "".into()),
        (Kind::Binary, message(7, 100_000)),
    ];
    for (kind, payload) in &sent {
        pair.a.association.send(now, ours, *kind, payload.clone()).unwrap();
    }
    pair.run_until(secs(3), |_, b| b.messages.get(&ours).is_some_and(|got| got.len() == 5)).unwrap();
    assert_eq!(pair.b.messages[&ours], sent);
    assert_eq!((pair.b.opened[0].label.as_str(), pair.b.opened[0].protocol.as_str()), ("chat", "json"));
    assert_eq!(pair.a.accepted, [ours]);
    assert!(pair.a.opened[0].options.unordered);
    // The other end sends, on the channel of its peer and on its own.
    let now = pair.clock.now();
    pair.b.association.send(now, ours, Kind::Text, "x".into()).unwrap();
    pair.b.association.send(now, theirs, Kind::Text, "y".into()).unwrap();
    pair.run_until(secs(1), |a, _| a.messages.len() == 2).unwrap();
    let stats = pair.a.association.stats();
    assert_eq!((stats.messages.sent, stats.messages.received, stats.bytes.received), (5, 2, 2));
    assert_eq!((stats.dropped, stats.refused, stats.retransmitted, stats.channels), (0, 0, 0, 2));
}

#[test]
fn messages_that_are_too_long_are_refused_and_a_buffer_that_is_full_says_when_it_has_room() {
    let mut pair = connecting(3, |link| link.latency(ms(20)));
    let now = pair.clock.now();
    let channel = pair.a.association.open(now, "x", "", Options::default()).unwrap();
    let send = |pair: &mut Ends, length: usize| {
        let now = pair.clock.now();
        pair.a.association.send(now, channel, Kind::Binary, vec![0; length].into())
    };
    let most = 256 << 10;
    let too_long = SendError::TooLong { length: most + 1, most: 256 << 10 };
    assert_eq!(send(&mut pair, most + 1), Err(too_long));
    let mut count = 0;
    while send(&mut pair, most).is_ok() {
        count += 1;
    }
    assert_eq!((count, send(&mut pair, most)), (3, Err(SendError::Full)));
    pair.run_until(secs(9), |a, _| a.writable == 1).unwrap();
    assert!(pair.a.association.room() >= 512 << 10);
    assert_eq!(send(&mut pair, most), Ok(()));
    pair.run_until(secs(9), |_, b| b.of(channel).len() == 4).unwrap();
    assert_eq!(pair.a.writable, 1);
    pair.run_for(secs(1)).unwrap();
    assert_eq!(pair.a.association.stats().buffered, (0, 0));
    let nobody = sctp::ChannelId(77);
    let now = pair.clock.now();
    assert_eq!(
        pair.a.association.send(now, nobody, Kind::Text, "x".into()),
        Err(SendError::NoChannel(nobody))
    );
    let long = "x".repeat(2000);
    assert_eq!(pair.a.association.open(now, &long, "", Options::default()), Err(OpenError::LabelTooLong));
}

#[test]
fn what_is_not_polled_closes_the_window() {
    let mut pair = connecting(4, |link| link.latency(ms(5)));
    let now = pair.clock.now();
    let channel = pair.a.association.open(now, "x", "", Options::default()).unwrap();
    pair.run_until(secs(1), |_, b| !b.opened.is_empty()).unwrap();
    pair.b.polls = false;
    pair.a.outbox.extend((0..4000).map(|n| (channel, message(n, 1000))));
    pair.run_for(secs(60)).unwrap();
    let most = Config::default().receive_buffer_bytes;
    assert!(pair.b.held.1 <= most, "{:?}", pair.b.held);
    assert!(pair.b.held.1 > most / 2);
    assert_eq!((pair.a.closed, pair.b.closed), (None, None));
    pair.b.polls = true;
    let now = pair.clock.now();
    pair.b.drain(now);
    pair.run_until(secs(30), |_, b| b.of(channel).len() == 4000).unwrap();
    assert!(pair.b.of(channel).iter().enumerate().all(|(n, payload)| *payload == message(n, 1000)));
}

#[test]
fn an_association_is_closed_once_everything_has_arrived() {
    for both in [false, true] {
        let mut pair = connecting(5, |link| link.latency(ms(20)));
        let now = pair.clock.now();
        let channel = pair.a.association.open(now, "x", "", Options::default()).unwrap();
        pair.run_until(secs(1), |a, b| a.connected && b.connected).unwrap();
        let now = pair.clock.now();
        (0..50).for_each(|n| {
            pair.a.association.send(now, channel, Kind::Binary, message(n, 5000)).unwrap();
        });
        pair.a.association.close(now);
        if both {
            pair.b.association.close(now);
        }
        assert_eq!(
            pair.a.association.send(now, channel, Kind::Text, "x".into()),
            Err(SendError::NoChannel(channel))
        );
        assert_eq!(pair.a.association.open(now, "y", "", Options::default()), Err(OpenError::Closed));
        pair.run_until(secs(9), |a, b| a.closed.is_some() && b.closed.is_some()).unwrap();
        if !both {
            assert_eq!(pair.a.closed, Some(CloseReason::Local));
            assert_eq!(pair.b.of(channel).len(), 50);
            assert_eq!(pair.b.closed, Some(CloseReason::Peer));
        }
        assert_eq!((pair.a.association.poll_timeout(), pair.b.association.poll_timeout()), (None, None));
    }
}

#[test]
fn an_abort_ends_both_at_once() {
    let mut pair = connecting(6, |link| link.latency(ms(20)));
    pair.run_until(secs(1), |a, b| a.connected && b.connected).unwrap();
    assert!(is_connected(&pair));
    pair.a.association.abort();
    pair.run_for(ms(20)).unwrap();
    assert_eq!((pair.a.closed, pair.b.closed), (Some(CloseReason::Local), Some(CloseReason::Aborted)));
}

#[test]
fn silence_ends_an_association_at_any_time() {
    for begun in [false, true] {
        let mut pair = connecting(7, |link| link.latency(ms(20)));
        if begun {
            pair.run_until(secs(1), |a, b| a.connected && b.connected).unwrap();
            let now = pair.clock.now();
            pair.a.association.open(now, "x", "", Options::default()).unwrap();
        }
        pair.a.passes = |_| false;
        pair.b.passes = |_| false;
        pair.run_until(secs(3600), |a, b| a.closed.is_some() && b.closed.is_some()).unwrap();
        assert_eq!(pair.a.closed, Some(CloseReason::TimedOut), "{begun}");
    }
}

#[test]
fn the_same_seed_gives_the_same_packets() {
    let trace = |seed| {
        let mut pair = connecting(seed, |link| link.latency(ms(20)).loss(0.1).reorder(0.1));
        let now = pair.clock.now();
        let channel = pair.a.association.open(now, "x", "", Options::default()).unwrap();
        pair.a.outbox.extend((0..200).map(|n| (channel, message(n, 3000))));
        pair.run_for(secs(20)).unwrap();
        assert_eq!(pair.b.of(channel).len(), 200);
        format!("{}", pair.trace())
    };
    assert_eq!(trace(8), trace(8));
    assert_ne!(trace(8), trace(9));
}

#[test]
fn heartbeats_keep_an_idle_association_and_measure_it() {
    let mut pair = connecting(10, |link| link.latency(ms(50)));
    pair.run_for(secs(600)).unwrap();
    assert_eq!((pair.a.closed, pair.b.closed), (None, None));
    let packets = pair.a.association.stats().packets;
    assert!((20..100).contains(&packets.sent), "{packets:?}");
    assert_eq!(pair.a.association.stats().round_trip, Some(ms(100)));
}
