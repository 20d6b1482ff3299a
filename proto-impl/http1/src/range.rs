//! The `Range` field (RFC 9110 §14): a single range of bytes, or the whole content.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

/// The part of a representation of known length that a `Range` field selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Range {
    /// The whole representation, because the field is absent or ignored.
    Whole,
    /// A range of at least one byte. It lies within the content.
    Part(std::ops::Range<u64>),
    /// No byte of the representation is selected: 416.
    Unsatisfiable,
}

/// Parses a `Range` field. A field is ignored if it is malformed, has an unknown unit, or has several ranges, as RFC
/// 9110 §14.2 allows. With several ranges, a small request could fetch more bytes than the file has (§17.15).
#[must_use]
pub fn parse_range(field: &str, length: u64) -> Range {
    let Some((unit, set)) = field.split_once('=') else { return Range::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") || set.contains(',') {
        return Range::Whole;
    }
    let Some((first, last)) = set.trim().split_once('-') else { return Range::Whole };
    match (position(first), position(last)) {
        (Some(None), Some(Some(suffix))) => match suffix.min(length) {
            0 => Range::Unsatisfiable,
            suffix => Range::Part(length.saturating_sub(suffix)..length),
        },
        (Some(Some(first)), Some(last)) => {
            if last.is_some_and(|last| last < first) {
                return Range::Whole;
            }
            let end = last.map_or(length, |last| last.saturating_add(1).min(length));
            if first >= end { Range::Unsatisfiable } else { Range::Part(first..end) }
        }
        (_, _) => Range::Whole,
    }
}

/// Parses a position: a number, or `Some(None)` for an empty text; `None` for anything else. A number that does not fit
/// 64 bits is larger than any file.
fn position(text: &str) -> Option<Option<u64>> {
    if text.is_empty() {
        return Some(None);
    }
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| Some(text.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_served() {
        for (field, want) in [
            ("bytes=0-499", 0..500),
            ("bytes=500-999", 500..1000),
            ("BYTES=9-", 9..1000),
            ("bytes=-1", 999..1000),
            ("bytes=-5000", 0..1000),
            ("bytes=0-99999999999999999999999999", 0..1000),
            ("bytes = 1-1", 1..2),
        ] {
            assert_eq!(parse_range(field, 1000), Range::Part(want), "{field}");
        }
    }

    #[test]
    fn h_13_everything_else_is_the_whole_or_nothing() {
        for field in [
            "bytes=0-,0-,0-",
            "bytes=0-1,5-6",
            "bytes=5-2",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=+1-2",
            "bytes=1--2",
            "bytes 0-1",
            "lines=0-1",
            "",
        ] {
            assert_eq!(parse_range(field, 1000), Range::Whole, "{field}");
        }
        for field in ["bytes=1000-", "bytes=9223372036854775808-", "bytes=99999999999999999999-", "bytes=-0"]
        {
            assert_eq!(parse_range(field, 1000), Range::Unsatisfiable, "{field}");
        }
        assert_eq!(parse_range("bytes=0-0", 0), Range::Unsatisfiable);
    }
}
