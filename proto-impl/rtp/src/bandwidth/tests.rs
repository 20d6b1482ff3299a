//! Tests with a sender, a line with a queue, and a receiver that reports the arrival of packets.

use std::collections::VecDeque;

use super::*;
use bytes::Bytes;

use crate::number::Ssrc;
use crate::rtcp::{Compound, Rtcp, packets};
use crate::transport_cc::ArrivalRecorder;

/// A line with a rate in bits per second, and a queue in milliseconds. In addition, every `lose`-th packet is
/// lost.
struct Line {
    start: Instant,
    now: u64,
    rate: u64,
    queue_ms: u64,
    lose: u64,
    /// Time from which on the line is idle, in microseconds.
    free: u64,
    counted: u64,
    flying: VecDeque<(u64, u16)>,
    estimator: BandwidthEstimator,
    recorder: ArrivalRecorder,
    congested: u32,
    /// True if the source obeys the estimate.
    obeys: bool,
}

const LATENCY: u64 = 20_000;

impl Line {
    fn new(rate: u64) -> Self {
        let start = netsim::Clock::new().now();
        let mut estimator = BandwidthEstimator::new();
        estimator.number_packets(start);
        Self {
            start,
            now: 0,
            rate,
            queue_ms: 300,
            lose: u64::MAX,
            free: 0,
            counted: 0,
            flying: VecDeque::new(),
            estimator,
            recorder: ArrivalRecorder::new(start),
            congested: 0,
            obeys: false,
        }
    }

    fn target(&self) -> u64 {
        self.estimator.pace(self.at(self.now)).filter(|_| self.obeys).unwrap_or(u64::MAX)
    }

    fn at(&self, micros: u64) -> Instant {
        self.start + Duration::from_micros(micros)
    }

    fn send(&mut self, bytes: u64) {
        let number = self.estimator.packet_sent(self.at(self.now), usize::try_from(bytes).unwrap()).unwrap();
        self.counted += 1;
        let free = self.free.max(self.now);
        if free - self.now > self.queue_ms * 1000 || self.counted.is_multiple_of(self.lose) {
            return;
        }
        self.free = free + bytes * 8_000_000 / self.rate;
        self.flying.push_back((self.free + LATENCY, number));
    }

    fn estimate(&self) -> u64 {
        self.estimator.estimate(self.at(self.now)).unwrap_or(0)
    }

    /// Sends a stream at 25 frames per second for `ms` milliseconds.
    fn run(&mut self, ms: u64, bits: u64) {
        let end = self.now + ms * 1000;
        while self.now < end {
            if self.now.is_multiple_of(40_000) {
                let mut left = bits.min(self.target()) / 25 / 8;
                while left > 0 {
                    let bytes = left.min(1200);
                    self.send(bytes);
                    left -= bytes;
                }
            }
            self.step();
        }
    }

    /// Advances the simulation by a millisecond.
    fn step(&mut self) {
        self.now += 1000;
        while let Some(&(at, number)) = self.flying.front().filter(|(at, _)| *at <= self.now) {
            self.recorder.handle_packet(self.at(at), number);
            self.flying.pop_front();
        }
        let mut recorder = std::mem::replace(&mut self.recorder, ArrivalRecorder::new(self.start));
        self.tell(&mut recorder);
        self.recorder = recorder;
    }

    /// Passes the feedback of a recorder to the sender.
    fn tell(&mut self, recorder: &mut ArrivalRecorder) {
        loop {
            let mut out = Compound::new(1200);
            if !recorder.poll_feedback(self.at(self.now), Ssrc(1), Ssrc(2), &mut out) {
                break;
            }
            let Some(Ok(Rtcp::TransportFeedback(feedback))) = packets(out.as_bytes()).next() else {
                panic!("feedback")
            };
            let now = self.at(self.now);
            self.estimator.handle_feedback(now, &feedback);
            self.congested += u32::from(self.estimator.is_congested(now));
        }
    }
}

#[test]
fn a_stream_that_fits_is_carried_and_the_estimate_stays_near_it() {
    let mut line = Line::new(10_000_000);
    line.run(20_000, 2_000_000);
    let estimate = line.estimate();
    assert!((2_000_000..3_200_000).contains(&estimate), "{estimate}");
    assert_eq!((line.congested, line.estimator.loss()), (0, 0));
}

