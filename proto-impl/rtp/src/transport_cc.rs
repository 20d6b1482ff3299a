//! The receiving side of transport-wide feedback: reports arrival times to the sender, which estimates the
//! bandwidth from them. Browsers increase their rate only with this feedback or with REMB.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use std::time::{Duration, Instant};

use crate::number::{ExtendedSequence, SequenceNumber, Ssrc};
use crate::rtcp::{Compound, DELTA_MICROS, REFERENCE_MICROS};

/// Interval between two feedback packets.
pub const FEEDBACK_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum interval on paths where packets overtake each other. Each feedback reports the overtaken packets as lost, and
/// browsers lower their rate for them even if a later feedback contradicts. Browsers wait as long for each other.
const FEEDBACK_INTERVAL_MAX: Duration = Duration::from_millis(250);
/// Number of unreported arrivals at which feedback is sent immediately.
const ARRIVALS_MAX: usize = 512;
/// Maximum number of packets covered by one feedback packet, including missing ones.
const SPAN_MAX: u64 = 1024;
/// Number of packets after which it is known whether packets overtake each other; at most twice as many are counted.
const OVERTAKING_PACKETS: u32 = 128;
/// Shares of packets that arrive after they were reported as lost, in thousandths: from the first on packets count as
/// overtaking each other, and below the second they no longer do.
const OVERTAKING_SHARES: (u32, u32) = (20, 10);
/// A packet more than this many numbers ahead of the newest one restarts the recorder. So do two successive packets as
/// far behind; a single one is a stray.
const LEAP_MAX: u64 = 0x4000;
/// Maximum distance of two packets that count as successive.
const SUCCESSIVE_MAX: u16 = 16;

/// Records arrival times by transport-wide sequence number.
#[derive(Debug)]
pub struct ArrivalRecorder {
    /// Origin of the times.
    epoch: Instant,
    arrivals: BTreeMap<ExtendedSequence, i64>,
    /// Next number to report.
    next: Option<ExtendedSequence>,
    due: Option<Instant>,
    /// Number of the last packet that was too far behind to be one of this sequence.
    stray: Option<SequenceNumber>,
    feedback_count: u8,
    /// Number of packets, and of those among them that arrived after they were reported as lost.
    received: u32,
    overtaken: u32,
    is_overtaking: bool,
    /// Time of the last feedback, and the greatest recent time from the feedback that was then the last to the arrival
    /// of a packet that it or an earlier one had reported as lost.
    reported_at: Option<Instant>,
    lateness: Duration,
}

