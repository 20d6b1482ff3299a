//! A hostile peer: it can end its own connection and nothing else.

use crypto::Seed;
use netsim::{ms, secs};
use srt::packet::{Ack, AckFigures, Control, ControlWriter, DataHead, KeyFlag, Packet};
use srt::{CloseReason, Config, Seq, SocketId};

use crate::harness::{Sim, connected, message, send_all, start};

fn control(control: &Control<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    ControlWriter { timestamp: 0, to: SocketId(0) }.write(control, &mut out);
    out
}

fn nak(ranges: &[(u32, u32)]) -> Vec<u8> {
    let mut out = vec![0x80, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for (first, last) in ranges {
        out.extend_from_slice(&(first | 0x8000_0000).to_be_bytes());
        out.extend_from_slice(&last.to_be_bytes());
    }
    out
}

fn data(seq: Seq, number: u32, timestamp: u32) -> Vec<u8> {
    let head = DataHead {
        seq,
        position: 3,
        in_order: false,
        key: KeyFlag::Clear,
        retransmitted: false,
        message: 1,
        timestamp,
        to: SocketId(0),
    };
    [&head.write()[..], &message(number)[..]].concat()
}

fn pair() -> Sim {
    connected(1, Config::default(), Config::default(), |l| l.latency(ms(20)))
}

/// Returns the sequence number of the caller's first packet.
fn first_seq(sim: &mut Sim) -> Seq {
    sim.a.sent = Some(Vec::new());
    send_all(sim, 1, 100);
    let sent = sim.a.sent.take().unwrap();
    let seq = sent.iter().find_map(|sent| match Packet::read(sent) {
        Ok(Packet::Data(head, _)) => Some(head.seq),
        _ => None,
    });
    seq.unwrap()
}

#[test]
fn s_01_random_bytes_of_all_lengths_are_dropped() {
    let mut sim = pair();
    let mut random = Seed::from_number(5).random();
    let now = sim.clock.now();
    for length in 0..=1500 {
        for kind in [None, Some(0x80)] {
            let mut bytes = vec![0; length];
            random.fill(&mut bytes);
            if let (Some(first), Some(kind)) = (bytes.first_mut(), kind) {
                *first = kind;
            }
            // Skip shutdowns, which would end the connection.
            if bytes.starts_with(&[0x80, 5]) {
                continue;
            }
            sim.a.connection().handle_datagram(now, &bytes);
            sim.b.connection().handle_datagram(now, &bytes);
        }
    }
    assert!(sim.a.is_connected() && sim.b.is_connected());
    // No noise was taken for data. Messages sent later are all delivered.
    assert!(sim.b.received.is_empty() && sim.a.received.is_empty(), "noise was delivered");
    send_all(&mut sim, 500, 100);
    sim.run_for(secs(2)).unwrap();
    assert_eq!(sim.b.received.len(), 500);
}

#[test]
fn s_04_a_handshake_after_the_connection_changes_nothing() {
    let mut sim = crate::harness::sim(1, Config::default(), Config::default(), |l| l.latency(ms(20)));
    sim.a.sent = Some(Vec::new());
    sim.run_until(secs(3), |a, b| a.is_connected() && b.is_connected()).unwrap();
    let handshakes = sim.a.sent.take().unwrap();
    send_all(&mut sim, 100, 100);
    let latencies = sim.b.connection().latencies();
    let now = sim.clock.now();
    for handshake in &handshakes {
        for at in (16..handshake.len()).step_by(3) {
            let mut changed = handshake.to_vec();
            changed[at] ^= 0xff;
            sim.b.connection().handle_datagram(now, &changed);
            sim.a.connection().handle_datagram(now, &changed);
        }
    }
    assert_eq!(sim.b.connection().latencies(), latencies);
    sim.a.source = None;
    send_more(&mut sim, 100, 100);
    assert_eq!(sim.b.received.len(), 200);
}

fn send_more(sim: &mut Sim, packets: u32, from: u32) {
    start(sim, packets, 100);
    sim.a.source.as_mut().unwrap().number = from;
    sim.run_for(secs(4)).unwrap();
}

#[test]
fn s_08_every_second_packet_missing_for_ever_leaves_the_others() {
    fn odd(_: u64, datagram: &[u8]) -> bool {
        datagram[0] & 0x80 == 0 && datagram[3] & 1 == 1
    }
    let mut sim = pair();
    sim.b.swallow = Some(odd);
    send_all(&mut sim, 4000, 475);
    // The last packet is one of the missing ones. No later packet shows this, so it may not be counted as skipped.
    assert!(sim.b.received.len() == 2000 && sim.b.skipped >= 1999, "{}", sim.b.skipped);
    assert!(sim.b.stats().byte_rcv_buf < 1_000_000);
}

#[test]
fn s_08_a_jump_of_the_numbers_is_followed_when_it_stays() {
    let mut sim = pair();
    let base = first_seq(&mut sim).next();
    let now = sim.clock.now();
    let stamp = 10_000_000;
    // A single stray packet changes nothing.
    sim.b.connection().handle_datagram(now, &data(base.plus(0x2000_0000), 9, stamp));
    sim.b.connection().handle_datagram(now, &data(base, 1, stamp));
    sim.run_for(secs(3)).unwrap();
    assert_eq!((sim.b.received.len(), sim.b.skipped), (2, 0));
    let now = sim.clock.now();
    for n in 0..20 {
        sim.b.connection().handle_datagram(now, &data(base.plus(0x3000_0000 + n), 10 + n, stamp));
    }
    sim.run_for(secs(3)).unwrap();
    assert_eq!(sim.b.stats().pkt_rcv_no_room, 3);
    assert!(sim.b.skipped >= 0x3000_0000);
    // A number that is 2^30 or more ahead counts as earlier, by the shorter way around.
    let now = sim.clock.now();
    sim.b.connection().handle_datagram(now, &data(base.plus(0x7800_0000), 99, stamp));
    assert_eq!(sim.b.stats().pkt_rcv_belated, 1);
}

#[test]
fn s_08_timestamps_of_nonsense_hold_nothing_for_long() {
    let mut sim = pair();
    let base = first_seq(&mut sim).next();
    let now = sim.clock.now();
    for n in 0..64_u32 {
        let timestamp = n.wrapping_mul(0x1234_5678);
        sim.b.connection().handle_datagram(now, &data(base.plus(n), n + 1, timestamp));
    }
    sim.run_for(secs(3)).unwrap();
    assert_eq!(sim.b.received.len(), 65);
}

#[test]
fn s_23_reports_about_what_was_never_sent_are_ignored() {
    let mut sim = pair();
    let seq = first_seq(&mut sim);
    let now = sim.clock.now();
    let figures = AckFigures { rtt_us: u32::MAX, rtt_var_us: u32::MAX, ..AckFigures::default() };
    let mut datagrams = vec![
        control(&Control::Ack(7, Ack { next: seq.plus(1000), figures: Some(figures) })),
        control(&Control::Ack(0, Ack { next: seq.plus(0x3fff_ffff), figures: None })),
        control(&Control::Ack(u32::MAX, Ack { next: seq.plus(0x7fff_0000), figures: Some(figures) })),
        control(&Control::AckAck(0)),
        control(&Control::AckAck(u32::MAX)),
        control(&Control::DropRequest(0, seq.plus(9), seq.plus(3))),
        control(&Control::DropRequest(0, seq.plus(3), seq.plus(0x3fff_ffff))),
        control(&Control::DropRequest(0, seq.plus(0x6000_0000), seq.plus(0x6000_0003))),
        control(&Control::CongestionWarning),
        control(&Control::PeerError(4000)),
        control(&Control::Unknown(0x1234)),
        nak(&[(seq.value(), seq.plus(1000).value())]),
        nak(&[(5, 3), (0x7fff_ffff, 0)]),
    ];
    datagrams.push(nak(&(0..180)
        .map(|n| (seq.plus(n * 2).value(), seq.plus(n * 2 + 1).value()))
        .collect::<Vec<_>>()));
    for datagram in &datagrams {
        sim.a.connection().handle_datagram(now, datagram);
        sim.b.connection().handle_datagram(now, datagram);
    }
    send_more(&mut sim, 100, 1);
    assert_eq!((sim.b.received.len(), sim.b.skipped), (101, 0));
    assert_eq!(sim.a.stats().pkt_retrans, 0);
}

#[test]
fn s_23_a_storm_of_loss_reports_does_not_amplify() {
    let mut sim = connected(1, Config::default(), Config::default(), |l| l.latency(ms(20)));
    let first = first_seq(&mut sim);
    start(&mut sim, 475 * 20, 475);
    sim.a.source.as_mut().unwrap().number = 1;
    for _ in 0..4000 {
        sim.run_for(ms(5)).unwrap();
        let stats = sim.a.stats();
        let (flight, now) = (stats.pkt_flight_size, sim.clock.now());
        if flight > 0 {
            let end = first.plus(u32::try_from(stats.pkt_sent_unique).unwrap());
            let begin = (0..flight).fold(end, |seq, _| seq.previous());
            sim.a.connection().handle_datagram(now, &nak(&[(begin.value(), end.previous().value())]));
        }
    }
    let stats = sim.a.stats();
    assert!(stats.pkt_recv_nak > 3000, "{}", stats.pkt_recv_nak);
    let most = stats.byte_sent_unique / 4 + 64 * 1024;
    assert!(stats.byte_retrans <= most, "{} of {}", stats.byte_retrans, stats.byte_sent_unique);
    sim.run_for(secs(3)).unwrap();
    assert_eq!(sim.b.received.len(), 475 * 20 + 1);
}

#[test]
fn what_came_before_the_goodbye_is_delivered() {
    let config = Config { latency: secs(2), ..Config::default() };
    let mut sim = connected(1, Config::default(), config, |l| l.latency(ms(20)));
    start(&mut sim, 50, 100);
    sim.run_for(ms(600)).unwrap();
    let now = sim.clock.now();
    assert!(sim.b.received.is_empty());
    sim.a.connection().close(now, CloseReason::Local);
    sim.run_for(ms(50)).unwrap();
    assert_eq!((sim.b.received.len(), sim.b.closed), (50, Some(CloseReason::Peer)));
}
