//! Simulates a receiver and a model of a sender in a closed loop, in virtual time. Measures how many frames
//! arrive complete, and with what delay.

#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a test of small numbers")]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::{Random, Seed};
use netsim::{Link, ms};
use sdp::PayloadType;

use super::super::*;
use crate::header::{Csrcs, Header};
use crate::number::{SequenceNumber, Ssrc};

/// Length of a run in milliseconds.
const LENGTH_MS: u64 = 20_000;
/// Interval of frames in milliseconds.
const FRAME_MS: u64 = 33;
/// Number of packets of a frame.
const FRAME_PACKETS: u64 = 5;
/// Number of packets of a key frame.
const KEY_FRAME_PACKETS: u64 = 30;
/// Number of frames from a key frame to the next.
const KEY_FRAME_EVERY: u64 = 60;

/// Simulated path.
#[derive(Debug, Clone, Copy)]
struct Path {
    round_trip: u64,
    /// Loss in each direction in percent.
    loss: u32,
    jitter: u64,
}

/// Result of a run.
#[derive(Debug)]
struct Ran {
    /// Complete frames, in thousandths.
    whole: usize,
    /// Delay in milliseconds beyond the one-way delay: median and 95th percentile of the frames.
    delay: [u64; 2],
    /// Number of retransmissions per lost packet.
    resent: f64,
}

struct Loop {
    start: Instant,
    receiver: Receiver,
    there: Link,
    back: Link,
    /// Sent packets by number: frame, and time of the last transmission.
    sent: HashMap<u16, (u64, u64)>,
    frames: Vec<(u64, u64, u64)>,
    resent: u64,
}

impl Loop {
    fn new(seed: u64, path: Path) -> Self {
        let seed = Seed::from_number(seed);
        let link = |name| {
            let link = Link::new(&seed.derive(name, 0)).latency(ms(path.round_trip / 2));
            link.loss(f64::from(path.loss) / 100.0).jitter(ms(path.jitter))
        };
        Self {
            start: netsim::Clock::new().now(),
            receiver: Receiver::new(Ssrc(7), ReceiveConfig::with_nack(90_000)),
            there: link("there"),
            back: link("back"),
            sent: HashMap::new(),
            frames: Vec::new(),
            resent: 0,
        }
    }

    fn send(&mut self, at: u64, number: u16, repair: bool) {
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.push(u8::from(repair));
        self.there.send(self.start + ms(at), bytes.into());
    }

    /// Runs a sender with a history of a second or three round trips, which retransmits a packet at most once
    /// per round trip, as libwebrtc does.
    fn run(mut self, path: Path) -> Ran {
        let mut next = 0u64;
        for at in 0..LENGTH_MS + 5000 {
            if at % FRAME_MS == 0 && at < LENGTH_MS {
                let frame = at / FRAME_MS;
                let is_key = frame.is_multiple_of(KEY_FRAME_EVERY);
                let packets = if is_key { KEY_FRAME_PACKETS } else { FRAME_PACKETS };
                self.frames.push((packets, at, 0));
                for number in next..next + packets {
                    let number = number as u16;
                    self.sent.insert(number, (frame, at));
                    self.send(at, number, false);
                }
                next += packets;
            }
            self.answer(at, path);
            self.receive(at);
        }
        let lost = self.receiver.lost_on_the_way().max(1);
        let mut delays: Vec<u64> = self
            .frames
            .iter()
            .filter(|(missing, ..)| *missing == 0)
            .map(|(_, sent, came)| (came - sent).saturating_sub(path.round_trip / 2))
            .collect();
        delays.sort_unstable();
        let at = |share: usize| delays.get(delays.len() * share / 100).copied().unwrap_or(0);
        Ran {
            whole: delays.len() * 1000 / self.frames.len(),
            delay: [at(50), at(95)],
            resent: self.resent as f64 / lost as f64,
        }
    }

