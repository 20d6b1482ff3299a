//! The timers of a state machine: a small table of deadlines.

use std::time::{Duration, Instant};

/// A deadline for each of `N` timers, which are named by values of `T`. Most of them are usually stopped.
///
/// If several timers have expired, they are reported in the order of `names`.
#[derive(Debug)]
pub struct Timers<T, const N: usize> {
    names: [T; N],
    deadlines: [Option<Instant>; N],
}

impl<T: Copy + PartialEq, const N: usize> Timers<T, N> {
    /// Makes a table of these timers. All are stopped.
    #[must_use]
    pub const fn new(names: [T; N]) -> Self {
        Self { names, deadlines: [None; N] }
    }

    /// Starts a timer, or restarts it if it is running. If the deadline exceeds the clock's range, the
    /// timer never expires.
    pub fn set(&mut self, timer: T, now: Instant, after: Duration) {
        if let Some(slot) = self.slot(timer) {
            *slot = now.checked_add(after);
        }
    }

    /// Starts a timer. Does nothing if it is already running.
    pub fn start(&mut self, timer: T, now: Instant, after: Duration) {
        if let Some(slot @ None) = self.slot(timer) {
            *slot = now.checked_add(after);
        }
    }

    /// Stops a timer.
    pub fn clear(&mut self, timer: T) {
        self.slot(timer).into_iter().for_each(|slot| *slot = None);
    }

    /// Stops all timers.
    pub const fn clear_all(&mut self) {
        self.deadlines = [None; N];
    }

    /// Stops a running timer and returns its remaining time.
    pub fn pause(&mut self, timer: T, now: Instant) -> Option<Duration> {
        let deadline = self.slot(timer)?.take()?;
        Some(deadline.saturating_duration_since(now))
    }

    /// Returns the earliest deadline.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadlines.iter().flatten().min().copied()
    }

    /// Returns the first timer that has expired. The timer stays expired until it is stopped or restarted.
    #[must_use]
    pub fn expired(&self, now: Instant) -> Option<T> {
        let is_due = |deadline: &Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        let mut all = self.names.iter().zip(&self.deadlines);
        all.find(|(_, deadline)| is_due(deadline)).map(|(timer, _)| *timer)
    }

    fn slot(&mut self, timer: T) -> Option<&mut Option<Instant>> {
        let mut all = self.names.iter().zip(&mut self.deadlines);
        all.find(|(name, _)| **name == timer).map(|(_, deadline)| deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[allow(
        clippy::disallowed_methods,
        reason = "any instant to count from; netsim's clock needs this crate"
    )]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn timers_expire_in_their_order_and_stop_alone() {
        let now = start();
        let mut timers = Timers::new(['a', 'b', 'c']);
        assert_eq!((timers.deadline(), timers.expired(now)), (None, None));
        timers.set('b', now, SECOND);
        timers.set('a', now, 2 * SECOND);
        assert_eq!(timers.deadline(), Some(now + SECOND));
        assert_eq!(timers.expired(now + SECOND / 2), None);
        assert_eq!(timers.expired(now + SECOND), Some('b'));
        assert_eq!(timers.expired(now + 2 * SECOND), Some('a'));
        timers.clear('a');
        assert_eq!(timers.expired(now + 2 * SECOND), Some('b'));
        timers.clear_all();
        assert_eq!(timers.deadline(), None);
    }

    #[test]
    fn a_running_timer_is_restarted_by_set_and_not_by_start() {
        let now = start();
        let mut timers = Timers::new(['a']);
        timers.start('a', now, SECOND);
        timers.start('a', now, 5 * SECOND);
        assert_eq!(timers.deadline(), Some(now + SECOND));
        timers.set('a', now, 5 * SECOND);
        assert_eq!(timers.deadline(), Some(now + 5 * SECOND));
        assert_eq!(timers.pause('a', now + SECOND), Some(4 * SECOND));
        assert_eq!((timers.pause('a', now), timers.deadline()), (None, None));
    }

    #[test]
    fn a_deadline_beyond_the_clock_and_a_timer_of_no_name_never_fire() {
        let now = start();
        let mut timers = Timers::new(['a']);
        timers.set('a', now, Duration::MAX);
        timers.set('b', now, Duration::ZERO);
        assert_eq!((timers.deadline(), timers.expired(now + SECOND)), (None, None));
    }
}
