//! The `.properties` format. Files are parsed by the `java-properties` crate, after our own checks (size, UTF-8,
//! doubled keys, comments). They are written by our own code, since unchanged lines must be preserved.

use std::collections::BTreeSet;

use java_properties::{LineContent, PropertiesIter};

/// Largest settings file, in bytes.
pub const FILE_BYTES_MAX: usize = 4 << 20;
/// Longest value, in bytes.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// Prefix of keys in older files.
const OLD_PREFIX: &str = "settings.";

/// A setting in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    /// Line number, from 1.
    pub line: usize,
    /// Line of an earlier value of the same key, which the value in this line replaces.
    pub replaces: Option<usize>,
    /// Key, without the `settings.` prefix.
    pub key: String,
    /// Unescaped value, without surrounding blanks.
    pub value: String,
}

/// Parses a file, keeping the order. If a key occurs twice, the last value counts, as in Java's `Properties`. The error
/// has the line (0 if none is at fault) and the reason.
///
/// # Errors
/// Too large, not UTF-8, a bad escape, or a value over 64 KiB.
pub fn parse(bytes: &[u8]) -> Result<Vec<Property>, (usize, String)> {
    if bytes.len() > FILE_BYTES_MAX {
        return Err((0, "the file is larger than 4 MiB".to_owned()));
    }
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let before = bytes.get(..e.valid_up_to()).unwrap_or(bytes);
        (line_of(before), "not UTF-8 text".to_owned())
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut found: Vec<Property> = Vec::new();
    let mut seen = std::collections::BTreeMap::new();
    for line in PropertiesIter::new(prepare(text)?.as_bytes()) {
        let line = line.map_err(|e| (e.line_number().unwrap_or(0), "malformed escape".to_owned()))?;
        let number = line.line_number();
        let LineContent::KVPair(key, value) = line.consume_content() else { continue };
        let key = key.strip_prefix(OLD_PREFIX).unwrap_or(&key).to_owned();
        let value = value.trim().to_owned();
        if key.is_empty() {
            return Err((number, "a value without a key".to_owned()));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err((number, format!("the value of {} is larger than 64 KiB", printable(&key))));
        }
        let replaces = seen.insert(key.clone(), number);
        found.push(Property { line: number, replaces, key, value });
    }
    found.retain(|property| seen.get(&property.key) == Some(&property.line));
    Ok(found)
}

fn line_of(before: &[u8]) -> usize {
    before.iter().filter(|b| **b == b'\n').count() + 1
}

/// Returns a key as messages show it: shortened, and without control characters.
pub(super) fn printable(key: &str) -> String {
    key.chars().take(80).map(|c| if c.is_control() { '_' } else { c }).collect()
}

/// Prepares a text for the crate `java-properties`: empties comment lines (in which backslashes are
/// escapes for the crate, but not for Java), limits the length of a line, and writes non-ASCII
/// characters as `\uXXXX`, because the crate reads Latin-1.
fn prepare(text: &str) -> Result<String, (usize, String)> {
    let mut out = String::with_capacity(text.len());
    let mut continued = false;
    for (index, line) in text.replace("\r\n", "\n").replace('\r', "\n").split('\n').enumerate() {
        if line.len() > VALUE_BYTES_MAX + 1024 {
            return Err((index + 1, "the line is longer than 65 KiB".to_owned()));
        }
        let comment = !continued && unindented(line).starts_with(['#', '!']);
        if !comment {
            continued = line.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1;
            escape_into(&mut out, line).ok_or_else(|| {
                (index + 1, "a character beyond U+FFFF; the format has no escape for it".to_owned())
            })?;
        }
        out.push('\n');
    }
    Ok(out)
}

fn escape_into(out: &mut String, line: &str) -> Option<()> {
    for c in line.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            let code = u32::from(c);
            if code > 0xffff {
                return None;
            }
            out.push_str(&format!("\\u{code:04x}"));
        }
    }
    Some(())
}