    fn answer(&mut self, at: u64, path: Path) {
        while let Some(asked) = self.back.poll_delivery(self.start + ms(at)) {
            for number in asked.chunks_exact(2).map(|n| u16::from_be_bytes([n[0], n[1]])) {
                let (frame, last) = self.sent[&number];
                let is_kept = at - frame * FRAME_MS <= 1000.max(path.round_trip * 3);
                if is_kept && (last == frame * FRAME_MS || at - last >= path.round_trip) {
                    self.sent.insert(number, (frame, at));
                    self.resent += 1;
                    self.send(at, number, true);
                }
            }
        }
    }

    fn receive(&mut self, at: u64) {
        let now = self.start + ms(at);
        while let Some(came) = self.there.poll_delivery(now) {
            let number = u16::from_be_bytes([came[0], came[1]]);
            let (frame, _) = self.sent[&number];
            let header = header(number, (frame * FRAME_MS * 90) as u32);
            if came[2] == 1 {
                self.receiver.handle_recovered(now, &header, Bytes::new());
            } else {
                self.receiver.handle_packet(now, &header, Bytes::new());
            }
        }
        self.receiver.handle_timeout(now);
        while let Some(event) = self.receiver.poll_event() {
            if let ReceiveEvent::Packet(packet) = event {
                let (frame, _) = self.sent[&packet.sequence.number().value()];
                let frame = &mut self.frames[frame as usize];
                (frame.0, frame.2) = (frame.0 - 1, at);
            }
        }
        let mut asked = Vec::new();
        self.receiver.poll_nacks(now, &mut asked);
        if !asked.is_empty() {
            let bytes: Vec<u8> = asked.iter().flat_map(|number| number.0.to_be_bytes()).collect();
            self.back.send(now, bytes.into());
        }
    }
}

fn header(number: u16, timestamp: u32) -> Header<'static> {
    Header {
        marker: false,
        payload_type: PayloadType::new(96).unwrap(),
        sequence_number: SequenceNumber(number),
        timestamp,
        ssrc: Ssrc(7),
        csrcs: Csrcs::default(),
        extension: None,
    }
}

