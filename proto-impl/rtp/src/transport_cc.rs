//! The receiving side of transport-wide feedback: reports arrival times to the sender, which estimates the
//! bandwidth from them. Browsers increase their rate only with this feedback or with REMB.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::number::{ExtendedSequence, SequenceNumber, Ssrc};
use crate::rtcp::{Compound, DELTA_MICROS, REFERENCE_MICROS};

/// Interval between two feedback packets.
pub const FEEDBACK_INTERVAL: Duration = Duration::from_millis(100);
/// Number of unreported arrivals at which feedback is sent immediately.
const ARRIVALS_MAX: usize = 512;
/// Maximum number of packets covered by one feedback packet, including missing ones.
const SPAN_MAX: u64 = 1024;
/// Maximum number of missing packets that are remembered.
const MISSING_MAX: usize = 256;
/// Maximum number of packets by which a packet can be overtaken; a longer gap is a loss.
const OVERTAKEN_MAX: u64 = 64;
/// Maximum time for which feedback waits for packets that were overtaken.
const HOLD_MAX_MICROS: i64 = 120_000;
/// Part of the hold that is taken off each [`FEEDBACK_INTERVAL`], as a divisor.
const HOLD_DECAY: i64 = 32;
/// Shortest time between two feedback packets where packets are waited for.
const FEEDBACK_INTERVAL_MIN: Duration = Duration::from_millis(50);
/// Distance, in packets: a packet this far behind the last report is ignored, one this far ahead restarts the count.
const LEAP_MAX: u64 = 0x4000;

/// Records arrival times by transport-wide sequence number.
///
/// A sender counts a packet that feedback reports as missing as lost, even if it arrives later. On a path where
/// packets overtake each other, feedback therefore ends before the first missing packet that may still be on
/// its way, judging by how late packets were in the last seconds.
#[derive(Debug)]
pub struct ArrivalRecorder {
    /// Origin of the times.
    epoch: Instant,
    arrivals: BTreeMap<ExtendedSequence, i64>,
    /// Next number to report.
    next: Option<ExtendedSequence>,
    /// Highest number received so far.
    newest: Option<ExtendedSequence>,
    /// Missing packets, each with the time in microseconds at which a later packet first arrived.
    missing: BTreeMap<ExtendedSequence, i64>,
    /// Time in microseconds that feedback waits for a missing packet.
    hold_micros: i64,
    /// Time at which the hold was last shortened.
    shortened: Instant,
    due: Option<Instant>,
    feedback_count: u8,
}

