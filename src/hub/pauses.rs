//! The cadence of a publisher: the pauses between its units. A longer pause than usual is silence.

use std::time::{Duration, Instant};

/// Length of a window. The longest pauses of the current window and of the one before it count.
const WINDOW: Duration = Duration::from_secs(10);
/// A publisher is silent after its longest pause, multiplied by this.
const TIMES: u32 = 2;
/// Silence after which any publisher is silent, unless the setting is longer.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The pauses of a publisher in the last ten to twenty seconds.
#[derive(Debug, Default, Clone, Copy)]
pub struct Pauses {
    /// Time of the last unit.
    last: Option<Instant>,
    /// Time at which the current window began.
    began: Option<Instant>,
    /// Longest pause of the window before the current one, and of the current one.
    longest: [Duration; 2],
}

impl Pauses {
    /// Notes a unit that arrives.
    pub fn note(&mut self, now: Instant) {
        let began = *self.began.get_or_insert(now);
        let age = now.saturating_duration_since(began);
        if age >= WINDOW {
            let [_, current] = self.longest;
            self.longest = [if age < WINDOW * 2 { current } else { Duration::ZERO }, Duration::ZERO];
            self.began = Some(now);
        }
        if let Some(last) = self.last.replace(now) {
            let [_, current] = &mut self.longest;
            *current = (*current).max(now.saturating_duration_since(last));
        }
    }

    /// Returns the time without a unit after which the publisher is silent: at least `floor`, and longer for a
    /// publisher that often pauses, for example between pictures of which it sends one a second.
    #[must_use]
    pub fn silence(&self, floor: Duration) -> Duration {
        let [before, current] = self.longest;
        floor.max((before.max(current) * TIMES).min(SILENCE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use netsim::{Clock, ms, secs};

    use super::*;

    const FLOOR: Duration = ms(1000);

    #[test]
    fn silence_is_told_by_the_longest_pauses_of_the_last_seconds() {
        let began = Clock::new().now();
        let mut pauses = Pauses::default();
        assert_eq!(pauses.silence(FLOOR), FLOOR, "nothing is known");
        // (time of the first unit, time between units, number of units, silence after the last one)
        for (at_ms, every_ms, count, silence_ms) in [
            (0, 40, 100, 1000),
            (4_000, 1000, 5, 2000),
            // The pauses of a second count until two windows have passed without them.
            (9_000, 40, 250, 2000),
            (19_000, 40, 500, 1000),
            (41_000, 7000, 3, 10_000),
            (100_000, 20, 1000, 10_000),
            (120_000, 20, 600, 1000),
        ] {
            for number in 0..count {
                pauses.note(began + ms(at_ms + every_ms * number));
            }
            assert_eq!(pauses.silence(FLOOR), ms(silence_ms), "{every_ms} ms from {at_ms}");
        }
        assert_eq!(pauses.silence(secs(30)), secs(30), "the setting is a floor");
    }

    #[test]
    fn bursts_once_a_second_are_no_silence() {
        let began = Clock::new().now();
        let mut pauses = Pauses::default();
        for burst in 0..5 {
            for unit in 0..25 {
                pauses.note(began + ms(1000 * burst + unit));
            }
        }
        assert_eq!(pauses.silence(FLOOR), ms(2 * (1000 - 24)));
    }
}
