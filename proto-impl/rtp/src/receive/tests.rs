mod loops;

use std::time::{Duration, Instant};

use bytes::Bytes;
use sdp::PayloadType;

use super::*;
use crate::header::{Csrcs, Header};
use crate::number::{SequenceNumber, Ssrc};

const SSRC: Ssrc = Ssrc(7);

fn header(number: u16) -> Header<'static> {
    Header {
        marker: false,
        payload_type: PayloadType::new(96).unwrap(),
        sequence_number: SequenceNumber(number),
        timestamp: u32::from(number) * 3000,
        ssrc: SSRC,
        csrcs: Csrcs::default(),
        extension: None,
    }
}

/// A receiver, with a clock in milliseconds.
struct Bench {
    receiver: Receiver,
    start: Instant,
    ms: u64,
}

impl Bench {
    fn new(config: ReceiveConfig) -> Self {
        Self { receiver: Receiver::new(SSRC, config), start: netsim::Clock::new().now(), ms: 0 }
    }

    fn now(&self) -> Instant {
        self.start + Duration::from_millis(self.ms)
    }

    fn packets(&mut self, numbers: impl IntoIterator<Item = u16>) {
        for number in numbers {
            self.receiver.handle_packet(self.now(), &header(number), Bytes::from_static(b"x"));
        }
    }

    fn recovered(&mut self, number: u16) {
        self.receiver.handle_recovered(self.now(), &header(number), Bytes::from_static(b"x"));
    }

    /// Returns the events: a packet as its number, a loss as its negative count, a restart as a hundred thousand.
    fn events(&mut self) -> Vec<i64> {
        std::iter::from_fn(|| self.receiver.poll_event())
            .map(|event| match event {
                ReceiveEvent::Packet(packet) => packet.sequence.number().value().into(),
                ReceiveEvent::Lost { packets } => -i64::try_from(packets).unwrap(),
                ReceiveEvent::Restarted => 100_000,
            })
            .collect()
    }

    fn wait(&mut self, ms: u64) {
        self.ms += ms;
        self.receiver.handle_timeout(self.now());
    }

    fn nacks(&mut self) -> Vec<u16> {
        let mut out = Vec::new();
        self.receiver.poll_nacks(self.now(), &mut out);
        out.into_iter().map(SequenceNumber::value).collect()
    }
}

fn with_nack() -> Bench {
    Bench::new(ReceiveConfig::with_nack(90_000))
}

#[test]
fn packets_leave_in_order_over_the_end_of_the_numbers() {
    let mut bench = with_nack();
    bench.packets([65_533, 65_535, 65_534, 1, 0, 0, 65_533, 2]);
    assert_eq!(bench.events(), [65_533, 65_534, 65_535, 0, 1, 2]);
    assert_eq!((bench.receiver.stats().useless, bench.receiver.poll_timeout()), (2, None));
    assert_eq!(bench.receiver.report(bench.now()).unwrap().highest_sequence, 0x1_0002);
}

#[test]
fn what_is_missing_is_asked_for_and_fills_its_gap() {
    let mut bench = with_nack();
    bench.packets([10, 13]);
    assert_eq!((bench.events(), bench.nacks()), (vec![10], vec![]));
    assert_eq!(bench.receiver.poll_timeout(), Some(bench.start + Duration::from_millis(10)));
    bench.wait(10);
    assert_eq!(bench.nacks(), [11, 12]);
    bench.wait(50);
    bench.recovered(11);
    assert_eq!(bench.events(), [11]);
    bench.wait(50);
    assert_eq!(bench.nacks(), [12]);
    bench.recovered(12);
    assert_eq!((bench.events(), bench.receiver.stats().recovered), (vec![12, 13], 2));
    // Reports count losses on the path, regardless of repairs.
    assert_eq!(bench.receiver.lost_on_the_way(), 2);
}

#[test]
fn what_does_not_come_is_given_up() {
    let mut bench = with_nack();
    bench.packets([10, 13]);
    // The round trip is not known yet, so packets wait for a second.
    bench.wait(900);
    bench.packets([14, 16]);
    bench.wait(100);
    assert_eq!(bench.events(), [10, -2, 13, 14]);
    // The second gap began 900 ms after the first.
    bench.wait(899);
    assert_eq!(bench.events(), []);
    bench.wait(1);
    assert_eq!(bench.events(), [-1, 16]);
    assert_eq!((bench.nacks(), bench.receiver.stats().lost), (vec![], 3));
    bench.packets([11]);
    assert_eq!((bench.events(), bench.receiver.stats().useless), (vec![], 1));
}