/// Changes the values of some keys and leaves all other lines unchanged. Missing keys are appended. Commented-out keys
/// stay as they are, and a key that occurs twice is changed in both places.
#[must_use]
pub fn set_lines(text: &str, changes: &[(&str, &str)]) -> String {
    let mut rest: Vec<&(&str, &str)> = changes.iter().collect();
    let mut out = String::with_capacity(text.len() + 64);
    let mut lines = natural_lines(text);
    while let Some(line) = lines.next() {
        let key = key_of(line);
        let Some((name, value)) = changes.iter().find(|(name, _)| Some(*name) == key) else {
            out.push_str(line);
            continue;
        };
        rest.retain(|(of_rest, _)| of_rest != name);
        let start = line.len() - unindented(line).len();
        let written = key.map_or(0, str::len);
        let prefix = if unindented(line).starts_with(OLD_PREFIX) { OLD_PREFIX.len() } else { 0 };
        out.push_str(line.get(..start + prefix + written).unwrap_or(""));
        out.push('=');
        out.push_str(&escape_value(value));
        let mut last = line;
        while continues(last) {
            let Some(next) = lines.next() else { break };
            last = next;
        }
        out.push_str(line_end(last));
    }
    for (key, value) in rest {
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&format!("{key}={}\n", escape_value(value)));
    }
    out
}

/// Comments out the lines of some keys, and leaves all other lines unchanged.
#[must_use]
pub fn comment_out(text: &str, keys: &[&str]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut lines = natural_lines(text);
    while let Some(line) = lines.next() {
        let hidden = key_of(line).is_some_and(|key| keys.contains(&key));
        let mut last = line;
        loop {
            out.push_str(if hidden { "#" } else { "" });
            out.push_str(last);
            if !continues(last) {
                break;
            }
            let Some(next) = lines.next() else { break };
            last = next;
        }
    }
    out
}

/// Appends, as comments, the given keys that the text has neither as settings nor as comments. `keys` has the name,
/// comment and default of each key. `None` if no key is missing.
#[must_use]
pub fn with_new_keys<'a>(
    text: &str,
    keys: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>,
    mark: &str,
) -> Option<String> {
    let named: BTreeSet<&str> = natural_lines(text).filter_map(|line| key_of(uncommented(line))).collect();
    let mut out = text.to_owned();
    for (name, comment, default) in keys.into_iter().filter(|(name, ..)| !named.contains(name)) {
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&format!("\n# {mark}: {comment}\n#{name}={}\n", escape_value(default)));
    }
    (out.len() > text.len()).then_some(out)
}

/// Removes the comment marks from a line.
fn uncommented(line: &str) -> &str {
    unindented(line).trim_start_matches(['#', '!'])
}

/// Splits lines, keeping their ends; a lone CR ends a line, too.
fn natural_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.find(['\r', '\n']).map_or(rest.len(), |at| {
            let both = rest.get(at..).is_some_and(|tail| tail.starts_with("\r\n"));
            at + if both { 2 } else { 1 }
        });
        let (line, tail) = rest.split_at_checked(end).filter(|(line, _)| !line.is_empty())?;
        rest = tail;
        Some(line)
    })
}

/// Removes the blanks before a key or a comment, as Java defines them. Any other character is part of the key.
fn unindented(line: &str) -> &str {
    line.trim_start_matches([' ', '\t', '\x0c'])
}

/// Returns the key of a line. Escapes are not handled, since our keys have none.
fn key_of(line: &str) -> Option<&str> {
    let line = unindented(line);
    if line.starts_with(['#', '!', '\r', '\n']) || line.is_empty() {
        return None;
    }
    let end = line.find(['=', ':', ' ', '\t', '\x0c', '\r', '\n']).unwrap_or(line.len());
    let key = line.get(..end)?;
    Some(key.strip_prefix(OLD_PREFIX).unwrap_or(key))
}

fn continues(line: &str) -> bool {
    let bare = line.trim_end_matches(['\r', '\n']);
    line.len() > bare.len() && bare.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1
}

fn line_end(line: &str) -> &str {
    line.get(line.trim_end_matches(['\r', '\n']).len()..).unwrap_or("")
}

