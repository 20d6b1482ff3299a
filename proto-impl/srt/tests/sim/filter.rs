//! The packet filter: negotiation, rebuilt packets, its use together with retransmission, and its benefit on paths with
//! a long round trip.

use netsim::{Link, ms, secs};
use srt::{CloseReason, Config, Connection, Event, PacketFilter, RejectReason, Stats};
use wire::Datagrams;

use crate::harness::{Sim, Source, connected, message, passphrase, seeds, send_all, sim, start};

/// Number of messages per second: 5 Mbit/s in messages of 1316 bytes.
const RATE: u64 = 475;
/// Number of messages in a run.
const PACKETS: u32 = 9500;

fn filter(text: &str) -> PacketFilter {
    text.parse().unwrap()
}

/// Connects a caller that sends with the packet filter `text` to a port with this latency.
fn line(seed: u64, text: &str, latency_ms: u64, links: impl Fn(Link) -> Link) -> Sim {
    let port = Config { latency: ms(latency_ms), ..Config::default() };
    let caller = Config { packet_filter: filter(text), ..Config::default() };
    connected(seed, caller, port, links)
}

/// Returns the number of undelivered packets, and the figures of both ends.
fn run(seed: u64, text: &str, latency_ms: u64, links: impl Fn(Link) -> Link) -> (u32, Stats, Stats) {
    let mut sim = line(seed, text, latency_ms, links);
    send_all(&mut sim, PACKETS, RATE);
    let missing = PACKETS - u32::try_from(sim.b.received.len()).unwrap();
    assert!(u64::from(missing) - sim.b.skipped <= 1, "seed {seed}: lost and not counted");
    (missing, sim.a.stats(), sim.b.stats())
}

#[test]
fn x_7_both_sides_settle_one_configuration_or_none() {
    for (caller, port, wanted) in [
        ("any", "any", Ok(0)),
        ("any", "fec,cols:5", Ok(0)),
        ("off", "fec,cols:5", Ok(0)),
        ("fec,cols:5", "any", Ok(20)),
        ("fec,cols:5", "fec", Ok(20)),
        ("fec", "fec,cols:5", Ok(20)),
        ("fec,cols:5,arq:never", "fec,rows:4,layout:even", Ok(45)),
        ("fec,cols:5,rows:-4,layout:even", "fec,cols:5,rows:-4", Ok(25)),
        ("fec,cols:5", "off", Err(())),
        ("fec,cols:5", "fec,cols:6", Err(())),
        ("fec,cols:5,arq:never", "fec,arq:always", Err(())),
        ("fec", "fec", Err(())),
        ("fec", "any", Err(())),
    ] {
        let with = |text| Config { packet_filter: filter(text), ..Config::default() };
        let mut sim = sim(1, with(caller), with(port), |link| link);
        let _ = sim.run_until(secs(3), |a, b| a.is_connected() && b.is_connected() || a.closed.is_some());
        let Ok(parity) = wanted else {
            assert_eq!(sim.a.closed, Some(CloseReason::Rejected(RejectReason::FILTER)), "{caller} | {port}");
            assert_eq!(sim.b.closed, Some(CloseReason::Refused(RejectReason::FILTER)), "{caller} | {port}");
            continue;
        };
        send_all(&mut sim, 100, RATE);
        assert_eq!(sim.b.received.len(), 100, "{caller} | {port}");
        let (sent, came) = (sim.a.stats().filter, sim.b.stats().filter);
        assert_eq!((sent.pkt_snd_extra, came.pkt_rcv_extra), (parity, parity), "{caller} | {port}");
        assert_eq!((sim.b.stats().pkt_recv, sim.b.stats().pkt_recv_unique), (100 + parity, 100));
    }
}

