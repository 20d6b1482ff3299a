//! Times as microseconds since the start of a connection.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Converts times to microseconds since the start of the connection. Many calls in one turn pass the same
/// time, so the last conversion is kept.
#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    last: Cell<(Instant, i64)>,
}

impl Clock {
    pub(super) const fn new(start: Instant) -> Self {
        Self { start, last: Cell::new((start, 0)) }
    }

    /// Returns microseconds since the start; 0 for an earlier time.
    #[inline]
    pub(super) fn micros(&self, now: Instant) -> i64 {
        let (last, us) = self.last.get();
        if last == now { us } else { self.convert(now) }
    }

    #[inline(never)]
    fn convert(&self, now: Instant) -> i64 {
        let us = micros(self.start, now);
        self.last.set((now, us));
        us
    }

    /// Returns the time that is this many microseconds after the start.
    pub(super) fn instant(&self, us: i64) -> Instant {
        self.start + Duration::from_micros(u64::try_from(us).unwrap_or(0))
    }
}

/// Returns microseconds from `start` to `now`.
pub(super) fn micros(start: Instant, now: Instant) -> i64 {
    let since = now.saturating_duration_since(start);
    let us = since.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(since.subsec_micros()));
    i64::try_from(us).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use netsim::ms;

    use super::*;

    #[test]
    fn a_time_that_was_named_before_is_the_same_and_others_are_their_own() {
        let start = netsim::Clock::new().now();
        let clock = Clock::new(start);
        for wait in [0, 5, 5, 3, 5, 0] {
            assert_eq!(clock.micros(start + ms(wait)), i64::try_from(wait).unwrap() * 1000);
        }
        assert_eq!((clock.micros(start - ms(1)), clock.instant(7000)), (0, start + ms(7)));
    }
}