#[test]
fn a_line_that_is_too_slow_is_noticed_within_a_second() {
    let mut line = Line::new(10_000_000);
    line.run(5_000, 2_000_000);
    line.rate = 1_000_000;
    line.run(1_200, 2_000_000);
    let estimate = line.estimate();
    assert!((500_000..1_300_000).contains(&estimate), "{estimate}");
    assert!(line.congested > 0);
    // If the stream fits, the estimate is not reduced.
    line.run(10_000, 500_000);
    let estimate = line.estimate();
    assert!((500_000..1_300_000).contains(&estimate), "{estimate}");
    assert!(!line.estimator.is_congested(line.at(line.now)));
}

/// Checks that a hint shows that a path has regained its capacity, long before the estimate has grown.
#[test]
fn a_line_that_is_wide_again_is_hinted_at_and_one_that_stays_narrow_is_not() {
    let mut line = Line::new(4_000_000);
    line.obeys = true;
    line.run(5_000, 2_000_000);
    line.rate = 600_000;
    line.run(4_000, 2_000_000);
    for _ in 0..40 {
        line.run(100, 2_000_000);
        assert_eq!(line.estimator.hint(), None);
    }
    line.rate = 4_000_000;
    line.run(500, 2_000_000);
    let (hint, estimate) = (line.estimator.hint().unwrap(), line.estimate());
    assert!(estimate < 800_000, "{estimate}");
    assert!((2_000_000..3_000_000).contains(&hint), "a little more than was carried before: {hint}");
    // A probe discards the hint.
    line.estimator.begin_probe();
    assert_eq!(line.estimator.hint(), None);
}

#[test]
fn a_line_that_loses_a_fifth_is_not_hinted_at() {
    let mut line = Line::new(600_000);
    line.obeys = true;
    line.run(5_000, 2_000_000);
    assert!(line.estimator.reads_pairs());
    line.lose = 5;
    line.run(4_000, 2_000_000);
    assert!(!line.estimator.reads_pairs());
    line.rate = 4_000_000;
    for _ in 0..10 {
        line.run(100, 2_000_000);
        assert_eq!(line.estimator.hint(), None);
    }
}

/// Checks losses from a full queue, where delays no longer grow: these losses do not count as random.
#[test]
fn a_full_queue_is_congestion_as_long_as_it_stands() {
    let mut line = Line::new(10_000_000);
    line.run(5_000, 2_000_000);
    line.rate = 1_000_000;
    line.run(10_000, 2_000_000);
    let before = line.congested;
    line.run(5_000, 2_000_000);
    assert!(line.congested - before > 40, "{}", line.congested - before);
    assert!(line.estimate() < 1_000_000, "{}", line.estimate());
    line.run(5_000, 500_000);
    assert!(!line.estimator.is_congested(line.at(line.now)));
}

/// Checks that losses from a short queue, which causes hardly any delay, limit the estimate.
#[test]
fn losses_bound_the_estimate_to_what_came() {
    let mut line = Line::new(10_000_000);
    line.run(5_000, 2_000_000);
    (line.rate, line.queue_ms) = (1_000_000, 4);
    line.run(3_000, 2_000_000);
    let estimate = line.estimate();
    // One or two packets of each frame arrive.
    assert!((200_000..1_400_000).contains(&estimate), "{estimate}");
    assert!(line.estimator.loss() > 300, "{}", line.estimator.loss());
}

#[test]
fn a_random_loss_of_a_third_is_told_and_is_no_congestion() {
    let mut line = Line::new(10_000_000);
    (line.lose, line.obeys) = (3, true);
    line.run(10_000, 2_000_000);
    let estimate = line.estimate();
    assert!((1_500_000..3_100_000).contains(&estimate), "{estimate}");
    assert!((300..370).contains(&line.estimator.loss()), "{}", line.estimator.loss());
    assert!((250..370).contains(&line.estimator.path_loss()), "{}", line.estimator.path_loss());
    assert_eq!(line.congested, 0);
    line.lose = u64::MAX;
    line.run(5_000, 2_000_000);
    assert!(line.estimator.loss() < 5, "{}", line.estimator.loss());
}

