//! The timers of a machine: a small table, and its minimum.

use std::time::{Duration, Instant};

use crate::Timer;

/// Every timer, in the order in which they are reported when several have expired.
const ALL: [Timer; 4] = [Timer::Handshake, Timer::Command, Timer::Publisher, Timer::Player];

#[derive(Debug, Default)]
pub(crate) struct Timers {
    handshake: Option<Instant>,
    command: Option<Instant>,
    publisher: Option<Instant>,
    player: Option<Instant>,
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

    pub(crate) fn deadline(&self) -> Option<Instant> {
        [self.handshake, self.command, self.publisher, self.player].into_iter().flatten().min()
    }

    pub(crate) fn expired(&mut self, now: Instant) -> Option<Timer> {
        ALL.into_iter().find(|timer| self.slot(*timer).is_some_and(|deadline| deadline <= now))
    }

    const fn slot(&mut self, timer: Timer) -> &mut Option<Instant> {
        match timer {
            Timer::Handshake => &mut self.handshake,
            Timer::Command => &mut self.command,
            Timer::Publisher => &mut self.publisher,
            Timer::Player => &mut self.player,
        }
    }
}