impl ArrivalRecorder {
    /// Creates the state before the first packet.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self {
            epoch: now,
            arrivals: BTreeMap::new(),
            next: None,
            newest: None,
            missing: BTreeMap::new(),
            hold_micros: 0,
            shortened: now,
            due: None,
            feedback_count: 0,
        }
    }

    /// Records the arrival of the packet with this number.
    pub fn handle_packet(&mut self, now: Instant, number: u16) {
        let number = SequenceNumber(number);
        let next = *self.next.get_or_insert_with(|| ExtendedSequence::first(number));
        let newest = self.newest.unwrap_or(next);
        let sequence = match newest.nearest(number) {
            Some(sequence) if sequence.since(newest) <= LEAP_MAX && newest.since(sequence) <= LEAP_MAX => {
                sequence
            }
            _ => {
                let sequence = ExtendedSequence::first(number);
                self.arrivals.clear();
                self.missing.clear();
                (self.next, self.newest) = (Some(sequence), None);
                sequence
            }
        };
        let micros = self.micros(now);
        self.note_order(sequence, micros);
        if self.arrivals.len() < ARRIVALS_MAX {
            self.arrivals.entry(sequence).or_insert(micros);
        }
        let full = self.arrivals.len() >= ARRIVALS_MAX;
        let due = if full { now } else { now + FEEDBACK_INTERVAL };
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    fn micros(&self, now: Instant) -> i64 {
        i64::try_from(now.saturating_duration_since(self.epoch).as_micros()).unwrap_or(i64::MAX)
    }

    /// Records which packets this packet has overtaken, or how late the packet itself is.
    fn note_order(&mut self, sequence: ExtendedSequence, micros: i64) {
        match self.newest {
            Some(newest) if sequence <= newest => {
                if let Some(overtaken) = self.missing.remove(&sequence) {
                    let late = micros.saturating_sub(overtaken);
                    let hold = late.saturating_add(late / 4).min(HOLD_MAX_MICROS);
                    self.hold_micros = self.hold_micros.max(hold);
                }
            }
            Some(newest) => {
                let mut at = newest.next();
                if sequence.since(at) <= OVERTAKEN_MAX {
                    while at < sequence {
                        self.missing.insert(at, micros);
                        at = at.next();
                    }
                }
                while self.missing.len() > MISSING_MAX {
                    self.missing.pop_first();
                }
                self.newest = Some(sequence);
            }
            None => self.newest = Some(sequence),
        }
    }

    /// Returns the first missing packet from `base` on that may still arrive, and the time in microseconds
    /// until which feedback waits for it.
    fn awaited(&self, base: ExtendedSequence, now: Instant) -> Option<(ExtendedSequence, i64)> {
        let micros = self.micros(now);
        self.missing
            .range(base..)
            .map(|(&sequence, &overtaken)| (sequence, overtaken.saturating_add(self.hold_micros)))
            .find(|&(_, until)| until > micros)
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
        // A short gap before the first arrival is reported as lost; a long one is omitted, because nothing is
        // known about it. A packet reported as lost that arrived after all is reported separately: a sender
        // believes the later report, including its statements about the packets that follow.
        let short = first >= next && first.since(next) < SPAN_MAX / 2;
        let base = if short { next } else { first };
        let reference = first_micros.div_euclid(REFERENCE_MICROS);
        let mut clock = reference.saturating_mul(REFERENCE_MICROS);
        let mut deltas = Vec::new();
        let mut at = base;
        let room = out.transport_feedback_room();
        let is_full = self.arrivals.len() >= ARRIVALS_MAX;
        let awaited = self.awaited(next, now).filter(|_| !is_full);
        for (arrived, (&sequence, &micros)) in (1..).zip(&self.arrivals) {
            // Deltas that do not fit go into the next part.
            let count = usize::try_from(sequence.since(base)).unwrap_or(usize::MAX).saturating_add(1);
            if sequence.since(base) >= SPAN_MAX || transport_feedback_bytes(count, arrived) > room {
                break;
            }
            if at < sequence && at < next || awaited.is_some_and(|(missing, _)| missing < sequence) {
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
            let until = awaited.map(|(_, until)| self.epoch + micros_duration(until));
            self.due = until.map_or(self.due, |until| Some(until.max(now + FEEDBACK_INTERVAL_MIN)));
            return false;
        }
        // Only the lower 24 bits of the reference time are sent; they wrap around after 12 days.
        let reference = u32::try_from(reference.rem_euclid(1 << 24)).unwrap_or(0);
        if !out.transport_feedback((sender, media), base.number(), (reference, self.feedback_count), &deltas)
        {
            return false;
        }
        self.feedback_count = self.feedback_count.wrapping_add(1);
        self.arrivals = self.arrivals.split_off(&at);
        self.next = Some(next.max(at));
        if now.saturating_duration_since(self.shortened) >= FEEDBACK_INTERVAL {
            self.hold_micros -= self.hold_micros / HOLD_DECAY;
            self.shortened = now;
        }
        if self.arrivals.is_empty() {
            self.due = None;
        }
        true
    }

    /// Returns the time at which feedback is due.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}

fn micros_duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
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

    /// Feedback ends before a packet that may have been overtaken, as earlier ones on the path were, and
    /// reports it as missing if it does not arrive.
    #[test]
    fn feedback_waits_for_packets_that_were_overtaken() {
        let mut bench = Bench::new();
        bench.packets([(1_000, 5), (2_000, 7), (42_000, 6)]);
        assert_eq!(bench.feedback(101).1, [(5, Some(1_000)), (6, Some(42_000)), (7, Some(2_000))]);
        bench.recorder.feedback_count = 0;
        // Packet 9 is late, packet 11 is lost.
        bench.packets([(150_000, 8), (240_000, 10), (245_000, 12), (251_000, 9)]);
        assert_eq!(bench.feedback(252).1, [(8, Some(150_000)), (9, Some(251_000)), (10, Some(240_000))]);
        bench.recorder.feedback_count = 0;
        let due = bench.recorder.poll_timeout().expect("a deadline").duration_since(bench.start);
        assert!(due == Duration::from_millis(302), "{due:?}");
        assert_eq!(bench.feedback(301).0, 0);
        assert_eq!(bench.feedback(302).1, [(11, None), (12, Some(245_000))]);
        assert_eq!(bench.recorder.poll_timeout(), None);
    }

    /// Feedback comes at most twenty times a second where packets are waited for, whatever is lost and overtaken.
    #[test]
    fn waiting_makes_no_more_feedback() {
        let mut bench = Bench::new();
        let mut parts = 0;
        for ms in 0..10_000u64 {
            // Every second number is left out, and now and then one of them is late.
            let number = u16::try_from(ms * 2 % 65_536).unwrap();
            bench.packets([(ms * 1_000, number)]);
            if ms % 50 == 49 {
                bench.packets([(ms * 1_000, number.wrapping_sub(61))]);
            }
            bench.recorder.feedback_count = 0;
            parts += usize::from(bench.feedback(ms).0 > 0);
        }
        assert!((100..=210).contains(&parts), "{parts}");
    }

    /// A leap of the numbers forgets what was missing before it.
    #[test]
    fn a_leap_forgets_what_was_awaited() {
        let mut bench = Bench::new();
        bench.packets([(1_000, 5), (2_000, 7), (102_000, 6), (110_000, 30_000), (110_500, 30_001)]);
        assert_eq!(bench.feedback(210).1, [(30_000, Some(110_000)), (30_001, Some(110_500))]);
    }

    /// Once packets keep their order again, losses are reported without delay.
    #[test]
    fn the_wait_for_overtaken_packets_decays() {
        let mut bench = Bench::new();
        bench.packets([(1_000, 5), (2_000, 7), (242_000, 6)]);
        assert_eq!(bench.feedback(242).1.len(), 3);
        let mut held = 0;
        for turn in 0..100 {
            bench.recorder.feedback_count = 0;
            let (ms, number) = (1_000 + u64::from(turn) * 300, 10 + turn * 2);
            bench.packets([(ms * 1_000, number), (ms * 1_000 + 10_000, number + 2)]);
            held += usize::from(bench.feedback(ms + 100).1.len() < 3);
            bench.recorder.feedback_count = 0;
            bench.feedback(ms + 290);
        }
        assert!((5..50).contains(&held), "{held}");
    }

    /// Packets reported before a late one are not reported as lost.
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
        assert_eq!(bench.feedback(440).1, [(9, None), (10, Some(300_000))]);
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
        // A leap restarts the count.
        bench.packets([(10_000_000, 1), (10_000_250, 30_000)]);
        assert_eq!(bench.feedback(10_200).1, [(30_000, Some(10_000_250))]);
        // If nothing fits, nothing is lost.
        bench.packets([(11_000_000, 30_001)]);
        let now = bench.start + Duration::from_secs(12);
        assert!(!bench.recorder.poll_feedback(now, Ssrc(1), Ssrc(2), &mut Compound::new(20)));
        bench.recorder.feedback_count = 0;
        assert_eq!(bench.feedback(12_000).1, [(30_001, Some(11_000_000))]);
    }
}