/// Checks that a probe finds the capacity of a line that carries far more than its stream needs.
#[test]
fn a_probe_finds_what_the_line_carries_and_one_that_does_not_fit_changes_nothing() {
    for (rate, wanted) in [(10_000_000, 2_000_000..3_400_000), (1_200_000, 400_000..1_250_000)] {
        let mut line = Line::new(rate);
        line.run(3_000, 500_000);
        assert!(line.estimate() < 800_000, "{}", line.estimate());
        // A fifth of a second at 3 Mb/s.
        line.estimator.begin_probe();
        for _ in 0..200 {
            for _ in 0..(line.now.is_multiple_of(4_000) as u64) {
                line.send(1500);
            }
            line.step();
        }
        line.estimator.end_probe();
        line.run(400, 500_000);
        assert!(wanted.contains(&line.estimate()), "{rate}: {}", line.estimate());
    }
}

/// Returns a fast line on which a probe of 50 packets at 3 Mb/s was just sent, and the numbers of its packets,
/// about which the receiver has not reported yet.
fn probed() -> (Line, Vec<u16>) {
    let mut line = Line::new(100_000_000);
    line.run(3_000, 500_000);
    line.estimator.begin_probe();
    for _ in 0..50 {
        line.send(1500);
        line.now += 4_000;
    }
    line.estimator.end_probe();
    let numbers = std::mem::take(&mut line.flying).into_iter().map(|(_, number)| number).collect();
    (line, numbers)
}

/// Checks feedback that claims that a whole probe of 3 Mb/s arrived within a millisecond.
#[test]
fn x_13_a_probe_shows_no_more_than_was_sent() {
    let (mut line, numbers) = probed();
    for (n, number) in (0..).zip(numbers) {
        line.recorder.handle_packet(line.at(line.now + n * 20), number);
    }
    line.run(400, 500_000);
    assert!((2_000_000..3_400_000).contains(&line.estimate()), "{}", line.estimate());
}

/// Checks that a probe shows no more than was sent, even if feedback first reports the last packets of the
/// probe, and then all others as if they had arrived at once.
#[test]
fn x_13_a_probe_shows_no_more_than_was_sent_whatever_the_order_of_feedback() {
    let (mut line, numbers) = probed();
    let arrived = line.at(line.now);
    for told in [&numbers[48..49], &numbers[..48], &numbers[49..]] {
        let mut recorder = ArrivalRecorder::new(line.start);
        told.iter().for_each(|number| recorder.handle_packet(arrived, *number));
        line.now += 200_000;
        line.tell(&mut recorder);
    }
    line.run(400, 500_000);
    assert!((400_000..3_400_000).contains(&line.estimate()), "{}", line.estimate());
}

#[test]
fn what_the_receiver_estimates_is_obeyed_while_it_says_so() {
    let start = netsim::Clock::new().now();
    let mut estimator = BandwidthEstimator::new();
    assert_eq!(estimator.estimate(start), None);
    assert_eq!(estimator.packet_sent(start, 1000), None);
    estimator.handle_remb(start, 700_000);
    assert_eq!(estimator.estimate(start), Some(700_000));
    assert_eq!(estimator.estimate(start + REMB_AGE_MAX), None);
    let mut line = Line::new(10_000_000);
    line.run(3_000, 2_000_000);
    line.estimator.handle_remb(line.at(line.now), 300_000);
    assert_eq!(line.estimate(), 300_000);
}

#[test]
fn reports_tell_the_loss_where_there_is_no_feedback() {
    let (mut estimator, now) = (BandwidthEstimator::new(), netsim::Clock::new().now());
    for _ in 0..10 {
        estimator.handle_report(now, 64);
    }
    assert!((240..=251).contains(&estimator.loss()), "{}", estimator.loss());
    for _ in 0..10 {
        estimator.handle_report(now, 0);
    }
    assert_eq!(estimator.loss(), 0);
}