/// Without any retransmission, the number of undelivered packets out of 9500 stays below a limit.
#[test]
fn x_7_parity_alone_repairs_random_loss_and_bursts() {
    for (name, text, most, links) in [
        ("1 %, rows", "fec,cols:10,arq:never", 20, (|l| l.loss(0.01)) as fn(Link) -> Link),
        ("2 %, even", "fec,cols:10,rows:5,layout:even,arq:never", 4, |l| l.loss(0.02)),
        ("2 %, staircase", "fec,cols:10,rows:5,layout:staircase,arq:never", 4, |l| l.loss(0.02)),
        ("5 %, staircase", "fec,cols:5,rows:5,layout:staircase,arq:never", 40, |l| l.loss(0.05)),
        ("bursts 1 %, even", "fec,cols:10,rows:5,layout:even,arq:never", 30, |l| l.burst_loss(0.01)),
        ("bursts 1 %, staircase", "fec,cols:10,rows:5,layout:staircase,arq:never", 30, |l| {
            l.burst_loss(0.01)
        }),
        ("bursts 1 %, columns", "fec,cols:20,rows:-5,layout:staircase,arq:never", 40, |l| l.burst_loss(0.01)),
        ("2 %, jitter, disorder, doubles", "fec,cols:10,rows:5,arq:never", 8, |l| {
            l.loss(0.02).jitter(ms(5)).reorder(0.02).duplicate(0.02)
        }),
    ] {
        for seed in seeds(1) {
            let (missing, sent, came) = run(seed, text, 500, |l| links(l.latency(ms(20))));
            let lost = came.filter.pkt_rcv_supply + u64::from(missing);
            let overhead = sent.byte_sent as f64 / sent.byte_sent_unique as f64 - 1.0;
            println!(
                "{name} ({text}): of {lost} lost {missing} missing, {:.1} % rebuilt; {:.1} % more bytes",
                100.0 * came.filter.pkt_rcv_supply as f64 / lost as f64,
                100.0 * overhead
            );
            assert!(missing <= most, "{name}, seed {seed}: {missing} missing");
            assert!(came.filter.pkt_rcv_supply > 50, "{name}, seed {seed}");
            assert_eq!((sent.pkt_retrans, came.pkt_sent_nak), (0, 0), "{name}: nothing is sent again");
        }
    }
}

#[test]
fn x_7_what_cannot_be_rebuilt_is_asked_for_on_request() {
    for layout in ["even", "staircase"] {
        let text = format!("fec,cols:10,rows:5,layout:{layout},arq:onreq");
        for seed in seeds(1) {
            let (missing, sent, came) = run(seed, &text, 800, |l| l.latency(ms(40)).burst_loss(0.02));
            let lost = came.filter.pkt_rcv_supply + came.filter.pkt_rcv_loss;
            println!(
                "{text}: {} rebuilt, {} asked for, {missing} missing",
                came.filter.pkt_rcv_supply, came.filter.pkt_rcv_loss
            );
            assert!(missing <= 2, "seed {seed}: {missing}");
            assert!(came.filter.pkt_rcv_loss > 0 && came.filter.pkt_rcv_supply * 2 > lost, "seed {seed}");
            assert!(sent.pkt_retrans > 0 && sent.pkt_retrans <= 3 * came.filter.pkt_rcv_loss, "seed {seed}");
        }
    }
    // A single loss in a row is never reported.
    let mut sim = line(1, "fec,cols:10", 500, |l| l.latency(ms(40)));
    sim.b.swallow = Some(|_, datagram| data_number(datagram).is_some_and(|n| n % 10 == 7));
    send_all(&mut sim, 1000, RATE);
    let came = sim.b.stats();
    assert_eq!((sim.b.received.len(), came.pkt_sent_nak, came.filter.pkt_rcv_supply), (1000, 0, 100));
}

/// A group of packets takes 2.5 s, so its parity comes too late for a latency of 0.5 s. Lost packets are still
/// requested in time, even the last ones, which are not followed by a complete group.
#[test]
fn x_7_a_stream_too_slow_for_its_groups_is_repaired_by_request() {
    for seed in seeds(3) {
        let mut sim = line(seed, "fec,cols:10,rows:5", 500, |l| l.latency(ms(20)).loss(0.1));
        send_all(&mut sim, 200, 20);
        let missing = 200 - sim.b.received.len();
        assert!(missing <= 1, "seed {seed}: {missing} missing");
        assert!(sim.a.stats().pkt_retrans > 5, "seed {seed}");
    }
}

/// Returns the message number of a datagram with an unencrypted message.
fn data_number(datagram: &[u8]) -> Option<u32> {
    let is_data = datagram.len() == 16 + 1316 && datagram[0] & 0x80 == 0;
    is_data.then(|| u32::from_be_bytes(datagram[16..20].try_into().unwrap()))
}

