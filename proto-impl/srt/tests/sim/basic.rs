//! Handshakes, payload in both directions, and the end of a connection.

use std::time::Duration;

use netsim::{ms, secs};
use srt::{CloseReason, Config, KeyLength, RejectReason};

use crate::harness::{Source, Verdict, connected, message, passphrase, send_all, sim};

#[test]
fn a_caller_is_let_in_and_payload_goes_both_ways() {
    let mut sim = connected(1, Config::default(), Config::default(), |l| l.latency(ms(20)));
    assert_eq!(sim.b.stream_id.as_deref(), Some("live/stream"));
    sim.b.source = Some(Source { next_at: Some(sim.clock.now()), ..Source::new(500, 100) });
    send_all(&mut sim, 1000, 200);
    assert_eq!((sim.a.received.len(), sim.b.received.len()), (500, 1000));
    assert_eq!((sim.a.skipped, sim.b.skipped), (0, 0));
    let now = sim.clock.now();
    sim.a.connection().close(now, CloseReason::Local);
    sim.run_for(ms(100)).unwrap();
    assert_eq!((sim.a.closed, sim.b.closed), (Some(CloseReason::Local), Some(CloseReason::Peer)));
    assert!(sim.a.connection().is_over() && sim.b.connection().is_over());
    assert_eq!(sim.b.stats().pkt_recv_unique, 1000, "the figures stay");
}

#[test]
fn payload_comes_at_its_time() {
    let config = Config { latency: ms(200), ..Config::default() };
    let mut sim = connected(1, Config::default(), config, |l| l.latency(ms(30)));
    let start = sim.clock.now();
    send_all(&mut sim, 10, 10);
    for (n, at) in sim.b.received_at.iter().enumerate() {
        // A packet is due 230 ms after it was sent: the latency of 200 ms, and the delay of 30 ms that the first
        // conclusion (the caller's last handshake packet) had on its way.
        let due = start + ms(30 + 200) + ms(100) * u32::try_from(n).unwrap();
        let off = at.max(&due).duration_since(*at.min(&due));
        assert!(off < ms(2), "{n}: {off:?}");
    }
}

#[test]
fn s_07_latency_is_the_larger_wish_of_both_and_at_most_eight_seconds() {
    let latencies = |caller: (u64, u64), port: (u64, u64)| {
        let config = |(latency, peer): (u64, u64)| Config {
            latency: ms(latency),
            peer_latency: ms(peer),
            ..Config::default()
        };
        let mut sim = connected(1, config(caller), config(port), |l| l.latency(ms(5)));
        let of = |l: Option<(Duration, Duration)>| l.map(|(r, s)| (r.as_millis(), s.as_millis())).unwrap();
        (of(sim.a.connection().latencies()), of(sim.b.connection().latencies()))
    };
    assert_eq!(latencies((120, 0), (150, 0)), ((120, 150), (150, 120)));
    assert_eq!(latencies((120, 300), (150, 500)), ((500, 300), (300, 500)));
    // Neither side allows a latency of 65 535 ms.
    assert_eq!(latencies((65_535, 65_535), (120, 0)), ((8000, 8000), (8000, 8000)));
}

#[test]
fn keys_of_all_lengths_open_what_they_close() {
    for (length, seed) in [(KeyLength::Bytes16, 1), (KeyLength::Bytes24, 2), (KeyLength::Bytes32, 3)] {
        let caller =
            Config { passphrase: passphrase("correct horse"), key_length: length, ..Config::default() };
        let port = Config { key_length: KeyLength::Bytes16, ..caller.clone() };
        let mut sim = connected(seed, caller, port, |l| l.latency(ms(20)));
        sim.a.sent = Some(Vec::new());
        sim.b.source = Some(Source { next_at: Some(sim.clock.now()), ..Source::new(100, 100) });
        send_all(&mut sim, 100, 100);
        assert_eq!((sim.a.received.len(), sim.b.received.len()), (100, 100));
        assert_eq!(sim.a.connected.unwrap().encryption, Some(length));
        assert_eq!(sim.b.connected.unwrap().encryption, Some(length));
        let clear = message(50);
        assert!(sim.a.sent.unwrap().iter().all(|sent| !sent.ends_with(&clear[100..])));
    }
}

#[test]
fn s_22_passphrases_that_do_not_fit_are_refused_on_both_sides() {
    let config = |text: Option<&str>| Config { passphrase: text.and_then(passphrase), ..Config::default() };
    for (caller, port, reason) in [
        (Some("correct horse"), Some("another horse"), RejectReason::BADSECRET),
        (Some("correct horse"), None, RejectReason::UNSECURE),
        (None, Some("correct horse"), RejectReason::UNSECURE),
    ] {
        let mut sim = sim(1, config(caller), config(port), |l| l.latency(ms(20)));
        sim.run_until(secs(3), |a, b| a.closed.is_some() && b.closed.is_some()).unwrap();
        assert_eq!(sim.a.closed, Some(CloseReason::Rejected(reason)));
        assert_eq!(sim.b.closed, Some(CloseReason::Refused(reason)));
        assert!(sim.a.connected.is_none() && sim.b.connected.is_none());
    }
}

