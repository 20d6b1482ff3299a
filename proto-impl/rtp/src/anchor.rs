//! The anchor that relates wall-clock time to the `now` that state machines are given.

use std::time::{Duration, Instant};

use crate::ntp::NtpTime;

/// Seconds from 1900, the NTP epoch, to 1970, the Unix epoch.
const UNIX_EPOCH_SECONDS: u64 = 2_208_988_800;

/// An instant, and the wall-clock time at that instant. A state machine is given an anchor on creation, so that it need
/// not read a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NtpAnchor {
    at: Instant,
    time: NtpTime,
}

impl NtpAnchor {
    /// Anchors `now` to a time since the Unix epoch.
    #[must_use]
    pub fn new(now: Instant, since_unix_epoch: Duration) -> Self {
        let time = NtpTime::new(UNIX_EPOCH_SECONDS << 32).plus(since_unix_epoch);
        Self { at: now, time }
    }

    /// Returns the wall-clock time at `now`.
    #[must_use]
    pub fn at(&self, now: Instant) -> NtpTime {
        match now.checked_duration_since(self.at) {
            Some(later) => self.time.plus(later),
            None => self.time.minus(self.at.saturating_duration_since(now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_the_anchor() {
        let start = netsim::Clock::new().now();
        let anchor = NtpAnchor::new(start, Duration::from_millis(1_500));
        let time = anchor.at(start);
        assert_eq!(time.value(), (UNIX_EPOCH_SECONDS + 1) << 32 | 0x8000_0000);
        assert_eq!(u64::from(time.middle()), time.value() >> 16 & 0xffff_ffff);
        let later = anchor.at(start + Duration::from_millis(250));
        assert_eq!((later.since(time), time.since(later)), (Some(Duration::from_millis(250)), None));
        assert_eq!(later.minus(Duration::from_millis(250)), time);
    }
}
