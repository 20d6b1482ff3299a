//! Reads the list of accepted differences in docs/deviations.md.

const PAGE: &str = include_str!("../../../docs/deviations.md");
/// Heading of the section that contains the list.
const SECTION: &str = "\n## Call by call\n";

/// A row of the list: patterns of calls, the number of calls, and what differs.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) calls: usize,
    pub(super) difference: String,
}

impl Row {
    pub(super) fn covers(&self, name: &str, difference: &str) -> bool {
        is_match(&self.name, name) && is_match(&self.difference, difference)
    }
}

fn section() -> &'static str {
    let (_, section) = PAGE.split_once(SECTION).expect("the section of the list");
    section.split("\n## ").next().unwrap()
}

/// Returns the rows in their order. A difference counts for the first row that covers it.
pub(super) fn rows() -> Vec<Row> {
    let lines = section().lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [name, calls, difference, reason] = cells[..] else { panic!("not a row of four cells: {line}") };
        assert!(reason.trim_end_matches('|').trim().len() > 3, "a row without a reason: {line}");
        let code = |cell: &str| cell.trim_start_matches("| ").trim_matches('`').to_owned();
        let calls = calls.parse().unwrap_or_else(|_| panic!("no number of calls: {line}"));
        Row { name: code(name), calls, difference: code(difference) }
    };
    lines.map(row).collect()
}

/// Returns the number of calls with equal answers and the number of all calls. The section's text states them as
/// `**N of M**`.
pub(super) fn stated() -> (usize, usize) {
    let sentence = section().split("**").nth(1).expect("the count");
    let (equal, calls) = sentence.split_once(" of ").expect("N of M");
    (equal.parse().unwrap(), calls.parse().unwrap())
}

/// Returns whether a text matches a pattern, in which `*` stands for any text. Patterns cannot contain `*` and `|` of
/// the text itself, and have `*` instead.
fn is_match(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

#[test]
fn patterns_cover_what_they_should() {
    for (pattern, text, fits) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("a*", "ab", true),
        ("*b", "ab", true),
        ("a*c*", "abcd", true),
        ("a*c", "abcd", false),
        ("*", "", true),
        ("ab*b", "ab", false),
    ] {
        assert_eq!(is_match(pattern, text), fits, "{pattern} {text}");
    }
}