/// Checks the share of complete frames in thousandths, and the resulting delay, for each cell with three seeds.
#[test]
fn the_hold_follows_the_round_trip() {
    let mut failed = Vec::new();
    println!("rtt loss jitter | whole/1000 | delay p50 p95 ms | repairs per loss");
    for round_trip in [20, 60, 150, 300, 500, 800] {
        for loss in [0, 2, 5, 10, 20, 35] {
            for jitter in [0, 50, 200] {
                let path = Path { round_trip, loss, jitter };
                for seed in 0..3 {
                    let ran = Loop::new(seed, path).run(path);
                    let Ran { whole, delay: [p50, p95], resent } = ran;
                    println!(
                        "{round_trip:3} {loss:2} {jitter:3} | {whole:4} | {p50:4} {p95:4} | {resent:.2}"
                    );
                    // Jitter that preserves the order makes most packets as late as the latest.
                    let round_trip = round_trip + 2 * jitter;
                    let least = match (loss, round_trip) {
                        (0, _) => 1000,
                        (..=2, _) => 985,
                        (..=5, ..=300) => 985,
                        (..=5, _) => 960,
                        (..=10, ..=300) => 960,
                        (..=10, _) => 900,
                        (..=20, ..=160) => 960,
                        (..=20, ..=300) => 850,
                        (..=20, _) => 500,
                        (_, ..=60) => 992,
                        (_, ..=160) => 860,
                        (_, ..=250) => 790,
                        (_, _) => 330,
                    };
                    // A loss costs one round trip or a few, but never more than the maximum hold.
                    let repairs = [0, 3, 5, 8, 12, 20]
                        [[0, 2, 5, 10, 20, 35].iter().position(|one| *one == loss).unwrap()];
                    let most = (round_trip * repairs + 100).min(HOLD_REPAIR_MAX.as_millis() as u64)
                        + 4 * jitter
                        + 200;
                    if whole < least || p95 > most {
                        failed.push((path, seed, ran, least, most));
                    }
                }
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Runs video over a path whose packets overtake each other by up to `jitter` ms, and where `loss` percent of them are
/// lost. Returns requests and packets given up, in thousandths of the packets from the third second on.
fn requests_where_packets_overtake(seed: u64, jitter: u64, loss: u64) -> (usize, u64) {
    const PACKETS: u64 = 5000;
    const FROM: u64 = 750;
    let start = netsim::Clock::new().now();
    let mut random: Random = Seed::from_number(seed).derive("order", 0).random();
    let mut flying: std::collections::BTreeMap<(u64, u64), bool> = std::collections::BTreeMap::new();
    for number in 0..PACKETS {
        if random.below(100) >= loss {
            flying.insert((number * 4 + random.below(jitter + 1), number), false);
        }
    }
    let mut receiver = Receiver::new(Ssrc(7), ReceiveConfig::with_nack(90_000));
    receiver.set_round_trip(ms(60));
    let (mut asked, mut out, mut given_up_before) = (0, Vec::new(), 0);
    for at in 0..PACKETS * 4 + 2000 {
        let now = start + ms(at);
        while let Some(entry) = flying.first_entry().filter(|entry| entry.key().0 <= at) {
            let ((_, number), repair) = entry.remove_entry();
            let header = header(number as u16, (number / 10 * 3600) as u32);
            if repair {
                receiver.handle_recovered(now, &header, Bytes::new());
            } else {
                receiver.handle_packet(now, &header, Bytes::new());
            }
        }
        receiver.handle_timeout(now);
        out.clear();
        receiver.poll_nacks(now, &mut out);
        for number in &out {
            flying.insert((at + 60 + random.below(jitter + 1), u64::from(number.0)), true);
        }
        if at >= FROM * 4 {
            asked += out.len();
        } else {
            given_up_before = receiver.stats().lost;
        }
        while receiver.poll_event().is_some() {}
    }
    let counted = (PACKETS - FROM) as usize;
    (asked * 1000 / counted, (receiver.stats().lost - given_up_before) * 1000 / counted as u64)
}

/// Checks a sender that retransmits under the original number, once for each request, on a path that loses
/// packets and keeps their order: second copies must not count as late packets, since that would delay each
/// request.
#[test]
fn repeated_repairs_are_no_late_packets() {
    let start = netsim::Clock::new().now();
    let mut receiver = Receiver::new(Ssrc(7), ReceiveConfig::with_nack(90_000));
    receiver.set_round_trip(ms(40));
    let mut random: Random = Seed::from_number(5).derive("plain", 0).random();
    let mut flying: Vec<(u64, u16)> = Vec::new();
    let (mut lost_at, mut asked_after) = (HashMap::new(), Vec::new());
    let mut out = Vec::new();
    for at in 0..20_000u64 {
        let now = start + ms(at);
        if at % 4 == 0 {
            let number = (at / 4) as u16;
            if random.below(100) < 5 {
                lost_at.insert(number, at);
            } else {
                receiver.handle_packet(now, &header(number, (at * 90) as u32), Bytes::new());
            }
        }
        flying.retain(|&(due, number)| {
            let comes = due <= at;
            if comes {
                receiver.handle_packet(now, &header(number, (u64::from(number) * 360) as u32), Bytes::new());
            }
            !comes
        });
        receiver.handle_timeout(now);
        out.clear();
        receiver.poll_nacks(now, &mut out);
        for number in &out {
            // The sender answers twice.
            flying.extend([(at + 40, number.0), (at + 45, number.0)]);
            if let Some(lost) = lost_at.remove(&number.0).filter(|_| at > 2_000) {
                asked_after.push(at - lost);
            }
        }
        while receiver.poll_event().is_some() {}
    }
    assert!(asked_after.len() > 100);
    assert!(asked_after.iter().all(|after| *after <= 30), "{asked_after:?}");
}

/// Checks that packets that are only late are hardly ever requested, since repairs of them would take
/// capacity from media.
#[test]
fn packets_that_overtake_each_other_are_not_requested() {
    for (jitter, loss, most) in [(30, 0, 40), (100, 0, 60), (200, 0, 60), (100, 5, 250)] {
        for seed in 0..3 {
            let (asked, given_up) = requests_where_packets_overtake(seed, jitter, loss);
            println!("jitter {jitter} ms, loss {loss} %: {asked}/1000 requested, {given_up}/1000 given up");
            assert!(asked <= most, "jitter {jitter}, loss {loss}, seed {seed}: {asked} requests");
            assert!(given_up <= 1, "jitter {jitter}, loss {loss}, seed {seed}: {given_up} given up");
        }
    }
}

/// Returns the share of packets, in thousandths, that are given up although they arrive, for audio without
/// retransmission and with random delays.
fn given_up(seed: u64, jitter: u64, packets: u64) -> u64 {
    let start = netsim::Clock::new().now();
    let mut random: Random = Seed::from_number(seed).derive("jitter", 0).random();
    let mut arrivals: Vec<(Duration, u64)> =
        (0..packets).map(|n| (ms(n * 20 + random.below(jitter + 1)), n)).collect();
    arrivals.sort_unstable();
    let mut receiver = Receiver::new(Ssrc(7), ReceiveConfig::without_nack(48_000));
    let mut came = 0;
    let mut take = |receiver: &mut Receiver| {
        let packets = std::iter::from_fn(|| receiver.poll_event());
        came += packets.filter(|event| matches!(event, ReceiveEvent::Packet(_))).count();
    };
    for (at, number) in arrivals {
        while let Some(due) = receiver.poll_timeout().filter(|due| *due <= start + at) {
            receiver.handle_timeout(due);
            take(&mut receiver);
        }
        receiver.handle_packet(start + at, &header(number as u16, (number * 960) as u32), Bytes::new());
        take(&mut receiver);
    }
    receiver.handle_timeout(start + ms(packets * 20 + 10_000));
    take(&mut receiver);
    (packets - came as u64) * 1000 / packets
}

/// Checks that the hold follows the reordering. A hold of 60 ms for every gap would lose 24 % of the packets
/// at a reordering of 200 ms.
#[test]
fn without_repairs_the_hold_follows_the_reordering() {
    for jitter in [0, 20, 60, 100, 200, 400] {
        for seed in 0..5 {
            let lost = given_up(seed, jitter, 1500);
            println!("jitter {jitter} ms: {lost}/1000 given up");
            assert!(lost <= 10, "jitter {jitter}, seed {seed}: {lost}");
        }
    }
}

/// Checks that the jitter determines the hold until the first late packet.
#[test]
fn the_first_seconds_are_waited_for_by_jitter() {
    let lost: u64 = (0..20).map(|seed| given_up(seed, 200, 100)).sum();
    println!("of the first 2 s {lost}/20000 given up");
    assert!(lost <= 600, "{lost}");
}

/// Checks that the hold becomes short again some time after a bad period, and that a source without reordering never
/// waits longer than before.
#[test]
fn a_quiet_path_has_a_short_hold_again() {
    let start = netsim::Clock::new().now();
    let mut receiver = Receiver::new(Ssrc(7), ReceiveConfig::without_nack(48_000));
    let mut waited = Vec::new();
    for number in 0..3000u64 {
        let now = start + ms(number * 20);
        let (late, lost) = (number == 10, number % 500 == 499);
        if late || lost {
            continue;
        }
        receiver.handle_packet(now, &header(number as u16, (number * 960) as u32), Bytes::new());
        if number == 20 {
            receiver.handle_packet(now, &header(10, 9600), Bytes::new());
        }
        if number % 500 == 0 && number > 0 {
            waited.extend(receiver.poll_timeout().map(|due| (due - now).as_millis()));
            receiver.handle_timeout(now + ms(600));
        }
        while receiver.poll_event().is_some() {}
    }
    assert_eq!(waited[0] / 10, 22, "{waited:?}: a packet was late by 180 ms");
    assert_eq!(waited[waited.len() - 1], 60, "{waited:?}");
}