#[test]
fn a_verdict_may_come_later_and_may_be_no() {
    let mut late = sim(1, Config::default(), Config::default(), |l| l.latency(ms(20)));
    late.b.verdict = Verdict::Later(ms(900));
    late.run_until(secs(3), |a, b| a.is_connected() && b.is_connected()).unwrap();
    send_all(&mut late, 100, 100);
    assert_eq!(late.b.received.len(), 100);

    let mut refused = sim(1, Config::default(), Config::default(), |l| l.latency(ms(20)));
    refused.b.verdict = Verdict::Reject(RejectReason::CONFLICT);
    refused.run_until(secs(3), |a, _| a.closed.is_some()).unwrap();
    assert_eq!(refused.a.closed, Some(CloseReason::Rejected(RejectReason::CONFLICT)));
}

#[test]
fn a_caller_gives_up_after_three_seconds() {
    let mut sim = sim(1, Config::default(), Config::default(), |l| l.loss(1.0));
    let took = sim.run_until(secs(10), |a, _| a.closed.is_some()).unwrap();
    assert_eq!((took, sim.a.closed), (secs(3), Some(CloseReason::ConnectTimeout)));
    assert_eq!(sim.a_to_b.stats().sent, 12, "four a second");
}

#[test]
fn the_handshake_survives_loss_doubles_and_disorder() {
    let mut failed = 0;
    for seed in 1..=100 {
        let mut sim = sim(seed, Config::default(), Config::default(), |l| {
            l.latency(ms(30)).loss(0.3).duplicate(0.2).reorder(0.3)
        });
        let reached = sim.run_until(secs(3), |a, b| a.is_connected() && b.is_connected());
        failed += u32::from(reached.is_err());
    }
    // The caller sends twelve requests, and gets an answer to each with a probability of 0.49.
    assert!(failed <= 1, "{failed}");
}

#[test]
fn s_06_silence_is_kept_alive_and_its_end_is_noticed() {
    let mut sim = connected(1, Config::default(), Config::default(), |l| l.latency(ms(20)));
    sim.run_for(secs(60)).unwrap();
    assert!(sim.a.is_connected() && sim.b.is_connected());
    let sent = sim.a_to_b.stats().sent;
    assert!((55..75).contains(&sent), "a keep-alive a second: {sent}");
    sim.a_to_b = netsim::Link::new(&crypto::Seed::from_number(1)).loss(1.0);
    sim.run_for(secs(6)).unwrap();
    assert_eq!(sim.b.closed, Some(CloseReason::Idle));
    assert!(sim.a.closed.is_none());
}

#[test]
fn a_connection_that_only_sends_moves_its_deadline_a_few_times_a_second() {
    let mut sim = connected(1, Config::default(), Config::default(), |l| l.latency(ms(20)));
    sim.run_for(secs(1)).unwrap();
    let (timeouts, moved) = (sim.a.timeouts, sim.a.moved);
    crate::harness::start(&mut sim, 475 * 10, 475);
    sim.run_for(secs(10)).unwrap();
    assert!(sim.a.timeouts - timeouts <= 60, "{}", sim.a.timeouts - timeouts);
    assert!(sim.a.moved - moved <= 60, "{}", sim.a.moved - moved);
    let stats = sim.a.stats();
    // A hundred acknowledgements arrive per second, of which about twenty are confirmed.
    assert!(stats.pkt_recv_ack > 900, "{}", stats.pkt_recv_ack);
    assert!((19.0..23.0).contains(&stats.ms_rtt) || (39.0..42.0).contains(&stats.ms_rtt), "{}", stats.ms_rtt);
    let confirmed = sim.a_to_b.stats().sent - stats.pkt_sent;
    assert!(confirmed < 300, "{confirmed}");
}

#[test]
fn s_08_timestamps_wrap_after_71_minutes_and_nobody_sees_it() {
    let mut sim = connected(1, Config::default(), Config::default(), |l| l.latency(ms(20)).loss(0.02));
    sim.run_for(secs(71 * 60)).unwrap();
    let start = sim.clock.now();
    send_all(&mut sim, 6000, 50);
    assert_eq!((sim.b.received.len(), sim.b.skipped), (6000, 0));
    // If the very last packet is lost, no later packet shows that it is missing, so it arrives only after the
    // sender's timer. Its time is not checked.
    for (n, at) in sim.b.received_at.iter().take(5999).enumerate() {
        let due = start + ms(140) + ms(20) * u32::try_from(n).unwrap();
        let off = at.max(&due).duration_since(*at.min(&due));
        assert!(off < ms(60), "{n}: {off:?}");
    }
}

#[test]
fn a_bandwidth_limit_spreads_the_packets() {
    let config =
        Config { max_bandwidth: Some(250_000), latency: secs(1), peer_latency: secs(1), ..Config::default() };
    let mut sim = connected(1, config, Config::default(), |l| l.latency(ms(20)));
    let now = sim.clock.now();
    for n in 0..100 {
        sim.a.connection().send(now, message(n)).unwrap();
    }
    // The messages have 133 200 bytes in total; 100 000 may leave within 400 ms.
    sim.run_for(ms(400)).unwrap();
    let sent = sim.a.stats().pkt_sent;
    assert!((73..80).contains(&sent), "{sent}");
    sim.run_for(secs(3)).unwrap();
    assert_eq!(sim.b.received.len(), 100);
}
