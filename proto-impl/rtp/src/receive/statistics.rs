//! Loss and jitter of a source, as reported (RFC 3550 §A.3, §A.8).

use std::time::{Duration, Instant};

use crate::ntp::{NtpTime, compact};
use crate::number::{ExtendedSequence, Ssrc};
use crate::rtcp::ReportBlock;

/// Differences between two transit times affect the hold up to one second divided by this: a fifth of a second.
const DIFFERENCES_PER_SECOND: u64 = 5;

/// Counters of one source since its sequence numbers last started.
#[derive(Debug, Clone)]
pub(super) struct Statistics {
    clock_rate: u32,
    /// Origin of transit times.
    epoch: Instant,
    base: ExtendedSequence,
    received: u64,
    expected_before: u64,
    received_before: u64,
    /// Jitter in sixteenths of a tick.
    jitter: u64,
    /// Jitter with each difference limited to a fifth of a second, so that a jump of the sender's clock does
    /// not count as jitter.
    steady_jitter: u64,
    transit: Option<u32>,
    sender_report: Option<(u32, Instant)>,
}

impl Statistics {
    pub(super) const fn new(now: Instant, clock_rate: u32, base: ExtendedSequence) -> Self {
        Self {
            clock_rate,
            epoch: now,
            base,
            received: 0,
            expected_before: 0,
            received_before: 0,
            jitter: 0,
            steady_jitter: 0,
            transit: None,
            sender_report: None,
        }
    }

    /// Restarts the counters; the clock and the data from sender reports are kept.
    pub(super) const fn restart(&mut self, base: ExtendedSequence) {
        self.base = base;
        (self.received, self.expected_before, self.received_before) = (0, 0, 0);
        self.transit = None;
    }

    pub(super) fn packet(&mut self, now: Instant, timestamp: u32) {
        self.received = self.received.saturating_add(1);
        let ticks = ticks(now.saturating_duration_since(self.epoch), self.clock_rate);
        // Both clocks wrap around, and so does the difference between them; its absolute value counts (RFC
        // 3550 §A.8).
        let transit = ticks.wrapping_sub(timestamp);
        if let Some(before) = self.transit.replace(transit) {
            let difference = u64::from(transit.wrapping_sub(before).cast_signed().unsigned_abs());
            let averaged = |jitter: u64, difference: u64| {
                jitter.saturating_add(difference).saturating_sub(jitter.saturating_add(8) >> 4)
            };
            self.jitter = averaged(self.jitter, difference);
            let most = u64::from(self.clock_rate) / DIFFERENCES_PER_SECOND;
            self.steady_jitter = averaged(self.steady_jitter, difference.min(most));
        }
    }

    pub(super) const fn sender_report(&mut self, now: Instant, ntp: NtpTime) {
        self.sender_report = Some((ntp.middle(), now));
    }

    /// Returns the number of expected packets that were not received.
    pub(super) fn lost(&self, highest: ExtendedSequence) -> i64 {
        let expected = i64::try_from(self.expected(highest)).unwrap_or(i64::MAX);
        expected.saturating_sub(i64::try_from(self.received).unwrap_or(i64::MAX))
    }

    pub(super) fn jitter(&self) -> u32 {
        u32::try_from(self.jitter >> 4).unwrap_or(u32::MAX)
    }

    /// Returns the jitter as a duration, with each difference limited to a fifth of a second.
    pub(super) fn jitter_time(&self) -> Duration {
        let nanos = (self.steady_jitter >> 4).saturating_mul(1_000_000_000);
        Duration::from_nanos(nanos.checked_div(self.clock_rate.into()).unwrap_or(0))
    }

    pub(super) fn report(&mut self, now: Instant, ssrc: Ssrc, highest: ExtendedSequence) -> ReportBlock {
        let expected = self.expected(highest);
        let interval = expected.saturating_sub(self.expected_before);
        let lost = interval.saturating_sub(self.received.saturating_sub(self.received_before));
        (self.expected_before, self.received_before) = (expected, self.received);
        let fraction = lost.saturating_mul(256).checked_div(interval).unwrap_or(0);
        let bounded = self.lost(highest).clamp(-0x80_0000, 0x7f_ffff);
        let (last_sender_report, delay_since_report) = self
            .sender_report
            .map_or((0, 0), |(middle, at)| (middle, compact(now.saturating_duration_since(at))));
        ReportBlock {
            ssrc,
            fraction_lost: u8::try_from(fraction).unwrap_or(u8::MAX),
            cumulative_lost: i32::try_from(bounded).unwrap_or(0),
            highest_sequence: highest.reported(),
            jitter: self.jitter(),
            last_sender_report,
            delay_since_report,
        }
    }

    fn expected(&self, highest: ExtendedSequence) -> u64 {
        highest.since(self.base).saturating_add(1)
    }
}

/// Converts a duration to ticks on a wrapping 32-bit clock.
#[expect(clippy::cast_possible_truncation, reason = "the clock wraps")]
const fn ticks(duration: Duration, clock_rate: u32) -> u32 {
    (duration.as_nanos() * clock_rate as u128 / 1_000_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::SequenceNumber;

    #[test]
    fn reports_count_what_is_lost_and_when_the_sender_spoke() {
        let start = netsim::Clock::new().now();
        let first = ExtendedSequence::first(SequenceNumber(65_530));
        let mut statistics = Statistics::new(start, 90_000, first);
        let at = |ms| start + Duration::from_millis(ms);
        for n in 0..8 {
            statistics.packet(at(n * 20), u32::MAX.wrapping_add(u32::try_from(n * 1800).unwrap()));
        }
        statistics.sender_report(at(100), NtpTime::new(0x1234_5678_9abc_def0));
        let block = statistics.report(at(350), Ssrc(9), first.plus(9));
        assert_eq!((block.fraction_lost, block.cumulative_lost, block.jitter), (51, 2, 0));
        assert_eq!((block.highest_sequence, block.last_sender_report), (0x1_0003, 0x5678_9abc));
        assert_eq!(block.delay_since_report, 16_384);
        // More packets than expected, because one was duplicated.
        for _ in 0..12 {
            statistics.packet(at(400), 0);
        }
        let block = statistics.report(at(450), Ssrc(9), first.plus(18));
        assert_eq!((block.fraction_lost, block.cumulative_lost), (0, -1));
        assert!(block.jitter > 0);
    }

    /// §A.8: with a transit time that alternates by D, the jitter converges to D.
    #[test]
    fn jitter_tends_to_the_difference() {
        let start = netsim::Clock::new().now();
        let mut statistics = Statistics::new(start, 8000, ExtendedSequence::first(SequenceNumber(0)));
        for n in 0..500u32 {
            let late = if n % 2 == 0 { 0 } else { 10 };
            statistics.packet(start + Duration::from_millis(u64::from(n * 20 + late)), n * 160);
        }
        assert!((78..=80).contains(&statistics.jitter()), "{}", statistics.jitter());
    }
}
