//! Simulations of bad paths: everything arrives once and in order, or whole messages are abandoned.

use std::collections::BTreeSet;

use netsim::{ms, secs};
use proptest::prelude::*;
use sctp::{ChannelId, Kind, Options, Reliability};

use crate::harness::{End, Ends, connecting, message, number};

fn percent(value: u32) -> f64 {
    f64::from(value) / 100.0
}

fn open(pair: &mut Ends, options: Options) -> ChannelId {
    let now = pair.clock.now();
    pair.a.association.open(now, "x", "", options).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn d_27_reliable_messages_arrive_once_and_those_of_a_channel_in_order(
        seed in any::<u32>(),
        loss in 0u32..36,
        reorder in 0u32..20,
        duplicate in 0u32..20,
        latency in 0u64..150,
        lengths in proptest::collection::vec(4usize..20_000, 1..60),
    ) {
        let mut pair = connecting(u64::from(seed), |link| {
            link.latency(ms(latency)).loss(percent(loss)).reorder(percent(reorder)).duplicate(percent(duplicate))
        });
        let channels: Vec<ChannelId> = (0..4)
            .map(|n| open(&mut pair, Options { unordered: n == 3, ..Options::default() }))
            .collect();
        for (n, length) in lengths.iter().enumerate() {
            pair.a.outbox.push_back((channels[n % 4], message(n, *length)));
        }
        let total = lengths.len();
        pair.run_until(secs(1800), |_, b| b.messages.values().map(Vec::len).sum::<usize>() == total).unwrap();
        // Runs on until duplicates that are still in flight have arrived and the last acknowledgement has got through.
        // Then neither end stores anything.
        pair.run_for(secs(30)).unwrap();
        let is_empty = |end: &End| end.association.stats().buffered == (0, 0);
        pair.run_until(secs(600), |a, b| is_empty(a) && is_empty(b)).unwrap();
        for (at, channel) in channels.iter().enumerate() {
            let mut got: Vec<usize> = pair.b.of(*channel).iter().map(|payload| number(payload)).collect();
            if at == 3 {
                got.sort_unstable();
            }
            let sent: Vec<usize> = (0..total).filter(|n| n % 4 == at).collect();
            prop_assert_eq!(got, sent);
            prop_assert!(pair.b.of(*channel).iter().all(|payload| payload.len() == lengths[number(payload)]));
        }
        prop_assert_eq!((pair.a.closed, pair.b.closed), (None, None));
    }

    #[test]
    fn d_27_unreliable_messages_are_whole_in_order_and_given_up_in_time(
        seed in any::<u32>(),
        loss in 0u32..36,
        reorder in 0u32..20,
        latency in 0u64..100,
        unordered in any::<bool>(),
        limit in 0u32..4,
        lengths in proptest::collection::vec(4usize..6000, 1..80),
    ) {
        let reliability = match limit {
            3 => Reliability::Lifetime(ms(200)),
            most => Reliability::Retransmits(most),
        };
        let mut pair = connecting(u64::from(seed), |link| {
            link.latency(ms(latency)).loss(percent(loss)).reorder(percent(reorder))
        });
        let lossy = open(&mut pair, Options { unordered, reliability });
        let safe = open(&mut pair, Options::default());
        pair.run_until(secs(600), |_, b| b.opened.len() == 2).unwrap();
        for (n, length) in lengths.iter().enumerate() {
            pair.a.outbox.push_back((lossy, message(n, *length)));
            pair.a.outbox.push_back((safe, message(n, 300)));
        }
        // The reliable channel beside the lossy one loses nothing.
        let total = lengths.len();
        pair.run_until(secs(1800), |a, b| {
            b.of(safe).len() == total && a.association.stats().buffered.0 == 0
        }).unwrap();
        pair.run_for(secs(30)).unwrap();
        let got: Vec<usize> = pair.b.of(lossy).iter().map(|payload| number(payload)).collect();
        let distinct: BTreeSet<usize> = got.iter().copied().collect();
        prop_assert_eq!(distinct.len(), got.len(), "none twice");
        prop_assert!(pair.b.of(lossy).iter().all(|payload| payload.len() == lengths[number(payload)].max(4)));
        if !unordered {
            prop_assert!(got.is_sorted(), "{:?}", got);
        }
        let missing = u64::try_from(total - got.len()).unwrap();
        let abandoned = pair.a.association.stats().abandoned;
        prop_assert!(abandoned >= missing, "{} {}", abandoned, missing);
        if loss == 0 && limit != 3 && reorder == 0 {
            prop_assert_eq!(missing, 0);
        }
        pair.run_until(secs(600), |_, b| b.association.stats().buffered == (0, 0)).unwrap();
        // The channel continues after the skipped messages.
        let now = pair.clock.now();
        for n in 0..40 {
            pair.a.association.send(now, lossy, Kind::Binary, message(1000 + n, 10)).unwrap();
        }
        if loss == 0 && limit != 3 && reorder == 0 {
            pair.run_until(secs(60), |_, b| b.of(lossy).len() == got.len() + 40).unwrap();
        }
    }
}

/// Measures the goodput of a large transfer in bytes per second.
fn goodput(seed: u64, loss: f64, latency: u64) -> usize {
    let mut pair = connecting(seed, |link| link.latency(ms(latency)).loss(loss).rate(100_000_000));
    let channel = open(&mut pair, Options::default());
    let count = 200;
    pair.a.outbox.extend((0..count).map(|n| (channel, message(n, 16_000))));
    let took = pair.run_until(secs(900), |_, b| b.of(channel).len() == count).unwrap();
    count * 16_000 * 1000 / usize::try_from(took.as_millis().max(1)).unwrap()
}

/// Measures throughput for the documentation, and checks that losses slow the transfer but do not stop it.
#[test]
fn losses_slow_down_and_do_not_stop() {
    for (loss, latency, least) in
        [(0.0, 25, 1_000_000), (0.01, 25, 200_000), (0.1, 25, 30_000), (0.35, 25, 2_000)]
    {
        let mut rates: Vec<usize> = (0..3).map(|seed| goodput(seed, loss, latency)).collect();
        rates.sort_unstable();
        println!("loss {loss}, round trip {} ms: {} B/s", 2 * latency, rates[1]);
        assert!(rates[0] >= least, "{loss}: {rates:?}");
    }
}

/// Checks an outage longer than most retransmission timeouts.
#[test]
fn an_outage_is_outlived() {
    let mut pair = connecting(5, |link| link.latency(ms(25)));
    let channel = open(&mut pair, Options::default());
    pair.run_until(secs(1), |a, _| a.accepted.len() == 1).unwrap();
    pair.a.outbox.extend((0..100).map(|n| (channel, message(n, 10_000))));
    pair.run_for(ms(200)).unwrap();
    let pass: fn(&[u8]) -> bool = |_| false;
    (pair.a.passes, pair.b.passes) = (pass, pass);
    pair.run_for(secs(30)).unwrap();
    let pass: fn(&[u8]) -> bool = |_| true;
    (pair.a.passes, pair.b.passes) = (pass, pass);
    pair.run_until(secs(40), |_, b| b.of(channel).len() == 100).unwrap();
    assert!(pair.b.of(channel).iter().enumerate().all(|(n, payload)| number(payload) == n));
}
