//! The schedule of reports, the contents of sender reports, and measurements derived from the peer's reports.
//!
//! The interval is fixed at one second, and the first report is sent after half a second. RFC 3550 §6.2 scales
//! the interval with the size of the group and randomizes it, so that thousands of members do not report at the
//! same time; here each session has two members.

use std::time::{Duration, Instant};

use media::Unwrap;

use crate::anchor::NtpAnchor;
use crate::ntp::{NtpTime, from_compact};
use crate::rtcp::{Dlrr, ReportBlock, SenderInfo};

/// Interval between two reports.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Schedule of our reports.
#[derive(Debug, Clone)]
pub struct ReportSchedule {
    next: Instant,
}

impl ReportSchedule {
    /// Creates the schedule. The first report is due after half an interval, so that a player can synchronize
    /// audio and video early.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { next: now + REPORT_INTERVAL / 2 }
    }

    /// Returns true if a report is due, and counts it as sent. Missed reports are not made up for.
    pub fn poll(&mut self, now: Instant) -> bool {
        let due = self.next <= now;
        if due {
            self.next = now + REPORT_INTERVAL;
        }
        due
    }

    /// Time of the next report.
    #[must_use]
    pub const fn poll_timeout(&self) -> Instant {
        self.next
    }
}

/// Contents of the sender reports about one of our sources.
#[derive(Debug, Clone)]
pub struct SenderState {
    clock_rate: u32,
    packets: u32,
    octets: u32,
    /// A timestamp, and its sampling time.
    mapping: Option<(u32, Instant)>,
}

impl SenderState {
    /// Creates the state before anything is sent. Timestamps have `clock_rate` ticks per second.
    #[must_use]
    pub const fn new(clock_rate: u32) -> Self {
        Self { clock_rate, packets: 0, octets: 0, mapping: None }
    }

    /// Counts a sent packet. Both counters wrap around, as in reports (RFC 3550 §6.4.1).
    pub fn sent(&mut self, payload_bytes: usize) {
        self.packets = self.packets.wrapping_add(1);
        self.octets = self.octets.wrapping_add(u32::try_from(payload_bytes).unwrap_or(0));
    }

    /// Maps a timestamp to its sampling time. Call this for each access unit, with the same clock for all
    /// tracks of a stream, since players synchronize audio and video with it.
    pub const fn map(&mut self, timestamp: u32, at: Instant) {
        self.mapping = Some((timestamp, at));
    }

    /// Returns the sender info for a report sent now; `None` before the first mapping.
    #[must_use]
    pub fn info(&self, now: Instant, anchor: &NtpAnchor) -> Option<SenderInfo> {
        let (timestamp, at) = self.mapping?;
        let ticks = |duration: Duration| {
            let ticks = duration.as_nanos().saturating_mul(self.clock_rate.into()) / 1_000_000_000;
            // Only the lower 32 bits are used, because the clock wraps around.
            u32::try_from(ticks % (1 << 32)).unwrap_or(0)
        };
        let rtp_timestamp = match now.checked_duration_since(at) {
            Some(later) => timestamp.wrapping_add(ticks(later)),
            None => timestamp.wrapping_sub(ticks(at.saturating_duration_since(now))),
        };
        Some(SenderInfo { ntp: anchor.at(now), rtp_timestamp, packets: self.packets, octets: self.octets })
    }
}

/// Returns the round trip to a peer that reports about our source (RFC 3550 §6.4.1). `None` if the block refers
/// to no report of ours, or if the result is implausible: longer than a minute, or negative beyond clock
/// precision.
#[must_use]
pub fn round_trip(now: NtpTime, block: &ReportBlock) -> Option<Duration> {
    since_reference(now, block.last_sender_report, block.delay_since_report)
}

/// Returns the round trip for a pure receiver, from the answer to its reference time (RFC 3611 §4.5).
#[must_use]
pub fn round_trip_of_receiver(now: NtpTime, answer: &Dlrr) -> Option<Duration> {
    since_reference(now, answer.last_reference, answer.delay)
}

fn since_reference(now: NtpTime, reference: u32, delay: u32) -> Option<Duration> {
    /// Maximum plausible round trip; a longer one is wrong, or refers to an old report.
    const LONGEST: Duration = Duration::from_secs(60);
    if reference == 0 {
        return None;
    }
    let units = now.middle().wrapping_sub(reference).wrapping_sub(delay).cast_signed();
    // Rounding of the three times may give a slightly negative value.
    let units = if (-64..0).contains(&units) { 0 } else { u32::try_from(units).ok()? };
    Some(from_compact(units)).filter(|&round_trip| round_trip <= LONGEST)
}

/// Maps the timestamps of a source to the wall clock of its sender, which all sources of the sender share, so
/// that the receiver can synchronize audio and video.
#[derive(Debug, Clone)]
pub struct ClockMapping {
    clock_rate: u32,
    unwrap: Unwrap,
    reference: Option<(NtpTime, i64)>,
}