#[test]
fn x_7_always_asks_at_once_and_rebuilds_beside_it() {
    let (missing, sent, came) =
        run(1, "fec,cols:10,rows:5,arq:always", 500, |l| l.latency(ms(40)).loss(0.05));
    assert!(missing <= 1, "{missing}");
    assert!(came.filter.pkt_rcv_supply > 100 && came.filter.pkt_rcv_loss == 0);
    assert!(sent.pkt_retrans > 200, "each loss was reported: {}", sent.pkt_retrans);
}

/// With a round trip of 300 ms and a latency of 250 ms, every retransmission comes too late.
#[test]
fn x_7_a_long_round_trip_needs_less_latency_with_parity() {
    let links = |l: Link| l.latency(ms(150)).loss(0.02);
    for seed in seeds(2) {
        let (without, ..) = run(seed, "any", 250, links);
        let (with, ..) = run(seed, "fec,cols:10,rows:5", 250, links);
        let (long, ..) = run(seed, "any", 1200, links);
        println!(
            "300 ms, 2 %: {without} missing of {PACKETS} without, {with} with parity at 250 ms; {long} without at 1200 ms"
        );
        assert!(without > 100, "seed {seed}: {without}");
        assert!(with <= 4, "seed {seed}: {with}");
    }
}

#[test]
fn x_7_parity_goes_over_encrypted_packets_and_changes_of_keys() {
    for text in ["fec,cols:6,rows:4,layout:even,arq:never", "fec,cols:6,rows:4,layout:staircase,arq:onreq"] {
        let secret = Config {
            passphrase: passphrase("correct horse battery"),
            key_refresh_packets: 500,
            key_announce_packets: 200,
            ..Config::default()
        };
        let port = Config { latency: ms(500), ..secret.clone() };
        let caller = Config { packet_filter: filter(text), ..secret };
        let mut sim = connected(3, caller, port, |l| l.latency(ms(20)).loss(0.02));
        send_all(&mut sim, 5000, RATE);
        let came = sim.b.stats();
        assert!(sim.b.received.len() >= 4997, "{text}: {}", sim.b.received.len());
        assert!(came.filter.pkt_rcv_supply > 50 && came.pkt_rcv_undecrypt == 0, "{text}");
        assert!(sim.a.stats().km_refreshes >= 5, "{text}");
    }
}

#[test]
fn x_7_the_listener_sends_parity_to_its_caller_too() {
    let mut sim = line(5, "fec,cols:8,rows:4,arq:never", 120, |l| l.latency(ms(20)).loss(0.02));
    let mut source = Source::new(PACKETS, RATE);
    source.next_at = Some(sim.clock.now());
    sim.b.source = Some(source);
    start(&mut sim, PACKETS, RATE);
    sim.run_for(secs(25)).unwrap();
    let (missing, supplied) = (PACKETS as usize - sim.a.received.len(), sim.a.stats().filter.pkt_rcv_supply);
    assert!(missing < 100 && supplied > 100, "{missing} missing, {supplied} rebuilt");
    assert!(sim.b.stats().filter.pkt_rcv_supply > 100, "both ways at once");
}

/// Acknowledgements that wait for parity do not indicate a narrow path.
#[test]
fn x_7_a_path_that_only_loses_is_not_taken_for_a_narrow_one() {
    for arq in ["always", "onreq", "never"] {
        let port = Config { latency: ms(800), ..Config::default() };
        let caller = Config {
            packet_filter: filter(&format!("fec,cols:20,rows:10,arq:{arq}")),
            adapts: true,
            ..Config::default()
        };
        let mut sim = connected(2, caller, port, |l| l.latency(ms(20)).loss(0.03));
        start(&mut sim, PACKETS, RATE);
        for _ in 0..20 {
            sim.run_for(secs(1)).unwrap();
            assert!(!sim.a.connection().is_behind(), "{arq}");
        }
        sim.run_for(secs(3)).unwrap();
        let (last, at) =
            (*sim.a.source.as_ref().unwrap().sent_at.last().unwrap(), *sim.b.received_at.last().unwrap());
        assert!(at - last < ms(900), "{arq}: {:?}", at - last);
        assert!(PACKETS as usize - sim.b.received.len() < 100, "{arq}");
    }
}