#[test]
fn without_repair_only_the_order_is_waited_for() {
    let mut bench = Bench::new(ReceiveConfig::without_nack(48_000));
    bench.packets([1, 3]);
    bench.wait(60);
    assert_eq!((bench.events(), bench.nacks()), (vec![1, -1, 3], vec![]));
}

#[test]
fn a_leap_is_believed_when_a_second_packet_follows() {
    let mut bench = with_nack();
    bench.packets([100, 40_000, 101, 20_000, 20_001, 20_002]);
    assert_eq!(bench.events(), [100, 101, 100_000, 20_001, 20_002]);
    assert_eq!((bench.receiver.stats().restarts, bench.nacks()), (1, vec![]));
    // A jump within the limit is a loss: too many packets are missing to request them, so they are given up
    // immediately.
    bench.packets([22_500]);
    assert_eq!((bench.events(), bench.nacks()), (vec![-2497, 22_500], vec![]));
    bench.packets([22_503]);
    bench.wait(10);
    assert_eq!(bench.nacks(), [22_501, 22_502]);
    // A publisher that starts at another, lower number.
    bench.packets([5, 6]);
    assert_eq!(bench.events(), [100_000, 6]);
}

#[test]
fn x_06_a_repair_of_what_is_not_missed_is_dropped() {
    let mut bench = with_nack();
    bench.recovered(10);
    bench.packets([10, 11]);
    assert_eq!(bench.events(), [10, 11]);
    for number in [10, 11, 76, 500, 40_000, 60_000] {
        bench.recovered(number);
    }
    assert_eq!(
        (bench.events(), bench.receiver.stats().useless, bench.receiver.stats().recovered),
        (vec![], 7, 0)
    );
    bench.packets([12]);
    assert_eq!(bench.events(), [12]);
}

#[test]
fn a_repair_of_the_last_packets_is_taken_and_shows_what_is_missing_before_it() {
    let mut bench = with_nack();
    bench.packets([10, 11]);
    bench.recovered(12);
    assert_eq!(bench.events(), [10, 11, 12]);
    bench.recovered(15);
    bench.wait(10);
    assert_eq!(bench.nacks(), [13, 14]);
    [14, 13, 15].into_iter().for_each(|number| bench.recovered(number));
    assert_eq!(bench.events(), [13, 14, 15]);
    assert_eq!((bench.receiver.stats().recovered, bench.receiver.stats().useless), (4, 1));
    // A recovered packet is accepted if it is at most 64 packets ahead of the newest one.
    bench.recovered(15 + 64);
    bench.packets([80]);
    bench.wait(1000);
    assert_eq!(bench.events(), [-63, 79, 80]);
}

#[test]
fn what_waits_and_what_is_missed_is_bounded() {
    let mut bench = with_nack();
    bench.packets([0]);
    // Only every second packet arrives: the list of missing packets fills up, and so does the buffer.
    let mut most = (0, 0);
    for n in 1..20_000u32 {
        bench.packets([u16::try_from(n * 2 % 65_536).unwrap()]);
        let stats = bench.receiver.stats();
        most = (most.0.max(stats.waiting), most.1.max(stats.missing));
        bench.events();
    }
    assert!(most.0 <= REORDER_PACKETS_MAX && most.1 <= NACK_LIST_MAX, "{most:?}");

    let mut bench = Bench::new(ReceiveConfig::without_nack(90_000));
    bench.packets([0]);
    for n in 2..40_000u32 {
        bench.packets([u16::try_from(n % 65_536).unwrap()]);
    }
    assert!(bench.receiver.stats().waiting <= REORDER_PACKETS_MAX);
    let big = Bytes::from(vec![0; 60_000]);
    let mut bench = Bench::new(ReceiveConfig::without_nack(90_000));
    bench.packets([0]);
    for number in 2..200 {
        bench.receiver.handle_packet(bench.now(), &header(number), big.clone());
    }
    assert!(bench.receiver.stats().waiting <= REORDER_BYTES_MAX / 60_000 + 1);
}