impl ClockMapping {
    /// Creates the state before the first report.
    #[must_use]
    pub fn new(clock_rate: u32) -> Self {
        Self { clock_rate: clock_rate.max(1), unwrap: Unwrap::new(32), reference: None }
    }

    /// Ticks per second.
    #[must_use]
    pub const fn clock_rate(&self) -> u32 {
        self.clock_rate
    }

    /// Handles a sender report of the source. A time of 0 means that the sender has no wall clock, and is
    /// ignored.
    pub fn handle_sender_report(&mut self, info: &SenderInfo) {
        let timestamp = self.unwrap.unwrap(info.rtp_timestamp.into());
        if info.ntp.value() != 0 {
            self.reference = Some((info.ntp, timestamp));
        }
    }

    /// Returns the sampling time of a timestamp; `None` before the first report.
    pub fn time_of(&mut self, timestamp: u32) -> Option<NtpTime> {
        let timestamp = self.unwrap.unwrap(timestamp.into());
        let (time, reference) = self.reference?;
        let ticks = timestamp.saturating_sub(reference);
        let nanos = u128::from(ticks.unsigned_abs()) * 1_000_000_000 / u128::from(self.clock_rate);
        let distance = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Some(if ticks < 0 { time.minus(distance) } else { time.plus(distance) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::Ssrc;

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn reports_are_due_each_second_and_never_in_a_bunch() {
        let start = netsim::Clock::new().now();
        let mut schedule = ReportSchedule::new(start);
        let due: Vec<u64> = (0..4000).filter(|&ms| schedule.poll(at(start, ms))).collect();
        assert_eq!(due, [500, 1500, 2500, 3500]);
        assert!(schedule.poll(at(start, 60_000)) && !schedule.poll(at(start, 60_001)));
        assert_eq!(schedule.poll_timeout(), at(start, 61_000));
    }

    #[test]
    fn sender_reports_synchronise_audio_and_video() {
        let start = netsim::Clock::new().now();
        let anchor = NtpAnchor::new(start, Duration::from_secs(1_770_000_000));
        let (mut video, mut audio) = (SenderState::new(90_000), SenderState::new(48_000));
        assert_eq!(video.info(start, &anchor), None);
        video.sent(1000);
        video.sent(200);
        video.map(u32::MAX - 10, at(start, 100));
        audio.map(500, at(start, 100));
        let (video_report, audio_report) =
            (video.info(at(start, 350), &anchor).unwrap(), audio.info(at(start, 90), &anchor).unwrap());
        assert_eq!((video_report.packets, video_report.octets), (2, 1200));
        assert_eq!((video_report.rtp_timestamp, audio_report.rtp_timestamp), (22_489, 20));

        let (mut video, mut audio) = (ClockMapping::new(90_000), ClockMapping::new(48_000));
        assert_eq!(video.time_of(7), None);
        video.handle_sender_report(&video_report);
        audio.handle_sender_report(&audio_report);
        let (seen, heard) = (video.time_of(u32::MAX - 10).unwrap(), audio.time_of(500).unwrap());
        let apart = seen.since(heard).or_else(|| heard.since(seen)).unwrap();
        assert!(apart < Duration::from_micros(20), "{apart:?}");
        assert_eq!(seen.since(anchor.at(start)).unwrap().as_millis(), 100);
    }

    #[test]
    fn a_report_without_a_clock_says_nothing() {
        let mut mapping = ClockMapping::new(90_000);
        let info = SenderInfo { ntp: NtpTime::new(0), rtp_timestamp: 5, packets: 0, octets: 0 };
        mapping.handle_sender_report(&info);
        assert_eq!(mapping.time_of(5), None);
    }

    #[test]
    fn round_trips_come_from_reports_and_lies_are_dropped() {
        let start = netsim::Clock::new().now();
        let anchor = NtpAnchor::new(start, Duration::from_secs(1_770_000_000));
        let block = |sent: u64, delay_ms: u64| ReportBlock {
            ssrc: Ssrc(1),
            fraction_lost: 0,
            cumulative_lost: 0,
            highest_sequence: 0,
            jitter: 0,
            last_sender_report: anchor.at(at(start, sent)).middle(),
            delay_since_report: u32::try_from(delay_ms * 65_536 / 1000).unwrap(),
        };
        let now = anchor.at(at(start, 1200));
        let measured = |block: &ReportBlock| round_trip(now, block).map(|time| time.as_millis());
        assert!((149..=150).contains(&measured(&block(1000, 50)).unwrap()));
        assert_eq!(measured(&block(1000, 200)), Some(0));
        assert_eq!(measured(&block(1000, 400)), None);
        assert_eq!(measured(&ReportBlock { last_sender_report: 0, ..block(0, 0) }), None);
        assert_eq!(measured(&ReportBlock { last_sender_report: 77, ..block(0, 0) }), None);
        let answer = Dlrr { ssrc: Ssrc(1), last_reference: anchor.at(at(start, 1100)).middle(), delay: 0 };
        assert!((99..=100).contains(&round_trip_of_receiver(now, &answer).unwrap().as_millis()));
    }
}
