//! Numbers and durations in decimal text (RFC 8216 §4.2).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::Violation;

/// Number of decimal digits of a second's fraction in nanoseconds.
const FRACTION_DIGITS: usize = 9;

/// Reads a decimal integer: digits and nothing else.
pub(super) fn integer<T: FromStr>(text: &str) -> Result<T, Violation> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Violation::Number);
    }
    text.parse().map_err(|_| Violation::Number)
}

/// Reads seconds with an optional fraction. Digits of the fraction after the ninth are ignored.
pub(super) fn duration(text: &str) -> Result<Duration, Violation> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err(Violation::Number);
    }
    let seconds: u32 = if whole.is_empty() { 0 } else { integer(whole)? };
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Violation::Number);
    }
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(FRACTION_DIGITS);
    let nanos = digits
        .fold(0u32, |sum, digit| sum.saturating_mul(10).saturating_add(u32::from(digit.wrapping_sub(b'0'))));
    Ok(Duration::new(seconds.into(), nanos))
}

/// Writes a duration in seconds with three decimal places, or with more if the duration is not a
/// whole number of milliseconds.
pub(super) struct Seconds(pub(super) Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        if nanos.is_multiple_of(1_000_000) {
            write!(f, "{seconds}.{:03}", nanos / 1_000_000)
        } else if nanos.is_multiple_of(1_000) {
            write!(f, "{seconds}.{:06}", nanos / 1_000)
        } else {
            write!(f, "{seconds}.{nanos:09}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_integers_or_fractions() {
        for (text, wanted) in [("10", 10_000), ("9.009", 9_009), ("2.", 2_000), (".5", 500), ("0", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(wanted)), "{text}");
        }
        assert_eq!(duration("1.0000000019"), Ok(Duration::new(1, 1)));
        for text in ["", ".", "-1", "1e3", "nan", "inf", "1.x", "99999999999", "+1", "1 "] {
            assert_eq!(duration(text), Err(Violation::Number), "{text}");
        }
    }

    #[test]
    fn seconds_have_the_digits_they_need() {
        for (nanos, wanted) in [(0, "6.000"), (6_000_000, "6.006"), (1_000, "6.000001"), (1, "6.000000001")] {
            assert_eq!(Seconds(Duration::new(6, nanos)).to_string(), wanted);
        }
    }
}