/// Checks a path with loss and reordering, which also affect retransmissions: all packets are passed on in
/// order, and two runs are identical.
#[test]
fn a_lossy_road_is_repaired() {
    let run = |seed: u64| {
        let mut random = crypto::Seed::from_number(seed).random();
        let mut bench = with_nack();
        let mut due: Vec<(u64, u16, bool)> = Vec::new();
        let (mut out, mut nacked) = (Vec::new(), 0);
        for ms in 0..4000u64 {
            bench.ms = ms;
            if ms < 3000 {
                let number = u16::try_from((65_000 + ms) % 65_536).unwrap();
                if ms == 0 || !random.chance(0.1) {
                    due.push((ms + 20 + random.below(8), number, false));
                }
            }
            let (here, later): (Vec<_>, Vec<_>) = due.into_iter().partition(|(at, ..)| *at <= ms);
            due = later;
            for (_, number, recovered) in here {
                if recovered { bench.recovered(number) } else { bench.packets([number]) }
            }
            bench.receiver.handle_timeout(bench.now());
            for number in bench.nacks() {
                nacked += 1;
                if !random.chance(0.1) {
                    due.push((ms + 40, number, true));
                }
            }
            out.extend(bench.events());
            assert!(bench.receiver.poll_timeout().is_none_or(|at| at > bench.now()));
        }
        (out, nacked)
    };
    for seed in 0..20 {
        let (out, nacked) = run(seed);
        // The first packet to arrive is the start; the few that it has overtaken are late.
        let expected: Vec<i64> = (65_000..68_000).map(|n| n % 65_536).skip_while(|&n| n != out[0]).collect();
        assert_eq!(out, expected[..out.len()], "seed {seed}");
        assert!(expected.len() - out.len() < 4 && expected.len() > 2990, "seed {seed}: {}", out.len());
        // Each request is sent twice.
        assert!((500..1000).contains(&nacked), "seed {seed}: {nacked}");
        assert_eq!(run(seed), (out, nacked));
    }
}

/// Checks that a round trip longer than the initial hold is learnt from late repairs, so that later repairs
/// are in time.
#[test]
fn a_long_round_trip_is_learnt_from_late_repairs() {
    let mut bench = with_nack();
    let mut given_up = Vec::new();
    for loss in 0..4u16 {
        let first = loss * 10;
        bench.packets([first, first + 2]);
        let asked = loop {
            bench.wait(1);
            if !bench.nacks().is_empty() {
                break bench.ms;
            }
        };
        while bench.ms < asked + 1300 {
            bench.wait(1);
            bench.nacks();
        }
        bench.recovered(first + 1);
        given_up.push(bench.events().contains(&-1));
        // The packets up to the next loss arrive.
        bench.packets(first + 3..first + 10);
        bench.events();
    }
    assert_eq!(given_up, [true, false, false, false]);
}

/// Checks a round trip of 300 ms without reports: it is learnt from repairs, and no request is unnecessary.
#[test]
fn the_round_trip_is_learnt_from_repairs() {
    let start = netsim::Clock::new().now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let mut receiver = Receiver::new(Ssrc(1), ReceiveConfig::with_nack(90_000));
    let header = |number: u16| Header {
        marker: false,
        payload_type: PayloadType::new(96).unwrap(),
        sequence_number: SequenceNumber(number),
        timestamp: 0,
        ssrc: Ssrc(1),
        csrcs: Csrcs::default(),
        extension: None,
    };
    let (mut repairs, mut asked) = (std::collections::VecDeque::new(), Vec::new());
    for ms in 0..4000u64 {
        // A packet every 10 ms; every tenth is lost, and repaired 300 ms after its first request.
        if ms.is_multiple_of(10) && !ms.is_multiple_of(100) || ms == 0 {
            receiver.handle_packet(
                at(ms),
                &header(u16::try_from(ms / 10).unwrap()),
                Bytes::from_static(b"x"),
            );
        }
        receiver.handle_timeout(at(ms));
        let mut numbers = Vec::new();
        receiver.poll_nacks(at(ms), &mut numbers);
        for number in numbers {
            asked.push((ms, number));
            repairs.push_back((ms + 300, number));
        }
        while let Some((_, number)) = repairs.pop_front_if(|(due, _)| *due <= ms) {
            receiver.handle_recovered(at(ms), &header(number.value()), Bytes::from_static(b"x"));
        }
        while receiver.poll_event().is_some() {}
    }
    let later: Vec<_> = asked.iter().filter(|(ms, _)| (1000..3500).contains(ms)).collect();
    // The path is lossy, so each request is sent twice.
    let (requests, echoes): (Vec<&(u64, _)>, Vec<&(u64, _)>) =
        later.into_iter().partition(|(ms, _)| ms % 100 < 25);
    assert_eq!((requests.len(), echoes.len()), (25, 25), "each is asked for once: {requests:?}");
}