impl ArrivalRecorder {
    /// Creates the state before the first packet.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self {
            epoch: now,
            arrivals: BTreeMap::new(),
            next: None,
            due: None,
            stray: None,
            feedback_count: 0,
            received: 0,
            overtaken: 0,
            is_overtaking: false,
            reported_at: None,
            lateness: Duration::ZERO,
        }
    }

    /// Records the arrival of the packet with this number.
    pub fn handle_packet(&mut self, now: Instant, number: u16) {
        let number = SequenceNumber(number);
        let next = *self.next.get_or_insert_with(|| ExtendedSequence::first(number));
        let newest = self.arrivals.last_key_value().map_or(next, |(&newest, _)| newest);
        let sequence = match newest.nearest(number) {
            Some(sequence) if sequence.since(newest) <= LEAP_MAX && newest.since(sequence) <= LEAP_MAX => {
                self.stray = None;
                sequence
            }
            Some(sequence) if newest.since(sequence) > LEAP_MAX && !self.follows_stray(number) => {
                self.stray = Some(number);
                return;
            }
            _ => {
                let sequence = ExtendedSequence::first(number);
                self.stray = None;
                self.arrivals.clear();
                self.next = Some(sequence);
                sequence
            }
        };
        if self.arrivals.len() < ARRIVALS_MAX {
            let micros =
                i64::try_from(now.saturating_duration_since(self.epoch).as_micros()).unwrap_or(i64::MAX);
            self.arrivals.entry(sequence).or_insert(micros);
        }
        self.received += 1;
        if sequence < next {
            self.overtaken += 1;
            let late = self.reported_at.map(|at| now.saturating_duration_since(at));
            self.lateness = self.lateness.max(late.unwrap_or_default());
        }
        if self.received >= OVERTAKING_PACKETS {
            let (from, to) = OVERTAKING_SHARES;
            let least = if self.is_overtaking { to } else { from };
            self.is_overtaking = self.overtaken * 1000 >= self.received * least;
        }
        if self.received >= 2 * OVERTAKING_PACKETS {
            (self.received, self.overtaken) = (self.received / 2, self.overtaken / 2);
            self.lateness = self.lateness * 3 / 4;
        }
        let full = self.arrivals.len() >= ARRIVALS_MAX;
        let due = if full { now } else { now + self.interval() };
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    /// True if a packet comes shortly after the last stray one, so that the sender has begun to count anew.
    fn follows_stray(&self, number: SequenceNumber) -> bool {
        self.stray
            .is_some_and(|stray| (1..=SUCCESSIVE_MAX).contains(&number.value().wrapping_sub(stray.value())))
    }

    /// Adds feedback to `out` if it is due, and then returns true. Must be called until it returns false, since
    /// a single part may not hold everything.
    pub fn poll_feedback(&mut self, now: Instant, sender: Ssrc, media: Ssrc, out: &mut Compound) -> bool {
        if self.due.is_none_or(|due| due > now) {
            return false;
        }
        let (Some(next), Some((&first, &first_micros))) = (self.next, self.arrivals.first_key_value()) else {
            self.due = None;
            return false;
        };
        // A short gap before the first arrival is reported as lost; a long one is omitted, because nothing is known
        // about it. If a packet that was reported as lost arrives after all, feedback about it does not extend to
        // packets reported since: their arrivals are no longer kept, so they would be reported as lost, and a sender
        // believes the later report.
        let short = first >= next && first.since(next) < SPAN_MAX / 2;
        let base = if short { next } else { first };
        let reference = first_micros.div_euclid(REFERENCE_MICROS);
        let mut clock = reference.saturating_mul(REFERENCE_MICROS);
        let mut deltas = Vec::new();
        let mut at = base;
        let room = out.transport_feedback_room();
        for (arrived, (&sequence, &micros)) in (1..).zip(&self.arrivals) {
            // Deltas that do not fit go into the next part.
            let count = usize::try_from(sequence.since(base)).unwrap_or(usize::MAX).saturating_add(1);
            if sequence.since(base) >= SPAN_MAX || transport_feedback_bytes(count, arrived) > room {
                break;
            }
            if at < sequence && at < next {
                break;
            }
            let ticks = micros.saturating_sub(clock).div_euclid(DELTA_MICROS);
            // After a silence of eight seconds or more, the delta does not fit, so another feedback packet
            // begins.
            let Ok(delta) = i16::try_from(ticks) else { break };
            clock = clock.saturating_add(ticks.saturating_mul(DELTA_MICROS));
            while at < sequence {
                deltas.push(None);
                at = at.next();
            }
            deltas.push(Some(delta));
            at = at.next();
        }
        if deltas.is_empty() {
            return false;
        }
        // Only the lower 24 bits of the reference time are sent; they wrap around after 12 days.
        let reference = u32::try_from(reference.rem_euclid(1 << 24)).unwrap_or(0);
        if !out.transport_feedback((sender, media), base.number(), (reference, self.feedback_count), &deltas)
        {
            return false;
        }
        self.feedback_count = self.feedback_count.wrapping_add(1);
        self.reported_at = Some(now);
        self.arrivals = self.arrivals.split_off(&at);
        self.next = Some(next.max(at));
        if self.arrivals.is_empty() {
            self.due = None;
        }
        true
    }

    fn interval(&self) -> Duration {
        // The later packets are after feedback, the more of them each feedback reports as lost.
        let more = if self.is_overtaking { self.lateness * 3 / 2 } else { Duration::ZERO };
        FEEDBACK_INTERVAL.saturating_add(more).min(FEEDBACK_INTERVAL_MAX)
    }

    /// Returns the time at which feedback is due.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}

/// Returns the maximum size of the chunks and deltas of a part: two bytes per chunk of seven symbols, and two
/// bytes per delta.
const fn transport_feedback_bytes(count: usize, arrived: usize) -> usize {
    count.div_ceil(7).saturating_add(arrived).saturating_mul(2)
}

#[cfg(test)]
mod tests {
    mod loops;

    use super::*;
    use crate::rtcp::{Arrival, Rtcp, packets};

    struct Bench {
        recorder: ArrivalRecorder,
        start: Instant,
    }

    impl Bench {
        fn new() -> Self {
            let start = netsim::Clock::new().now();
            Self { recorder: ArrivalRecorder::new(start), start }
        }

        fn packets(&mut self, packets: impl IntoIterator<Item = (u64, u16)>) {
            for (micros, number) in packets {
                self.recorder.handle_packet(self.start + Duration::from_micros(micros), number);
            }
        }

        /// Returns all feedback that is due, and its number of parts.
        fn feedback(&mut self, ms: u64) -> (usize, Vec<(u16, Option<i64>)>) {
            self.feedback_within(ms, 1200)
        }

        /// Like [`Self::feedback`], with parts of at most `limit` bytes.
        fn feedback_within(&mut self, ms: u64, limit: usize) -> (usize, Vec<(u16, Option<i64>)>) {
            let mut all = Vec::new();
            let mut parts = 0;
            loop {
                let mut out = Compound::new(limit);
                let now = self.start + Duration::from_millis(ms);
                if !self.recorder.poll_feedback(now, Ssrc(1), Ssrc(2), &mut out) {
                    return (parts, all);
                }
                let Some(Ok(Rtcp::TransportFeedback(feedback))) = packets(out.as_bytes()).next() else {
                    panic!("feedback")
                };
                assert_eq!(usize::from(feedback.feedback_count), parts % 256);
                parts += 1;
                all.extend(
                    feedback.arrivals().map(|Arrival { number, at_micros }| (number.value(), at_micros)),
                );
            }
        }
    }

    #[test]
    fn arrivals_are_told_a_tenth_of_a_second_after_the_first() {
        let mut bench = Bench::new();
        bench.packets([(1_000, 65_534), (2_000, 65_535), (64_500, 2), (64_400, 1)]);
        assert_eq!(bench.feedback(100).0, 0);
        assert_eq!(bench.recorder.poll_timeout(), Some(bench.start + Duration::from_millis(101)));
        let (parts, arrivals) = bench.feedback(101);
        let expected =
            [(65_534, Some(1_000)), (65_535, Some(2_000)), (0, None), (1, Some(64_250)), (2, Some(64_500))];
        assert_eq!((parts, arrivals, bench.recorder.poll_timeout()), (1, expected.to_vec(), None));
    }

    #[test]
    fn long_silences_losses_and_late_packets_are_told() {
        let mut bench = Bench::new();
        bench.packets([(0, 10), (20_000_000, 11), (20_000_100, 300)]);
        let (parts, arrivals) = bench.feedback(21_000);
        assert_eq!((parts, arrivals.len()), (2, 291));
        assert_eq!(arrivals[1], (11, Some(20_000_000)));
        assert_eq!(arrivals.iter().filter(|(_, at)| at.is_some()).count(), 3);
        bench.recorder.feedback_count = 0;
        bench.packets([(20_100_000, 200), (20_200_000, 301)]);
        let (_, arrivals) = bench.feedback(20_300);
        assert_eq!(arrivals, [(200, Some(20_100_000)), (301, Some(20_200_000))]);
    }

    /// Two-byte deltas need more than one datagram.
    #[test]
    fn what_does_not_fit_goes_into_the_next_part() {
        let mut bench = Bench::new();
        bench.packets((0..512u16).map(|n| (u64::from(n) * 70_000, n)));
        let (parts, arrivals) = bench.feedback_within(40_000, 500);
        assert!(parts > 1);
        let numbers: Vec<u16> = arrivals.iter().filter(|(_, at)| at.is_some()).map(|(n, _)| *n).collect();
        assert_eq!(numbers, (0..512).collect::<Vec<_>>());
        assert_eq!(bench.recorder.poll_timeout(), None);
    }

    /// Checks that packets reported before a late one are not reported as lost when the late one is reported.
    #[test]
    fn a_late_packet_makes_no_losses() {
        let mut bench = Bench::new();
        bench.packets([(1_000, 5), (2_000, 7), (3_000, 8)]);
        assert_eq!(bench.feedback(101).1[1], (6, None));
        bench.recorder.feedback_count = 0;
        bench.packets([(150_000, 6)]);
        assert_eq!(bench.feedback(250).1, [(6, Some(150_000))]);
        bench.recorder.feedback_count = 0;
        bench.packets([(300_000, 10)]);
        assert_eq!(bench.feedback(400).1, [(9, None), (10, Some(300_000))]);
    }

    /// Checks that a stray packet discards nothing, while a sender that counts anew restarts the recorder.
    #[test]
    fn one_packet_far_behind_restarts_nothing() {
        let mut bench = Bench::new();
        bench.packets([(1_000, 30_000), (2_000, 30_001), (3_000, 7), (4_000, 30_002), (5_000, 9)]);
        let expected = [(30_000, Some(1_000)), (30_001, Some(2_000)), (30_002, Some(4_000))];
        assert_eq!(bench.feedback(200).1, expected);
        bench.recorder.feedback_count = 0;
        bench.packets([(300_000, 40), (301_000, 41), (302_000, 42)]);
        assert_eq!(bench.feedback(500).1, [(41, Some(301_000)), (42, Some(302_000))]);
    }

    /// Checks that feedback waits longer where packets overtake each other, and only there.
    #[test]
    fn feedback_is_rarer_where_packets_overtake_each_other() {
        for (late_every, expected_ms) in [(0, 100), (100, 100), (20, 250), (4, 250)] {
            let mut bench = Bench::new();
            let mut intervals = Vec::new();
            for n in 0..600u64 {
                // Each packet is sent 10 ms after the one before; a late one takes 150 ms more.
                let is_late = |n: u64| late_every > 0 && n.is_multiple_of(late_every);
                let ms = 10 * n;
                let number = |n: u64| u16::try_from(n).unwrap();
                if !is_late(n) {
                    bench.packets([(1000 * ms, number(n))]);
                }
                if let Some(before) = n.checked_sub(15).filter(|before| is_late(*before)) {
                    bench.packets([(1000 * ms + 1, number(before))]);
                }
                bench.recorder.feedback_count = 0;
                if bench.feedback(ms).0 > 0 {
                    intervals.push(ms);
                }
            }
            let [.., before, last] = intervals[..] else { panic!("{intervals:?}") };
            // Feedback is sent with the first packet after it is due, which begins the next interval.
            assert!(
                (expected_ms - 20..=expected_ms + 20).contains(&(last - before)),
                "{late_every}: {intervals:?}"
            );
            assert!(intervals[1] - intervals[0] <= 120, "the path is not known yet: {intervals:?}");
        }
    }

    /// Checks that a share of late packets between the two limits changes nothing.
    #[test]
    fn the_interval_of_feedback_does_not_swing() {
        for (early_every, expected) in [(4, true), (1_000, false)] {
            let mut bench = Bench::new();
            for n in 0..1_200u64 {
                let every = if n < 300 { early_every } else { 60 };
                // Late packets change places with the packets behind them.
                let number = match n % every {
                    at if at + 2 == every => n + 1,
                    at if at + 1 == every => n - 1,
                    _ => n,
                };
                bench.packets([(400_000 * n, u16::try_from(number).unwrap())]);
                bench.recorder.feedback_count = 0;
                bench.feedback(400 * n + 300);
                if n > 600 {
                    assert_eq!(bench.recorder.is_overtaking, expected, "packet {n}");
                }
            }
        }
    }

    #[test]
    fn memory_and_size_are_bounded() {
        let mut bench = Bench::new();
        bench
            .packets((0..5000u64).map(|n| (n * 10_007 % 3_000_000, u16::try_from(n * 37 % 65_536).unwrap())));
        assert!(bench.recorder.arrivals.len() <= ARRIVALS_MAX);
        bench.feedback(10_000);
        assert!(bench.recorder.arrivals.is_empty());
        bench.recorder.feedback_count = 0;
        // A jump of the numbers restarts the recorder.
        bench.packets([(10_000_000, 1), (10_000_250, 30_000)]);
        assert_eq!(bench.feedback(10_200).1, [(30_000, Some(10_000_250))]);
        // If no packet fits into the feedback, none is forgotten.
        bench.packets([(11_000_000, 30_001)]);
        let now = bench.start + Duration::from_secs(12);
        assert!(!bench.recorder.poll_feedback(now, Ssrc(1), Ssrc(2), &mut Compound::new(20)));
        bench.recorder.feedback_count = 0;
        assert_eq!(bench.feedback(12_000).1, [(30_001, Some(11_000_000))]);
    }
}
