//! `EXT-X-PROGRAM-DATE-TIME` (RFC 8216 §4.3.2.6): ISO 8601 as milliseconds of Unix time.

use std::fmt;

const DAY_MS: i64 = 86_400_000;

/// Reads a date with a time. Without a time zone, UTC is assumed. The zone may lack its colon, as in ffmpeg's
/// playlists.
pub(super) fn read(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.split('-');
    let (year, month, day) =
        (digits(parts.next()?, 4)?, digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day) && parts.next().is_none();
    let (time, zone) = match time.find(['Z', 'z', '+', '-']) {
        Some(at) => time.split_at_checked(at)?,
        None => (time, "Z"),
    };
    let mut parts = time.split(':');
    let (hour, minute) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let (second, fraction) = parts.next().map(|s| s.split_once('.').unwrap_or((s, "")))?;
    let second = digits(second, 2)?;
    if !is_date || parts.next().is_some() || hour > 24 || minute > 59 || second > 60 {
        return None;
    }
    let millis = (0..3).try_fold(0, |sum, at| {
        let digit = fraction.as_bytes().get(at).copied().unwrap_or(b'0');
        digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0'))
    })?;
    let of_day = ((hour * 60 + minute) * 60 + second) * 1000 + millis;
    Some(days(year, month, day) * DAY_MS + of_day - zone_ms(zone)?)
}

fn digits(text: &str, count: usize) -> Option<i64> {
    let is_number = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn zone_ms(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, rest) = zone.split_at_checked(1)?;
    let (hours, minutes) = match rest.split_once(':') {
        Some(parts) => parts,
        None => rest.split_at_checked(2)?,
    };
    let minutes = if minutes.is_empty() { 0 } else { digits(minutes, 2)? };
    let offset = (digits(hours, 2)? * 60 + minutes) * 60_000;
    Some(if sign == "-" { -offset } else { offset })
}

/// Days since 1970-01-01 in the Gregorian calendar. Years are counted from March, so that the leap day is the
/// last day of a year.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The inverse of [`days`].
const fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year + (month <= 2) as i64, month, day)
}

/// A date in milliseconds of Unix time, written in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date(pub i64);

impl Date {
    /// Reads a date with a time. Without a time zone, UTC is assumed.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        read(text).map(Self)
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The format only allows years of four digits.
        let ms = self.0.clamp(days(0, 1, 1) * DAY_MS, days(10_000, 1, 1) * DAY_MS - 1);
        let (year, month, day) = date(ms.div_euclid(DAY_MS));
        let of_day = ms.rem_euclid(DAY_MS);
        let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
        let (second, millis) = (of_day / 1000 % 60, of_day % 1000);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_real_servers() {
        for (text, wanted) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2010-02-19T14:54:23.031+08:00", 1_266_562_463_031),
            ("2026-01-01T00:00:00.5+0000", 1_767_225_600_500),
            ("2000-02-29T12:00:00-01:30", 951_831_000_000),
            ("1969-12-31T23:59:59.999", -1),
        ] {
            assert_eq!(read(text), Some(wanted), "{text}");
        }
        for text in
            ["", "now", "2026-13-01T00:00:00Z", "2026-01-01", "2026-01-01T25:00:00Z", "2026-1-1T0:0:0Z"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_written_reads_the_same() {
        for day in (-700_000..2_900_000).step_by(997) {
            let ms = day * DAY_MS + 12_345_678;
            assert_eq!(read(&Date(ms).to_string()), Some(ms));
        }
        assert_eq!(Date(1_266_562_463_031).to_string(), "2010-02-19T06:54:23.031Z");
        assert_eq!(Date(i64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
        assert_eq!(
            read(&Date(i64::MIN).to_string()).map(|ms| Date(ms).to_string()),
            Some(Date(i64::MIN).to_string())
        );
    }
}
