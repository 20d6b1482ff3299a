//! A sender, a line with a queue, and a receiver that tells when packets came.

use std::collections::VecDeque;

use super::*;
use crate::number::Ssrc;
use crate::rtcp::{Compound, Rtcp, packets};
use crate::transport_cc::ArrivalRecorder;

/// A line of so many bits per second, with a queue of so many milliseconds; every `lose`-th packet is lost besides.
struct Line {
    start: Instant,
    now: u64,
    rate: u64,
    queue_ms: u64,
    lose: u64,
    /// When the line is free, in microseconds.
    free: u64,
    counted: u64,
    flying: VecDeque<(u64, u16)>,
    estimator: BandwidthEstimator,
    recorder: ArrivalRecorder,
    congested: u32,
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
        }
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

    /// Sends a stream of frames, 25 a second, for so long.
    fn run(&mut self, ms: u64, bits: u64) {
        let end = self.now + ms * 1000;
        while self.now < end {
            if self.now.is_multiple_of(40_000) {
                let mut left = bits / 25 / 8;
                while left > 0 {
                    let bytes = left.min(1200);
                    self.send(bytes);
                    left -= bytes;
                }
            }
            self.step();
        }
    }

    /// A millisecond.
    fn step(&mut self) {
        self.now += 1000;
        while let Some(&(at, number)) = self.flying.front().filter(|(at, _)| *at <= self.now) {
            self.recorder.handle_packet(self.at(at), number);
            self.flying.pop_front();
        }
        loop {
            let mut out = Compound::new(1200);
            if !self.recorder.poll_feedback(self.at(self.now), Ssrc(1), Ssrc(2), &mut out) {
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
    // And what fits then is not taken away.
    line.run(10_000, 500_000);
    let estimate = line.estimate();
    assert!((500_000..1_300_000).contains(&estimate), "{estimate}");
    assert!(!line.estimator.is_congested(line.at(line.now)));
}

/// A queue that is full loses packets, and delays do not grow any more: that is no random loss.
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

/// A short queue shows in losses, not in delays.
#[test]
fn losses_bound_the_estimate_to_what_came() {
    let mut line = Line::new(10_000_000);
    line.run(5_000, 2_000_000);
    (line.rate, line.queue_ms) = (1_000_000, 4);
    line.run(3_000, 2_000_000);
    let estimate = line.estimate();
    assert!((300_000..1_400_000).contains(&estimate), "{estimate}");
    assert!(line.estimator.loss() > 300, "{}", line.estimator.loss());
}

#[test]
fn a_random_loss_of_a_third_is_told_and_is_no_congestion() {
    let mut line = Line::new(10_000_000);
    line.lose = 3;
    line.run(10_000, 2_000_000);
    let estimate = line.estimate();
    assert!((1_000_000..2_200_000).contains(&estimate), "{estimate}");
    assert!((300..370).contains(&line.estimator.loss()), "{}", line.estimator.loss());
    assert_eq!(line.congested, 0);
    line.lose = u64::MAX;
    line.run(5_000, 2_000_000);
    assert!(line.estimator.loss() < 5, "{}", line.estimator.loss());
}

/// What is sent is far below what the line carries: only a probe can tell.
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
    let mut estimator = BandwidthEstimator::new();
    for _ in 0..10 {
        estimator.handle_report(64);
    }
    assert!((240..=251).contains(&estimator.loss()), "{}", estimator.loss());
    for _ in 0..10 {
        estimator.handle_report(0);
    }
    assert_eq!(estimator.loss(), 0);
}

/// Feedback about what was never sent, of all lengths, and times from everywhere.
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
