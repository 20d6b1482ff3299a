//! Simulations of channels that are opened, closed or refused.

use netsim::{ms, secs};
use sctp::{ChannelId, Config, Kind, OpenError, Options, Reliability};

use crate::harness::{connecting, ends, message};

#[test]
fn a_channel_is_closed_behind_its_last_message_and_its_number_is_free_again() {
    for loss in [0.0, 0.2] {
        let mut pair = connecting(1, |link| link.latency(ms(20)).loss(loss));
        for round in 0..5 {
            let now = pair.clock.now();
            let channel = pair.a.association.open(now, "x", "", Options::default()).unwrap();
            assert_eq!(channel, ChannelId(0), "{round}");
            pair.run_until(secs(60), |_, b| b.opened.len() == round + 1).unwrap();
            let now = pair.clock.now();
            (0..20).for_each(|n| {
                pair.a.association.send(now, channel, Kind::Binary, message(n, 3000)).unwrap();
            });
            pair.a.association.close_channel(now, channel);
            assert!(pair.a.association.send(now, channel, Kind::Text, "late".into()).is_err());
            pair.run_until(secs(60), |a, b| {
                a.closed_channels.len() == round + 1 && b.closed_channels.len() == round + 1
            })
            .unwrap();
            assert_eq!(pair.b.of(channel).len(), 20 * (round + 1));
            assert_eq!(pair.b.association.stats().channels, 0);
        }
    }
}

#[test]
fn both_ends_may_close_a_channel_at_once() {
    let mut pair = connecting(2, |link| link.latency(ms(20)));
    let now = pair.clock.now();
    let channel = pair.a.association.open(now, "x", "", Options::default()).unwrap();
    pair.run_until(secs(1), |a, _| a.accepted == [channel]).unwrap();
    let now = pair.clock.now();
    pair.a.association.close_channel(now, channel);
    pair.b.association.close_channel(now, channel);
    pair.run_until(secs(5), |a, b| a.closed_channels == [channel] && b.closed_channels == [channel]).unwrap();
    pair.run_for(secs(5)).unwrap();
    assert_eq!((pair.a.closed_channels.len(), pair.a.association.stats().channels), (1, 0));
}

#[test]
fn channels_beyond_the_limit_are_refused_on_both_sides() {
    let few = Config { channels_max: 10, ..Config::default() };
    let mut pair = ends(3, [Config::default(), few], |link| link.latency(ms(20)));
    let now = pair.clock.now();
    pair.a.association.connect(now);
    let opened: Vec<ChannelId> =
        (0..20).map(|_| pair.a.association.open(now, "x", "", Options::default()).unwrap()).collect();
    pair.run_until(secs(9), |a, _| a.closed_channels.len() == 10).unwrap();
    pair.run_for(secs(1)).unwrap();
    assert_eq!((pair.b.opened.len(), pair.a.accepted.len()), (10, 10));
    assert_eq!(pair.a.closed_channels, opened[10..]);
    assert_eq!(pair.b.association.stats().refused, 10);
    let now = pair.clock.now();
    assert_eq!(pair.b.association.open(now, "x", "", Options::default()), Err(OpenError::TooMany));
    // The other channels continue, and a closed channel makes room for a new one.
    pair.a.association.send(now, opened[9], Kind::Text, "x".into()).unwrap();
    pair.a.association.close_channel(now, opened[0]);
    pair.run_until(secs(9), |_, b| b.closed_channels == [opened[0]]).unwrap();
    let now = pair.clock.now();
    let again = pair.a.association.open(now, "again", "", Options::default()).unwrap();
    pair.run_until(secs(9), |a, _| a.accepted.contains(&again)).unwrap();
    assert_eq!(pair.b.of(opened[9]).len(), 1);
}

#[test]
fn a_thousand_channels_are_open_and_none_more() {
    let mut pair = connecting(4, |link| link.latency(ms(5)));
    let now = pair.clock.now();
    let opened: Vec<ChannelId> =
        (0..1024).map(|_| pair.a.association.open(now, "x", "", Options::default()).unwrap()).collect();
    assert_eq!(pair.a.association.open(now, "x", "", Options::default()), Err(OpenError::TooMany));
    pair.run_until(secs(30), |a, _| a.accepted.len() == 1024).unwrap();
    let now = pair.clock.now();
    for channel in &opened {
        pair.b.association.send(now, *channel, Kind::Text, "x".into()).unwrap();
    }
    pair.run_until(secs(30), |a, _| a.messages.len() == 1024).unwrap();
    let now = pair.clock.now();
    opened.iter().for_each(|channel| pair.b.association.close_channel(now, *channel));
    pair.run_until(secs(60), |a, b| a.closed_channels.len() == 1024 && b.closed_channels.len() == 1024)
        .unwrap();
}

#[test]
fn properties_of_a_channel_are_told() {
    let mut pair = connecting(5, |link| link);
    let now = pair.clock.now();
    let all = [Reliability::Full, Reliability::Retransmits(0), Reliability::Lifetime(ms(300))];
    for reliability in all {
        for unordered in [false, true] {
            pair.a.association.open(now, "x", "p", Options { unordered, reliability }).unwrap();
        }
    }
    pair.run_until(secs(1), |a, _| a.accepted.len() == 6).unwrap();
    let told: Vec<Options> = pair.b.opened.iter().map(|opened| opened.options).collect();
    for (n, reliability) in all.into_iter().enumerate() {
        assert_eq!(told[2 * n], Options { unordered: false, reliability });
        assert_eq!(told[2 * n + 1], Options { unordered: true, reliability });
    }
}

/// Checks that a flooded channel does not block another.
#[test]
fn no_channel_starves() {
    let mut pair = connecting(6, |link| link.latency(ms(20)).rate(8_000_000));
    let now = pair.clock.now();
    let flood = pair.a.association.open(now, "flood", "", Options::default()).unwrap();
    let chat = pair.a.association.open(now, "chat", "", Options::default()).unwrap();
    pair.run_until(secs(1), |a, _| a.accepted.len() == 2).unwrap();
    pair.a.outbox.extend((0..400).map(|n| (flood, message(n, 16_000))));
    let now = pair.clock.now();
    pair.a.drain(now);
    pair.a.association.send(now, chat, Kind::Text, "hi".into()).unwrap();
    pair.run_until(ms(500), |_, b| b.of(chat).len() == 1).unwrap();
    assert!(pair.b.of(flood).len() < 20, "{}", pair.b.of(flood).len());
}
