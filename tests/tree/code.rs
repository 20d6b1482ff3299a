//! Rust as far as these tests must read it: without comments, literals and tests.

use std::ops::Range;

use crate::source::{self, File};

/// The files of the server, tests aside, each reduced to its code.
pub(crate) fn server() -> Vec<File> {
    read("src", false)
}

/// The same of the protocol crates.
pub(crate) fn crates() -> Vec<File> {
    read("proto-impl", false)
}

/// The files of the server with their literals.
pub(crate) fn server_with_literals() -> Vec<File> {
    read("src", true)
}

fn read(folder: &str, keeps_literals: bool) -> Vec<File> {
    let code = |text: &str| {
        let blank = without_comments(text, false);
        let shown = if keeps_literals { without_comments(text, true) } else { blank.clone() };
        outside_of_tests(&blank).into_iter().map(|range| &shown[range]).collect()
    };
    source::files(folder, &[".rs"])
        .into_iter()
        .filter(|file| !is_test(&file.path))
        .map(|file| File { text: code(&file.text), path: file.path })
        .collect()
}

fn is_test(path: &str) -> bool {
    path.split('/').any(|part| {
        matches!(part, "tests" | "tests.rs" | "benches" | "examples") || part.ends_with("_tests.rs")
    })
}

/// The code without comments, and with literals blank unless they are kept; both are of one length. Lines stay lines.
fn without_comments(text: &str, keeps_literals: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(hashes) = raw_text(rest).filter(|_| !out.ends_with(is_word)) {
            let close = format!("\"{}", "#".repeat(hashes));
            let open = hashes + 2;
            rest[open..].find(&close).map_or(rest.len(), |end| open + end + close.len())
        } else if first == '"' {
            end_of_text(rest)
        } else if first == '\'' {
            end_of_char(rest)
        } else {
            0
        };
        if skipped == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            let is_literal = !rest.starts_with('/');
            for c in rest[..skipped].chars() {
                match c {
                    '\n' => out.push(c),
                    c if is_literal && keeps_literals => out.push(c),
                    c if is_literal => out.extend(std::iter::repeat_n(' ', c.len_utf8())),
                    _ => {}
                }
            }
            rest = &rest[skipped..];
        }
    }
    out
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the number of hashes of a raw string that begins here.
fn raw_text(rest: &str) -> Option<usize> {
    let behind = rest.strip_prefix('r')?;
    let hashes = behind.bytes().take_while(|byte| *byte == b'#').count();
    behind[hashes..].starts_with('"').then_some(hashes)
}

fn end_of_text(rest: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '"' if !is_escaped => return at + 1,
            _ => is_escaped = c == '\\' && !is_escaped,
        }
    }
    rest.len()
}

/// The length of a character literal; 0 for a lifetime.
fn end_of_char(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, c))) => {
            let behind = at + c.len_utf8();
            rest[behind..].find('\'').map_or(0, |end| behind + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

/// The code but for the items that are compiled for tests only.
fn outside_of_tests(code: &str) -> Vec<Range<usize>> {
    const MARK: &str = "#[cfg(test)]";
    let mut ranges = Vec::new();
    let mut begin = 0;
    while let Some(at) = code[begin..].find(MARK) {
        ranges.push(begin..begin + at);
        begin += at + MARK.len();
        let rest = &code[begin..];
        let is_use = rest.trim_start().starts_with("use ");
        let end = match rest.find(if is_use { [';', ';'] } else { [';', '{'] }) {
            Some(end) if rest[end..].starts_with('{') => end + block(&rest[end..]).len() + 2,
            Some(end) => end + 1,
            None => rest.len(),
        };
        begin += end;
    }
    ranges.push(begin..code.len());
    ranges
}

/// Returns the text between the brace that `code` begins with and its partner.
pub(crate) fn block(code: &str) -> &str {
    let mut depth = 0usize;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return &code[1..at];
                }
            }
            _ => {}
        }
    }
    &code[1..]
}

/// The word that `code` begins with.
pub(crate) fn word(code: &str) -> &str {
    &code[..code.find(|c| !is_word(c)).unwrap_or(code.len())]
}

/// Returns the places at which `wanted` stands as a word of its own.
pub(crate) fn words<'a>(code: &'a str, wanted: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(wanted)
        .filter(move |(at, _)| {
            !code[..*at].ends_with(is_word)
                && !code[at + wanted.len()..].starts_with(|c| is_word(c) && wanted.ends_with(is_word))
        })
        .map(|(at, _)| at)
}