/// With parity, the rate of a narrow path is found as well as without it, because acknowledgements count for parity
/// packets, too.
#[test]
fn x_7_a_narrow_path_is_found_with_parity_beside_the_data() {
    let port = Config { latency: ms(300), ..Config::default() };
    let caller =
        Config { packet_filter: filter("fec,cols:10,rows:5,arq:always"), adapts: true, ..Config::default() };
    // The stream has 5 Mb/s, and 30 % of parity; the path carries 5 Mb/s.
    let mut sim = connected(4, caller, port, |l| l.latency(ms(20)).rate(5_000_000).queue_bytes(64 * 1024));
    let mut source = Source::new(PACKETS, RATE);
    (source.next_at, source.heeds) = (Some(sim.clock.now()), true);
    sim.a.source = Some(source);
    sim.run_for(secs(25)).unwrap();
    let delivered = sim.b.received.len() as f64 / f64::from(PACKETS);
    println!("{:.1} % delivered", 100.0 * delivered);
    // The path can carry 77 % of the stream with its parity.
    assert!((0.55..0.80).contains(&delivered), "{delivered}");
}

#[test]
fn x_7_a_message_has_room_for_the_head_of_parity() {
    let large = |text| Config { payload_size: 1456, packet_filter: filter(text), ..Config::default() };
    for (text, most) in [("any", 1456), ("fec,cols:2", 1452)] {
        let mut sim = connected(1, large(text), large("any"), |l| l);
        assert_eq!(sim.a.connected.unwrap().payload_max, most);
        let now = sim.clock.now();
        sim.a.connection().send(now, vec![7; most].into()).unwrap();
        sim.a.connection().send(now, vec![8; 1].into()).unwrap();
        let mut out = Datagrams::new();
        sim.a.connection().poll_transmit(now, &mut out);
        assert!((0..out.len()).all(|n| out.get(n).len() <= 1472), "a datagram is too large");
        assert_eq!(out.len(), if text == "any" { 2 } else { 3 });
    }
}

/// Wrong parity from a peer damages its own stream at most; memory does not grow and nothing fails.
#[test]
fn s_30_hostile_parity_harms_nothing() {
    for text in ["fec,cols:4,rows:3,layout:even", "fec,cols:255,rows:8,layout:staircase", "fec,cols:3"] {
        let mut sim = line(9, text, 300, |l| l);
        send_all(&mut sim, 50, RATE);
        let now = sim.clock.now();
        let first = {
            sim.a.connection().send(now, message(50)).unwrap();
            let mut out = Datagrams::new();
            sim.a.connection().poll_transmit(now, &mut out);
            sim.b.connection().handle_datagram(now, out.get(0));
            u32::from_be_bytes(out.get(0)[..4].try_into().unwrap())
        };
        let mut random = crypto::Seed::from_number(7).random();
        for n in 0..50_000u32 {
            // Parity packets with sequence numbers near the stream and far from it, and with any group and length.
            let seq = match n % 4 {
                0 => first.wrapping_add(random.below(64) as u32).wrapping_sub(32),
                1 => first.wrapping_add(n),
                2 => first.wrapping_add(random.below(10_000) as u32),
                _ => random.u64() as u32,
            };
            let index = [255, 0, random.u64() as u8][n as usize % 3];
            let length = [0, 1, 3, 4, 5, 100, 1320, 1456, 1457, 2000][random.below(10) as usize];
            let mut datagram =
                [seq & 0x7fff_ffff, 0xc000_0000, random.u64() as u32, 0x2222].map(u32::to_be_bytes).concat();
            let mut body = vec![(n % 7) as u8; length];
            body.iter_mut().zip([index, 0, (n >> 8) as u8, n as u8]).for_each(|(byte, value)| *byte = value);
            datagram.extend_from_slice(&body);
            sim.b.connection().handle_datagram(now, &datagram);
        }
        let listener = sim.b.connection();
        let held = listener.stats().byte_rcv_buf;
        assert!(held <= 16 << 20 && listener.is_connected(), "{text}: {held}");
        assert!(listener.stats().pkt_recv_malformed > 10_000, "{text}");
        drain(listener);
    }
}

/// Takes the events. Does not check the payload, because part of it was rebuilt from wrong parity.
fn drain(connection: &mut Connection) {
    while let Some(event) = connection.poll_event() {
        assert!(matches!(event, Event::Payload(_) | Event::Skipped(_)), "{event:?}");
    }
}
