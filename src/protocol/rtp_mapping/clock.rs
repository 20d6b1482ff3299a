//! Timestamps of RTP sources in the ticks of the stream's clock.
//!
//! Each source counts at a rate of its own, from anywhere. Where its frames lie on the stream's time is for
//! [`media::Timeline`] to say, by their arrival and by the sender's reports.

use std::time::Duration;

use media::{Timescale, Unwrap};
use rtp::NtpTime;

/// Ticks of the stream's clock; every RTP clock rate in use divides it or is divided by it.
pub(in crate::protocol) const TICKS: Timescale = Timescale::new(90_000);

/// The wall clock of a sender, in ticks since the first time that its reports told.
#[derive(Debug, Default)]
pub(in crate::protocol) struct SenderTime {
    base: Option<NtpTime>,
}

impl SenderTime {
    /// A time that reports give for a frame.
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

    /// Whether it has had a frame.
    pub(in crate::protocol) const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The timestamp of a frame, unwrapped.
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
    use super::*;

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