/// Escapes a value for one line.
#[must_use]
pub(super) fn escape_value(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for (index, c) in value.chars().enumerate() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            ' ' if index == 0 => out.push_str("\\ "),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text.as_bytes()).unwrap().into_iter().map(|p| (p.key, p.value)).collect()
    }

    #[test]
    fn c_01_reads_what_java_reads() {
        let text = "# C:\\users is no escape\r\na=1\r\nsettings.b : two words \r\nc\r\nd=x\\\r\n   y\\u00fc\n\u{fc}=\u{20ac}";
        let own = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        assert_eq!(
            pairs(text),
            [
                own("a", "1"),
                own("b", "two words"),
                own("c", ""),
                own("d", "xy\u{fc}"),
                own("\u{fc}", "\u{20ac}")
            ]
        );
        assert_eq!(parse(text.as_bytes()).unwrap()[1].line, 3);
    }

    #[test]
    fn a_key_behind_a_character_that_is_no_blank_in_java_is_another() {
        for odd in ['\u{b}', '\u{a0}', '\u{3000}'] {
            let text = format!("{odd}a=1\na=2\n");
            assert_eq!(pairs(&text)[0].0, format!("{odd}a"));
            assert_eq!(set_lines(&text, &[("a", "3")]), format!("{odd}a=1\na=3\n"));
            assert_eq!(comment_out(&text, &["a"]), format!("{odd}a=1\n#a=2\n"));
        }
        assert_eq!(set_lines(" \t\u{c}a=1\n\n", &[("a", "2")]), " \t\u{c}a=2\n\n");
    }

    #[test]
    fn c_01_of_a_doubled_key_the_last_value_counts_as_in_java() {
        let text = "a=1\nb=2\nsettings.a=3\na : 4\n";
        let found = parse(text.as_bytes()).unwrap();
        let seen: Vec<_> =
            found.iter().map(|p| (p.line, p.replaces, p.key.as_str(), p.value.as_str())).collect();
        assert_eq!(seen, [(2, None, "b", "2"), (4, Some(3), "a", "4")]);
        // Every line of the key is changed, including the one whose value is in effect.
        let changed = set_lines(text, &[("a", "9")]);
        assert_eq!(changed, "a=9\nb=2\nsettings.a=9\na=9\n");
    }

    #[test]
    fn c_01_broken_and_huge_are_errors() {
        assert_eq!(parse(b"a=1\nb=\xff\n").unwrap_err(), (2, "not UTF-8 text".into()));
        assert_eq!(parse(b"a=\\u12").unwrap_err().0, 1);
        assert!(parse(format!("a={}", "x".repeat(1 << 20)).as_bytes()).is_err());
        assert!(parse(&vec![b'#'; FILE_BYTES_MAX + 1]).is_err());
        assert!(parse("a=\u{1f600}".as_bytes()).is_err());
        assert!(parse(b"=1").is_err());
        assert!(parse(b"a=b\\").is_ok());
    }

    #[test]
    fn c_01_any_bytes_never_panic() {
        proptest::proptest!(|(bytes: Vec<u8>)| { let _ = parse(&bytes); });
        proptest::proptest!(|(text in "[a=:#!\\\\u0 \r\n\u{1f600}é]{0,60}")| { let _ = parse(text.as_bytes()); });
    }

    #[test]
    fn writing_knows_every_line_end_and_every_blank_of_the_format() {
        assert_eq!(set_lines("a=1\rb=2\rc=3", &[("b", "9")]), "a=1\rb=9\rc=3");
        assert_eq!(set_lines("a\x0c1\nb=2\n", &[("a", "9")]), "a=9\nb=2\n");
        assert_eq!(set_lines("a=1\\\r\n  2\r\nb=3\r\n", &[("a", "9")]), "a=9\r\nb=3\r\n");
    }

    #[test]
    fn c_16_new_keys_are_appended_as_comments_once() {
        let keys = [
            ("old", "An old one", "1"),
            ("off", "Off", "2"),
            ("fresh", "A fresh one", " x"),
            ("old.longer", "Longer", ""),
        ];
        let text = "# head\r\nsettings.old = 7\r\n#off=2";
        let new = with_new_keys(text, keys, "new").unwrap();
        assert_eq!(
            new,
            format!("{text}\n\n# new: A fresh one\n#fresh=\\ x\n\n# new: Longer\n#old.longer=\n")
        );
        assert_eq!(with_new_keys(&new, keys, "new"), None);
        assert_eq!(pairs(&new), pairs(text));
        assert_eq!(
            with_new_keys("", keys[..1].iter().copied(), "new").unwrap(),
            "\n# new: An old one\n#old=1\n"
        );
    }

    #[test]
    fn writing_keeps_every_other_line() {
        let text = "# head\r\na = 1\r\n\r\n!b=0\nsettings.c: x\\\n  y\nd=4";
        let out = set_lines(text, &[("a", "9"), ("c", "z"), ("new", " v\\")]);
        assert_eq!(out, "# head\r\na=9\r\n\r\n!b=0\nsettings.c=z\nd=4\nnew=\\ v\\\\\n");
        assert!(pairs(&out).contains(&("new".to_owned(), "v\\".to_owned())));
    }
}
