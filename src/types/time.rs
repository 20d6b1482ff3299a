//! The time of a turn.

use std::time::Instant;

/// The time of one turn. Protocol machines get `mono` only.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Monotonic time, for durations and deadlines.
    pub mono: Instant,
    /// Wall-clock time for records that people read: milliseconds since the Unix epoch.
    pub wall_ms: u64,
}

/// Days of 400 years, after which the calendar repeats.
const ERA_DAYS: u64 = 146_097;

/// A moment by the calendar, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    /// From 1970 on.
    pub year: u64,
    /// 1 to 12.
    pub month: u64,
    /// 1 to 31.
    pub day: u64,
    /// 0 to 23.
    pub hour: u64,
    /// 0 to 59.
    pub minute: u64,
    /// 0 to 59.
    pub second: u64,
    /// 0 to 999.
    pub millis: u64,
}

impl Civil {
    /// The moment so many milliseconds after 1970 began.
    #[must_use]
    pub const fn of_unix_ms(ms: u64) -> Self {
        let seconds = ms / 1000;
        // Years are counted from March, so that the leap day is the last one: 1970-01-01 is day 719 468 since 0000-03-01.
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
}
