//! A limit on how often a client's commands change what it is sent, because a change may package the whole backlog of a
//! stream for this client alone.

use std::time::{Duration, Instant};

/// Minimum time between two changes.
pub(super) const INTERVAL: Duration = Duration::from_millis(250);

/// The pace of one kind of change: the first is made at once, and those of the next interval are made together at its
/// end.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// End of the interval after the last change.
    until: Option<Instant>,
    waits: bool,
}

impl Pace {
    /// Records that a change is wanted. Returns true if it may be made now.
    pub(super) fn may_change(&mut self, now: Instant) -> bool {
        self.waits |= self.until.is_some_and(|until| now < until);
        if !self.waits {
            self.until = now.checked_add(INTERVAL);
        }
        !self.waits
    }

    /// True while changes wait for the end of an interval.
    pub(super) const fn waits(&self) -> bool {
        self.waits
    }

    /// Returns true if changes have waited long enough and must be made now.
    pub(super) fn poll(&mut self, now: Instant) -> bool {
        let is_due = self.poll_timeout().is_some_and(|at| at <= now);
        if is_due {
            *self = Self { until: now.checked_add(INTERVAL), waits: false };
        }
        is_due
    }

    /// Returns the time at which waiting changes must be made.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.until.filter(|_| self.waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_change_is_made_at_once_and_many_are_made_together() {
        let start = Instant::now();
        let (mut pace, mut made) = (Pace::default(), Vec::new());
        for ms in 0..1_100 {
            let now = start + Duration::from_millis(ms);
            if pace.poll(now) {
                made.push(ms);
            }
            if ms < 600 && pace.may_change(now) {
                made.push(ms);
            }
            assert!(pace.poll_timeout().is_none_or(|at| at > now));
        }
        assert_eq!(made, [0, 250, 500, 750]);
        assert!(!pace.waits() && pace.may_change(start + Duration::from_secs(2)));
    }
}
