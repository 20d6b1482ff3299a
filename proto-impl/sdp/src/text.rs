//! Grammar helpers for several lines.

use alloc::borrow::ToOwned;
use alloc::fmt;
use alloc::string::String;
use alloc::vec::Vec;

use crate::limits::VALUES_MAX;

/// Splits a text into words; `None` if there are too many words.
pub(crate) fn words(text: &str) -> Option<Vec<String>> {
    list(text.split_ascii_whitespace())
}

/// Returns owned copies of the items; `None` if there are too many items.
pub(crate) fn list<'a>(items: impl Iterator<Item = &'a str>) -> Option<Vec<String>> {
    bounded(items.map(|item| Some(item.to_owned())))
}

/// Collects the items; `None` if one is invalid, or if there are too many.
pub(crate) fn bounded<T>(items: impl Iterator<Item = Option<T>>) -> Option<Vec<T>> {
    let mut read = Vec::new();
    for item in items {
        if read.len() >= VALUES_MAX {
            return None;
        }
        read.push(item?);
    }
    Some(read)
}

/// Returns the first word and the rest, without surrounding blanks.
pub(crate) fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim_ascii();
    match text.split_once(|c: char| c.is_ascii_whitespace()) {
        Some((word, rest)) => (word, rest.trim_ascii_start()),
        None => (text, ""),
    }
}

/// Returns the text without surrounding blanks; `None` if it is empty, or contains other blanks or control
/// characters.
pub(crate) fn word(text: &str) -> Option<&str> {
    let text = text.trim_ascii();
    let clean = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control());
    clean.then_some(text)
}

/// Parses a decimal number that consists only of digits.
pub(crate) fn number<T: core::str::FromStr>(text: &str) -> Option<T> {
    let text = text.trim_ascii();
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// Writes items with a separator between them.
pub(crate) fn write_joined<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    separator: &str,
) -> fmt::Result {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            f.write_str(separator)?;
        }
        write!(f, "{item}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits() {
        assert_eq!((number::<u8>("127"), number::<u8>(" 9 ")), (Some(127), Some(9)));
        for bad in ["", "+1", "-1", "256", "1a", "1 2"] {
            assert_eq!(number::<u8>(bad), None, "{bad}");
        }
    }

    #[test]
    fn lists_are_bounded() {
        assert_eq!(words(&"a ".repeat(VALUES_MAX)).map(|list| list.len()), Some(VALUES_MAX));
        assert_eq!(words(&"a ".repeat(VALUES_MAX + 1)), None);
        assert_eq!(first_word("  a  b c "), ("a", "b c"));
        assert_eq!((word(" x "), word("x y"), word("")), (Some("x"), None, None));
    }
}
