//! Encryption with packet loss and with forged messages.

use bytes::Bytes;
use netsim::{ms, secs};
use srt::packet::{Control, ControlWriter, KeyFlag, Packet};
use srt::{Config, KeyLength, SocketId};

use crate::harness::{Sim, connected, message, passphrase, send_all};

fn secured() -> Config {
    Config { passphrase: passphrase("correct horse"), latency: ms(500), ..Config::default() }
}

fn user(subtype: u16, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    ControlWriter { timestamp: 0, to: SocketId(0) }.write(&Control::User(subtype, body), &mut out);
    out
}

fn inject(sim: &mut Sim, at_a: bool, datagram: &[u8]) {
    let now = sim.clock.now();
    let end = if at_a { &mut sim.a } else { &mut sim.b };
    end.connection().handle_datagram(now, datagram);
}

#[test]
fn s_25_keys_change_under_loss_without_a_gap() {
    for length in [KeyLength::Bytes16, KeyLength::Bytes32] {
        let config =
            Config { key_length: length, key_refresh_packets: 500, key_announce_packets: 100, ..secured() };
        let mut sim = connected(3, config.clone(), config, |l| l.latency(ms(30)).loss(0.1));
        send_all(&mut sim, 6000, 200);
        assert_eq!((sim.b.received.len(), sim.b.skipped), (6000, 0));
        let stats = (sim.a.stats().km_refreshes, sim.b.stats().pkt_rcv_undecrypt);
        assert!(stats.0 >= 10 && stats.1 == 0, "{stats:?}");
    }
}

#[test]
fn s_25_ten_lost_key_messages_only_delay_the_change() {
    let config = Config { key_refresh_packets: 200, key_announce_packets: 50, ..secured() };
    let mut sim = connected(3, config.clone(), config, |l| l.latency(ms(30)));
    // For two seconds no key message passes.
    fn is_km(_: u64, datagram: &[u8]) -> bool {
        datagram.starts_with(&[0xff, 0xff, 0, 3])
    }
    sim.b.swallow = Some(is_km);
    crate::harness::start(&mut sim, 2000, 200);
    sim.run_for(secs(4)).unwrap();
    assert_eq!(sim.a.stats().km_refreshes, 0);
    sim.b.swallow = None;
    sim.run_for(secs(10)).unwrap();
    assert_eq!((sim.b.received.len(), sim.b.skipped, sim.b.stats().pkt_rcv_undecrypt), (2000, 0, 0));
    assert!(sim.a.stats().km_refreshes >= 4);
}

#[test]
fn s_20_key_messages_of_any_length_change_nothing() {
    let mut sim = connected(1, secured(), secured(), |l| l.latency(ms(20)));
    for length in 0..1400 {
        for subtype in [1, 2, 3, 4, 9] {
            let datagram = user(subtype, &vec![0x12; length]);
            inject(&mut sim, length % 2 == 0, &datagram);
        }
    }
    send_all(&mut sim, 100, 100);
    assert_eq!((sim.b.received.len(), sim.b.skipped), (100, 0));
}

#[test]
fn s_21_a_forged_unsecured_does_not_open_the_stream() {
    let mut sim = connected(1, secured(), secured(), |l| l.latency(ms(20)));
    sim.a.sent = Some(Vec::new());
    for state in 0..5_u32 {
        for word in [state.to_be_bytes(), state.to_le_bytes()] {
            let datagram = user(4, &word);
            inject(&mut sim, true, &datagram);
            inject(&mut sim, false, &datagram);
        }
    }
    send_all(&mut sim, 100, 100);
    assert_eq!(sim.b.received.len(), 100);
    let sent = sim.a.sent.take().unwrap();
    let data: Vec<_> = sent
        .iter()
        .filter_map(|sent| match Packet::read(sent) {
            Ok(Packet::Data(head, payload)) => Some((head.key, payload)),
            _ => None,
        })
        .collect();
    assert!(data.len() >= 100);
    assert!(data.iter().all(|(key, payload)| *key == KeyFlag::Even && payload[8..] != message(0)[8..]));
}

#[test]
fn s_24_data_whose_key_does_not_fit_is_dropped_and_counted() {
    let flagged = |sent: &Bytes, bits: u8| {
        let mut bytes = sent.to_vec();
        bytes[4] = bytes[4] & !0x18 | bits << 3;
        bytes
    };
    for (config, wrong) in [(Config::default(), &[1, 2, 3][..]), (secured(), &[0, 2, 3])] {
        let mut sim = connected(1, config.clone(), config, |l| l.latency(ms(20)));
        fn is_data(_: u64, datagram: &[u8]) -> bool {
            datagram[0] & 0x80 == 0
        }
        sim.b.swallow = Some(is_data);
        sim.a.sent = Some(Vec::new());
        crate::harness::start(&mut sim, 10, 100);
        sim.run_for(ms(90)).unwrap();
        let sent = sim.a.sent.take().unwrap();
        let data: Vec<&Bytes> = sent.iter().filter(|sent| sent[0] & 0x80 == 0).collect();
        for bits in wrong {
            for sent in &data {
                let datagram = flagged(sent, *bits);
                inject(&mut sim, false, &datagram);
            }
        }
        let wanted = u64::try_from(wrong.len() * data.len()).unwrap();
        assert_eq!((sim.b.stats().pkt_rcv_undecrypt, sim.b.stats().pkt_recv_unique), (wanted, 0));
        // The forged packets have not replaced any real ones: those still arrive.
        for sent in data {
            inject(&mut sim, false, sent);
        }
        sim.b.swallow = None;
        sim.run_for(secs(1)).unwrap();
        assert_eq!(sim.b.received.len(), 10);
    }
}