/// Checks that a drop of the path's capacity from 4 Mb/s to 2 Mb/s is noticed, with queues of any length,
/// however late feedback arrives.
#[test]
fn a_cut_is_felt_however_late_feedback_comes() {
    for (queue_ms, obeys) in [(300, true), (4_000, true), (20_000, true), (4_000, false), (20_000, false)] {
        let mut line = Line::new(4_000_000);
        (line.queue_ms, line.obeys) = (queue_ms, obeys);
        line.run(5_000, 3_500_000);
        line.rate = 2_000_000;
        line.run(1_500, 3_500_000);
        for second in 0..20 {
            line.run(1_000, 3_500_000);
            let estimate = line.estimate();
            assert!((1_500_000..2_200_000).contains(&estimate), "{queue_ms} {obeys} {second}: {estimate}");
            let has_queue = line.free.saturating_sub(line.now) > 500_000;
            assert!(!has_queue || line.estimator.is_congested(line.at(line.now)), "{queue_ms} {second}");
        }
        let waits = line.free.saturating_sub(line.now);
        assert_eq!(waits < 200_000, obeys, "{queue_ms}: {waits}");
    }
}

/// Checks that a burst at the start fills the queue, and that its delay is not attributed to the path.
#[test]
fn a_queue_of_the_beginning_is_a_queue() {
    let mut line = Line::new(1_000_000);
    line.queue_ms = 2_000;
    // A second of 2.5 Mb/s at once.
    (0..260).for_each(|_| line.send(1200));
    line.obeys = true;
    line.run(4_000, 2_500_000);
    let estimate = line.estimate();
    assert!((750_000..1_050_000).contains(&estimate), "{estimate}");
    assert!(line.free.saturating_sub(line.now) < 200_000, "{}", line.free.saturating_sub(line.now));
}

/// Checks missing feedback: while packets are sent, the rate falls step by step; while the source pauses,
/// nothing changes; later feedback continues from the reduced rate.
#[test]
fn silence_is_congestion_while_packets_leave() {
    let mut line = Line::new(10_000_000);
    line.run(5_000, 2_000_000);
    let before = line.estimate();
    line.now += 60_000_000;
    assert_eq!((line.estimate(), line.estimator.is_congested(line.at(line.now))), (before, false), "a pause");
    line.run(1_000, 2_000_000);
    // Everything sent from now on is lost.
    line.lose = 1;
    let mut seen = vec![line.estimate()];
    for _ in 0..10 {
        line.run(1_000, 2_000_000);
        seen.push(line.estimate());
    }
    assert!(seen.windows(2).all(|pair| pair[1] <= pair[0]), "{seen:?}");
    assert!(seen[3] < seen[0] * 2 / 3 && seen[10] < seen[0] / 20, "{seen:?}");
    assert!(line.estimator.is_congested(line.at(line.now)));
    line.lose = u64::MAX;
    line.obeys = true;
    line.run(3_000, 2_000_000);
    assert!(line.estimate() > 1_900_000, "{}", line.estimate());
}

/// Checks that reports are used only if there is no feedback.
#[test]
fn reports_speak_when_feedback_does_not() {
    let mut line = Line::new(10_000_000);
    line.run(3_000, 2_000_000);
    line.estimator.handle_report(line.at(line.now), 128);
    assert_eq!(line.estimator.loss(), 0, "feedback knows better");
    // Feedback stops, and reports continue.
    for (fraction, rises) in [(0, true), (128, false), (128, false), (0, true)] {
        let before = line.estimate();
        for n in 0..100 {
            line.now += 20_000;
            line.estimator.packet_sent(line.at(line.now), 5_000);
            if n % 50 == 49 {
                line.estimator.handle_report(line.at(line.now), fraction);
            }
        }
        let estimate = line.estimate();
        assert_eq!(estimate >= before / 10 * 9, rises, "{fraction}: {before} {estimate}");
    }
    assert!(line.estimator.loss() > 50);
    // Reports yield an estimate even if there was never any feedback.
    let mut line = Line::new(10_000_000);
    for n in 0..200 {
        line.now += 20_000;
        line.estimator.packet_sent(line.at(line.now), 5_000);
        if n % 50 == 49 {
            line.estimator.handle_report(line.at(line.now), 0);
        }
    }
    assert!((1_500_000..=3_100_000).contains(&line.estimate()), "{}", line.estimate());
}

