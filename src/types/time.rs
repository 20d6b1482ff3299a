//! Clock readings and dates.

use std::time::{Duration, Instant};

/// The time of a turn. Protocol machines get only `mono`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Monotonic time, for durations and deadlines.
    pub mono: Instant,
    /// Wall-clock time in Unix milliseconds, for records that people read.
    pub wall_ms: u64,
}

impl Now {
    /// Returns the wall-clock time in the form used by records, in Unix milliseconds.
    #[must_use]
    pub fn wall_date(self) -> i64 {
        i64::try_from(self.wall_ms).unwrap_or(i64::MAX)
    }
}

/// Converts instants to dates from a single clock reading, so that setting the wall clock does not move the dates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Calendar(Now);

impl Calendar {
    /// Creates a calendar from this reading.
    #[must_use]
    pub const fn new(reading: Now) -> Self {
        Self(reading)
    }

    /// Returns the wall-clock time of an instant before or after the clock reading, in Unix milliseconds.
    #[must_use]
    pub fn date_ms(&self, at: Instant) -> u64 {
        let ms = |from: Instant, to: Instant| {
            u64::try_from(to.saturating_duration_since(from).as_millis()).unwrap_or(u64::MAX)
        };
        let Now { mono, wall_ms } = self.0;
        wall_ms.saturating_add(ms(mono, at)).saturating_sub(ms(at, mono))
    }
}

/// Difference to the monotonic clock from which on the wall clock counts as set.
const SET_BY_MS: u64 = 5 * 60 * 1000;
/// Time for which a wall clock is not trusted after it was set.
const DOUBT: Duration = Duration::from_secs(3600);

/// A wall clock, compared with the monotonic clock at each look. After it was set by more than some minutes, ages that
/// are computed from dates are not trusted for an hour: a clock that runs ahead for a moment would make everything old.
#[derive(Debug, Clone, Copy, Default)]
pub struct WallClock {
    last: Option<Now>,
    doubted_until: Option<Instant>,
}

impl WallClock {
    /// Looks at the clocks. Returns true if ages may be computed from dates. `on_set` is called if the wall clock was set
    /// since the last look.
    pub fn is_trusted(&mut self, now: Now, on_set: impl FnOnce()) -> bool {
        let expected_ms = self.last.map(|last| Calendar::new(last).date_ms(now.mono));
        if expected_ms.is_some_and(|expected| expected.abs_diff(now.wall_ms) > SET_BY_MS) {
            on_set();
            self.doubted_until = now.mono.checked_add(DOUBT);
        }
        self.last = Some(now);
        self.doubted_until.is_none_or(|until| until <= now.mono)
    }
}

/// Days of 400 years, after which the calendar repeats.
const ERA_DAYS: u64 = 146_097;

/// A date and time in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    /// Year, from 1970.
    pub year: u64,
    /// Month, 1 to 12.
    pub month: u64,
    /// Day of the month, 1 to 31.
    pub day: u64,
    /// Hour, 0 to 23.
    pub hour: u64,
    /// Minute, 0 to 59.
    pub minute: u64,
    /// Second, 0 to 59.
    pub second: u64,
    /// Millisecond, 0 to 999.
    pub millis: u64,
}

impl Civil {
    /// Converts Unix milliseconds.
    #[must_use]
    pub const fn of_unix_ms(ms: u64) -> Self {
        let seconds = ms / 1000;
        // Years are counted from March, so that the leap day is the last one: 1970-01-01 is day 719 468 since
        // 0000-03-01.
        let days = seconds / 86_400 + 719_468;
        let (era, day) = (days / ERA_DAYS, days % ERA_DAYS);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let shifted = (5 * day + 2) / 153;
        let date = day - (153 * shifted + 2) / 5 + 1;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        let year = era * 400 + year + (month <= 2) as u64;
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        Self { year, month, day: date, hour, minute, second, millis: ms % 1000 }
    }

    /// Converts to Unix milliseconds. `None` if there is no such date, or if it is before 1970.
    #[must_use]
    pub fn unix_ms(self) -> Option<u64> {
        let Self { year, month, day, hour, minute, second, millis } = self;
        let is_date = (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
        if !is_date {
            return None;
        }
        let from_march = if month <= 2 { year - 1 } else { year };
        let (era, of_era) = (from_march / 400, from_march % 400);
        let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let days = era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
        let ms = (((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + millis;
        // An impossible date such as 30 February does not survive the conversion to milliseconds and back.
        (Self::of_unix_ms(ms) == self).then_some(ms)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_date_is_that_of_its_milliseconds_and_back() {
        for day in (0..2_932_896_u64).step_by(97) {
            let ms = day * 86_400_000 + 12_345_678;
            assert_eq!(Civil::of_unix_ms(ms).unix_ms(), Some(ms));
        }
        let date = Civil { year: 2028, month: 2, day: 29, hour: 1, minute: 2, second: 3, millis: 4 };
        assert_eq!(date.unix_ms(), Some(1_835_398_923_004));
        for none in [
            Civil { year: 2027, ..date },
            Civil { year: 1969, ..date },
            Civil { year: u64::MAX, ..date },
            Civil { month: 0, ..date },
            Civil { day: 0, ..date },
            Civil { hour: 24, ..date },
            Civil { second: 60, ..date },
        ] {
            assert_eq!(none.unix_ms(), None, "{none:?}");
        }
    }

    #[test]
    fn a_wall_clock_that_was_set_is_not_trusted_for_an_hour() {
        let (began, mut clock) = (Instant::now(), WallClock::default());
        let mut look = |second: u64, wall_s: u64| {
            let mono = began + Duration::from_secs(second);
            clock.is_trusted(Now { mono, wall_ms: wall_s * 1000 }, || ())
        };
        let slow = [look(0, 1000), look(60, 1060), look(120, 1360)];
        assert_eq!(slow, [true; 3], "less than five minutes between two looks");
        assert_eq!([look(180, 90_000), look(300, 1500)], [false; 2], "ahead and back");
        assert_eq!([look(3899, 5099), look(3900, 5100)], [false, true]);
    }

    #[test]
    fn a_calendar_counts_by_monotonic_time_alone() {
        let mono = Instant::now() + Duration::from_secs(10);
        let calendar = Calendar::new(Now { mono, wall_ms: 5000 });
        let ahead = |ms| calendar.date_ms(mono + Duration::from_millis(ms));
        let behind = |ms| calendar.date_ms(mono - Duration::from_millis(ms));
        assert_eq!([ahead(0), ahead(1500), ahead(86_400_000)], [5000, 6500, 86_405_000]);
        assert_eq!([behind(1500), behind(5000), behind(9000)], [3500, 0, 0]);
    }
}
