//! RTP timestamps of sources in ticks of the stream's clock.
//!
//! Each source has a clock rate of its own and a random offset. [`media::Timeline`] places its frames on the stream's
//! time, by their arrival and by the sender's reports.

use std::time::Duration;

use media::{Timescale, Unwrap};
use rtp::NtpTime;

/// Time scale of the stream's clock; every RTP clock rate in use divides it or is divided by it.
pub(in crate::protocol) const TICKS: Timescale = Timescale::new(90_000);

/// The wall clock of a sender, in ticks since the first time in its reports.
#[derive(Debug, Default)]
pub(in crate::protocol) struct SenderTime {
    base: Option<NtpTime>,
}

impl SenderTime {
    /// Converts the wall-clock time that sender reports give for a frame to ticks.
    pub(in crate::protocol) fn ticks(&mut self, sampled: NtpTime) -> i64 {
        let base = *self.base.get_or_insert(sampled);
        let ahead = sampled.since(base).map(ticks);
        ahead.or_else(|| base.since(sampled).map(|back| ticks(back).saturating_neg())).unwrap_or(0)
    }
}

/// The clock of one source.
#[derive(Debug)]
pub(in crate::protocol) struct SourceClock {
    rate: Timescale,
    unwrap: Unwrap,
    has_begun: bool,
}

impl SourceClock {
    pub(in crate::protocol) const fn new(rate: Timescale, unwrap: Unwrap) -> Self {
        Self { rate, unwrap, has_begun: false }
    }

    /// The clock rate.
    pub(in crate::protocol) const fn rate(&self) -> Timescale {
        self.rate
    }

    /// True if a frame has arrived.
    pub(in crate::protocol) const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Unwraps the timestamp of a frame and converts it to ticks.
    pub(in crate::protocol) fn own(&mut self, timestamp: u32) -> i64 {
        self.has_begun = true;
        self.rate.convert(self.unwrap.unwrap(timestamp.into()), TICKS)
    }
}