/// Checks that congestion ends after a source with a queue has become silent, once all packets have arrived and
/// the queue has had time to drain.
#[test]
fn a_queue_of_which_nothing_is_heard_any_more_is_over() {
    let mut line = Line::new(4_000_000);
    (line.obeys, line.queue_ms) = (true, 2_000);
    line.run(3_000, 3_000_000);
    line.rate = 300_000;
    line.run(1_000, 3_000_000);
    let target = |line: &Line| line.estimator.target(line.at(line.now)).unwrap();
    // Packets in flight arrive, and no more are sent.
    let end = line.free + 2 * LATENCY;
    let mut least = u64::MAX;
    while line.now < end + 100_000 {
        line.step();
        least = least.min(target(&line));
    }
    assert!(least < line.estimate() / 2, "{least} {}", line.estimate());
    line.now += 3_000_000;
    assert_eq!(target(&line), line.estimate());
}

/// Checks losses before the queue. Lost packets do not use its capacity, so correspondingly more may be sent.
#[test]
fn a_path_that_loses_before_its_queue_carries_what_passes() {
    let mut line = Line::new(1_000_000);
    (line.lose, line.obeys) = (3, true);
    line.run(10_000, 3_000_000);
    let mut all = Vec::new();
    for _ in 0..100 {
        line.run(200, 3_000_000);
        all.push(line.estimate());
    }
    all.sort_unstable();
    assert!(all[10] > 1_150_000 && all[90] < 2_000_000, "{:?}", (all[10], all[50], all[90]));
}

/// Checks that there is an estimate at any round trip time.
#[test]
fn a_long_way_is_no_silence() {
    // With a round trip of ten seconds, half a minute leaves room for only two further round trips after the
    // first feedback.
    for (latency, least) in [(800_000, 1_900_000), (4_000_000, 1_900_000), (10_000_000, 90_000)] {
        let start = netsim::Clock::new().now();
        let mut line = Line::new(10_000_000);
        let mut late: VecDeque<(u64, Vec<u8>)> = VecDeque::new();
        let mut estimator = BandwidthEstimator::new();
        estimator.number_packets(start);
        std::mem::swap(&mut line.estimator, &mut estimator);
        for n in 0..3_000u64 {
            line.now = n * 10_000;
            let number = line.estimator.packet_sent(line.at(line.now), 2_500).unwrap();
            line.recorder.handle_packet(line.at(line.now + 1_000), number);
            let mut out = Compound::new(1200);
            if line.recorder.poll_feedback(line.at(line.now), Ssrc(1), Ssrc(2), &mut out) {
                late.push_back((line.now + latency, out.into_bytes()));
            }
            while let Some((_, bytes)) = late.pop_front_if(|(at, _)| *at <= line.now) {
                let Some(Ok(Rtcp::TransportFeedback(feedback))) = packets(&bytes).next() else {
                    panic!("feedback")
                };
                line.estimator.handle_feedback(line.at(line.now), &feedback);
            }
        }
        assert!((least..3_100_000).contains(&line.estimate()), "{latency}: {}", line.estimate());
        assert!(!line.estimator.is_congested(line.at(line.now)), "{latency}");
        assert!(line.estimator.held_bytes() < 40 << 10);
    }
}

/// Returns false feedback about the packets since the last feedback. Deltas are in units of 250 microseconds.
fn lies(kind: &str, n: u64, count: usize) -> (u32, Vec<Option<i16>>) {
    // The reference time is in steps of 64 ms.
    let time = u32::try_from(n * 100 / 64).unwrap();
    match kind {
        "all lost" => (time, vec![None; count.max(1)]),
        "none lost" => (time, vec![Some(1); count.max(1)]),
        "half lost" => (time, (0..count.max(1)).map(|n| (n % 2 == 0).then_some(4)).collect()),
        "backwards" => (0x7f_ffff - time, vec![Some(-40); count.max(1)]),
        "leaps" => ((time * 7919) & 0x7f_ffff, vec![Some(i16::MAX); count.max(1)]),
        "at one moment" => (5, vec![Some(0); count.max(1)]),
        "ever later" => (time * 2, vec![Some(300); count.max(1)]),
        "never sent" => (time, vec![Some(1); 1000]),
        _ => panic!("{kind}"),
    }
}

