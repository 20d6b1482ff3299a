//! Virtual time.

use std::time::{Duration, Instant};

/// Start of the virtual wall clock in milliseconds: 2026-01-01T00:00:00Z.
const WALL_MS_START: u64 = 1_767_225_600_000;

/// A virtual clock. Its time passes only when a test advances it.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    base: Instant,
    elapsed: Duration,
}

impl Clock {
    /// Creates a clock at an arbitrary instant. Only differences of instants matter.
    #[must_use]
    #[allow(
        clippy::disallowed_methods,
        reason = "the epoch of virtual time: an Instant cannot be made otherwise"
    )]
    pub fn new() -> Self {
        Self { base: Instant::now(), elapsed: Duration::ZERO }
    }

    /// Current instant, to be passed to the simulated state machines.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.base + self.elapsed
    }

    /// Current Unix time in milliseconds, for timestamps and dates.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        WALL_MS_START.saturating_add(u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX))
    }

    /// Elapsed time since the start.
    #[must_use]
    pub const fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Returns the instant that is `offset` after the start.
    #[must_use]
    pub fn at(&self, offset: Duration) -> Instant {
        self.base + offset
    }

    /// Returns the time from the start to `instant`.
    #[must_use]
    pub fn offset(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.base)
    }

    /// Advances the clock by `time`.
    pub fn advance(&mut self, time: Duration) {
        self.elapsed = self.elapsed.saturating_add(time);
    }

    /// Advances the clock to `instant`. Does nothing if the instant is in the past.
    pub fn advance_to(&mut self, instant: Instant) {
        self.elapsed = self.elapsed.max(self.offset(instant));
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// Duration of `n` milliseconds.
#[must_use]
pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Duration of `n` seconds.
#[must_use]
pub const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_only_goes_forward_and_both_clocks_together() {
        let mut clock = Clock::new();
        let (start, wall) = (clock.now(), clock.wall_ms());
        clock.advance(ms(1500));
        clock.advance_to(start);
        assert_eq!((clock.now() - start, clock.wall_ms() - wall), (ms(1500), 1500));
        clock.advance_to(clock.at(secs(2)));
        assert_eq!(clock.elapsed(), secs(2));
    }
}
