//! Wall-clock time in RTCP's format (RFC 3550 §4).

use core::time::Duration;

/// A time as 32.32 fixed-point seconds since 1900. Wraps around in 2036; differences remain valid when it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NtpTime(u64);

impl NtpTime {
    /// Creates a time from its 64-bit value.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The 64-bit value.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }

    /// The middle 32 bits (16.16 seconds), which reports refer to.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the upper 16 bits are cut by definition")]
    pub const fn middle(self) -> u32 {
        (self.0 >> 16) as u32
    }

    /// Returns the time `duration` later.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.wrapping_add(fixed(duration)))
    }

    /// Returns the time `duration` earlier.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.wrapping_sub(fixed(duration)))
    }

    /// Returns the time elapsed since `base`, up to 68 years; `None` when this time is earlier.
    #[must_use]
    pub fn since(self, base: Self) -> Option<Duration> {
        let distance = self.0.wrapping_sub(base.0);
        if distance > u64::MAX / 2 {
            return None;
        }
        let nanos = ((distance & 0xffff_ffff) * 1_000_000_000) >> 32;
        Some(Duration::new(distance >> 32, u32::try_from(nanos).unwrap_or(0)))
    }
}

/// Returns a duration as 32.32 seconds, which wraps like the clock.
fn fixed(duration: Duration) -> u64 {
    // Rounds up, so that a duration computed from a fixed-point value converts back to that value.
    let fraction = (u64::from(duration.subsec_nanos()) << 32).div_ceil(1_000_000_000);
    (duration.as_secs() << 32).wrapping_add(fraction)
}

/// Converts a duration to units of 1/65536 s, the unit of delays in RTCP reports; at most 18 hours.
#[must_use]
pub(crate) fn compact(duration: Duration) -> u32 {
    u32::try_from(duration.as_nanos().saturating_mul(65_536) / 1_000_000_000).unwrap_or(u32::MAX)
}

/// Converts units of 1/65536 s to a duration.
#[cfg(any(test, feature = "std"))]
#[must_use]
pub(crate) fn from_compact(units: u32) -> Duration {
    Duration::from_nanos((u64::from(units) * 1_000_000_000) >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_era_wraps_and_units_convert() {
        let last = NtpTime::new(u64::MAX - 5);
        assert_eq!(last.plus(Duration::from_secs(3)).since(last), Some(Duration::from_secs(3)));
        for ms in [0, 1, 20, 999, 60_000] {
            let duration = Duration::from_millis(ms);
            assert!(duration - from_compact(compact(duration)) < Duration::from_micros(16));
        }
        assert_eq!(compact(Duration::from_secs(1 << 20)), u32::MAX);
    }
}