/// Checks false feedback of all kinds: the estimate is limited to a range, at most one and a half times the
/// rate sent is allowed, and nothing grows without limit. Correct feedback restores the estimate.
#[test]
fn a_liar_moves_nothing_beyond_its_bounds() {
    let kinds = [
        "all lost",
        "none lost",
        "half lost",
        "backwards",
        "leaps",
        "at one moment",
        "ever later",
        "never sent",
    ];
    for kind in kinds {
        let mut line = Line::new(10_000_000);
        line.obeys = true;
        line.run(3_000, 2_000_000);
        let mut next = line.estimator.packet_sent(line.at(line.now), 100).unwrap();
        for n in 0..200u64 {
            let before = next;
            for _ in 0..2_000_000u64.min(line.target()) / 80 / 1200 {
                next = line.estimator.packet_sent(line.at(line.now), 1200).unwrap();
            }
            line.now += 100_000;
            let (time, deltas) = lies(kind, n, usize::from(next.wrapping_sub(before)));
            let mut out = Compound::new(1200);
            let base = if kind == "never sent" { next.wrapping_add(1) } else { before.wrapping_add(1) };
            let count = u8::try_from(n % 256).unwrap();
            out.transport_feedback((Ssrc(1), Ssrc(2)), crate::SequenceNumber(base), (time, count), &deltas);
            if let Some(Ok(Rtcp::TransportFeedback(feedback))) = packets(out.as_bytes()).next() {
                line.estimator.handle_feedback(line.at(line.now), &feedback);
            }
            let (estimate, target) = (line.estimate(), line.estimator.target(line.at(line.now)));
            assert!((50_000..=3_500_000).contains(&estimate), "{kind} {n}: {estimate}");
            assert!(target.is_none_or(|target| target <= estimate), "{kind} {n}: {target:?} {estimate}");
            assert!(line.estimator.held_bytes() < 40 << 10, "{kind}");
        }
        if kind == "all lost" {
            assert!(line.estimate() < 500_000, "{}", line.estimate());
        }
        line.recorder = ArrivalRecorder::new(line.start);
        line.free = line.now;
        line.run(15_000, 2_000_000);
        assert!(line.estimate() > 1_500_000, "{kind}: {}", line.estimate());
    }
}

#[test]
fn estimates_of_the_receiver_have_bounds_too() {
    let mut line = Line::new(10_000_000);
    line.run(3_000, 2_000_000);
    let ours = line.estimate();
    for (told, estimate, target) in [
        (0, 50_000, Some(50_000)),
        (1, 50_000, Some(50_000)),
        (700_000, 700_000, Some(700_000)),
        (1 << 60, ours, None),
        (u64::MAX, ours, None),
    ] {
        line.estimator.handle_remb(line.at(line.now), told);
        assert_eq!((line.estimate(), line.estimator.target(line.at(line.now))), (estimate, target), "{told}");
    }
}

/// Checks feedback about packets that were never sent, of all lengths and with arbitrary times.
#[test]
fn feedback_of_a_liar_is_bounded() {
    let mut line = Line::new(10_000_000);
    line.run(1_000, 2_000_000);
    for n in 0..200u16 {
        let mut out = Compound::new(1200);
        let deltas: Vec<Option<i16>> = (0..300)
            .map(|k: i16| (k % 3 != 0).then_some(k.wrapping_mul(i16::try_from(n).unwrap() * 129)))
            .collect();
        out.transport_feedback(
            (Ssrc(1), Ssrc(2)),
            crate::SequenceNumber(n.wrapping_mul(331)),
            (u32::from(n) << 15, 0),
            &deltas,
        );
        if let Some(Ok(Rtcp::TransportFeedback(feedback))) = packets(out.as_bytes()).next() {
            line.estimator.handle_feedback(line.at(line.now), &feedback);
        }
        let estimate = line.estimate();
        assert!((50_000..=1_000_000_000).contains(&estimate), "{estimate}");
    }
    assert!(line.estimator.held_bytes() < 64 << 10);
}

