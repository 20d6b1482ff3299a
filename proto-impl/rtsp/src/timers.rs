//! The timers of a machine: a small table, and its minimum.

use std::time::{Duration, Instant};

use crate::Timer;

/// Every timer, in the order in which they are reported when several have expired.
const ALL: [Timer; 4] = [Timer::Request, Timer::Session, Timer::Media, Timer::KeepAlive];

#[derive(Debug, Default)]
pub(crate) struct Timers {
    request: Option<Instant>,
    session: Option<Instant>,
    media: Option<Instant>,
    keep_alive: Option<Instant>,
}

impl Timers {
    /// Restarts a timer. A deadline beyond the clock's range never fires.
    pub(crate) fn set(&mut self, timer: Timer, now: Instant, after: Duration) {
        *self.slot(timer) = now.checked_add(after);
    }

    /// Starts a timer unless it is running.
    pub(crate) fn start(&mut self, timer: Timer, now: Instant, after: Duration) {
        if self.slot(timer).is_none() {
            self.set(timer, now, after);
        }
    }

    pub(crate) const fn clear(&mut self, timer: Timer) {
        *self.slot(timer) = None;
    }

    /// Stops a running timer and returns its remaining time.
    pub(crate) fn pause(&mut self, timer: Timer, now: Instant) -> Option<Duration> {
        self.slot(timer).take().map(|deadline| deadline.saturating_duration_since(now))
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        [self.request, self.session, self.media, self.keep_alive].into_iter().flatten().min()
    }

    pub(crate) fn expired(&mut self, now: Instant) -> Option<Timer> {
        ALL.into_iter().find(|timer| self.slot(*timer).is_some_and(|deadline| deadline <= now))
    }

    const fn slot(&mut self, timer: Timer) -> &mut Option<Instant> {
        match timer {
            Timer::Request => &mut self.request,
            Timer::Session => &mut self.session,
            Timer::Media => &mut self.media,
            Timer::KeepAlive => &mut self.keep_alive,
        }
    }
}