fn ticks(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos() * 9 / 100_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use media::{ClockFault, FaultCounts, Position, Timeline, TrackId};
    use netsim::publisher::{Fault, Of, Publisher, Report, Reports, Unit};
    use rtp::report::ClockMapping;
    use rtp::rtcp::SenderInfo;

    use super::*;

    /// Clock rates of a publisher's sources.
    const RATES: [u32; 2] = [90_000, 48_000];
    /// Time between sender reports.
    const REPORTS_MS: i64 = 2_000;

    /// Milliseconds as a timestamp of RTP.
    fn timestamp(raw: u64, rate: u32) -> u32 {
        u32::try_from(raw * u64::from(rate) / 1_000 % (1 << 32)).unwrap()
    }

    fn info(report: &Report, rate: u32) -> SenderInfo {
        let base = NtpTime::new(1 << 63);
        let off = Duration::from_millis(report.wall.unsigned_abs());
        let ntp = if report.wall < 0 { base.minus(off) } else { base.plus(off) };
        SenderInfo { ntp, rtp_timestamp: timestamp(report.raw, rate), packets: 0, octets: 0 }
    }

    /// Returns a publisher's units with the times that the stream gives them, according to their RTP timestamps
    /// and the sender reports.
    fn run(publisher: &Publisher) -> (Vec<Unit>, FaultCounts) {
        let began: Instant = netsim::Clock::new().now();
        let mut timeline = Timeline::of_sources(TICKS, Position::default());
        let mut sender = SenderTime::default();
        let mut clocks = RATES.map(|rate| SourceClock::new(Timescale::new(rate), Unwrap::new(u32::BITS)));
        let mut mappings = RATES.map(ClockMapping::new);
        let mut reported = [500, 700];
        let mut units = publisher.units();
        for unit in &mut units {
            let (track, rate) = (unit.track, RATES[unit.track]);
            if unit.arrives >= reported[track] {
                let report = publisher.report(track, unit.arrives);
                report.iter().for_each(|report| mappings[track].handle_sender_report(&info(report, rate)));
                reported[track] += REPORTS_MS;
            }
            let timestamp = timestamp(unit.raw, rate);
            let sampled = mappings[track].time_of(timestamp).map(|sampled| sender.ticks(sampled));
            let own = clocks[track].own(timestamp);
            timeline.arrive(began + Duration::from_millis(unit.arrives.cast_unsigned()));
            let id = if track == 0 { TrackId::VIDEO } else { TrackId::AUDIO };
            unit.out = timeline.place_frame(id, own, sampled) / 90;
        }
        (units, timeline.faults())
    }

    /// Returns a publisher whose sources' timestamps begin at any value; their clocks wrap within the minute.
    fn sources(reports: Reports, faults: &[Fault]) -> Publisher {
        let wrap = (1i64 << 32) / 90;
        let (offsets, bits) = (vec![wrap - 20_000, 3 * (1i64 << 32) / 48 - 30_000], 40);
        Publisher { reports, offsets, bits, ..Publisher::with(faults) }
    }

    /// Judges lip sync and speed as if all sources had begun together; the stream learns from their reports or their
    /// arrival that they have.
    fn judge(publisher: &Publisher, units: &[Unit]) -> Result<(), String> {
        Publisher { offsets: vec![0, 0], ..publisher.clone() }.judge(units)
    }

    #[test]
    fn reports_of_every_sort_leave_order_speed_and_lips() {
        let by_hour = 3_600_000;
        for (reports, doubted) in [
            (Reports::Absent, 0),
            (Reports::Agreeing, 0),
            (Reports::Frozen, 0),
            (Reports::Only(0), 0),
            (Reports::Only(1), 0),
            (Reports::Disagreeing { of: 1, by: 4_000 }, 1),
            (Reports::Disagreeing { of: 0, by: -4_000 }, 1),
            (Reports::Disagreeing { of: 1, by: by_hour }, 1),
            (Reports::Set { at: 20_000, by: -1_500 }, 0),
            (Reports::Set { at: 20_000, by: -30_000 }, 0),
            (Reports::Set { at: 20_000, by: -by_hour }, 0),
            (Reports::Set { at: 20_000, by: by_hour }, 0),
        ] {
            let publisher = sources(reports, &[]);
            let (units, faults) = run(&publisher);
            assert_eq!(judge(&publisher, &units), Ok(()), "{reports:?}");
            let others = faults.total() - faults.of(ClockFault::Report);
            assert!(faults.of(ClockFault::Report) >= doubted && others == 0, "{reports:?}: {faults:?}");
        }
    }

    #[test]
    fn faults_of_sources_with_reports_leave_order_speed_and_lips() {
        let (of, at) = (Of::One(1), 20_000);
        for fault in [
            Fault::Jump { of: Of::All, at, by: -30_000 },
            Fault::Jump { of, at, by: 4_000 },
            Fault::Outlier { of, at, by: 5_000 },
            Fault::Mute { of, at, ms: 4_000, stands: true },
            Fault::Mute { of, at, ms: 4_000, stands: false },
            Fault::Stall { at, ms: 3_000 },
            Fault::Frozen { of, at, ms: 3_000 },
        ] {
            for reports in [Reports::Absent, Reports::Agreeing, Reports::Only(0)] {
                let publisher = sources(reports, &[fault]);
                let (units, _) = run(&publisher);
                assert_eq!(judge(&publisher, &units), Ok(()), "{fault:?} {reports:?}");
            }
        }
    }

    #[test]
    fn timestamps_are_unwrapped_at_their_own_rate() {
        let mut clock = SourceClock::new(Timescale::new(48_000), Unwrap::new(u32::BITS));
        assert!(!clock.has_begun());
        let first = clock.own(u32::MAX - 47_999);
        assert_eq!(clock.own(0) - first, 90_000);
        assert_eq!(clock.own(u32::MAX - 23_999) - first, 45_000);
        assert!(clock.has_begun());
    }

    #[test]
    fn sender_time_counts_from_the_first_report_in_both_directions() {
        let ntp = NtpTime::new(100 << 32);
        let second = Duration::from_secs(1);
        let mut time = SenderTime::default();
        assert_eq!(time.ticks(ntp), 0);
        assert_eq!(time.ticks(ntp.plus(second)), 90_000);
        assert_eq!(time.ticks(ntp.minus(second)), -90_000);
    }
}