/// Checks that packets which a browser drops while its decoders start do not reduce the rate for a new
/// viewer, which needs to catch up. Later losses do.
#[test]
fn what_a_new_viewer_drops_bounds_nothing() {
    let run = |quiet_ms: u64| {
        let mut line = Line::new(20_000_000);
        line.obeys = true;
        line.run(quiet_ms, 4_000_000);
        line.lose = 4;
        line.run(700, 4_000_000);
        line.lose = u64::MAX;
        let target = line.estimator.target(line.at(line.now));
        line.run(800, 4_000_000);
        (target, line.estimate())
    };
    let (target, estimate) = run(100);
    assert_eq!(target, None);
    assert!(estimate > 4_000_000, "{estimate}");
    let (target, _) = run(8_000);
    assert!(target.is_some(), "a path that begins to lose a quarter");
}

/// Simulates a viewer that joins with a waiting GOP, over a path where packets overtake each other by up to
/// 100 ms. Returns the estimate after two seconds.
fn join_over_jitter(seed: u64) -> u64 {
    let clock = netsim::Clock::new();
    let pictures_at = seed % 4 * 60;
    let seed = crypto::Seed::from_number(seed);
    let link = |name| {
        netsim::Link::new(&seed.derive(name, 0)).latency(netsim::ms(20)).jitter(netsim::ms(100)).overtaking()
    };
    let (mut there, mut back) = (link("there").rate(10_000_000), link("back"));
    let mut estimator = BandwidthEstimator::new();
    estimator.number_packets(clock.now());
    let mut recorder = ArrivalRecorder::new(clock.now());
    // Bytes that may be sent, and bytes that wait.
    let (mut credit, mut waiting) = (0, 400_000);
    for ms in 0..2_000 {
        let now = clock.at(Duration::from_millis(ms));
        waiting += if ms % 40 == 0 { 12_500 } else { 0 };
        credit = (credit + estimator.pace(now).unwrap_or(10_000_000) / 8_000).min(5_000);
        if ms == 60 {
            // A report that arrives before the feedback; it counts overtaken packets as lost.
            estimator.handle_report(now, 128);
        }
        // Audio, at 64 kb/s, is sent first, and pictures some time later.
        let (sounds, is_video) = (usize::from(ms % 20 == 0), ms >= pictures_at);
        let mut leave = |bytes: usize, estimator: &mut BandwidthEstimator| {
            let number = estimator.packet_sent(now, bytes).unwrap();
            there.send_sized(now, Bytes::copy_from_slice(&number.to_be_bytes()), bytes);
        };
        (0..sounds).for_each(|_| leave(180, &mut estimator));
        while is_video && waiting >= 1_200 && credit >= 1_200 {
            leave(1_200, &mut estimator);
            (credit, waiting) = (credit - 1_200, waiting - 1_200);
        }
        while let Some(came) = there.poll_delivery(now) {
            recorder.handle_packet(now, u16::from_be_bytes([came[0], came[1]]));
        }
        let mut out = Compound::new(1200);
        while recorder.poll_feedback(now, Ssrc(1), Ssrc(2), &mut out) {
            back.send(
                now,
                Bytes::copy_from_slice(std::mem::replace(&mut out, Compound::new(1200)).as_bytes()),
            );
        }
        while let Some(told) = back.poll_delivery(now) {
            let Some(Ok(Rtcp::TransportFeedback(feedback))) = packets(&told).next() else {
                panic!("feedback")
            };
            estimator.handle_feedback(now, &feedback);
        }
    }
    estimator.estimate(clock.at(Duration::from_secs(2))).unwrap_or(0)
}

#[test]
fn jitter_and_an_early_report_at_a_join_are_no_congestion() {
    let mut estimates: Vec<u64> = (0..300).map(join_over_jitter).collect();
    estimates.sort_unstable();
    assert!(estimates[0] > 2_000_000, "{:?}", &estimates[..30]);
}
